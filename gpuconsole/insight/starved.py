"""Starved queues: they have pending workloads and use less than their nominal quota while another queue borrows it.

The dashboard, the queue tree and `loan_ledger` all use this definition.
"""

from collections.abc import Iterable, Mapping, Set

from msgspec import Struct

from gpuconsole.insight.capacity import QuotaCapacity, capacity
from gpuconsole.insight.derived import memoized
from gpuconsole.insight.queue_index import queue_index
from gpuconsole.model.clock import Time
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload


class StarvedQuota(Struct, frozen=True, kw_only=True):
    """One resource of one flavor whose nominal quota a starved queue does not get; amounts in base units."""

    flavor: str
    resource: str
    used: int
    nominal: int
    borrowers: tuple[tuple[str, int], ...]
    """(ClusterQueue of the same cohort tree, borrowed amount), the largest first."""

    @property
    def unused(self) -> int:
        """Unused part of the nominal quota."""
        return self.nominal - self.used


class StarvedQueue(Struct, frozen=True, kw_only=True):
    """A starved ClusterQueue."""

    queue: str
    pending: int
    """Workloads."""
    oldest: str
    """Key of the workload that has been pending longest."""
    since: Time
    """Time since which it has been pending."""
    quotas: tuple[StarvedQuota, ...]
    """In the order of the manifest."""


@memoized("workloads", "local_queues", "cluster_queues", "cohorts")
def starved_queues(snapshot: Snapshot) -> Mapping[str, StarvedQueue]:
    """Return the starved ClusterQueues by name, the longest wait first.

    Only resources that a pending workload of the queue requests or claims (DRA) count.
    """
    found, known = capacity(snapshot), queue_index(snapshot)
    borrowers = _Borrowers(found)
    starved = []
    for name in found.tree.queues:
        index = known.cluster_queue(name)
        if not index.count.pending or found.tree.parent[found.tree.queues[name]] < 0:
            continue
        quotas = tuple(one for one in _below_nominal(snapshot, found, name, borrowers) if one.borrowers)
        wanted = _requested(index.waiting, {one.resource for one in quotas})
        quotas = tuple(one for one in quotas if one.resource in wanted)
        if quotas:
            since = index.count.oldest or 0
            starved.append(
                StarvedQueue(queue=name, pending=index.count.pending, oldest=index.longest, since=since, quotas=quotas)
            )
    return {one.queue: one for one in sorted(starved, key=lambda one: (one.since, one.queue))}


def _requested(pending: Iterable[Workload], resources: Set[str]) -> Set[str]:
    """Return the resources that at least one of these workloads requests; all resources if one claims devices (DRA).

    A Snapshot does not contain which quota resource counts claimed devices. The first workloads usually decide.
    """
    left = set(resources)
    for workload in pending if left else ():
        for pod_set in workload.pod_sets:
            if pod_set.template.resource_claims:
                return resources
            left.difference_update(name for name, amount in pod_set.template.requests.items() if amount)
        if not left:
            break
    return resources - left


def _below_nominal(
    snapshot: Snapshot, found: QuotaCapacity, queue: str, borrowers: "_Borrowers"
) -> Iterable[StarvedQuota]:
    tree, node = found.tree, found.tree.queues[queue]
    for (flavor, resource), quota in snapshot.cluster_queues[queue].quotas().items():
        column = tree.numbers.get((flavor, resource))
        if column is not None and found.usage.used(node, column) < quota.nominal:
            yield StarvedQuota(
                flavor=flavor,
                resource=resource,
                used=found.usage.used(node, column),
                nominal=quota.nominal,
                borrowers=borrowers.below(tree.root(node), column),
            )


class _Borrowers:
    """Cache of the borrowers of each cohort tree, shared by all its queues. Mutates by `below`."""

    def __init__(self, found: QuotaCapacity) -> None:
        self._found = found
        self._known: dict[tuple[int, int], tuple[tuple[str, int], ...]] = {}

    def below(self, root: int, column: int) -> tuple[tuple[str, int], ...]:
        """(ClusterQueue, usage above its nominal quota) below a root of the tree, the largest first."""
        known = self._known.get((root, column))
        if known is None:
            known = self._known[root, column] = self._count(root, column)
        return known

    def _count(self, root: int, column: int) -> tuple[tuple[str, int], ...]:
        tree, usage = self._found.tree, self._found.usage
        over = {
            tree.names[node]: usage.used(node, column) - tree.nominal[node * tree.width + column]
            for node in tree.subtree_queues(root)
        }
        return tuple(
            sorted(((name, amount) for name, amount in over.items() if amount > 0), key=lambda one: (-one[1], one[0]))
        )
