"""Decisions of the schedulers, as data, with the trace of a preemption decision.

Decisions of the schedulers, as data. Schedulers return them; the simulation (or a user) carries them out.

Trace of a preemption decision: the candidates in order, and why each was preempted or skipped.
"""

from enum import StrEnum
from typing import Union

from msgspec import Struct, field

from gpuconsole.model.clock import Time
from gpuconsole.model.devices import Allocation
from gpuconsole.model.gpus.mig import MigInstance
from gpuconsole.model.workloads import Admission, PodSetNeeds, Workload


class CandidateVerdict(StrEnum):
    """Outcome for one preemption candidate."""

    CHOSEN = "chosen"
    PUT_BACK = "put-back"
    """It was chosen at first, but the other victims were enough."""
    NOT_NEEDED = "not-needed"
    """There was enough capacity without it."""
    NOT_BORROWING = "not-borrowing"
    """Its ClusterQueue, or a cohort above it, is within nominal quota of the contended resources."""
    NOT_WHILE_BORROWING = "not-while-borrowing"
    """The rule allows it only for a preemptor that does not borrow."""
    FAIR_SHARE = "fair-share"
    """Its ClusterQueue's share is not above the preemptor's by the fair sharing strategy."""
    PRIORITY = "priority"
    """The policy allows only lower priorities, or also newer workloads of equal priority."""
    POLICY_NEVER = "policy-never"
    """The policies of the preemptor's ClusterQueue allow no victims in that queue."""


class ConsideredCandidate(Struct, frozen=True, omit_defaults=True):
    """A candidate that uses a contended resource, and the outcome for it."""

    workload: str
    queue: str
    verdict: CandidateVerdict
    priority: int = 0


class PreemptionTrace(Struct, frozen=True, omit_defaults=True):
    """Search for victims. Shares are Kueue's weighted shares in thousandths, before any preemption."""

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
    """Our engine would not have chosen this victim in that state; the rest of the trace is empty then."""


class PreemptionRule(StrEnum):
    """Reason for which a victim was chosen, as in Kueue's Preempted condition."""

    IN_CLUSTER_QUEUE = "InClusterQueue"
    IN_COHORT_RECLAMATION = "InCohortReclamation"
    IN_COHORT_FAIR_SHARING = "InCohortFairSharing"
    IN_COHORT_RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"


class Admit(Struct, frozen=True):
    """Quota is reserved for the workload."""

    workload: str
    admission: Admission
    borrowing: bool = False
    considered: str = ""
    """Flavors that were tried, and why others were rejected, as in Kueue's event."""
    replaces: str = ""
    """Workload slice of the same job that finishes when this one replaces it."""


class Preempt(Struct, frozen=True):
    """Preempt the workload. `message` is the text of its Preempted condition."""

    workload: str
    by: str
    rule: PreemptionRule
    message: str
    choice: PreemptionTrace | None = None
    """Trace of how it was chosen, if requested."""


class Refuse(Struct, frozen=True):
    """The workload stays pending. `reason` and `message` are those of its QuotaReserved=False condition."""

    workload: str
    message: str
    reason: str = "Pending"
    requeue: str = ""
    """Kueue's requeue reason: NoFit, PendingPreemption, PreemptionNoCandidates, …"""
    requeued: str = ""
    """Text of the condition Requeued=False; empty to leave the condition unchanged."""
    skipped_preemption: bool = False
    """It had victims, but an earlier head of the cycle came first (admission_cycle_preemption_skips)."""
    requests: tuple[PodSetNeeds, ...] = ()
    """Requests of its pod sets in this attempt, if flavors were tried."""
    gated: bool = False
    """It had victims, but its preemption gates are closed."""


class Evict(Struct, frozen=True):
    """Evict the workload for another reason than preemption. `reason` and `message` are those of its Evicted
    condition.
    """

    workload: str
    reason: str
    message: str
    detail: str = ""
    """Why there is no alternative, if the scheduler looked for one."""


class KeepWaiting(Struct, frozen=True):
    """Retry later the topology assignment, or node replacement, of a workload that has quota.

    `message` is the text of its SecondPassFailed event.
    """

    workload: str
    message: str


AdmissionDecision = Union[Admit, Preempt, Refuse, Evict, KeepWaiting]


class Bind(Struct, frozen=True):
    """Bind the pod to this node with these GPUs and MIG instances."""

    pod: str
    node: str
    gpus: tuple[int, ...] = ()
    slices: tuple[MigInstance, ...] = ()
    volumes: tuple[tuple[str, str], ...] = ()
    """(claim, volume to which it is bound before the pod starts); an empty volume must be provisioned."""
    devices: tuple[tuple[str, Allocation], ...] = ()
    """(ResourceClaim without allocation, its new allocation)."""


class EvictPod(Struct, frozen=True):
    """Delete the pod to preempt it for another pod."""

    pod: str
    by: str
    node: str
    message: str = ""
    action: str = ""
    """Action of the scheduler that chose it (`reclaim`, `preempt` …), if it has several."""


class Nominate(Struct, frozen=True):
    """The pod waits for its victims to leave this node."""

    pod: str
    node: str


class Unschedulable(Struct, frozen=True):
    """No node takes the pod; `message` is kube-scheduler's FailedScheduling text."""

    pod: str
    message: str
    gang: str = ""
    story: str = ""
    """Text for the history of its gang or job, if it differs from the pod's."""


class MarkGroup(Struct, frozen=True):
    """Mark a KAI pod group (`namespace/name`) as unschedulable with these (reason, message); as schedulable if
    empty.
    """

    group: str
    message: str = ""
    reasons: tuple[tuple[str, str], ...] = ()


class SetPhase(Struct, frozen=True):
    """Set the phase of a PodGroup (`namespace/name`)."""

    group: str
    phase: str
    message: str = ""
    """Why it does not run, if it does not."""


PlacementDecision = Union[Bind, EvictPod, Nominate, Unschedulable, SetPhase, MarkGroup]


class Pending(Struct, frozen=True):
    """Workload at a position in a queue, from 1."""

    workload: Workload
    position: int
    inadmissible: bool = field(name="parked")
