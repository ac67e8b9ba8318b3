"""A task: a pod in a session, with its requests, its status, its node, and what the session decided.

Also the labels and annotations of pods, PodGroups and nodes that Volcano reads, Kubernetes' quality of service classes,
and DRA requests: number of devices and amounts of capacity by device class.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum

from msgspec import Struct, field

from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.resources import CPU, MEMORY, PODS
from gpuconsole.scheduling.volcano.api.resource import Resource
from gpuconsole.scheduling.volcano.config import parse_flag

GROUP_NAME = "scheduling.k8s.io/group-name"
TASK_SPEC = "volcano.sh/task-spec"
TASK_PRIORITY = "volcano.sh/task-priority"
PREEMPTABLE = "volcano.sh/preemptable"
REVOCABLE_ZONE = "volcano.sh/revocable-zone"
NUMA_POLICY = "volcano.sh/numa-topology-policy"
QUEUE_GATE = "scheduling.volcano.sh/queue-allocation-gate"
SLA_WAITING_TIME = "sla-waiting-time"
SLA_WAITING_TIMES = ("volcano.sh/sla-waiting-time", SLA_WAITING_TIME)
"""Annotations for a job's maximum waiting time; the first with a valid time counts."""
JDB_MIN_AVAILABLE = "volcano.sh/jdb-min-available"
JDB_MAX_UNAVAILABLE = "volcano.sh/jdb-max-unavailable"
HIERARCHY = "volcano.sh/hierarchy"
HIERARCHY_WEIGHTS = "volcano.sh/hierarchy-weights"
OVERSUBSCRIPTION = "volcano.sh/oversubscription"
OVERSUBSCRIPTION_CPU = "volcano.sh/oversubscription-cpu"
OVERSUBSCRIPTION_MEMORY = "volcano.sh/oversubscription-memory"
OFFLINE_JOB_EVICTING = "volcano.sh/offline-job-evicting"


def group_of(pod: Pod) -> str:
    """`namespace/name` of the pod's PodGroup; empty if it names none (getJobID)."""
    group = pod.annotations.get(GROUP_NAME)
    return f"{pod.namespace}/{group}" if group else ""


def role_of(pod: Pod) -> str:
    """The task of the Volcano Job that the pod belongs to; empty if it names none."""
    return pod.annotations.get(TASK_SPEC) or pod.labels.get(TASK_SPEC, "")


def is_preemptable(labels: Mapping[str, str], annotations: Mapping[str, str], default: bool) -> bool:
    """Whether a pod may be preempted, by its annotation, else its label; `default` without both, False if invalid."""
    for place in (annotations, labels):
        if PREEMPTABLE in place:
            return parse_flag(place[PREEMPTABLE]) or False
    return default


def revocable_zone(annotations: Mapping[str, str]) -> str:
    """`*` if the pod may run on revocable nodes, else empty; without the annotation, only a preemptable pod may."""
    if REVOCABLE_ZONE in annotations:
        return "*" if annotations[REVOCABLE_ZONE] == "*" else ""
    return "*" if parse_flag(annotations.get(PREEMPTABLE, "")) else ""


class TaskStatus(IntEnum):
    """Status of a task. Its name, capitalised as Volcano does, is `label`."""

    PENDING = 1
    """The task has no node."""
    ALLOCATED = 2
    """The session gave it a node; its gang may not be ready yet."""
    PIPELINED = 4
    """The session reserved resources for it that are being released."""
    BINDING = 8
    """Its binding was requested."""
    BOUND = 16
    RUNNING = 32
    RELEASING = 64
    """The task is being deleted or evicted."""
    SUCCEEDED = 128
    FAILED = 256
    UNKNOWN = 512

    @property
    def label(self) -> str:
        return self.name.capitalize()


ALLOCATED_STATUSES = frozenset((TaskStatus.BOUND, TaskStatus.BINDING, TaskStatus.RUNNING, TaskStatus.ALLOCATED))
"""Statuses of tasks that hold the resources that they requested (AllocatedStatus)."""
PREEMPTABLE_STATUSES = frozenset((TaskStatus.BOUND, TaskStatus.RUNNING))
"""Statuses of tasks that can be evicted."""
READY_STATUSES = ALLOCATED_STATUSES | {TaskStatus.SUCCEEDED}
"""Statuses of tasks that count towards the minimum of their gang."""
VALID_STATUSES = READY_STATUSES | {TaskStatus.PIPELINED, TaskStatus.PENDING}
"""Statuses of tasks that count towards the minimum of their gang, or may later."""


def status_of(pod: Pod) -> TaskStatus:
    """Task status by the pod's phase, node and deletion timestamp (getTaskStatus)."""
    match pod.phase:
        case PodPhase.SUCCEEDED:
            return TaskStatus.SUCCEEDED
        case PodPhase.FAILED:
            return TaskStatus.FAILED
        case PodPhase.RUNNING:
            return TaskStatus.RELEASING if pod.deleted else TaskStatus.RUNNING
        case PodPhase.PENDING:
            if pod.deleted:
                return TaskStatus.RELEASING
            return TaskStatus.BOUND if pod.node else TaskStatus.PENDING


NO_DEVICES: "Mapping[str, DraResource]" = {}
NO_CLAIMS: "Mapping[str, Mapping[str, DraResource]]" = {}


class Transaction(Struct, frozen=True):
    """The outcome of the last attempt to place a task, kept after the attempt was undone."""

    status: TaskStatus
    node_name: str = ""
    eviction_occurred: bool = False
    """True if victims were evicted for it."""
    hyper_node: str = ""


class TaskInfo:
    """A task: one pod in a session (api.TaskInfo). Mutates: its status and node follow the session's statements.

    `request` and `init_request` are shared by clones and are never edited.
    """

    __slots__ = (
        "best_effort",
        "claim_dra",
        "claim_keys",
        "dra",
        "eviction_occurred",
        "gated",
        "hyper_node",
        "init_request",
        "job",
        "key",
        "last_transaction",
        "name",
        "namespace",
        "node_name",
        "pod",
        "preemptable",
        "priority",
        "request",
        "restartable_init",
        "revocable_zone",
        "role",
        "status",
        "uid",
    )

    def __init__(self, pod: Pod, ignored: Iterable[str] = ()) -> None:
        """The task of a pod; `ignored` are resources that are not counted because a scheduler plugin allocates them."""
        self.pod = pod
        self.uid = pod.uid or pod.key
        self.key = pod.key
        """`namespace/name`, the key in `NodeInfo.tasks`."""
        self.namespace, self.name = pod.namespace, pod.name
        self.job = group_of(pod)
        """`namespace/name` of its PodGroup; empty without one."""
        self.role = role_of(pod)
        self.request = request_of(pod, ignored)
        self.init_request = self.request
        self.dra: Mapping[str, DraResource] = NO_DEVICES
        """Devices that it claims, by DeviceClass."""
        self.claim_keys: tuple[str, ...] = ()
        """`namespace/name` of its ResourceClaims."""
        self.claim_dra: Mapping[str, Mapping[str, DraResource]] = NO_CLAIMS
        """Devices of each of its claims: a claim that tasks share counts once."""
        self.best_effort = self.request.is_empty()
        self.preemptable = is_preemptable(pod.labels, pod.annotations, default=True)
        self.revocable_zone = revocable_zone(pod.annotations)
        self.restartable_init = any(container.sidecar for container in pod.template.init_containers)
        self.gated = bool(pod.gates)
        self.priority = _task_priority(pod)
        self.status = status_of(pod)
        self.node_name = pod.node
        self.eviction_occurred = False
        self.hyper_node = ""
        """The domain of its sub-job when the task was placed in this session (JobAllocatedHyperNode)."""
        self.last_transaction: Transaction | None = None

    def __repr__(self) -> str:
        return f"TaskInfo({self.key} {self.status.label} {self.node_name})"

    def copy(self) -> "TaskInfo":
        """An independent copy, without what the session noted about its eviction and domain."""
        copied = TaskInfo.__new__(TaskInfo)
        copied.pod, copied.uid, copied.key = self.pod, self.uid, self.key
        copied.namespace, copied.name = self.namespace, self.name
        copied.job, copied.role = self.job, self.role
        copied.request, copied.init_request, copied.best_effort = self.request, self.init_request, self.best_effort
        copied.dra, copied.claim_keys, copied.claim_dra = self.dra, self.claim_keys, self.claim_dra
        copied.preemptable, copied.revocable_zone = self.preemptable, self.revocable_zone
        copied.restartable_init, copied.gated, copied.priority = self.restartable_init, self.gated, self.priority
        copied.status, copied.node_name = self.status, self.node_name
        # These stay with the original: upstream's TaskInfo.Clone leaves them out.
        copied.eviction_occurred, copied.hyper_node = False, ""
        copied.last_transaction = self.last_transaction
        return copied

    def precedes(self, other: "TaskInfo") -> bool:
        """True if it comes before the other where no plugin decides (helpers.CompareTask).

        By the number at the end of their names, if both have one; else the older, then by uid.
        """
        mine, theirs = _index_in_name(self.name), _index_in_name(other.name)
        if mine is not None and theirs is not None and mine != theirs:
            return mine < theirs
        return (self.pod.created, self.uid) < (other.pod.created, other.uid)

    def save_transaction(self) -> None:
        """Save the session's attempt before it is undone (GenerateLastTxContext)."""
        self.last_transaction = Transaction(self.status, self.node_name, self.eviction_occurred, self.hyper_node)


def request_of(pod: Pod, ignored: Iterable[str] = ()) -> Resource:
    """A pod's total request, which includes one of `pods` (GetPodResourceRequest); `ignored` resources are left out."""
    result = Resource.from_amounts(pod.template.requests, ignored)
    result.add_scalar(PODS, 1.0)
    return result


def _index_in_name(name: str) -> int | None:
    """The number of a pod of a Volcano job, `job-task-3`; None for any other name."""
    parts = name.split("-")
    return int(parts[-1]) if len(parts) >= 3 and parts[-1].isdecimal() else None


def _task_priority(pod: Pod) -> int:
    text = pod.annotations.get(TASK_PRIORITY, "")
    return int(text) if text.lstrip("+-").isdecimal() and len(text) < 12 else pod.priority


class Qos(IntEnum):
    """QoS classes in eviction order."""

    BEST_EFFORT = 0
    BURSTABLE = 1
    GUARANTEED = 2


def qos_of(template: PodTemplate) -> Qos:
    """QoS class of a pod (GetPodQOS).

    Guaranteed if every container limits cpu and memory to what it requests, best effort if none has requests or limits.
    """
    containers = (*template.containers, *template.init_containers)
    pairs = [(one.effective.get(name, 0), one.limits.get(name, 0)) for one in containers for name in (CPU, MEMORY)]
    if not any(requested or limited for requested, limited in pairs):
        return Qos.BEST_EFFORT
    firm = all(limited and requested == limited for requested, limited in pairs)
    return Qos.GUARANTEED if firm else Qos.BURSTABLE


class DraResource(Struct):
    """Claimed devices of one class: their number and capacity (api.DRAResource). Mutates by `add` and `sub`."""

    count: int = 0
    capacity: dict[str, int] = field(default_factory=dict)
    """Amounts by dimension, in base units (bytes for memory)."""

    def copy(self) -> "DraResource":
        """An independent copy."""
        return DraResource(self.count, dict(self.capacity))

    def add(self, other: "DraResource", times: int = 1) -> None:
        """Add the devices of another request, multiplied by `times`."""
        self.count += other.count * times
        for name, amount in other.capacity.items():
            self.capacity[name] = self.capacity.get(name, 0) + amount * times

    def sub(self, other: "DraResource") -> None:
        """Subtract the devices of another request, never below zero."""
        self.count = max(self.count - other.count, 0)
        for name in self.capacity.keys() & other.capacity.keys():
            self.capacity[name] = max(self.capacity[name] - other.capacity[name], 0)


Devices = Mapping[str, DraResource]
"""Claimed devices by device class."""
