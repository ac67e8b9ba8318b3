"""Fair sharing: the dominant resource share of queues and cohorts, and preemption in the queue with the highest share.

The incoming workload counts as used while shares are compared. `TargetClusterQueueOrdering` picks the ClusterQueues to
preempt in: the highest share first, level by level. Kueue 0.19 preemption.fairPreemptions, and ordering.go and
least_common_ancestor.go in preemption/fairsharing.

The dominant resource share says how much a node borrows (Kueue 0.19 scheduler/fair_sharing.go). It is the greatest
ratio, over resources, of what the node's subtree uses beyond its own quota to what its parent could lend, in
thousandths, divided by the node's weight. Ratios are float64, as in Kueue.

The log shows the shares that were compared before a victim was skipped or chosen (Kueue 0.19 fair_sharing_log.go): one
DEBUG record for each ClusterQueue that the first strategy visits, with its comparisons, and one for each that the
second visits. Nothing is gathered while that level is off.
"""

import logging
import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec import Struct

from gpuconsole.model.events import CandidateVerdict, PreemptionRule
from gpuconsole.model.queues import PreemptionPolicy
from gpuconsole.model.resources import MAX
from gpuconsole.scheduling.kueue.config import PreemptionStrategy
from gpuconsole.scheduling.kueue.pod_resources import Holding
from gpuconsole.scheduling.kueue.preemption.search import (
    PreemptionSearch,
    PreemptionTarget,
    candidates_of,
    candidates_ordering_key,
    merge_in_order,
    restore_unneeded_victims,
)
from gpuconsole.scheduling.kueue.quota_tree import UsageTree


class DominantResourceShare(NamedTuple):
    """The dominant resource share of a ClusterQueue or cohort."""

    ratio: float
    """Unweighted, in thousandths."""
    weight: float
    borrowed: tuple[int, ...] = ()
    """Columns in which the node borrows."""
    dominant: str = ""
    """The resource with the greatest ratio, the first by name if several have it; empty if none is borrowed."""

    @property
    def key(self) -> tuple[bool, float]:
        """Sort key of shares (CompareDRS): borrowing with weight 0 is greater than every weighted share."""
        if self.ratio and not self.weight:
            return True, self.ratio
        return False, self.ratio / self.weight if self.ratio else 0.0

    @property
    def is_infinite(self) -> bool:
        """True if the node borrows with weight 0."""
        return self.ratio > 0 and self.weight == 0

    @property
    def weighted(self) -> float:
        """The ratio divided by the weight (PreciseWeightedShare)."""
        return math.inf if self.is_infinite else self.key[1]

    @property
    def rounded(self) -> int:
        """The value of status.fairSharing.weightedShare."""
        return MAX if self.is_infinite else math.ceil(self.weighted)


LOWEST_SHARE_KEY = (False, -1.0)
"""A key below that of every share."""


def share_of(usage: UsageTree, node: int) -> DominantResourceShare:
    """Return the share of a ClusterQueue or a cohort; its ratio is 0 for a root or a node that borrows nothing."""
    tree = usage.tree
    weight = tree.weights[node]
    parent = tree.parent[node]
    if parent < 0:
        return DominantResourceShare(0.0, weight)
    base = node * tree.width
    borrowed: list[int] = []
    totals: dict[str, int] = {}
    for column in tree.named[node]:
        beyond = usage.usage[base + column] - tree.subtree[base + column]
        if beyond > 0:
            borrowed.append(column)
            resource = tree.columns[column][1]
            totals[resource] = totals.get(resource, 0) + beyond
    ratio, dominant = 0.0, ""
    for resource, total in totals.items():
        lendable = tree.lendable[parent][resource]
        if lendable > 0:
            mine = total * 1000.0 / lendable
            if mine > ratio or (mine == ratio and resource < dominant):
                ratio, dominant = mine, resource
    return DominantResourceShare(ratio, weight, tuple(borrowed), dominant)


LOGGER = logging.getLogger(__name__)


class ShareComparison(Struct, frozen=True):
    """A preemption candidate, the share of its branch of the cohort without it, and whether the strategy allows it."""

    workload: str
    share: str
    is_allowed: bool

    def __str__(self) -> str:
        return f"{self.workload} {'goes' if self.is_allowed else 'stays'} (share without it {self.share})"


class LogRecord(Struct, frozen=True):
    """One record of the log: one visit to a ClusterQueue."""

    queue: str
    """The ClusterQueue that may lose workloads."""
    preemptor_share: str
    """Share of the preemptor's branch, the incoming workload included."""
    target_share: str
    comparisons: tuple[ShareComparison, ...] = ()
    """Comparisons of the first strategy; empty if its shares rule out all candidates."""
    is_second_strategy: bool = False
    is_chosen: bool = False
    """True if the second strategy chooses the queue's next candidate."""

    def __str__(self) -> str:
        head = f"fair sharing: {self.preemptor_share} against {self.target_share} of ClusterQueue {self.queue}: "
        if self.is_second_strategy:
            return head + f"its next workload {'goes' if self.is_chosen else 'stays'} by the second strategy"
        return head + ("; ".join(map(str, self.comparisons)) or "no workload of it can pass")


def share_text(share: DominantResourceShare) -> str:
    """Return a share as Kueue writes it: `+Inf` for one that borrows with weight 0 (PreciseWeightedShareSerialized)."""
    return "+Inf" if share.is_infinite else format(share.weighted, "f").rstrip("0").rstrip(".")


def is_log_enabled() -> bool:
    """True if the log is enabled."""
    return LOGGER.isEnabledFor(logging.DEBUG)


def log_record(record: LogRecord) -> None:
    """Write a record to the log."""
    LOGGER.debug("%s", record)


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
