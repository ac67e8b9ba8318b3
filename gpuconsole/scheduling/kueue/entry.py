"""A head during one cycle: its nomination and its outcome.

Requeues heads that were not admitted: their refusal, the time of the next attempt, and the state of their search.

Kueue 0.19 scheduler.requeueAndUpdate and lastAssignmentOutdated.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto

from gpuconsole.model.events import KeepWaiting, Refuse
from gpuconsole.scheduling.kueue import messages
from gpuconsole.scheduling.kueue.assignment import Assignment, FlavorAssignmentMode, Resume
from gpuconsole.scheduling.kueue.cluster_queue import RequeueReason
from gpuconsole.scheduling.kueue.cluster_queue_status import ClusterQueueConfig
from gpuconsole.scheduling.kueue.conditions import QUOTA_RESERVED
from gpuconsole.scheduling.kueue.messages import PENDING, WAITING, GranularReason
from gpuconsole.scheduling.kueue.pod_resources import Holding, TopologyUsage, WorkloadRequest
from gpuconsole.scheduling.kueue.preemption import PreemptionTarget
from gpuconsole.scheduling.kueue.state import FlavorScanProgress, KueueState
from gpuconsole.scheduling.kueue.topology.domains import TopologyDomainTree
from gpuconsole.scheduling.kueue.workloads import backoff_ended, note


class EntryStatus(Enum):
    """Progress of an entry. All but ASSUMED and EVICTED return to their queue."""

    NOT_NOMINATED = auto()
    SKIPPED = auto()
    """An earlier entry of the cycle took its capacity or its victims, or a better variant is admitted."""
    GATED = auto()
    """It has victims, but one of its preemption gates is closed."""
    BLOCKED = auto()
    """It fits, but admission is blocked until all admitted workloads are ready."""
    ASSUMED = auto()
    """Quota is reserved for it."""
    EVICTED = auto()
    """It loses its quota, because no replacement for a failed node was found."""


class CycleEntry:
    """A head with its assignment, victims and status. Mutated by the steps of the cycle."""

    __slots__ = (
        *("assignment", "cause", "makes_way", "message", "preemptor", "request", "requeue", "resume", "rules"),
        *("refusal", "round", "status", "targets", "turn"),
    )

    def __init__(
        self, request: WorkloadRequest, rules: ClusterQueueConfig, *, preemptor: bool = False, round: int = 0
    ) -> None:
        self.request = request
        self.rules = rules
        self.preemptor = preemptor
        """It preempted in an earlier cycle, and its victims are terminating."""
        self.round = round
        """Number of the attempt of its second pass, from 1; 0 for a workload without quota."""
        self.assignment = Assignment()
        self.targets: Sequence[PreemptionTarget] = ()
        self.status = EntryStatus.NOT_NOMINATED
        self.message = ""
        self.cause = GranularReason.NONE
        """Granular reason of the refusal."""
        self.makes_way: Holding | None = None
        """Its admitted variant on a less favorable flavor, which is evicted so that this one can take over."""
        self.requeue = RequeueReason.GENERIC
        self.resume: Resume | None = None
        """Position from which the search for flavors continues in this cycle; after nomination, in the next one."""
        self.refusal: Refuse | KeepWaiting | None = None
        """The refusal; known before the cycle if nothing in its cohort tree has changed."""
        self.turn = 0
        """Position in the processing order, from 1; 0 until it is processed."""

    @property
    def uses(self) -> list[tuple[int, int]]:
        """The quota that it would use beyond what it holds."""
        return [] if self.round else self.assignment.uses

    def places(self, topologies: Mapping[str, TopologyDomainTree]) -> tuple[TopologyUsage, ...]:
        """Return the topology usage that it would add to what it holds."""
        return self.assignment.places(topologies, self.request.workload.admission)

    @property
    def replaced(self) -> Holding | None:
        """The slice of its job that it replaces; None if it replaces none."""
        return next((target.holding for target in self.targets if target.rule is None), None)

    @property
    def victims(self) -> int:
        """Number of workloads that it preempts."""
        return sum(target.rule is not None for target in self.targets)

    def record(self, assignment: Assignment, targets: Sequence[PreemptionTarget]) -> None:
        """Store a nomination, with its message and the position of its search for flavors."""
        self.assignment = assignment
        self.targets = targets
        self.message = assignment.message
        self.resume = assignment.resume

    def refuse(self, message: str, cause: GranularReason) -> None:
        """Set the message and the granular reason."""
        self.message, self.cause = message, cause

    def skip(
        self, message: str, cause: GranularReason = GranularReason.WAITING_FOR_QUOTA, *, keep_progress: bool = True
    ) -> None:
        """Skip the entry because of an earlier entry of the cycle or an admitted variant.

        With `keep_progress` the next cycle continues the search for flavors where it stopped.
        """
        self.status = EntryStatus.SKIPPED
        self.refuse(message, cause)
        if not keep_progress:
            self.resume = None

    def gate(self) -> None:
        """Requeue the entry because its preemption gates are closed; when they open, all flavors are tried again."""
        self.status = EntryStatus.GATED
        self.requeue = RequeueReason.PREEMPTION_GATED
        self.resume = None
        self.refuse(messages.PREEMPTION_GATED, GranularReason.ADMISSION_GATED)

    def block(self) -> None:
        """Block the entry until all admitted workloads are ready; it is retried as soon as they are."""
        self.status = EntryStatus.BLOCKED
        self.requeue_untried()
        self.refuse(messages.WAITING_FOR_PODS_READY, GranularReason.WAITING_FOR_PODS_READY)

    def requeue_untried(self) -> None:
        """Requeue an entry that the cycle did not reach; the next cycle starts from its first flavor."""
        self.requeue = RequeueReason.FAILED_AFTER_NOMINATION
        self.resume = None

    def await_departures(self, message: str, requeue: RequeueReason) -> None:
        """Requeue the entry until other workloads terminate; the next cycle tries all flavors again."""
        self.requeue = requeue
        self.resume = None
        self.refuse(message, GranularReason.WAITING_FOR_PREEMPTED_WORKLOADS)

    def await_victims(self, count: int) -> None:
        """Requeue the entry until its `count` victims terminate; without victims it keeps its message and requeue
        reason.
        """
        if count:
            self.await_departures(messages.pending_preemption(self.message, count), RequeueReason.PENDING_PREEMPTION)
        else:
            self.await_departures(self.message, self.requeue)


def resume(state: KueueState, request: WorkloadRequest) -> Resume | None:
    """Return the position from which the search for flavors continues; None to start from the first flavor."""
    last = state.progress.get(request.id)
    if last is None:
        return None
    generation = state.generations.get(request.cluster_queue, 0)
    preserve = state.gates.preserve_scan_progress
    outdated = last.outdated(generation, state.cycles, _shape(state, request), preserve=preserve)
    return None if outdated else last.resume


def requeue(state: KueueState, entry: CycleEntry) -> bool:
    """Requeue an entry; True if it is inadmissible now.

    An entry in its second pass keeps its quota, and its next attempt is scheduled.
    """
    request = entry.request
    if entry.round:
        note(state, request.id, request.workload, entry.round)
        return False
    if entry.status is not EntryStatus.NOT_NOMINATED and entry.requeue is RequeueReason.GENERIC:
        entry.requeue = RequeueReason.FAILED_AFTER_NOMINATION
    if entry.resume is None:
        state.progress.pop(request.id, None)
    else:
        generation = state.generations.get(request.cluster_queue, 0)
        state.progress[request.id] = FlavorScanProgress(entry.resume, generation, state.cycles, _shape(state, request))
    request = _current_request(state, request)
    queue = state.workload_index.queue(request.cluster_queue)
    woken = request.cluster_queue in state.woken_in_flight
    ready, more = backoff_ended(request.workload, state.now), entry.resume is not None or woken
    queue.requeue(request, entry.requeue, ready=ready, more_flavors=more, granular=entry.cause.value)
    return queue.is_inadmissible(request.id)


def requeue_observed(state: KueueState, refused: Iterable[str], tried_again: Iterable[str]) -> None:
    """Requeue heads as another scheduler did: refused ones become inadmissible with their equivalence class.

    Those to be tried again stay admissible whatever their class is. In a StrictFIFO queue none is inadmissible.
    """
    again = list(_waiting(state, tried_again))
    for request in _waiting(state, refused):
        queue = state.workload_index.queue(request.cluster_queue)
        if _has_flavors_left(state, request):
            again.append(request)
        elif not queue.strict:
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
    for request in _waiting(state, preemptors):
        state.workload_index.queue(request.cluster_queue).set_sticky(request)


def _waiting(state: KueueState, workloads: Iterable[str]) -> Iterator[WorkloadRequest]:
    records = (state.workload_index.get(key) for key in workloads)
    return (record for record in records if isinstance(record, WorkloadRequest))


def _current_request(state: KueueState, request: WorkloadRequest) -> WorkloadRequest:
    """Return the current request of a head, which may have changed while the cycle waited."""
    record = state.workload_index.records[request.id]
    return record if isinstance(record, WorkloadRequest) else request


def rejection(state: KueueState, entry: CycleEntry) -> Refuse | KeepWaiting:
    """Return the refusal of an entry; one that already has quota and only lacks a topology assignment keeps it."""
    workload = entry.request.workload
    if entry.round:
        return KeepWaiting(workload.key, entry.message)
    return Refuse(
        workload.key,
        entry.message,
        entry.cause.value if state.gates.granular else WAITING if entry.status is EntryStatus.BLOCKED else PENDING,
        entry.requeue.value,
        skipped_preemption=entry.status is EntryStatus.SKIPPED
        and entry.assignment.mode == FlavorAssignmentMode.PREEMPT,
        requests=entry.request.needs,
        gated=entry.status is EntryStatus.GATED,
    )


def is_message_only(answer: Refuse | KeepWaiting) -> bool:
    """True if the refusal changes only the workload's pending reason."""
    return isinstance(answer, Refuse) and not (answer.requeued or answer.gated)


def _shape(state: KueueState, request: WorkloadRequest) -> bytes:
    """Return the scheduling hash that search progress depends on; empty while hashing is off."""
    return request.scheduling_hash if state.gates.hashing else b""
