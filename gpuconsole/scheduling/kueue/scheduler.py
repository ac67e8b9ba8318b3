"""One scheduling cycle: from the heads of the ClusterQueues to decisions (Kueue 0.19 pkg/scheduler/scheduler.go).

`schedule` is the cycle, in the order of Kueue's function of that name: heads, snapshot, nomination, order, processing,
requeue. Two caches save work and change no decision: `skip_heads` leaves heads out in the first step, and
`nominate_cached` answers in the third. The others below run a cycle, or look at the heads of the next one.
"""

from collections.abc import Iterable, Iterator
from enum import Enum, auto

from gpuconsole.model.events import AdmissionDecision
from gpuconsole.scheduling.kueue.context import Context
from gpuconsole.scheduling.kueue.entry import CycleEntry, CycleResult, EntryStatus
from gpuconsole.scheduling.kueue.inadmissible_skip import (
    fast_forward,
    note_unchanged_cohorts,
    skip_heads,
    unchanged_cohorts,
)
from gpuconsole.scheduling.kueue.nomination import nominate
from gpuconsole.scheduling.kueue.pod_resources import WorkloadRequest
from gpuconsole.scheduling.kueue.processing import (
    ChosenVictims,
    assume,
    in_processing_order,
    issue_evictions,
    mark_assumed,
    process_entry,
)
from gpuconsole.scheduling.kueue.requeue import refusal_of, requeue_and_update, requeue_in_flight, requeue_untried
from gpuconsole.scheduling.kueue.state import KueueState
from gpuconsole.scheduling.kueue.workloads import request_of, take_due_second_passes


class ReportRefusals(Enum):
    """The refusals that a cycle reports."""

    EVERY = auto()
    """All refusals, in every cycle."""
    CHANGED = auto()
    """Only refusals that change the workload's condition."""
    CHANGED_REASON = auto()
    """Only refusals that change more than the missing amount."""


def run_cycle(
    state: KueueState,
    *,
    with_traces: bool = False,
    report: ReportRefusals = ReportRefusals.EVERY,
    stays_open: bool = False,
) -> list[AdmissionDecision]:
    """Run one cycle, or continue the one that waits; returns admissions and evictions in processing order, then
    refusals.

    `with_traces` adds to each preemption how its victim was chosen. `report` selects the refusals that are returned.
    With `stays_open` a cycle in which admission is blocked stays open: the next call continues it with the usage that
    it began with.
    """
    if state.open_cycle is None:
        state.open_cycle = schedule(state, with_traces=with_traces, report=report, stays_open=stays_open)
    result = next(state.open_cycle)
    if result.has_ended:
        state.open_cycle = None
    return result.decisions


def schedule(
    state: KueueState,
    given: Iterable[CycleEntry] = (),
    *,
    with_traces: bool = False,
    report: ReportRefusals = ReportRefusals.EVERY,
    stays_open: bool = False,
) -> Iterator[CycleResult]:
    """Run one cycle over the heads of all active ClusterQueues, after the entries `given` (schedule).

    Yields its result at the end, and with `stays_open` also each time that it waits for admitted workloads to be ready:
    a caller that continues it states that they are. The other parameters are those of `run_cycle`.
    """
    state.cycles += 1
    # 1. Get the heads from the queues, and 2. take a snapshot, which comes first here: it tells which heads to skip.
    context = state.context()
    if with_traces:
        context.search_traces = {}
    heads, any_skipped = take_heads(state, context, given, report=report)
    # 3. Calculate requirements (flavors, borrowing, victims) for admitting workloads.
    entries, ineligible = nominate(state, context, heads)
    # 4. Order the entries, and 5. process them one by one.
    decisions: list[AdmissionDecision] = []
    refused: list[CycleEntry] = []
    chosen_victims: ChosenVictims = {}
    waited = False
    for entry in in_processing_order(context, entries):
        process_entry(context, entry, chosen_victims)
        decisions += issue_evictions(state, context, entry)
        if entry.status is EntryStatus.BLOCKED and stays_open:
            waited = True
            yield CycleResult([*decisions, *_wait_for_pods_ready(state, context, heads, entry)], heads, has_ended=False)
            decisions = []
            mark_assumed(context, entry)
        if entry.status is EntryStatus.ASSUMED:
            context.keep_holdings(entry.rules.name)
            # A workload removed while the cycle waited is not admitted, but the next entry still waits for it to be
            # ready: Kueue learns only afterwards that the admission could not be written.
            if not waited or entry.second_pass_round or state.is_still_pending(entry.request):
                decisions.append(assume(state, entry))
        elif entry.status is not EntryStatus.EVICTED:
            refused.append(entry)
            if entry.status is EntryStatus.BLOCKED:
                break
    # 6. Requeue the heads that were not admitted.
    left = [entry for entry in entries if not entry.order]
    if refused and refused[-1].status is EntryStatus.BLOCKED:
        requeue_untried(state, left)
    else:
        # Under fair sharing a queue takes part with one entry only: its second pass waits for another cycle.
        refused += left
    refused += ineligible
    if waited:
        decisions += requeue_in_flight(state, refused)
    else:
        decisions += requeue_and_update(state, refused, progressed=bool(decisions) or any_skipped)
        note_unchanged_cohorts(state, context, entries, ineligible)
    yield CycleResult(decisions, heads)


def _wait_for_pods_ready(
    state: KueueState, context: Context, heads: list[CycleEntry], blocked: CycleEntry
) -> list[AdmissionDecision]:
    """Keep what the cycle needs while it waits; returns the refusal of the blocked entry (waitForPodsReadyIfNeeded)."""
    context.keep_holdings(*context.setup.queues)
    state.in_flight = {
        entry.request.id for entry in heads if entry.second_pass_round or entry.status is not EntryStatus.ASSUMED
    }
    return [refusal_of(state, blocked)] if state.is_still_pending(blocked.request) else []


def take_heads(
    state: KueueState,
    context: Context,
    given: Iterable[CycleEntry] = (),
    *,
    report: ReportRefusals = ReportRefusals.EVERY,
) -> tuple[list[CycleEntry], bool]:
    """Take the heads of a cycle out of their queues (Kueue 0.19 pkg/cache/queue/manager.go: Heads).

    Returns the cycle's entries, first those `given` and due second passes, and True if heads were marked inadmissible
    without an entry: unless `report` is EVERY, those that would only be refused again are left out.
    """
    entries = [*given, *_second_passes(state)]
    heads = skip_heads(
        state,
        context,
        entries,
        may_mark=report is not ReportRefusals.EVERY,
        in_batches=report is ReportRefusals.CHANGED_REASON,
    )
    for rules, first in heads.tried:
        queue = state.workload_index.queue(rules.name)
        queue.take_head(first)
        entries.append(CycleEntry(first, rules, preemptor=queue.is_sticky(first.id)))
    if report is ReportRefusals.EVERY:
        entries += heads.repeated
    return entries, heads.any_marked


def _second_passes(state: KueueState) -> Iterator[CycleEntry]:
    for holding, round in take_due_second_passes(state):
        request = request_of(state, holding.workload, holding.id, holding.cluster_queue).as_admitted(state.config)
        state.mark_holdings_changed(holding.cluster_queue)
        yield CycleEntry(request, state.setup.queues[holding.cluster_queue], round=round)


def examine_cycle(state: KueueState, first: str = "") -> list[CycleEntry]:
    """Run a cycle and return its entries; the workload `first` is tried as if it were its queue's head.

    Changes the state: pass a fork.
    """
    request = state.workload_index.get(first)
    given = []
    if isinstance(request, WorkloadRequest) and state.setup.queues[request.cluster_queue].active:
        rules, queue = state.setup.queues[request.cluster_queue], state.workload_index.queue(request.cluster_queue)
        given.append(CycleEntry(request, rules, preemptor=queue.is_sticky(request.id)))
        queue.remove(request.id)
    return next(schedule(state, given)).entries


def heads_in_processing_order(state: KueueState) -> list[CycleEntry]:
    """Return the head of every active ClusterQueue, inadmissible or not, in the order in which one cycle would process
    them.
    """
    context, heads = state.context(), []
    for name in sorted(state.setup.queues):
        rules, queue = state.setup.queues[name], state.workload_index.read_queue(name)
        if rules.active and queue is not None:
            pending = queue.sorted_pending(state.usage_by_local_queue(rules))
            heads += [CycleEntry(first, rules) for first, _ in pending[:1]]
    entries, _ = nominate(state, context, heads)
    chosen_victims: ChosenVictims = {}
    processed = []
    for entry in in_processing_order(context, entries):
        process_entry(context, entry, chosen_victims)
        if entry.status is EntryStatus.BLOCKED:
            mark_assumed(context, entry)
        processed.append(entry)
    return processed


def has_head(state: KueueState) -> bool:
    """True if the next cycle would try a pending workload."""
    return bool(state.inadmissible_skip.batches) or _has_head_in(state, state.workload_index.active_queues())


def _has_head_in(state: KueueState, names: Iterable[str]) -> bool:
    return any(state.next_head(state.setup.queues[name]) is not None for name in names)


def skip_idle_cycles(state: KueueState) -> int:
    """Skip the coming cycles that would only repeat refusals of a batch (`inadmissible_skip`); returns their number."""
    if not state.inadmissible_skip.batches or state.second_passes:
        return 0
    unchanged = {entry.rules.name for tried in unchanged_cohorts(state).values() for entry in tried}
    others = (
        name
        for name in state.workload_index.active_queues()
        if name not in unchanged and name not in state.inadmissible_skip.batches
    )
    if _has_head_in(state, others):
        return 0
    cycles = fast_forward(state, state.context())
    state.cycles += cycles
    return cycles
