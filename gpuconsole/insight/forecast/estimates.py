"""Estimates of start times of pending workloads, calibrated with earlier estimates.

Estimates of start times, calibrated with earlier estimates for the same cluster.

The first estimate of each workload is recorded; its actual start is read from later Snapshots.

Estimated starts of all pending workloads, from one set of simulation runs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.forecast.calibration import Calibration, Interval, PastEstimate, stretched
from gpuconsole.insight.forecast.eta import SimulatedStarts, began, start_steps, workload_history
from gpuconsole.model.clock import DAY, Span, Time
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import WorkloadPhase, phase

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation


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
    """The interval of the runs, uncalibrated."""
    interval: Interval
    """The calibrated interval; without earlier estimates it is widened by a fixed factor."""
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
    """Make the estimate from the runs, widened by the initial factor for no earlier estimates."""
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
    """Return the estimate, calibrated with earlier estimates."""
    interval = stretched(found.raw, found.median, found.asked, learned, found.past)
    return replace(found, interval=interval, stretch=learned.stretch(found.past), calibrated_by=learned.by)


def probability(found: SimulatedStarts, given: Estimate, time: Time) -> float:
    """Probability of a start by `time`: from the runs, stretched like the interval and consistent with it."""
    part = found.by(given.median + round((time - given.median) / given.stretch))
    for moment, chance in ((given.interval.first, EARLY), (given.median, 0.5), (given.interval.last, LATE)):
        part = max(part, chance) if moment <= time else min(part, chance)
    return part


class EstimateHistory:
    """Recorded estimates of a cluster with their actual starts. Mutates."""

    def __init__(self, earlier: Iterable[PastEstimate] = ()) -> None:
        """`earlier`, oldest first, are the records of earlier sessions."""
        self._estimates = {one.workload: one for one in earlier}
        self._open = {key for key, one in self._estimates.items() if one.started is None}

    @property
    def earlier(self) -> Sequence[PastEstimate]:
        """The recorded estimates, oldest first."""
        return tuple(self._estimates.values())

    def note(self, estimates: Iterable[PastEstimate]) -> list[PastEstimate]:
        """Record estimates; returns those that are the first of their workloads."""
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
"""The minimum for the 10% and 90% quantiles."""


class StartEstimates(Struct, frozen=True, kw_only=True):
    """Estimates of one moment, by workload."""

    time: Time = 0
    estimates: Mapping[str, Estimate] = {}
    """Empty until the runs end."""
    whole: bool = False


def start_estimate_steps(
    simulation: "Simulation", *, runs: int = RUNS, seed: int = 0, horizon: Span = DAY
) -> Iterator[StartEstimates]:
    """Estimate the start of all pending workloads, as an iterator; to cancel, stop iterating.

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
        yield StartEstimates(time=snapshot.time, whole=True)
        return
    for piece in start_steps(simulation, keys, known, runs=runs, seed=seed, horizon=horizon):
        estimates = {key: estimate(found) for key, found in (piece.starts or {}).items()}
        yield StartEstimates(time=snapshot.time, estimates=estimates, whole=piece.starts is not None)


def calibrated(found: StartEstimates, learned: Calibration) -> StartEstimates:
    """Return the estimates with intervals stretched by the errors of earlier estimates (see `calibration`)."""
    return replace(found, estimates={key: corrected(one, learned) for key, one in found.estimates.items()})
