"""Calibration of 80% intervals by split conformal prediction (Vovk; Romano, Patterson, Candès 2019).

The error of each earlier estimate is the distance of the start from the median, in half widths of its interval. The
quantile of these errors that the coverage asks for is the factor by which intervals are stretched. There is one factor
for both ends: workloads that are pending at one moment start early or late together, so one end alone would follow the
last burst. For the same reason the factor's weight grows with the number of moments that it comes from; the rest is the
initial factor. Only starts that are known at the time of the estimate are used.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from math import ceil
from operator import attrgetter

from msgspec import Struct

from gpuconsole.model.clock import DAY, MINUTE, Span, Time

ENOUGH, LOOKS = 20, 5
"""Minimum number of earlier estimates, and of moments at which they were made."""
PART = 0.8
"""Target coverage of an interval."""
NARROWEST = 0.1
"""Minimum half width of an interval, as a fraction of the wait."""
DOUBT, YOUNG_DOUBT = 2.0, 3.0
"""Initial stretch factors, without earlier estimates: the runs contain no cause of delay that all workloads share. The
second is for a history shorter than `YOUNG`."""
YOUNG: Span = 4 * DAY
DOUBT_WEIGHS = 3
"""Weight of the initial factor, in moments."""
LEAST, MOST = 0.5, 3.0
"""Bounds of the stretch factor."""
MAX_ESTIMATES_OF_COVERAGE = 50
"""Number of most recent moments whose estimates are judged for the coverage."""


class Interval(Struct, frozen=True):
    """An interval of time with equal probability of an earlier and a later start."""

    first: Time
    last: Time


class PastEstimate(Struct, frozen=True, kw_only=True):
    """An earlier estimate and the actual start."""

    workload: str
    asked_at: Time
    median: Time
    interval: Interval
    """The interval of the runs, uncalibrated."""
    started: Time | None = None
    """None while it is pending."""

    def known(self, now: Time) -> Time | None:
        """Return the start as known at `now`; None if the workload may still start within its interval.

        A workload that is pending beyond its interval starts now at the earliest.
        """
        if self.started is not None and self.started <= now:
            return self.started
        return now if now > self.interval.last else None


class Calibration(Struct, frozen=True):
    """Stretch factor of intervals, learned from earlier estimates."""

    off: float = 1.0
    """Factor with which the intervals would have had the target coverage."""
    looks: int = 0
    """Number of moments at which the estimates were made."""
    by: int = 0
    """Number of estimates."""

    def stretch(self, known: Span) -> float:
        """The stretch factor, given the length of the known history."""
        doubt = YOUNG_DOUBT if known < YOUNG else DOUBT
        trust = self.looks / (self.looks + DOUBT_WEIGHS)
        believed: float = max(NARROWEST, self.off) ** trust * doubt ** (1 - trust)
        return min(MOST, max(LEAST, believed))


class CoverageRecord(Struct, frozen=True):
    """Coverage of earlier estimates, each calibrated with what was known when it was made."""

    judged: int = 0
    """Number of intervals whose outcome is known."""
    covered: int = 0


def calibrate(earlier: Iterable[PastEstimate], now: Time) -> Calibration:
    """Compute the calibration from estimates whose outcome is known at `now`; the initial one if they are too few."""
    known = [(estimate, start) for estimate in earlier if (start := estimate.known(now)) is not None]
    looks = len({estimate.asked_at for estimate, _ in known})
    if len(known) < ENOUGH or looks < LOOKS:
        return Calibration()
    ranked = sorted(_off(estimate, start) for estimate, start in known)
    return Calibration(ranked[min(len(ranked), ceil(PART * (len(ranked) + 1))) - 1], looks, len(ranked))


def coverage(earlier: Iterable[PastEstimate], now: Time) -> CoverageRecord:
    """Compute the coverage of the most recent estimates, as far as their outcome is known at `now`."""
    verdicts = list(_verdicts(sorted(earlier, key=attrgetter("asked_at")), now))
    return CoverageRecord(len(verdicts), sum(verdicts))


def _verdicts(earlier: list[PastEstimate], now: Time) -> Iterator[bool]:
    moments = [(asked, list(estimate)) for asked, estimate in groupby(earlier, key=attrgetter("asked_at"))]
    for asked, estimate in moments[-MAX_ESTIMATES_OF_COVERAGE:]:
        learned = calibrate((one for one in earlier if one.asked_at < asked), asked)
        for one in estimate:
            given = stretched(one.interval, one.median, asked, learned, YOUNG)
            if one.started is not None and one.started <= now:
                yield given.first <= one.started <= given.last
            elif now > given.last:
                yield False


def stretched(interval: Interval, median: Time, asked: Time, learned: Calibration, known: Span) -> Interval:
    """Stretch an interval about its median by the calibration; `known` is the length of the history."""
    stretch = learned.stretch(known)
    early, late = _halves(interval, median, asked)
    return Interval(max(asked, median - round(stretch * early)), median + round(stretch * late))


def _off(estimate: PastEstimate, start: Time) -> float:
    """Return the distance of the start from the median, in half widths of the interval."""
    early, late = _halves(estimate.interval, estimate.median, estimate.asked_at)
    return (start - estimate.median) / late if start >= estimate.median else (estimate.median - start) / early


def _halves(interval: Interval, median: Time, asked: Time) -> tuple[Span, Span]:
    """Half widths below and above the median, at least a minute."""
    least = max(MINUTE, round(NARROWEST * (median - asked)))
    return max(least, median - interval.first), max(least, interval.last - median)
