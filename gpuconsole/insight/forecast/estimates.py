"""Estimates of start times of pending workloads, calibrated with earlier estimates for the same cluster.

One set of simulation runs gives the estimates of all pending workloads. The first estimate of each workload is
recorded; its actual start is read from later Snapshots. 80% intervals are calibrated by split conformal prediction
(Vovk; Romano, Patterson, Candès 2019): the error of each earlier estimate is the distance of the start from the median,
in half widths of its interval; the quantile of these errors that the coverage asks for is the factor by which intervals
are stretched. There is one factor for both ends: workloads that are pending at one moment start early or late together,
so one end alone would follow the last burst. For the same reason the factor's weight grows with the number of moments
that it comes from; the rest is the initial factor. Only starts that are known at the time of the estimate are used.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import ceil
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.forecast.eta import SimulatedStarts, began, start_steps, workload_history
from gpuconsole.model.clock import DAY, MINUTE, Span, Time
from gpuconsole.model.cooperative import Progress
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import WorkloadPhase, phase

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation


ENOUGH, LOOKS = 20, 5
"""A calibration needs at least this many earlier estimates, made at this many moments."""
PART = 0.8
"""Target coverage: the fraction of starts that should be inside their interval."""
NARROWEST = 0.1
"""Minimum half width of an interval, as a fraction of the wait."""
DOUBT, YOUNG_DOUBT = 2.0, 3.0
"""Initial stretch factors, without earlier estimates: the runs contain no cause of delay that all workloads share. The
second is for a history shorter than `YOUNG`."""
YOUNG: Span = 4 * DAY
DOUBT_WEIGHS = 3
"""Weight of the initial factor relative to a learned one, as a number of moments."""
LEAST, MOST = 0.5, 3.0
"""Bounds of the stretch factor."""
MAX_ESTIMATES_OF_COVERAGE = 50
"""Number of most recent moments whose estimates are judged for the coverage."""


class Interval(Struct, frozen=True):
    """A range of times in which a start is expected: it is as probable before the first as after the last."""

    first: Time
    last: Time


class PastEstimate(Struct, frozen=True, kw_only=True):
    """An earlier estimate of a workload's start, and the actual start."""

    workload: str
    asked_at: Time
    median: Time
    interval: Interval
    """The interval as simulated, not calibrated."""
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
    """Factor by which the earlier intervals should have been stretched to reach the target coverage."""
    looks: int = 0
    """Number of moments at which the earlier estimates were made."""
    by: int = 0
    """Number of earlier estimates."""

    def stretch(self, known: Span) -> float:
        """Return the factor by which to stretch an interval; `known` is the length of the cluster's history."""
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
    """Return an interval stretched about its median, as learned from earlier estimates.

    `asked` is the time of the estimate, `known` the length of the cluster's history.
    """
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


KEPT = 2000
"""Maximum number of recorded estimates."""
EARLY, LATE = 0.1, 0.9
"""Quantiles at the ends of an interval."""


class Estimate(Struct, frozen=True, kw_only=True):
    """The 80% interval of a workload's start, as of `asked`."""

    workload: str
    asked: Time
    horizon: Time
    """End of the runs; the tail beyond it is assumed, see `SimulatedStarts.at`."""
    past: Span
    """Length of the known history of submissions."""
    runs: int
    never: int
    """Number of runs in which it does not start by the horizon."""
    median: Time
    raw: Interval
    """The interval as simulated, not calibrated."""
    interval: Interval
    """The calibrated interval; without earlier estimates it is stretched by a fixed factor."""
    stretch: float = 1.0
    """Width relative to the uncalibrated interval."""
    calibrated_by: int = 0
    """Number of earlier estimates used for the calibration."""

    @property
    def beyond(self) -> bool:
        """True if the workload started in no run: the interval would be the assumed tail only, and is not shown."""
        return self.never == self.runs

    @property
    def as_past_estimate(self) -> PastEstimate:
        """Return this estimate as a record for later calibration."""
        return PastEstimate(workload=self.workload, asked_at=self.asked, median=self.median, interval=self.raw)


def estimate(found: SimulatedStarts) -> Estimate:
    """Return the estimate of a workload's start from its simulated starts, stretched by the initial factor."""
    raw = Interval(found.at(EARLY), found.at(LATE))
    given = Estimate(
        workload=found.workload,
        asked=found.asked,
        horizon=found.horizon,
        past=found.past,
        runs=len(found.times),
        never=found.times.count(None),
        median=found.at(0.5),
        raw=raw,
        interval=raw,
    )
    return corrected(given, Calibration())


def corrected(found: Estimate, learned: Calibration) -> Estimate:
    """Return an estimate with its interval calibrated with earlier estimates."""
    interval = stretched(found.raw, found.median, found.asked, learned, found.past)
    return replace(found, interval=interval, stretch=learned.stretch(found.past), calibrated_by=learned.by)


def probability(found: SimulatedStarts, given: Estimate, time: Time) -> float:
    """Return the probability that a workload starts by `time`, consistent with its estimate `given`.

    It is the fraction of the simulated starts `found`, with times stretched like the interval.
    """
    part = found.by(given.median + round((time - given.median) / given.stretch))
    for moment, chance in ((given.interval.first, EARLY), (given.median, 0.5), (given.interval.last, LATE)):
        part = max(part, chance) if moment <= time else min(part, chance)
    return part


class EstimateHistory:
    """The first estimate of each pending workload of a cluster, with its actual start once known. Mutates."""

    def __init__(self, earlier: Iterable[PastEstimate] = ()) -> None:
        """`earlier`, oldest first, are the records of earlier sessions."""
        self._estimates = {one.workload: one for one in earlier}
        self._open = {key for key, one in self._estimates.items() if one.started is None}

    @property
    def earlier(self) -> Sequence[PastEstimate]:
        """The recorded estimates, oldest first."""
        return tuple(self._estimates.values())

    def note(self, estimates: Iterable[PastEstimate]) -> list[PastEstimate]:
        """Record the estimates of workloads that have none so far, and return these."""
        new = []
        for one in estimates:
            if one.workload not in self._estimates:
                self._estimates[one.workload] = one
                self._open.add(one.workload)
                new.append(one)
        for key in list(self._estimates)[: max(0, len(self._estimates) - KEPT)]:
            self._forget(key)
        return new

    def record_starts(self, snapshot: Snapshot) -> list[PastEstimate]:
        """Record the starts in this Snapshot and return them; drop workloads that are gone without a start."""
        came = []
        for key in sorted(self._open):
            workload = snapshot.workloads.get(key)
            if workload is None:
                self._forget(key)
            elif (start := began(snapshot, workload)) is not None:
                self._estimates[key] = replace(self._estimates[key], started=start)
                self._open.discard(key)
                came.append(self._estimates[key])
        return came

    def _forget(self, key: str) -> None:
        del self._estimates[key]
        self._open.discard(key)


RUNS = 9
"""Default number of simulation runs: the minimum for the 10% and 90% quantiles."""


class StartEstimates(Struct, frozen=True, kw_only=True):
    """Estimates of one moment, by workload."""

    time: Time = 0
    estimates: Mapping[str, Estimate] = {}
    """Empty until some work has finished, because run times are unknown."""


def start_estimate_steps(
    simulation: "Simulation", *, runs: int = RUNS, seed: int = 0, horizon: Span = DAY
) -> Iterator[Progress[StartEstimates]]:
    """Estimate the start of all pending workloads, as an iterator with the number of complete runs.

    There are no estimates until some work has finished, because run times are unknown. The simulation is not modified,
    and must not advance in the meantime.
    """
    snapshot = simulation.snapshot()
    keys = [
        one.key
        for one in snapshot.workloads.all()
        if phase(one) in (WorkloadPhase.PENDING, WorkloadPhase.QUOTA_RESERVED)
    ]
    known = workload_history(snapshot)
    if not keys or not any(run.ended for run in known.runs):
        yield Progress(answer=StartEstimates(time=snapshot.time), last=True)
        return
    for piece in start_steps(simulation, keys, known, runs=runs, seed=seed, horizon=horizon):
        found = None
        if piece.answer is not None:
            estimates = {key: estimate(starts) for key, starts in piece.answer.items()}
            found = StartEstimates(time=snapshot.time, estimates=estimates)
        yield Progress(done=piece.done, total=piece.total, answer=found, last=piece.last)


def calibrated(found: StartEstimates, learned: Calibration) -> StartEstimates:
    """Return the estimates with intervals stretched by the errors of earlier estimates (see `calibrate`)."""
    return replace(found, estimates={key: corrected(one, learned) for key, one in found.estimates.items()})
