"""Volcano's objects: Queues, HyperNodes, PodGroups, and the spec and status of its Jobs.

A Volcano Job is a `job.Job`; `VolcanoSpec` holds its fields beyond the pods, `VolcanoStatus` what its controller wrote
(batch.volcano.sh/v1alpha1). The PodGroups of the Coscheduling plugin and of scheduling.k8s.io have the same struct.
"""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from gpuconsole.model.clock import Span, Time
from gpuconsole.model.labels import NO_LABELS, ClusterScopedObject, LabelSelector, NamespacedObject
from gpuconsole.model.resources import EMPTY, Resources


class GroupAffinity(Struct, frozen=True, omit_defaults=True):
    """Node groups where the pods of a queue must, should, or must not run (Volcano's nodegroup plugin)."""

    required: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    anti_required: tuple[str, ...] = ()
    anti_preferred: tuple[str, ...] = ()


class NetworkTopology(Struct, frozen=True, omit_defaults=True):
    """Network topology constraint: within one HyperNode of at most this tier (`hard`), or as close as possible."""

    mode: str = ""
    """`hard` or `soft`."""
    highest_tier: int | None = None
    highest_tier_name: str = ""


class SubGroupPolicy(Struct, frozen=True, omit_defaults=True):
    """Subgroups of a PodGroup: pods with equal values of these labels form a gang."""

    name: str
    size: int | None = None
    """Number of pods that start together."""
    least: int | None = None
    """Number of such gangs that the PodGroup needs (minSubGroups)."""
    network_topology: NetworkTopology | None = None
    selector: LabelSelector | None = None
    """Selects the pods; None selects all."""
    match_label_keys: tuple[str, ...] = ()


class HyperNodeMember(Struct, frozen=True, omit_defaults=True):
    """Member of a HyperNode: nodes, or one HyperNode below it."""

    type: str
    """`Node` or `HyperNode`."""
    exact: str | None = None
    pattern: str | None = None
    """Regular expression that must match a part of a node's name."""
    selector: LabelSelector | None = None


class HyperNode(ClusterScopedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A network topology domain: the lower its tier, the closer its nodes (topology.volcano.sh)."""

    name: str
    created: Time = 0
    tier: int = 0
    tier_name: str = ""
    members: tuple[HyperNodeMember, ...] = ()


class CpuPlace(Struct, frozen=True, omit_defaults=True):
    """NUMA node, socket and core of a CPU."""

    numa: int = 0
    socket: int = 0
    core: int = 0
    """Number of the core; two CPUs of one core are its threads."""


class Numatopology(ClusterScopedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """NUMA topology of a node by its exporter (nodeinfo.volcano.sh); has the node's name."""

    name: str
    created: Time = 0
    cpu_policy: str = ""
    """CPUManagerPolicy of the kubelet; only `static` assigns CPUs exclusively."""
    topology_policy: str = ""
    """TopologyManagerPolicy: none, best-effort, restricted or single-numa-node."""
    reserved_cpu: int = 0
    """Milli-CPU that the node reserves for itself."""
    cpus: Mapping[int, CpuPlace] = {}
    free: tuple[int, ...] = ()
    """CPUs that are not assigned exclusively, in ascending order."""


class VolcanoQueue(ClusterScopedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Queue of Volcano."""

    name: str
    uid: str = ""
    created: Time = 0
    annotations: Mapping[str, str] = NO_LABELS
    weight: int = 1
    parent: str = ""
    capability: Resources = EMPTY
    deserved: Resources = EMPTY
    guarantee: Resources = EMPTY
    reclaimable: bool = True
    priority: int = 0
    dequeue_strategy: str = ""
    """`fifo` stops at the first job that does not fit, `traverse` continues; empty means traverse."""
    affinity: GroupAffinity | None = None
    state: str = "Open"
    """Open, Closed, Closing or Unknown; only an open queue takes new jobs."""


class GroupCondition(Struct, frozen=True, omit_defaults=True):
    """Condition of a PodGroup by Volcano's scheduler: Unschedulable or Scheduled, and why."""

    type: str
    status: bool
    reason: str = ""
    message: str = ""
    since: Time = 0


class RayGroup(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """PodGroup that KubeRay's operator creates for the pods of a RayCluster or RayJob.

    KubeRay 1.6 ray-operator/controllers/ray/batchscheduler/volcano and scheduler-plugins.
    """

    for_volcano: bool
    """True for one of Volcano's; False for one of the Coscheduling plugin's, which pods name by a label."""
    min_member: int
    """Head and workers; a submitter is created later and does not count."""
    min_resources: Resources = EMPTY
    queue: str = ""
    priority_class: str = ""
    network_topology: NetworkTopology | None = None

    def name_for(self, owner: str) -> str:
        """Return the name of the PodGroup for a RayCluster or RayJob of this name."""
        return f"ray-{owner}-pg" if self.for_volcano else owner


class PodGroup(NamespacedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Pods that are scheduled together, for Volcano, the Coscheduling plugin or Kubernetes (scheduling.k8s.io)."""

    namespace: str = "default"
    name: str
    uid: str = ""
    created: Time = 0
    labels: Mapping[str, str] = NO_LABELS
    annotations: Mapping[str, str] = NO_LABELS
    min_member: int = 1
    min_task_member: Mapping[str, int] = {}
    """Minimum number of pods of each task (role)."""
    queue: str = ""
    priority_class: str = ""
    min_resources: Resources | None = None
    """Resources that must be available before its pods are considered; None for no condition."""
    network_topology: NetworkTopology | None = None
    sub_groups: tuple[SubGroupPolicy, ...] = ()
    policy: str = ""
    """`gang` or `basic` for a group of scheduling.k8s.io; empty for others, which have no `topology_key` and
    `parent_group`.
    """
    topology_key: str = ""
    """All its pods must be on nodes with the same value of this label."""
    parent_group: str = ""
    """Name of the CompositePodGroup that contains it."""
    phase: str = ""
    """Pending, Inqueue, Running, Unknown or Completed; empty means Pending."""
    conditions: tuple[GroupCondition, ...] = ()


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
    """Fields of a Volcano Job's task beyond its pods, which are the pod set at the same position."""

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
    """True if a claim with the fields below is created."""
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
    """Status that Volcano's controller writes into a job; the counts are pods."""

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
