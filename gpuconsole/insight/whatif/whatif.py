"""Simulation of a what-if: a changed fork and a baseline fork, and their comparison."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from msgspec import Struct

from gpuconsole.insight.cost.rates import nodes_hourly
from gpuconsole.insight.data_gaps import latency_assumption
from gpuconsole.insight.index.gpu_time import holdings_of, ready_gpus
from gpuconsole.insight.whatif.answer import FEASIBLE, QueueChange, StartShift, WhatIf, WhatIfOutcome
from gpuconsole.insight.whatif.comparison import (
    OtherLatencies,
    closed_by,
    fairness_of,
    outcome_of,
    queue_changes,
    shifts_of,
    subjects_with_pods,
    unexplained,
    with_ranges,
)
from gpuconsole.insight.whatif.futures import (
    Elsewhere,
    Future,
    FutureEvents,
    FutureRunner,
    FutureStatus,
    WhatIfEviction,
    asks_only_for_work,
    more_evictions,
    subjects_of,
    sums_of,
)
from gpuconsole.model.clock import HOUR, MINUTE, SECOND, Span, Time, format_exactly, quantile
from gpuconsole.model.commands import Command, Later
from gpuconsole.model.cooperative import Steps, run_to_end
from gpuconsole.model.devices import in_one_unit
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.snapshot import Snapshot

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation


__all__ = [
    "FEASIBLE",
    "QueueChange",
    "StartShift",
    "WhatIf",
    "WhatIfEviction",
    "WhatIfOutcome",
    "WhatIfProgress",
    "prepare",
    "what_if",
    "what_if_steps",
]

_LOOKS: tuple[Span, ...] = (SECOND, 5 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR)
"""Times at which the forks are checked: they are compared as soon as all requested work runs."""
PARTS = 40
"""Number of equal steps to the horizon; a what-if can be cancelled after each."""
PIECES = 100
"""Within a step, a what-if can be cancelled each time after this many pieces of work."""


class WhatIfProgress(Struct, frozen=True, kw_only=True):
    """Progress of a what-if."""

    reached: Span
    """Simulated time since the fork; the same value may repeat."""
    answer: WhatIf | None = None
    """The first item has the outcome of the next cycle, the last one the whole outcome; those in between have none,
    except the first with `other_runs`, which has everything but the ranges.
    """
    last: bool = False
    other_runs: int | None = None
    """Number of started runs with other latencies; None until both forks are at the horizon."""


def what_if_steps(
    base: "Simulation",
    commands: Sequence[Command],
    horizon: Span,
    against: Sequence[Command] = (),
    places: Sequence[str] = (),
    found: Snapshot | None = None,
    elsewhere: Elsewhere | None = None,
    clock: Callable[[], float] | None = None,
) -> Iterator[WhatIfProgress]:
    """Fork `base` twice, apply the commands to one fork, run both for `horizon` and compare them, in steps.

    `base` is not modified; to cancel, stop iterating. Both forks draw the same random numbers, so that every difference
    comes from the commands; without a difference the answer is `empty`. Refused commands are listed, the others are
    applied. `against` are the commands of the baseline (default: none). `places` are the positions of the commands in
    their file; refusals begin with them. `found` is the live or saved cluster that `base` started from: decisions of
    `base` itself are not facts there. With `elsewhere` the baseline runs in another process. If latencies are drawn and
    there is a `clock` (seconds of CPU time), the changed fork is run again with other latencies, until the requested
    work has started and within a time limit, for ranges.
    """
    trial = _FuturePair(base, commands, horizon, against, places, found)
    with closing(trial.set_out(elsewhere)):
        yield WhatIfProgress(
            reached=0, answer=trial.compare(trial.tried.look(), trial.start_without), last=horizon == 0
        )
        if not horizon:
            return
        reached = 0
        for moment in trial.moments():
            for number, _ in enumerate(trial.advancing(moment), start=1):
                if number % PIECES == 0:
                    yield WhatIfProgress(reached=reached)
            reached = moment - trial.start
            yield WhatIfProgress(reached=reached)
        # In this order: the baseline may still be running.
        stands, unchanged = trial.tried.look(), trial.without.look()
    answer = trial.compare(stands, unchanged)
    others = trial.with_other_latencies(answer, unchanged.course, clock) if clock is not None else None
    if others is not None:
        yield WhatIfProgress(reached=horizon, answer=answer, other_runs=0)
        for number, _ in enumerate(others.running(), start=1):
            if number % PIECES == 0:
                yield WhatIfProgress(reached=horizon, other_runs=len(others.runs))
        answer = with_ranges(answer, stands.course, others)
    yield WhatIfProgress(reached=horizon, answer=answer, last=True)


def what_if(trial: Iterable[WhatIfProgress]) -> WhatIf:
    """Run a what-if to its end and return its outcome."""
    *_, last = trial
    assert last.answer is not None
    assert last.last
    return last.answer


def prepare(simulation: "Simulation", found: Snapshot | None = None) -> Steps[None]:
    """Fill the caches for the first step of a what-if, so that it starts fast; `found` as for `what_if_steps`."""
    if found is not None:
        sums_of(found)
        yield
    simulation.placement.prepare()
    yield
    snapshot = simulation.snapshot()
    sums_of(snapshot)
    yield
    holdings_of(snapshot)
    ready_gpus(snapshot)
    nodes_hourly(snapshot, simulation.policy.prices)


class _FuturePair:
    """The changed fork and the baseline of a what-if, and their progress. Mutates."""

    def __init__(
        self,
        base: "Simulation",
        commands: Sequence[Command],
        horizon: Span,
        against: Sequence[Command],
        places: Sequence[str],
        found: Snapshot | None,
    ) -> None:
        self.start, self.end = base.now, base.now + horizon
        self.commands, self.other, self._places = commands, against, places
        # The Snapshot is taken before the forks, so that they share its totals.
        begun = base.snapshot()
        self.now = found or begun
        self._local_without = Future(base, against)
        self.without: FutureRunner = self._local_without
        self.start_without = self._local_without.look()
        self.tried = Future(base, commands, places)
        self._base = base.fork() if base.policy.latencies is not None else None
        """For runs with other latencies: `base` itself may go on before they begin."""
        self.placed: tuple[Time, FutureStatus, FutureStatus] | None = None
        """Time at which all requested work ran, and both forks at that time."""

    def set_out(self, elsewhere: Elsewhere | None) -> FutureRunner:
        """Start the baseline, if possible in another process; the caller closes it."""
        if elsewhere is not None and self.end > self.start:
            self.without = elsewhere(self._local_without, self.end)
        if self.without is not self._local_without:
            # It can start before the first answer.
            run_to_end(self.without.advancing(self._unwatched(self.start)))
        return self.without

    def _unwatched(self, moment: Time) -> Time:
        """Return the time of the next check, to which the baseline may advance while the changed fork advances."""
        if self.without is self._local_without:
            return moment
        looks = () if self.placed is not None else (self.start + look for look in _LOOKS)
        return min((look for look in looks if moment <= look < self.end), default=self.end)

    def moments(self) -> list[Time]:
        """Return the times of the checks, the horizon last."""
        span = self.end - self.start
        parts = {span * part // PARTS for part in range(1, PARTS)}
        return [self.start + after for after in sorted({look for look in _LOOKS if look < span} | parts | {span})]

    def advancing(self, moment: Time) -> Steps[None]:
        """Advance both forks to a moment; record when all requested work runs."""
        yield from self.without.advancing(self._unwatched(moment))
        yield from self.tried.advancing(moment)
        if self.placed is None and moment - self.start in _LOOKS and moment < self.end:
            after = self.tried.simulation.snapshot()
            subjects = subjects_of(self.commands, after)
            if subjects and all(key in self.tried.course.started for key in subjects):
                self.placed = moment, self.without.look(), self.tried.look()

    def _too_late(self) -> Iterator[str]:
        """Yield refusals of commands that lie beyond the horizon."""
        span = self.end - self.start
        for number, command in enumerate(self.commands):
            if isinstance(command, Later) and command.after > span:
                place = f"{self._places[number]}: " if number < len(self._places) else ""
                yield f"{place}it lies beyond the horizon, +{format_exactly(span)}: set a longer horizon"

    def _only_tried(self, without: FutureEvents, what: HistoryEventKind) -> Iterator[str]:
        """Yield the messages of one kind of line in the changed fork, except those that the baseline has, too."""
        anyway = [] if self.other else _said(without, what)
        return (Counter(_said(self.tried.course, what)) - Counter(anyway)).elements()

    def with_other_latencies(
        self, answer: WhatIf, without: FutureEvents, clock: Callable[[], float]
    ) -> OtherLatencies | None:
        """Prepare runs with other latencies; None if none are drawn, or no requested work is pending."""
        if self._base is None:
            return None
        waiting = {one.workload for one in answer.outcomes if one.admitted is None or one.admitted >= self.start}
        return OtherLatencies(self._base, self.commands, answer, without, waiting, clock) if waiting else None

    def compare(self, stands: FutureStatus, unchanged: FutureStatus) -> WhatIf:
        """Compare the present states of the changed fork and of the baseline."""
        now = sums_of(self.now)
        tried, without = stands.course, unchanged.course
        reached, final, other = self.tried.simulation.now, stands.snapshot, unchanged.snapshot
        compared, before, after = self.placed or (reached, unchanged, stands)
        moments = self.now, other, final
        subjects = [(key, (after.snapshot, final)) for key in sorted(tried.asked)]
        lasting = [(key, (other,)) for key in sorted(without.asked)]
        evicted, evicted_without = tried.evictions(), without.evictions()
        lost_without, cost_without = without.lost()
        lost, cost = tried.lost()
        waits_without, waits = sorted(without.waits()), sorted(tried.waits())
        shifts = shifts_of(without, tried, tried.asked | without.asked, moments)
        latencies = self.tried.simulation.policy.latencies
        return WhatIf(
            time=self.start,
            compared=compared,
            horizon=reached,
            refused=(*self._only_tried(without, HistoryEventKind.COMMAND_REFUSED), *self._too_late()),
            so_already=tuple(self._only_tried(without, HistoryEventKind.COMMAND_NEEDLESS)),
            closed=closed_by(unchanged.sums.queues, stands.sums.queues),
            outcomes=tuple(outcome_of(key, tried, seen, without, (self.now, other)) for key, seen in subjects),
            against=tuple(outcome_of(key, without, seen, tried, (self.now, final)) for key, seen in lasting),
            evictions=more_evictions(evicted, evicted_without),
            evictions_without=more_evictions(evicted_without, evicted),
            subjects=tuple(sorted(subjects_with_pods(tried, final))),
            only_work=asks_only_for_work(self.commands),
            shifts=unexplained(shifts, reached) if self._base is not None else shifts,
            queues=queue_changes(now.queues, before.sums.queues, after.sums.queues),
            gpus_total=now.gpus.total,
            gpus_now=now.gpus.in_use,
            gpus_without=before.sums.gpus.in_use,
            gpus=after.sums.gpus.in_use,
            latency=latency_assumption(latencies) if latencies is not None else "",
            unit=in_one_unit({one.unit: one.total for one in (*now.gpus.units, *after.sums.gpus.units)})[1],
            median_wait_without=quantile(waits_without, 0.5),
            median_wait=quantile(waits, 0.5),
            p95_wait_without=quantile(waits_without, 0.95),
            p95_wait=quantile(waits, 0.95),
            waiting_without=unchanged.sums.waiting.workloads,
            waiting=stands.sums.waiting.workloads,
            checking_without=unchanged.sums.waiting.checking,
            checking=stands.sums.waiting.checking,
            placeless_without=unchanged.sums.waiting.by_nodes,
            placeless=stands.sums.waiting.by_nodes,
            lost_gpu_hours_without=lost_without,
            lost_gpu_hours=lost,
            cost_without=cost_without,
            cost=cost,
            gpu_hours_without=unchanged.gpu_hours,
            gpu_hours=stands.gpu_hours,
            capacity_hours_without=unchanged.capacity_hours,
            capacity_hours=stands.capacity_hours,
            gpus_total_without=unchanged.sums.gpus.ready,
            gpus_total_with=stands.sums.gpus.ready,
            hourly_without=unchanged.hourly,
            hourly=stands.hourly,
            fairness_without=fairness_of(before.sums.queues),
            fairness=fairness_of(after.sums.queues),
        )


def _said(course: FutureEvents, what: HistoryEventKind) -> list[str]:
    return [line.message for line in course.lines if line.what is what]
