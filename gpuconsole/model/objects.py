"""The closed set of object kinds, and upper limits on the numbers in them.

Each kind has one struct in `Object` and one table name in `TABLES`. To add a kind, write its struct, add it at the same
place in both, and add its table to `Snapshot`.

GPUs and indexes are simulated individually, so an absurd number would never finish: `insane_values` finds them.

`InternTable` shares equal parts of objects to save memory: 100,000 workloads have a few dozen different pod templates.

Decoding creates each part anew, but objects are immutable, so equal parts can be shared. Mappings in a different order
are not equal.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, Union

import msgspec
from msgspec.structs import replace

from gpuconsole.model.autoscaling import (
    NodeGroup,
    NodePool,
    ProvisioningRequest,
    ProvisioningRequestConfig,
    StoredTemplate,
)
from gpuconsole.model.cluster import (
    CompositePodGroup,
    CSINode,
    LimitRange,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    PriorityClass,
    ResourceQuota,
    RuntimeClass,
    SchedulingWorkload,
    StorageClass,
)
from gpuconsole.model.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from gpuconsole.model.job import BatchRules, Job, TrainingRuntime
from gpuconsole.model.kai import KaiPodGroup, KaiQueue, SchedulingShard
from gpuconsole.model.labels import NO_LABELS
from gpuconsole.model.pod_template import PodSet, PodTemplate
from gpuconsole.model.queues import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    MultiKueueCluster,
    MultiKueueConfig,
    ResourceFlavor,
    Topology,
    WorkloadPriorityClass,
)
from gpuconsole.model.resources import MANY, Resources, is_gpu, is_mig
from gpuconsole.model.telemetry import NodeTelemetry
from gpuconsole.model.volcano import HyperNode, Numatopology, PodGroup, VolcanoQueue, VolcanoSpec
from gpuconsole.model.workloads import Admission, Condition, PodSetNeeds, Workload

Object = Union[
    Namespace,
    LimitRange,
    PodDisruptionBudget,
    RuntimeClass,
    PriorityClass,
    WorkloadPriorityClass,
    Topology,
    Node,
    StorageClass,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    DeviceClass,
    ResourceSlice,
    ResourceClaimTemplate,
    ResourceClaim,
    ResourceFlavor,
    ProvisioningRequestConfig,
    MultiKueueCluster,
    MultiKueueConfig,
    AdmissionCheck,
    Cohort,
    ClusterQueue,
    LocalQueue,
    HyperNode,
    Numatopology,
    ResourceQuota,
    VolcanoQueue,
    SchedulingWorkload,
    CompositePodGroup,
    PodGroup,
    SchedulingShard,
    KaiQueue,
    KaiPodGroup,
    NodePool,
    NodeGroup,
    TrainingRuntime,
    Job,
    Workload,
    StoredTemplate,
    ProvisioningRequest,
    Pod,
    NodeTelemetry,
]
"""Kinds of all objects in a cluster, in the order in which they are created."""

TABLES: dict[type, str] = {
    Namespace: "namespaces",
    LimitRange: "limit_ranges",
    PodDisruptionBudget: "pod_disruption_budgets",
    RuntimeClass: "runtime_classes",
    PriorityClass: "priority_classes",
    WorkloadPriorityClass: "workload_priority_classes",
    Topology: "topologies",
    Node: "nodes",
    StorageClass: "storage_classes",
    CSINode: "csi_nodes",
    PersistentVolume: "persistent_volumes",
    PersistentVolumeClaim: "persistent_volume_claims",
    DeviceClass: "device_classes",
    ResourceSlice: "resource_slices",
    ResourceClaimTemplate: "resource_claim_templates",
    ResourceClaim: "resource_claims",
    ResourceFlavor: "flavors",
    ProvisioningRequestConfig: "provisioning_request_configs",
    MultiKueueCluster: "multikueue_clusters",
    MultiKueueConfig: "multikueue_configs",
    AdmissionCheck: "admission_checks",
    Cohort: "cohorts",
    ClusterQueue: "cluster_queues",
    LocalQueue: "local_queues",
    HyperNode: "hyper_nodes",
    Numatopology: "numatopologies",
    ResourceQuota: "resource_quotas",
    VolcanoQueue: "volcano_queues",
    SchedulingWorkload: "scheduling_workloads",
    CompositePodGroup: "composite_pod_groups",
    PodGroup: "pod_groups",
    SchedulingShard: "scheduling_shards",
    KaiQueue: "kai_queues",
    KaiPodGroup: "kai_pod_groups",
    NodePool: "node_pools",
    NodeGroup: "node_groups",
    TrainingRuntime: "training_runtimes",
    Job: "jobs",
    Workload: "workloads",
    StoredTemplate: "pod_templates",
    ProvisioningRequest: "provisioning_requests",
    Pod: "pods",
    NodeTelemetry: "telemetry",
}
"""Struct → name of its table in the state and the Snapshot; also the order of creation."""


MOST_DEVICES = 4_096
"""Most GPUs of one node, including time-slicing replicas."""
MOST_LEVELS = 100
"""Most levels of cohorts, or of queues; schedulers visit them level by level."""
_CARDS = "volcano.sh/gpu-number"
"""Resource of whole GPUs in Volcano's device plugin."""


def too_many_devices(resource: str, amount: int) -> bool:
    """True for more devices than one node can have; each device is stored by its index."""
    return amount > MOST_DEVICES and (is_gpu(resource) or is_mig(resource) or resource == _CARDS)


def parent_of(obj: object) -> str:
    """Return the parent cohort or queue; empty if there is none."""
    return obj.parent if isinstance(obj, Cohort | VolcanoQueue | KaiQueue) else ""


def too_deep(parents: Mapping[str, str]) -> str:
    """Return the first name with too many ancestors; empty if there is none. Cycles are ignored."""
    above: dict[str, int] = {}
    for name in parents:
        trail: dict[str, None] = {}
        at = name
        while at in parents and at not in above and at not in trail:
            trail[at] = None
            at = parents[at]
        known = above.get(at, -1)
        for depth, one in enumerate(reversed(trail), start=known + 1):
            above[one] = depth if at not in trail else 0
        if above[name] > MOST_LEVELS:
            return name
    return ""


def insane_values(objects: Sequence[Object]) -> Iterator[str]:
    """Yield errors for absurd values in these objects: object, field, and the valid range."""
    for kind in (Cohort, VolcanoQueue, KaiQueue):
        deep = too_deep({obj.name: obj.parent for obj in objects if isinstance(obj, kind)})
        if deep:
            place = f"{kind.__name__}/{deep} parent"
            yield f"{place}: more than {MOST_LEVELS} levels lie above it; nest fewer in each other"
    for obj in objects:
        match obj:
            case Node():
                for name, amount in obj.allocatable.items():
                    if too_many_devices(name, amount):
                        place = f"Node/{obj.name} allocatable[{name}]"
                        yield f"{place}: {amount} are more than a machine has; write {MOST_DEVICES} or less"
            case Job(rules=BatchRules(completions=int() as completions)) if not 0 <= completions <= MANY:
                yield f"{obj.key} rules.completions: {completions} is out of range; write 0 to {MANY}"
            case Job(rules=BatchRules(), pod_sets=()):
                yield f"{obj.key} pod_sets: there is none; a Job has one"
            case Job(volcano=VolcanoSpec(tasks=tasks)) if len(tasks) > len(obj.pod_sets):
                said = f"{len(tasks)} tasks are more than the job's {len(obj.pod_sets)} pod sets"
                yield f"{obj.key} volcano.tasks: {said}; write one for each pod set, or fewer"
            case _:
                pass


MOST = 4096
"""Most values of a type that are kept."""
LARGEST = 4096
"""Largest value in bytes that is kept; larger ones are rarely repeated."""
_ENCODER = msgspec.msgpack.Encoder()
_T = TypeVar("_T")


class InternTable(dict[bytes | str, _T]):
    """Cache that returns the same object for equal values of one type. Mutable; thread-safe."""

    def one(self, value: _T) -> _T:
        """Return the cached object that equals this value; caches and returns the value itself if there is none."""
        said = value if isinstance(value, str) else _ENCODER.encode(value)
        known = self.get(said)
        return self.keep(said, value) if known is None else known

    def keep(self, said: bytes | str, value: _T) -> _T:
        """Cache a value under its encoding `said`, unless it is too large, and return it."""
        if len(said) <= LARGEST:
            if len(self) >= MOST:
                self.clear()
            self[said] = value
        return value


_TEXTS = InternTable[str]()
_MAPPINGS = InternTable[Mapping[str, str]]()
_POD_SETS = InternTable[PodSet]()
_TEMPLATES = InternTable[PodTemplate]()
_ADMISSIONS = InternTable[Admission]()
_NEEDS = InternTable[PodSetNeeds]()
_RESOURCES = InternTable[Resources]()
_CONDITIONS = InternTable[Mapping[str, bool]]()


def intern(obj: Object) -> Object:
    """Return an equal object that shares its parts, such as the pod template, with earlier objects."""
    match obj:
        case Workload():
            return _workload(obj)
        case Job():
            return replace(obj, pod_sets=tuple(map(_pod_set, obj.pod_sets)), **_names(obj))
        case Pod():
            return replace(obj, template=_template(obj.template), **_names(obj))
        case Node():
            return replace(
                obj,
                labels={_TEXTS.one(name): _TEXTS.one(value) for name, value in obj.labels.items()},
                capacity=_RESOURCES.one(obj.capacity),
                allocatable=_RESOURCES.one(obj.allocatable),
                conditions=_CONDITIONS.one(obj.conditions),
            )
        case _:
            return obj


def _names(obj: Workload | Job | Pod) -> dict[str, Any]:
    return {
        "namespace": _TEXTS.one(obj.namespace),
        "labels": _MAPPINGS.one(obj.labels),
        "annotations": _MAPPINGS.one(obj.annotations),
    }


def _workload(workload: Workload) -> Workload:
    admission = workload.admission
    return replace(
        workload,
        **_names(workload),
        queue=_TEXTS.one(workload.queue),
        priority_class=_TEXTS.one(workload.priority_class),
        priority_kind=_TEXTS.one(workload.priority_kind),
        pod_sets=tuple(map(_pod_set, workload.pod_sets)),
        conditions=tuple(map(_condition, workload.conditions)),
        admission=None if admission is None else _ADMISSIONS.one(admission),
        resource_requests=tuple(map(_NEEDS.one, workload.resource_requests)),
    )


def _condition(condition: Condition) -> Condition:
    text = _TEXTS.one
    return Condition(
        text(condition.type), condition.status, text(condition.reason), text(condition.message), condition.since
    )


def _pod_set(pod_set: PodSet) -> PodSet:
    said = _ENCODER.encode(pod_set)
    known = _POD_SETS.get(said)
    return known or _POD_SETS.keep(said, replace(pod_set, template=_template(pod_set.template)))


def _template(template: PodTemplate) -> PodTemplate:
    """Share a template's parts; labels and hostname, which often differ per pod, are interned separately."""
    rest = _TEMPLATES.one(replace(template, labels=NO_LABELS, annotations=NO_LABELS, hostname=""))
    labels, annotations = _MAPPINGS.one(template.labels), _MAPPINGS.one(template.annotations)
    return replace(rest, labels=labels, annotations=annotations, hostname=template.hostname)
