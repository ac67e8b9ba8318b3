"""Workloads, as Kueue sees them."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field
from msgspec.structs import replace

from gpuconsole.model.clock import Span, Time
from gpuconsole.model.labels import NO_LABELS, Toleration
from gpuconsole.model.pod_sets import PodSet
from gpuconsole.model.resources import EMPTY, Resources, gpus, is_gpu


class Condition(Struct, frozen=True, omit_defaults=True):
    """A condition of a Workload, as the API shows it. `since` is its last transition."""

    type: str
    status: bool
    reason: str = ""
    message: str = ""
    since: Time = 0


class TopologyDomain(Struct, frozen=True, omit_defaults=True):
    values: tuple[str, ...]
    count: int


class PodSetAssignment(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a pod set was given: a flavor for each resource, the usage, how many pods, and where."""

    name: str = "main"
    flavors: Mapping[str, str] = NO_LABELS
    usage: Resources = EMPTY
    count: int = 1
    levels: tuple[str, ...] = ()
    topology: tuple[TopologyDomain, ...] = ()
    delayed: str = ""
    """`Pending` while its place is chosen only once its admission checks are ready, `Ready` afterwards."""


class Admission(Struct, frozen=True, kw_only=True, omit_defaults=True):
    cluster_queue: str
    pod_sets: tuple[PodSetAssignment, ...] = ()


class PodSetNeeds(Struct, frozen=True, omit_defaults=True):
    """What quota a waiting pod set was last looked for: all its pods, after Kueue's adjustments."""

    name: str
    resources: Resources = EMPTY


class RequeueState(Struct, frozen=True, omit_defaults=True):
    count: int = 0
    at: Time | None = None


class PodSetUpdate(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a passed admission check adds to the pods of a pod set."""

    name: str
    labels: Mapping[str, str] = NO_LABELS
    annotations: Mapping[str, str] = NO_LABELS
    node_selector: Mapping[str, str] = NO_LABELS
    tolerations: tuple[Toleration, ...] = ()


class CheckState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one admission check says of a workload: Pending, Ready, Retry or Rejected."""

    name: str
    state: str = "Pending"
    message: str = ""
    retry_count: int = 0
    requeue_after: int | None = None
    """Seconds until a workload that it sent back may be tried again."""
    since: Time | None = None
    """When its state changed last, where that is known."""
    updates: tuple[PodSetUpdate, ...] = ()


class EvictionCount(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How often a workload was evicted for one reason."""

    reason: str
    underlying_cause: str = ""
    """What was behind a deactivation or a timeout."""
    count: int = 0


class SchedulingStats(Struct, frozen=True, omit_defaults=True):
    evictions: tuple[EvictionCount, ...] = ()
    """By reason and cause, in the order in which they came first."""


class PreemptionGate(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Keeps a workload from preempting others until somebody opens it; they all have to be open."""

    name: str
    open: bool = False
    since: Time | None = None
    """Its last move, or None where it was never stated: closed since the workload was made."""


class Workload(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A request for quota: Kueue's unit of admission, all or nothing."""

    namespace: str = "default"
    name: str
    uid: str = ""
    created: Time = 0
    labels: Mapping[str, str] = NO_LABELS
    annotations: Mapping[str, str] = NO_LABELS
    owner: str = ""
    """`Kind/namespace/name` of its job, or nothing for a bare Workload."""
    job_uid: str = ""
    queue: str = ""
    """Name of its LocalQueue, in its namespace."""
    priority: int = 0
    priority_class: str = ""
    priority_kind: str = ""
    """Kind of the class: `WorkloadPriorityClass` or `PriorityClass`; nothing where there is none."""
    active: bool = True
    pod_sets: tuple[PodSet, ...] = ()
    max_execution_time: Span | None = None
    conditions: tuple[Condition, ...] = ()
    admission: Admission | None = None
    requeue: RequeueState = RequeueState()
    resource_requests: tuple[PodSetNeeds, ...] = ()
    """While it waits; its admission says what it was given."""
    reclaimable: Mapping[str, int] = EMPTY
    checks: tuple[CheckState, ...] = ()
    past_execution: Span = 0
    unhealthy_nodes: tuple[str, ...] = ()
    """Nodes of its topology assignment that failed; their pods need another place."""
    scheduling_stats: SchedulingStats = SchedulingStats()
    preemption_gates: tuple[PreemptionGate, ...] = ()
    done: Span = 0
    """Work of a bare Workload that is safe, as `Job.done` (known in the simulator only)."""
    cluster: str = ""
    """The worker cluster that runs it (MultiKueue)."""
    nominated_clusters: tuple[str, ...] = ()
    """Worker clusters that it is offered to."""
    inadmissible: bool = field(default=False, name="parked")
    """Waits as inadmissible until its tree wakes (known in the simulator only)."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def local_queue(self) -> str:
        """Key of its LocalQueue."""
        return f"{self.namespace}/{self.queue}"

    @property
    def parent(self) -> str:
        """Key of the Workload that it is a variant of (concurrent admission), or nothing."""
        kind, _, key = self.owner.partition("/")
        return key if kind == "Workload" else ""

    @property
    def gated(self) -> bool:
        """True while one of its preemption gates is closed."""
        return bool(self.preemption_gates) and any(not gate.open for gate in self.preemption_gates)

    def condition(self, type: str) -> Condition | None:
        for condition in self.conditions:
            if condition.type == type:
                return condition
        return None

    def is_true(self, type: str) -> bool:
        for condition in self.conditions:
            if condition.type == type:
                return condition.status
        return False

    def with_condition(self, condition: Condition) -> "Workload":
        """Set a condition; its transition time moves only if the status changes (meta.SetStatusCondition)."""
        old = self.condition(condition.type)
        if old is None:
            return replace(self, conditions=(*self.conditions, condition))
        if old.status == condition.status:
            condition = replace(condition, since=old.since)
        if old == condition:
            return self
        return replace(self, conditions=tuple(condition if c.type == condition.type else c for c in self.conditions))

    @property
    def reserved(self) -> bool:
        """True while it holds quota."""
        return self.is_true("QuotaReserved")

    @property
    def admitted(self) -> bool:
        return self.is_true("Admitted")

    @property
    def finished(self) -> bool:
        return self.is_true("Finished")

    @property
    def flavor(self) -> str:
        """The flavor that it was given, that of its GPUs first; nothing where it was given none."""
        if self.admission is None:
            return ""
        pairs = (pair for assignment in self.admission.pod_sets for pair in assignment.flavors.items())
        return min(((not is_gpu(resource), flavor) for resource, flavor in pairs), default=(False, ""))[1]

    @property
    def gpus(self) -> int:
        """Whole GPUs that it asks for, or was given where it is admitted."""
        if self.admission is not None:
            return sum(gpus(assignment.usage) for assignment in self.admission.pod_sets)
        return sum(gpus(pod_set.requests) for pod_set in self.pod_sets)

    @property
    def evictions(self) -> int:
        """How often it was evicted, for whatever reason."""
        return sum(one.count for one in self.scheduling_stats.evictions)

    @property
    def cluster_queue(self) -> str:
        """The ClusterQueue that it holds quota in, if any."""
        return self.admission.cluster_queue if self.admission is not None else ""


def anew(workload: Workload) -> Workload:
    """A bare Workload that asks for the same, as if it had just been made: nothing of its life is left."""
    return replace(
        workload,
        uid="",
        owner="",
        job_uid="",
        active=True,
        conditions=(),
        admission=None,
        requeue=RequeueState(),
        resource_requests=(),
        reclaimable={},
        checks=(),
        past_execution=0,
        unhealthy_nodes=(),
        scheduling_stats=SchedulingStats(),
        preemption_gates=(),
        done=0,
        cluster="",
        nominated_clusters=(),
        inadmissible=False,
    )


class WorkloadPhase(StrEnum):
    """One word for the state of a workload: Kueue's status of it (workload.Status), and whether its pods run."""

    PENDING = "pending"
    QUOTA_RESERVED = "quotaReserved"
    """Waits for admission checks, or for its places in a topology."""
    ADMITTED = "admitted"
    """Its pods may run, and not all of them do."""
    RUNNING = "running"
    """All pods of the gang run."""
    EVICTED = "evicted"
    """Holds its quota until its last pod is gone; then it is pending again."""
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"


PLACED = (WorkloadPhase.ADMITTED, WorkloadPhase.RUNNING)
"""Admitted, and not on its way out: its pods run or may run."""


def phase(workload: Workload, pods_run: bool | None = None) -> WorkloadPhase:
    """Sum up a workload in one word.

    `pods_run` is whether all pods of its gang run; None where its pods are not seen, so that Kueue's PodsReady decides.
    """
    finished = workload.condition("Finished")
    if finished is not None and finished.status:
        return WorkloadPhase.FAILED if finished.reason == "Failed" else WorkloadPhase.FINISHED
    if workload.is_true("Evicted") and workload.reserved:
        return WorkloadPhase.EVICTED
    if not workload.active:
        return WorkloadPhase.STOPPED
    if workload.admitted:
        runs = workload.is_true("PodsReady") if pods_run is None else pods_run
        return WorkloadPhase.RUNNING if runs else WorkloadPhase.ADMITTED
    return WorkloadPhase.QUOTA_RESERVED if workload.reserved else WorkloadPhase.PENDING
