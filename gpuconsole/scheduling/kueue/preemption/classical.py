"""Classical preemption: removes candidates in order until the preemptor fits, then restores those that it does not
need.

Kueue 0.19 preemption.classicalPreemptions.
"""

from gpuconsole.model.decisions import CandidateVerdict
from gpuconsole.model.queues import PreemptionPolicy
from gpuconsole.scheduling.kueue.preemption.candidates import (
    RULES,
    OrderedCandidates,
    PreemptionCandidate,
    PreemptionVariant,
    collect,
)
from gpuconsole.scheduling.kueue.preemption.search import PreemptionSearch, PreemptionTarget, fill_back
from gpuconsole.scheduling.kueue.preemption.upper_bound import cannot_fit


def classical_targets(search: PreemptionSearch) -> list[PreemptionTarget]:
    """Return the victims of the first attempt that frees enough quota; empty if none does."""
    if cannot_fit(search):
        return []
    candidates = collect(search)
    if not candidates.ordered or _too_much(search, candidates):
        return []
    for borrowing in _attempts(search, candidates):
        # Candidates that do not count while borrowing are only visited for a trace.
        is_traced = search.trace is not None or not borrowing
        targets = _attempt(search, candidates.ordered if is_traced else candidates.while_borrowing, borrowing)
        if targets:
            return targets
    _note_failure(search, candidates)
    return []


def _too_much(search: PreemptionSearch, candidates: OrderedCandidates) -> bool:
    """True if the same candidates already failed to free this much, or less, for another preemptor."""
    uses = dict(search.uses)
    return any(_at_least(uses, failed) for failed in candidates.failures)


def _note_failure(search: PreemptionSearch, candidates: OrderedCandidates) -> None:
    """Record the failed amounts, unless the topology may have caused the failure."""
    if not search.demands:
        uses = dict(search.uses)
        candidates.failures[:] = [*(more for more in candidates.failures if not _at_least(more, uses)), uses]


def _at_least(uses: dict[int, int], others: dict[int, int]) -> bool:
    """True if these amounts include the others."""
    return all(uses.get(column, -1) >= amount for column, amount in others.items())


def _attempts(search: PreemptionSearch, candidates: OrderedCandidates) -> tuple[bool, ...]:
    """Return for each attempt, in order, whether the preemptor may borrow.

    Attempts without borrowing may have more candidates (RECLAIM_WITHOUT_BORROWING).
    """
    forbidden = search.rules.queue.preemption.borrow_within_cohort.policy == PreemptionPolicy.NEVER
    if not candidates.others or (forbidden and not _under_nominal(search)):
        return (True,)
    if forbidden and not candidates.hierarchical:
        return False, True
    return True, False


def _under_nominal(search: PreemptionSearch) -> bool:
    """True if the preemptor's queue uses less than its nominal quota in every column that is short."""
    tree, node = search.usage.tree, search.rules.node
    return all(search.usage.used(node, column) < tree.nominal[node * tree.width + column] for column in search.columns)


def _attempt(search: PreemptionSearch, ordered: list[PreemptionCandidate], borrowing: bool) -> list[PreemptionTarget]:
    accounts = search.context.snapshot
    targets: list[PreemptionTarget] = []
    spent: set[int] = set()
    short = _short(search)
    story = search.trace
    if story is not None:
        story.begin(candidate.holding for candidate in ordered)
    with accounts.revertible():
        for candidate in ordered:
            objection = _objection(search, candidate, borrowing, spent) if candidate.below else None
            if story is not None:
                story.record(candidate.holding, objection or CandidateVerdict.CHOSEN)
            if objection is not None:
                continue
            accounts.remove(candidate.holding)
            targets.append(PreemptionTarget(candidate.holding, RULES[candidate.variant]))
            if short:
                _free(short, candidate)
            if not short and search.fits(borrowing=borrowing):
                return fill_back(search, targets, borrowing=borrowing)
    return []


def _short(search: PreemptionSearch) -> dict[int, int]:
    """Return the amounts by column that must become free before a fit is possible."""
    usage, node = search.usage, search.rules.node
    lacking = {column: amount - usage.available(node, column) for column, amount in search.uses if amount > 0}
    return {column: amount for column, amount in lacking.items() if amount > 0}


def _free(short: dict[int, int], candidate: PreemptionCandidate) -> None:
    for column, amount in candidate.holding.uses:
        if column in short:
            short[column] -= amount
            if short[column] <= 0:
                del short[column]


def _objection(
    search: PreemptionSearch, candidate: PreemptionCandidate, borrowing: bool, spent: set[int]
) -> CandidateVerdict | None:
    """Return why a candidate of another queue is skipped: its queue and cohorts must borrow what is needed.

    `spent` collects nodes that no longer borrow anything needed: removing workloads cannot change that.
    """
    if borrowing and candidate.variant is PreemptionVariant.RECLAIM_WITHOUT_BORROWING:
        return CandidateVerdict.NOT_WHILE_BORROWING
    for node in candidate.below:
        if node in spent or search.usage.within(node, search.columns):
            spent.add(node)
            return CandidateVerdict.NOT_BORROWING
    return None
