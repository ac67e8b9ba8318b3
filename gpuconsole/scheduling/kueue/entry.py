"""A queue head during one cycle: its nomination and its outcome (Kueue 0.19 scheduler.go: entry)."""

from collections.abc import Mapping, Sequence
from enum import Enum, auto

from msgspec import Struct

from gpuconsole.model.events import AdmissionDecision, KeepWaiting, Refuse
from gpuconsole.scheduling.kueue import messages
from gpuconsole.scheduling.kueue.assignment import Assignment, ResumePosition
from gpuconsole.scheduling.kueue.cluster_queue import RequeueReason
from gpuconsole.scheduling.kueue.cluster_queue_status import ClusterQueueConfig
from gpuconsole.scheduling.kueue.messages import GranularReason
from gpuconsole.scheduling.kueue.pod_resources import Holding, TopologyUsage, WorkloadRequest
from gpuconsole.scheduling.kueue.preemption import PreemptionTarget
from gpuconsole.scheduling.kueue.topology.domains import TopologyDomainTree


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
        *(
            "assignment",
            "granular_reason",
            "migrating_sibling",
            "message",
            "preemptor",
            "request",
            "requeue",
            "resume",
            "resumed",
            "rules",
        ),
        *("refusal", "second_pass_round", "status", "targets", "order"),
    )

    def __init__(
        self, request: WorkloadRequest, rules: ClusterQueueConfig, *, preemptor: bool = False, round: int = 0
    ) -> None:
        self.request = request
        self.rules = rules
        self.preemptor = preemptor
        """It preempted in an earlier cycle, and its victims are terminating."""
        self.second_pass_round = round
        """Number of the attempt of its second pass, from 1; 0 for a workload without quota."""
        self.assignment = Assignment()
        self.targets: Sequence[PreemptionTarget] = ()
        self.status = EntryStatus.NOT_NOMINATED
        self.message = ""
        self.granular_reason = GranularReason.NONE
        """Granular reason of the refusal."""
        self.migrating_sibling: Holding | None = None
        """Its admitted variant on a less favorable flavor, which is evicted so that this one can take over."""
        self.requeue = RequeueReason.GENERIC
        self.resume: ResumePosition | None = None
        """Position from which the search for flavors continues in this cycle; after nomination, in the next one."""
        self.resumed = False
        """Its search for flavors continued where an earlier cycle stopped."""
        self.refusal: Refuse | KeepWaiting | None = None
        """The refusal; known before the cycle if nothing in its cohort tree has changed."""
        self.order = 0
        """Position in the processing order, from 1; 0 until it is processed."""

    @property
    def additional_usage(self) -> list[tuple[int, int]]:
        """The (column, amount) pairs that it would use beyond the quota that it holds."""
        return [] if self.second_pass_round else self.assignment.quota_usage

    def additional_topology_usage(self, topologies: Mapping[str, TopologyDomainTree]) -> tuple[TopologyUsage, ...]:
        """Return the topology usage that it would add to what it holds."""
        return self.assignment.topology_usage(topologies, self.request.workload.admission)

    @property
    def replaced_slice(self) -> Holding | None:
        """The workload slice that the entry's slice replaces; None if it replaces none."""
        return next((target.holding for target in self.targets if target.rule is None), None)

    @property
    def victim_count(self) -> int:
        """Number of workloads that it preempts."""
        return sum(target.rule is not None for target in self.targets)

    def record_nomination(self, assignment: Assignment, targets: Sequence[PreemptionTarget]) -> None:
        """Store a nomination (assignment and victims), with its message and the position of its search for flavors."""
        self.assignment = assignment
        self.targets = targets
        self.message = assignment.message
        self.resume = assignment.resume_position

    def refuse(self, message: str, granular_reason: GranularReason) -> None:
        """Record the message and the granular reason of a refusal."""
        self.message, self.granular_reason = message, granular_reason

    def skip(
        self,
        message: str,
        granular_reason: GranularReason = GranularReason.WAITING_FOR_QUOTA,
        *,
        keep_progress: bool = True,
    ) -> None:
        """Skip the entry because of an earlier entry of the cycle or an admitted variant.

        With `keep_progress` the next cycle continues the search for flavors where it stopped.
        """
        self.status = EntryStatus.SKIPPED
        self.refuse(message, granular_reason)
        if not keep_progress:
            self.resume = None

    def requeue_gated(self) -> None:
        """Requeue the entry because its preemption gates are closed; when they open, all flavors are tried again."""
        self.status = EntryStatus.GATED
        self.requeue = RequeueReason.PREEMPTION_GATED
        self.resume = None
        self.refuse(messages.PREEMPTION_GATED, GranularReason.ADMISSION_GATED)

    def requeue_blocked(self) -> None:
        """Block the entry until all admitted workloads are ready; it is retried as soon as they are."""
        self.status = EntryStatus.BLOCKED
        self.requeue_untried()
        self.refuse(messages.WAITING_FOR_PODS_READY, GranularReason.WAITING_FOR_PODS_READY)

    def requeue_untried(self) -> None:
        """Requeue an entry that the cycle did not reach; the next cycle starts from its first flavor."""
        self.requeue = RequeueReason.FAILED_AFTER_NOMINATION
        self.resume = None

    def requeue_until_terminated(self, message: str, requeue: RequeueReason) -> None:
        """Requeue the entry until other workloads terminate; the next cycle tries all flavors again."""
        self.requeue = requeue
        self.resume = None
        self.refuse(message, GranularReason.WAITING_FOR_PREEMPTED_WORKLOADS)

    def requeue_until_victims_terminated(self, count: int) -> None:
        """Requeue the entry until its `count` victims terminate; without victims it keeps its message and requeue
        reason.
        """
        if count:
            self.requeue_until_terminated(
                messages.pending_preemption_message(self.message, count), RequeueReason.PENDING_PREEMPTION
            )
        else:
            self.requeue_until_terminated(self.message, self.requeue)


class CycleResult(Struct, frozen=True):
    """What a cycle has decided when it ends, or when it waits for admitted workloads to be ready."""

    decisions: list[AdmissionDecision]
    entries: list[CycleEntry]
    """All entries of the cycle."""
    has_ended: bool = True
