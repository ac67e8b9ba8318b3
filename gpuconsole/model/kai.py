"""KAI Scheduler's queues (scheduling.run.ai/v2) and pod groups (scheduling.run.ai/v2alpha2)."""

from collections.abc import Mapping

from msgspec import Struct

from gpuconsole.model.clock import Span, Time
from gpuconsole.model.labels import NO_LABELS, ClusterScopedObject, NamespacedObject

UNLIMITED = -1.0
NODE_POOL_LABEL = "kai.scheduler/node-pool"
"""Label that assigns nodes, queues and pod groups to a SchedulingShard (nodePoolLabelKey)."""
BINPACK, SPREAD = "binpack", "spread"
UNSCHEDULABLE_ON_NODE_POOL = "UnschedulableOnNodePool"
"""Type of the condition with the reason why a pod group cannot be scheduled."""


class QueueResource(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One resource of a queue: CPU in millicores, memory in megabytes, GPUs. -1 is unlimited."""

    quota: float = 0
    """Deserved quota, which is allocated before any over-quota resources."""
    over_quota_weight: float = 0
    """Weight for its share of the resources beyond all quotas; 0 gets none."""
    limit: float = 0
    """Maximum allocation."""


EVERYTHING = QueueResource(quota=UNLIMITED, over_quota_weight=1, limit=UNLIMITED)


class KaiQueue(ClusterScopedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A KAI queue; only queues without children take jobs."""

    name: str
    uid: str = ""
    created: Time = 0
    display_name: str = ""
    parent: str = ""
    gpu: QueueResource = QueueResource()
    cpu: QueueResource = QueueResource()
    memory: QueueResource = QueueResource()
    priority: int = 100
    """Over-quota resources go to queues of higher priority first."""
    preempt_min_runtime: Span | None = None
    """Minimum runtime of a job before a job of the same queue may preempt it."""
    reclaim_min_runtime: Span | None = None
    """Minimum runtime of a job before a job of another queue may reclaim its resources."""
    labels: Mapping[str, str] = NO_LABELS


class ShardSetting(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A SchedulingShard's setting of a plugin or action; None leaves the default."""

    enabled: bool | None = None
    priority: int | None = None
    """Plugins or actions of higher priority run first."""
    arguments: Mapping[str, str] | None = None


class SchedulingShard(ClusterScopedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A KAI scheduler for a partition: the nodes, queues and pod groups with one value of a label."""

    name: str
    uid: str = ""
    created: Time = 0
    partition: str = ""
    """partitionLabelValue; empty for objects without the label."""
    gpu_strategy: str = BINPACK
    """placementStrategy.gpu: `binpack` or `spread`."""
    cpu_strategy: str = BINPACK
    queue_depth: Mapping[str, int] = {}
    """Action → most jobs of each queue that it tries (queueDepthPerAction)."""
    k_value: float | None = None
    preempt_min_runtime: str = ""
    """minRuntime.preemptMinRuntime, as a duration."""
    reclaim_min_runtime: str = ""
    plugin_settings: Mapping[str, ShardSetting] = {}
    action_settings: Mapping[str, ShardSetting] = {}
    args: Mapping[str, str] = {}
    """Flags of the scheduler, by name."""


class KaiTopology(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Required and preferred topology levels for pods."""

    topology: str = ""
    required: str = ""
    preferred: str = ""


class KaiSubGroup(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Subgroup of a pod group, with its own minimum and topology; a parent holds subgroups, not pods."""

    name: str
    parent: str = ""
    min_member: int = 1
    constraint: KaiTopology | None = None


class KaiCondition(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Condition with the reason why a pod group cannot be scheduled on the nodes of a pool (schedulingConditions)."""

    type: str
    reason: str = ""
    message: str = ""
    since: Time = 0
    reasons: tuple[tuple[str, str], ...] = ()
    """(reason, message) of each attempt: OverLimit, NonPreemptibleOverQuota, PodSchedulingErrors …"""


class KaiPodGroup(NamespacedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Gang of pods in KAI; pods name it in the annotation pod-group-name."""

    namespace: str = "default"
    name: str
    uid: str = ""
    created: Time = 0
    labels: Mapping[str, str] = NO_LABELS
    annotations: Mapping[str, str] = NO_LABELS
    min_member: int = 1
    """Number of pods that start together; further ones are placed as they fit."""
    queue: str = ""
    priority_class: str = ""
    preemptibility: str = ""
    """`preemptible` or `non-preemptible`; empty to derive it from the priority."""
    constraint: KaiTopology | None = None
    sub_groups: tuple[KaiSubGroup, ...] = ()
    mark_unschedulable: bool | None = None
    """Whether its pods get a condition with the reason; None means true."""
    backoff: int | None = None
    """Scheduling cycles until it is marked unschedulable: 1, or -1 for never (schedulingBackoff)."""
    conditions: tuple[KaiCondition, ...] = ()
