"""Reuses one nomination for equivalent heads: the same head in the next cycle, and others while usage is the same.

A nomination depends on the usage on the path from the queue to its root, and on the candidates for preemption. While
the usage is equal and there are still no victims, it would be repeated (`nominate_cached`).

A `QuotaShortage` tells quickly whether a refusal stays the same after amounts have changed. Only heads with one pod set
and one short resource in each possible flavor have one: while that resource stays short even after every possible
preemption, and all others are available, the refusal is the same apart from the missing amount.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.resources import PODS
from gpuconsole.scheduling.kueue import messages
from gpuconsole.scheduling.kueue.assignment import Assignment, FlavorAssignmentMode, FlavorSearch, PodSetResult
from gpuconsole.scheduling.kueue.cluster_queue import RequeueReason
from gpuconsole.scheduling.kueue.cluster_queue_status import ClusterQueueConfig
from gpuconsole.scheduling.kueue.context import Context, FinishedTrace, PreemptionQuery, put_bounded, usage_key_for
from gpuconsole.scheduling.kueue.entry import CycleEntry
from gpuconsole.scheduling.kueue.messages import GranularReason
from gpuconsole.scheduling.kueue.pod_resources import WorkloadRequest
from gpuconsole.scheduling.kueue.preemption import PreemptionSearch, PreemptionTarget, find_targets
from gpuconsole.scheduling.kueue.preemption.search import can_always_reclaim, exceeds_bound
from gpuconsole.scheduling.kueue.slices import replacement_for

_Amounts = list[tuple[int, int]]


class QuotaShortage(Struct, frozen=True):
    """Why a head does not fit: the requested (column, amount) pairs that exceed the available quota, and the others."""

    lacking: tuple[tuple[int, int], ...]
    available: tuple[tuple[int, int], ...]


def shortage_of(
    context: Context, rules: ClusterQueueConfig, request: WorkloadRequest, assignment: Assignment
) -> QuotaShortage | None:
    """Return the shortage of a refused head; None if it is not that of one resource in each possible flavor."""
    if len(request.pod_sets) != 1 or request.pod_sets[0].pod_set.min_count is not None:
        return None
    (result,) = assignment.pod_sets
    short: _Amounts = []
    must_be_available: _Amounts = []
    lacking = 0
    for searched in result.searches:
        flavors = list(_by_flavor(context, rules, result, searched))
        lacks = [len(wanting) for wanting, _ in flavors]
        if not flavors or len(flavors) + _count_excluded(searched) != len(searched.flavors) or max(lacks) > 1:
            return None
        lacking += min(lacks)
        if max(lacks) != min(lacks):
            return None
        for wanting, found in flavors:
            short += wanting
            must_be_available += found
    pods = {column for column, _ in short if context.setup.tree.columns[column][1] == PODS}
    return QuotaShortage(tuple(short), tuple(must_be_available)) if lacking == 1 and not pods else None


def is_same_shortage(
    context: Context, rules: ClusterQueueConfig, request: WorkloadRequest, shortage: QuotaShortage
) -> bool:
    """True if the head would have the same shortage with the current usage."""
    return all_lack(
        context, rules, ((request, column, amount) for column, amount in shortage.lacking), shortage.available
    )


def all_lack(
    context: Context,
    rules: ClusterQueueConfig,
    short: Iterable[tuple[WorkloadRequest, int, int]],
    must_be_available: Iterable[tuple[int, int]],
) -> bool:
    """True if all heads in `short`, (head, column, amount), lack their amount even after every possible preemption.

    The (column, amount) pairs in `must_be_available` must be available, or the result is False.
    """
    if not exceeds_bound(context, rules, short):
        return False
    available, node = context.snapshot.usage.available, rules.node
    return all(amount <= max(0, available(node, column)) for column, amount in must_be_available)


def _by_flavor(
    context: Context, rules: ClusterQueueConfig, result: PodSetResult, searched: FlavorSearch
) -> Iterator[tuple[_Amounts, _Amounts]]:
    """Yield short and available amounts for each flavor that was checked against quota."""
    usage, group = context.snapshot.usage, rules.group_of[searched.resource]
    for noted in searched.results:
        if noted.granular_reason is GranularReason.NO_MATCHING_FLAVOR:
            continue
        columns = group.columns[group.flavors.index(noted.flavor)]
        short: _Amounts = []
        must_be_available: _Amounts = []
        for resource, amount in result.requests.items():
            if resource in columns:
                column = columns[resource]
                free = max(0, usage.available(rules.node, column))
                (short if amount > free else must_be_available).append((column, amount))
        yield short, must_be_available


def _count_excluded(searched: FlavorSearch) -> int:
    """Count the flavors that can never fit, whatever the quota."""
    return sum(noted.granular_reason is GranularReason.NO_MATCHING_FLAVOR for noted in searched.results)


Nomination = tuple[Assignment, Sequence[PreemptionTarget]]
Nominate = Callable[[Context, ClusterQueueConfig, WorkloadRequest], Nomination]
"""Computes a nomination; `nomination.compute_nomination`."""


class _LastNomination(Struct, frozen=True):
    """The nomination of the last head of a queue."""

    scheduling_hash: bytes
    timestamp: Time
    nomination: Nomination
    traces: Sequence[FinishedTrace] | None
    """Traces of the searches for its victims; None if they were not requested."""


class CachedNomination(Struct, frozen=True):
    """A nomination without victims, valid for equivalent heads while usage is the same."""

    assignment: Assignment
    preemption_queries: tuple[PreemptionQuery, ...]
    """The searches for victims that found none."""
    amounts: tuple[tuple[int, int], ...]
    """For each query: the column that needs preemption and the amount requested of it; column -1 if several need it."""
    requeue_reason: tuple[RequeueReason, GranularReason]
    """Requeue reason and granular reason of the refusal."""
    message: str
    """The refusal without the missing amounts."""
    shortage: QuotaShortage | None
    """Shortage of the refused heads, if known."""
    has_no_side_effect: bool
    """True if the refused heads reserve no capacity and have no flavors left to try."""


def nominate_cached(context: Context, entry: CycleEntry, compute: Nominate) -> Nomination:
    """Return the entry's nomination; that of an equal head is reused while its cohort tree is unchanged."""
    request, search_traces = entry.request, context.search_traces
    if not is_cacheable(context, entry):
        return compute(context, entry.rules, request)
    known, key = context.cohort_cache(entry.rules.node), ("last", entry.rules.name)
    last: _LastNomination | None = known.get(key)
    same = last is not None and last.timestamp == request.timestamp and last.scheduling_hash == request.scheduling_hash
    if last is None or not same or (search_traces is not None and last.traces is None):
        proposal = _lookup_or_nominate(context, entry, compute)
        traces = search_traces.get(request.id, ()) if search_traces is not None else None
        last = known[key] = _LastNomination(request.scheduling_hash, request.timestamp, proposal, traces)
    elif search_traces is not None and last.traces:
        search_traces[request.id] = [*last.traces]
    return last.nomination


def is_cacheable(context: Context, entry: CycleEntry) -> bool:
    """True if the entry's nomination depends only on quota and its holders, not on topologies or variants."""
    workload = entry.request.workload
    return not (
        entry.second_pass_round
        or not context.gates.hashing
        or context.gates.concurrent_admission
        or context.setup.topologies
        or workload.unhealthy_nodes
        or replacement_for(workload) is not None
    )


def lookup(context: Context, rules: ClusterQueueConfig, request: WorkloadRequest) -> CachedNomination | None:
    """Return the cached nomination of an equivalent head, if any; valid only if this head has no victims either."""
    found: CachedNomination | None = context.nominations.get(_key(context, rules, request))
    return found


def lookup_ignoring_usage(
    context: Context, rules: ClusterQueueConfig, request: WorkloadRequest
) -> CachedNomination | None:
    """Return the last nomination of an equivalent head with a known shortage, if any, whatever the usage is now."""
    found: CachedNomination | None = context.nominations.get(_key_ignoring_usage(rules, request))
    return found


def _key_ignoring_usage(rules: ClusterQueueConfig, request: WorkloadRequest) -> tuple[object, ...]:
    return request.scheduling_hash, rules.nomination_key


def _key(context: Context, rules: ClusterQueueConfig, request: WorkloadRequest) -> tuple[object, ...]:
    """Return everything that decides about a head except its candidates for preemption."""
    return request.scheduling_hash, rules.nomination_key, usage_key_for(context, rules.node).number


def _has_no_targets(context: Context, entry: CycleEntry, cached: CachedNomination) -> bool:
    """True if this entry has no victims for the cached queries either."""
    return not any(
        find_targets(PreemptionSearch(context, entry.rules, entry.request, columns, uses))
        for columns, uses in cached.preemption_queries
    )


def _lookup_or_nominate(context: Context, entry: CycleEntry, compute: Nominate) -> Nomination:
    """Return the cached nomination of an equivalent head, or compute one."""
    rules, request = entry.rules, entry.request
    cached = lookup(context, rules, request)
    if cached is not None and _has_no_targets(context, entry, cached):
        return cached.assignment, ()
    context.preemption_queries = []
    assignment, targets = compute(context, rules, request)
    if context.preemption_queries is not None:
        asked = tuple(dict.fromkeys(context.preemption_queries))
        wanting = assignment.requeue_reasons(rules.groups, granular=context.gates.granular)
        kept = CachedNomination(
            assignment=assignment,
            preemption_queries=asked,
            amounts=tuple(map(_single_column_amount, asked)),
            requeue_reason=wanting,
            message=messages.without_amounts(assignment.message),
            # Only used once the session has forks.
            shortage=shortage_of(context, rules, request, assignment) if context.forked else None,
            has_no_side_effect=_has_no_side_effect(rules, assignment),
        )
        if kept.shortage is not None:
            put_bounded(context.nominations, _key_ignoring_usage(rules, request), kept)
        put_bounded(context.nominations, _key(context, rules, request), kept)
    return assignment, targets


def _has_no_side_effect(rules: ClusterQueueConfig, assignment: Assignment) -> bool:
    keeps_nothing = can_always_reclaim(rules) or not rules.queue.cohort
    mode = assignment.mode
    return assignment.resume_position is None and (
        mode == FlavorAssignmentMode.NO_FIT or (mode == FlavorAssignmentMode.PREEMPT and keeps_nothing)
    )


def _single_column_amount(asked: PreemptionQuery) -> tuple[int, int]:
    columns, uses = asked
    column = min(columns)
    amount = dict(uses).get(column, 0)
    return (column, amount) if amount and len(columns) == 1 else (-1, 0)
