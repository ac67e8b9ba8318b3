"""Skips queue heads whose admission attempt would repeat the previous refusal without side effects.

When a tree's inadmissible workloads are requeued, most of them are only refused again: their quota is still missing and
there are no candidates to preempt. The cycle leaves them out.
"""

from msgspec import Struct

from gpuconsole.model.decisions import KeepWaiting
from gpuconsole.scheduling.kueue import messages
from gpuconsole.scheduling.kueue.cohort_cache import PreemptionQuery
from gpuconsole.scheduling.kueue.compiled_config import ClusterQueueConfig
from gpuconsole.scheduling.kueue.conditions import QUOTA_RESERVED, take_refusal
from gpuconsole.scheduling.kueue.context import Context
from gpuconsole.scheduling.kueue.entry import CycleEntry
from gpuconsole.scheduling.kueue.nomination import eligible
from gpuconsole.scheduling.kueue.nomination_cache import CachedNomination, is_cacheable, lookup, lookup_ignoring_usage
from gpuconsole.scheduling.kueue.preemption import PreemptionSearch, find_targets
from gpuconsole.scheduling.kueue.preemption.upper_bound import max_available
from gpuconsole.scheduling.kueue.requests import WorkloadRequest
from gpuconsole.scheduling.kueue.requeue import rejection
from gpuconsole.scheduling.kueue.state import KueueState


class ObservedWorkloads(Struct, frozen=True):
    """Workloads whose pending reason must be kept exact; others may be stale."""

    first_id: int
    """Workloads with this id or a greater one are observed, too: they are newer."""
    ids: frozenset[int]


def can_skip_heads(context: Context) -> bool:
    """True if heads can be evaluated one by one.

    Under fair sharing each takes part in the tournament of its tree, even if it is refused.
    """
    return not (
        context.cache is None or context.config.fair_sharing or context.one_by_one or context.gates.overlap_recompute
    )


def cached_inadmissible(
    state: KueueState, context: Context, rules: ClusterQueueConfig, request: WorkloadRequest, *, amounts: bool
) -> CachedNomination | None:
    """Return the cached nomination of a head that would only repeat its refusal without side effects.

    With `amounts` its condition must also show the right missing amount, unless the workload is not observed.
    """
    if request.skippable_in is not context.setup and not _is_skippable(context, rules, request):
        return None
    cached = lookup(context, rules, request)
    if cached is None or not cached.has_no_side_effect:
        return None
    is_current = request.current_for is cached if amounts else request.current_message == cached.message
    if (
        not is_current
        and is_observed(state, request)
        and not _condition_is_current(state, rules, request, cached, amounts=amounts)
    ):
        return None
    for asked, (column, amount) in zip(cached.preemption_queries, cached.amounts, strict=True):
        # The bound is enough for most heads; the others need a search.
        certain = column >= 0 and amount > max_available(context, rules, request, column)
        if not certain and _has_targets(context, rules, request, asked):
            return None
    return cached


def condition_unchanged(
    state: KueueState, context: Context, rules: ClusterQueueConfig, request: WorkloadRequest
) -> CachedNomination | None:
    """Return the last nomination of the head's class if the head's condition shows it, apart from amounts.

    An unobserved head counts as showing it. `shortage` of the nomination tells whether it would be repeated now.
    """
    if request.skippable_in is not context.setup and not _is_skippable(context, rules, request):
        return None
    last = lookup_ignoring_usage(context, rules, request)
    if last is None or last.shortage is None or not last.has_no_side_effect:
        return None
    is_current = request.current_message == last.message or not is_observed(state, request)
    return last if is_current or _condition_is_current(state, rules, request, last, amounts=False) else None


def is_observed(state: KueueState, request: WorkloadRequest) -> bool:
    """True if the workload's pending reason must be kept exact."""
    observed = state.observed
    return observed is None or request.id >= observed.first_id or request.id in observed.ids


def _is_skippable(context: Context, rules: ClusterQueueConfig, request: WorkloadRequest) -> bool:
    entry = CycleEntry(request, rules)
    if not (is_cacheable(context, entry) and eligible(context, entry)):
        return False
    request.skippable_in = context.setup
    return True


def _condition_is_current(
    state: KueueState, rules: ClusterQueueConfig, request: WorkloadRequest, cached: CachedNomination, *, amounts: bool
) -> bool:
    """True if another refusal would not change the workload's condition; the result is noted on the request."""
    entry = CycleEntry(request, rules)
    entry.record(cached.assignment, ())
    entry.requeue, entry.cause = cached.requeue_reason
    said = request.workload.condition(QUOTA_RESERVED)
    if not amounts and said is not None and messages.without_amounts(said.message) == cached.message:
        entry.message = said.message
    answer, workload = rejection(state, entry), request.workload
    granular = state.gates.granular
    if isinstance(answer, KeepWaiting) or take_refusal(workload, answer, state.now, granular=granular) is not workload:
        return False
    if amounts:
        request.current_for = cached
    else:
        request.current_message = cached.message
    return True


def _has_targets(context: Context, rules: ClusterQueueConfig, request: WorkloadRequest, asked: PreemptionQuery) -> bool:
    columns, uses = asked
    return bool(find_targets(PreemptionSearch(context, rules, request, columns, uses)))
