"""The closed set of object kinds: one union, one tag and one table name each.

To add a kind, write its struct and add one line to `TABLES`; the union, the events, the state and the snapshot follow.
"""

from typing import Union

from gpuconsole.model.autoscaling import NodeGroup, NodePool
from gpuconsole.model.cluster import (
    LimitRange,
    Namespace,
    Node,
    Pod,
    PodDisruptionBudget,
    PriorityClass,
    ResourceQuota,
    RuntimeClass,
)
from gpuconsole.model.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from gpuconsole.model.job import Job
from gpuconsole.model.kai import KaiPodGroup, KaiQueue, SchedulingShard
from gpuconsole.model.multikueue import MultiKueueCluster, MultiKueueConfig
from gpuconsole.model.provisioning import ProvisioningRequest, ProvisioningRequestConfig, StoredTemplate
from gpuconsole.model.queues import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    ResourceFlavor,
    Topology,
    WorkloadPriorityClass,
)
from gpuconsole.model.scheduling_groups import CompositePodGroup, SchedulingWorkload
from gpuconsole.model.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from gpuconsole.model.telemetry import NodeTelemetry
from gpuconsole.model.training_runtimes import TrainingRuntime
from gpuconsole.model.volcano import HyperNode, Numatopology, PodGroup, VolcanoQueue
from gpuconsole.model.workloads import Workload

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
