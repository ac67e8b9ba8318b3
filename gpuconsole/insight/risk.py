"""What may evict running work, and how probable that is: the cluster run forward many times, as for `eta`.

Beside it, who goes first when a lender wants its quota back, by the engine's own search (see `ledger`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.cost import UNKNOWN
from gpuconsole.insight.eta import life
from gpuconsole.insight.expected_start import assumptions
from gpuconsole.insight.ledger import ledger
from gpuconsole.insight.look import DELETED
from gpuconsole.insight.past import past
from gpuconsole.insight.preemptions import rule_in_words
from gpuconsole.insight.running import Runner, runners
from gpuconsole.insight.standing import Standing, standing_of
from gpuconsole.model.clock import HOUR, Span, Time
from gpuconsole.model.events import Happened, What
from gpuconsole.model.workloads import PLACED, phase
from gpuconsole.sim.run_times import learn

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation

RUNS = 20
HORIZON: Span = 6 * HOUR


class Cause(Struct, frozen=True):
    """Why a workload was evicted first, and in how many runs."""

    reason: str
    """The rule of a preemption in words, else the eviction's own reason."""
    by_queue: str
    """Of the preemptor, if there was one."""
    runs: int


class Turn(Struct, frozen=True):
    """A place in the line of those who go when a lender takes back all that it owns of a flavor; from 1."""

    lender: str
    flavor: str
    place: int


class Danger(Struct, frozen=True, kw_only=True):
    """One running workload: a job or a pod where no Workload stands for it."""

    workload: str
    queue: str
    """Where Kueue admits, the ClusterQueue; else Volcano's or KAI's, if any."""
    gpus: int
    instances: int = 0
    """MIG instances."""
    borrowed: int | None
    """None where its ClusterQueue is not there."""
    priority: int
    probability: float | None
    """0 to 1: the part of the runs in which it was evicted before the horizon; None where nobody can run it forward."""
    median: Span | None
    """Until the eviction, in the runs that had one."""
    causes: tuple[Cause, ...]
    """The most frequent first."""
    turns: tuple[Turn, ...]
    lost_gpu_hours: float | None
    """What an eviction now would lose; None where nobody can know it, as the cost."""
    cost: float | None
    """The same in USD."""


class Risk(Struct, frozen=True, kw_only=True):
    """All running workloads, the most endangered first."""

    time: Time
    horizon: Time
    runs: int
    dangers: tuple[Danger, ...]
    assumptions: tuple[str, ...]


class Foreboding(Struct, frozen=True, kw_only=True):
    """How far the runs are: so many are over, and the one under way has come so far."""

    runs: int
    reached: Span
    risk: Risk | None = None
    """Of the runs that are over; only where one has just ended."""


class _Fall(Struct, frozen=True):
    """An eviction in one run."""

    after: Span
    reason: str
    by_queue: str


def risk(
    simulation: "Simulation",
    lines: Iterable[Happened] = (),
    *,
    runs: int = RUNS,
    seed: int = 0,
    horizon: Span = HORIZON,
    found: Standing | None = None,
) -> Risk:
    """How probable it is for each running workload to be evicted before the horizon, by what, and who goes first.

    The simulation is not touched; the same seed gives the same answer. `found` is the cluster that it went on from,
    where others run that: what runs there counts, and what the simulation evicted at once.
    """
    *_, last = foreboding(simulation, lines, runs=runs, seed=seed, horizon=horizon, found=found)
    assert last.risk is not None
    return last.risk


def foreboding(
    simulation: "Simulation",
    lines: Iterable[Happened] = (),
    *,
    runs: int = RUNS,
    seed: int = 0,
    horizon: Span = HORIZON,
    found: Standing | None = None,
) -> Iterator[Foreboding]:
    """The same piece by piece, with an answer after each run: who stops asking gives up."""
    standing = found or standing_of(simulation)
    snapshot = standing.snapshot
    known = past(snapshot, lines)
    run_times = learn(known.runs, simulation.progress())
    running = runners(snapshot, simulation.policy.prices)
    keys = {name: one.key for one in running for name in (one.key, *one.pods)}
    at_once = _at_once(simulation, running) if found is not None else {}
    falls: dict[str, list[_Fall]] = {}
    turns = _turns(standing)
    for number in range(runs):
        twin = simulation.estimating(run_times, seed + number)
        told: list[Happened] = []
        for piece in life(twin, known, snapshot.time + horizon):
            told += piece
            yield Foreboding(runs=number, reached=twin.now - snapshot.time)
        for key, fall in {**at_once, **_falls(told, keys, snapshot.time)}.items():
            falls.setdefault(key, []).append(fall)
        over = number + 1
        dangers = [_danger(one, falls.get(one.key, ()), over, turns.get(one.key, ())) for one in running]
        dangers.sort(key=_rank)
        answer = Risk(
            time=snapshot.time,
            horizon=snapshot.time + horizon,
            runs=over,
            dangers=tuple(dangers),
            assumptions=assumptions(known),
        )
        yield Foreboding(runs=over, reached=0, risk=answer)


def first_in_line(standing: Standing) -> Risk:
    """What does not rest on nodes and pods, where not all are seen: for which lenders each Workload would go."""
    snapshot, turns = standing.snapshot, _turns(standing)
    running = [one for one in runners(snapshot, standing.policy.prices) if one.key in snapshot.workloads]
    dangers = [
        replace(_danger(replace(one, loss=UNKNOWN), (), 1, turns.get(one.key, ())), probability=None, instances=0)
        for one in running
    ]
    dangers.sort(key=_rank)
    return Risk(time=snapshot.time, horizon=snapshot.time, runs=0, dangers=tuple(dangers), assumptions=())


def _rank(one: Danger) -> tuple[float, float, str]:
    """The most endangered first, then who goes first for a lender."""
    return -(one.probability or 0.0), min((turn.place for turn in one.turns), default=inf), one.workload


def _at_once(simulation: "Simulation", running: Iterable[Runner]) -> dict[str, _Fall]:
    """Who runs in a cluster of others, and was evicted by the first cycle of the simulation that goes on from it."""
    found: dict[str, _Fall] = {}
    for one in running:
        workload = simulation.workload(one.key)
        if workload is not None and phase(workload) not in PLACED:
            why = workload.condition("Preempted") or workload.condition("Evicted")
            found[one.key] = _Fall(0, rule_in_words(why.reason) if why is not None else "evicted", "")
    return found


def _falls(lines: Sequence[Happened], keys: Mapping[str, str], start: Time) -> dict[str, _Fall]:
    """The first eviction of each workload, with the preemption that it goes back to.

    `keys` gives the workload of what loses its place: itself, or one of its pods.
    """
    chosen: dict[str, Happened] = {}
    found: dict[str, _Fall] = {}
    for line in lines:
        key = keys.get(line.workload)
        if key is None or key in found:
            continue
        if line.what is What.PREEMPTED:
            chosen[key] = line
        elif line.what is What.EVICTED and line.reason != DELETED:
            why = chosen.get(key, line)
            found[key] = _Fall(line.time - start, rule_in_words(why.reason), why.by_queue)
    return found


def _turns(standing: Standing) -> Mapping[str, Sequence[Turn]]:
    """Workload → its places in the lines of the lenders."""
    found: dict[str, list[Turn]] = {}
    if standing.session is None:
        return found
    for exposure in ledger(standing.snapshot, standing.session, standing.policy.prices).exposures:
        for place, leaving in enumerate(exposure.leaving, start=1):
            found.setdefault(leaving.workload, []).append(Turn(exposure.lender, exposure.flavor, place))
    return found


def _danger(one: Runner, falls: Sequence[_Fall], runs: int, turns: Sequence[Turn]) -> Danger:
    counts = Counter((fall.reason, fall.by_queue) for fall in falls)
    spans = sorted(fall.after for fall in falls)
    return Danger(
        workload=one.key,
        queue=one.queue,
        gpus=one.gpus,
        instances=one.instances,
        borrowed=one.borrowed,
        priority=one.priority,
        probability=len(falls) / runs,
        median=spans[len(spans) // 2] if spans else None,
        causes=tuple(
            Cause(reason, by_queue, number)
            for (reason, by_queue), number in sorted(counts.items(), key=lambda count: (-count[1], count[0]))
        ),
        turns=tuple(turns),
        lost_gpu_hours=one.loss.gpu_hours,
        cost=one.loss.cost,
    )
