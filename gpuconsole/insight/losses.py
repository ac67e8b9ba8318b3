"""Work lost by evictions: GPU-hours and USD by queue and workload."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from gpuconsole.model.events import HistoryEvent, HistoryEventKind


class LostWork(Struct, frozen=True):
    """Sum of lost work, as far as it is known."""

    gpu_hours: float = 0.0
    cost: float = 0.0
    """USD."""
    times: int = 0
    unknown: int = 0
    """Number of evictions with unknown loss and cost: the sums are lower bounds."""
    unpriced: int = 0
    """Number of evictions with unknown cost."""

    def __add__(self, other: "LostWork") -> "LostWork":
        return LostWork(
            self.gpu_hours + other.gpu_hours,
            self.cost + other.cost,
            self.times + other.times,
            self.unknown + other.unknown,
            self.unpriced + other.unpriced,
        )

    def hours_text(self, form: str = ",.1f") -> str:
        """The GPU-hours as text: `1.2`, `at least 1.2`, `unknown`."""
        return at_least(format(self.gpu_hours, form), self.unknown, self.times)

    def cost_text(self, money: str) -> str:
        """The cost as text, given its formatted amount."""
        return at_least(money, self.unpriced, self.times)


NOTHING_LOST = LostWork()
Losses = Mapping[tuple[str, str], LostWork]
"""(queue, workload or pod) → its lost work."""


def lost_by(lines: Iterable[HistoryEvent]) -> Losses:
    """Sum the losses in history lines by queue and workload; PREEMPTED lines only repeat an eviction's loss."""
    found: dict[tuple[str, str], LostWork] = {}
    for line in lines:
        if (line.lost_gpu_seconds or line.lost_unknown) and line.what is not HistoryEventKind.PREEMPTED:
            key = line.queue, line.workload or line.pod
            found[key] = found.get(key, NOTHING_LOST) + lost_by_one(line)
    return found


def lost_by_one(line: HistoryEvent) -> LostWork:
    """Return the lost work of one eviction; unknown if the work started before the console observed it."""
    if line.lost_unknown:
        return LostWork(times=1, unknown=1, unpriced=1)
    unpriced = line.lost_gpu_seconds > 0 and not line.cost
    return LostWork(line.lost_gpu_seconds / 3600, line.cost, 1, 0, int(unpriced))


def at_least(number: str, unknown: int, of: int) -> str:
    """Format a sum over `of` losses, `unknown` of which are unknown: `at least 1.2`; `unknown` if all are."""
    if unknown and unknown == of:
        return "unknown"
    return f"at least {number}" if unknown else number


def summed(losses: Sequence[float | None], form: str) -> str:
    """Format the sum of losses; None is an unknown loss."""
    known = [loss for loss in losses if loss is not None]
    return at_least(format(sum(known), form), len(losses) - len(known), len(losses))


def added(one: Losses, other: Losses) -> Losses:
    """Add two tables of losses."""
    total = dict(one)
    for key, lost in other.items():
        total[key] = total.get(key, NOTHING_LOST) + lost
    return total
