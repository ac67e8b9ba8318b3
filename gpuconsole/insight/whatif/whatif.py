"""Simulation of a what-if: a changed fork and a baseline fork, and their comparison.

The comparison has the outcomes of workloads, changed admission times and queues, and the ranges of these times, from
further runs of the changed fork that differ only in controller latencies.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.cost.rates import nodes_hourly
from gpuconsole.insight.data_gaps import latency_assumption
from gpuconsole.insight.derived import memoized
from gpuconsole.insight.index.demand import admitted_since, amount_of, wanted_units
from gpuconsole.insight.index.gpu_time import holdings_of, ready_gpus
from gpuconsole.insight.index.pods import pods_by_node
from gpuconsole.insight.index.quota_tree import NodeKind, QuotaNode
from gpuconsole.insight.index.unqueued_work import outermost, pods_of, unqueued_work
from gpuconsole.insight.pending.pending import explain
from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.insight.preemption.history import subject
from gpuconsole.insight.whatif.answer import (
    FEASIBLE,
    ClosedQueue,
    EvictedWorkload,
    QueueChange,
    StartShift,
    TimeRange,
    VaryingVictim,
    WhatIf,
    WhatIfOutcome,
    evictions_by_cause,
)
from gpuconsole.insight.whatif.futures import (
    LOSSES,
    Elsewhere,
    Future,
    FutureEvents,
    FutureRunner,
    FutureStatus,
    WhatIfEviction,
    asks_only_for_work,
    is_there,
    more_evictions,
    subjects_of,
    sums_of,
    unit_of_lines,
)
from gpuconsole.model.clock import HOUR, MINUTE, SECOND, Span, Time, format_exactly, quantile
from gpuconsole.model.cluster import Pod
from gpuconsole.model.commands import Command, Later
from gpuconsole.model.cooperative import Progress, Steps, run_to_end
from gpuconsole.model.devices import WHOLE_GPU, in_one_unit
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.run_times import Latencies, LatencyDistribution

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation


def outcome_of(
    key: str, tried: FutureEvents, snapshots: Sequence[Snapshot], without: FutureEvents, others: Sequence[Snapshot]
) -> WhatIfOutcome:
    """Return the outcome of one workload in the fork `tried`, compared with that in the fork `without`.

    `snapshots` are of the first fork, `others` of the second, newest last.
    """
    final, other = snapshots[-1], others[-1]
    workload = next((s.workloads[key] for s in reversed(snapshots) if key in s.workloads), None)
    twin = unqueued_work(final).get(key) if workload is None else None
    admitted, before = _let_in(tried, final, key), _let_in(without, other, key)
    ran = admitted is not None and admitted < tried.begun
    placeless = any(key in (pod.workload, pod.job, pod.key) for pod in _without_nodes(final))
    bound = tried.placed.get(key) or list(_first_places(tried.lines, key))
    first = tried.admitted.get(key, [None])[0]
    answer = explain(final, key) if admitted is None or ran or placeless else None
    gpus, unit = amount_of(final, workload) if workload is not None else _amount(final, twin, bound)
    return WhatIfOutcome(
        workload=key,
        queue=first.queue if first is not None else answer.queue if answer is not None else twin.queue if twin else "",
        gpus=gpus,
        unit=unit,
        priority=workload.priority if workload is not None else max((line.priority for line in bound), default=0),
        admitted=admitted,
        started=None if placeless else admitted if ran else tried.started.get(key),
        flavors=tuple(part for part in first.flavor.split(",") if part) if first is not None else (),
        nodes=tuple(dict.fromkeys(line.node for line in bound)),
        code=answer.code if answer is not None else PendingReason.NOT_WAITING,
        why=answer.headline if answer is not None else FEASIBLE,
        text=answer.text if answer is not None else "",
        new=key not in without.asked and not any(is_there(key, one) for one in others),
        admitted_without=before,
    )


def subjects_with_pods(course: FutureEvents, final: Snapshot) -> set[str]:
    """Return the keys of the requested work, and of the pods of jobs without a Workload, as these preempt."""
    bound = {line.pod for key in course.asked for line in course.placed.get(key, ())}
    waiting = {pod for key in course.asked if key not in final.workloads for pod in pods_of(final, key)}
    return course.asked | bound | waiting


def _first_places(lines: Iterable[HistoryEvent], key: str) -> Iterator[HistoryEvent]:
    """Yield the POD_BOUND lines of its pods at the first start, up to its first loss of a pod."""
    placed = False
    for line in lines:
        if line.what is HistoryEventKind.POD_BOUND and key in (line.workload, line.pod):
            placed = True
            yield line
        elif placed and line.what in LOSSES and subject(line) == key:
            return


def _amount(snapshot: Snapshot, twin: Workload | None, bound: Sequence[HistoryEvent]) -> tuple[int, str]:
    """Return amount and unit of a job without a Workload: the request, else what its pods hold (of shared GPUs)."""
    wanted = in_one_unit(wanted_units(snapshot, twin)) if twin is not None else (0, WHOLE_GPU.noun)
    return max(wanted, (sum(line.gpus for line in bound), unit_of_lines(bound)), key=lambda amount: amount[0])


def _let_in(course: FutureEvents, later: Snapshot, key: str) -> Time | None:
    """Return the time of admission in a fork, or before the fork if the workload is still admitted."""
    let_in = course.let_in(key)
    if key not in later.workloads:
        held = [
            pod.bound
            for pod in pods_by_node(later).of("").values()
            if pod.node and key in (pod.key, _owner(later, pod))
        ]
        return min([*held, *([let_in] if let_in is not None else [])], default=None)
    workload = later.workloads[key]
    return let_in or (admitted_since(workload) if workload.reserved else None)


def _owner(snapshot: Snapshot, pod: Pod) -> str:
    return outermost(snapshot.jobs.get, pod.job)


@memoized("pods")
def _without_nodes(snapshot: Snapshot) -> Sequence[Pod]:
    """Pods without a node that are not deleted and have no scheduling gates."""
    return [pod for pod in pods_by_node(snapshot).waiting.values() if not pod.deleted and not pod.gates]


def shifts_of(
    without: FutureEvents, tried: FutureEvents, subjects: set[str], moments: Sequence[Snapshot]
) -> tuple[StartShift, ...]:
    """Return other workloads whose admission time differs between the forks, largest first.

    Workloads count if they held no quota at the fork, by their first admission; jobs without a Workload by the times at
    which their pods are bound. `moments` are the start of the forks and the ends of both.
    """
    now, *ends = moments
    shifts = [*_placed_elsewhen(without, tried, subjects, ends)]
    for key in sorted((without.admitted.keys() | tried.admitted.keys()) - subjects):
        known = now.workloads.get(key)
        if known is not None and known.reserved:
            continue
        before, after = without.first_admission(key), tried.first_admission(key)
        if before != after:
            line = (tried.admitted.get(key) or without.admitted[key])[0]
            shifts.append(
                StartShift(
                    workload=key, queue=line.queue, gpus=line.gpus, unit=line.unit, without=before, changed=after
                )
            )
    return tuple(sorted(shifts, key=lambda shift: (-shift.gpus, shift.workload)))


def _placed_elsewhen(
    without: FutureEvents, tried: FutureEvents, subjects: set[str], ends: Sequence[Snapshot]
) -> Iterator[StartShift]:
    """Yield jobs and lone pods without a Workload whose first bindings differ between the forks."""
    for key in sorted((without.placed.keys() | tried.placed.keys()) - subjects):
        before, after = (
            Counter((line.time, line.gpus) for line in one.placed.get(key, ())) for one in (without, tried)
        )
        before, after = before - after, after - before
        if before or after:
            yield StartShift(
                workload=key,
                queue=next((one.queue for end in ends if (one := unqueued_work(end).get(key)) is not None), ""),
                gpus=max(sum(gpus * times for (_, gpus), times in one.items()) for one in (before, after)),
                unit=unit_of_lines(line for one in (without, tried) for line in one.placed.get(key, ())),
                without=min(before)[0] if before else None,
                changed=min(after)[0] if after else None,
            )


def queue_changes(*states: Mapping[str, QuotaNode]) -> tuple[QueueChange, ...]:
    """Return the queues that differ between baseline and changed fork; `states` are now, baseline, changed."""
    changes = []
    for name in sorted(states[1].keys() | states[2].keys()):
        start, before, after = (state.get(name, _ABSENT) for state in states)
        if (before.gpus, before.share_percent) != (after.gpus, after.share_percent):
            changes.append(
                QueueChange(
                    queue=name,
                    unit=max(start, before, after, key=lambda node: node.gpus.potential).unit,
                    used_now=start.gpus.used,
                    used_without=before.gpus.used,
                    used=after.gpus.used,
                    nominal_now=start.gpus.nominal,
                    nominal=after.gpus.nominal,
                    borrowed_now=start.gpus.borrowed,
                    borrowed_without=before.gpus.borrowed,
                    borrowed=after.gpus.borrowed,
                    share_now=start.share_percent,
                    share_without=before.share_percent,
                    share=after.share_percent,
                )
            )
    return tuple(changes)


def closed_by(before: Mapping[str, QuotaNode], after: Mapping[str, QuotaNode]) -> tuple[ClosedQueue, ...]:
    """Return the queues that admit no workloads for a reason that they do not have in the baseline (`before`)."""
    return tuple(
        ClosedQueue(queue=name, why=node.shut)
        for name, node in sorted(after.items())
        if node.shut not in ("", before.get(name, _ABSENT).shut)
    )


_ABSENT = QuotaNode(kind=NodeKind.CLUSTER_QUEUE, name="")


def fairness_of(queues: Mapping[str, QuotaNode]) -> float | None:
    """Jain's index over the shares of queues with used or requested quota; None if there are none."""
    shares = [queue.share_percent for queue in queues.values() if queue.gpus.used or queue.pending]
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else None


RUNS = 4
"""Number of further runs of the changed fork."""
CPU_SECONDS = 1.5
"""CPU time of these runs together; after it the present run is cut off, and no other starts."""
PARTS = 40
"""Number of steps in which a run advances to the horizon, if some requested work does not start."""


class LatencyRun(Struct, kw_only=True):
    """One run of the changed fork with other controller latencies. Mutated by `OtherLatencies`."""

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
        future = Future(self._base.fork_with_latency_run(number), self._commands)
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
        """Return the direct victims up to the start of all pending requested work: until then, runs are comparable."""
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


__all__ = [
    "FEASIBLE",
    "QueueChange",
    "StartShift",
    "WhatIf",
    "WhatIfEviction",
    "WhatIfOutcome",
    "prepare",
    "what_if_steps",
]

_LOOKS: tuple[Span, ...] = (SECOND, 5 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR)
"""Times at which the forks are checked: they are compared as soon as all requested work runs."""
PIECES = 100
"""Within a step, a what-if can be cancelled each time after this many pieces of work."""
OTHER_LATENCIES = "additional runs for ranges"
"""What a what-if does when both forks are at the horizon; it then counts runs in place of simulated time."""


def what_if_steps(
    base: "Simulation",
    commands: Sequence[Command],
    horizon: Span,
    against: Sequence[Command] = (),
    places: Sequence[str] = (),
    found: Snapshot | None = None,
    elsewhere: Elsewhere | None = None,
    clock: Callable[[], float] | None = None,
) -> Iterator[Progress[WhatIf]]:
    """Fork `base` twice, apply the commands to one fork, run both for `horizon` and compare them, in steps.

    The progress is the simulated time since the fork, which may repeat. The first item has the outcome of the next
    cycle, the last one the whole outcome; of those between only the first of `OTHER_LATENCIES` has an answer, which has
    everything but the ranges.

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
        first = trial.compare(trial.tried.look(), trial.start_without)
        yield Progress(done=0, total=horizon, answer=first, last=horizon == 0)
        if not horizon:
            return
        reached = 0
        for moment in trial.moments():
            for number, _ in enumerate(trial.advancing(moment), start=1):
                if number % PIECES == 0:
                    yield Progress(done=reached, total=horizon)
            reached = moment - trial.start
            yield Progress(done=reached, total=horizon)
        # In this order: the baseline may still be running.
        stands, unchanged = trial.tried.look(), trial.without.look()
    answer = trial.compare(stands, unchanged)
    others = trial.with_other_latencies(answer, unchanged.course, clock) if clock is not None else None
    if others is not None:
        yield Progress(doing=OTHER_LATENCIES, done=0, total=RUNS, answer=answer)
        for number, _ in enumerate(others.running(), start=1):
            if number % PIECES == 0:
                yield Progress(doing=OTHER_LATENCIES, done=len(others.runs), total=RUNS)
        answer = with_ranges(answer, stands.course, others)
    yield Progress(done=horizon, total=horizon, answer=answer, last=True)


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
