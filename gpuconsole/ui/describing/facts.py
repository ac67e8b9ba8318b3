"""Descriptions of objects by a few of their fields."""

from gpuconsole.model.autoscaling import NodeGroup, NodePool
from gpuconsole.model.cluster import (
    CompositePodGroup,
    LimitRange,
    Namespace,
    PodDisruptionBudget,
    PriorityClass,
    ResourceQuota,
    RuntimeClass,
    SchedulingWorkload,
)
from gpuconsole.model.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from gpuconsole.model.kai import KaiPodGroup, KaiQueue, SchedulingShard
from gpuconsole.model.queues import (
    AdmissionCheck,
    LocalQueue,
    Topology,
    WorkloadPriorityClass,
)
from gpuconsole.model.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from gpuconsole.model.volcano import HyperNode, Numatopology, PodGroup, VolcanoQueue
from gpuconsole.ui.paint import Painted
from gpuconsole.ui.widgets.textpane import field

_SHOWN: tuple[tuple[type, tuple[str, ...]], ...] = (
    (LocalQueue, ("cluster_queue", "stop_policy", "fair_weight")),
    (WorkloadPriorityClass, ("value", "description")),
    (PriorityClass, ("value", "preemption_policy", "global_default", "description")),
    (Topology, ("levels",)),
    (AdmissionCheck, ("controller", "active")),
    (Namespace, ("named_only",)),
    (LimitRange, ()),
    (RuntimeClass, ("handler",)),
    (VolcanoQueue, ("weight", "parent", "reclaimable")),
    (SchedulingShard, ("partition", "gpu_strategy", "cpu_strategy", "queue_depth", "args")),
    (KaiQueue, ("parent", "priority", "gpu", "cpu", "memory")),
    (KaiPodGroup, ("queue", "min_member", "priority_class", "preemptibility")),
    (PodGroup, ("min_member", "queue", "topology_key", "parent_group")),
    (SchedulingWorkload, ("groups",)),
    (CompositePodGroup, ("min_groups", "topology_key", "parent_group")),
    (HyperNode, ("tier", "tier_name")),
    (Numatopology, ("cpu_policy", "topology_policy")),
    (ResourceQuota, ("hard", "used")),
    (NodePool, ("consolidation_policy", "consolidate_after", "weight")),
    (NodeGroup, ("autoscaler", "launched", "gone", "interrupted")),
    (PodDisruptionBudget, ("min_available", "max_unavailable")),
    (StorageClass, ("provisioner", "waits", "default")),
    (CSINode, ("limits",)),
    (PersistentVolume, ("storage", "storage_class", "phase", "claim")),
    (PersistentVolumeClaim, ("storage", "storage_class", "phase", "volume", "selected_node")),
    (DeviceClass, ("extended_resource", "selectors")),
    (ResourceSlice, ("driver", "pool", "generation")),
    (ResourceClaimTemplate, ()),
    (ResourceClaim, ()),
)


def plain_facts(obj: object) -> list[Painted]:
    """The fields that describe an object of this kind."""
    names = next(names for kind, names in _SHOWN if isinstance(obj, kind))
    return [field(name.replace("_", " ").capitalize(), getattr(obj, name)) for name in names]
