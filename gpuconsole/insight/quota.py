"""Quota tree of a Snapshot: cohorts → ClusterQueues → LocalQueues, each with the sum of its members."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import asdict, replace

from gpuconsole.insight.capacity import QuotaCapacity, capacity, cohort_cycle
from gpuconsole.insight.derived import memoized
from gpuconsole.insight.device_demand import claimed, quota_accelerators, quota_unit
from gpuconsole.insight.local_queue_index import QueueCounts
from gpuconsole.insight.local_queues import local_queues_by_cluster_queue
from gpuconsole.insight.phases import running
from gpuconsole.insight.queue_index import ClusterQueueIndex, QueueIndex, queue_index
from gpuconsole.insight.quota_node import SEVERAL_UNITS, NodeKind, QuotaNode, QuotaUse, sum_up
from gpuconsole.insight.starved import starved_queues
from gpuconsole.model.device_units import WHOLE_GPU, common
from gpuconsole.model.queues import ClusterQueue, LocalQueue, PreemptionPolicy, Quota, StopPolicy
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.cluster_queue_status import active_condition

__all__ = ["NodeKind", "QuotaNode", "QuotaUse", "policy_text", "quota_tree"]

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
        for name in sorted(self.capacity.tree.broken):
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
