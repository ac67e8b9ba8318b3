"""Monte Carlo simulation of the start of pending work, from the history of run times and arrivals.

In each run, running and arriving work lasts as long as similar past work (see `sim.run_times`), and the submissions of
the last days are repeated: a random past day for each future day. A simulation's own future arrivals and the later
steps of a scenario are unknown, as on a live cluster. The history comes from a Snapshot (running work, and finished
work that is not deleted yet) and from history lines, which include deleted work.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import sqrt
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.index.demand import wanted_units
from gpuconsole.insight.index.pods import pods_by_node
from gpuconsole.insight.index.unqueued_work import pods_of
from gpuconsole.model.clock import DAY, HOUR, MINUTE, Span, Time
from gpuconsole.model.commands import Submit
from gpuconsole.model.cooperative import Progress, complete_answer
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.job import CronRules, Job
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload, anew
from gpuconsole.sim.run_times import ObservedRun, WorkKind, learn_run_times, random_for

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation


LOOK_BACK: Span = 7 * DAY
"""Length of the history of arrivals that is repeated."""
SHORTEST: Span = HOUR
"""Minimum history for repeating arrivals: in a shorter one, the initial jobs of a cluster would repeat."""
_ENDS = (HistoryEventKind.FINISHED, HistoryEventKind.FAILED)


class PastSubmission(Struct, frozen=True):
    """A workload that was submitted in the past, with the time, to be submitted again in the runs."""

    time: Time
    workload: Workload


class InterruptedRun(Struct, frozen=True):
    """A run that ended with an eviction: a lower bound of the run time."""

    start: Time
    length: Span


class WorkloadHistory(Struct, frozen=True, kw_only=True):
    """Known run times and submissions of a cluster up to a moment, from which the runs are sampled."""

    time: Time
    runs: tuple[ObservedRun, ...] = ()
    """In order of their starts."""
    attempts: Mapping[str, InterruptedRun] = {}
    """Unfinished work → its longest run that an eviction ended."""
    arrivals: tuple[PastSubmission, ...] = ()
    """In order of time."""
    shortest: Span = SHORTEST
    """Minimum length of the history for its arrivals to be repeated."""
    since: Time = 0
    """Start of the known arrivals. An arrival at that very moment only marks it, and is not part of a rate."""

    @property
    def span(self) -> Span:
        """Length of the known history."""
        return max(0, self.time - self.since)

    @property
    def repeats(self) -> bool:
        """True if the history is long enough to repeat its arrivals."""
        return bool(self.arrivals) and self.span >= self.shortest

    def lasted(self, progress: Mapping[str, Span]) -> Mapping[str, Span]:
        """Map unfinished work to the least time that it will run: the longest of its runs so far."""
        earlier = {key: max(one.length, progress.get(key, 0)) for key, one in self.attempts.items()}
        return {**progress, **earlier}


def workload_history(
    snapshot: Snapshot, lines: Iterable[HistoryEvent] = (), look_back: Span = LOOK_BACK
) -> WorkloadHistory:
    """Collect the history from a Snapshot and from history lines, which add run times of deleted work."""
    lines = list(lines)
    runs, attempts = _gone(snapshot, lines), _attempts(lines or snapshot.recent)
    arrivals: list[PastSubmission] = []
    for workload in snapshot.workloads.all():
        if workload.parent:
            continue
        kind = _kind(snapshot, workload)
        job = snapshot.jobs.get(workload.owner)
        start, end = _ran(workload, job)
        done = 0 if job is None else job.done
        earlier = attempts.get(workload.key)
        if start is not None and end is not None:
            runs.append((start, ObservedRun(kind, end - start + done)))
        elif start is not None:
            lasted = max(snapshot.time - start + done, earlier.length if earlier is not None else 0)
            runs.append((start, ObservedRun(kind, lasted, ended=False)))
        elif earlier is not None and not workload.finished:
            runs.append((earlier.start, ObservedRun(kind, earlier.length, ended=False)))
        recent = snapshot.time - look_back <= workload.created <= snapshot.time
        if recent and not _comes_by_itself(snapshot, job):
            arrivals.append(PastSubmission(workload.created, anew(workload)))
    runs.sort(key=lambda one: one[0])
    arrivals.sort(key=lambda one: (one.time, one.workload.key))
    since = max(_known_since(snapshot), snapshot.time - look_back)
    return WorkloadHistory(
        time=snapshot.time,
        runs=tuple(run for _, run in runs),
        attempts=attempts,
        arrivals=tuple(one for one in arrivals if one.time > since),
        since=since,
    )


def _comes_by_itself(snapshot: Snapshot, job: Job | None) -> bool:
    """True for jobs of an existing CronJob: the simulation creates more of them, so they must not be repeated."""
    maker = snapshot.jobs.get(job.owner) if job is not None else None
    return maker is not None and isinstance(maker.rules, CronRules)


def _known_since(snapshot: Snapshot) -> Time:
    """Return the start of the period of which all arrivals are known.

    Finished work is deleted after some time: work that finished before the oldest finished work that still exists may
    be deleted, so that its arrival is unknown. All later arrivals still exist: they are pending, running, or finished
    since.
    """
    first = min((workload.created for workload in snapshot.workloads.all()), default=snapshot.time)
    ends = (workload.condition("Finished") for workload in snapshot.workloads.all() if workload.finished)
    return max(first, min((end.since for end in ends if end is not None), default=first))


def _kind(snapshot: Snapshot, workload: Workload) -> WorkKind:
    local_queue = snapshot.local_queues.get(workload.local_queue)
    return WorkKind(
        workload.namespace,
        local_queue.cluster_queue if local_queue is not None else "",
        sum(wanted_units(snapshot, workload).values()),
    )


def began(snapshot: Snapshot, workload: Workload) -> Time | None:
    """Return the start of the last run, from conditions; None if the workload has not run, or was evicted since."""
    return _ran(workload, snapshot.jobs.get(workload.owner))[0]


def _ran(workload: Workload, job: Job | None) -> tuple[Time | None, Time | None]:
    """Return start and end of the last run, from conditions."""
    admitted, finished = workload.condition("Admitted"), workload.condition("Finished")
    ready = workload.condition("PodsReady")
    if admitted is None or not admitted.status:
        return None, None
    start = admitted.since
    if ready is not None and ready.status:
        start = max(start, ready.since)
    elif job is not None and job.started:
        start = max(start, job.started)
    end = finished.since if finished is not None and finished.status else None
    return (start, end) if end is None or end >= start else (None, None)


def _attempts(lines: Iterable[HistoryEvent]) -> dict[str, InterruptedRun]:
    """Return the longest run of each workload that was evicted and has not ended since, from history."""
    started: dict[str, Time] = {}
    found: dict[str, InterruptedRun] = {}
    for line in lines:
        match line.what:
            case HistoryEventKind.STARTED:
                started[line.workload] = line.time
            case HistoryEventKind.EVICTED if line.workload in started:
                start = started.pop(line.workload)
                last = InterruptedRun(start, line.time - start)
                found[line.workload] = max(found.get(line.workload, last), last, key=lambda one: one.length)
            case (
                HistoryEventKind.FINISHED
                | HistoryEventKind.FAILED
                | HistoryEventKind.DELETED
                | HistoryEventKind.SUBMITTED
            ):
                started.pop(line.workload, None)
                found.pop(line.workload, None)
            case _:
                pass
    return found


def _gone(snapshot: Snapshot, lines: Iterable[HistoryEvent]) -> list[tuple[Time, ObservedRun]]:
    """Return the run times of deleted workloads, from the start of their pods to the end."""
    started: dict[str, HistoryEvent] = {}
    found = []
    for line in lines:
        if line.workload in snapshot.workloads:
            continue
        if line.what is HistoryEventKind.STARTED:
            started[line.workload] = line
        elif line.what is HistoryEventKind.EVICTED:
            started.pop(line.workload, None)
        elif line.what in _ENDS and (start := started.pop(line.workload, None)) is not None:
            kind = WorkKind(line.workload.partition("/")[0], line.queue or start.queue, line.gpus or start.gpus)
            found.append((start.time, ObservedRun(kind, line.time - start.time)))
    return found


RUNS = 20
HORIZON: Span = 3 * DAY
_AHEAD: Span = 15 * MINUTE
"""Simulated time between two checks of a run."""


class SimulatedStarts(Struct, frozen=True, kw_only=True):
    """Start of a workload in each run, ascending; None (last) for runs in which it does not start by the horizon."""

    workload: str
    asked: Time
    horizon: Time
    past: Span
    """Length of the known history of submissions."""
    times: tuple[Time | None, ...]

    def at(self, part: float) -> Time:
        """The quantile `part` (0 to 1) of the start.

        It is interpolated between runs; with n runs, the first is the quantile 1/(n+1). Beyond the horizon, half of the
        starts come within 1.4 times the horizon, and three quarters within twice.
        """
        place = min(max(part * (len(self.times) + 1) - 1, 0.0), len(self.times) - 1.0)
        low, high = self._start(int(place)), self._start(min(int(place) + 1, len(self.times) - 1))
        return low + round((high - low) * (place - int(place)))

    def _start(self, place: int) -> Time:
        """Return the start in the run of this rank (from 0); beyond the horizon, by a Pareto tail of exponent two."""
        start = self.times[place]
        if start is not None:
            return start
        still, beyond = len(self.times) - place, self.times.count(None) + 1
        return self.asked + round((self.horizon - self.asked) * sqrt(beyond / still))

    def by(self, time: Time) -> float:
        """Fraction of the runs in which it has started by `time`."""
        return sum(start is not None and start <= time for start in self.times) / len(self.times)


def starts(
    simulation: "Simulation", workloads: Collection[str], known: WorkloadHistory, *, runs: int, seed: int, horizon: Span
) -> Mapping[str, SimulatedStarts]:
    """Simulate the cluster `runs` times until these workloads have started, or to the horizon.

    The simulation is not modified. The same seed gives the same runs.
    """
    return complete_answer(start_steps(simulation, workloads, known, runs=runs, seed=seed, horizon=horizon))


def start_steps(
    simulation: "Simulation", workloads: Collection[str], known: WorkloadHistory, *, runs: int, seed: int, horizon: Span
) -> Iterator[Progress[Mapping[str, SimulatedStarts]]]:
    """`starts` as an iterator, with the number of complete runs; the simulation must not advance in the meantime.

    Partially scheduled work starts when its other pods have nodes.
    """
    snapshot = simulation.snapshot()
    waits, parts = _waiting_pods(snapshot, workloads), _parts(snapshot, workloads)
    run_times = learn_run_times(known.runs, known.lasted(simulation.progress()))
    end = simulation.now + horizon
    found: dict[str, list[Time]] = {key: [] for key in workloads}
    for number in range(runs):
        came: dict[str, Time] = {}
        left = {pod: key for key, pods in waits.items() for pod in pods}
        bound = {key: set(part.placed) for key, part in parts.items()}
        for lines in life(simulation.estimating_fork(run_times, seed + number), known, end):
            for line in lines:
                if line.workload in parts:
                    if _complete(line, bound[line.workload], parts[line.workload]):
                        came.setdefault(line.workload, line.time)
                elif line.what is HistoryEventKind.STARTED and line.workload in found:
                    came.setdefault(line.workload, line.time)
                elif (
                    line.what is HistoryEventKind.POD_BOUND
                    and (key := left.pop(line.pod, ""))
                    and key not in left.values()
                ):
                    came.setdefault(key, line.time)
            if len(came) == len(found):
                break
            yield Progress(done=number, total=runs)
        for key, time in came.items():
            found[key].append(time)
    starts_so_far = {
        key: SimulatedStarts(
            workload=key,
            asked=simulation.now,
            horizon=end,
            past=known.span,
            times=(*sorted(times), *(None for _ in range(runs - len(times)))),
        )
        for key, times in found.items()
    }
    yield Progress(done=runs, total=runs, answer=starts_so_far, last=True)


class _Part(Struct, frozen=True):
    """A partially scheduled Workload: its number of pods, and those that have nodes."""

    pods: int
    placed: frozenset[str]


def _parts(snapshot: Snapshot, keys: Iterable[str]) -> Mapping[str, _Part]:
    """Return the partially scheduled Workloads: they have a STARTED line already, from their first pod."""
    found: dict[str, _Part] = {}
    for key in keys:
        pods = pods_by_node(snapshot).of(key).values() if key in snapshot.workloads else ()
        placed = frozenset(pod.key for pod in pods if pod.node)
        if 0 < len(placed) < len(pods):
            found[key] = _Part(len(pods), placed)
    return found


def _complete(line: HistoryEvent, bound: set[str], part: _Part) -> bool:
    """True if all pods have nodes after this line; an eviction (PodsReady timeout) may take the nodes first."""
    match line.what:
        case HistoryEventKind.EVICTED:
            bound.clear()
        case HistoryEventKind.POD_BOUND:
            bound.add(line.pod)
        case _:
            pass
    return len(bound) >= part.pods


def _waiting_pods(snapshot: Snapshot, keys: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """Job without a Workload → its pods without a node."""
    waiting = pods_by_node(snapshot).waiting
    unqueued = (key for key in keys if key not in snapshot.workloads)
    return {key: pods_of(snapshot, key) & waiting.keys() for key in unqueued}


def life(twin: "Simulation", known: WorkloadHistory, end: Time) -> Iterator[list[HistoryEvent]]:
    """Advance a fork to `end` with sampled arrivals; yield its events in pieces."""
    coming = again(known, end, twin.seed)
    due = next(coming, None)
    while twin.now < end:
        ahead = min(end, twin.now + _AHEAD)
        while due is not None and due.time <= ahead:
            twin.schedule_commands(due.time, Submit((due.workload,)))
            due = next(coming, None)
        twin.advance(ahead)
        yield [event for event in twin.drain() if isinstance(event, HistoryEvent)]


def again(known: WorkloadHistory, end: Time, seed: int) -> Iterator[PastSubmission]:
    """Sample the arrivals from now until `end`: each future day repeats a random past day, at the same times of day.

    With less than two days of history, the history repeats from a random moment.
    """
    days = known.span // DAY
    block = DAY if days > 1 else known.span
    if not known.repeats:
        return
    begin, number = known.time, 0
    while begin < end:
        chance = random_for(seed, "arrivals", number)
        if days > 1:
            first = known.time - DAY * (1 + chance.randrange(days))
            parts = [(first, first + block, begin)]
        else:
            middle = known.since + chance.randrange(block)
            parts = [(middle, known.time, begin), (known.since, middle, begin + known.time - middle)]
        for first, last, then in parts:
            for one in _between(known.arrivals, first, last):
                time = one.time - first + then
                if time <= end:
                    name = f"{one.workload.name}-again-{number}"
                    yield PastSubmission(time, replace(one.workload, name=name, created=time))
        begin, number = begin + block, number + 1


def _between(arrivals: Sequence[PastSubmission], first: Time, last: Time) -> Sequence[PastSubmission]:
    """Arrivals from `first` (inclusive) to `last` (exclusive)."""
    return arrivals[bisect_left(arrivals, first, key=_time) : bisect_left(arrivals, last, key=_time)]


def _time(arrival: PastSubmission) -> Time:
    return arrival.time
