"""Candidates of classical preemption: the own queue's, and those that use quota out of the preemptor's reach.

A preemptor has a hierarchical advantage over workloads outside a subtree in whose own quota it would fit: they borrow
what is nearer to it. Kueue 0.19 preemption/classical.
"""

from enum import Enum, auto
from operator import attrgetter

from msgspec import Struct

from gpuconsole.model.decisions import Rule
from gpuconsole.model.queues import PreemptionPolicy
from gpuconsole.scheduling.kueue.preemption.policy import candidates_of, in_turn
from gpuconsole.scheduling.kueue.preemption.search import Search
from gpuconsole.scheduling.kueue.requests import Holding


class Variant(Enum):
    """On what ground a candidate may be preempted."""

    WITHIN_QUEUE = auto()
    HIERARCHICAL_RECLAIM = auto()
    RECLAIM_WITHOUT_BORROWING = auto()
    """Only if the preemptor's queue does not borrow afterwards."""
    RECLAIM_WHILE_BORROWING = auto()


RULES = {
    Variant.WITHIN_QUEUE: Rule.IN_CLUSTER_QUEUE,
    Variant.HIERARCHICAL_RECLAIM: Rule.IN_COHORT_RECLAMATION,
    Variant.RECLAIM_WITHOUT_BORROWING: Rule.IN_COHORT_RECLAMATION,
    Variant.RECLAIM_WHILE_BORROWING: Rule.IN_COHORT_RECLAIM_WHILE_BORROWING,
}


class Candidate(Struct, frozen=True):
    """A workload that may be preempted; `below` are its queue and the cohorts below the common ancestor."""

    holding: Holding
    variant: Variant
    below: tuple[int, ...] = ()


_holding = attrgetter("holding")


def _not_evicted(candidate: Candidate) -> bool:
    return not candidate.holding.evicted


class Candidates(Struct, frozen=True):
    """The three kinds, each in the order in which it is considered."""

    same_queue: list[Candidate]
    hierarchical: list[Candidate]
    priority: list[Candidate]

    def in_order(self) -> list[Candidate]:
        """Those already evicted first; of both kinds hierarchical, then priority, then the own queue's."""
        everything = [*self.hierarchical, *self.priority, *self.same_queue]
        return sorted(everything, key=_not_evicted)


def collect(search: Search) -> Candidates:
    """All candidates of the preemptor, by kind."""
    preemption = search.rules.queue.preemption
    same_queue = [
        Candidate(holding, Variant.WITHIN_QUEUE)
        for holding in candidates_of(search, search.rules.name, preemption.within_cluster_queue)
    ]
    hierarchical, priority = _in_cohort(search)
    return Candidates(same_queue, in_turn(search, hierarchical, _holding), in_turn(search, priority, _holding))


def _in_cohort(search: Search) -> tuple[list[Candidate], list[Candidate]]:
    hierarchical: list[Candidate] = []
    priority: list[Candidate] = []
    path = search.usage.tree.paths[search.rules.node]
    if not path or search.rules.queue.preemption.reclaim_within_cohort == PreemptionPolicy.NEVER:
        return hierarchical, priority
    visited = search.rules.node
    advantage, rest = _fits_in_quota(search, visited, dict(search.uses))
    for cohort in path:
        _collect_subtree(search, cohort, visited, advantage, (), hierarchical if advantage else priority)
        fits, rest = _fits_in_quota(search, cohort, rest)
        advantage = advantage or fits
        visited = cohort
    return hierarchical, priority


def _fits_in_quota(search: Search, node: int, amounts: dict[int, int]) -> tuple[bool, dict[int, int]]:
    """True if the node would not borrow with these amounts, and what of them reaches its parent."""
    usage = search.usage
    fits = not any(usage.over(node, column, amount) for column, amount in amounts.items())
    return fits, {column: max(0, amount - usage.unlent(node, column)) for column, amount in amounts.items()}


def _collect_subtree(
    search: Search, cohort: int, visited: int, advantage: bool, below: tuple[int, ...], found: list[Candidate]
) -> None:
    """Gather candidates under a cohort, leaving out the branch visited before and all that borrow nothing needed."""
    usage, tree = search.usage, search.usage.tree
    for child in tree.children[cohort]:
        if child != visited and not usage.within(child, search.columns):
            _collect_subtree(search, child, visited, advantage, (child, *below), found)
    for child in tree.queue_children[cohort]:
        if child != search.rules.node and not usage.within(child, search.columns):
            policy = search.rules.queue.preemption.reclaim_within_cohort
            branch = (child, *below)
            found += [
                Candidate(holding, _variant(search, holding, advantage), branch)
                for holding in candidates_of(search, tree.names[child], policy)
            ]


def _variant(search: Search, holding: Holding, advantage: bool) -> Variant:
    if advantage:
        return Variant.HIERARCHICAL_RECLAIM
    borrowing = search.rules.queue.preemption.borrow_within_cohort
    if borrowing.policy == PreemptionPolicy.NEVER or holding.priority >= search.request.priority:
        return Variant.RECLAIM_WITHOUT_BORROWING
    threshold = borrowing.max_priority_threshold
    if threshold is not None and holding.priority > threshold:
        return Variant.RECLAIM_WITHOUT_BORROWING
    return Variant.RECLAIM_WHILE_BORROWING
