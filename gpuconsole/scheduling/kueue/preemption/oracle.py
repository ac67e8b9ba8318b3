"""Preemption queries: the victims for a preemptor and, while flavors are compared, whether preemption could help at
all.

Searches for victims with a trace: the other workloads considered, the verdict on each, and the shares.
"""

from collections.abc import Iterator, Sequence
from heapq import nsmallest

from gpuconsole.model.decisions import CandidateVerdict, ConsideredCandidate, PreemptionTrace
from gpuconsole.model.queues import PreemptionPolicy
from gpuconsole.scheduling.kueue.assignment import FlavorAssignmentMode, ModeAndHeight
from gpuconsole.scheduling.kueue.compiled_config import ClusterQueueConfig
from gpuconsole.scheduling.kueue.context import Context, FinishedTrace, SearchTrace, SearchTraces
from gpuconsole.scheduling.kueue.fair_sharing import share, share_text
from gpuconsole.scheduling.kueue.pod_resources import Holding, WorkloadRequest
from gpuconsole.scheduling.kueue.preemption.classical import classical_targets
from gpuconsole.scheduling.kueue.preemption.fair_sharing import fair_targets
from gpuconsole.scheduling.kueue.preemption.search import (
    PreemptionSearch,
    PreemptionTarget,
    allows,
    considered_in_order,
)


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
        context.preemption_queries.append((search.columns, tuple(search.uses)))
    return targets


def possibility(
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
        context.snapshot.remove_all(target.holding for target in targets)
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
                by_share=finished.by_share,
                considered=finished.considered,
                left_out=finished.left_out,
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
    first = nsmallest(room, ruled_out, key=lambda one: considered_in_order(search, one[0]))
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
        by_share=share_text(share(usage, search.rules.node)),
        shares={queue: share_text(share(usage, usage.tree.queues[queue])) for queue in queues},
        considered=tuple(finished),
        left_out=len(trace.verdicts) + len(ruled_out) - len(finished),
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
    if not allows(search, policy)(holding):
        return CandidateVerdict.PRIORITY
    return CandidateVerdict.NOT_BORROWING
