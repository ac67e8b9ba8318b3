"""Number of tasks that fit a topology domain, and why not all do (KAI 0.13 plugins/topology job_filtering)."""

from collections import Counter
from collections.abc import Sequence

from gpuconsole.scheduling.kai.api.amounts import PODS, ResourceAmounts
from gpuconsole.scheduling.kai.api.errors import TOO_FEW, JobError
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.requests import ResourceRequirements, largest_request
from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.messages import digits
from gpuconsole.scheduling.kai.plugins.topology_tree import TopologyDomainInfo, ratio

_ONE_POD = ResourceRequirements(scalars={PODS: 1})


def total_of(tasks: Sequence[PodInfo]) -> ResourceAmounts:
    """Total request of the tasks."""
    total = ResourceAmounts()
    for task in tasks:
        total.add_request(task.request)
    return total


def countable(tasks: Sequence[PodInfo]) -> bool:
    """True if the tasks can be counted by the largest request: same resources, and all or none with GPUs."""
    with_gpus = sum(task.request.gpus > 0 for task in tasks)
    if with_gpus not in (0, len(tasks)):
        return False
    counts = Counter(name for task in tasks for name in task.request.scalars)
    return all(count == len(tasks) for count in counts.values())


class Counting:
    """Counts how many pods of the largest request fit nodes; caches the total requests of 1, 2, … pods. Mutates."""

    def __init__(self, tasks: Sequence[PodInfo]) -> None:
        """Raises PortionsDiffer if tasks request different fractions of a GPU."""
        self._tasks = len(tasks)
        largest = ResourceRequirements()
        for task in tasks:
            largest = largest_request(largest, task.request)
        self._largest = largest
        self._of = [largest]

    def count(self, domain: TopologyDomainInfo) -> int:
        """Count the pods that fit each domain below, and this one."""
        domain.pods = (
            sum(map(self.count, domain.children)) if domain.children else sum(map(self.on_node, domain.nodes.values()))
        )
        return domain.pods

    def on_node(self, node: KaiNodeInfo) -> int:
        """How many pods fit the node's free resources; all tasks if they request nothing but a pod."""
        if self._largest.within(_ONE_POD):
            return self._tasks
        free, pods = node.free(), 0
        while node.fits_by_devices(self._request(pods), free):
            pods += 1
        return pods

    def _request(self, more: int) -> ResourceRequirements:
        while len(self._of) <= more:
            self._of.append(_together(self._of[-1], self._largest))
        return self._of[more]


def _together(some: ResourceRequirements, one: ResourceRequirements) -> ResourceRequirements:
    """The request of one more pod on top of some; MIG requests keep their GPU count."""
    scalars = {name: some.scalars.get(name, 0) + n for name, n in one.scalars.items()}
    cpu, memory = some.cpu + one.cpu, some.memory + one.memory
    if some.mig:
        mig = {name: some.mig.get(name, 0) + n for name, n in one.mig.items()}
        return ResourceRequirements(
            cpu=cpu, memory=memory, scalars=scalars, count=some.count, portion=some.portion, mig=mig
        )
    count = some.count + one.count
    return ResourceRequirements(
        cpu=cpu, memory=memory, scalars=scalars, count=count, portion=some.portion, gpu_memory=some.gpu_memory
    )


def misfit(domain: TopologyDomainInfo, needs: ResourceAmounts, tasks: int, group: str) -> JobError | None:
    """Why the tasks do not fit the domain; None if they do, by the pods counted, else by the sum of free resources."""
    if domain.pods is None:
        return None if ratio(needs, domain) <= 1 else _too_little(domain, needs, group)
    if domain.pods >= tasks:
        return None
    text = f"node-group {domain.key} can allocate only {domain.pods} of {tasks} required pods"
    return JobError(reason=TOO_FEW, messages=(text,), sub_group=group, domain=domain.key)


def _too_little(domain: TopologyDomainInfo, needs: ResourceAmounts, group: str) -> JobError:
    short, full = [], []
    where, free = domain.key, domain.free
    if needs.mig:
        for name, count in needs.mig.items():
            if free.scalars.get(name, 0) < count:
                has = free.scalars.get(name, 0)
                full.append(f"{where} didn't have enough resource: {name}, requested: {count}, available: {has}")
                short.append(f"node-group(s) didn't have enough of mig profile: {name}")
    elif needs.gpus > free.gpus:
        numbers = f"requested: {needs.gpus:.3g}, available: {free.gpus:.3g}"
        full.append(f"{where} didn't have enough resource: GPUs, {numbers}")
        short.append("node-group(s) didn't have enough resources: GPUs")
    plain = (("CPU cores", needs.cpu, free.cpu, 1000.0), ("memory", needs.memory, free.memory, 1e9))
    for name, asked, left, unit in plain:
        if int(asked) > int(left):
            amounts = f"requested: {digits(asked / unit)}, available: {digits(left / unit)}"
            full.append(f"{where} didn't have enough resources: {name}, {amounts}")
            short.append(f"node-group(s) didn't have enough resources: {name}")
    for name, count in needs.scalars.items():
        if free.scalars.get(name, 0) < count:
            has = free.scalars.get(name, 0)
            full.append(f"{where} didn't have enough resource: {name}, requested: {count}, available: {has}")
            short.append(f"node-group(s) didn't have enough resources: {name}")
    return JobError(reason=TOO_FEW, messages=tuple(short), details=tuple(full), sub_group=group, domain=domain.key)
