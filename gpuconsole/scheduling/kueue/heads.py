"""Selects the entries of a cycle: due second passes and the heads of active ClusterQueues, except repeated refusals."""

from collections.abc import Iterable, Iterator
from enum import Enum, auto

from gpuconsole.scheduling.kueue import unchanged_cohorts
from gpuconsole.scheduling.kueue.afs_charges import usage_in
from gpuconsole.scheduling.kueue.compiled_config import ClusterQueueConfig
from gpuconsole.scheduling.kueue.context import Context
from gpuconsole.scheduling.kueue.entry import CycleEntry
from gpuconsole.scheduling.kueue.inadmissible_batch import continue_batch, fast_forward, start_batch
from gpuconsole.scheduling.kueue.inadmissible_skip import cached_inadmissible, can_skip_heads
from gpuconsole.scheduling.kueue.requests import WorkloadRequest
from gpuconsole.scheduling.kueue.second_pass import take_due
from gpuconsole.scheduling.kueue.state import KueueState
from gpuconsole.scheduling.kueue.workloads import request_of


class ReportRefusals(Enum):
    """The refusals that a cycle reports."""

    EVERY = auto()
    """All refusals, in every cycle."""
    CHANGED = auto()
    """Only refusals that change the workload's condition."""
    CHANGED_REASON = auto()
    """Only refusals that change more than the missing amount."""


def head(state: KueueState, rules: ClusterQueueConfig) -> WorkloadRequest | None:
    """Return the workload of a ClusterQueue that the next cycle would try; None if there is none or the queue is
    inactive.
    """
    queue = state.workload_index.peek(rules.name)
    return queue.head(usage_in(state, rules)) if rules.active and queue is not None else None


def has_head(state: KueueState) -> bool:
    """True if the next cycle would try a pending workload."""
    return bool(state.batches) or _has_head_in(state, state.workload_index.active_queues())


def _has_head_in(state: KueueState, names: Iterable[str]) -> bool:
    return any(head(state, state.setup.queues[name]) is not None for name in names)


def take_heads(
    state: KueueState,
    context: Context,
    given: Iterable[CycleEntry] = (),
    *,
    report: ReportRefusals = ReportRefusals.EVERY,
) -> tuple[list[CycleEntry], bool]:
    """Take the entries of a cycle out of their queues, after those `given`; True if other heads were marked
    inadmissible.

    Unless `report` is EVERY, heads in unchanged trees and heads that would repeat their refusal are left out.
    """
    entries = [*given, *_second_passes(state)]
    may_skip = report is not ReportRefusals.EVERY and can_skip_heads(context)
    together = may_skip and report is ReportRefusals.CHANGED_REASON
    if not together:
        state.end_batches()
    unchanged = unchanged_cohorts.unchanged(state)
    served = {entry.rules.name for tried in (*unchanged.values(), entries) for entry in tried if not entry.round}
    any_inadmissible = False
    for name in _active_queues(state):
        rules = state.setup.queues[name]
        if name in served or not rules.active:
            continue
        if name in state.batches and continue_batch(state, context, rules):
            any_inadmissible = True
            continue
        first = head(state, rules)
        if first is None:
            continue
        if (together and start_batch(state, context, rules, first)) or (
            may_skip and _mark_head_inadmissible(state, context, rules, first, amounts=not together)
        ):
            any_inadmissible = True
        else:
            entries.append(_take_entry(state, rules, first))
    root = state.setup.tree.root
    changed = {root(entry.rules.node) for entry in entries}
    for tree, cohort_entries in unchanged.items():
        if tree in changed:
            # A new entry may change the outcome of the others.
            del state.unchanged_cohorts[tree]
            entries += [_take_entry(state, entry.rules, entry.request) for entry in cohort_entries]
        elif report is ReportRefusals.EVERY:
            entries += cohort_entries
    return entries, any_inadmissible


def skip_idle_cycles(state: KueueState) -> int:
    """Count the coming cycles that would only continue batches, and return their number."""
    if not state.batches or state.second_passes:
        return 0
    unchanged = {entry.rules.name for tried in unchanged_cohorts.unchanged(state).values() for entry in tried}
    others = (
        name for name in state.workload_index.active_queues() if name not in unchanged and name not in state.batches
    )
    if _has_head_in(state, others):
        return 0
    cycles = fast_forward(state, state.context())
    state.cycles += cycles
    return cycles


def _active_queues(state: KueueState) -> Iterable[str]:
    names = state.workload_index.active_queues()
    return sorted({*names, *state.batches}) if state.batches else names


def _second_passes(state: KueueState) -> Iterator[CycleEntry]:
    for holding, round in take_due(state):
        request = request_of(state, holding.workload, holding.id, holding.cluster_queue).as_admitted(state.config)
        state.mark_changed(holding.cluster_queue)
        yield CycleEntry(request, state.setup.queues[holding.cluster_queue], round=round)


def _take_entry(state: KueueState, rules: ClusterQueueConfig, first: WorkloadRequest) -> CycleEntry:
    queue = state.workload_index.queue(rules.name)
    queue.take(first)
    return CycleEntry(first, rules, preemptor=queue.is_sticky(first.id))


def _mark_head_inadmissible(
    state: KueueState, context: Context, rules: ClusterQueueConfig, first: WorkloadRequest, *, amounts: bool
) -> bool:
    """Mark the head and its class inadmissible, if trying it would have no other effect."""
    queue = state.workload_index.peek(rules.name)
    if queue is None or not queue.uses_scheduling_hash or queue.is_sticky(first.id) or first.id in state.progress:
        return False
    cached = cached_inadmissible(state, context, rules, first, amounts=amounts)
    if cached is None:
        return False
    state.workload_index.queue(rules.name).mark_classes_inadmissible([(first, cached.requeue_reason[1])])
    return True
