"""Past usage of queues as a fraction of cluster capacity: the time-based part of the fair share. Mutates.

KAI 0.13 cache/usagedb: sum of allocation over the window, divided by the sum of capacity; older usage counts less by
the half-life.
"""

from collections.abc import Mapping

from msgspec import Struct

from gpuconsole.model.clock import Span, Time
from gpuconsole.scheduling.kai.fair_share.quantities import RESOURCES


class Stretch(Struct, frozen=True):
    """Allocations of queues and cluster capacity during one interval."""

    start: Time
    end: Time
    held: Mapping[str, Mapping[str, float]]
    capacity: Mapping[str, float]


class UsageHistory:
    """Allocations of queues and cluster capacity over the window, interval by interval."""

    def __init__(self, window: Span, half_life: Span) -> None:
        self._window, self._half_life = window, half_life
        self._stretches: list[Stretch] = []
        self._since: Time | None = None
        self._held: Mapping[str, Mapping[str, float]] = {}
        self._capacity: Mapping[str, float] = {}

    def note(self, now: Time, held: Mapping[str, Mapping[str, float]], capacity: Mapping[str, float]) -> None:
        """Record the queues' allocations from now on."""
        self._close(now)
        self._since, self._capacity = now, _floats(capacity)
        self._held = {queue: _floats(amounts) for queue, amounts in held.items()}

    def _close(self, now: Time) -> None:
        if self._since is not None and now > self._since:
            self._stretches.append(Stretch(self._since, now, self._held, self._capacity))
            self._since = now
        oldest = now - self._window
        self._stretches = [stretch for stretch in self._stretches if stretch.end > oldest]

    def usage(self, now: Time) -> dict[str, dict[str, float]]:
        """Each queue's usage as a fraction of cluster capacity by resource, over the window."""
        self._close(now)
        had = dict.fromkeys(RESOURCES, 0.0)
        used: dict[str, dict[str, float]] = {}
        for stretch in self._stretches:
            weight = self._weight(stretch, now)
            for name in RESOURCES:
                had[name] += weight * stretch.capacity.get(name, 0)
            for queue, held in stretch.held.items():
                sums = used.setdefault(queue, dict.fromkeys(RESOURCES, 0.0))
                for name in RESOURCES:
                    sums[name] += weight * held.get(name, 0)
        return {
            queue: {name: sums[name] / had[name] if had[name] else 0.0 for name in RESOURCES}
            for queue, sums in used.items()
        }

    def _weight(self, stretch: Stretch, now: Time) -> float:
        """Length of the interval in seconds, decayed by the age of its middle."""
        start = max(stretch.start, now - self._window)
        age = now - (start + stretch.end) / 2
        decay = 0.5 ** (age / self._half_life) if self._half_life else 1.0
        return float((stretch.end - start) / 1_000_000 * decay)

    def fork(self) -> "UsageHistory":
        """An independent copy."""
        twin = UsageHistory(self._window, self._half_life)
        twin._stretches, twin._since = list(self._stretches), self._since
        twin._held, twin._capacity = self._held, self._capacity
        return twin

    def pages(self) -> list[Stretch]:
        """State to save; the last interval is still open."""
        last = [] if self._since is None else [Stretch(self._since, self._since, self._held, self._capacity)]
        return [*self._stretches, *last]

    def take_back(self, pages: list[Stretch]) -> None:
        """Restore the state from `pages`."""
        if pages:
            *self._stretches, last = pages
            self._since, self._held, self._capacity = last.start, last.held, last.capacity


def _floats(amounts: Mapping[str, float]) -> dict[str, float]:
    """Amounts as floats, as they are read back from a file."""
    return {name: float(amount) for name, amount in amounts.items()}
