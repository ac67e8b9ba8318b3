"""Marks inadmissible, as one batch, the heads of a queue that would repeat their previous refusal, one per cycle.

The cycles that would try them are only counted. When something changes in the tree meanwhile, the heads whose cycles
are not counted yet become admissible again, unless their shortage is still the same.
"""

from collections.abc import Iterable, Iterator
from itertools import takewhile

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.scheduling.kueue.cluster_queue import ClusterQueueHeap
from gpuconsole.scheduling.kueue.compiled_config import ClusterQueueConfig, CompiledConfig
from gpuconsole.scheduling.kueue.context import Context
from gpuconsole.scheduling.kueue.inadmissible_skip import condition_unchanged
from gpuconsole.scheduling.kueue.nomination_cache import lookup_ignoring_usage
from gpuconsole.scheduling.kueue.reasons import GranularReason
from gpuconsole.scheduling.kueue.requests import WorkloadRequest
from gpuconsole.scheduling.kueue.shortage import QuotaShortage, lack, persists
from gpuconsole.scheduling.kueue.state import KueueState
from gpuconsole.scheduling.kueue.usage_key import UsageKey, usage_key_for

BatchHead = tuple[WorkloadRequest, GranularReason, QuotaShortage]
"""A head, the granular reason of its refusal, and its shortage."""


class BatchCandidates(Struct, frozen=True):
    """Heads of a queue, in order, that all stay refused while these amounts are short."""

    heads: tuple[BatchHead, ...]
    short: tuple[tuple[WorkloadRequest, int, int], ...]
    """For each column, priority and (if it matters) age: the head that requests least, the column and the amount."""
    bounds: tuple[tuple[WorkloadRequest, int, int], ...]
    """For each column: the head that may preempt most, and the least amount requested; if that is short, all are."""
    available: tuple[tuple[int, int], ...]
    """Column that is not short for some head → the greatest amount requested of it."""


class CachedBatch(Struct, frozen=True):
    """The batch of a queue when all its classes are admissible, valid while its members stay the same."""

    candidates: BatchCandidates
    members: int
    setup: CompiledConfig


class InadmissibleBatch:
    """A batch of inadmissible heads in progress. Mutated by every cycle."""

    __slots__ = ("candidates", "counted", "heads", "usage_key", "version")

    def __init__(
        self,
        heads: tuple[BatchHead, ...],
        usage_key: UsageKey,
        version: int,
        candidates: BatchCandidates | None = None,
        done: int = 0,
    ) -> None:
        self.heads = heads
        self.candidates = candidates
        """Summary of `heads`; None until it is needed."""
        self.counted = done
        """Number of heads whose cycles are counted."""
        self.usage_key = usage_key
        self.version = version
        """Version of the queue with all of them inadmissible."""

    def copy(self) -> "InadmissibleBatch":
        """Return an independent copy."""
        return InadmissibleBatch(self.heads, self.usage_key, self.version, self.candidates, self.counted)

    def stop(self, queue: ClusterQueueHeap) -> None:
        """Make the heads that no cycle has counted yet admissible again."""
        queue.mark_classes_admissible(request for request, _, _ in self.heads[self.counted :])


def continue_batch(state: KueueState, context: Context, rules: ClusterQueueConfig) -> bool:
    """Count the current cycle as the repeated refusal of the next head in the queue's batch.

    Returns False, and ends the batch, if the queue changed or some head may fit now.
    """
    batch = state.batches[rules.name]
    queue, usage_key = state.workload_index.peek(rules.name), usage_key_for(context, rules.node)
    same = queue is not None and queue.version == batch.version
    if same and batch.usage_key is not usage_key:
        batch.candidates = batch.candidates or _candidates_of(rules, batch.heads)
        same = _still_lack(context, rules, batch.candidates)
    if not same:
        del state.batches[rules.name]
        batch.stop(state.workload_index.queue(rules.name))
        return False
    batch.usage_key = usage_key
    _count(state, rules.name)
    return True


def start_batch(state: KueueState, context: Context, rules: ClusterQueueConfig, first: WorkloadRequest) -> bool:
    """Start a batch with the first head of the queue and count its cycle; False if it cannot start."""
    queue = state.workload_index.peek(rules.name)
    if (
        queue is None
        or not queue.uses_scheduling_hash
        or queue.is_sticky(first.id)
        or not _head_still_lacks(context, rules, first)
    ):
        return False
    candidates = _cached_candidates(state, context, rules, queue)
    heads, whole = candidates.heads, _still_lack(context, rules, candidates)
    if not whole:
        heads = tuple(takewhile(lambda head: persists(context, rules, head[0], head[2]), heads))
    if not heads:
        return False
    queue = state.workload_index.queue(rules.name)
    queue.mark_classes_inadmissible([(request, reason) for request, reason, _ in heads])
    state.batches[rules.name] = InadmissibleBatch(
        heads, usage_key_for(context, rules.node), queue.version, candidates if whole else None
    )
    _count(state, rules.name)
    return True


def fast_forward(state: KueueState, context: Context) -> int:
    """Count the coming cycles that only continue batches, and return their number; no other queue may have a head."""
    for name, batch in state.batches.items():
        rules, queue = state.setup.queues[name], state.workload_index.peek(name)
        if queue is None or queue.version != batch.version or batch.usage_key is not usage_key_for(context, rules.node):
            return 0
    cycles = min(len(batch.heads) - batch.counted for batch in state.batches.values())
    for name in list(state.batches):
        _count(state, name, cycles)
    return cycles


def _count(state: KueueState, name: str, cycles: int = 1) -> None:
    batch = state.batches[name]
    batch.counted += cycles
    if batch.counted == len(batch.heads):
        del state.batches[name]


def _cached_candidates(
    state: KueueState, context: Context, rules: ClusterQueueConfig, queue: ClusterQueueHeap
) -> BatchCandidates:
    """Return the first class heads that would repeat their refusal while their shortage is the same."""
    cached = state.cached_batches.get(rules.name)
    if cached is None or cached.members != queue.members or cached.setup is not context.setup:
        candidates = _candidates_of(rules, _batchable_heads(state, context, rules, queue))
        if queue.has_no_inadmissible_class:
            state.cached_batches[rules.name] = CachedBatch(candidates, queue.members, context.setup)
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
        _add(rules, request, shortage, least, most)
    short = tuple((request, column, amount) for (_, _, column), (request, amount) in least.items())
    return BatchCandidates(taken, short, tuple(_bounds(short)), tuple(most.items()))


def _bounds(short: Iterable[tuple[WorkloadRequest, int, int]]) -> Iterator[tuple[WorkloadRequest, int, int]]:
    """Combine shortages by column: the highest priority, then oldest head, and the least requested amount."""
    found: dict[int, tuple[WorkloadRequest, int]] = {}
    for request, column, amount in short:
        known, least = found.get(column, (request, amount))
        found[column] = min(known, request, key=_rank), min(least, amount)
    return ((request, column, amount) for column, (request, amount) in found.items())


def _rank(request: WorkloadRequest) -> tuple[int, Time]:
    return -request.priority, request.timestamp


def _still_lack(context: Context, rules: ClusterQueueConfig, candidates: BatchCandidates) -> bool:
    """True if all of these heads still have the same shortage with the current usage."""
    return any(lack(context, rules, short, candidates.available) for short in (candidates.bounds, candidates.short))


def _add(
    rules: ClusterQueueConfig,
    request: WorkloadRequest,
    shortage: QuotaShortage,
    least: dict[tuple[int, int, int], tuple[WorkloadRequest, int]],
    most: dict[int, int],
) -> None:
    age = request.timestamp if rules.looks_at_age else 0
    for column, amount in shortage.short:
        key = request.priority, age, column
        if key not in least or amount < least[key][1]:
            least[key] = request, amount
    for column, amount in shortage.available:
        most[column] = max(amount, most.get(column, 0))


def _head_still_lacks(context: Context, rules: ClusterQueueConfig, request: WorkloadRequest) -> bool:
    last = lookup_ignoring_usage(context, rules, request)
    return last is not None and last.shortage is not None and persists(context, rules, request, last.shortage)
