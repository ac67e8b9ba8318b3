"""What may be changed to let workloads in: policy, priority, quota, nodes; each grows in a number."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from gpuconsole.insight.cost import node_hourly
from gpuconsole.insight.demand import wanted_gpus
from gpuconsole.model.cluster import Node
from gpuconsole.model.commands import AddNodes, Command, Reconfigure, SetPreemption, SetPriority, SetQuota
from gpuconsole.model.prices import Prices
from gpuconsole.model.queues import ClusterQueue, PreemptionPolicy
from gpuconsole.model.resources import is_gpu
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.policy import SimPolicy

MOST = 64
"""Most of a number that is tried (nodes, or steps of quota), unless more is asked for than that."""
RAISED = 1_000
"""By so much a priority is raised to see whether that helps at all."""


class Change(Struct, frozen=True):
    """So much of something."""

    sort: str
    """Of what."""
    words: str
    commands: tuple[Command, ...]
    hourly: float = 0.0
    """USD."""


Make = Callable[[int], Change]
"""How much of it → the change."""


class Kind(Struct, frozen=True):
    """What is changed together."""

    name: str
    most: int
    """Of each part; no more is tried."""
    likely: int
    """Of each part; as much as is asked for."""
    parts: tuple[Make, ...]
    """Those after the first are made as small as they may be before it is."""


def kinds(snapshot: Snapshot, workloads: Sequence[Workload], policy: SimPolicy) -> list[Kind]:
    """What could be tried to let these workloads into a cluster."""
    queues = _queues(snapshot, workloads)
    found: list[Kind] = []
    shared = [queue for queue in queues if queue.cohort]
    kept = [queue for queue in shared if queue.preemption.reclaim_within_cohort is not PreemptionPolicy.ANY]
    if kept:
        found.append(Kind("preemption", 1, 1, tuple(map(_reclaiming, kept))))
    if workloads and policy.kueue is not None:
        found.append(Kind("priority", RAISED, 1, (_raising(workloads),)))
        if shared and not policy.kueue.fair_sharing:
            found.append(Kind("fair sharing", 1, 1, (_fair_sharing,)))
    for flavor in dict.fromkeys(name for queue in queues for name, _ in _gpu_quotas(queue)) or [""]:
        found += _capacity(snapshot, workloads, queues, flavor, policy.prices)
    return found


def subjects(commands: Iterable[Command]) -> set[tuple[object, ...]]:
    """What they change, however much: two kinds find the same where one of them needs only a part of itself."""
    return set(map(_subject, commands))


def _subject(command: Command) -> tuple[object, ...]:
    match command:
        case SetQuota(queue, flavor):
            return SetQuota, queue, flavor
        case AddNodes(like):
            return AddNodes, like
        case _:
            return (type(command),)


def _queues(snapshot: Snapshot, workloads: Sequence[Workload]) -> list[ClusterQueue]:
    """The ClusterQueues that the asked ones go to."""
    doors = (snapshot.local_queues.get(workload.local_queue) for workload in workloads)
    names = dict.fromkeys(door.cluster_queue for door in doors if door is not None)
    found = (snapshot.cluster_queues.get(name) for name in names)
    return [queue for queue in found if queue is not None]


def _capacity(
    snapshot: Snapshot, workloads: Sequence[Workload], queues: Sequence[ClusterQueue], flavor: str, prices: Prices
) -> Iterator[Kind]:
    """More quota of a flavor, more of its nodes, and both."""
    step = max([1, *map(_largest_pod, workloads)])
    asked = -(-sum(map(wanted_gpus, workloads)) // step)
    most = max(MOST, asked)
    pairs = [(queue, pair) for queue in queues for pair in _gpu_quotas(queue) if pair[0] == flavor]
    like = _cheapest(snapshot, flavor, prices)
    quotas = tuple(_quota(*pair, step) for pair in pairs)
    if quotas:
        yield Kind("quota", most, asked, quotas)
    if like is not None:
        nodes = _nodes(like, node_hourly(like, prices))
        yield Kind("nodes", most, asked, (nodes,))
        if quotas:
            # Nodes cost money: they are made few first.
            yield Kind("quota and nodes", most, asked, (*quotas, nodes))


def _quota(queue: ClusterQueue, pair: tuple[str, str], step: int) -> Make:
    """More nominal quota of a flavor's GPUs in a queue that is asked and has some; by what the largest pod takes."""

    def make(number: int) -> Change:
        amount = queue.quotas()[pair].nominal + number * step
        words = f"quota {queue.name} +{number * step} GPUs of {pair[0]}"
        return Change("quota", words, (SetQuota(queue.name, *pair, amount),))

    return make


def _nodes(like: Node, price: float) -> Make:
    def make(number: int) -> Change:
        words = f"{number} more node{'s' if number > 1 else ''} like {like.name}"
        return Change("nodes", words, (AddNodes(like.name, number),), number * price)

    return make


def _raising(workloads: Sequence[Workload]) -> Make:
    def make(number: int) -> Change:
        # By its job: the name of a job's Workload has a part that is another one each time that it is made.
        named = ((workload.owner or workload.key, workload.priority) for workload in workloads)
        raised = tuple(SetPriority(name, priority + number) for name, priority in named)
        return Change("priority", f"priority +{number}", raised)

    return make


def _reclaiming(queue: ClusterQueue) -> Make:
    def make(number: int) -> Change:
        policy = SetPreemption(queue.name, reclaim_within_cohort=PreemptionPolicy.ANY)
        return Change("preemption", f"reclaimWithinCohort: Any in {queue.name}", (policy,))

    return make


def _fair_sharing(number: int) -> Change:
    return Change("fair sharing", "fair sharing on", (Reconfigure(fair_sharing=True),))


def _largest_pod(workload: Workload) -> int:
    requests = (pod_set.template.requests for pod_set in workload.pod_sets)
    return max((sum(amount for name, amount in r.items() if is_gpu(name)) for r in requests), default=1)


def _gpu_quotas(queue: ClusterQueue) -> list[tuple[str, str]]:
    return [pair for pair in queue.quotas() if is_gpu(pair[1])]


def _cheapest(snapshot: Snapshot, flavor: str, prices: Prices) -> Node | None:
    """The node with the cheapest GPUs among those of a flavor; of all, where nothing queues."""
    known = snapshot.flavors.get(flavor)
    labels = known.node_labels.items() if known is not None else ()
    nodes = [
        node
        for node in snapshot.nodes.all()
        if node.gpus and node.ready and all(node.labels.get(key) == value for key, value in labels)
    ]
    return min(nodes, key=lambda node: (node_hourly(node, prices) / node.gpus, node.name), default=None)
