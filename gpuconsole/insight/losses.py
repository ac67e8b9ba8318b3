"""Work that evictions took: GPU-hours and USD by queue and workload."""

from collections.abc import Iterable, Mapping, Sequence

from gpuconsole.model.events import Happened, What

Losses = Mapping[tuple[str, str], tuple[float, float]]
"""(queue, workload or pod) → GPU-hours and USD."""


def lost_by(lines: Iterable[Happened]) -> Losses:
    """What these lines of history tell of; a PREEMPTED line only repeats an eviction."""
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for line in lines:
        if line.lost_gpu_seconds and line.what is not What.PREEMPTED:
            key = line.queue, line.workload or line.pod
            hours, cost = found.get(key, (0.0, 0.0))
            found[key] = hours + line.lost_gpu_seconds / 3600, cost + line.cost
    return found


def at_least(number: str, unknown: int, of: int) -> str:
    """A sum over `of` losses in words, some of which are unknown: `at least 1.2`; `unknown` where all are."""
    if unknown and unknown == of:
        return "unknown"
    return f"at least {number}" if unknown else number


def summed(losses: Sequence[float | None], form: str) -> str:
    """The sum of losses in words; those that are None are unknown."""
    known = [loss for loss in losses if loss is not None]
    return at_least(format(sum(known), form), len(losses) - len(known), len(losses))


def added(one: Losses, other: Losses) -> Losses:
    """Both together."""
    total = dict(one)
    for key, (hours, cost) in other.items():
        before = total.get(key, (0.0, 0.0))
        total[key] = before[0] + hours, before[1] + cost
    return total
