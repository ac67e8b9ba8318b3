"""A queue in a session, and its configured quotas (KAI 0.13 api/queue_info; scheduling.run.ai/v2 Queue)."""

from collections.abc import Mapping

from msgspec import Struct

from gpuconsole.model.clock import Span, Time

UNLIMITED = -1.0
DEFAULT_PRIORITY = 100


class KaiQueueQuota(Struct, frozen=True, kw_only=True):
    """Quota of a queue for one resource; -1 is unlimited. CPU in milli, memory in megabytes, GPUs."""

    quota: float = 0
    over_quota_weight: float = 0
    limit: float = 0


NO_QUOTA = KaiQueueQuota()


class QueueState(Struct, frozen=True, kw_only=True):
    """A queue of jobs or of child queues."""

    uid: str
    name: str = ""
    parent: str = ""
    children: tuple[str, ...] = ()
    gpu: KaiQueueQuota = NO_QUOTA
    cpu: KaiQueueQuota = NO_QUOTA
    memory: KaiQueueQuota = NO_QUOTA
    usage: Mapping[str, float] = {}
    """Past usage by resource, as a share of the cluster's capacity."""
    priority: int = DEFAULT_PRIORITY
    created: Time = 0
    preempt_min_runtime: Span | None = None
    reclaim_min_runtime: Span | None = None

    @property
    def leaf(self) -> bool:
        return not self.children
