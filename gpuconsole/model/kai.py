"""KAI Scheduler's queues (scheduling.run.ai/v2)."""

from msgspec import Struct

from gpuconsole.model.clock import Span, Time

UNLIMITED = -1.0


class QueueResource(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One resource of a queue: CPU in milli, memory in megabytes, GPUs. -1 is without bound."""

    quota: float = 0
    """What the queue is given before anybody gets more."""
    over_quota_weight: float = 0
    """Its part of what is left when all quotas are given; 0 gets nothing of it."""
    limit: float = 0
    """What it never exceeds."""


EVERYTHING = QueueResource(quota=UNLIMITED, over_quota_weight=1, limit=UNLIMITED)


class KaiQueue(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A queue of jobs, or of queues: only those without children take jobs."""

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

    @property
    def key(self) -> str:
        return self.name
