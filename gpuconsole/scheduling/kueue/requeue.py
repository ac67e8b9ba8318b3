"""The last step of a cycle: heads that were not admitted return to their queues, each with a refusal.

Kueue 0.19 scheduler.go: requeueAndUpdate, lastAssignmentOutdated. An entry keeps the position from which its search for
flavors continues in the next cycle. `requeue_observed` and `set_preemptors` do the same for heads that another
scheduler tried.
"""

from collections.abc import Iterable, Iterator, Sequence

from gpuconsole.model.events import KeepWaiting, Refuse
from gpuconsole.scheduling.kueue import messages
from gpuconsole.scheduling.kueue.assignment import FlavorAssignmentMode, ResumePosition
from gpuconsole.scheduling.kueue.cluster_queue import RequeueReason
from gpuconsole.scheduling.kueue.conditions import QUOTA_RESERVED
from gpuconsole.scheduling.kueue.entry import CycleEntry, EntryStatus
from gpuconsole.scheduling.kueue.messages import PENDING, WAITING
from gpuconsole.scheduling.kueue.pod_resources import WorkloadRequest
from gpuconsole.scheduling.kueue.state import FlavorScanProgress, KueueState
from gpuconsole.scheduling.kueue.workloads import backoff_ended, schedule_second_pass


def requeue_and_update(
    state: KueueState, entries: Sequence[CycleEntry], *, progressed: bool
) -> list[Refuse | KeepWaiting]:
    """Requeue the entries that a cycle did not admit; returns the refusals to report (requeueAndUpdate).

    `progressed` is True if the cycle decided anything else, so that another one may decide otherwise. Refusals that
    change only the pending reason of a workload that is not observed are left out.
    """
    moved = [requeue_entry(state, entry) for entry in entries if entry.refusal is None]
    state.is_idle = 0 if progressed or any(moved) else state.is_idle + 1
    report = []
    for entry in entries:
        if entry.refusal is None:
            entry.refusal = refusal_of(state, entry)
        if state.is_observed(entry.request) or not is_message_only(entry.refusal):
            report.append(entry.refusal)
    return report


def requeue_in_flight(state: KueueState, entries: Iterable[CycleEntry]) -> list[Refuse | KeepWaiting]:
    """Requeue the entries that a cycle did not admit although it waited, if they are still pending."""
    in_flight, state.in_flight = state.in_flight, set()
    state.is_idle = 0
    report = []
    for entry in entries:
        if entry.request.id in in_flight and state.is_still_pending(entry.request):
            requeue_entry(state, entry)
            report.append(refusal_of(state, entry))
    state.woken_in_flight.clear()
    return report


def requeue_untried(state: KueueState, entries: Iterable[CycleEntry]) -> None:
    """Requeue entries that the cycle did not reach, without a refusal, because admission is blocked."""
    for entry in entries:
        entry.requeue_untried()
        requeue_entry(state, entry)


def resume_position(state: KueueState, request: WorkloadRequest) -> ResumePosition | None:
    """Return the position from which the search for flavors continues; None to start from the first flavor."""
    last = state.progress.get(request.id)
    if last is None:
        return None
    generation = state.generations.get(request.cluster_queue, 0)
    preserve = state.gates.preserve_scan_progress
    outdated = last.is_outdated(generation, state.cycles, _progress_hash(state, request), preserve=preserve)
    return None if outdated else last.resume


def requeue_entry(state: KueueState, entry: CycleEntry) -> bool:
    """Requeue an entry; True if it is inadmissible now.

    An entry in its second pass keeps its quota, and its next attempt is scheduled.
    """
    request = entry.request
    if entry.second_pass_round:
        schedule_second_pass(state, request.id, request.workload, entry.second_pass_round)
        return False
    if entry.status is not EntryStatus.NOT_NOMINATED and entry.requeue is RequeueReason.GENERIC:
        entry.requeue = RequeueReason.FAILED_AFTER_NOMINATION
    if entry.resume is None:
        state.progress.pop(request.id, None)
    else:
        generation = state.generations.get(request.cluster_queue, 0)
        state.progress[request.id] = FlavorScanProgress(
            entry.resume, generation, state.cycles, _progress_hash(state, request)
        )
    request = _current_request(state, request)
    queue = state.workload_index.queue(request.cluster_queue)
    woken = request.cluster_queue in state.woken_in_flight
    ready, more = backoff_ended(request.workload, state.now), entry.resume is not None or woken
    queue.requeue(request, entry.requeue, ready=ready, more_flavors=more, granular=entry.granular_reason.value)
    return queue.is_inadmissible(request.id)


def requeue_observed(state: KueueState, refused: Iterable[str], tried_again: Iterable[str]) -> None:
    """Requeue heads as another scheduler did: refused ones become inadmissible with their equivalence class.

    Those to be tried again stay admissible whatever their class is. In a StrictFIFO queue none is inadmissible.
    """
    again = list(_queued_requests(state, tried_again))
    for request in _queued_requests(state, refused):
        queue = state.workload_index.queue(request.cluster_queue)
        if _has_flavors_left(state, request):
            again.append(request)
        elif not queue.is_strict:
            queue.mark_inadmissible(request)
            if queue.uses_scheduling_hash:
                condition = request.workload.condition(QUOTA_RESERVED)
                queue.mark_classes_inadmissible(
                    [(request, condition.reason if condition is not None and state.gates.granular else "")]
                )
    for request in again:
        queue = state.workload_index.queue(request.cluster_queue)
        if queue.is_inadmissible(request.id) and backoff_ended(request.workload, state.now):
            queue.push_from_local_queue(request)


def _has_flavors_left(state: KueueState, request: WorkloadRequest) -> bool:
    """True if a refusal names only some flavors of the ClusterQueue and the search may start again repeatedly.

    The next cycles try the other flavors. With one pod set that takes moments; with several, one may start again
    whenever another reaches its last flavor, and the workload stays the head meanwhile.
    """
    condition = request.workload.condition(QUOTA_RESERVED)
    named = (
        set(messages.flavors_in(condition.message)) if condition is not None and len(request.pod_sets) > 1 else set()
    )
    rules = state.setup.queues[request.cluster_queue]
    return bool(named) and any(flavor not in named for flavor, _ in rules.queue.quotas())


def set_preemptors(state: KueueState, preemptors: Iterable[str]) -> None:
    """Keep workloads whose victims are terminating at the head; the last one of each ClusterQueue counts."""
    for request in _queued_requests(state, preemptors):
        state.workload_index.queue(request.cluster_queue).set_sticky(request)


def _queued_requests(state: KueueState, workloads: Iterable[str]) -> Iterator[WorkloadRequest]:
    records = (state.workload_index.get(key) for key in workloads)
    return (record for record in records if isinstance(record, WorkloadRequest))


def _current_request(state: KueueState, request: WorkloadRequest) -> WorkloadRequest:
    """Return the current request of a head, which may have changed while the cycle waited."""
    record = state.workload_index.records[request.id]
    return record if isinstance(record, WorkloadRequest) else request


def refusal_of(state: KueueState, entry: CycleEntry) -> Refuse | KeepWaiting:
    """Return the refusal of an entry; one that already has quota and only lacks a topology assignment keeps it."""
    workload = entry.request.workload
    if entry.second_pass_round:
        return KeepWaiting(workload.key, entry.message)
    return Refuse(
        workload.key,
        entry.message,
        entry.granular_reason.value
        if state.gates.granular
        else WAITING
        if entry.status is EntryStatus.BLOCKED
        else PENDING,
        entry.requeue.value,
        skipped_preemption=entry.status is EntryStatus.SKIPPED
        and entry.assignment.mode == FlavorAssignmentMode.PREEMPT,
        requests=entry.request.resource_requests,
        gated=entry.status is EntryStatus.GATED,
    )


def is_message_only(answer: Refuse | KeepWaiting) -> bool:
    """True if the refusal changes only the workload's pending reason."""
    return isinstance(answer, Refuse) and not (answer.requeued or answer.gated)


def _progress_hash(state: KueueState, request: WorkloadRequest) -> bytes:
    """Return the scheduling hash that search progress depends on; empty while hashing is off."""
    return request.scheduling_hash if state.gates.hashing else b""
