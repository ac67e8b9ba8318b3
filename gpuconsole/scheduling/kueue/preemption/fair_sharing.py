"""Preemption under fair sharing: preempts in the queue with the highest share, as long as the strategy allows it.

The incoming workload counts as used while shares are compared. `TargetClusterQueueOrdering` picks the ClusterQueues to
preempt in: the highest share first, level by level. Kueue 0.19 preemption.fairPreemptions, and ordering.go and
least_common_ancestor.go in preemption/fairsharing.
"""

from collections.abc import Iterable, Iterator

from gpuconsole.model.events import CandidateVerdict, PreemptionRule
from gpuconsole.model.queues import PreemptionPolicy
from gpuconsole.scheduling.kueue.config import PreemptionStrategy
from gpuconsole.scheduling.kueue.fair_sharing import (
    LOWEST_SHARE_KEY,
    DominantResourceShare,
    LogRecord,
    ShareComparison,
    log_record,
    share_of,
    share_text,
)
from gpuconsole.scheduling.kueue.fair_sharing import is_log_enabled as is_log_enabled
from gpuconsole.scheduling.kueue.pod_resources import Holding
from gpuconsole.scheduling.kueue.preemption.search import (
    PreemptionSearch,
    PreemptionTarget,
    candidates_of,
    candidates_ordering_key,
    merge_in_order,
    restore_unneeded_victims,
)


class TargetClusterQueueOrdering:
    """Picks the ClusterQueues to preempt in. Mutates: nodes that can yield nothing more are pruned and stay so.

    After each queue that `iterate` yields the caller must take a candidate of it or drop it, or `iterate` never ends.
    """

    def __init__(self, search: PreemptionSearch, candidates: Iterable[Holding]) -> None:
        self._search = search
        self._tree = search.usage.tree
        self._path = self._tree.paths[search.rules.node]
        self._pruned: set[int] = set()
        self._candidates: dict[int, list[Holding]] = {}
        """ClusterQueue's node → candidates, the next one last."""
        for candidate in candidates:
            self._candidates.setdefault(self._tree.queues[candidate.cluster_queue], []).append(candidate)
        for waiting in self._candidates.values():
            waiting.reverse()
        self._shares: dict[int, DominantResourceShare] = {}
        self._shares_without: dict[tuple[int, tuple[tuple[int, int], ...]], DominantResourceShare] = {}
        """Share of a target's branch without some usage of the target, as victims are often equal."""

    def iterate(self) -> Iterator[int]:
        """Yield the ClusterQueue to preempt in next, as its node in the quota tree, until no candidate is left."""
        own = self._search.rules.node
        root = self._tree.root(own)
        while root not in self._pruned:
            target = (own if self.has_candidates(own) else None) if root == own else self._next_target(root)
            if target is not None:
                yield target
            elif root == own:
                return

    def has_candidates(self, node: int) -> bool:
        """True if the ClusterQueue has candidates left."""
        return bool(self._candidates.get(node))

    def take_candidate(self, node: int) -> Holding:
        """Return the queue's next candidate; it is not offered again."""
        return self._candidates[node].pop()

    def drop_queue(self, node: int) -> None:
        """Offer no further candidates of this queue."""
        self._pruned.add(node)

    def on_removed(self, victim: Holding) -> None:
        """Note a removed victim: shares on its path are computed again."""
        node = self._tree.queues[victim.cluster_queue]
        for changed in (node, *self._tree.paths[node]):
            self._shares.pop(changed, None)
        self._shares_without.clear()

    def _share(self, node: int) -> DominantResourceShare:
        found = self._shares.get(node)
        if found is None:
            found = self._shares[node] = share_of(self._search.usage, node)
        return found

    def shares(self, node: int) -> tuple[DominantResourceShare, DominantResourceShare]:
        """Return the shares of the preemptor's and the target's branch, just below their lowest common cohort."""
        preemptor_share, other = self._almost_lca_branches(node)
        return self._share(preemptor_share), self._share(other)

    def share_without(self, node: int, candidate: Holding) -> DominantResourceShare:
        """Return the share of the target's branch without the candidate."""
        key = node, candidate.usage
        found = self._shares_without.get(key)
        if found is None:
            usage = self._search.usage
            usage.remove(node, candidate.usage)
            found = self._shares_without[key] = share_of(usage, self._almost_lca_branches(node)[1])
            usage.add(node, candidate.usage)
        return found

    def _almost_lca_branches(self, node: int) -> tuple[int, int]:
        other = node
        for common in self._tree.paths[node]:
            if common in self._path:
                below = self._path[: self._path.index(common)]
                return (below[-1] if below else self._search.rules.node), other
            other = common
        raise AssertionError("candidates are in the preemptor's tree")

    def _next_target(self, cohort: int) -> int | None:
        """Return the target below a cohort, or None if this only pruned nodes."""
        queue, queue_key = self._highest_queue(cohort)
        child, child_key = self._highest_cohort(cohort)
        if queue is None and child is None:
            self._pruned.add(cohort)
            return None
        if child is not None and child_key >= queue_key:
            return self._next_target(child)
        return queue

    def _highest_queue(self, cohort: int) -> tuple[int | None, tuple[bool, float]]:
        highest, highest_key = None, LOWEST_SHARE_KEY
        for node in self._tree.queue_children[cohort]:
            if node in self._pruned:
                continue
            current = self._share(node)
            if not self.has_candidates(node) or (not current.borrowed and node != self._search.rules.node):
                self._pruned.add(node)
            elif current.key > highest_key or (highest is not None and self._precedes(current, node, highest)):
                highest, highest_key = node, current.key
        return highest, highest_key

    def _precedes(self, current: DominantResourceShare, node: int, highest: int) -> bool:
        """True if the shares are equal and the next candidate of `node` precedes that of `highest`."""
        if current.key != self._share(highest).key:
            return False
        first, second = self._candidates[node][-1], self._candidates[highest][-1]
        return candidates_ordering_key(self._search, first) < candidates_ordering_key(self._search, second)

    def _highest_cohort(self, cohort: int) -> tuple[int | None, tuple[bool, float]]:
        """Return the last of the child cohorts with the highest share; those on the preemptor's path need not
        borrow.
        """
        highest, highest_key = None, LOWEST_SHARE_KEY
        for node in self._tree.children[cohort]:
            if node in self._pruned:
                continue
            current = self._share(node)
            if not current.borrowed and node not in self._path:
                self._pruned.add(node)
            elif current.key >= highest_key:
                highest, highest_key = node, current.key
        return highest, highest_key


def fair_targets(search: PreemptionSearch) -> list[PreemptionTarget]:
    """Return a minimal set of victims that frees enough quota under fair sharing; empty if there is none."""
    candidates = _candidates(search)
    if not candidates:
        return []
    if search.trace is not None:
        search.trace.start_attempt(candidates)
    accounts, node = search.context.snapshot, search.rules.node
    with accounts.revertible():
        accounts.usage.add(node, search.requested)
        trade = FairPreemption(search, candidates)
        if not (trade.first_strategy() or trade.second_strategy()):
            return []
        accounts.usage.remove(node, search.requested)
        return restore_unneeded_victims(search, trade.targets, borrowing=True)


def _candidates(search: PreemptionSearch) -> list[Holding]:
    """Return the own queue's, and those of every queue of the tree that borrows something needed, in order."""
    usage, own = search.usage, search.rules.node
    preemption = search.rules.queue.preemption
    found = list(candidates_of(search, search.rules.name, preemption.within_cluster_queue))
    if search.rules.within_cohort and preemption.reclaim_within_cohort != PreemptionPolicy.NEVER:
        for node in usage.tree.subtree_queues(usage.tree.root(own)):
            if node != own and not usage.is_within_nominal(node, search.columns):
                found.extend(candidates_of(search, usage.tree.names[node], preemption.reclaim_within_cohort))
    return merge_in_order(search, found, lambda holding: holding)


class FairPreemption:
    """Search for victims by one strategy after the other. Mutates the usage."""

    def __init__(self, search: PreemptionSearch, candidates: list[Holding]) -> None:
        self._search = search
        self._order = TargetClusterQueueOrdering(search, candidates)
        self._strategies = search.context.config.strategies
        self.targets: list[PreemptionTarget] = []
        self._skipped: list[Holding] = []
        """Candidates that the first strategy skipped."""

    def first_strategy(self) -> bool:
        """Choose victims by the first strategy until the preemptor fits; False if it does not.

        Shares are not compared for the own queue's candidates, or if the preemptor stays within nominal quota.
        """
        order = self._order
        entitled = self._is_within_nominal()
        for node in order.iterate():
            if node == self._search.rules.node:
                rule = PreemptionRule.IN_CLUSTER_QUEUE
            elif entitled:
                rule = PreemptionRule.IN_COHORT_RECLAMATION
            else:
                if self._take_from_queue(node):
                    return True
                continue
            if self._choose_victim(order.take_candidate(node), rule):
                return True
        return False

    def second_strategy(self) -> bool:
        """Try the skipped candidates again, at most one of each queue; False without a second strategy or if it still
        does not fit.
        """
        if len(self._strategies) < 2:
            return False
        order = self._order = TargetClusterQueueOrdering(self._search, self._skipped)
        for node in order.iterate():
            preemptor_share, target_share = order.shares(node)
            candidate = order.take_candidate(node)
            passed = preemptor_share.key < target_share.key
            if is_log_enabled():
                log_record(self._log_record(node, preemptor_share, target_share, second=True, passed=passed))
            if passed and self._choose_victim(candidate, PreemptionRule.IN_COHORT_FAIR_SHARING):
                return True
            order.drop_queue(node)
        return False

    def _take_from_queue(self, node: int) -> bool:
        """Choose the queue's first candidate that the strategy allows; skips the others for now."""
        preemptor_share, target_share = self._order.shares(node)
        # An infinite share exceeds every weighted one, whichever candidate is preempted.
        unfixable = preemptor_share.is_infinite and not target_share.is_infinite
        comparisons: list[ShareComparison] | None = [] if is_log_enabled() else None
        taken = None
        while taken is None and self._order.has_candidates(node):
            candidate = self._order.take_candidate(node)
            if not unfixable and self._passes_first_strategy(
                node, candidate, preemptor_share, target_share, comparisons
            ):
                taken = candidate
            else:
                self._skipped.append(candidate)
                self._record_verdict(candidate, CandidateVerdict.FAIR_SHARE)
        if comparisons is not None:
            log_record(self._log_record(node, preemptor_share, target_share, tuple(comparisons)))
        return taken is not None and self._choose_victim(taken, PreemptionRule.IN_COHORT_FAIR_SHARING)

    def _log_record(
        self,
        node: int,
        preemptor_share: DominantResourceShare,
        target_share: DominantResourceShare,
        comparisons: tuple[ShareComparison, ...] = (),
        *,
        second: bool = False,
        passed: bool = False,
    ) -> LogRecord:
        queue = self._search.usage.tree.names[node]
        return LogRecord(queue, share_text(preemptor_share), share_text(target_share), comparisons, second, passed)

    def _passes_first_strategy(
        self,
        node: int,
        candidate: Holding,
        preemptor_share: DominantResourceShare,
        target_share: DominantResourceShare,
        comparisons: list[ShareComparison] | None,
    ) -> bool:
        """True if the first strategy allows the candidate; `comparisons` collects the comparison for the log."""
        initial = self._strategies[0] is PreemptionStrategy.LESS_THAN_INITIAL_SHARE
        if initial and comparisons is None:
            return preemptor_share.key < target_share.key
        after = self._order.share_without(node, candidate)
        passed = self._strategy_allows(preemptor_share, target_share, after)
        if comparisons is not None:
            comparisons.append(ShareComparison(candidate.key, share_text(after), passed))
        return passed

    def _strategy_allows(
        self, preemptor_share: DominantResourceShare, target_share: DominantResourceShare, after: DominantResourceShare
    ) -> bool:
        if self._strategies[0] is PreemptionStrategy.LESS_THAN_INITIAL_SHARE:
            return preemptor_share.key < target_share.key
        return preemptor_share.key <= after.key

    def _choose_victim(self, victim: Holding, rule: PreemptionRule) -> bool:
        """Make it a victim; returns True if the preemptor fits now."""
        self._search.context.snapshot.remove_holding(victim)
        self._order.on_removed(victim)
        self._record_verdict(victim, CandidateVerdict.CHOSEN)
        self.targets.append(PreemptionTarget(victim, rule))
        return self._preemptor_fits()

    def _record_verdict(self, candidate: Holding, verdict: CandidateVerdict) -> None:
        if self._search.trace is not None:
            self._search.trace.record(candidate, verdict)

    def _preemptor_fits(self) -> bool:
        usage, node, uses = self._search.usage, self._search.rules.node, self._search.requested
        usage.remove(node, uses)
        fits = self._search.fits(borrowing=True)
        usage.add(node, uses)
        return fits

    def _is_within_nominal(self) -> bool:
        """True if the preemptor stays within its nominal quota where it is short: then shares do not matter."""
        search = self._search
        return search.context.gates.preempt_within_nominal and search.usage.is_within_nominal(
            search.rules.node, search.columns
        )
