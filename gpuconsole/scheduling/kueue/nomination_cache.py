"""Reuses one nomination for equivalent heads: the same head in the next cycle, and others while usage is the same.

A nomination depends on the usage on the path from the queue to its root, and on the candidates for preemption. While
the usage is equal and there are still no victims, it would be repeated.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.scheduling.kueue import messages
from gpuconsole.scheduling.kueue.assignment import Assignment
from gpuconsole.scheduling.kueue.cluster_queue import RequeueReason
from gpuconsole.scheduling.kueue.cohort_cache import PreemptionQuery, put_bounded
from gpuconsole.scheduling.kueue.compiled_config import ClusterQueueConfig
from gpuconsole.scheduling.kueue.context import Context
from gpuconsole.scheduling.kueue.entry import CycleEntry
from gpuconsole.scheduling.kueue.flavor_assignment_mode import FlavorAssignmentMode
from gpuconsole.scheduling.kueue.preemption import PreemptionSearch, PreemptionTarget, find_targets
from gpuconsole.scheduling.kueue.reasons import GranularReason
from gpuconsole.scheduling.kueue.requests import WorkloadRequest
from gpuconsole.scheduling.kueue.reservation import can_always_reclaim
from gpuconsole.scheduling.kueue.search_trace import FinishedTrace
from gpuconsole.scheduling.kueue.shortage import QuotaShortage, shortage_of
from gpuconsole.scheduling.kueue.slices import replacement_for
from gpuconsole.scheduling.kueue.usage_key import usage_key_for

Nomination = tuple[Assignment, Sequence[PreemptionTarget]]
Nominate = Callable[[Context, ClusterQueueConfig, WorkloadRequest], Nomination]


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
    """For each query its only column and the amount requested of it; column -1 if it has several."""
    requeue_reason: tuple[RequeueReason, GranularReason]
    """Requeue reason and granular reason of the refusal."""
    message: str
    """The refusal without the missing amounts."""
    shortage: QuotaShortage | None
    """Shortage of the refused heads, if known."""
    has_no_side_effect: bool
    """The refused heads reserve no capacity and have no flavors left to try."""


def nominate_cached(context: Context, entry: CycleEntry, propose: Nominate) -> Nomination:
    """Return the entry's nomination; reuses it for a head that returns before its tree changes."""
    request, search_traces = entry.request, context.search_traces
    if not is_cacheable(context, entry):
        return propose(context, entry.rules, request)
    known, key = context.cohort_cache(entry.rules.node), ("last", entry.rules.name)
    last: _LastNomination | None = known.get(key)
    same = last is not None and last.timestamp == request.timestamp and last.scheduling_hash == request.scheduling_hash
    if last is None or not same or (search_traces is not None and last.traces is None):
        proposal = _lookup_or_nominate(context, entry, propose)
        traces = search_traces.get(request.id, ()) if search_traces is not None else None
        last = known[key] = _LastNomination(request.scheduling_hash, request.timestamp, proposal, traces)
    elif search_traces is not None and last.traces:
        search_traces[request.id] = [*last.traces]
    return last.nomination


def is_cacheable(context: Context, entry: CycleEntry) -> bool:
    """True if only quota and its holders decide about the entry."""
    workload = entry.request.workload
    return not (
        entry.round
        or not context.gates.hashing
        or context.gates.concurrent_admission
        or context.setup.topologies
        or workload.unhealthy_nodes
        or replacement_for(workload) is not None
    )


def lookup(context: Context, rules: ClusterQueueConfig, request: WorkloadRequest) -> CachedNomination | None:
    """Return the cached nomination of an equivalent head; valid only if this head has no victims either."""
    found: CachedNomination | None = context.nominations.get(_key(context, rules, request))
    return found


def lookup_ignoring_usage(
    context: Context, rules: ClusterQueueConfig, request: WorkloadRequest
) -> CachedNomination | None:
    """Return the last nomination of an equivalent head with a known shortage, whatever the usage is now."""
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


def _lookup_or_nominate(context: Context, entry: CycleEntry, propose: Nominate) -> Nomination:
    """Return the cached nomination of an equivalent head, or compute one."""
    rules, request = entry.rules, entry.request
    cached = lookup(context, rules, request)
    if cached is not None and _has_no_targets(context, entry, cached):
        return cached.assignment, ()
    context.preemption_queries = []
    assignment, targets = propose(context, rules, request)
    if context.preemption_queries is not None:
        asked = tuple(dict.fromkeys(context.preemption_queries))
        wanting = assignment.wanting(rules.groups, granular=context.gates.granular)
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
    return assignment.resume is None and (
        mode == FlavorAssignmentMode.NO_FIT or (mode == FlavorAssignmentMode.PREEMPT and keeps_nothing)
    )


def _single_column_amount(asked: PreemptionQuery) -> tuple[int, int]:
    columns, uses = asked
    column = min(columns)
    amount = dict(uses).get(column, 0)
    return (column, amount) if amount and len(columns) == 1 else (-1, 0)
