"""Estimates of starts, corrected by earlier ones of the same cluster, and the memory of these.

An estimate that is remembered is the first of its workload; what became of it is read from later Snapshots.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.calibration import Experience, Interval, Told, stretched
from gpuconsole.insight.eta import Starts
from gpuconsole.insight.past import began
from gpuconsole.model.clock import Span, Time
from gpuconsole.model.snapshot import Snapshot

KEPT = 2000
"""So many estimates are remembered."""
EARLY, LATE = 0.1, 0.9
"""The parts of all runs between which an interval lies."""


class Estimate(Struct, frozen=True, kw_only=True):
    """When a workload starts, in eight of ten cases, as of `asked`."""

    workload: str
    asked: Time
    horizon: Time
    """What lies behind it was not looked at, see `Starts.at`."""
    past: Span
    """Of so long it was known what was submitted."""
    runs: int
    never: int
    """In so many runs it had not started by the horizon."""
    median: Time
    raw: Interval
    """As it came from the runs."""
    interval: Interval
    """The same, stretched by what became of earlier estimates, or by the doubt there is without these."""
    stretch: float = 1.0
    """How many times as wide as the runs say."""
    calibrated_by: int = 0
    """How many these were."""

    @property
    def beyond(self) -> bool:
        """True if no run saw it start: then a range would be the assumed tail alone, and is not to be shown."""
        return self.never == self.runs

    @property
    def told(self) -> Told:
        """What is to be remembered of it."""
        return Told(workload=self.workload, asked=self.asked, median=self.median, interval=self.raw)


def estimate(found: Starts) -> Estimate:
    """What the runs say, with the doubt that there is as long as nothing else is known."""
    raw = Interval(found.at(EARLY), found.at(LATE))
    told = Estimate(
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
    return corrected(told, Experience())


def corrected(found: Estimate, learned: Experience) -> Estimate:
    """The same, stretched by what earlier estimates teach."""
    interval = stretched(found.raw, found.median, found.asked, learned, found.past)
    return replace(found, interval=interval, stretch=learned.stretch(found.past), calibrated_by=learned.by)


def probability(found: Starts, told: Estimate, time: Time) -> float:
    """How probable a start by then is: by the runs, stretched as the range is, and never at odds with that."""
    part = found.by(told.median + round((time - told.median) / told.stretch))
    for moment, chance in ((told.interval.first, EARLY), (told.median, 0.5), (told.interval.last, LATE)):
        part = max(part, chance) if moment <= time else min(part, chance)
    return part


class Memory:
    """Earlier estimates of a cluster, and what became of them. Mutates."""

    def __init__(self, earlier: Iterable[Told] = ()) -> None:
        """`earlier`, oldest first, is what was remembered before."""
        self._told = {one.workload: one for one in earlier}
        self._open = {key for key, one in self._told.items() if one.started is None}

    @property
    def earlier(self) -> Sequence[Told]:
        """Oldest first."""
        return tuple(self._told.values())

    def note(self, estimates: Iterable[Told]) -> list[Told]:
        """Remember estimates; returns those that are the first of their workloads."""
        new = []
        for one in estimates:
            if one.workload not in self._told:
                self._told[one.workload] = one
                self._open.add(one.workload)
                new.append(one)
        for key in list(self._told)[: max(0, len(self._told) - KEPT)]:
            self._forget(key)
        return new

    def see(self, snapshot: Snapshot) -> list[Told]:
        """Learn what has started; returns that. What is gone, and was never seen to start, is forgotten."""
        came = []
        for key in sorted(self._open):
            workload = snapshot.workloads.get(key)
            if workload is None:
                self._forget(key)
            elif (start := began(snapshot, workload)) is not None:
                self._told[key] = replace(self._told[key], started=start)
                self._open.discard(key)
                came.append(self._told[key])
        return came

    def _forget(self, key: str) -> None:
        del self._told[key]
        self._open.discard(key)
