"""Quota tree of a Snapshot: cohorts → ClusterQueues → LocalQueues, each with the sum of its members.

A `QuotaNode` has nominal, used, borrowed, lent and available quota, and counts of workloads; `engine_queues` makes the
same nodes for queues of Volcano and KAI. Also why a ClusterQueue cannot admit workloads, such as LocalQueues in
namespaces that it does not select.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from gpuconsole.insight.derived import memoized
from gpuconsole.insight.index.capacity import QuotaCapacity, StarvedQueue, capacity, cohort_cycle, starved_queues
from gpuconsole.insight.index.demand import claimed, quota_accelerators, quota_unit
from gpuconsole.insight.index.pods import running
from gpuconsole.insight.index.queues import ClusterQueueIndex, QueueCounts, QueueIndex, pending, queue_index
from gpuconsole.model.clock import Time
from gpuconsole.model.devices import WHOLE_GPU, common
from gpuconsole.model.queues import ClusterQueue, LocalQueue, PreemptionPolicy, QueueingStrategy, Quota, StopPolicy
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.cluster_queue_status import active_condition

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
    """Part of the nominal quota that others use (attributed by `capacity.lent`); at a cohort the sum."""
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
    """A cohort, a queue of Kueue, Volcano or KAI, or a namespace (see `NodeKind`), with everything below it."""

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
    """Preemption policies and queueing strategy, abbreviated; weight and other rules of a queue of Volcano or KAI."""
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
    """Sum the quota usage of several (flavor, resource) pairs; the sum has a limit only if every pair has one.

    `resource` only labels the result and selects nothing; it is empty for a sum without a resource name.
    """
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


@memoized("local_queues")
def local_queues_by_cluster_queue(snapshot: Snapshot) -> Mapping[str, Sequence[LocalQueue]]:
    """Map each ClusterQueue to the LocalQueues that point to it, whether it exists or not."""
    found: dict[str, list[LocalQueue]] = {}
    for local_queue in snapshot.local_queues.all():
        found.setdefault(local_queue.cluster_queue, []).append(local_queue)
    return found


def closed_reason(snapshot: Snapshot, queue: ClusterQueue) -> str:
    """Return why no LocalQueue leads to a ClusterQueue; empty if one does, or if not all of them are visible."""
    local_queues = local_queues_by_cluster_queue(snapshot).get(queue.name, ())
    if not snapshot.seen.all_of(LocalQueue):
        return ""
    if local_queues and all(local_queue.stop_policy is not StopPolicy.NONE for local_queue in local_queues):
        return (
            f"each of its LocalQueues is stopped ({', '.join(sorted(local_queue.key for local_queue in local_queues))})"
        )
    if outside := excluded_namespaces(snapshot, queue):
        return f"its namespaceSelector matches none of its LocalQueues' namespaces ({', '.join(outside)})"
    return ""


def excluded_namespaces(snapshot: Snapshot, queue: ClusterQueue) -> list[str]:
    """Return the namespaces of its LocalQueues if all are known and the selector matches none; else empty."""
    inside = sorted(
        {local_queue.namespace for local_queue in local_queues_by_cluster_queue(snapshot).get(queue.name, ())}
    )
    known = [snapshot.namespaces.get(name) for name in inside]
    selector = queue.namespace_selector
    if selector is None or any(one is None or selector.matches(one.labels) for one in known):
        return []
    return inside


def inactive_reason(snapshot: Snapshot, queue: QuotaNode) -> str:
    """Return why a ClusterQueue admits no workload whatever its quota (condition Active, LocalQueues), or empty."""
    return queue.shut or closed_reason(snapshot, snapshot.cluster_queues[queue.name])


def no_start_reason(snapshot: Snapshot, queue: QuotaNode) -> str:
    """Return why no new workload of a ClusterQueue would be admitted now, whatever its quota, or empty."""
    own = snapshot.cluster_queues[queue.name]
    if stopped := inactive_reason(snapshot, queue):
        return stopped
    head = pending(snapshot, own.name, limit=1) if own.queueing_strategy is QueueingStrategy.STRICT_FIFO else []
    if head:
        first = head[0].workload
        return f"it is StrictFIFO and blocked by its head, {first.owner.partition('/')[2] or first.key}"
    return ""


NO_QUOTA = Quota()
NO_USE = QuotaUse(resource="gpu")
NOWHERE = QuotaNode(kind=NodeKind.CLUSTER_QUEUE, name="")


@memoized(
    *("workloads", "pods", "local_queues", "cluster_queues", "cohorts", "flavors"),
    *("admission_checks", "topologies", "seen"),
    *("nodes", "device_classes", "resource_claim_templates", "resource_claims"),
)
def quota_tree(snapshot: Snapshot) -> tuple[QuotaNode, ...]:
    """Return the roots of the tree: cohorts without a parent, ClusterQueues without a cohort, then orphaned nodes.

    Usage is summed up from workloads, not read from status. A cohort in a cycle, and a LocalQueue whose ClusterQueue
    does not exist, are roots with a problem.
    """
    return _Builder(snapshot).roots()


class _Builder:
    """Builds the nodes of the tree, children first."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.capacity: QuotaCapacity = capacity(snapshot)
        self.queue_index: QueueIndex = queue_index(snapshot)
        self.running = running(snapshot).count
        self.accelerators = quota_accelerators(snapshot)
        self.units = {resource: quota_unit(snapshot, resource) for resource in self.accelerators}
        self.starved = starved_queues(snapshot)
        self.local_queues = local_queues_by_cluster_queue(snapshot)

    def roots(self) -> tuple[QuotaNode, ...]:
        tree = self.capacity.tree
        cohorts = len(tree.cohorts)
        made: dict[int, QuotaNode] = {}
        # Children are made before their parents, so that a deep chain of cohorts does not exhaust the stack.
        for node in sorted(range(len(tree.names)), key=lambda node: -len(tree.paths[node])):
            if node >= cohorts:
                made[node] = self.cluster_queue(self.snapshot.cluster_queues[tree.names[node]], node)
            else:
                made[node] = self.cohort(node, [made[child] for child in self.capacity.members(node) or ()])
        sound = [made[node] for node in range(len(tree.names)) if tree.parent[node] < 0]
        return (*sound, *self.broken(), *self.homeless())

    def broken(self) -> list[QuotaNode]:
        """Return the cohorts in a cycle, or below one, with their ClusterQueues."""
        nodes = []
        for name in sorted(self.capacity.tree.in_cycle):
            queues = [queue for queue in self.snapshot.cluster_queues.all() if queue.cohort == name]
            problem = cohort_cycle(self.snapshot, name)
            members = [
                self.cluster_queue(queue, None, problem) for queue in sorted(queues, key=lambda queue: queue.name)
            ]
            nodes.append(_cohort_node(name, members, (), name in self.snapshot.cohorts, problem=problem))
        return nodes

    def homeless(self) -> list[QuotaNode]:
        """Return the LocalQueues whose ClusterQueue does not exist or is not visible."""
        lost = sorted(name for name in self.local_queues if name not in self.snapshot.cluster_queues)
        unseen = "; ".join(self.snapshot.seen.missing_reasons(ClusterQueue))
        why = f"its ClusterQueue is not visible: {unseen}" if unseen else ""
        return [
            self.local_queue(
                local_queue, NOWHERE, self.queue_index.cluster_queue(name), why or f"ClusterQueue {name} doesn't exist"
            )
            for name in lost
            for local_queue in sorted(self.local_queues[name], key=lambda local_queue: local_queue.key)
        ]

    def cohort(self, node: int, members: Sequence[QuotaNode]) -> QuotaNode:
        tree = self.capacity.tree
        name = tree.names[node]
        cohort = self.snapshot.cohorts.get(name)
        quotas = cohort.quotas() if cohort is not None else {}
        below: dict[tuple[str, str], list[QuotaUse]] = {pair: [] for pair in quotas}
        for member in members:
            for use in member.flavors:
                below.setdefault((use.flavor, use.resource), []).append(use)
        flavors = tuple(self._pool(node, pair, quotas.get(pair, NO_QUOTA), uses) for pair, uses in below.items())
        share = self.capacity.weighted_share(node)
        gpus = sum_up((use for use in flavors if use.resource in self.accelerators), "gpu")
        unit = self.unit(flavors)
        return _cohort_node(name, members, flavors, cohort is not None, gpus=gpus, unit=unit, weighted_share=share)

    def counts(self, count: QueueCounts, pending: Iterable[Workload]) -> Mapping[str, Any]:
        """Return the counts as fields of a QuotaNode, with the devices that the pending workloads claim (DRA)."""
        fields = _counts(count)
        devices = claimed(self.snapshot, pending)
        return {**fields, "pending_gpus": count.pending_gpus + devices} if devices else fields

    def unit(self, flavors: Iterable[QuotaUse]) -> str:
        """Return the unit of the accelerators of these flavors; SEVERAL_UNITS if there are several."""
        found = {self.units[use.resource] for use in flavors if use.resource in self.units}
        one = common(found)
        return SEVERAL_UNITS if one is None and found else (one or WHOLE_GPU).noun

    def _pool(self, node: int, pair: tuple[str, str], quota: Quota, uses: Sequence[QuotaUse]) -> QuotaUse:
        """Return a cohort's quota of one (flavor, resource): that of its members and its own."""
        reach = self.capacity.reach(node, pair)
        return QuotaUse(
            flavor=pair[0],
            resource=pair[1],
            nominal=quota.nominal + sum(use.nominal for use in uses),
            used=sum(use.used for use in uses),
            admitted=sum(use.admitted for use in uses),
            borrowed=sum(use.borrowed for use in uses),
            lent=reach.lent + sum(use.lent for use in uses),
            borrowing_limit=quota.borrowing_limit,
            lending_limit=quota.lending_limit,
            available=reach.available,
            potential=reach.potential,
        )

    def cluster_queue(self, queue: ClusterQueue, node: int | None, problem: str = "") -> QuotaNode:
        index = self.queue_index.cluster_queue(queue.name)
        quotas = queue.quotas()
        pairs = dict.fromkeys([*quotas, *sorted(index.usage)])
        flavors = tuple(self._use(queue, node, index, pair, quotas.get(pair, NO_QUOTA)) for pair in pairs)
        gpus = sum_up((use for use in flavors if use.resource in self.accelerators), "gpu")
        bare = QuotaNode(
            kind=NodeKind.CLUSTER_QUEUE,
            name=queue.name,
            flavors=flavors,
            gpus=gpus,
            unit=self.unit(flavors),
            share_percent=_share(gpus, flavors),
            weighted_share=self.capacity.weighted_share(node) if node is not None else 0,
            policy=policy_text(queue),
            starved=self.starved.get(queue.name),
            stop=queue.stop_policy,
            problem=_queue_problem(queue, self.snapshot) or problem,
            running=sum(self.running[queue.name, page] for page in index.pages),
            **self.counts(index.count, index.waiting),
        )
        local_queues = sorted(self.local_queues.get(queue.name, ()), key=lambda local_queue: local_queue.key)
        return replace(bare, children=tuple(self.local_queue(local_queue, bare, index) for local_queue in local_queues))

    def _use(
        self, queue: ClusterQueue, node: int | None, index: ClusterQueueIndex, pair: tuple[str, str], quota: Quota
    ) -> QuotaUse:
        used = index.usage.get(pair, 0)
        reach = self.capacity.reach(node, pair)
        return QuotaUse(
            flavor=pair[0],
            resource=pair[1],
            nominal=quota.nominal,
            used=used,
            admitted=used - index.unadmitted.get(pair, 0),
            borrowed=max(0, used - quota.nominal) if queue.cohort else 0,
            lent=reach.lent,
            borrowing_limit=quota.borrowing_limit,
            lending_limit=quota.lending_limit,
            available=reach.available,
            potential=reach.potential,
        )

    def local_queue(
        self, local_queue: LocalQueue, above: QuotaNode, index: ClusterQueueIndex, problem: str = ""
    ) -> QuotaNode:
        """Return a LocalQueue's node: it has no quota, so its usage is relative to the capacity of its ClusterQueue."""
        page = index.local_queue(local_queue.key)
        flavors = tuple(
            QuotaUse(
                flavor=pair[0],
                resource=pair[1],
                used=used,
                admitted=used - page.unadmitted.get(pair, 0),
                available=use.available,
                potential=use.potential,
            )
            for pair, used in sorted(page.usage.items())
            for use in [_find(above.flavors, pair)]
        )
        gpus = QuotaUse(
            resource="gpu",
            used=sum(use.used for use in flavors if use.resource in self.accelerators),
            admitted=sum(use.admitted for use in flavors if use.resource in self.accelerators),
            available=above.gpus.available,
            potential=above.gpus.potential,
        )
        return QuotaNode(
            kind=NodeKind.LOCAL_QUEUE,
            name=local_queue.key,
            flavors=flavors,
            gpus=gpus,
            unit=above.unit,
            share_percent=_share(gpus, flavors),
            stop=local_queue.stop_policy,
            problem=problem or above.problem,
            running=self.running[local_queue.cluster_queue, local_queue.key],
            **self.counts(index.local_count(local_queue.key), (place[4] for place in page.waiting.values())),
        )


def policy_text(queue: ClusterQueue) -> str:
    """Format a ClusterQueue's preemption policies and queueing strategy."""
    preemption = queue.preemption
    words = []
    if preemption.reclaim_within_cohort != PreemptionPolicy.NEVER:
        words.append(f"reclaim {preemption.reclaim_within_cohort}")
    if preemption.within_cluster_queue != PreemptionPolicy.NEVER:
        words.append(f"within {preemption.within_cluster_queue}")
    if preemption.borrow_within_cohort.policy != PreemptionPolicy.NEVER:
        words.append(f"while borrowing {preemption.borrow_within_cohort.policy}")
    words.append(queue.queueing_strategy.removesuffix("FIFO"))
    return " · ".join(words)


def _queue_problem(queue: ClusterQueue, snapshot: Snapshot) -> str:
    """Return why a ClusterQueue admits no workload, or empty; a stopped queue is shown separately."""
    ready = active_condition(replace(queue, stop_policy=StopPolicy.NONE), snapshot, seen=snapshot.seen)
    if not ready.active:
        return ready.message
    if queue.namespace_selector is None:
        return "admits no workload: without a namespaceSelector it matches no namespace ({} matches all)"
    return ""


def _cohort_node(
    name: str,
    members: Sequence[QuotaNode],
    flavors: tuple[QuotaUse, ...],
    declared: bool,
    *,
    gpus: QuotaUse = NO_USE,
    unit: str = WHOLE_GPU.noun,
    weighted_share: int = 0,
    problem: str = "",
) -> QuotaNode:
    total = QueueCounts()
    for member in members:
        total.add(_count_of(member))
    return QuotaNode(
        kind=NodeKind.COHORT,
        name=name,
        children=tuple(members),
        flavors=flavors,
        gpus=gpus,
        unit=unit,
        share_percent=_share(gpus, flavors),
        weighted_share=weighted_share,
        declared=declared,
        problem=problem,
        running=sum(member.running for member in members),
        **_counts(total),
    )


def _counts(count: QueueCounts) -> Mapping[str, Any]:
    """Return the counts as fields of a QuotaNode."""
    return asdict(count)


def _count_of(node: QuotaNode) -> QueueCounts:
    return QueueCounts(node.pending, node.inadmissible, node.reserved, node.admitted, node.pending_gpus, node.oldest)


def _share(gpus: QuotaUse, flavors: Iterable[QuotaUse]) -> float:
    return gpus.share_percent if gpus.potential else max((use.share_percent for use in flavors), default=0.0)


def _find(uses: Iterable[QuotaUse], pair: tuple[str, str]) -> QuotaUse:
    return next((use for use in uses if (use.flavor, use.resource) == pair), QuotaUse())
