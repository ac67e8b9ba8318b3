"""Fit errors for insufficient node resources, in KAI's wording (KAI 0.13 NewFitErrorInsufficientResource)."""

from collections.abc import Iterator

from gpuconsole.scheduling.kai.api.amounts import ResourceAmounts, accommodates
from gpuconsole.scheduling.kai.api.errors import NodeError
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.requests import ResourceRequirements
from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.messages import digits, insufficient

_SHORT = "node(s) didn't have enough resources: "


def misfit(task: PodInfo, node: KaiNodeInfo, gang: bool) -> NodeError | None:
    """What the node lacks for the task; None if its idle resources fit the request when shared GPUs are left aside."""
    if node.valid_portion(task.request) and accommodates(node.idle, task.request):
        return None
    used = node.used.clone()
    used.gpus += node.shared.count
    return lacking(task.request, used, node.allocatable, node.gpu_memory, gang)


def lacking(
    request: ResourceRequirements, used: ResourceAmounts, capacity: ResourceAmounts, gpu_memory: int, gang: bool
) -> NodeError:
    """Every resource of which less is left than requested, with short reasons and details."""
    found = [*_gpus(request, used, capacity, gpu_memory, gang), *_others(request, used, capacity, gang)]
    return NodeError(tuple(short for short, _ in found), tuple(full for _, full in found))


def _gpus(
    request: ResourceRequirements, used: ResourceAmounts, capacity: ResourceAmounts, gpu_memory: int, gang: bool
) -> Iterator[tuple[str, str]]:
    if request.mig:
        for name, count in request.mig.items():
            has, taken = capacity.scalars.get(name, 0), used.scalars.get(name, 0)
            if has - taken < count:
                yield f"node(s) didn't have enough of mig profile: {name}", _counted(name, count, taken, has, gang)
        return
    if request.gpus > capacity.gpus - used.gpus:
        numbers = (gpu_text(request), f"{used.gpus:.3g}", f"{capacity.gpus:.3g}")
        yield f"{_SHORT}GPUs", insufficient("GPUs", *numbers, gang)
    if request.gpu_memory > gpu_memory:
        yield f"{_SHORT}GPU memory", _gpu_memory(request.gpu_memory, gpu_memory, gang)


def _others(
    request: ResourceRequirements, used: ResourceAmounts, capacity: ResourceAmounts, gang: bool
) -> Iterator[tuple[str, str]]:
    if int(request.cpu) > int(capacity.cpu - used.cpu):
        cores = [digits(value / 1000) for value in (request.cpu, used.cpu, capacity.cpu)]
        yield f"{_SHORT}CPU cores", insufficient("CPU cores", cores[0], cores[1], cores[2], gang)
    if request.memory > capacity.memory - used.memory:
        sizes = [digits(value / 1e9) for value in (request.memory, used.memory, capacity.memory)]
        yield f"{_SHORT}memory", insufficient("memory", sizes[0], sizes[1], sizes[2], gang)
    for name, count in request.scalars.items():
        has, taken = capacity.scalars.get(name, 0), used.scalars.get(name, 0)
        if has - taken < count:
            yield f"{_SHORT}{name}", _counted(name, count, taken, has, gang)


def _counted(name: str, count: int, used: int, capacity: int, gang: bool) -> str:
    if gang:
        return insufficient(name, "", "", "", gang)
    return f"Node didn't have enough resource: {name}, requested: {count}, used: {used}, capacity: {capacity}"


def _gpu_memory(asked: int, each: int, gang: bool) -> str:
    if gang:
        return insufficient("GPU memory", "", "", "", gang)
    return (
        f"Node didn't have enough resources: Each gpu on the node has a gpu memory capacity of {each} Mib."
        f" {asked} Mib of gpu memory has been requested."
    )


def gpu_text(request: ResourceRequirements) -> str:
    """GPUs of a request as KAI prints them."""
    if request.fractional and request.count > 1:
        return f"{request.count} X {request.portion:.3g}"
    if request.claims:
        return f"{request.claimed:.3g} as DRA gpu claims "
    return f"{request.gpus:.3g}"
