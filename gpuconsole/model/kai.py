"""KAI Scheduler's queues (scheduling.run.ai/v2) and pod groups (scheduling.run.ai/v2alpha2)."""

from collections.abc import Mapping

from msgspec import Struct

from gpuconsole.model.clock import Span, Time
from gpuconsole.model.labels import NO_LABELS

UNLIMITED = -1.0
NODE_POOL_LABEL = "kai.scheduler/node-pool"
"""The label by which nodes, queues and pod groups belong to a SchedulingShard (nodePoolLabelKey)."""
BINPACK, SPREAD = "binpack", "spread"
UNSCHEDULABLE_ON_NODE_POOL = "UnschedulableOnNodePool"
"""Type of the condition that says why a pod group cannot be scheduled."""


class QueueResource(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One resource of a queue: CPU in millicores, memory in megabytes, GPUs. -1 is unlimited."""

    quota: float = 0
    """What the queue is given before anybody gets more."""
    over_quota_weight: float = 0
    """Its part of what is left when all quotas are given; 0 gets nothing of it."""
    limit: float = 0
    """What it never exceeds."""


EVERYTHING = QueueResource(quota=UNLIMITED, over_quota_weight=1, limit=UNLIMITED)


class KaiQueue(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
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
    """Surplus goes to queues of higher priority first."""
    preempt_min_runtime: Span | None = None
    """How long a job of the queue runs at least before one of its own queue may preempt it."""
    reclaim_min_runtime: Span | None = None
    """The same against jobs of other queues."""
    labels: Mapping[str, str] = NO_LABELS

    @property
    def key(self) -> str:
        return self.name


class ShardSetting(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A SchedulingShard's setting of a plugin or action; None leaves the default."""

    enabled: bool | None = None
    priority: int | None = None
    """Those of a higher priority run first."""
    arguments: Mapping[str, str] | None = None


class SchedulingShard(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A KAI scheduler for a partition: the nodes, queues and pod groups with one value of a label."""

    name: str
    uid: str = ""
    created: Time = 0
    partition: str = ""
    """partitionLabelValue; empty is what does not have the label."""
    gpu_strategy: str = BINPACK
    """placementStrategy.gpu: `binpack` or `spread`."""
    cpu_strategy: str = BINPACK
    queue_depth: Mapping[str, int] = {}
    """At most so many jobs of each queue are tried, by action (queueDepthPerAction)."""
    k_value: float | None = None
    preempt_min_runtime: str = ""
    """minRuntime.preemptMinRuntime, as a duration."""
    reclaim_min_runtime: str = ""
    plugin_settings: Mapping[str, ShardSetting] = {}
    action_settings: Mapping[str, ShardSetting] = {}
    args: Mapping[str, str] = {}
    """Flags of the scheduler, by name."""

    @property
    def key(self) -> str:
        return self.name


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
    """Why a pod group cannot be scheduled on the nodes of a pool (schedulingConditions)."""

    type: str
    reason: str = ""
    message: str = ""
    since: Time = 0
    reasons: tuple[tuple[str, str], ...] = ()
    """(reason, message) of everything that was tried: OverLimit, NonPreemptibleOverQuota, PodSchedulingErrors …"""


class KaiPodGroup(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Gang of pods in KAI; pods name it in the annotation pod-group-name."""

    namespace: str = "default"
    name: str
    uid: str = ""
    created: Time = 0
    labels: Mapping[str, str] = NO_LABELS
    annotations: Mapping[str, str] = NO_LABELS
    min_member: int = 1
    """How many pods start together; more than that are taken as they fit."""
    queue: str = ""
    priority_class: str = ""
    preemptibility: str = ""
    """`preemptible` or `non-preemptible`; empty goes by the priority."""
    constraint: KaiTopology | None = None
    sub_groups: tuple[KaiSubGroup, ...] = ()
    mark_unschedulable: bool | None = None
    """Whether pods are told why they wait; None is yes."""
    backoff: int | None = None
    """Scheduling cycles until it is called unschedulable: 1, or -1 for no end (schedulingBackoff)."""
    conditions: tuple[KaiCondition, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"
