"""Nodes of the quota tree as data: nominal, used, borrowed, lent and available quota of each cohort and queue."""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from msgspec import Struct, field
from msgspec.structs import replace

from gpuconsole.insight.starved import StarvedQueue
from gpuconsole.model.clock import Time
from gpuconsole.model.device_units import WHOLE_GPU
from gpuconsole.model.queues import StopPolicy

SEVERAL_UNITS = "device"
"""The unit of a node with accelerators of several units."""


class NodeKind(StrEnum):
    """Kind of a node of the quota tree."""

    COHORT = "cohort"
    CLUSTER_QUEUE = "cluster_queue"
    LOCAL_QUEUE = "local_queue"
    VOLCANO_QUEUE = "volcano_queue"
    KAI_QUEUE = "kai_queue"
    NAMESPACE = "namespace"
    """A namespace in place of a queue, in a cluster without queues."""


class QuotaUse(Struct, frozen=True, kw_only=True):
    """One resource in one flavor (or a roll-up of several) at one node of the tree, in base units."""

    flavor: str = ""
    """Empty in a roll-up."""
    resource: str = ""
    nominal: int = 0
    """Nominal quota; at a cohort the sum of its members and the Cohort's own."""
    used: int = 0
    """Quota reserved by workloads, admitted or not."""
    admitted: int = 0
    """Part of `used` that admitted workloads hold (Kueue's flavorsUsage); the rest is only reserved."""
    borrowed: int = 0
    """max(0, used − nominal) of a ClusterQueue in a cohort; at a cohort the sum of those below."""
    lent: int = 0
    """Quota of it that others use (attributed by `insight.lending.lent`); at a cohort the sum."""
    borrowing_limit: int | None = None
    """None = no limit."""
    lending_limit: int | None = None
    """None = all of it may be lent."""
    available: int = 0
    """Amount that could be admitted now without preemption (Kueue's available, never below 0)."""
    potential: int = 0
    """Maximum capacity: Kueue's potentialAvailable; the end of the bar."""

    @property
    def share_percent(self) -> float:
        """Usage ÷ potential capacity, in percent; 0 where there is no capacity."""
        return 100 * self.used / self.potential if self.potential > 0 else 0.0


class QuotaNode(Struct, frozen=True, kw_only=True):
    """A cohort, a ClusterQueue or a LocalQueue, a queue of Volcano or KAI, with everything below it."""

    kind: NodeKind
    name: str
    """The key `namespace/name` for a LocalQueue."""
    children: tuple["QuotaNode", ...] = ()
    flavors: tuple[QuotaUse, ...] = ()
    """By (flavor, resource), in the order of the manifest. A LocalQueue has those that it uses."""
    gpus: QuotaUse = QuotaUse()
    """All accelerators of all flavors: GPUs, replicas of them, MIG instances, DRA devices."""
    unit: str = WHOLE_GPU.noun
    """Unit of `gpus` and `pending_gpus`: `GPU`, `MIG 1g.10gb instance`; SEVERAL_UNITS if there are several."""
    share_percent: float = 0.0
    """Usage ÷ potential capacity of the GPUs; of the most used resource where no GPU is covered."""
    weighted_share: int = 0
    """Kueue's weightedShare (dominant resource share, ‰, rounded up); 9223372036854775807 for weight 0 that borrows."""
    pending: int = 0
    running: int = 0
    """Workloads of which all pods run."""
    admitted: int = 0
    """Running ones included; of Volcano and KAI: those with pods on nodes."""
    reserved: int = 0
    """Workloads with reserved quota: admitted, waiting for checks, or terminating after an eviction."""
    inadmissible: int = field(default=0, name="parked")
    """Pending workloads that are inadmissible until something in their cohort tree changes."""
    pending_gpus: int = 0
    oldest: Time | None = None
    """Start of the longest current wait."""
    policy: str = ""
    """The preemption policies and the queueing strategy, abbreviated."""
    stop: StopPolicy = StopPolicy.NONE
    declared: bool = True
    """False for an implicit cohort, which has no Cohort object."""
    starved: StarvedQueue | None = None
    """How the ClusterQueue is starved, if it is."""
    problem: str = ""
    """Reason why it admits no workload."""

    @property
    def shut(self) -> str:
        """Why the queue admits no workload: its problem, or that it is stopped; empty if it admits."""
        if self.problem or self.stop is StopPolicy.NONE:
            return self.problem
        return "it is closed" if self.kind is NodeKind.VOLCANO_QUEUE else f"it is stopped ({self.stop})"


def every(roots: Iterable[QuotaNode]) -> Iterator[tuple[QuotaNode, int]]:
    """Yield every node from each root down, with its depth.

    Not recursive: a chain of queues or cohorts may be deeper than the stack.
    """
    waiting = [(root, 0) for root in reversed(tuple(roots))]
    while waiting:
        node, depth = waiting.pop()
        yield node, depth
        waiting += [(child, depth + 1) for child in reversed(node.children)]


def queues_below(roots: Iterable[QuotaNode]) -> Iterator[QuotaNode]:
    """Yield the queues at and below these: the outermost of Volcano and KAI, and LocalQueues without ClusterQueue."""
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        if node.kind is NodeKind.COHORT:
            waiting += node.children
        else:
            yield node


def leaves(queue: QuotaNode) -> Iterator[QuotaNode]:
    """Yield the leaf queues of Volcano or KAI at and below one, as only these accept jobs."""
    waiting = [queue]
    while waiting:
        node = waiting.pop()
        if not node.children:
            yield node
        waiting += node.children


def leaves_available(queue: QuotaNode) -> Iterator[tuple[QuotaNode, QuotaUse]]:
    """Yield the leaf queues of Volcano or KAI, with each resource limited to what the queues above them allow."""
    waiting = [(queue, {use.resource: use.available for use in queue.flavors})]
    while waiting:
        node, most = waiting.pop()
        if not node.children:
            yield from ((node, replace(use, available=most[use.resource])) for use in node.flavors)
        for child in reversed(node.children):
            own = {use.resource: use.available for use in child.flavors}
            waiting.append((child, {name: min(most.get(name, n), n) for name, n in own.items()}))


def sum_up(uses: Iterable[QuotaUse], resource: str = "") -> QuotaUse:
    """Sum several (flavor, resource) into one; a limit is only set if all have one."""
    parts: Sequence[QuotaUse] = tuple(uses)
    if not parts:
        return QuotaUse(resource=resource)
    return QuotaUse(
        resource=resource,
        nominal=sum(use.nominal for use in parts),
        used=sum(use.used for use in parts),
        admitted=sum(use.admitted for use in parts),
        borrowed=sum(use.borrowed for use in parts),
        lent=sum(use.lent for use in parts),
        borrowing_limit=_sum_limit(use.borrowing_limit for use in parts),
        lending_limit=_sum_limit(use.lending_limit for use in parts),
        available=sum(use.available for use in parts),
        potential=sum(use.potential for use in parts),
    )


def _sum_limit(limits: Iterable[int | None]) -> int | None:
    total = 0
    for limit in limits:
        if limit is None:
            return None
        total += limit
    return total
