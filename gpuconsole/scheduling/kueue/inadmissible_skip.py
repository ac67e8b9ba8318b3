"""Skips queue heads whose admission attempt would repeat the previous refusal without side effects.

When a tree's inadmissible workloads are requeued, most of them are only refused again: their quota is still missing and
there are no candidates to preempt. The cycle leaves them out.

A batch goes further: it marks all such heads of a queue inadmissible at once, and the cycles that would try them, one
head per cycle, are only counted. When something changes in the tree meanwhile, the heads whose cycles are not counted
yet become admissible again, unless their shortage is still the same.

An unchanged cohort is left out as a whole: all heads of the tree were refused and returned to their queues as they
were, and since then these queues and the tree's quota holders are the same. Its heads stay in their queues and their
refusal is repeated, as long as no other queue of the tree has a head in the cycle. Cohort trees are independent.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.events import KeepWaiting
from gpuconsole.scheduling.kueue import messages
from gpuconsole.scheduling.kueue.cluster_queue import ClusterQueueHeap
from gpuconsole.scheduling.kueue.cluster_queue_status import ClusterQueueConfig
from gpuconsole.scheduling.kueue.conditions import QUOTA_RESERVED, apply_refusal
from gpuconsole.scheduling.kueue.context import Context, PreemptionQuery, usage_key_for
from gpuconsole.scheduling.kueue.entry import CycleEntry, EntryStatus
from gpuconsole.scheduling.kueue.nomination import is_eligible
from gpuconsole.scheduling.kueue.nomination_cache import (
    CachedNomination,
    QuotaShortage,
    all_lack,
    is_cacheable,
    is_same_shortage,
    lookup,
    lookup_ignoring_usage,
)
from gpuconsole.scheduling.kueue.pod_resources import WorkloadRequest
from gpuconsole.scheduling.kueue.preemption import PreemptionSearch, find_targets
from gpuconsole.scheduling.kueue.preemption.search import max_available
from gpuconsole.scheduling.kueue.requeue import refusal_of
from gpuconsole.scheduling.kueue.state import (
    BatchCandidates,
    BatchHead,
    CachedBatch,
    InadmissibleBatch,
    KueueState,
    UnchangedCohort,
)


class HeadSelection(Struct, frozen=True):
    """The heads of a cycle without those that would only be refused again."""

    tried: list[tuple[ClusterQueueConfig, WorkloadRequest]]
    """Heads to try, with their ClusterQueues; they are still in their queues."""
    repeated: list[CycleEntry]
    """Heads of unchanged trees with their refusals; they stay in their queues."""
    any_marked: bool
    """True if heads were marked inadmissible instead of tried."""


def skip_heads(
    state: KueueState, context: Context, entries: Sequence[CycleEntry], *, may_mark: bool, in_batches: bool
) -> HeadSelection:
    """Select the heads that a cycle tries besides `entries`, which it has already: at most one of each ClusterQueue.

    With `may_mark`, heads that would only be refused again become inadmissible without an entry, with `in_batches` also
    those after them; then only the missing amounts in their conditions may be wrong.
    """
    may_mark = may_mark and _can_skip_heads(context)
    if not (may_mark and in_batches):
        state.end_batches()
    unchanged = unchanged_cohorts(state)
    served = {
        entry.rules.name for tried in (*unchanged.values(), entries) for entry in tried if not entry.second_pass_round
    }
    heads: list[tuple[ClusterQueueConfig, WorkloadRequest]] = []
    any_marked = False
    for name in _queues_with_heads(state):
        rules = state.setup.queues[name]
        if name in served or not rules.active:
            continue
        if continue_batch(state, context, rules):
            any_marked = True
        elif (first := state.next_head(rules)) is not None:
            if may_mark and _skip_head(state, context, rules, first, in_batches=in_batches):
                any_marked = True
            else:
                heads.append((rules, first))
    root = state.setup.tree.root
    changed = {root(entry.rules.node) for entry in entries} | {root(rules.node) for rules, _ in heads}
    repeated: list[CycleEntry] = []
    for tree, tried in unchanged.items():
        if tree in changed:
            # A new entry may change the outcome of the others.
            del state.inadmissible_skip.unchanged_cohorts[tree]
            heads += [(entry.rules, entry.request) for entry in tried]
        else:
            repeated += tried
    return HeadSelection(heads, repeated, any_marked)


def _queues_with_heads(state: KueueState) -> Iterable[str]:
    """Return the ClusterQueues, in order, that may have a head; one whose heads are all in a batch is not idle."""
    names, batches = state.workload_index.active_queues(), state.inadmissible_skip.batches
    return sorted({*names, *batches}) if batches else names


def _can_skip_heads(context: Context) -> bool:
    """True if a head can be left out of the cycle without an effect on other heads.

    False under fair sharing, where even a refused head takes part in the tournament of its tree, and under settings by
    which heads affect each other.
    """
    return not (
        context.cache is None
        or context.config.fair_sharing
        or context.blocks_admission
        or context.gates.overlap_recompute
    )


def _skip_head(
    state: KueueState, context: Context, rules: ClusterQueueConfig, first: WorkloadRequest, *, in_batches: bool
) -> bool:
    """Mark the head of a queue and its class inadmissible, if trying it would have no other effect."""
    queue = state.workload_index.read_queue(rules.name)
    if queue is None or not queue.uses_scheduling_hash or queue.is_sticky(first.id):
        return False
    if in_batches and _start_batch(state, context, rules, queue, first):
        return True
    cached = (
        cached_inadmissible(state, context, rules, first, exact_amounts=not in_batches)
        if first.id not in state.progress
        else None
    )
    if cached is not None:
        state.workload_index.queue(rules.name).mark_classes_inadmissible([(first, cached.requeue_reason[1])])
    return cached is not None


def cached_inadmissible(
    state: KueueState, context: Context, rules: ClusterQueueConfig, request: WorkloadRequest, *, exact_amounts: bool
) -> CachedNomination | None:
    """Return the cached nomination of a head that would only repeat its refusal without side effects, else None.

    With `exact_amounts` its condition must also show the right missing amount, unless the workload is not observed.
    Where each changed amount is reported there are no batches, and this is the only skip of single heads: without it
    `why` takes 6% longer with 10,000 workloads.
    """
    if request.skip_checked_for is not context.setup and not _is_skippable(context, rules, request):
        return None
    cached = lookup(context, rules, request)
    if cached is None or not cached.has_no_side_effect:
        return None
    is_current = request.message_checked_for is cached if exact_amounts else request.current_message == cached.message
    if (
        not is_current
        and state.is_observed(request)
        and not _condition_is_current(state, rules, request, cached, exact_amounts=exact_amounts)
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
    """Return the last nomination of the head's class if repeating it changes no more than amounts in its condition.

    Usage may have changed since: check its `shortage` with `is_same_shortage`. None if there is none. The condition of
    a head that is not observed does not matter.
    """
    if request.skip_checked_for is not context.setup and not _is_skippable(context, rules, request):
        return None
    last = lookup_ignoring_usage(context, rules, request)
    if last is None or last.shortage is None or not last.has_no_side_effect:
        return None
    is_current = request.current_message == last.message or not state.is_observed(request)
    return last if is_current or _condition_is_current(state, rules, request, last, exact_amounts=False) else None


def _is_skippable(context: Context, rules: ClusterQueueConfig, request: WorkloadRequest) -> bool:
    entry = CycleEntry(request, rules)
    if not (is_cacheable(context, entry) and is_eligible(context, entry)):
        return False
    request.skip_checked_for = context.setup
    return True


def _condition_is_current(
    state: KueueState,
    rules: ClusterQueueConfig,
    request: WorkloadRequest,
    cached: CachedNomination,
    *,
    exact_amounts: bool,
) -> bool:
    """True if another refusal would not change the workload's condition; the result is noted on the request."""
    entry = CycleEntry(request, rules)
    entry.record_nomination(cached.assignment, ())
    entry.requeue, entry.granular_reason = cached.requeue_reason
    said = request.workload.condition(QUOTA_RESERVED)
    if not exact_amounts and said is not None and messages.without_amounts(said.message) == cached.message:
        entry.message = said.message
    answer, workload = refusal_of(state, entry), request.workload
    granular = state.gates.granular
    if isinstance(answer, KeepWaiting) or apply_refusal(workload, answer, state.now, granular=granular) is not workload:
        return False
    if exact_amounts:
        request.message_checked_for = cached
    else:
        request.current_message = cached.message
    return True


def _has_targets(context: Context, rules: ClusterQueueConfig, request: WorkloadRequest, asked: PreemptionQuery) -> bool:
    columns, uses = asked
    return bool(find_targets(PreemptionSearch(context, rules, request, columns, uses)))


def unchanged_cohorts(state: KueueState) -> dict[int, list[CycleEntry]]:
    """Return root → heads for trees that are still unchanged; forgets the others."""
    for root, cohort in list(state.inadmissible_skip.unchanged_cohorts.items()):
        if cohort.versions != _versions(state, cohort.entries):
            del state.inadmissible_skip.unchanged_cohorts[root]
    return {root: cohort.entries for root, cohort in state.inadmissible_skip.unchanged_cohorts.items()}


def note_unchanged_cohorts(
    state: KueueState, context: Context, entries: Iterable[CycleEntry], ineligible: Iterable[CycleEntry]
) -> None:
    """Note the trees in which another cycle would repeat this one's refusals of the nominated `entries`.

    Not those with `ineligible` heads, or with a head that continued its search for flavors.
    """
    if state.charging or context.blocks_admission or context.gates.overlap_recompute:
        return
    root = state.setup.tree.root
    trees: dict[int, list[CycleEntry]] = {}
    for entry in entries:
        trees.setdefault(root(entry.rules.node), []).append(entry)
    mixed = {root(entry.rules.node) for entry in ineligible}
    for tree, tried in trees.items():
        if tree not in mixed and all(
            is_cacheable(context, entry) and _returns_unchanged(state, entry) for entry in tried
        ):
            state.inadmissible_skip.unchanged_cohorts[tree] = UnchangedCohort(tried, _versions(state, tried))


_REFUSED = (EntryStatus.NOT_NOMINATED, EntryStatus.SKIPPED)


def _returns_unchanged(state: KueueState, entry: CycleEntry) -> bool:
    """True if the head was refused and returned to its queue unchanged."""
    queue, number = state.workload_index.read_queue(entry.rules.name), entry.request.id
    return (
        entry.status in _REFUSED
        and entry.resume is None
        and not entry.resumed
        and queue is not None
        and not queue.is_inadmissible(number)
        and queue.is_sticky(number) == entry.preemptor
    )


def _versions(state: KueueState, entries: list[CycleEntry]) -> list[int]:
    queues = (state.workload_index.read_queue(entry.rules.name) for entry in entries)
    return [queue.version if queue is not None else -1 for queue in queues]


def continue_batch(state: KueueState, context: Context, rules: ClusterQueueConfig) -> bool:
    """Let the current cycle stand for the repeated refusal of the next head in the queue's batch.

    Returns False if it has none, and also if the queue changed or some head may fit now, which ends the batch.
    """
    batch = state.inadmissible_skip.batches.get(rules.name)
    if batch is None:
        return False
    queue, usage_key = state.workload_index.read_queue(rules.name), usage_key_for(context, rules.node)
    same = queue is not None and queue.version == batch.version
    if same and batch.usage_key is not usage_key:
        batch.candidates = batch.candidates or _candidates_of(rules, batch.heads)
        same = _all_still_lack(context, rules, batch.candidates)
    if not same:
        del state.inadmissible_skip.batches[rules.name]
        batch.stop_batch(state.workload_index.queue(rules.name))
        return False
    batch.usage_key = usage_key
    _count_cycles(state, rules.name)
    return True


def _start_batch(
    state: KueueState, context: Context, rules: ClusterQueueConfig, queue: ClusterQueueHeap, first: WorkloadRequest
) -> bool:
    """Start a batch with the first head of the queue, and let this cycle stand for its refusal; False if impossible."""
    if not _head_still_lacks(context, rules, first):
        return False
    candidates = _cached_candidates(state, context, rules, queue)
    heads, whole = candidates.heads, _all_still_lack(context, rules, candidates)
    if not whole:
        heads = tuple(takewhile(lambda head: is_same_shortage(context, rules, head[0], head[2]), heads))
    if not heads:
        return False
    queue = state.workload_index.queue(rules.name)
    queue.mark_classes_inadmissible([(request, reason) for request, reason, _ in heads])
    state.inadmissible_skip.batches[rules.name] = InadmissibleBatch(
        heads, usage_key_for(context, rules.node), queue.version, candidates if whole else None
    )
    _count_cycles(state, rules.name)
    return True


def fast_forward(state: KueueState, context: Context) -> int:
    """Skip the coming cycles that would only continue batches; returns their number. No other queue may have a head."""
    for name, batch in state.inadmissible_skip.batches.items():
        rules, queue = state.setup.queues[name], state.workload_index.read_queue(name)
        if queue is None or queue.version != batch.version or batch.usage_key is not usage_key_for(context, rules.node):
            return 0
    cycles = min(len(batch.heads) - batch.counted for batch in state.inadmissible_skip.batches.values())
    for name in list(state.inadmissible_skip.batches):
        _count_cycles(state, name, cycles)
    return cycles


def _count_cycles(state: KueueState, name: str, cycles: int = 1) -> None:
    batch = state.inadmissible_skip.batches[name]
    batch.counted += cycles
    if batch.counted == len(batch.heads):
        del state.inadmissible_skip.batches[name]


def _cached_candidates(
    state: KueueState, context: Context, rules: ClusterQueueConfig, queue: ClusterQueueHeap
) -> BatchCandidates:
    """Return the first class heads that would repeat their refusal while their shortage is the same."""
    cached = state.inadmissible_skip.candidates.get(rules.name)
    if cached is None or cached.members != queue.members or cached.setup is not context.setup:
        candidates = _candidates_of(rules, _batchable_heads(state, context, rules, queue))
        if queue.has_no_inadmissible_class:
            state.inadmissible_skip.candidates[rules.name] = CachedBatch(candidates, queue.members, context.setup)
        return candidates
    if queue.has_no_inadmissible_class:
        return cached.candidates
    return _candidates_of(rules, (head for head in cached.candidates.heads if not queue.is_inadmissible(head[0].id)))


def _batchable_heads(
    state: KueueState, context: Context, rules: ClusterQueueConfig, queue: ClusterQueueHeap
) -> Iterator[BatchHead]:
    for request in queue.class_heads():
        last = condition_unchanged(state, context, rules, request) if request.id not in state.progress else None
        if last is None or last.shortage is None:
            return
        yield request, last.requeue_reason[1], last.shortage


def _candidates_of(rules: ClusterQueueConfig, heads: Iterable[BatchHead]) -> BatchCandidates:
    taken = tuple(heads)
    least: dict[tuple[int, int, int], tuple[WorkloadRequest, int]] = {}
    most: dict[int, int] = {}
    for request, _, shortage in taken:
        _add_shortage(rules, request, shortage, least, most)
    short = tuple((request, column, amount) for (_, _, column), (request, amount) in least.items())
    return BatchCandidates(taken, short, tuple(_quick_bounds(short)), tuple(most.items()))


def _quick_bounds(short: Iterable[tuple[WorkloadRequest, int, int]]) -> Iterator[tuple[WorkloadRequest, int, int]]:
    """Combine shortages by column: the highest priority, then oldest head, and the least requested amount."""
    found: dict[int, tuple[WorkloadRequest, int]] = {}
    for request, column, amount in short:
        known, least = found.get(column, (request, amount))
        found[column] = min(known, request, key=_request_rank), min(least, amount)
    return ((request, column, amount) for column, (request, amount) in found.items())


def _request_rank(request: WorkloadRequest) -> tuple[int, Time]:
    return -request.priority, request.timestamp


def _all_still_lack(context: Context, rules: ClusterQueueConfig, candidates: BatchCandidates) -> bool:
    """True if all of these heads still have the same shortage with the current usage."""
    return any(all_lack(context, rules, short, candidates.available) for short in (candidates.bounds, candidates.short))


def _add_shortage(
    rules: ClusterQueueConfig,
    request: WorkloadRequest,
    shortage: QuotaShortage,
    least: dict[tuple[int, int, int], tuple[WorkloadRequest, int]],
    most: dict[int, int],
) -> None:
    age = request.timestamp if rules.compares_age else 0
    for column, amount in shortage.lacking:
        key = request.priority, age, column
        if key not in least or amount < least[key][1]:
            least[key] = request, amount
    for column, amount in shortage.available:
        most[column] = max(amount, most.get(column, 0))


def _head_still_lacks(context: Context, rules: ClusterQueueConfig, request: WorkloadRequest) -> bool:
    last = lookup_ignoring_usage(context, rules, request)
    return last is not None and last.shortage is not None and is_same_shortage(context, rules, request, last.shortage)
