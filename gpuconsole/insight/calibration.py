"""Estimates made honest by what became of earlier ones: intervals widen, or narrow, by as much as earlier ones missed.

Split conformal prediction (Vovk; Romano, Patterson, Candès 2019): how far a start was off the median counts in half
widths of the interval that was given for it, and the part of all intervals that should have covered it tells by how
much they have to be stretched. One factor for all: who waits at one moment is early or late together, and an end alone
would follow the last burst. For the same reason it is believed by the number of moments that it comes from; the rest is
a doubt that every estimate begins with. Only what is known by now is gone by.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from math import ceil
from operator import attrgetter

from msgspec import Struct

from gpuconsole.model.clock import DAY, MINUTE, Span, Time

ENOUGH, LOOKS = 20, 5
"""So many earlier estimates, of so many moments, are gone by at least."""
PART = 0.8
"""The part of all waits that an interval is to cover."""
NARROWEST = 0.1
"""Half an interval is no narrower than this part of the wait."""
DOUBT, YOUNG_DOUBT = 2.0, 3.0
"""How many times as wide as the runs say intervals are as long as nothing is known of earlier ones: runs know of no
chance that all that waits shares. The second holds where less than `YOUNG` of the past is known."""
YOUNG: Span = 4 * DAY
DOUBT_WEIGHS = 3
"""The doubt counts as much as so many moments."""
LEAST, MOST = 0.5, 3.0
"""Intervals are stretched no less and no more than this."""
RETOLD = 50
"""So many of the last moments are looked at to tell how good estimates were."""


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

    off: float = 1.0
    """How many times as wide intervals would have had to be."""
    looks: int = 0
    """Of so many moments."""
    by: int = 0
    """How many estimates that goes by."""

    def stretch(self, known: Span) -> float:
        """How many times as wide intervals have to be where so much of the past is known."""
        doubt = YOUNG_DOUBT if known < YOUNG else DOUBT
        trust = self.looks / (self.looks + DOUBT_WEIGHS)
        believed: float = max(NARROWEST, self.off) ** trust * doubt ** (1 - trust)
        return min(MOST, max(LEAST, believed))


class Record(Struct, frozen=True):
    """How good earlier estimates were, each corrected by what was known when it was given (of an old enough past)."""

    judged: int = 0
    """Of so many it is known whether the start lay in the range."""
    covered: int = 0


def experience(earlier: Iterable[Told], now: Time) -> Experience:
    """What is known at `now` of earlier estimates; nothing as long as they are few."""
    known = [(told, start) for told in earlier if (start := told.known(now)) is not None]
    looks = len({told.asked for told, _ in known})
    if len(known) < ENOUGH or looks < LOOKS:
        return Experience()
    ranked = sorted(_off(told, start) for told, start in known)
    return Experience(ranked[min(len(ranked), ceil(PART * (len(ranked) + 1))) - 1], looks, len(ranked))


def record(earlier: Iterable[Told], now: Time) -> Record:
    """How many starts lay in their ranges, of estimates of the last moments of which that is known at `now`."""
    verdicts = list(_verdicts(sorted(earlier, key=attrgetter("asked")), now))
    return Record(len(verdicts), sum(verdicts))


def _verdicts(earlier: list[Told], now: Time) -> Iterator[bool]:
    moments = [(asked, list(told)) for asked, told in groupby(earlier, key=attrgetter("asked"))]
    for asked, told in moments[-RETOLD:]:
        learned = experience((one for one in earlier if one.asked < asked), asked)
        for one in told:
            given = stretched(one.interval, one.median, asked, learned, YOUNG)
            if one.started is not None and one.started <= now:
                yield given.first <= one.started <= given.last
            elif now > given.last:
                yield False


def stretched(interval: Interval, median: Time, asked: Time, learned: Experience, known: Span) -> Interval:
    """The interval, made wider or narrower about its median, where so much of the past is known."""
    stretch = learned.stretch(known)
    early, late = _halves(interval, median, asked)
    return Interval(max(asked, median - round(stretch * early)), median + round(stretch * late))


def _off(told: Told, start: Time) -> float:
    """How many half widths off the median it started."""
    early, late = _halves(told.interval, told.median, told.asked)
    return (start - told.median) / late if start >= told.median else (told.median - start) / early


def _halves(interval: Interval, median: Time, asked: Time) -> tuple[Span, Span]:
    """From the median to both ends; below a minute nobody cares."""
    least = max(MINUTE, round(NARROWEST * (median - asked)))
    return max(least, median - interval.first), max(least, interval.last - median)
