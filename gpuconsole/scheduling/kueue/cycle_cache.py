"""Caches the outcomes of a cohort tree's heads, keyed by the state of the tree and by the heads.

Cohort trees are independent. Where only quota and its holders decide, equal heads in an equal tree have equal outcomes
in every fork: an unchanged tree repeats its last cycle, and the changed fork of a what-if repeats the baseline wherever
its change has no effect (`store_outcomes`, `restore_outcomes`).

A tree is unchanged (`unchanged_cohorts`, `note_if_unchanged`) if all its heads were refused and returned to their
queues unchanged, and since then these queues and the tree's quota holders are the same. Such heads stay in their queues
and their refusal is repeated, as long as no other queue of the tree has a head in the cycle.
"""

from collections.abc import Container, Hashable, Iterable, Sequence

from msgspec import Struct

from gpuconsole.scheduling.kueue.assignment import Assignment, ResumePosition
from gpuconsole.scheduling.kueue.cluster_queue import RequeueReason
from gpuconsole.scheduling.kueue.context import Context, FinishedTrace, put_bounded
from gpuconsole.scheduling.kueue.entry import CycleEntry, EntryStatus
from gpuconsole.scheduling.kueue.messages import GranularReason
from gpuconsole.scheduling.kueue.nomination_cache import is_cacheable
from gpuconsole.scheduling.kueue.preemption import PreemptionTarget
from gpuconsole.scheduling.kueue.state import KueueState, UnchangedCohort


class CachedEntry(Struct, frozen=True):
    """The outcome of one head; the fields are named as in `CycleEntry`."""

    assignment: Assignment
    targets: Sequence[PreemptionTarget]
    status: EntryStatus
    requeue: RequeueReason
    message: str
    cause: GranularReason
    resume: ResumePosition | None
    order: int
    traces: Sequence[FinishedTrace]
    """Traces of the searches for its victims, if requested."""


class CohortHeads(Struct, frozen=True):
    """The heads of one cohort tree in a cycle, with their cache key."""

    entries: list[CycleEntry]
    key: Hashable
    """None if the outcomes must not be cached."""
    starts_from_first_flavor: bool
    """True if no head continues its search for flavors from an earlier cycle; False without a key."""


def group_by_root(context: Context, entries: Iterable[CycleEntry]) -> list[CohortHeads]:
    """Group the heads of a cycle by cohort tree."""
    root, trees = context.snapshot.usage.tree.root, dict[int, list[CycleEntry]]()
    for entry in entries:
        trees.setdefault(root(entry.rules.node), []).append(entry)
    return [_cohort_heads(context, at, members) for at, members in trees.items()]


def restore_outcomes(context: Context, heads: CohortHeads) -> bool:
    """Restore the outcomes of a tree's heads from the cache; False if they are not cached."""
    cached_entries: tuple[CachedEntry, ...] | None = context.cached_entries.get(heads.key)
    if heads.key is None or cached_entries is None:
        return False
    for entry, cached in zip(heads.entries, cached_entries, strict=True):
        entry.assignment, entry.targets = cached.assignment, cached.targets
        entry.status, entry.requeue = cached.status, cached.requeue
        entry.message, entry.granular_reason = cached.message, cached.cause
        entry.resume, entry.order = cached.resume, cached.order
        if context.search_traces is not None and cached.traces:
            context.search_traces[entry.request.id] = [*cached.traces]
    return True


def store_outcomes(context: Context, heads: CohortHeads) -> None:
    """Cache the outcomes of a tree's heads at the end of the cycle."""
    if heads.key is not None:
        cached_entries = tuple(_cached_entry(context, entry) for entry in heads.entries)
        put_bounded(context.cached_entries, heads.key, cached_entries)


def _cohort_heads(context: Context, root: int, entries: list[CycleEntry]) -> CohortHeads:
    findings, is_independent = context.cache, not (context.blocks_admission or context.gates.overlap_recompute)
    if findings is None or not (findings.shared_cache.has_forks and is_independent):
        return CohortHeads(entries, None, starts_from_first_flavor=False)
    if not all(is_cacheable(context, entry) for entry in entries):
        return CohortHeads(entries, None, starts_from_first_flavor=False)
    marks = tuple(_entry_key(entry) for entry in entries)
    key = findings.state_number(root), context.search_traces is None, marks
    return CohortHeads(entries, key, not any(entry.resume for entry in entries))


def _entry_key(entry: CycleEntry) -> tuple[object, ...]:
    """Return everything of a head that decides its outcome."""
    request, resume = entry.request, entry.resume
    return (
        entry.rules.node,
        request.scheduling_hash,
        request.timestamp,
        entry.preemptor,
        request.workload.gated,
        resume and tuple(tuple(tried.items()) for tried in resume),
    )


def _cached_entry(context: Context, entry: CycleEntry) -> CachedEntry:
    return CachedEntry(
        assignment=entry.assignment,
        targets=entry.targets,
        status=entry.status,
        requeue=entry.requeue,
        message=entry.message,
        cause=entry.granular_reason,
        resume=entry.resume,
        order=entry.order,
        traces=() if context.search_traces is None else context.search_traces.get(entry.request.id, ()),
    )


_REFUSED = (EntryStatus.NOT_NOMINATED, EntryStatus.SKIPPED)


def unchanged_cohorts(state: KueueState) -> dict[int, list[CycleEntry]]:
    """Return root → heads for trees that are still unchanged; forgets the others."""
    for root, cohort in list(state.unchanged_cohorts.items()):
        if cohort.versions != _versions(state, cohort.entries):
            del state.unchanged_cohorts[root]
    return {root: cohort.entries for root, cohort in state.unchanged_cohorts.items()}


def note_if_unchanged(state: KueueState, heads: CohortHeads, *, others: Container[int]) -> None:
    """Note a tree as unchanged if another cycle would repeat this one; not if its root is in `others`: more heads."""
    entries = heads.entries
    root = state.setup.tree.root(entries[0].rules.node)
    if (
        heads.key is not None
        and heads.starts_from_first_flavor
        and root not in others
        and all(_returns_unchanged(state, entry) for entry in entries)
    ):
        state.unchanged_cohorts[root] = UnchangedCohort(entries, _versions(state, entries))


def _returns_unchanged(state: KueueState, entry: CycleEntry) -> bool:
    """True if the head was refused and returns to its queue unchanged."""
    queue, number = state.workload_index.read_queue(entry.rules.name), entry.request.id
    return (
        entry.status in _REFUSED
        and entry.resume is None
        and queue is not None
        and not queue.is_inadmissible(number)
        and queue.is_sticky(number) == entry.preemptor
    )


def _versions(state: KueueState, entries: list[CycleEntry]) -> list[int]:
    queues = (state.workload_index.read_queue(entry.rules.name) for entry in entries)
    return [queue.version if queue is not None else -1 for queue in queues]
