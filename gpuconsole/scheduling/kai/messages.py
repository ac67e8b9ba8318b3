"""Messages of KAI 0.13, word for word, and the errors of jobs, tasks and nodes that they come from.

Upstream: api/unschedule_info (messages), api/common_info job_errors and pod_errors (`JobError`, `TaskErrors`),
NewFitErrorInsufficientResource (`insufficient_resources_error`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.tasks import PodInfo, ResourceAmounts, ResourceRequirements, fits_whole_devices
from gpuconsole.scheduling.kai.fair_share.division import UNLIMITED

_GB, _CORE = 1_000_000_000, 1000


def format_number(value: float, unit: float = 1) -> str:
    """Format a value in multiples of `unit`, truncated to three decimals; -1 is Unlimited."""
    if value == UNLIMITED:
        return "Unlimited"
    return format_decimals(value / unit)


def format_decimals(value: float) -> str:
    """Format a number with at most three decimals, truncated."""
    whole, _, rest = f"{value:.6f}".partition(".")
    rest = rest[:3].rstrip("0")
    return f"{whole}.{rest}" if rest else whole


def over_limit_message(queue: str, name: str, limit: float, used: float, requested: float) -> str:
    """The message of a job whose request exceeds the limit of a queue for a resource."""
    obj, unit, scale = {
        "GPU": ("GPUs", "GPUs", 1),
        "CPU": ("CPU cores", "cores", _CORE),
        "Memory": ("memory", "GB", _GB),
    }[name]
    return (
        f"{queue} quota has reached the allowable limit of {obj}. Limit is {format_number(limit, scale)} {unit},"
        f" currently {format_number(used, scale)} {unit} allocated"
        f" and workload requested {format_number(requested, scale)} {unit}"
    )


def over_quota_message(queue: str, name: str, deserved: float, used: float, requested: float) -> str:
    """The message of a non-preemptible job whose request exceeds the quota of a queue for a resource."""
    obj, unit, scale = {
        "GPU": ("GPUs", "GPUs", 1),
        "CPU": ("CPU cores", "cores", _CORE),
        "Memory": ("GB memory", "GB", _GB),
    }[name]
    asked = f"{requested:g}" if name == "GPU" else format_number(requested, scale)
    return (
        f"Non-preemptible workload is over quota. Workload requested {asked} {obj}, but {queue} quota is"
        f" {format_number(deserved, scale)} {unit}, while {format_number(used, scale)} {unit} are already allocated for"
        " non-preemptible pods. Use a preemptible workload to go over quota."
    )


def preempted_message(pod: str, by: str) -> str:
    """The message of an eviction by the preempt action."""
    return f"Pod {pod} was preempted by higher priority workload {by}"


def reclaimed_message(pod: str, by: str) -> str:
    """The message of an eviction by the reclaim action."""
    return f"Pod {pod} was preempted by workload {by}."


def consolidated_message(pod: str) -> str:
    """The message of an eviction by the consolidation action."""
    return f"Pod {pod} was preempted and rescheduled due to bin packing (resource consolidation) procedure"


def stale_gang_message(pod: str, minimum: int, sub_group: str = "") -> str:
    """The message of an eviction because the pod's gang is stale."""
    where = f" in sub-group {sub_group}" if sub_group else ""
    return (
        f"Workload doesn't meet the minimum required number of pods ({minimum}){where}, evicting remaining pod: {pod}"
    )


def queue_usage_message(
    queue: str, used: dict[str, float], quota: dict[str, float], fair: dict[str, float], priority: int
) -> str:
    """A text with a queue's usage, quota, fair share and priority."""
    return (
        f"{queue} uses <{_amounts_text(used)}> with a quota of <{_amounts_text(quota)}>,"
        f" fair-share of <{_amounts_text(fair)}> and queue priority of <{priority}>."
    )


def _amounts_text(of: dict[str, float]) -> str:
    cores, gigabytes = format_number(of["CPU"], _CORE), format_number(of["Memory"], _GB)
    return f"GPU: {format_number(of['GPU'])}, CPU: {cores} (cores), memory: {gigabytes} (GB)"


def insufficient_reason(obj: str, requested: str, used: str, capacity: str, gang: bool) -> str:
    """The reason of a node that has too little of the resource `obj`; without numbers for gangs."""
    if gang:
        return f"Node didn't have enough resources: {obj}, taking all considerations into account"
    return f"Node didn't have enough resources: {obj}, requested: {requested}, used: {used}, capacity: {capacity}"


NO_NODES = "no nodes with enough resources were found"
UNABLE_TO_SCHEDULE = "Unable to schedule podgroup"
UNABLE_TO_SCHEDULE_POD = "Unable to schedule pod"
NO_QUEUE = "QueueDoesNotExist"
NOT_ENOUGH_PODS = "Not enough resources for the workload"
POD_ERRORS = "PodSchedulingErrors"
OVER_LIMIT = "OverLimit"
OVER_QUOTA = "NonPreemptibleOverQuota"


class JobError(Struct, frozen=True, kw_only=True):
    """One reason why a job was not placed, with short messages and details."""

    reason: str
    messages: tuple[str, ...]
    details: tuple[str, ...] = ()
    sub_group: str = ""
    domain: str = ""

    @property
    def detail(self) -> str:
        """The details, else the messages, with the sub-group and the topology domain that they concern."""
        text = ", ".join(self.details or self.messages)
        if self.sub_group not in ("", "default"):
            text = f"subgroup {self.sub_group}: {text}"
        return f"<{self.domain}>: {text}" if self.domain else text


def explain_errors(errors: Sequence[JobError]) -> str:
    """All errors of a job with their details in one text, as in KAI's events."""
    reason = errors[0].reason if len(errors) == 1 else UNABLE_TO_SCHEDULE
    return f"\n{reason}." + "".join(sorted(f"\n{error.detail}." for error in errors))


def summarise_errors(errors: Sequence[JobError]) -> str:
    """All errors of a job in one text: short messages, with the number of equal ones."""
    reason = errors[0].reason if len(errors) == 1 else UNABLE_TO_SCHEDULE
    counted = Counter(message for error in errors for message in error.messages)
    lines = sorted(f"{n} {message}" if n > 1 else message for message, n in counted.items())
    text = ". \n".join(lines)
    return f"{reason}: {text}." if lines else reason


class NodeError(Struct, frozen=True):
    """Why one node does not fit a task: short reasons and details."""

    reasons: tuple[str, ...]
    details: tuple[str, ...] = ()


class TaskErrors:
    """Why a task was not placed: a text for the task as a whole, and reasons by node. Mutates."""

    def __init__(self, text: str = "") -> None:
        self.text = text
        self.nodes: dict[str, NodeError] = {}

    @property
    def message(self) -> str:
        """The short text: the reasons, each with the number of nodes that gave it."""
        lines = count_reasons(error.reasons for error in self.nodes.values())
        text = self.text or NO_NODES
        return f"{text}: {lines}." if lines else text

    @property
    def detail(self) -> str:
        """The long text: the reason, and the details of every node."""
        lines = [f"\n{self.text or NO_NODES}."]
        lines += (f"\n<{node}>: {', '.join(e.details or e.reasons)}." for node, e in self.nodes.items())
        return "".join(sorted(lines))


def count_reasons(reasons: Iterable[Sequence[str]]) -> str:
    """Reasons with the number of nodes, sorted as texts; the argument has the reasons of each node."""
    counted = Counter(reason for group in reasons for reason in group)
    return ". \n".join(sorted(f"{n} {reason}" for reason, n in counted.items()))


_SHORT = "node(s) didn't have enough resources: "


def node_misfit(task: PodInfo, node: KaiNodeInfo, gang: bool) -> NodeError | None:
    """What the node lacks for the task; None if its idle resources fit the request when shared GPUs are left aside."""
    if node.is_valid_portion(task.request) and fits_whole_devices(node.idle, task.request):
        return None
    used = node.used.copy()
    used.gpus += node.shared.count
    return insufficient_resources_error(task.request, used, node.allocatable, node.gpu_memory, gang)


def insufficient_resources_error(
    request: ResourceRequirements, used: ResourceAmounts, capacity: ResourceAmounts, gpu_memory: int, gang: bool
) -> NodeError:
    """The error of a node, with a reason and details for every resource of which less is left than requested."""
    found = [*_lacking_gpus(request, used, capacity, gpu_memory, gang), *_lacking_others(request, used, capacity, gang)]
    return NodeError(tuple(short for short, _ in found), tuple(full for _, full in found))


def _lacking_gpus(
    request: ResourceRequirements, used: ResourceAmounts, capacity: ResourceAmounts, gpu_memory: int, gang: bool
) -> Iterator[tuple[str, str]]:
    if request.mig:
        for name, count in request.mig.items():
            has, taken = capacity.scalars.get(name, 0), used.scalars.get(name, 0)
            if has - taken < count:
                yield (
                    f"node(s) didn't have enough of mig profile: {name}",
                    _insufficient_count(name, count, taken, has, gang),
                )
        return
    if request.gpus > capacity.gpus - used.gpus:
        numbers = (format_gpus(request), f"{used.gpus:.3g}", f"{capacity.gpus:.3g}")
        yield f"{_SHORT}GPUs", insufficient_reason("GPUs", *numbers, gang)
    if request.gpu_memory > gpu_memory:
        yield f"{_SHORT}GPU memory", _insufficient_gpu_memory(request.gpu_memory, gpu_memory, gang)


def _lacking_others(
    request: ResourceRequirements, used: ResourceAmounts, capacity: ResourceAmounts, gang: bool
) -> Iterator[tuple[str, str]]:
    if int(request.cpu) > int(capacity.cpu - used.cpu):
        cores = [format_decimals(value / 1000) for value in (request.cpu, used.cpu, capacity.cpu)]
        yield f"{_SHORT}CPU cores", insufficient_reason("CPU cores", cores[0], cores[1], cores[2], gang)
    if request.memory > capacity.memory - used.memory:
        sizes = [format_decimals(value / 1e9) for value in (request.memory, used.memory, capacity.memory)]
        yield f"{_SHORT}memory", insufficient_reason("memory", sizes[0], sizes[1], sizes[2], gang)
    for name, count in request.scalars.items():
        has, taken = capacity.scalars.get(name, 0), used.scalars.get(name, 0)
        if has - taken < count:
            yield f"{_SHORT}{name}", _insufficient_count(name, count, taken, has, gang)


def _insufficient_count(name: str, count: int, used: int, capacity: int, gang: bool) -> str:
    if gang:
        return insufficient_reason(name, "", "", "", gang)
    return f"Node didn't have enough resource: {name}, requested: {count}, used: {used}, capacity: {capacity}"


def _insufficient_gpu_memory(asked: int, each: int, gang: bool) -> str:
    if gang:
        return insufficient_reason("GPU memory", "", "", "", gang)
    return (
        f"Node didn't have enough resources: Each gpu on the node has a gpu memory capacity of {each} Mib."
        f" {asked} Mib of gpu memory has been requested."
    )


def format_gpus(request: ResourceRequirements) -> str:
    """The GPUs of a request as text, as KAI prints them."""
    if request.is_fractional and request.count > 1:
        return f"{request.count} X {request.portion:.3g}"
    if request.claims:
        return f"{request.dra_gpus:.3g} as DRA gpu claims "
    return f"{request.gpus:.3g}"
