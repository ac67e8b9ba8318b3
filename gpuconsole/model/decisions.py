"""Decisions of the schedulers, as data. Scheduling returns them; the simulation (or a user) carries them out."""

from enum import StrEnum
from typing import Union

from msgspec import Struct, field

from gpuconsole.model.devices import Allocation
from gpuconsole.model.gpus.mig import MigInstance
from gpuconsole.model.preemption_trace import PreemptionTrace
from gpuconsole.model.workloads import Admission, PodSetNeeds, Workload


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
    """The flavors that were tried, and why those that were passed over did not do, as Kueue's event lists them."""
    replaces: str = ""
    """The slice of the same job that ends when this one takes over."""


class Preempt(Struct, frozen=True):
    """Preempt the workload. `message` is the text of its Preempted condition."""

    workload: str
    by: str
    rule: PreemptionRule
    message: str
    choice: PreemptionTrace | None = None
    """How it was chosen, where that was asked for."""


class Refuse(Struct, frozen=True):
    """The workload stays pending. `reason` and `message` are those of its QuotaReserved=False condition."""

    workload: str
    message: str
    reason: str = "Pending"
    requeue: str = ""
    """Kueue's requeue reason: NoFit, PendingPreemption, PreemptionNoCandidates, …"""
    requeued: str = ""
    """Text of the condition Requeued=False; nothing where that is left alone."""
    skipped_preemption: bool = False
    """It had victims, but an earlier head of the cycle came first (admission_cycle_preemption_skips)."""
    requests: tuple[PodSetNeeds, ...] = ()
    """What was looked for, where it was looked for."""
    gated: bool = False
    """It had victims, but its preemption gates are closed."""


class Evict(Struct, frozen=True):
    """Evict the workload, not for a preemptor. `reason` and `message` are those of its Evicted condition."""

    workload: str
    reason: str
    message: str
    detail: str = ""
    """Why there is no other way, where the scheduler looked for one."""


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
    """(claim, volume that it is bound to before the pod starts); an empty volume is one that has to be made."""
    devices: tuple[tuple[str, Allocation], ...] = ()
    """(ResourceClaim that had no devices before, what it got)."""


class EvictPod(Struct, frozen=True):
    """Delete the pod to preempt it for another pod."""

    pod: str
    by: str
    node: str
    message: str = ""
    action: str = ""
    """Of the engine's actions the one that chose it (`reclaim`, `preempt` …), where it has several."""


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
    """What history tells of its gang or job, where that is another text than the pod's own."""


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
    """Why it does not run, where that is so."""


PlacementDecision = Union[Bind, EvictPod, Nominate, Unschedulable, SetPhase, MarkGroup]


class Pending(Struct, frozen=True):
    """Position in a queue, from 1."""

    workload: Workload
    position: int
    inadmissible: bool = field(name="parked")
