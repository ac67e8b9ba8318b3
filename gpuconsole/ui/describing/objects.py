"""Descriptions of objects, shown by `d`: sections of fields from the Snapshot, the newest events last."""

from typing import Any, assert_never

from gpuconsole.model.autoscaling import (
    NodeGroup,
    NodePool,
    ProvisioningRequest,
    ProvisioningRequestConfig,
    StoredTemplate,
)
from gpuconsole.model.clock import format_time
from gpuconsole.model.cluster import (
    CompositePodGroup,
    LimitRange,
    Namespace,
    Node,
    Pod,
    PodDisruptionBudget,
    PriorityClass,
    ResourceQuota,
    RuntimeClass,
    SchedulingWorkload,
)
from gpuconsole.model.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from gpuconsole.model.job import Job, TrainingRuntime
from gpuconsole.model.kai import KaiPodGroup, KaiQueue, SchedulingShard
from gpuconsole.model.objects import Object
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
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from gpuconsole.model.telemetry import NodeTelemetry
from gpuconsole.model.volcano import HyperNode, Numatopology, PodGroup, VolcanoQueue
from gpuconsole.model.workloads import Workload
from gpuconsole.ui.describing.events import about, events
from gpuconsole.ui.describing.facts import plain_facts
from gpuconsole.ui.describing.nodes import node_facts
from gpuconsole.ui.describing.parts import mapped, taint_list
from gpuconsole.ui.describing.quotas import active, quota_owner, used_lately, users
from gpuconsole.ui.describing.workloads import job_lines, pod_facts, workload_lines
from gpuconsole.ui.paint import Painted
from gpuconsole.ui.widgets.textpane import field, heading


def describe(snapshot: Snapshot, table: str, key: str) -> list[Painted] | None:
    """The description of an object; None if the Snapshot does not contain it."""
    obj: Object | None = getattr(snapshot, table).get(key)
    if obj is None:
        return None
    lines = [heading(f"{_kind(obj)} {key.removeprefix(_kind(obj) + '/')}"), *_metadata(obj)]
    match obj:
        case Workload():
            lines += workload_lines(snapshot, obj)
        case Job():
            lines += job_lines(snapshot, obj)
        case Pod():
            lines += pod_facts(obj)
        case Node():
            lines += node_facts(snapshot, obj)
        case ClusterQueue():
            lines += [*active(snapshot, obj), *quota_owner(obj)]
        case Cohort():
            lines += quota_owner(obj)
        case LocalQueue():
            lines += [*plain_facts(obj), *used_lately(obj)]
        case ResourceFlavor():
            lines += [
                *mapped("Node labels", obj.node_labels),
                *taint_list(obj.node_taints),
                *users(snapshot, obj),
            ]
        case (
            WorkloadPriorityClass() | PriorityClass() | Topology() | AdmissionCheck() | Namespace()
            | LimitRange() | RuntimeClass() | VolcanoQueue() | PodGroup() | NodePool() | HyperNode() | DeviceClass()
            | Numatopology() | ResourceQuota()
            | SchedulingWorkload() | CompositePodGroup() | NodeGroup() | PodDisruptionBudget() | KaiQueue()
            | KaiPodGroup() | SchedulingShard()
            | StorageClass() | CSINode() | PersistentVolume() | PersistentVolumeClaim() | TrainingRuntime()
            | ResourceSlice() | ResourceClaimTemplate() | ResourceClaim() | ProvisioningRequestConfig()
            | ProvisioningRequest() | StoredTemplate() | MultiKueueCluster() | MultiKueueConfig()
            | NodeTelemetry()
        ):  # fmt: skip
            lines += [*plain_facts(obj), *users(snapshot, obj)]
        case _:
            assert_never(obj)
    return [*lines, *events(about(snapshot.recent, table, key), snapshot.time, key)]


def _kind(obj: Object) -> str:
    return obj.kind if isinstance(obj, Job) else type(obj).__name__


def _metadata(obj: Any) -> list[Painted]:
    lines = []
    if getattr(obj, "created", 0):
        lines.append(field("Created", format_time(obj.created)))
    for title, name in (("Labels", "labels"), ("Annotations", "annotations")):
        lines += mapped(title, getattr(obj, name, {}))
    return lines
