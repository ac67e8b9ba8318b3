"""Estimates made honest by what became of earlier ones: intervals widen, or narrow, by as much as earlier ones missed.

Split conformal prediction (Vovk; Romano, Patterson, Candès 2019) on the logarithm of the wait: how far a start was off
the median counts in half widths of the interval that was given for it, and the part of all intervals that should have
covered it tells by how much they have to be stretched. One factor for all: who waits at one moment is early or late
together, and an end alone would follow the last burst. Only what is known by now is gone by.
"""

from collections.abc import Iterable
from math import ceil, exp, log

from msgspec import Struct

from gpuconsole.model.clock import MINUTE, Span, Time

ENOUGH, LOOKS = 20, 5
"""So many earlier estimates, of so many moments, are gone by at least."""
PART = 0.8
"""The part of all waits that an interval is to cover."""
NARROWEST = 0.05
"""Half an interval is no narrower than this part of the wait."""


class Interval(Struct, frozen=True):
    """From when to when something should start, with as much chance of an earlier start as of a later one."""

    first: Time
    last: Time


class Told(Struct, frozen=True, kw_only=True):
    """An estimate of earlier, and what became of it."""

    workload: str
    asked: Time
    median: Time
    interval: Interval
    """As it came from the runs."""
    started: Time | None = None
    """None while it waits."""

    def known(self, now: Time) -> Time | None:
        """When it started, as far as that is known at `now`; None if nothing can be said of it yet.

        What waits longer than was said starts now at the earliest.
        """
        if self.started is not None and self.started <= now:
            return self.started
        return now if now > self.interval.last else None


class Experience(Struct, frozen=True):
    """What earlier estimates teach."""

    stretch: float = 1.0
    """How many times as wide intervals have to be."""
    by: int = 0
    """How many estimates that goes by; none leave everything as it came."""


def experience(earlier: Iterable[Told], now: Time) -> Experience:
    """What is known at `now` of earlier estimates; nothing as long as they are few."""
    known = [(told, start) for told in earlier if (start := told.known(now)) is not None]
    if len(known) < ENOUGH or len({told.asked for told, _ in known}) < LOOKS:
        return Experience()
    ranked = sorted(_off(told, start) for told, start in known)
    return Experience(ranked[min(len(ranked), ceil(PART * (len(ranked) + 1))) - 1], len(ranked))


def stretched(interval: Interval, median: Time, asked: Time, learned: Experience) -> Interval:
    """The interval, made wider or narrower about its median, in ratios of the wait."""
    if not learned.by:
        return interval
    middle = _scaled(median - asked)
    early, late = _halves(interval, middle, asked)
    return Interval(asked + _span(middle - learned.stretch * early), asked + _span(middle + learned.stretch * late))


def _off(told: Told, start: Time) -> float:
    """How many half widths off the median it started."""
    middle, wait = _scaled(told.median - told.asked), _scaled(start - told.asked)
    early, late = _halves(told.interval, middle, told.asked)
    return (wait - middle) / late if wait >= middle else (middle - wait) / early


def _halves(interval: Interval, middle: float, asked: Time) -> tuple[float, float]:
    """From the median to both ends."""
    early, late = middle - _scaled(interval.first - asked), _scaled(interval.last - asked) - middle
    return max(NARROWEST, early), max(NARROWEST, late)


def _scaled(wait: Span) -> float:
    """Waits are compared by their ratio; below a minute nobody cares."""
    return log(max(0, wait) / MINUTE + 1)


def _span(scaled: float) -> Span:
    return round((exp(max(0.0, scaled)) - 1) * MINUTE)
