"""KAI options: scheduler configuration and flags, and whether past usage counts."""

from msgspec import Struct

from gpuconsole.model.clock import HOUR, Span
from gpuconsole.scheduling.kai.conf import Parameters


class UsagePolicy(Struct, frozen=True, kw_only=True):
    """Past usage in the division of surplus (usageDBConfig): a sliding window with an optional half-life."""

    window: Span = 168 * HOUR
    half_life: Span = 0
    """What lies so long ago counts half; 0: all of the window counts in full."""


class KaiPolicy(Struct, frozen=True, kw_only=True, tag="KAI", tag_field="engine"):
    """Pods are placed by KAI Scheduler."""

    conf: str = ""
    """Text of the scheduler configuration; empty is KAI's default."""
    parameters: Parameters = Parameters()
    default_queue: str = "default-queue"
    """The queue of pods without a label that names one; made without bounds if there is none of that name."""
    usage: UsagePolicy | None = None
    """None: past use does not count, as without a usage database."""
