"""A head during one cycle: its nomination and its outcome."""

from collections.abc import Mapping, Sequence
from enum import Enum, auto

from gpuconsole.model.decisions import KeepWaiting, Refuse
from gpuconsole.scheduling.kueue import messages
from gpuconsole.scheduling.kueue.assignment import Assignment, Resume
from gpuconsole.scheduling.kueue.cluster_queue import RequeueReason
from gpuconsole.scheduling.kueue.compiled_config import ClusterQueueConfig
from gpuconsole.scheduling.kueue.preemption import PreemptionTarget
from gpuconsole.scheduling.kueue.reasons import GranularReason
from gpuconsole.scheduling.kueue.requests import Holding, TopologyUsage, WorkloadRequest
from gpuconsole.scheduling.kueue.topology.domains import TopologyDomainTree


class EntryStatus(Enum):
    """How far the entry got. All but ASSUMED and EVICTED go back to their queue."""

    NOT_NOMINATED = auto()
    SKIPPED = auto()
    """It would have fitted, had an earlier entry of this cycle not come first."""
    GATED = auto()
    """It has victims, but one of its preemption gates is closed."""
    BLOCKED = auto()
    """It would be admitted, but not before all those that are admitted are ready."""
    ASSUMED = auto()
    """Quota is reserved for it."""
    EVICTED = auto()
    """It loses the quota that it has, as no other place was found for its pods."""


class CycleEntry:
    """Mutated by the steps of the cycle."""

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
        """Its preemptions are under way since an earlier cycle."""
        self.round = round
        """Of its second pass, from 1; 0 for a workload that has no quota yet."""
        self.assignment = Assignment()
        self.targets: Sequence[PreemptionTarget] = ()
        self.status = EntryStatus.NOT_NOMINATED
        self.message = ""
        self.cause = GranularReason.NONE
        """The message in one word."""
        self.makes_way: Holding | None = None
        """Its admitted variant on a less favorable flavor, which is evicted so that this one can take over."""
        self.requeue = RequeueReason.GENERIC
        self.resume: Resume | None = None
        """Where the search for flavors goes on: in this cycle and, once that was found out, in the next one."""
        self.refusal: Refuse | KeepWaiting | None = None
        """What the workload was told at last; known before the cycle if its tree is at rest."""
        self.turn = 0
        """When it was decided on, counted from 1 in a cycle; 0 before that."""

    @property
    def uses(self) -> list[tuple[int, int]]:
        """What it would use of the quota beyond what it has."""
        return [] if self.round else self.assignment.uses

    def places(self, topologies: Mapping[str, TopologyDomainTree]) -> tuple[TopologyUsage, ...]:
        """What it would use of the topologies beyond what it has."""
        return self.assignment.places(topologies, self.request.workload.admission)

    @property
    def replaced(self) -> Holding | None:
        """The slice of its job that it takes over from."""
        return next((target.holding for target in self.targets if target.rule is None), None)

    @property
    def victims(self) -> int:
        """How many workloads it preempts."""
        return sum(target.rule is not None for target in self.targets)

    def record(self, assignment: Assignment, targets: Sequence[PreemptionTarget]) -> None:
        self.assignment = assignment
        self.targets = targets
        self.message = assignment.message
        self.resume = assignment.resume

    def refuse(self, message: str, cause: GranularReason) -> None:
        self.message, self.cause = message, cause

    def skip(
        self, message: str, cause: GranularReason = GranularReason.WAITING_FOR_QUOTA, *, keep_progress: bool = True
    ) -> None:
        """Others came first. With `keep_progress` the next cycle goes on where the search for flavors stopped."""
        self.status = EntryStatus.SKIPPED
        self.refuse(message, cause)
        if not keep_progress:
            self.resume = None

    def gate(self) -> None:
        """It may not preempt yet; when its gates open, all flavors are tried again."""
        self.status = EntryStatus.GATED
        self.requeue = RequeueReason.PREEMPTION_GATED
        self.resume = None
        self.refuse(messages.PREEMPTION_GATED, GranularReason.ADMISSION_GATED)

    def block(self) -> None:
        """It waits for others to be ready, and is tried anew as soon as they are."""
        self.status = EntryStatus.BLOCKED
        self.requeue_untried()
        self.refuse(messages.WAITING_FOR_PODS_READY, GranularReason.WAITING_FOR_PODS_READY)

    def requeue_untried(self) -> None:
        """The cycle ended before its turn came; the next one looks at it as if for the first time."""
        self.requeue = RequeueReason.FAILED_AFTER_NOMINATION
        self.resume = None

    def await_departures(self, message: str, requeue: RequeueReason) -> None:
        """Others have to go first; the next cycle tries all flavors again."""
        self.requeue = requeue
        self.resume = None
        self.refuse(message, GranularReason.WAITING_FOR_PREEMPTED_WORKLOADS)

    def await_victims(self, count: int) -> None:
        """Its victims were told; where there are none after all, all flavors are tried again."""
        if count:
            self.await_departures(messages.pending_preemption(self.message, count), RequeueReason.PENDING_PREEMPTION)
        else:
            self.await_departures(self.message, self.requeue)
