"""Events: the one stream that updates the state, the history and the event log; and the schedulers' decisions.

There are three kinds of event. `Applied` and `Deleted` change objects, as a watch on an API server does. `HistoryEvent`
describes the meaning of a change (a workload was admitted, preempted by another, …); it changes no object. The history
keeps it, and `simulate -o jsonl` prints it.

A decision (`AdmissionDecision`, `PlacementDecision`) is what a scheduler returns; the simulation, or a user, carries it
out, which gives events. A `PreemptionTrace` says why each candidate was preempted or skipped.
"""

from enum import StrEnum
from typing import Union

from msgspec import Struct, field

from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.devices import WHOLE_GPU, Allocation
from gpuconsole.model.gpus.mig import MigInstance
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.workloads import Admission, PodSetNeeds, Workload


class CandidateVerdict(StrEnum):
    """Outcome for one preemption candidate."""

    CHOSEN = "chosen"
    PUT_BACK = "put-back"
    """The candidate was chosen at first, but the other victims were enough."""
    NOT_NEEDED = "not-needed"
    """There was enough capacity without the candidate."""
    NOT_BORROWING = "not-borrowing"
    """The candidate's ClusterQueue, or a cohort above it, is within nominal quota of the contended resources."""
    NOT_WHILE_BORROWING = "not-while-borrowing"
    """The rule allows the candidate only for a preemptor that does not borrow."""
    FAIR_SHARE = "fair-share"
    """By the fair sharing strategy, the share of the candidate's ClusterQueue is not above the preemptor's."""
    PRIORITY = "priority"
    """The policy allows only lower priorities, or also newer workloads of equal priority."""
    POLICY_NEVER = "policy-never"
    """The policies of the preemptor's ClusterQueue allow no victims in the candidate's queue."""


class ConsideredCandidate(Struct, frozen=True, omit_defaults=True):
    """A candidate for preemption that uses a contended resource, and whether it was preempted or why not."""

    workload: str
    queue: str
    verdict: CandidateVerdict
    priority: int = 0


class PreemptionTrace(Struct, frozen=True, omit_defaults=True):
    """How a victim was chosen. Shares are Kueue's weighted shares in thousandths, before any preemption."""

    share: str = "0"
    """Share of the victim's ClusterQueue; `+Inf` for one that borrows with weight 0."""
    by_share: str = "0"
    """Share of the preemptor's ClusterQueue."""
    considered: tuple[ConsideredCandidate, ...] = ()
    """Candidates that the rules allow, in the order in which they were examined, then the others."""
    left_out: int = 0
    """Number of candidates that are not listed."""
    as_of: Time = 0
    """Time of the cluster state from which our engine reconstructed the trace; 0 if the scheduler reported it."""
    differs: bool = False
    """True if our engine would not have chosen this victim in that state; the rest of the trace is empty then."""


class PreemptionRule(StrEnum):
    """Reason for which a victim was chosen, as in Kueue's Preempted condition."""

    IN_CLUSTER_QUEUE = "InClusterQueue"
    IN_COHORT_RECLAMATION = "InCohortReclamation"
    IN_COHORT_FAIR_SHARING = "InCohortFairSharing"
    IN_COHORT_RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"


class Admit(Struct, frozen=True):
    """Decision to reserve quota for a workload."""

    workload: str
    admission: Admission
    borrowing: bool = False
    considered: str = ""
    """Flavors that were tried, and why others were rejected, as in Kueue's event."""
    replaces: str = ""
    """Workload slice of the same job that finishes when this one replaces it."""


class Preempt(Struct, frozen=True):
    """Decision to preempt a workload. `message` is the text of its Preempted condition."""

    workload: str
    by: str
    rule: PreemptionRule
    message: str
    choice: PreemptionTrace | None = None
    """Trace of how it was chosen, if requested."""


class Refuse(Struct, frozen=True):
    """Decision that a workload stays pending. `reason` and `message` are those of its QuotaReserved=False condition."""

    workload: str
    message: str
    reason: str = "Pending"
    requeue: str = ""
    """Kueue's requeue reason: NoFit, PendingPreemption, PreemptionNoCandidates, …"""
    requeued: str = ""
    """Text of the condition Requeued=False; empty to leave the condition unchanged."""
    skipped_preemption: bool = False
    """It had victims, but another queue took the same resources in this cycle (admission_cycle_preemption_skips)."""
    requests: tuple[PodSetNeeds, ...] = ()
    """Resource requests of its pod sets in this attempt; empty if no flavors were tried."""
    gated: bool = False
    """It had victims, but its preemption gates are closed."""


class Evict(Struct, frozen=True):
    """Decision to evict a workload other than by preemption, of the scheduler or of a controller.

    Its Evicted condition gets `reason` and `message`.
    """

    workload: str
    reason: str
    message: str
    detail: str = ""
    """Why there is no alternative, if the scheduler looked for one."""
    cause: str = ""
    """The underlying cause; for a deactivation it becomes part of the condition's reason."""


class KeepWaiting(Struct, frozen=True):
    """Decision to retry later the topology assignment, or node replacement, of a workload that has quota.

    `message` is the text of its SecondPassFailed event.
    """

    workload: str
    message: str


AdmissionDecision = Union[Admit, Preempt, Refuse, Evict, KeepWaiting]


class Bind(Struct, frozen=True):
    """Decision to bind a pod to a node, with these GPUs and MIG instances."""

    pod: str
    node: str
    gpus: tuple[int, ...] = ()
    slices: tuple[MigInstance, ...] = ()
    volumes: tuple[tuple[str, str], ...] = ()
    """(claim, volume to which it is bound before the pod starts); an empty volume must be provisioned."""
    devices: tuple[tuple[str, Allocation], ...] = ()
    """(ResourceClaim without allocation, its new allocation)."""


class EvictPod(Struct, frozen=True):
    """Decision to delete a pod, to preempt it for another pod."""

    pod: str
    by: str
    node: str
    message: str = ""
    action: str = ""
    """Action of the scheduler that chose it (`reclaim`, `preempt` …), if it has several."""


class Nominate(Struct, frozen=True):
    """Decision that a pod waits for its victims to leave this node (nominatedNodeName)."""

    pod: str
    node: str


class Unschedulable(Struct, frozen=True):
    """Decision that no node fits a pod; `message` is kube-scheduler's FailedScheduling text."""

    pod: str
    message: str
    gang: str = ""
    story: str = ""
    """Text for the history of its gang or job, if it differs from `message`."""


class MarkGroup(Struct, frozen=True):
    """Decision to mark a KAI pod group as unschedulable for these (reason, message) pairs; without any, schedulable."""

    group: str
    message: str = ""
    reasons: tuple[tuple[str, str], ...] = ()


class SetPhase(Struct, frozen=True):
    """Decision to set the phase of a PodGroup of Volcano (`namespace/name`)."""

    group: str
    phase: str
    message: str = ""
    """Why it does not run, if it does not."""


PlacementDecision = Union[Bind, EvictPod, Nominate, Unschedulable, SetPhase, MarkGroup]


class Pending(Struct, frozen=True):
    """A pending workload and its position in its ClusterQueue; 1 is the head."""

    workload: Workload
    position: int
    inadmissible: bool = field(name="parked")


class HistoryEventKind(StrEnum):
    """Kind of a history event."""

    SUBMITTED = "submitted"
    PENDING = "pending"
    """The reason why a workload or a pod is pending changed; `message` is the scheduler's own text."""
    RESERVED = "reserved"
    ADMITTED = "admitted"
    PREEMPTED = "preempted"
    """A victim was chosen: `workload` is the victim, `by` the preemptor, `reason` the rule."""
    RECONSTRUCTED = "reconstructed"
    """How a victim was chosen (`choice`), reconstructed by our engine because the scheduler did not report it."""
    EVICTED = "evicted"
    """The workload lost its quota; `reason` says why (Preempted, NodeFailures, Deactivated …)."""
    REQUEUED = "requeued"
    PLACES = "places"
    """A workload with quota gets a topology assignment late or again, or waits for one; `reason` says which
    (UnhealthyNode, NodeReplaced, SecondPassFailed).
    """
    STARTED = "started"
    """All pods of a workload run."""
    FINISHED = "finished"
    FAILED = "failed"
    DELETED = "deleted"
    POD_BOUND = "pod-bound"
    POD_EVICTED = "pod-evicted"
    POD_FAILED = "pod-failed"
    GANG_WAITING = "gang-waiting"
    """A gang was not scheduled: not all of its pods fit, so none was placed."""
    DEADLOCK = "deadlock"
    """Partially scheduled gangs hold GPUs and wait for each other."""
    NODE_DOWN = "node-down"
    NODE_UP = "node-up"
    NODE_CHANGED = "node-changed"
    CAPACITY = "capacity"
    """Message of an autoscaler or the cloud, with its own `reason` and `message`."""
    QUEUE_CHANGED = "queue-changed"
    COMMAND_REFUSED = "command-refused"
    COMMAND_NEEDLESS = "command-needless"
    """The command changes nothing, because its effect exists already; `message` says which."""
    COMMAND_DONE = "command-done"
    """A live API server carried a command out; `message` says what it did."""


class Applied(Struct, frozen=True, tag="applied"):
    """An object was added or changed; holds the whole new object."""

    time: Time
    object: Object

    @property
    def table(self) -> str:
        """Name of the object's table."""
        return TABLES[type(self.object)]

    @property
    def key(self) -> str:
        return self.object.key


class Deleted(Struct, frozen=True, tag="deleted"):
    """An object was deleted. `table` is its table's name (see `objects.TABLES`)."""

    time: Time
    table: str
    key: str


class KueueEvent(Struct, frozen=True, omit_defaults=True):
    """A Kubernetes Event about a workload with Kueue's own reason and text; `warning` is its type."""

    workload: str
    reason: str
    message: str
    warning: bool = False


SAME_CHANGE: Span = 15 * SECOND
"""Time within which two reports of the same kind about the same object are the same change of a live cluster."""


class HistoryEvent(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="happened"):
    """An entry of the history. Names are keys: `namespace/name` of workloads and pods."""

    time: Time
    what: HistoryEventKind
    workload: str = ""
    """Subject: a workload (`ns/name`), or a job without a Workload."""
    pod: str = ""
    queue: str = ""
    """ClusterQueue; for pods without a Workload, their queue of Volcano or KAI."""
    by: str = ""
    by_queue: str = ""
    reason: str = ""
    message: str = ""
    node: str = ""
    flavor: str = ""
    gpus: int = 0
    """GPUs, or accelerators in the unit of `unit`."""
    borrowed: int = 0
    """GPUs of this admission that its ClusterQueue borrows from the cohort."""
    priority: int = 0
    by_priority: int = 0
    lost_gpu_seconds: float = 0.0
    cost: float = 0.0
    """USD of the lost work."""
    lost_unknown: bool = False
    """The amount of lost work is unknown, because it was done before the observation began."""
    unit: str = WHOLE_GPU.noun
    """Unit of `gpus` in the singular, such as `MIG 1g.10gb instance`."""
    waited: int = 0
    """µs from submission, or the last eviction, to this event; for a requeue, from the eviction."""
    told: tuple[KueueEvent, ...] = ()
    """Kubernetes Events that Kueue records for it."""
    choice: PreemptionTrace | None = None
    """How the victim of a preemption was chosen, if the scheduler reported it."""
    count: int = 1
    """Number of times that it occurred: the history has an event that is repeated, such as PENDING, once."""
    last_time: Time = 0
    """When it occurred last, if more than once."""


Event = Union[Applied, Deleted, HistoryEvent]
