"""Estimates made honest by what became of earlier ones: an interval moves by as much as earlier intervals missed.

Conformalized quantile regression (Romano, Patterson, Candès 2019), on the logarithm of the wait, each end for itself:
of the earlier estimates, the wished part has to lie beyond the moved end. Only what is known by now is gone by.
"""

from collections.abc import Iterable
from math import exp, log

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import MINUTE, Span, Time

ENOUGH = 20
"""Earlier estimates of one queue that speak for it; with fewer, those of all queues do."""
NEWEST = 100
PART = 0.8
"""The part of all waits that an interval is to cover."""


class Interval(Struct, frozen=True):
    """From when to when something should start, with as much chance of an earlier start as of a later one."""

    first: Time
    last: Time


class Told(Struct, frozen=True, kw_only=True):
    """An estimate of earlier, and what became of it."""

    workload: str
    queue: str
    asked: Time
    interval: Interval
    """As it came from the runs."""
    started: Time | None = None
    """None while it waits."""

    def known(self, now: Time) -> "Told | None":
        """The same as it is known at `now`; None if nothing can be said of it yet."""
        if self.started is not None and self.started <= now:
            return self
        return replace(self, started=now) if now > self.interval.last else None


class Calibrated(Struct, frozen=True):
    """An interval, and by how many earlier estimates it was moved; none leave it as it came."""

    interval: Interval
    by: int = 0


def calibrated(interval: Interval, queue: str, asked: Time, earlier: Iterable[Told]) -> Calibrated:
    """The interval, moved by what is known at `asked` of earlier ones (oldest first)."""
    known = [told for one in earlier if (told := one.known(asked)) is not None]
    own = [told for told in known if told.queue == queue]
    chosen = (own if len(own) >= ENOUGH else known)[-NEWEST:]
    if len(chosen) < ENOUGH:
        return Calibrated(interval)
    early = [_scaled(told.interval.first - told.asked) - _wait(told) for told in chosen]
    late = [_wait(told) - _scaled(told.interval.last - told.asked) for told in chosen]
    first = _scaled(interval.first - asked) - _quantile(early)
    last = _scaled(interval.last - asked) + _quantile(late)
    low, high = sorted((first, last))
    return Calibrated(Interval(asked + _span(low), asked + _span(high)), len(chosen))


def _quantile(misses: list[float]) -> float:
    """What all but half of the rest of the misses stay below, with the correction for few."""
    ranked = sorted(misses)
    part = 1 - (1 - PART) / 2
    return ranked[min(len(ranked) - 1, int(part * (len(ranked) + 1)))]


def _wait(told: Told) -> float:
    assert told.started is not None
    return _scaled(told.started - told.asked)


def _scaled(wait: Span) -> float:
    """Waits are compared by their ratio; below a minute nobody cares."""
    return log(max(0, wait) / MINUTE + 1)


def _span(scaled: float) -> Span:
    return round((exp(max(0.0, scaled)) - 1) * MINUTE)
