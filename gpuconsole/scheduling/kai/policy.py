"""KAI options: scheduler configuration and flags, and whether past usage counts."""

from msgspec import Struct

from gpuconsole.model.clock import HOUR, Span
from gpuconsole.scheduling.kai.conf import Parameters


class UsagePolicy(Struct, frozen=True, kw_only=True):
    """Past usage in the division of surplus (usageDBConfig): a sliding window with an optional half-life."""

    window: Span = 168 * HOUR
    half_life: Span = 0
    """Age at which usage counts half; 0 counts the whole window in full."""


class KaiPolicy(Struct, frozen=True, kw_only=True, tag="KAI", tag_field="engine"):
    """Pods are placed by KAI Scheduler."""

    conf: str = ""
    """Text of the scheduler configuration; empty means KAI's default."""
    parameters: Parameters = Parameters()
    default_queue: str = "default-queue"
    """The queue of pods without a queue label; if there is none, it is created without limits (not in named shards)."""
    usage: UsagePolicy | None = None
    """None: past usage does not count, as without a usage database."""
