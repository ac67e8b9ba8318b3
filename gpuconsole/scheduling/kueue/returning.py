"""Heads that were not admitted: what they are told, when they are tried again, and where their search goes on.

Kueue 0.19 scheduler.requeueAndUpdate and lastAssignmentOutdated.
"""

from collections.abc import Iterable, Iterator

from gpuconsole.model.decisions import KeepWaiting, Refuse
from gpuconsole.scheduling.kueue import messages
from gpuconsole.scheduling.kueue.assignment import Resume
from gpuconsole.scheduling.kueue.conditions import QUOTA_RESERVED
from gpuconsole.scheduling.kueue.entry import Entry, Status
from gpuconsole.scheduling.kueue.modes import Mode
from gpuconsole.scheduling.kueue.pending import Requeue
from gpuconsole.scheduling.kueue.reasons import PENDING, WAITING
from gpuconsole.scheduling.kueue.requests import Request
from gpuconsole.scheduling.kueue.second_pass import note
from gpuconsole.scheduling.kueue.state import Progress, State
from gpuconsole.scheduling.kueue.workloads import backoff_ended


def resume(state: State, request: Request) -> Resume | None:
    """Where the search for flavors goes on, or None where it starts anew."""
    last = state.progress.get(request.id)
    if last is None:
        return None
    generation = state.generations.get(request.cluster_queue, 0)
    preserve = state.gates.preserve_scan_progress
    outdated = last.outdated(generation, state.cycles, _shape(state, request), preserve=preserve)
    return None if outdated else last.resume


def requeue(state: State, entry: Entry) -> bool:
    """Put an entry back; True if it is parked now."""
    request = entry.request
    if entry.round:
        note(state, request.id, request.workload, entry.round)
        return False
    if entry.status is not Status.NOT_NOMINATED and entry.requeue is Requeue.GENERIC:
        entry.requeue = Requeue.FAILED_AFTER_NOMINATION
    if entry.resume is None:
        state.progress.pop(request.id, None)
    else:
        generation = state.generations.get(request.cluster_queue, 0)
        state.progress[request.id] = Progress(entry.resume, generation, state.cycles, _shape(state, request))
    request = _as_it_is(state, request)
    queue = state.roster.queue(request.cluster_queue)
    woken = request.cluster_queue in state.woken_in_flight
    ready, more = backoff_ended(request.workload, state.now), entry.resume is not None or woken
    queue.requeue(request, entry.requeue, ready=ready, more_flavors=more, granular=entry.cause.value)
    return queue.is_parked(request.id)


def requeue_observed(state: State, refused: Iterable[str], tried_again: Iterable[str]) -> None:
    """Put heads back as another scheduler did: those that it refused are inadmissible, and with them their shapes.

    Those to be tried again are so whatever became of their shapes. In a StrictFIFO queue nobody is inadmissible.
    """
    again = list(_waiting(state, tried_again))
    for request in _waiting(state, refused):
        queue = state.roster.queue(request.cluster_queue)
        if _has_flavors_left(state, request):
            again.append(request)
        elif not queue.strict:
            queue.park(request)
            if queue.closes_lanes:
                told = request.workload.condition(QUOTA_RESERVED)
                queue.close([(request, told.reason if told is not None and state.gates.granular else "")])
    for request in again:
        queue = state.roster.queue(request.cluster_queue)
        if queue.is_parked(request.id) and backoff_ended(request.workload, state.now):
            queue.bring_back(request)


def _has_flavors_left(state: State, request: Request) -> bool:
    """True if a refusal names some flavors of the ClusterQueue and not all, and the search may go round and round.

    The next cycles go on with the others. With one pod set that is over within moments; with several, one may begin
    anew whenever another comes to its end, and the workload stays the head meanwhile.
    """
    told = request.workload.condition(QUOTA_RESERVED)
    named = set(messages.flavors_in(told.message)) if told is not None and len(request.pod_sets) > 1 else set()
    rules = state.setup.queues[request.cluster_queue]
    return bool(named) and any(flavor not in named for flavor, _ in rules.queue.quotas())


def prefer(state: State, preemptors: Iterable[str]) -> None:
    """Note whose victims are terminating; of several in a ClusterQueue the last one."""
    for request in _waiting(state, preemptors):
        state.roster.queue(request.cluster_queue).stick(request)


def _waiting(state: State, workloads: Iterable[str]) -> Iterator[Request]:
    records = (state.roster.find(key) for key in workloads)
    return (record for record in records if isinstance(record, Request))


def _as_it_is(state: State, request: Request) -> Request:
    """The workload of a head as it is by now: it may have changed while the cycle waited."""
    record = state.roster.records[request.id]
    return record if isinstance(record, Request) else request


def refusal(state: State, entry: Entry) -> Refuse | KeepWaiting:
    """What the workload is told; one that has quota already and only lacks a place keeps it."""
    workload = entry.request.workload
    if entry.round:
        return KeepWaiting(workload.key, entry.message)
    return Refuse(
        workload.key,
        entry.message,
        entry.cause.value if state.gates.granular else WAITING if entry.status is Status.BLOCKED else PENDING,
        entry.requeue.value,
        skipped_preemption=entry.status is Status.SKIPPED and entry.assignment.mode == Mode.PREEMPT,
        requests=entry.request.needs,
        gated=entry.status is Status.GATED,
    )


def only_told(answer: Refuse | KeepWaiting) -> bool:
    """True if it changes nothing but what the workload says of why it waits."""
    return isinstance(answer, Refuse) and not (answer.requeued or answer.gated)


def _shape(state: State, request: Request) -> bytes:
    """What would have to stay the same for progress to count; nothing while shapes are not looked at."""
    return request.shape if state.gates.hashing else b""
