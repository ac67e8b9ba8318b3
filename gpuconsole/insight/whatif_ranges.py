"""Ranges of a what-if's times, from further runs of the changed fork that differ only in controller latencies."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.comparing import subjects_with_pods
from gpuconsole.insight.future_events import FutureEvents, WhatIfEviction, more_evictions
from gpuconsole.insight.futures import Future
from gpuconsole.insight.whatif_answer import StartShift, TimeRange, VaryingVictim, WhatIf, WhatIfOutcome
from gpuconsole.insight.whatif_evictions import EvictedWorkload, evictions_by_cause
from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.commands import Command
from gpuconsole.model.cooperative import Steps
from gpuconsole.sim.distributions import Latencies, LatencyDistribution

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation

RUNS = 4
"""Number of further runs of the changed fork."""
CPU_SECONDS = 1.5
"""CPU time of these runs together; after it the present run is cut off, and no other starts."""
PARTS = 40
"""Number of steps to the horizon if some requested work does not start."""


class LatencyRun(Struct, kw_only=True):
    """One run with other latencies. Mutated by `OtherLatencies`."""

    course: FutureEvents
    direct: tuple[EvictedWorkload, ...] = ()
    """Its direct victims up to the start of all pending requested work, once it is complete."""
    complete: bool = False
    """True if it got far enough; False if it was cut off."""


class OtherLatencies:
    """Runs of the changed fork with other controller latencies. Mutates by `running`.

    Each run advances until all pending requested work has started, or to the horizon.
    """

    def __init__(
        self,
        base: "Simulation",
        commands: Sequence[Command],
        answer: WhatIf,
        without: FutureEvents,
        waiting: Collection[str],
        clock: Callable[[], float],
    ) -> None:
        """`answer` is that of the first run; `waiting` are its outcomes that did not run before the fork.

        `without` is the history of the baseline. `clock` returns seconds of CPU time.
        """
        self._base, self._commands, self._answer, self._clock = base, commands, answer, clock
        self._evicted_without = without.evictions()
        self.waiting = waiting
        self.latencies = base.policy.latencies
        self.runs: list[LatencyRun] = []
        """The started runs; the last one may be cut off."""

    def running(self) -> Steps[None]:
        """Execute the runs in pieces, within the CPU time."""
        spent = 0.0
        for number in range(1, RUNS + 1):
            pieces = self._run(number)
            while spent < CPU_SECONDS:
                began = self._clock()
                over = next(pieces, _OVER) is _OVER
                spent += self._clock() - began
                if over:
                    break
                yield

    def _run(self, number: int) -> Iterator[None]:
        future = Future(self._base.with_other_latencies(number), self._commands)
        run = LatencyRun(course=future.course)
        self.runs.append(run)
        yield
        for moment in self._moments():
            yield from future.advancing(moment)
            if all(key in future.course.started for key in self.waiting):
                break
        subjects = subjects_with_pods(future.course, future.simulation.snapshot())
        evictions = more_evictions(future.course.evictions(), self._evicted_without)
        run.direct = self.direct_victims(future.course, evictions, subjects)
        run.complete = True

    def _moments(self) -> Iterator[Time]:
        """Yield the times of checks for starts: soon after the start in the first run, then at growing intervals."""
        start, end = self._answer.time, self._answer.horizon
        started = [one.started for one in self._answer.outcomes if one.workload in self.waiting]
        known = [time for time in started if time is not None]
        if len(known) < len(started):
            yield from (start + (end - start) * part // PARTS for part in range(1, PARTS))
        else:
            moment, step = max(known), SECOND
            while moment + step < end:
                yield moment + step
                step *= 2
        yield end

    def direct_victims(
        self, course: FutureEvents, evictions: Iterable[WhatIfEviction], subjects: Collection[str]
    ) -> tuple[EvictedWorkload, ...]:
        """Return the direct victims up to the start of all pending requested work, when all runs are comparable."""
        started = [course.started.get(key, self._answer.horizon) for key in self.waiting]
        early = [one for one in evictions if one.time <= max(started)]
        return evictions_by_cause(early, subjects, only_work=self._answer.only_work).direct


_OVER = object()


def with_ranges(answer: WhatIf, course: FutureEvents, others: OtherLatencies) -> WhatIf:
    """Return the answer with ranges, and without changes that latencies explain; `course` is that of its first run."""
    outcomes = tuple(
        _ranged(one, course, others.runs) if one.workload in others.waiting else one for one in answer.outcomes
    )
    return replace(
        answer,
        outcomes=outcomes,
        shifts=unexplained(
            answer.shifts, answer.horizon, _tolerance(outcomes, others.latencies), [run.course for run in others.runs]
        ),
        runs=1 + sum(run.complete or any(map(run.course.let_in, others.waiting)) for run in others.runs),
        varying_victims=_varying(answer, course, others),
    )


def _ranged(outcome: WhatIfOutcome, course: FutureEvents, runs: Sequence[LatencyRun]) -> WhatIfOutcome:
    key = outcome.workload
    admitted = [(run.course.let_in(key), run.complete) for run in runs]
    started = [(run.course.started.get(key), run.complete) for run in runs]
    return replace(
        outcome,
        admitted_range=_range_of([(outcome.admitted, True), *admitted]),
        started_range=_range_of([(course.started.get(key), True), *started]),
    )


def _range_of(moments: Iterable[tuple[Time | None, bool]]) -> TimeRange | None:
    """Return the range of (time, run is complete) pairs; runs that were cut off before the event do not count."""
    known = [moment for moment, complete in moments if complete or moment is not None]
    times = [moment for moment in known if moment is not None]
    if not times:
        return None
    return TimeRange(earliest=min(times), latest=max(times), times=len(times), runs=len(known))


def _varying(answer: WhatIf, course: FutureEvents, others: OtherLatencies) -> tuple[VaryingVictim, ...]:
    """Return the workloads that are direct victims in some complete runs only."""
    first = others.direct_victims(course, answer.evictions, answer.subjects)
    lists = [first, *(run.direct for run in others.runs if run.complete)]
    times = Counter(one.workload for direct in lists for one in direct)
    known = {one.workload: one for direct in reversed(lists) for one in direct}
    return tuple(
        VaryingVictim(
            workload=workload,
            queue=known[workload].queue,
            gpus=known[workload].gpus,
            unit=known[workload].unit,
            by=known[workload].by,
            times=count,
            runs=len(lists),
        )
        for workload, count in sorted(times.items(), key=lambda item: (-item[1], item[0]))
        if count < len(lists)
    )


def _tolerance(outcomes: Iterable[WhatIfOutcome], latencies: Latencies | None) -> Span:
    """Return the tolerance for times in different runs: the widest range, at most the variation of all latencies."""
    ranges = [found for one in outcomes for found in (one.admitted_range, one.started_range) if found is not None]
    spread = max((found.latest - found.earliest for found in ranges), default=0)
    steps = [getattr(latencies, name) for name in Latencies.__struct_fields__] if latencies is not None else []
    return max(SECOND, min(spread, sum(map(_width, steps))))


def _width(step: LatencyDistribution) -> Span:
    return step.max - step.p5


def unexplained(
    shifts: Iterable[StartShift], horizon: Time, tolerance: Span = SECOND, runs: Sequence[FutureEvents] = ()
) -> tuple[StartShift, ...]:
    """Return the changes of admission times that latencies do not explain: those larger than `tolerance`.

    A workload that is admitted at its baseline time in a run with other latencies is not affected by the commands.
    """
    return tuple(shift for shift in shifts if not _is_explained(shift, horizon, tolerance, runs))


def _is_explained(shift: StartShift, horizon: Time, tolerance: Span, runs: Sequence[FutureEvents]) -> bool:
    without = horizon if shift.without is None else shift.without
    changed = [horizon if shift.changed is None else shift.changed]
    changed += [moment for course in runs if (moment := course.let_in(shift.workload)) is not None]
    return min(changed) - tolerance < without < max(changed) + tolerance
