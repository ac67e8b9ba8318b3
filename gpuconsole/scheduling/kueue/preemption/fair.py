"""Preemption under fair sharing: take from the node with the highest share while that is fair by the strategy.

Kueue 0.19 preemption.fairPreemptions. The incoming workload counts as used while shares are compared.
"""

from gpuconsole.model.choices import Verdict
from gpuconsole.model.decisions import Rule
from gpuconsole.model.queues import PreemptionPolicy
from gpuconsole.scheduling.kueue.config import Strategy
from gpuconsole.scheduling.kueue.fairness import Share
from gpuconsole.scheduling.kueue.preemption import weighing
from gpuconsole.scheduling.kueue.preemption.policy import candidates_of, in_turn
from gpuconsole.scheduling.kueue.preemption.search import Search, Target, fill_back
from gpuconsole.scheduling.kueue.preemption.target_order import TargetOrder
from gpuconsole.scheduling.kueue.preemption.weighing import Judged, Weighed
from gpuconsole.scheduling.kueue.requests import Holding


def fair_targets(search: Search) -> list[Target]:
    """The victims that make room fairly, as few as it takes, or nobody."""
    candidates = _candidates(search)
    if not candidates:
        return []
    if search.story is not None:
        search.story.begin(candidates)
    accounts, node = search.context.accounts, search.rules.node
    with accounts.trial():
        accounts.usage.add(node, search.uses)
        trade = Trade(search, candidates)
        if not (trade.first_strategy() or trade.second_strategy()):
            return []
        accounts.usage.remove(node, search.uses)
        return fill_back(search, trade.targets, borrowing=True)


def _candidates(search: Search) -> list[Holding]:
    """The own queue's, and those of every queue of the tree that borrows something needed, in order."""
    usage, own = search.usage, search.rules.node
    preemption = search.rules.queue.preemption
    found = list(candidates_of(search, search.rules.name, preemption.within_cluster_queue))
    if search.rules.within_cohort and preemption.reclaim_within_cohort != PreemptionPolicy.NEVER:
        for node in usage.tree.subtree_queues(usage.tree.root(own)):
            if node != own and not usage.within(node, search.columns):
                found.extend(candidates_of(search, usage.tree.names[node], preemption.reclaim_within_cohort))
    return in_turn(search, found, lambda holding: holding)


class Trade:
    """The search for victims by one strategy after the other. Mutates the accounts."""

    def __init__(self, search: Search, candidates: list[Holding]) -> None:
        self._search = search
        self._order = TargetOrder(search, candidates)
        self._strategies = search.context.config.strategies
        self.targets: list[Target] = []
        self._retry: list[Holding] = []
        """Candidates that the first strategy spared."""

    def first_strategy(self) -> bool:
        """Take victims until the preemptor fits; False if it does not."""
        order = self._order
        entitled = self._within_nominal()
        for node in order.turns():
            if node == self._search.rules.node:
                rule = Rule.IN_CLUSTER_QUEUE
            elif entitled:
                rule = Rule.IN_COHORT_RECLAMATION
            else:
                if self._take_fair(node):
                    return True
                continue
            if self._take(order.take(node), rule):
                return True
        return False

    def second_strategy(self) -> bool:
        """Give the spared a second look: at most one more victim of each queue."""
        if len(self._strategies) < 2:
            return False
        order = self._order = TargetOrder(self._search, self._retry)
        for node in order.turns():
            mine, theirs = order.shares(node)
            candidate = order.take(node)
            passed = mine.key < theirs.key
            if weighing.gathers():
                weighing.tell(self._weighed(node, mine, theirs, second=True, passed=passed))
            if passed and self._take(candidate, Rule.IN_COHORT_FAIR_SHARING):
                return True
            order.drop(node)
        return False

    def _take_fair(self, node: int) -> bool:
        """Take the queue's first candidate that the strategy allows; the others are spared for now."""
        mine, theirs = self._order.shares(node)
        # Beyond every weighted share: whoever left, the target's share would not reach it.
        hopeless = mine.infinite and not theirs.infinite
        judged: list[Judged] | None = [] if weighing.gathers() else None
        taken = None
        while taken is None and self._order.has(node):
            candidate = self._order.take(node)
            if not hopeless and self._fair(node, candidate, mine, theirs, judged):
                taken = candidate
            else:
                self._retry.append(candidate)
                self._note(candidate, Verdict.FAIR_SHARE)
        if judged is not None:
            weighing.tell(self._weighed(node, mine, theirs, tuple(judged)))
        return taken is not None and self._take(taken, Rule.IN_COHORT_FAIR_SHARING)

    def _weighed(
        self,
        node: int,
        mine: Share,
        theirs: Share,
        judged: tuple[Judged, ...] = (),
        *,
        second: bool = False,
        passed: bool = False,
    ) -> Weighed:
        queue = self._search.usage.tree.names[node]
        return Weighed(queue, weighing.written(mine), weighing.written(theirs), judged, second, passed)

    def _fair(self, node: int, candidate: Holding, mine: Share, theirs: Share, judged: list[Judged] | None) -> bool:
        """True if the first strategy lets the candidate be taken; noted where somebody reads it."""
        initial = self._strategies[0] is Strategy.LESS_THAN_INITIAL_SHARE
        if initial and judged is None:
            return mine.key < theirs.key
        after = self._order.share_without(node, candidate)
        passed = self._allows(mine, theirs, after)
        if judged is not None:
            judged.append(Judged(candidate.key, weighing.written(after), passed))
        return passed

    def _allows(self, mine: Share, theirs: Share, after: Share) -> bool:
        if self._strategies[0] is Strategy.LESS_THAN_INITIAL_SHARE:
            return mine.key < theirs.key
        return mine.key <= after.key

    def _take(self, victim: Holding, rule: Rule) -> bool:
        """Make it a victim; True if the preemptor fits now."""
        self._search.context.accounts.remove(victim)
        self._order.removed(victim)
        self._note(victim, Verdict.CHOSEN)
        self.targets.append(Target(victim, rule))
        return self._fits()

    def _note(self, candidate: Holding, verdict: Verdict) -> None:
        if self._search.story is not None:
            self._search.story.say(candidate, verdict)

    def _fits(self) -> bool:
        usage, node, uses = self._search.usage, self._search.rules.node, self._search.uses
        usage.remove(node, uses)
        fits = self._search.fits(borrowing=True)
        usage.add(node, uses)
        return fits

    def _within_nominal(self) -> bool:
        """True if the preemptor stays within its nominal quota where it is short: then shares do not matter."""
        search = self._search
        return search.context.gates.preempt_within_nominal and search.usage.within(search.rules.node, search.columns)
