"""An anti-pattern: something that works but wastes GPUs or waiting time, with evidence, cost and fix."""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.device_units import WHOLE_GPU

DAY_HOURS = 24


class AntiPatternCode(StrEnum):
    """Kinds of anti-pattern, the most urgent first."""

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


class AntiPattern(Struct, frozen=True, kw_only=True):
    """One finding; `table` and `subject` name the object that it is about, if there is one."""

    code: AntiPatternCode
    subject: str
    table: str = ""
    text: str
    """One sentence."""
    evidence: Mapping[str, str | int | float] = {}
    """The numbers that support it."""
    gpus: float = 0.0
    """Wasted GPUs, or what `unit` names."""
    unit: str = WHOLE_GPU.noun
    cost_per_day: float = 0.0
    """Cost in USD per day while nothing changes; 0 if there is none."""
    shared_cost_per_day: float = 0.0
    """Part of that cost that another finding counts as well: evictions inside a preemption loop of queues."""
    fix: str
    since: Time | None = None


def total_per_day(found: Iterable[AntiPattern]) -> float:
    """Cost of all findings in USD per day, each eviction counted once."""
    return sum(one.cost_per_day - one.shared_cost_per_day for one in found)
