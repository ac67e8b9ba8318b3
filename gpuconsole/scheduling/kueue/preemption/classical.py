"""Classical preemption: removes candidates in order until the preemptor fits, then restores those it does not need.

Candidates are workloads in the preemptor's ClusterQueue, and in queues of its tree that borrow. A preemptor has a
hierarchical advantage over workloads outside a subtree if it fits in the quota of that subtree: they borrow quota that
is closer to it. Kueue 0.19 preemption.classicalPreemptions and preemption/classical.

`find_targets` is the entry point of preemption, also under fair sharing, and `preemption_possibility` says whether
preemption could help while flavors are compared. `find_targets_with_trace` also records the other workloads considered,
the verdict on each, and the shares.
"""

from collections.abc import Hashable, Iterator, Sequence
from enum import Enum, auto
from heapq import nsmallest
from itertools import chain
from operator import attrgetter

from msgspec import Struct

from gpuconsole.model.events import CandidateVerdict, ConsideredCandidate, PreemptionRule, PreemptionTrace
from gpuconsole.model.queues import PreemptionPolicy
from gpuconsole.scheduling.kueue.assignment import FlavorAssignmentMode, ModeAndHeight
from gpuconsole.scheduling.kueue.cluster_queue_status import ClusterQueueConfig
from gpuconsole.scheduling.kueue.context import Context, FinishedTrace, SearchTrace, SearchTraces
from gpuconsole.scheduling.kueue.pod_resources import Holding, WorkloadRequest
from gpuconsole.scheduling.kueue.preemption.fair_sharing import fair_targets, share_of, share_text
from gpuconsole.scheduling.kueue.preemption.search import (
    NOT_BORROWING,
    PreemptionSearch,
    PreemptionTarget,
    candidate_key,
    candidates_of,
    candidates_ordering_key,
    cannot_fit_by_preemption,
    merge_in_order,
    policy_allows,
    restore_unneeded_victims,
)


class PreemptionVariant(Enum):
    """Rule that makes a workload a preemption candidate."""

    WITHIN_QUEUE = auto()
    HIERARCHICAL_RECLAIM = auto()
    RECLAIM_WITHOUT_BORROWING = auto()
    """Only if the preemptor's queue does not borrow afterwards."""
    RECLAIM_WHILE_BORROWING = auto()


RULES = {
    PreemptionVariant.WITHIN_QUEUE: PreemptionRule.IN_CLUSTER_QUEUE,
    PreemptionVariant.HIERARCHICAL_RECLAIM: PreemptionRule.IN_COHORT_RECLAMATION,
    PreemptionVariant.RECLAIM_WITHOUT_BORROWING: PreemptionRule.IN_COHORT_RECLAMATION,
    PreemptionVariant.RECLAIM_WHILE_BORROWING: PreemptionRule.IN_COHORT_RECLAIM_WHILE_BORROWING,
}


class PreemptionCandidate(Struct, frozen=True):
    """A workload that may be preempted; `below` are its queue and cohorts below the common ancestor, from the bottom
    up.
    """

    holding: Holding
    variant: PreemptionVariant
    below: tuple[int, ...] = ()


_holding = attrgetter("holding")
_by_rank = attrgetter("holding.rank")
_WITHOUT_BORROWING = PreemptionVariant.RECLAIM_WITHOUT_BORROWING


def _not_evicted(candidate: PreemptionCandidate) -> bool:
    return not candidate.holding.evicted


class OrderedCandidates(Struct, frozen=True):
    """The preemption candidates of equivalent preemptors, in order."""

    ordered: list[PreemptionCandidate]
    """Evicted workloads, then the others; each part by hierarchical advantage, other queues, own queue."""
    while_borrowing: list[PreemptionCandidate]
    """Those of them that may be preempted even if the preemptor's queue borrows afterwards."""
    has_hierarchical: bool
    """True if there are candidates with a hierarchical advantage."""
    has_other_queues: bool
    """True if there are candidates in other queues."""
    failed_requests: list[dict[int, int]]
    """Requests, column → amount, for which a search of these candidates failed; larger ones fail too."""


def collect_candidates(search: PreemptionSearch) -> OrderedCandidates:
    """Return all candidates of the preemptor in order; cached for equivalent preemptors."""
    preemption, node = search.rules.queue.preemption, search.rules.node
    own, others = preemption.within_cluster_queue, preemption.reclaim_within_cohort
    advantages = tuple(_advantages(search))
    looks_at = candidate_key(search, own, NOT_BORROWING), candidate_key(search, others, preemption.borrow_within_cohort)
    known, key = search.context.cohort_cache(node), ("candidates", node, search.columns, advantages, looks_at)
    found: OrderedCandidates | None = known.get(key)
    if found is None:
        found = known[key] = _collect(search, advantages)
    return found


def _collect(search: PreemptionSearch, advantages: Sequence[bool]) -> OrderedCandidates:
    within = search.rules.queue.preemption.within_cluster_queue
    same_queue = [
        PreemptionCandidate(holding, PreemptionVariant.WITHIN_QUEUE)
        for holding in candidates_of(search, search.rules.name, within)
    ]
    kinds = _in_cohort(search, advantages)
    hierarchical, priority = (_concatenate(search, kind) for kind in kinds)
    everything = [*hierarchical, *priority, *same_queue]
    if search.rules.queue.preemption.borrow_within_cohort.policy == PreemptionPolicy.NEVER:
        counting = [*hierarchical, *same_queue]
    else:
        counting = [c for c in everything if c.variant is not _WITHOUT_BORROWING]
    # Rank puts those already evicted first in each part.
    ranked = search.context.config.usage_based_fair_sharing is None
    if not ranked or any(part[0].holding.evicted for part in (hierarchical, priority, same_queue) if part):
        everything.sort(key=_not_evicted)
        counting.sort(key=_not_evicted)
    return OrderedCandidates(everything, counting, bool(hierarchical), bool(hierarchical or priority), [])


def _concatenate(search: PreemptionSearch, parts: list[list[PreemptionCandidate]]) -> list[PreemptionCandidate]:
    """Merge the ordered candidates under several cohorts into preemption order."""
    parts = [part for part in parts if part]
    if len(parts) == 1 and search.context.config.usage_based_fair_sharing is None:
        return parts[0]
    return merge_in_order(search, chain.from_iterable(parts), _holding)


def _advantages(search: PreemptionSearch) -> Iterator[bool]:
    """Yield for each cohort on the path up whether the preemptor has a hierarchical advantage over those below it."""
    if search.rules.queue.preemption.reclaim_within_cohort == PreemptionPolicy.NEVER:
        return
    node, advantage, rest = search.rules.node, False, dict(search.requested)
    for cohort in search.usage.tree.paths[node]:
        if not advantage:
            advantage, rest = _fits_in_quota(search, node, rest)
        yield advantage
        node = cohort


def _in_cohort(
    search: PreemptionSearch, advantages: Sequence[bool]
) -> tuple[list[list[PreemptionCandidate]], list[list[PreemptionCandidate]]]:
    """Return the candidates over which the preemptor has an advantage, and the others, each by cohort."""
    kinds: tuple[list[list[PreemptionCandidate]], list[list[PreemptionCandidate]]] = [], []
    visited = search.rules.node
    for cohort, advantage in zip(search.usage.tree.paths[visited], advantages, strict=False):
        found = [c for c in _collect_below(search, cohort, advantage) if c.below[-1] != visited]
        kinds[0 if advantage else 1].append(found)
        visited = cohort
    return kinds


def _fits_in_quota(search: PreemptionSearch, node: int, amounts: dict[int, int]) -> tuple[bool, dict[int, int]]:
    """Return whether the node would not borrow with these amounts, and what of them counts in its parent."""
    usage = search.usage
    fits = not any(usage.is_borrowing(node, column, amount) for column, amount in amounts.items())
    return fits, {column: max(0, amount - usage.unlent_quota(node, column)) for column, amount in amounts.items()}


def _collect_below(search: PreemptionSearch, cohort: int, advantage: bool) -> Sequence[PreemptionCandidate]:
    """Return all candidates under a cohort, by rank where possible; shared by many preemptors of a cycle."""
    preemption = search.rules.queue.preemption
    policies = preemption.reclaim_within_cohort, preemption.borrow_within_cohort
    key = "under", cohort, advantage, search.columns, policies, candidate_key(search, *policies)
    kept = search.context.cohort_cache(cohort)
    known = kept.get(key)
    if known is None:
        found: list[PreemptionCandidate] = []
        _collect_subtree(search, cohort, advantage, (), key, found)
        if search.context.config.usage_based_fair_sharing is None:
            found.sort(key=_by_rank)
        known = kept[key] = found
    return known


def _collect_subtree(
    search: PreemptionSearch,
    cohort: int,
    advantage: bool,
    below: tuple[int, ...],
    key: Hashable,
    found: list[PreemptionCandidate],
) -> None:
    """Gather candidates under a cohort, except in nodes that borrow nothing needed; `key` is the cache key of the
    query.
    """
    usage, tree = search.usage, search.usage.tree
    for child in tree.children[cohort]:
        if not usage.is_within_nominal(child, search.columns):
            _collect_subtree(search, child, advantage, (child, *below), key, found)
    for child in tree.queue_children[cohort]:
        if not usage.is_within_nominal(child, search.columns):
            found += _candidates_of_queue(search, tree.names[child], advantage, (child, *below), key)


def _candidates_of_queue(
    search: PreemptionSearch, name: str, advantage: bool, branch: tuple[int, ...], key: Hashable
) -> Sequence[PreemptionCandidate]:
    """Return the candidates of a queue by rank; cached while the queue's holdings are the same."""
    known = search.context.cluster_queue_cache(name)
    found: Sequence[PreemptionCandidate] | None = known.get(key)
    if found is None:
        policy = search.rules.queue.preemption.reclaim_within_cohort
        found = known[key] = tuple(
            PreemptionCandidate(holding, _candidate_variant(search, holding, advantage), branch)
            for holding in candidates_of(search, name, policy)
        )
    return found


def _candidate_variant(search: PreemptionSearch, holding: Holding, advantage: bool) -> PreemptionVariant:
    if advantage:
        return PreemptionVariant.HIERARCHICAL_RECLAIM
    borrowing = search.rules.queue.preemption.borrow_within_cohort
    if borrowing.policy == PreemptionPolicy.NEVER or holding.priority >= search.request.priority:
        return PreemptionVariant.RECLAIM_WITHOUT_BORROWING
    threshold = borrowing.max_priority_threshold
    if threshold is not None and holding.priority > threshold:
        return PreemptionVariant.RECLAIM_WITHOUT_BORROWING
    return PreemptionVariant.RECLAIM_WHILE_BORROWING


def classical_targets(search: PreemptionSearch) -> list[PreemptionTarget]:
    """Return the victims of the first attempt that frees enough quota; empty if none does."""
    if cannot_fit_by_preemption(search):
        return []
    candidates = collect_candidates(search)
    if not candidates.ordered or _requests_too_much(search, candidates):
        return []
    for borrowing in _attempts(search, candidates):
        # Candidates that do not count while borrowing are only visited for a trace.
        is_traced = search.trace is not None or not borrowing
        targets = _attempt(search, candidates.ordered if is_traced else candidates.while_borrowing, borrowing)
        if targets:
            return targets
    _note_failure(search, candidates)
    return []


def _requests_too_much(search: PreemptionSearch, candidates: OrderedCandidates) -> bool:
    """True if the same candidates already failed to free this much, or less, for another preemptor."""
    uses = dict(search.requested)
    return any(_covers(uses, failed) for failed in candidates.failed_requests)


def _note_failure(search: PreemptionSearch, candidates: OrderedCandidates) -> None:
    """Record the failed amounts, unless the topology may have caused the failure."""
    if not search.demands:
        uses = dict(search.requested)
        candidates.failed_requests[:] = [
            *(more for more in candidates.failed_requests if not _covers(more, uses)),
            uses,
        ]


def _covers(uses: dict[int, int], others: dict[int, int]) -> bool:
    """True if these amounts include the others."""
    return all(uses.get(column, -1) >= amount for column, amount in others.items())


def _attempts(search: PreemptionSearch, candidates: OrderedCandidates) -> tuple[bool, ...]:
    """Return for each attempt, in order, whether the preemptor may borrow.

    Attempts without borrowing may have more candidates (RECLAIM_WITHOUT_BORROWING).
    """
    forbidden = search.rules.queue.preemption.borrow_within_cohort.policy == PreemptionPolicy.NEVER
    if not candidates.has_other_queues or (forbidden and not _stays_under_nominal(search)):
        return (True,)
    if forbidden and not candidates.has_hierarchical:
        return False, True
    return True, False


def _stays_under_nominal(search: PreemptionSearch) -> bool:
    """True if the preemptor's queue uses less than its nominal quota in every column that is short."""
    tree, node = search.usage.tree, search.rules.node
    return all(
        search.usage.usage_of(node, column) < tree.nominal[node * tree.width + column] for column in search.columns
    )


def _attempt(search: PreemptionSearch, ordered: list[PreemptionCandidate], borrowing: bool) -> list[PreemptionTarget]:
    accounts = search.context.snapshot
    targets: list[PreemptionTarget] = []
    excluded_nodes: set[int] = set()
    short = _lacking_columns(search)
    story = search.trace
    if story is not None:
        story.start_attempt(candidate.holding for candidate in ordered)
    with accounts.revertible():
        for candidate in ordered:
            objection = _skip_reason(search, candidate, borrowing, excluded_nodes) if candidate.below else None
            if story is not None:
                story.record(candidate.holding, objection or CandidateVerdict.CHOSEN)
            if objection is not None:
                continue
            accounts.remove_holding(candidate.holding)
            targets.append(PreemptionTarget(candidate.holding, RULES[candidate.variant]))
            if short:
                _subtract_candidate(short, candidate)
            if not short and search.fits(borrowing=borrowing):
                return restore_unneeded_victims(search, targets, borrowing=borrowing)
    return []


def _lacking_columns(search: PreemptionSearch) -> dict[int, int]:
    """Return the amounts by column that must become free before a fit is possible."""
    usage, node = search.usage, search.rules.node
    lacking = {column: amount - usage.available(node, column) for column, amount in search.requested if amount > 0}
    return {column: amount for column, amount in lacking.items() if amount > 0}


def _subtract_candidate(short: dict[int, int], candidate: PreemptionCandidate) -> None:
    for column, amount in candidate.holding.usage:
        if column in short:
            short[column] -= amount
            if short[column] <= 0:
                del short[column]


def _skip_reason(
    search: PreemptionSearch, candidate: PreemptionCandidate, borrowing: bool, excluded_nodes: set[int]
) -> CandidateVerdict | None:
    """Return why a candidate of another queue is skipped: its queue and cohorts must borrow what is needed.

    `excluded_nodes` collects nodes that no longer borrow anything needed: removing workloads cannot change that.
    """
    if borrowing and candidate.variant is PreemptionVariant.RECLAIM_WITHOUT_BORROWING:
        return CandidateVerdict.NOT_WHILE_BORROWING
    for node in candidate.below:
        if node in excluded_nodes or search.usage.is_within_nominal(node, search.columns):
            excluded_nodes.add(node)
            return CandidateVerdict.NOT_BORROWING
    return None


def find_targets(search: PreemptionSearch) -> Sequence[PreemptionTarget]:
    """Return the victims that let the preemptor fit; empty if there are none. The usage is unchanged afterwards."""
    context, key = search.context, search.key
    found = context.search_results
    if key not in found or search.trace is not None:
        found[key] = fair_targets(search) if context.config.fair_sharing else classical_targets(search)
    targets: Sequence[PreemptionTarget] = found[key]
    if targets:
        context.preemption_queries = None
    elif context.preemption_queries is not None:
        context.preemption_queries.append((search.columns, tuple(search.requested)))
    return targets


def preemption_possibility(
    context: Context, rules: ClusterQueueConfig, request: WorkloadRequest, column: int, amount: int
) -> ModeAndHeight:
    """Return whether preemption could free `amount` of one column, and the borrowing level after it.

    The victims found here are not the final ones: those are searched for all columns together
    (PreemptionOracle.SimulatePreemption).
    """
    usage = context.snapshot.usage
    targets = find_targets(PreemptionSearch(context, rules, request, frozenset((column,)), [(column, amount)]))
    if not targets:
        return FlavorAssignmentMode.NO_CANDIDATES, usage.borrowing_height(rules.node, column, amount)[0]
    with context.snapshot.revertible():
        context.snapshot.remove_holdings(target.holding for target in targets)
        height = usage.borrowing_height(rules.node, column, amount)[0]
    own = any(target.holding.cluster_queue == rules.name for target in targets)
    return (FlavorAssignmentMode.PREEMPT if own else FlavorAssignmentMode.RECLAIM), height


MAX_CANDIDATES_IN_TRACE = 24
"""Maximum number of workloads in a trace; victims are always included."""


def find_targets_with_trace(search: PreemptionSearch, traces: SearchTraces) -> Sequence[PreemptionTarget]:
    """Return the result of `find_targets`, and add its trace to `traces` if it found victims."""
    search.trace = trace = SearchTrace()
    targets = find_targets(search)
    if targets:
        traces.setdefault(search.request.id, []).append(_finish_trace(search, trace, targets))
    return targets


def trace_of_victim(
    traces: SearchTraces, request: WorkloadRequest, targets: Sequence[PreemptionTarget], victim: Holding
) -> PreemptionTrace | None:
    """Return how a victim was chosen: the trace of the preemptor's last search with exactly these victims; None if
    there is none.
    """
    victims = _ids(targets)
    for finished in reversed(traces.get(request.id, ())):
        if finished.victims == victims:
            return PreemptionTrace(
                share=finished.shares[victim.cluster_queue],
                by_share=finished.preemptor_share,
                considered=finished.considered,
                left_out=finished.omitted,
            )
    return None


def _ids(targets: Sequence[PreemptionTarget]) -> frozenset[int]:
    return frozenset(target.holding.id for target in targets if target.rule is not None)


def _finish_trace(search: PreemptionSearch, trace: SearchTrace, targets: Sequence[PreemptionTarget]) -> FinishedTrace:
    usage = search.usage
    found = [_candidate_entry(holding, verdict) for holding, verdict in trace.verdicts.values()]
    chosen = sum(one.verdict is CandidateVerdict.CHOSEN for one in found)
    room = max(0, MAX_CANDIDATES_IN_TRACE - chosen)
    ruled_out = list(_non_candidates(search, trace))
    # There may be ten thousand of them, and only a few are kept.
    first = nsmallest(room, ruled_out, key=lambda one: candidates_ordering_key(search, one[0]))
    found += [_candidate_entry(holding, verdict) for holding, verdict in first]
    finished: list[ConsideredCandidate] = []
    for one in found:
        if one.verdict is CandidateVerdict.CHOSEN:
            finished.append(one)
        elif room:
            finished.append(one)
            room -= 1
    queues = {target.holding.cluster_queue for target in targets}
    return FinishedTrace(
        victims=_ids(targets),
        preemptor_share=share_text(share_of(usage, search.rules.node)),
        shares={queue: share_text(share_of(usage, usage.tree.queues[queue])) for queue in queues},
        considered=tuple(finished),
        omitted=len(trace.verdicts) + len(ruled_out) - len(finished),
    )


def _candidate_entry(holding: Holding, verdict: CandidateVerdict) -> ConsideredCandidate:
    return ConsideredCandidate(holding.key, holding.cluster_queue, verdict, holding.priority)


def _non_candidates(search: PreemptionSearch, trace: SearchTrace) -> Iterator[tuple[Holding, CandidateVerdict]]:
    """Yield the workloads of the tree that use a short column and were no candidates, with the reason."""
    tree, context = search.usage.tree, search.context
    for node in tree.subtree_queues(tree.root(search.rules.node)):
        queue = tree.names[node]
        for holding in context.held_by(queue):
            known = holding.id in trace.verdicts or holding.id in context.removed
            if not known and not search.columns.isdisjoint(holding.columns):
                yield holding, _exclusion_verdict(search, node, holding)


def _exclusion_verdict(search: PreemptionSearch, node: int, holding: Holding) -> CandidateVerdict:
    preemption = search.rules.queue.preemption
    own = node == search.rules.node
    policy = preemption.within_cluster_queue if own else preemption.reclaim_within_cohort
    if policy == PreemptionPolicy.NEVER:
        return CandidateVerdict.POLICY_NEVER
    if not policy_allows(search, policy)(holding):
        return CandidateVerdict.PRIORITY
    return CandidateVerdict.NOT_BORROWING
