"""Kinds of changes that a plan tries: policy, priority, quota, nodes; each is scaled by a number."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from gpuconsole.insight.cost import node_hourly
from gpuconsole.insight.demand import pod_accelerators
from gpuconsole.insight.device_demand import (
    CLAIMED,
    counted_as,
    quota_accelerators,
    quota_unit,
    template_units,
    wanted_units,
)
from gpuconsole.insight.gpumap import dra_devices
from gpuconsole.model.cluster import Node
from gpuconsole.model.commands import AddNodes, Command, Reconfigure, SetPreemption, SetPriority, SetQuota
from gpuconsole.model.device_units import DRA_DEVICE, counted_units
from gpuconsole.model.prices import Prices, gpu_hourly
from gpuconsole.model.queues import ClusterQueue, PreemptionPolicy
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.policy import SimPolicy

MOST = 64
"""Maximum number of nodes or quota steps that is tried, unless more is requested."""
RAISED = 1_000
"""Maximum increase of a priority that is tried."""


class PlanChange(Struct, frozen=True):
    """One change to the cluster, with its amount and cost."""

    sort: str
    """Subject of the change."""
    words: str
    commands: tuple[Command, ...]
    hourly: float = 0.0
    """USD per hour."""


Make = Callable[[int], PlanChange]
"""Amount → the change."""


class PlanKind(Struct, frozen=True):
    """A kind of option: changes that are tried together."""

    name: str
    most: int
    """Maximum amount of each part."""
    likely: int
    """Requested amount of each part."""
    parts: tuple[Make, ...]
    """The parts after the first are minimized before it."""


class _Demand(Struct):
    """Requested amount of one kind of accelerator."""

    largest: int = 0
    """Largest request of one pod."""
    total: int = 0

    @property
    def pods(self) -> int:
        """Number of pods of the largest size that together request the total."""
        return -(-self.total // self.largest)


_Wanted = Mapping[str, _Demand]
"""Extended resource, or CLAIMED for DRA devices → requested amount; no entry for zero."""


def kinds(snapshot: Snapshot, workloads: Sequence[Workload], policy: SimPolicy) -> list[PlanKind]:
    """List the kinds of changes to try for these workloads."""
    queues = _queues(snapshot, workloads)
    found: list[PlanKind] = []
    shared = [queue for queue in queues if queue.cohort]
    kept = [queue for queue in shared if queue.preemption.reclaim_within_cohort is not PreemptionPolicy.ANY]
    if kept:
        found.append(PlanKind("preemption", 1, 1, tuple(map(_reclaiming, kept))))
    if workloads and policy.kueue is not None:
        found.append(PlanKind("priority", RAISED, 1, (_raising(workloads),)))
        if shared and not policy.kueue.fair_sharing:
            found.append(PlanKind("fair sharing", 1, 1, (_fair_sharing,)))
    wanted = _wanted(snapshot, workloads)
    for flavor in dict.fromkeys(name for queue in queues for name, _ in _pairs(snapshot, queue, wanted)) or [""]:
        found += _capacity(snapshot, wanted, queues, flavor, policy.prices)
    return found


def subjects(commands: Iterable[Command]) -> set[tuple[object, ...]]:
    """Identify what the commands change, regardless of the amount: kinds with the same subjects are the same option."""
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
    """Return the ClusterQueues of the requested workloads."""
    local_queues = (snapshot.local_queues.get(workload.local_queue) for workload in workloads)
    names = dict.fromkeys(local_queue.cluster_queue for local_queue in local_queues if local_queue is not None)
    found = (snapshot.cluster_queues.get(name) for name in names)
    return [queue for queue in found if queue is not None]


def _capacity(
    snapshot: Snapshot, wanted: _Wanted, queues: Sequence[ClusterQueue], flavor: str, prices: Prices
) -> Iterator[PlanKind]:
    """Yield the kinds for a flavor: more quota, more nodes, and both."""
    asked = max((demand.pods for demand in wanted.values()), default=0)
    most = max(MOST, asked)
    pairs = [(queue, pair) for queue in queues for pair in _pairs(snapshot, queue, wanted) if pair[0] == flavor]
    like = _cheapest(snapshot, flavor, wanted, prices)
    quotas = tuple(_quota(snapshot, *pair, wanted) for pair in pairs)
    if quotas:
        yield PlanKind("quota", most, asked, quotas)
    if like is not None:
        nodes = _nodes(like, _hourly(snapshot, like, prices))
        yield PlanKind("nodes", most, asked, (nodes,))
        if quotas:
            # Nodes cost money, so their number is minimized first.
            yield PlanKind("quota and nodes", most, asked, (*quotas, nodes))


def _wanted(snapshot: Snapshot, workloads: Iterable[Workload]) -> _Wanted:
    found: dict[str, _Demand] = {}
    for workload in workloads:
        for pod_set in workload.pod_sets:
            for name, amount in pod_accelerators(pod_set.template).items():
                demand = found.setdefault(name, _Demand())
                demand.largest = max(demand.largest, amount)
                demand.total += amount * pod_set.count
            claims = template_units(snapshot, workload.namespace, pod_set.template).get(DRA_DEVICE, 0)
            if claims:
                demand = found.setdefault(CLAIMED, _Demand())
                demand.largest = max(demand.largest, claims)
        if devices := wanted_units(snapshot, workload).get(DRA_DEVICE, 0):
            found[CLAIMED].total += devices
    return found


def _pairs(snapshot: Snapshot, queue: ClusterQueue, wanted: _Wanted) -> Iterator[tuple[str, str]]:
    """Yield (flavor, resource) of the queue's quotas for the requested accelerators; of all if none is requested."""
    counted = quota_accelerators(snapshot)
    for flavor, resource in queue.quotas():
        if resource in counted and (not wanted or _name(resource) in wanted):
            yield flavor, resource


def _name(resource: str) -> str:
    """Return the name of a quota's resource among the requested ones."""
    return CLAIMED if counted_as(resource) == CLAIMED else resource


def _quota(snapshot: Snapshot, queue: ClusterQueue, pair: tuple[str, str], wanted: _Wanted) -> Make:
    """Return a function that adds nominal quota to a queue, in steps of the request of the largest pod."""
    demand, unit = wanted.get(_name(pair[1])), quota_unit(snapshot, pair[1])
    step = demand.largest if demand is not None else 1

    def make(number: int) -> PlanChange:
        amount = queue.quotas()[pair].nominal + number * step
        words = f"quota {queue.name} +{counted_units(number * step, unit)} of {pair[0]}"
        return PlanChange("quota", words, (SetQuota(queue.name, *pair, amount),))

    return make


def _nodes(like: Node, price: float) -> Make:
    def make(number: int) -> PlanChange:
        words = f"{number} more node{'s' if number > 1 else ''} like {like.name}"
        return PlanChange("nodes", words, (AddNodes(like.name, number),), number * price)

    return make


def _raising(workloads: Sequence[Workload]) -> Make:
    def make(number: int) -> PlanChange:
        # By job, as the hash in a Workload's name changes each time that it is created.
        named = ((workload.owner or workload.key, workload.priority) for workload in workloads)
        raised = tuple(SetPriority(name, priority + number) for name, priority in named)
        return PlanChange("priority", f"priority +{number}", raised)

    return make


def _reclaiming(queue: ClusterQueue) -> Make:
    def make(number: int) -> PlanChange:
        policy = SetPreemption(queue.name, reclaim_within_cohort=PreemptionPolicy.ANY)
        return PlanChange("preemption", f"reclaimWithinCohort: Any in {queue.name}", (policy,))

    return make


def _fair_sharing(number: int) -> PlanChange:
    return PlanChange("fair sharing", "enable fair sharing", (Reconfigure(fair_sharing=True),))


def _cheapest(snapshot: Snapshot, flavor: str, wanted: _Wanted, prices: Prices) -> Node | None:
    """Return the node of a flavor (without queues: of all) with the lowest price per requested device.

    If no accelerators are requested, the node with the cheapest GPUs.
    """
    known = snapshot.flavors.get(flavor)
    labels = known.node_labels.items() if known is not None else ()
    found: list[tuple[float, str, Node]] = []
    for node in snapshot.nodes.all():
        if node.ready and all(node.labels.get(key) == value for key, value in labels):
            offered = sum(_offered(snapshot, node, name) for name in wanted) if wanted else node.gpus
            if offered:
                found.append((_hourly(snapshot, node, prices) / offered, node.name, node))
    return min(found, key=lambda one: one[:2])[2] if found else None


def _offered(snapshot: Snapshot, node: Node, name: str) -> int:
    return dra_devices(snapshot, node.name) if name == CLAIMED else node.allocatable.get(name, 0)


def _hourly(snapshot: Snapshot, node: Node, prices: Prices) -> float:
    """Return USD per hour for a node; if its devices are in ResourceSlices only, their price."""
    return node_hourly(node, prices) or dra_devices(snapshot, node.name) * gpu_hourly(node, prices)
