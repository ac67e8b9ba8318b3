"""Order in which fair sharing picks the ClusterQueues to preempt in: the highest share first, level by level.

Kueue 0.19 preemption/fairsharing/ordering.go and least_common_ancestor.go.
"""

from collections.abc import Iterable, Iterator

from gpuconsole.scheduling.kueue.fair_sharing import LEAST, DominantResourceShare, share
from gpuconsole.scheduling.kueue.preemption.policy import considered_in_order
from gpuconsole.scheduling.kueue.preemption.search import PreemptionSearch
from gpuconsole.scheduling.kueue.requests import Holding


class TargetClusterQueueOrdering:
    """Picks target ClusterQueues. Mutates: nodes that can yield nothing more are pruned and stay so.

    Between two turns the caller must take a candidate of the queue or drop it, or the order would not end.
    """

    def __init__(self, search: PreemptionSearch, candidates: Iterable[Holding]) -> None:
        self._search = search
        self._tree = search.usage.tree
        self._path = self._tree.paths[search.rules.node]
        self._pruned: set[int] = set()
        self._waiting: dict[int, list[Holding]] = {}
        """ClusterQueue's node → candidates, the next one last."""
        for candidate in candidates:
            self._waiting.setdefault(self._tree.queues[candidate.cluster_queue], []).append(candidate)
        for waiting in self._waiting.values():
            waiting.reverse()
        self._shares: dict[int, DominantResourceShare] = {}
        self._shares_without: dict[tuple[int, tuple[tuple[int, int], ...]], DominantResourceShare] = {}
        """Share of a target's branch without some usage of the target, as victims are often equal."""

    def turns(self) -> Iterator[int]:
        """Yield the nodes of ClusterQueues one at a time until no candidate is left."""
        own = self._search.rules.node
        root = self._tree.root(own)
        while root not in self._pruned:
            target = (own if self.has(own) else None) if root == own else self._next(root)
            if target is not None:
                yield target
            elif root == own:
                return

    def has(self, node: int) -> bool:
        """True if the ClusterQueue has candidates left."""
        return bool(self._waiting.get(node))

    def take(self, node: int) -> Holding:
        """Return the queue's next candidate; it is not offered again."""
        return self._waiting[node].pop()

    def drop(self, node: int) -> None:
        """Offer no further candidates of this queue."""
        self._pruned.add(node)

    def removed(self, victim: Holding) -> None:
        """Note a removed victim: shares on its path are computed again."""
        node = self._tree.queues[victim.cluster_queue]
        for changed in (node, *self._tree.paths[node]):
            self._shares.pop(changed, None)
        self._shares_without.clear()

    def _share(self, node: int) -> DominantResourceShare:
        found = self._shares.get(node)
        if found is None:
            found = self._shares[node] = share(self._search.usage, node)
        return found

    def shares(self, node: int) -> tuple[DominantResourceShare, DominantResourceShare]:
        """Return the shares of the preemptor's and the target's branch, just below their lowest common cohort."""
        mine, other = self._branches(node)
        return self._share(mine), self._share(other)

    def share_without(self, node: int, candidate: Holding) -> DominantResourceShare:
        """Return the share of the target's branch without the candidate."""
        key = node, candidate.uses
        found = self._shares_without.get(key)
        if found is None:
            usage = self._search.usage
            usage.remove(node, candidate.uses)
            found = self._shares_without[key] = share(usage, self._branches(node)[1])
            usage.add(node, candidate.uses)
        return found

    def _branches(self, node: int) -> tuple[int, int]:
        other = node
        for common in self._tree.paths[node]:
            if common in self._path:
                below = self._path[: self._path.index(common)]
                return (below[-1] if below else self._search.rules.node), other
            other = common
        raise AssertionError("candidates are in the preemptor's tree")

    def _next(self, cohort: int) -> int | None:
        """Return the target below a cohort, or None if this only pruned nodes."""
        queue, queue_key = self._highest_queue(cohort)
        child, child_key = self._highest_cohort(cohort)
        if queue is None and child is None:
            self._pruned.add(cohort)
            return None
        if child is not None and child_key >= queue_key:
            return self._next(child)
        return queue

    def _highest_queue(self, cohort: int) -> tuple[int | None, tuple[bool, float]]:
        highest, highest_key = None, LEAST
        for node in self._tree.queue_children[cohort]:
            if node in self._pruned:
                continue
            current = self._share(node)
            if not self.has(node) or (not current.borrowed and node != self._search.rules.node):
                self._pruned.add(node)
            elif current.key > highest_key or (highest is not None and self._goes_first(current, node, highest)):
                highest, highest_key = node, current.key
        return highest, highest_key

    def _goes_first(self, current: DominantResourceShare, node: int, highest: int) -> bool:
        """True if the shares are equal and the next candidate of `node` precedes that of `highest`."""
        if current.key != self._share(highest).key:
            return False
        first, second = self._waiting[node][-1], self._waiting[highest][-1]
        return considered_in_order(self._search, first) < considered_in_order(self._search, second)

    def _highest_cohort(self, cohort: int) -> tuple[int | None, tuple[bool, float]]:
        """Return the last of the child cohorts with the highest share; those on the preemptor's path need not
        borrow.
        """
        highest, highest_key = None, LEAST
        for node in self._tree.children[cohort]:
            if node in self._pruned:
                continue
            current = self._share(node)
            if not current.borrowed and node not in self._path:
                self._pruned.add(node)
            elif current.key >= highest_key:
                highest, highest_key = node, current.key
        return highest, highest_key
