"""Kueue's quota tree of a Snapshot with the usage of its workloads, calculated as in the scheduler."""

from collections.abc import Sequence

from msgspec import Struct

from gpuconsole.insight.demand import FlavorResource
from gpuconsole.insight.derived import memoized
from gpuconsole.insight.lending import lent
from gpuconsole.insight.queue_index import queue_index
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.scheduling.kueue.fair_sharing import share
from gpuconsole.scheduling.kueue.quota_tree import QuotaTree, UsageTree


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
        """Return the quota of a node, all zero if not in the tree; a cohort includes quota its members do not lend."""
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
        return share(self.usage, node).rounded


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
    if cohort not in _tree(snapshot).broken:
        return ""
    return f"cohort {cohort} is its own ancestor, or below one that is: nothing in it is admitted"


@memoized("cluster_queues", "cohorts")
def _tree(snapshot: Snapshot) -> QuotaTree:
    return QuotaTree(snapshot.cluster_queues, snapshot.cohorts)
