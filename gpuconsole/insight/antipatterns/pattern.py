"""An anti-pattern: something that works, and wastes GPUs or patience, with its evidence, its price and the way out."""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.device_units import WHOLE_GPU

DAY_HOURS = 24


class Code(StrEnum):
    """What kind of waste, the most pressing first."""

    DEADLOCK = "gang-deadlock"
    COHORT_CYCLE = "cohort-cycle"
    THRASH = "thrash"
    IDLE = "idle-allocated"
    BORROWED_IDLE = "borrowed-idle"
    OVERSIZED = "oversized-request"
    LOW_UTILIZATION = "low-utilization"
    MONOPOLY = "monopoly"
    FRAGMENTATION = "fragmentation"
    NEVER_FITS = "never-fits"
    UNREACHABLE_QUOTA = "unreachable-quota"
    MISSING_PRIORITY_CLASS = "missing-priority-class"


class Pattern(Struct, frozen=True, kw_only=True):
    """One anti-pattern; `table` and `subject` name the object that it is about, if there is one."""

    code: Code
    subject: str
    table: str = ""
    text: str
    """One sentence."""
    evidence: Mapping[str, str | int | float] = {}
    """The numbers that show it."""
    gpus: float = 0.0
    """GPUs, or what `unit` names, that are of no use, or of less than they could be."""
    unit: str = WHOLE_GPU.noun
    cost_per_day: float = 0.0
    """USD of these for a day, as long as it stays so; 0 where nothing is paid for it."""
    shared_cost_per_day: float = 0.0
    """Of that, what another pattern counts as well: evictions of a workload inside a circle of queues."""
    fix: str
    since: Time | None = None


def total_per_day(found: Iterable[Pattern]) -> float:
    """USD a day of all patterns together, each eviction counted once."""
    return sum(one.cost_per_day - one.shared_cost_per_day for one in found)
