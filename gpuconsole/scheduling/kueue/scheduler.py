"""One scheduling cycle: from the heads of the ClusterQueues to decisions (Kueue 0.19 pkg/scheduler/scheduler.go).

1. take the entries: due second passes and the heads of active ClusterQueues, except repeated refusals  2. take a
snapshot of the usage  3. nominate each head  4. sort them  5. process them one by one  6. requeue those that were not
admitted.
"""

from collections.abc import Iterable, Iterator
from enum import Enum, auto

from gpuconsole.model.events import AdmissionDecision, Admit, Evict, Preempt
from gpuconsole.scheduling.kueue import conditions, messages
from gpuconsole.scheduling.kueue.afs_charges import local_queue_usage_function
from gpuconsole.scheduling.kueue.assignment import attempts_text
from gpuconsole.scheduling.kueue.cluster_queue import RequeueReason
from gpuconsole.scheduling.kueue.cluster_queue_status import ClusterQueueConfig
from gpuconsole.scheduling.kueue.context import Context, SearchTraces
from gpuconsole.scheduling.kueue.entry import CycleEntry, EntryStatus
from gpuconsole.scheduling.kueue.inadmissible_skip import (
    cached_inadmissible,
    can_skip_heads,
    continue_batch,
    fast_forward,
    is_observed,
    note_unchanged_cohorts,
    start_batch,
    unchanged_cohorts,
)
from gpuconsole.scheduling.kueue.pod_resources import Holding, WorkloadRequest
from gpuconsole.scheduling.kueue.preemption.classical import trace_of_victim
from gpuconsole.scheduling.kueue.processing import is_eligible, nominate, process_entries
from gpuconsole.scheduling.kueue.state import KueueState
from gpuconsole.scheduling.kueue.workloads import (
    assume_admission,
    is_message_only,
    refusal_of,
    request_of,
    requeue_entry,
    resume_position,
    take_due_second_passes,
)


class ReportRefusals(Enum):
    """The refusals that a cycle reports."""

    EVERY = auto()
    """All refusals, in every cycle."""
    CHANGED = auto()
    """Only refusals that change the workload's condition."""
    CHANGED_REASON = auto()
    """Only refusals that change more than the missing amount."""


def next_head(state: KueueState, rules: ClusterQueueConfig) -> WorkloadRequest | None:
    """Return the workload of a ClusterQueue that the next cycle would try; None if there is none or the queue is
    inactive.
    """
    queue = state.workload_index.read_queue(rules.name)
    return queue.head(local_queue_usage_function(state, rules)) if rules.active and queue is not None else None


def has_head(state: KueueState) -> bool:
    """True if the next cycle would try a pending workload."""
    return bool(state.inadmissible_skip.batches) or _has_head_in(state, state.workload_index.active_queues())


def _has_head_in(state: KueueState, names: Iterable[str]) -> bool:
    return any(next_head(state, state.setup.queues[name]) is not None for name in names)


def take_heads(
    state: KueueState,
    context: Context,
    given: Iterable[CycleEntry] = (),
    *,
    report: ReportRefusals = ReportRefusals.EVERY,
) -> tuple[list[CycleEntry], bool]:
    """Take the heads of a cycle out of their queues.

    Returns the cycle's entries, first those `given`, and True if heads were marked inadmissible without an entry.

    Unless `report` is EVERY, heads in unchanged trees and heads that would repeat their refusal are left out.
    """
    entries = [*given, *_second_passes(state)]
    may_skip = report is not ReportRefusals.EVERY and can_skip_heads(context)
    together = may_skip and report is ReportRefusals.CHANGED_REASON
    if not together:
        state.end_batches()
    unchanged = unchanged_cohorts(state)
    served = {
        entry.rules.name for tried in (*unchanged.values(), entries) for entry in tried if not entry.second_pass_round
    }
    any_inadmissible = False
    for name in _active_queues(state):
        rules = state.setup.queues[name]
        if name in served or not rules.active:
            continue
        if name in state.inadmissible_skip.batches and continue_batch(state, context, rules):
            any_inadmissible = True
            continue
        first = next_head(state, rules)
        if first is None:
            continue
        if (together and start_batch(state, context, rules, first)) or (
            may_skip and _mark_head_inadmissible(state, context, rules, first, amounts=not together)
        ):
            any_inadmissible = True
        else:
            entries.append(_take_head(state, rules, first))
    root = state.setup.tree.root
    changed = {root(entry.rules.node) for entry in entries}
    for tree, cohort_entries in unchanged.items():
        if tree in changed:
            # A new entry may change the outcome of the others.
            del state.inadmissible_skip.unchanged_cohorts[tree]
            entries += [_take_head(state, entry.rules, entry.request) for entry in cohort_entries]
        elif report is ReportRefusals.EVERY:
            entries += cohort_entries
    return entries, any_inadmissible


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


def _active_queues(state: KueueState) -> Iterable[str]:
    names = state.workload_index.active_queues()
    return sorted({*names, *state.inadmissible_skip.batches}) if state.inadmissible_skip.batches else names


def _second_passes(state: KueueState) -> Iterator[CycleEntry]:
    for holding, round in take_due_second_passes(state):
        request = request_of(state, holding.workload, holding.id, holding.cluster_queue).as_admitted(state.config)
        state.mark_holdings_changed(holding.cluster_queue)
        yield CycleEntry(request, state.setup.queues[holding.cluster_queue], round=round)


def _take_head(state: KueueState, rules: ClusterQueueConfig, first: WorkloadRequest) -> CycleEntry:
    queue = state.workload_index.queue(rules.name)
    queue.take_head(first)
    return CycleEntry(first, rules, preemptor=queue.is_sticky(first.id))


def _mark_head_inadmissible(
    state: KueueState, context: Context, rules: ClusterQueueConfig, first: WorkloadRequest, *, amounts: bool
) -> bool:
    """Mark the head and its class inadmissible, if trying it would have no other effect."""
    queue = state.workload_index.read_queue(rules.name)
    if queue is None or not queue.uses_scheduling_hash or queue.is_sticky(first.id) or first.id in state.progress:
        return False
    cached = cached_inadmissible(state, context, rules, first, exact_amounts=amounts)
    if cached is None:
        return False
    state.workload_index.queue(rules.name).mark_classes_inadmissible([(first, cached.requeue_reason[1])])
    return True


def run_cycle(
    state: KueueState,
    *,
    with_traces: bool = False,
    report: ReportRefusals = ReportRefusals.EVERY,
    stays_open: bool = False,
) -> list[AdmissionDecision]:
    """Run one scheduling cycle over the heads of all active ClusterQueues; admissions and preemptions come first, in
    processing order.

    `with_traces` adds to each preemption how its victim was chosen. `report` selects the refusals that are returned.
    With `stays_open` a cycle in which admission is blocked stays open: the next call continues it with the usage that
    it began with.
    """
    if state.open_cycle is None:
        context = state.context()
        if with_traces:
            context.search_traces = {}
        heads, any_inadmissible = take_heads(state, context, report=report)
        state.open_cycle = _run_open_cycle(
            state, context, heads, any_inadmissible=any_inadmissible, stays_open=stays_open
        )
    decided, ended = next(state.open_cycle)
    if ended:
        state.open_cycle = None
    return decided


def examine_cycle(state: KueueState, first: str = "") -> list[CycleEntry]:
    """Run a cycle and return its entries; the workload `first` is tried as if it were its queue's head.

    Changes the state: pass a fork.
    """
    request = state.workload_index.get(first)
    entries = []
    if isinstance(request, WorkloadRequest) and state.setup.queues[request.cluster_queue].active:
        queue = state.workload_index.queue(request.cluster_queue)
        entries.append(
            CycleEntry(request, state.setup.queues[request.cluster_queue], preemptor=queue.is_sticky(request.id))
        )
        queue.remove(request.id)
    context = state.context()
    entries, _ = take_heads(state, context, entries)
    next(_run_open_cycle(state, context, entries))
    return entries


def heads_in_processing_order(state: KueueState) -> list[CycleEntry]:
    """Return the head of every active ClusterQueue, inadmissible or not, in the order in which one cycle would process
    them.
    """
    context, entries = state.context(), []
    for name in sorted(state.setup.queues):
        rules, queue = state.setup.queues[name], state.workload_index.read_queue(name)
        first = (
            next(iter(queue.sorted_pending(local_queue_usage_function(state, rules))), None)
            if queue is not None
            else None
        )
        if rules.active and first is not None:
            entry = CycleEntry(first[0], rules)
            if is_eligible(context, entry):
                entry.resume = resume_position(state, entry.request)
                nominate(context, entry)
                entries.append(entry)
    return list(process_entries(context, entries))


def _run_open_cycle(
    state: KueueState,
    context: Context,
    heads: list[CycleEntry],
    *,
    any_inadmissible: bool = False,
    stays_open: bool = False,
) -> Iterator[tuple[list[AdmissionDecision], bool]]:
    """Decide about the heads; `any_inadmissible` says that other heads became inadmissible without evaluation.

    Yields the decisions at the end (True), and each time that the cycle waits for all pods to be ready (False): then
    the entries that are not yet requeued are in flight.
    """
    state.cycles += 1
    nominated: list[CycleEntry] = []
    refused: list[CycleEntry] = []
    for entry in heads:
        if entry.refusal is not None:
            nominated.append(entry)
        elif is_eligible(context, entry):
            entry.resume = resume_position(state, entry.request)
            nominated.append(entry)
        else:
            refused.append(entry)
    tried = [entry for entry in nominated if entry.refusal is None]
    resumed = {context.setup.tree.root(entry.rules.node) for entry in tried if entry.resume}
    for entry in tried:
        nominate(context, entry)
    decisions: list[AdmissionDecision] = []
    waiting: list[CycleEntry] = []
    processed: set[CycleEntry] = set()
    assumed: set[int] = set()
    waited = False
    for entry in process_entries(context, nominated):
        processed.add(entry)
        if entry.refusal is None:
            decisions.extend(_issue_evictions(state, entry, context.search_traces))
        if entry.status is EntryStatus.ASSUMED:
            context.keep_holdings(entry.rules.name)
            # A workload removed while the cycle waited is not admitted, but the next entry still waits for it to be
            # ready: Kueue learns only afterwards that the admission could not be written.
            if not waited or entry.second_pass_round or state.is_still_pending(entry.request):
                decisions.append(_assume_admission(state, entry))
            if not entry.second_pass_round:
                assumed.add(entry.request.id)
        elif entry.status is EntryStatus.EVICTED:
            decisions.append(_evict_without_replacement(entry))
        elif entry.status is EntryStatus.BLOCKED and stays_open:
            context.keep_holdings(*context.setup.queues)
            state.in_flight = {one.request.id for one in heads} - assumed
            waited = True
            report = [refusal_of(state, entry)] if state.is_still_pending(entry.request) else []
            yield [*decisions, *report], False
            decisions = []
        else:
            waiting.append(entry)
            if entry.status is EntryStatus.BLOCKED:
                break
    left = [entry for entry in nominated if entry not in processed]
    if any(entry.status is EntryStatus.BLOCKED for entry in waiting):
        _requeue_untried(state, left)
    else:
        # Under fair sharing a queue takes part with one entry only: its second pass waits for another cycle.
        waiting += left
    waiting += refused
    if waited:
        yield [*decisions, *_continue_blocked_cycle(state, waiting)], True
        return
    moved = [requeue_entry(state, entry) for entry in waiting if entry.refusal is None]
    state.is_idle = 0 if decisions or any_inadmissible or any(moved) else state.is_idle + 1
    for entry in waiting:
        if entry.refusal is None:
            entry.refusal = refusal_of(state, entry)
        if is_observed(state, entry.request) or not is_message_only(entry.refusal):
            decisions.append(entry.refusal)
    mixed = {state.setup.tree.root(entry.rules.node) for entry in refused}
    note_unchanged_cohorts(state, context, tried, other_roots=resumed | mixed)
    yield decisions, True


def _continue_blocked_cycle(state: KueueState, waiting: list[CycleEntry]) -> list[AdmissionDecision]:
    """Requeue the entries that were not admitted in a cycle that waited, if they are still pending."""
    in_flight, state.in_flight = state.in_flight, set()
    state.is_idle = 0
    report: list[AdmissionDecision] = []
    for entry in waiting:
        if entry.request.id in in_flight and state.is_still_pending(entry.request):
            requeue_entry(state, entry)
            report.append(refusal_of(state, entry))
    state.woken_in_flight.clear()
    return report


def _requeue_untried(state: KueueState, left: list[CycleEntry]) -> None:
    """Requeue the untried entries without a refusal, because admission is blocked."""
    for entry in left:
        entry.requeue_untried()
        requeue_entry(state, entry)


def _evict_without_replacement(entry: CycleEntry) -> Evict:
    """Evict a workload with a failed node for which no replacement was found and that must not wait for one."""
    workload = entry.request.workload
    message = messages.no_replacement_message(workload.unhealthy_nodes)
    return Evict(workload.key, conditions.NODE_FAILURES, message, entry.message)


def _issue_evictions(state: KueueState, entry: CycleEntry, stories: SearchTraces | None) -> Iterator[Preempt | Evict]:
    """Yield the evictions that an entry needs; skips victims that are gone, terminating or already evicted in this
    state.
    """
    sibling = entry.migrating_sibling
    if sibling is not None and not sibling.evicted and sibling.id not in state.evictions_in_flight:
        state.evictions_in_flight.add(sibling.id)
        yield Evict(sibling.key, conditions.FLAVOR_MIGRATION, messages.migration_message(entry.request.workload))
    if entry.requeue is not RequeueReason.PENDING_PREEMPTION:
        return
    preemptor = entry.request.workload
    for target in entry.targets:
        victim = target.holding
        gone = not isinstance(state.workload_index.records[victim.id], Holding)
        if target.rule is not None and not gone and not victim.evicted and victim.id not in state.evictions_in_flight:
            state.evictions_in_flight.add(victim.id)
            path = state.setup.queues[victim.cluster_queue].path_text
            message = messages.preempted_message(preemptor, target.rule, entry.rules.path_text, path)
            choice = trace_of_victim(stories, entry.request, entry.targets, victim) if stories is not None else None
            yield Preempt(victim.key, preemptor.key, target.rule, message, choice)


def _assume_admission(state: KueueState, entry: CycleEntry) -> Admit:
    admission = entry.assignment.admission(entry.rules.name, state.setup.topologies)
    assume_admission(state, entry.request, admission)
    tried = attempts_text((result.pod_set.name, result.searches) for result in entry.assignment.pod_sets)
    replaces = entry.replaced_slice.key if entry.replaced_slice is not None else ""
    return Admit(entry.request.workload.key, admission, entry.assignment.is_borrowing, tried, replaces)
