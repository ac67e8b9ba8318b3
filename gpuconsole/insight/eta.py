"""Monte Carlo simulation of the start of pending work.

In each run, running and arriving work lasts as long as similar past work (see `run_times`), and the submissions of the
last days are repeated: a random past day for each future day. A simulation's own future arrivals and the later steps of
a scenario are unknown, as on a live cluster.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import sqrt
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.pods_by_node import pods_by_node
from gpuconsole.insight.unqueued_work import pods_of
from gpuconsole.insight.workload_history import PastSubmission, WorkloadHistory
from gpuconsole.model.clock import DAY, MINUTE, Span, Time
from gpuconsole.model.commands import Submit
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.sim.distributions import draw
from gpuconsole.sim.run_times import learn

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation

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


class StartsProgress(Struct, frozen=True, kw_only=True):
    """Progress of the runs: the number that is complete."""

    runs: int
    starts: Mapping[str, SimulatedStarts] | None = None
    """The result, once all runs are complete."""


def starts(
    simulation: "Simulation", workloads: Collection[str], known: WorkloadHistory, *, runs: int, seed: int, horizon: Span
) -> Mapping[str, SimulatedStarts]:
    """Simulate the cluster `runs` times until these workloads have started, or to the horizon.

    The simulation is not modified. The same seed gives the same runs.
    """
    *_, last = start_steps(simulation, workloads, known, runs=runs, seed=seed, horizon=horizon)
    assert last.starts is not None
    return last.starts


def start_steps(
    simulation: "Simulation", workloads: Collection[str], known: WorkloadHistory, *, runs: int, seed: int, horizon: Span
) -> Iterator[StartsProgress]:
    """`starts` as an iterator; to cancel, stop iterating. The simulation must not advance in the meantime.

    Partially scheduled work starts when its other pods have nodes.
    """
    snapshot = simulation.snapshot()
    waits, parts = _waiting_pods(snapshot, workloads), _parts(snapshot, workloads)
    run_times = learn(known.runs, known.lasted(simulation.progress()))
    end = simulation.now + horizon
    found: dict[str, list[Time]] = {key: [] for key in workloads}
    for number in range(runs):
        came: dict[str, Time] = {}
        left = {pod: key for key, pods in waits.items() for pod in pods}
        bound = {key: set(part.placed) for key, part in parts.items()}
        for lines in life(simulation.estimating(run_times, seed + number), known, end):
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
            yield StartsProgress(runs=number)
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
    yield StartsProgress(runs=runs, starts=starts_so_far)


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
            twin.schedule(due.time, Submit((due.workload,)))
            due = next(coming, None)
        twin.advance(ahead)
        yield [event for event in twin.drain() if isinstance(event, HistoryEvent)]


def again(known: WorkloadHistory, end: Time, seed: int) -> Iterator[PastSubmission]:
    """Sample arrivals from now until `end`: each future day repeats a random past day, at the same times of day.

    With less than two days of history, the history repeats from a random moment.
    """
    days = known.span // DAY
    block = DAY if days > 1 else known.span
    if not known.repeats:
        return
    begin, number = known.time, 0
    while begin < end:
        chance = draw(seed, "arrivals", number)
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
