"""Volcano Job: its fields beyond the pods, and its controller's status (batch.volcano.sh/v1alpha1)."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from gpuconsole.model.clock import Span, Time
from gpuconsole.model.volcano import NetworkTopology


class VolcanoPhase(StrEnum):
    """Phase of a Volcano Job."""

    NEW = ""
    """The controller has not seen it yet, and will treat it as pending."""
    PENDING = "Pending"
    ABORTING = "Aborting"
    ABORTED = "Aborted"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    COMPLETING = "Completing"
    COMPLETED = "Completed"
    TERMINATING = "Terminating"
    TERMINATED = "Terminated"
    FAILED = "Failed"


class JobEvent(StrEnum):
    """Event of a job or one of its pods (bus.volcano.sh)."""

    ANY = "*"
    POD_FAILED = "PodFailed"
    POD_EVICTED = "PodEvicted"
    POD_PENDING = "PodPending"
    POD_RUNNING = "PodRunning"
    UNKNOWN = "Unknown"
    TASK_COMPLETED = "TaskCompleted"
    TASK_FAILED = "TaskFailed"
    OUT_OF_SYNC = "OutOfSync"
    COMMAND_ISSUED = "CommandIssued"
    JOB_UPDATED = "JobUpdated"


class JobAction(StrEnum):
    """Action of a controller on a job or queue (bus.volcano.sh)."""

    ABORT_JOB = "AbortJob"
    RESTART_JOB = "RestartJob"
    RESTART_TASK = "RestartTask"
    RESTART_POD = "RestartPod"
    RESTART_PARTITION = "RestartPartition"
    TERMINATE_JOB = "TerminateJob"
    COMPLETE_JOB = "CompleteJob"
    RESUME_JOB = "ResumeJob"
    SYNC_JOB = "SyncJob"
    ENQUEUE_JOB = "EnqueueJob"
    SYNC_QUEUE = "SyncQueue"
    OPEN_QUEUE = "OpenQueue"
    CLOSE_QUEUE = "CloseQueue"


class LifecyclePolicy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Action that an event of a job or task triggers."""

    action: JobAction = JobAction.SYNC_JOB
    events: tuple[JobEvent, ...] = ()
    exit_code: int | None = None
    """Exit code of a container, instead of events."""
    timeout: Span | None = None
    """Delay of the action; None for none."""


class DependsOn(Struct, frozen=True, omit_defaults=True):
    """Tasks that must run before this task's pods are created."""

    tasks: tuple[str, ...] = ()
    any: bool = False
    """One of the tasks is sufficient."""


class PartitionPolicy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Partition of a task's pods into gangs of equal size."""

    total: int = 0
    size: int = 0
    least: int = 0
    """Number of partitions that the job needs (minPartitions)."""
    network_topology: NetworkTopology | None = None


class TaskSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Fields of a task beyond its pods, which are the pod set at the same position."""

    min_available: int | None = None
    policies: tuple[LifecyclePolicy, ...] = ()
    max_retry: int = 0
    """Restarts of containers before the task counts as failed; 0 means three, -1 means unlimited."""
    depends_on: DependsOn | None = None
    partition: PartitionPolicy | None = None
    priority_class: str = ""
    """Priority class of its template; pods without one have the job's."""
    topology_policy: str = ""
    """NUMA policy: none, best-effort, restricted, single-numa-node."""


class JobVolume(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Volume that all pods of a job mount: an existing claim, or one created for the job."""

    claim: str = ""
    """Name of the claim; empty until it is created."""
    makes: bool = False
    """A claim with the following fields is created."""
    storage_class: str | None = None
    storage: int = 0
    access_modes: tuple[str, ...] = ()
    volume: str = ""


class VolcanoSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Fields of a Volcano Job beyond its pods."""

    queue: str = ""
    min_available: int = 0
    tasks: tuple[TaskSpec, ...] = ()
    """One for each of the job's pod sets, in their order."""
    policies: tuple[LifecyclePolicy, ...] = ()
    plugins: Mapping[str, tuple[str, ...]] = {}
    """Name → arguments."""
    max_retry: int = 0
    min_success: int | None = None
    ttl: Span | None = None
    """Time for which it is kept after it has finished (ttlSecondsAfterFinished)."""
    priority_class: str = ""
    scheduler_name: str = ""
    network_topology: NetworkTopology | None = None
    volumes: tuple[JobVolume, ...] = ()


NO_COUNTS: Mapping[str, Mapping[str, int]] = {}


class VolcanoStatus(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Status of a job by Volcano's controller; the counts are pods."""

    phase: VolcanoPhase = VolcanoPhase.NEW
    min_available: int = 0
    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    terminating: int = 0
    tasks: Mapping[str, Mapping[str, int]] = NO_COUNTS
    """Task → phase → number of its pods."""
    version: int = 0
    """Number of times the whole job was killed; pods of earlier versions are ignored."""
    retry_count: int = 0
    transition: Time = 0
    """Time of the last change of the phase."""
    conditions: tuple[tuple[VolcanoPhase, Time], ...] = ()
    """Phases that it was in, with the time at which it last entered each, in that order."""

    @property
    def alive(self) -> int:
        """Number of pods that have not ended."""
        return self.terminating + self.pending + self.running


NO_STATUS = VolcanoStatus()
