"""What would happen if: two futures of one simulation, one with the commands and one without, and how they differ."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from msgspec import Struct

from gpuconsole.insight.comparing import (
    closed_by,
    fairness_of,
    gpus_in,
    outcome_of,
    quantile,
    queue_changes,
    serving_queues,
    shifts_of,
)
from gpuconsole.insight.cost import nodes_hourly
from gpuconsole.insight.course import Course, Victim, more_evictions
from gpuconsole.insight.engine_queues import queues
from gpuconsole.insight.futures import Elsewhere, Future, Way
from gpuconsole.insight.gpu_time import holdings_of, ready_gpus
from gpuconsole.insight.gpu_totals import gpu_totals
from gpuconsole.insight.overview import waiting
from gpuconsole.insight.subjects import subjects_of
from gpuconsole.insight.whatif_answer import FEASIBLE, Outcome, QueueChange, Shift, WhatIf
from gpuconsole.model.clock import HOUR, MINUTE, SECOND, Span, Time, format_exactly
from gpuconsole.model.commands import Command, Later
from gpuconsole.model.events import What
from gpuconsole.model.snapshot import Snapshot

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation

__all__ = ["FEASIBLE", "Look", "Outcome", "QueueChange", "Shift", "Victim", "WhatIf", "looks", "prepare", "what_if"]

_LOOKS: tuple[Span, ...] = (SECOND, 5 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR)
"""After these spans the fork is looked at: the futures are compared as soon as everything asked for runs."""
PARTS = 40
"""Into so many equal parts the way to the horizon is cut, after each of which one may give up."""


class Look(Struct, frozen=True, kw_only=True):
    """How far a what-if is."""

    reached: Span
    """From the fork's start."""
    answer: WhatIf | None = None
    """The first look has what the next cycle brings, the last one everything; those between have none."""
    last: bool = False


def looks(
    base: "Simulation",
    commands: Sequence[Command],
    horizon: Span,
    against: Sequence[Command] = (),
    places: Sequence[str] = (),
    found: Snapshot | None = None,
    elsewhere: Elsewhere | None = None,
) -> Iterator[Look]:
    """Fork `base` twice, give the commands to one fork, let both run for `horizon`, and compare; step by step.

    `base` is not touched; who stops asking gives up. Both forks draw the same chances, so that every difference comes
    from the commands; commands that change nothing give a difference that is `empty`. Refused commands are named, the
    others are carried out. `against` is another list of changes, for the fork that else gets none. `places` say where
    each command is written; refusals begin with them. `found` is the cluster that others run and that `base` goes on
    from: what `base` decided to begin with is not so now. One of the two may go on `elsewhere`, beside the other.
    """
    trial = _Trial(base, commands, horizon, against, places, found)
    yield Look(reached=0, answer=trial.compare(), last=horizon == 0)
    if horizon:
        with closing(trial.set_out(elsewhere)):
            for moment in trial.moments():
                trial.advance(moment)
                yield Look(reached=moment - trial.start)
            yield Look(reached=horizon, answer=trial.compare(), last=True)


def what_if(trial: Iterable[Look]) -> WhatIf:
    """The answer of a what-if that is seen through."""
    *_, last = trial
    assert last.answer is not None
    assert last.last
    return last.answer


def prepare(simulation: "Simulation") -> None:
    """Add up what a first look needs, so that it only has to look at what changed since."""
    simulation.placement.prepare()
    snapshot = simulation.snapshot()
    queues(snapshot)
    gpu_totals(snapshot)
    waiting(snapshot)
    holdings_of(snapshot)
    ready_gpus(snapshot)
    nodes_hourly(snapshot, simulation.policy.prices)


class _Trial:
    """Two futures on their way. Mutates."""

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
        self.begun = base.snapshot()
        self.now = found or self.begun
        self._beside = Future(base, against)
        self.without: Way = self._beside
        self.tried = Future(base, commands, places)
        self.placed: tuple[Time, Snapshot, Snapshot] | None = None
        """When everything that was asked for ran, and the futures at that moment."""
        self._seen: set[str] = set()

    def set_out(self, elsewhere: Elsewhere | None) -> Way:
        """The future without the commands leaves; it is to be closed."""
        if elsewhere is not None:
            self.without = elsewhere(self._beside)
        return self.without

    def moments(self) -> list[Time]:
        """When to look, the horizon last."""
        span = self.end - self.start
        parts = {span * part // PARTS for part in range(1, PARTS)}
        return [self.start + after for after in sorted({look for look in _LOOKS if look < span} | parts | {span})]

    def advance(self, moment: Time) -> None:
        """Let both come to a moment; note when all that the commands ask for runs."""
        self.without.advance(moment)
        self.tried.advance(moment)
        if self.placed is None and moment - self.start in _LOOKS and moment < self.end:
            after = self.tried.simulation.snapshot()
            subjects = subjects_of(self.commands, after)
            if subjects and all(key in self.tried.course.started for key in subjects):
                self.placed = moment, self.without.look().snapshot, after

    def _too_late(self) -> Iterator[str]:
        """The changes that lie beyond the horizon, so that nobody tries them."""
        span = self.end - self.start
        for number, command in enumerate(self.commands):
            if isinstance(command, Later) and command.after > span:
                place = f"{self._places[number]}: " if number < len(self._places) else ""
                yield f"{place}it comes after the horizon, +{format_exactly(span)}: look farther ahead"

    def _only_tried(self, without: Course, what: What) -> Iterator[str]:
        """What this kind of line says of the changes, and not of the commands that come anyway."""
        anyway = [] if self.other else _said(without, what)
        return (Counter(_said(self.tried.course, what)) - Counter(anyway)).elements()

    def compare(self) -> WhatIf:
        """How the two differ by now."""
        stands, beside = self.tried.look(), self.without.look()
        tried, without = stands.course, beside.course
        reached, final = self.tried.simulation.now, stands.snapshot
        # As long as no time passed and nothing was changed there, the other future is what is.
        other = self.begun if reached == self.start and not self.other else beside.snapshot
        compared, before, after = self.placed or (reached, other, final)
        self._seen |= subjects_of(self.commands, after) | subjects_of(self.commands, final)
        rivals = subjects_of(self.other, other)
        # One after the other: what is added up of a Snapshot is kept for the newest one.
        sums = {id(snapshot): _Sum(snapshot) for snapshot in {id(s): s for s in (self.now, other, final)}.values()}
        placed = [sums.get(id(snapshot)) or _Sum(snapshot) for snapshot in (self.now, before, after)]
        trees, totals = [one.queues for one in placed], [one.gpus for one in placed]
        lost_without, cost_without = without.lost()
        lost, cost = tried.lost()
        waits_without, waits = sorted(without.waits()), sorted(tried.waits())
        return WhatIf(
            time=self.start,
            compared=compared,
            horizon=reached,
            refused=(*self._only_tried(without, What.COMMAND_REFUSED), *self._too_late()),
            so_already=tuple(self._only_tried(without, What.COMMAND_NEEDLESS)),
            closed=closed_by(sums[id(other)].queues, sums[id(final)].queues),
            outcomes=tuple(outcome_of(key, tried, (after, final), without, other) for key in sorted(self._seen)),
            against=tuple(outcome_of(key, without, (other,), tried, final) for key in sorted(rivals)),
            victims=more_evictions(tried, without),
            spared=more_evictions(without, tried),
            shifts=shifts_of(without, tried, self._seen | rivals, (self.now, other, final)),
            queues=queue_changes(*trees),
            gpus_total=totals[0].total,
            gpus_now=totals[0].in_use,
            gpus_without=totals[1].in_use,
            gpus=totals[2].in_use,
            median_wait_without=quantile(waits_without, 0.5),
            median_wait=quantile(waits, 0.5),
            p95_wait_without=quantile(waits_without, 0.95),
            p95_wait=quantile(waits, 0.95),
            waiting_without=sums[id(other)].waiting.workloads,
            waiting=sums[id(final)].waiting.workloads,
            checking_without=sums[id(other)].waiting.checking,
            checking=sums[id(final)].waiting.checking,
            placeless_without=sums[id(other)].waiting.by_nodes,
            placeless=sums[id(final)].waiting.by_nodes,
            lost_gpu_hours_without=lost_without,
            lost_gpu_hours=lost,
            cost_without=cost_without,
            cost=cost,
            gpu_hours_without=beside.gpu_hours,
            gpu_hours=stands.gpu_hours,
            capacity_hours_without=beside.capacity_hours,
            capacity_hours=stands.capacity_hours,
            gpus_total_without=gpus_in(other),
            gpus_total_with=gpus_in(final),
            hourly_without=beside.hourly,
            hourly=stands.hourly,
            fairness_without=fairness_of(trees[1]),
            fairness=fairness_of(trees[2]),
        )


class _Sum:
    """What is added up of one Snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.queues = serving_queues(queues(snapshot))
        self.gpus = gpu_totals(snapshot)
        self.waiting = waiting(snapshot)


def _said(course: Course, what: What) -> list[str]:
    return [line.message for line in course.lines if line.what is what]
