"""Kueue's quota tree of a Snapshot, with usage, lent quota and starved queues.

Usage and availability are calculated as in the scheduler, from the workloads. Two things are ours: the attribution of
borrowed quota to the queues and cohorts that lend it (`lent`), and the definition of a starved queue: it has pending
workloads and uses less than its nominal quota while another queue borrows it. All screens use these definitions.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from msgspec import Struct

from gpuconsole.insight.derived import memoized
from gpuconsole.insight.index.demand import FlavorResource
from gpuconsole.insight.index.queues import queue_index
from gpuconsole.model.clock import Time
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.preemption.fair_sharing import share_of
from gpuconsole.scheduling.kueue.quota_tree import QuotaTree, UsageTree


def split(amount: int, spare: Mapping[int, int]) -> dict[int, int]:
    """Split `amount` among nodes in proportion to what each can lend, and at most that.

    Largest remainder, ties by number (the order of names): the parts sum up to min(amount, total lendable).
    """
    total = sum(spare.values())
    amount = min(amount, total)
    if amount <= 0:
        return dict.fromkeys(spare, 0)
    parts = {node: amount * own // total for node, own in spare.items()}
    rest = amount - sum(parts.values())
    by_remainder = sorted(spare, key=lambda node: (-(amount * spare[node] % total), node))
    for node in by_remainder[:rest]:
        parts[node] += 1
    return parts


def lent(
    root: int,
    members: Callable[[int], Sequence[int] | None],
    net: Callable[[int], int],
    pool: Callable[[int], int],
) -> dict[int, int]:
    """Compute the lent amount of each ClusterQueue, and the used amount of each Cohort's own quota, of one (flavor,
    resource) in one tree.

    `members` of a cohort are its children, of a ClusterQueue None. `net` of a node = its subtree quota − max(its
    usage, its local quota): positive is what it can lend (at most its lending limit), negative is what it borrows
    from outside. `pool` is the quota of the Cohort object itself, which no queue owns. All of these are Kueue's
    own numbers (§6); only the attribution is ours:

    Quota is borrowed from the nearest lender: the children of the lowest cohort above the borrower, then the next one.
    Within a cohort its own pool is used first; the rest is split among the children that can lend, in proportion to
    what they can lend, and likewise within a child cohort. In a flat cohort the lent amounts sum up to the borrowed
    ones. If usage exceeds the quota of the whole tree (quota was lowered while in use), the excess is borrowed but has
    no lender.
    """
    result: dict[int, int] = {}
    waiting = [(root, 0)]
    while waiting:
        node, outside = waiting.pop()
        below = members(node)
        if below is None:
            result[node] = outside
            continue
        nets = {member: net(member) for member in below}
        wanted = outside + sum(-amount for amount in nets.values() if amount < 0)
        result[node] = min(wanted, pool(node))
        parts = split(wanted - result[node], {member: max(0, amount) for member, amount in nets.items()})
        waiting.extend(parts.items())
    return result


class QuotaHeadroom(Struct, frozen=True):
    """Lent, available (without preemption) and maximum quota of a node, of one (flavor, resource)."""

    lent: int = 0
    available: int = 0
    potential: int = 0


class QuotaCapacity:
    """Usage and available quota of each node of the tree, by node number and column (see QuotaTree)."""

    def __init__(self, tree: QuotaTree, usage: UsageTree) -> None:
        self.tree = tree
        self.usage = usage
        self._lent: dict[int, dict[int, int]] = {}

    def members(self, node: int) -> Sequence[int] | None:
        """Child cohorts, then ClusterQueues, each by name; None for a ClusterQueue."""
        if node >= len(self.tree.cohorts):
            return None
        return self.tree.children[node] + self.tree.queue_children[node]

    def reach(self, node: int | None, pair: FlavorResource) -> QuotaHeadroom:
        """Return the lent, available and maximum quota of a node; all zero if it is not in the tree.

        The maximum of a cohort includes quota that its members do not lend.
        """
        column = self.tree.numbers.get(pair)
        if node is None or column is None:
            return QuotaHeadroom()
        return QuotaHeadroom(
            self.lent(node, column),
            max(0, self.usage.available(node, column)),
            self.tree.potential[node * self.tree.width + column] + self.hidden(node, column),
        )

    def hidden(self, node: int, column: int) -> int:
        """Return the quota below a cohort that its members do not lend."""
        total, waiting = 0, list(self.members(node) or ())
        while waiting:
            member = waiting.pop()
            total += self.tree.local[member * self.tree.width + column]
            waiting += self.members(member) or ()
        return total

    def lent(self, node: int, column: int) -> int:
        """Lent quota of a ClusterQueue, or used quota of a Cohort's own."""
        if column not in self._lent:
            self._lent[column] = {}
            for root in range(len(self.tree.names)):
                if self.tree.parent[root] < 0:
                    self._lent[column] |= self._lend(root, column)
        return self._lent[column].get(node, 0)

    def _lend(self, root: int, column: int) -> dict[int, int]:
        tree, used = self.tree, self.usage.usage

        def net(node: int) -> int:
            at = node * tree.width + column
            return tree.subtree[at] - max(used[at], tree.local[at])

        return lent(root, self.members, net, lambda node: tree.nominal[node * tree.width + column])

    def weighted_share(self, node: int) -> int:
        """Kueue's status.weightedShare of a node: its dominant resource share in ‰ divided by its weight, rounded up
        (§8.1).
        """
        return share_of(self.usage, node).rounded


@memoized("workloads", "local_queues", "cluster_queues", "cohorts")
def capacity(snapshot: Snapshot) -> QuotaCapacity:
    """The tree of all cohorts and ClusterQueues outside cohort cycles, with their usage."""
    tree = _tree(snapshot)
    held = {name: index.usage for name, index in queue_index(snapshot).by_queue.items() if name in tree.queues}
    unknown = {pair for usage in held.values() for pair in usage if pair not in tree.numbers}
    if unknown:  # The quota was removed while workloads use it.
        tree = QuotaTree(snapshot.cluster_queues, snapshot.cohorts, (*tree.columns, *sorted(unknown)))
    filled = UsageTree(tree)
    for name, usage in held.items():
        filled.add(tree.queues[name], [(tree.numbers[pair], amount) for pair, amount in usage.items()])
    return QuotaCapacity(tree, filled)


def cohort_cycle(snapshot: Snapshot, cohort: str) -> str:
    """Return why a cohort in or below a cohort cycle admits no workloads; empty for other cohorts."""
    if cohort not in _tree(snapshot).in_cycle:
        return ""
    return f"cohort {cohort} is its own ancestor, or below one that is: nothing in it is admitted"


@memoized("cluster_queues", "cohorts")
def _tree(snapshot: Snapshot) -> QuotaTree:
    return QuotaTree(snapshot.cluster_queues, snapshot.cohorts)


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
    """A starved ClusterQueue: its workloads are pending while others borrow its nominal quota."""

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
        if column is not None and found.usage.usage_of(node, column) < quota.nominal:
            yield StarvedQuota(
                flavor=flavor,
                resource=resource,
                used=found.usage.usage_of(node, column),
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
            tree.names[node]: usage.usage_of(node, column) - tree.nominal[node * tree.width + column]
            for node in tree.subtree_queues(root)
        }
        return tuple(
            sorted(((name, amount) for name, amount in over.items() if amount > 0), key=lambda one: (-one[1], one[0]))
        )
