"""Kubernetes' core objects: nodes, pods, namespaces, priorities, quotas, limits, storage, and its own gang scheduling.

The Workload (KEP-4671) and CompositePodGroup (KEP-6012) of scheduling.k8s.io are at the end; their PodGroups are
`volcano.PodGroup`s, like those of other gang schedulers.

Storage for pods are PersistentVolumes, claims, StorageClasses, and volume limits of nodes.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct, field
from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.gpus.mig import MigInstance
from gpuconsole.model.labels import (
    HOSTNAME,
    NO_LABELS,
    ClusterScopedObject,
    LabelSelector,
    NamespacedObject,
    NodeTerm,
    Requirement,
    Taint,
)
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.resources import EMPTY, Resources, gpus


class Node(ClusterScopedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A node. Its GPUs have the indices 0 … `gpus` - 1."""

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
    """Time since which the node is not ready; None if it is ready, or if its readiness is unknown."""
    conditions: Mapping[str, bool] = {}
    """Conditions of the node except Ready, such as MemoryPressure or DiskPressure."""
    images: Mapping[str, int] = {}
    """Size in bytes of each image on the node, by each of its names."""
    synthesised: bool = False
    """Created from a flavor because the input has no nodes."""

    @property
    def gpus(self) -> int:
        return gpus(self.allocatable)

    def twin(self, name: str) -> "Node":
        """Return a new node of this shape with another name: ready, schedulable, without a uid and conditions."""
        labels = {**self.labels, HOSTNAME: name} if HOSTNAME in self.labels else self.labels
        joins = replace(self, name=name, uid="", labels=labels, conditions={})
        return replace(joins, unschedulable=False, ready=True, not_ready_since=None)


class PodPhase(StrEnum):
    """Phase of a pod."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


NODE_LOST = "NodeLost"
"""Reason of a pod that failed because its node failed."""


class Pod(NamespacedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
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
    """Pods of the same gang start together or not at all; empty for no gang."""
    gang_size: int = 0
    """Number of pods of the gang that must be placed together."""
    gates: tuple[str, ...] = ()
    phase: PodPhase = PodPhase.PENDING
    node: str = ""
    gpus: tuple[int, ...] = ()
    """Indices of its GPUs on its node."""
    guessed: bool = False
    """The indices are assumed: a live cluster only states the number of GPUs."""
    slices: tuple[MigInstance, ...] = ()
    """Its MIG instances on that node."""
    bound: Time = 0
    started: Time = 0
    finished: Time = 0
    deleted: Time = 0
    """Time of its deletion request, 0 without one; it holds its node's resources until it is gone."""
    nominated_node: str = ""
    reason: str = ""
    """Reason for its state (`Unschedulable`, `Preempted`, `NodeLost`)."""
    message: str = ""
    unready: bool = False
    """True if the pod runs, but one of its containers is not ready."""
    restarts: int = 0
    """Number of restarts of its containers."""
    hostname: str = ""
    subdomain: str = ""
    """Service that resolves its host name."""
    env: Mapping[str, str] = NO_LABELS
    """Environment variables that plugins add to all its containers."""
    command: str = ""
    """Command that a plugin sets for its main container."""

    @property
    def done(self) -> bool:
        return self.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)


class PodDisruptionBudget(NamespacedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Limit on voluntary disruptions (policy/v1). It applies to drains, never to Kueue's evictions."""

    namespace: str = "default"
    name: str
    selector: LabelSelector | None = None
    """Pods of the namespace; None selects none, an empty one all."""
    min_available: str = ""
    """Pods that must stay available: a number, or a percentage (`50%`); empty if max_unavailable is set."""
    max_unavailable: str = ""

    def covers(self, pod: Pod) -> bool:
        """True if the budget selects the pod, which has not ended."""
        return (
            self.namespace == pod.namespace
            and self.selector is not None
            and not pod.done
            and self.selector.matches({**pod.template.labels, **pod.labels})
        )

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


class Namespace(ClusterScopedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A namespace and its labels."""

    name: str
    labels: Mapping[str, str] = NO_LABELS
    named_only: bool = False
    """Created because an object is in it; no manifest declares it."""


class PriorityClass(ClusterScopedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A PriorityClass of Kubernetes, from which pods get their priority."""

    name: str
    value: int
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"
    description: str = ""


SYSTEM_PRIORITIES: Mapping[str, int] = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
"""PriorityClasses that every cluster has, with their values (k8s.io/kubernetes pkg/apis/scheduling/v1 helpers.go)."""


def default_class(classes: Iterable[PriorityClass]) -> tuple[int, str]:
    """Return value and name of the global default PriorityClass; the lowest value if there are several, else 0."""
    return min(((c.value, c.name) for c in classes if c.global_default), default=(0, ""))


class QuotaScope(Struct, frozen=True, omit_defaults=True):
    """Scope that limits which pods a ResourceQuota counts."""

    scope: str
    """BestEffort, NotBestEffort, Terminating, NotTerminating, PriorityClass, CrossNamespacePodAffinity …"""
    operator: str = "Exists"
    """Operator of a scopeSelector's expression; scopes other than PriorityClass only use Exists."""
    values: tuple[str, ...] = ()


class ResourceQuota(NamespacedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Limits and usage of a namespace, per resource."""

    namespace: str = "default"
    name: str
    hard: Resources = EMPTY
    used: Resources = EMPTY
    scopes: tuple[QuotaScope, ...] = ()
    """Scopes of the quota; it counts only pods that are in all of them."""


class RuntimeClass(ClusterScopedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Container runtime, and its overhead per pod."""

    name: str
    handler: str = ""
    overhead: Resources = EMPTY


class LimitRangeItem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits and defaults for one type (Container, Pod or PersistentVolumeClaim)."""

    type: str = "Container"
    max: Resources = EMPTY
    min: Resources = EMPTY
    default: Resources = EMPTY
    default_request: Resources = EMPTY
    max_ratio: Mapping[str, str] = NO_LABELS


class LimitRange(NamespacedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Limits and default requests for the containers, pods and claims of a namespace."""

    namespace: str
    name: str
    items: tuple[LimitRangeItem, ...] = ()


class SchedulingWorkload(NamespacedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A Workload of scheduling.k8s.io: the pod groups of a job. It is not Kueue's Workload."""

    namespace: str = "default"
    name: str
    uid: str = ""
    created: Time = 0
    labels: Mapping[str, str] = NO_LABELS
    annotations: Mapping[str, str] = NO_LABELS
    groups: Mapping[str, int] = {}
    """Name of each pod group or template of one → number of its pods that start together (minCount; basic: 1)."""


class CompositePodGroup(NamespacedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A group of pod groups: PodGroups, or other composite groups, that name it as their parent."""

    namespace: str = "default"
    name: str
    uid: str = ""
    created: Time = 0
    labels: Mapping[str, str] = NO_LABELS
    annotations: Mapping[str, str] = NO_LABELS
    parent_group: str = ""
    """Name of the composite group that contains it; empty for the root of a hierarchy."""
    policy: str = "gang"
    """`gang` or `basic`."""
    min_groups: int = 1
    """Number of its child groups that start together (minGroupCount; basic: 1)."""
    topology_key: str = ""
    """All pods of its child groups must be on nodes with the same value of this label."""


AVAILABLE = "Available"
BOUND = "Bound"
RELEASED = "Released"
"""Phase of a volume whose claim was deleted: an administrator must handle it before it can be bound again."""
LOST = "Lost"
FILESYSTEM = "Filesystem"
ONE_POD = "ReadWriteOncePod"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
"""Provisioner of classes whose volumes an administrator creates."""


class PersistentVolume(ClusterScopedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A volume, bound to at most one claim at a time."""

    name: str
    created: Time = 0
    labels: Mapping[str, str] = NO_LABELS
    storage: int = 0
    """In bytes."""
    storage_class: str = ""
    access_modes: tuple[str, ...] = ()
    mode: str = FILESYSTEM
    node_affinity: tuple[NodeTerm, ...] | None = None
    """Nodes that can use it: any of the terms; None for all nodes."""
    claim: str = ""
    """`namespace/name` of the claim to which it is bound, or for which it is reserved."""
    phase: str = AVAILABLE
    disposable: bool = False
    """True if the volume is deleted with its claim (reclaim policy Delete)."""
    driver: str = ""
    """CSI driver that attaches it."""
    handle: str = ""
    """ID of the volume in its CSI driver."""
    deleted: Time = 0


class PersistentVolumeClaim(NamespacedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A claim for storage; pods that name it share it."""

    namespace: str = "default"
    name: str
    uid: str = ""
    created: Time = 0
    storage_class: str | None = None
    """Empty for no class; None for the default class."""
    storage: int = 0
    """Requested bytes."""
    access_modes: tuple[str, ...] = ()
    mode: str = FILESYSTEM
    selector: LabelSelector | None = None
    """Selects volumes; None selects any."""
    volume: str = ""
    """Volume to which it is bound, or the only one to which it may be bound."""
    bound: bool = False
    """True if the claim and its volume refer to each other."""
    phase: str = ""
    pod: str = ""
    """Pod for which it was created, and with which it is deleted."""
    job: str = ""
    """Job for which it was created, and with which it is deleted, `Kind/namespace/name`."""
    selected_node: str = ""
    """Node of the pod for which a volume is being provisioned."""
    deleted: Time = 0


class StorageClass(ClusterScopedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Class of storage: its provisioner and volume binding mode."""

    name: str
    created: Time = 0
    provisioner: str = ""
    waits: bool = False
    """True binds a claim once a pod that uses it has a node (WaitForFirstConsumer), False immediately (Immediate)."""
    topologies: tuple[tuple[Requirement, ...], ...] = ()
    """Label requirements of nodes for which volumes may be provisioned, one of which must match (allowedTopologies);
    empty for all nodes.
    """
    default: bool = False
    keeps: bool = False
    """Its volumes are kept when their claims are deleted (reclaimPolicy Retain)."""

    @property
    def provisions(self) -> bool:
        """True if volumes are provisioned dynamically."""
        return self.provisioner not in ("", NO_PROVISIONER)


class CSINode(ClusterScopedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Volume limits of a node by CSI driver; a driver without a limit is unlimited."""

    name: str
    limits: Mapping[str, int] = {}
