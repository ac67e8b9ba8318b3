"""Kubernetes' core objects: nodes, pods, namespaces, priorities, quotas and limits."""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct, field
from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.gpus.mig import MigInstance
from gpuconsole.model.labels import HOSTNAME, NO_LABELS, LabelSelector, Taint
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.resources import EMPTY, Resources, gpus


class Node(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A node. Its GPUs are numbered 0 … `gpus` - 1; pods name the indices that they hold."""

    name: str
    uid: str = ""
    created: Time = 0
    labels: Mapping[str, str] = NO_LABELS
    annotations: Mapping[str, str] = NO_LABELS
    taints: tuple[Taint, ...] = ()
    capacity: Resources = EMPTY
    allocatable: Resources = EMPTY
    unschedulable: bool = False
    """Cordoned."""
    ready: bool = True
    not_ready_since: Time | None = None
    """None also where nothing says whether it is ready."""
    conditions: Mapping[str, bool] = {}
    """Its other conditions: MemoryPressure, DiskPressure …"""
    images: Mapping[str, int] = {}
    """Size in bytes of each image that it holds, by each of its names."""
    synthesised: bool = False
    """Made from a flavor because the input had no nodes."""

    @property
    def key(self) -> str:
        return self.name

    @property
    def gpus(self) -> int:
        return gpus(self.allocatable)

    def twin(self, name: str) -> "Node":
        """Return a copy of this node under another name, as it joins: ready and schedulable."""
        labels = {**self.labels, HOSTNAME: name} if HOSTNAME in self.labels else self.labels
        joins = replace(self, name=name, uid="", labels=labels, conditions={})
        return replace(joins, unschedulable=False, ready=True, not_ready_since=None)


class PodPhase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


NODE_LOST = "NodeLost"
"""The reason of a pod that failed because its node did."""


class Pod(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A pod, as the API server would show it."""

    namespace: str = "default"
    name: str
    uid: str = ""
    created: Time = 0
    labels: Mapping[str, str] = NO_LABELS
    annotations: Mapping[str, str] = NO_LABELS
    template: PodTemplate = field(default_factory=PodTemplate)
    priority: int = 0
    """Resolved from the priority class when the pod was created."""
    job: str = ""
    """`Kind/namespace/name` of the job that owns it."""
    workload: str = ""
    """`namespace/name` of the Workload that it belongs to."""
    pod_set: str = ""
    index: int = 0
    gang: str = ""
    """Pods of the same non-empty gang start together or not at all."""
    gang_size: int = 0
    """How many pods of the gang must be placed at once."""
    gates: tuple[str, ...] = ()
    phase: PodPhase = PodPhase.PENDING
    node: str = ""
    gpus: tuple[int, ...] = ()
    """Indices of the GPUs that it owns on its node."""
    guessed: bool = False
    """Nobody said which GPUs those are: a live cluster only tells how many."""
    slices: tuple[MigInstance, ...] = ()
    """The MIG instances that it owns there."""
    bound: Time = 0
    started: Time = 0
    finished: Time = 0
    deleted: Time = 0
    """When its deletion was asked for; it holds its node until it is gone."""
    nominated_node: str = ""
    reason: str = ""
    """Why it is where it is (`Unschedulable`, `Preempted`, `NodeLost`)."""
    message: str = ""
    unready: bool = False
    """It runs, and one of its containers is not ready."""
    hostname: str = ""
    subdomain: str = ""
    """The service in which it is known by its host name."""
    env: Mapping[str, str] = NO_LABELS
    """What plugins add to the environment of all its containers."""
    command: str = ""
    """What a plugin lets its main container run."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def done(self) -> bool:
        return self.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)


class PodDisruptionBudget(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Limit on voluntary disruptions (policy/v1). It applies to drains, never to Kueue's evictions."""

    namespace: str = "default"
    name: str
    selector: LabelSelector | None = None
    """Which pods of the namespace; None is none, an empty one all."""
    min_available: str = ""
    """A number, or a part of the pods (`50%`); empty where the other one is given."""
    max_unavailable: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    def allowed(self, expected: int, healthy: int) -> int:
        """Return status.disruptionsAllowed for the numbers of expected and healthy pods."""
        if self.max_unavailable:
            stay = max(0, expected - _part(self.max_unavailable, expected))
        else:
            stay = _part(self.min_available, expected)
        return max(0, healthy - stay)


def _part(text: str, total: int) -> int:
    """Read a number, or a percentage of the total, rounded up; 0 for anything else."""
    number = text.removesuffix("%")
    if not number.isdecimal():
        return 0
    return -(-int(number) * total // 100) if text.endswith("%") else int(number)


class Namespace(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    name: str
    labels: Mapping[str, str] = NO_LABELS
    named_only: bool = False
    """Made because something named it; no manifest declared it."""

    @property
    def key(self) -> str:
        return self.name


class PriorityClass(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    name: str
    value: int
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"
    description: str = ""

    @property
    def key(self) -> str:
        return self.name


SYSTEM_PRIORITIES: Mapping[str, int] = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
"""PriorityClasses that every cluster has, with their values (k8s.io/kubernetes pkg/apis/scheduling/v1 helpers.go)."""


def default_class(classes: Iterable[PriorityClass]) -> tuple[int, str]:
    """Return value and name of the global default PriorityClass; the lowest value if there are several, else 0."""
    return min(((c.value, c.name) for c in classes if c.global_default), default=(0, ""))


class QuotaScope(Struct, frozen=True, omit_defaults=True):
    """A scope that limits which pods a ResourceQuota counts."""

    scope: str
    """BestEffort, NotBestEffort, Terminating, NotTerminating, PriorityClass, CrossNamespacePodAffinity …"""
    operator: str = "Exists"
    """Makes a difference for priority classes only."""
    values: tuple[str, ...] = ()


class ResourceQuota(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Limits and usage of a namespace, per resource."""

    namespace: str = "default"
    name: str
    hard: Resources = EMPTY
    used: Resources = EMPTY
    scopes: tuple[QuotaScope, ...] = ()
    """It counts pods that are in all of them."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class RuntimeClass(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A container runtime, and its overhead per pod."""

    name: str
    handler: str = ""
    overhead: Resources = EMPTY

    @property
    def key(self) -> str:
        return self.name


class LimitRangeItem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits and defaults for one type (Container or Pod)."""

    type: str = "Container"
    max: Resources = EMPTY
    min: Resources = EMPTY
    default: Resources = EMPTY
    default_request: Resources = EMPTY
    max_ratio: Mapping[str, str] = NO_LABELS


class LimitRange(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    namespace: str
    name: str
    items: tuple[LimitRangeItem, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"
