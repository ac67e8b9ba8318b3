"""The event queue: a heap of (time, rank, serial, timer), so that simultaneous timers have one order.

Timers are frozen data: a fork of the kernel is a copy of a list.
"""

from enum import IntEnum, StrEnum
from heapq import heapify, heappop, heappush
from typing import Union

from msgspec import Struct, field

from gpuconsole.model.clock import Time
from gpuconsole.model.commands import Command


class PodsGone(Struct, frozen=True, tag="pods-gone"):
    """The grace period of these pods (by uid) is over."""

    pods: tuple[tuple[str, str], ...]
    """Key and uid, so that a later pod of the same name does not match."""


class CreateUnsuspendedPods(Struct, frozen=True, tag="make-pods"):
    """Kueue unsuspends the job of a workload admitted at `admitted`, and the job's controller creates its pods."""

    workload: str
    admitted: Time


class PodsStart(Struct, frozen=True, tag="pods-start"):
    """The containers of these pods have started, on the nodes that they were bound to."""

    pods: tuple[tuple[str, str], ...]
    """Key and uid, so that a later pod of the same name does not match."""


class WorkEnds(Struct, frozen=True, tag="work-ends"):
    """The work of a running group is done, unless it was interrupted meanwhile."""

    group: str = field(name="crew")
    start: int
    """The start of work that this end belongs to (see `RunningGroup.start`)."""


class PodEnds(Struct, frozen=True, tag="pod-ends"):
    """The work of one pod is done, unless it was lost meanwhile."""

    pod: str
    uid: str


class JobDeadline(Struct, frozen=True, tag="deadline"):
    """A job reaches its activeDeadlineSeconds, if it has been active since the timer was set."""

    job: str
    since: Time


class CronDue(Struct, frozen=True, tag="cron-due"):
    """A CronJob's schedule is due."""

    job: str
    uid: str


class RetryWorkloadCreation(Struct, frozen=True, tag="stand-for"):
    """Kueue tries again to create a job's Workload, which a ResourceQuota refused before."""

    job: str
    uid: str


class RecreatePods(Struct, frozen=True, tag="restart"):
    """The backoff after a failure is over: missing pods of the running group are recreated."""

    group: str = field(name="crew")


class ReleaseQuota(Struct, frozen=True, tag="release"):
    """No pod of a workload evicted at `evicted` is active any more: Kueue releases its quota."""

    workload: str
    evicted: Time


class ReconcileWorkload(Struct, frozen=True, tag="look"):
    """Kueue's workload controller reconciles a workload: a time limit ends, or its pods should be ready."""

    workload: str


class BackoffEnds(Struct, frozen=True, tag="backoff-ends"):
    """The requeue backoff of a workload is over, if it still waits for that moment."""

    workload: str


class AnswerRequest(Struct, frozen=True, tag="answer-request"):
    """The autoscaler answers a ProvisioningRequest (by key)."""

    request: str


class VolcanoActionDue(Struct, frozen=True, tag="act-later"):
    """The timeout of a Volcano Job's policy is over, if its action is still pending."""

    job: str
    pod: str
    """Name of the pod that the policy is about; empty if it is about the job."""


class SyncWorkerClusters(Struct, frozen=True, tag="confer"):
    """A MultiKueue manager reconciles the workloads that it dispatched."""


class RunCommands(Struct, frozen=True, tag="carry"):
    """Carry commands out, in this order."""

    commands: tuple[Command, ...]
    place: str = ""
    """Place of the commands in their file, for refusals."""


class JobArrival(Struct, frozen=True, tag="arrive"):
    """The job with this number of an arrival stream is submitted."""

    stream: int
    number: int


class RemoveFinished(Struct, frozen=True, tag="retire"):
    """Finished objects are removed at the end of their retention time."""

    objects: tuple[tuple[str, str, str], ...]
    """Table, key and uid, so that a later object of the same name does not match."""


class ExamineNode(Struct, frozen=True, tag="reexamine"):
    """A node has been not ready for long enough to count as failed."""

    node: str


class RequeueInadmissible(Struct, frozen=True, tag="wake"):
    """Inadmissible workloads whose requeues were batched are requeued."""


class RequeueBackoffEnds(Struct, frozen=True, tag="backoff"):
    """Some workload's back-off ends."""


class ReconcileVariants(Struct, frozen=True, tag="look-at-family"):
    """The preemption timeout of a workload's variant is over; the next variant may preempt, too."""

    workload: str


class SampleUsage(Struct, frozen=True, tag="sample"):
    """Admission fair sharing samples the usage of LocalQueues."""


class AutoscalerAction(StrEnum):
    """The kind of an autoscaler timer: an event of one node, or a scan."""

    JOIN = "join"
    """A machine has started, and its node joins the cluster."""
    RECLAIM = "reclaim"
    """The cloud sends the interruption notice of a spot node."""
    GONE = "gone"
    """The notice of a spot node, or the terminationGracePeriod of a draining node, is over."""
    EXPIRE = "expire"
    """A node reaches its expireAfter."""
    PROVISION = "provision"
    """Provisioning for unschedulable pods; for the Cluster Autoscaler, the whole scan."""
    DISRUPT = "disrupt"
    """Karpenter evaluates which nodes to disrupt."""


class AutoscalerTick(Struct, frozen=True, tag="capacity"):
    """An autoscaler's timer about one node, or about all of them, is due."""

    action: AutoscalerAction = field(name="act")
    node: str = ""
    uid: str = ""
    """So that a later node of the same name does not match."""


class RunPlacement(Struct, frozen=True, tag="place-again"):
    """The placement engine retries at this time."""


Timer = Union[
    RunPlacement,
    AutoscalerTick,
    PodsGone,
    CreateUnsuspendedPods,
    PodsStart,
    WorkEnds,
    PodEnds,
    JobDeadline,
    CronDue,
    RetryWorkloadCreation,
    RecreatePods,
    ReleaseQuota,
    ReconcileWorkload,
    BackoffEnds,
    VolcanoActionDue,
    AnswerRequest,
    SyncWorkerClusters,
    ReconcileVariants,
    RunCommands,
    JobArrival,
    RemoveFinished,
    ExamineNode,
    RequeueInadmissible,
    RequeueBackoffEnds,
    SampleUsage,
]


class Rank(IntEnum):
    """Order of timers at one moment: controllers and pods, then commands, arrivals, requeues and autoscaler scans."""

    FREE = 0
    CARRY = 1
    ARRIVE = 2
    WAKE = 3
    LOOK = 4
    """Autoscalers act on pods that the schedulers left pending."""


def rank(timer: Timer) -> Rank:
    """The rank of a timer, which orders it among the timers of the same moment."""
    match timer:
        case RunCommands():
            return Rank.CARRY
        case JobArrival():
            return Rank.ARRIVE
        case AutoscalerTick(AutoscalerAction.PROVISION | AutoscalerAction.DISRUPT):
            return Rank.LOOK
        case RequeueInadmissible() | RequeueBackoffEnds() | SampleUsage() | RunPlacement():
            return Rank.WAKE
        case _:
            return Rank.FREE


class SavedTimer(Struct, frozen=True, array_like=True):
    """A timer with its time and order, as it is saved."""

    time: Time
    rank: int
    serial: int
    timer: Timer


class Kernel:
    """The pending timers of a simulation, in the order in which they fire. Mutates."""

    __slots__ = ("_heap", "_serial")

    def __init__(self) -> None:
        self._heap: list[tuple[Time, int, int, Timer]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_time(self) -> Time | None:
        """When the next timer is due; None if there is none."""
        return self._heap[0][0] if self._heap else None

    def set_timer(self, time: Time, timer: Timer) -> None:
        """Set a timer; timers of one moment and rank fire in the order in which they were set."""
        self._serial += 1
        heappush(self._heap, (time, rank(timer), self._serial, timer))

    def is_due(self, now: Time, *ranks: Rank) -> bool:
        """True if the next timer is due at `now` and has one of these ranks."""
        return bool(self._heap) and self._heap[0][0] <= now and self._heap[0][1] in ranks

    def pop_due(self, now: Time) -> Timer | None:
        """Remove and return the next timer that is due at `now`; None if none is."""
        if self._heap and self._heap[0][0] <= now:
            return heappop(self._heap)[3]
        return None

    def pop_pod_ends(self, now: Time) -> PodEnds | None:
        """Remove and return the next timer if it is due at `now` and ends a pod's work."""
        timer = self._heap[0][3] if self._heap and self._heap[0][0] <= now else None
        if isinstance(timer, PodEnds):
            heappop(self._heap)
            return timer
        return None

    def fork(self) -> "Kernel":
        """Return an independent copy."""
        copied = Kernel()
        copied._heap = self._heap[:]
        copied._serial = self._serial
        return copied

    def dump(self) -> tuple[SavedTimer, ...]:
        """All timers, for saving."""
        return tuple(SavedTimer(*entry) for entry in sorted(self._heap, key=lambda entry: entry[:3]))

    @classmethod
    def load(cls, entries: tuple[SavedTimer, ...]) -> "Kernel":
        """Restore the timers that `entries` returned."""
        kernel = cls()
        kernel._heap = [(entry.time, entry.rank, entry.serial, entry.timer) for entry in entries]
        heapify(kernel._heap)
        kernel._serial = max((entry.serial for entry in entries), default=0)
        return kernel
