"""What it takes to let workloads in soon enough: candidates of each kind, tried in forks, the cheapest that holds.

More of a candidate (GPUs of quota, nodes, a priority) never makes the asked ones wait longer as a rule: so the least is
found by halving, and what is found is tried before it is proposed.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from gpuconsole.insight.course import more_evictions
from gpuconsole.insight.futures import Future
from gpuconsole.insight.pending import explain
from gpuconsole.insight.plan_kinds import Kind, kinds, subjects
from gpuconsole.insight.reasons import Code
from gpuconsole.insight.subjects import subjects_of
from gpuconsole.model.clock import HOUR, SECOND, Span, Time
from gpuconsole.model.commands import Command, SetPriority
from gpuconsole.model.events import What

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation

PARTS = 12
"""Pieces of a run to the horizon."""


class Option(Struct, frozen=True, kw_only=True):
    """One way of letting them in, which was tried."""

    kind: str
    """`nothing`, `preemption`, `priority`, `fair sharing`, `quota`, `nodes` or `quota and nodes`."""
    words: str
    commands: tuple[Command, ...]
    hourly: float
    """USD that it costs an hour: what nodes cost that are added. Quota alone costs nothing, but somebody else."""
    soon: bool
    """They run within the wait that was asked for."""
    holds: bool
    """They do, and all but few keep their places to the horizon."""
    admitted: int
    """How many of them are admitted before the horizon."""
    p95_wait: Span | None
    """Until the asked ones run; one that does not before the horizon has waited to it. None if there are none."""
    evicted_again: int
    """How many of the asked ones lose their place again before the horizon."""
    victims: int
    """Evictions of others that there are with it only."""
    lost_gpu_hours: float
    lost: float
    """USD of the work that others lose by it."""


class Obstacle(Struct, frozen=True, kw_only=True):
    """Why one that is asked for does not run without any change."""

    workload: str
    """Empty for what cannot even be submitted."""
    code: Code
    why: str
    """A plain sentence."""
    remedies: tuple[str, ...] = ()
    """What helps beyond what is tried: nothing creates a queue, or resumes one."""


class Plan(Struct, frozen=True, kw_only=True):
    """What was asked for, what comes without any change, and what would do, the cheapest first."""

    time: Time
    """The moment whose cluster was forked."""
    workloads: tuple[str, ...]
    wanted: Span
    horizon: Span
    without: Option
    options: tuple[Option, ...]
    """Each the least of its kind that is enough; by cost, then by what others lose.

    Those that hold come first. One that lets them in soon, and lets them lose their places again, is enough only where
    no other is.
    """
    failed: tuple[Option, ...]
    """Kinds of which not even the most that was tried lets them in soon enough."""
    obstacles: tuple[Obstacle, ...] = ()
    """What keeps them waiting at the horizon without any change."""

    @property
    def best(self) -> Option | None:
        """The cheapest that holds; where none does, the cheapest that lets them in soon."""
        return self.options[0] if self.options else None


class Planning(Struct, frozen=True, kw_only=True):
    """How far a plan is: the kind that is being tried, and how many of how many are done."""

    kind: str = ""
    done: int
    of: int
    plan: Plan | None = None
    """Once all were tried."""


def plan(base: "Simulation", commands: Sequence[Command], wanted: Span, horizon: Span = HOUR) -> Plan:
    """Find what lets the workloads that `commands` submit run with a p95 wait of at most `wanted`.

    `base` is not touched. Whatever holds was tried in a fork of it, to `horizon` (at least `wanted`).
    """
    *_, last = planning(base, commands, wanted, horizon)
    assert last.plan is not None
    return last.plan


def planning(base: "Simulation", commands: Sequence[Command], wanted: Span, horizon: Span = HOUR) -> Iterator[Planning]:
    """The same piece by piece: who stops asking gives up. The last one has the plan."""
    search = _Search(base, commands, wanted, max(wanted, horizon))
    without = yield from _told(search.plainly(), Planning(kind="no change", done=0, of=1))
    options: list[Option] = []
    failed: list[Option] = []
    tried = [] if without.holds or not search.subjects else kinds(search.snapshot, search.workloads, base.policy)
    for done, kind in enumerate(tried, start=1):
        found = yield from _told(search.least(kind), Planning(kind=kind.name, done=done, of=len(tried) + 1))
        if not found.soon:
            failed.append(found)
        elif not any(subjects(found.commands) == subjects(other.commands) for other in options):
            options.append(found)
    if without.soon:
        options.append(without)
    made = Plan(
        time=base.now,
        workloads=tuple(sorted(search.subjects)),
        wanted=wanted,
        horizon=search.horizon,
        without=without,
        options=tuple(sorted(options, key=_rank)),
        failed=tuple(failed),
        obstacles=tuple(search.obstacles()),
    )
    yield Planning(done=len(tried) + 1, of=len(tried) + 1, plan=made)


def _rank(option: Option) -> tuple[bool, float, int, str]:
    return not option.holds, option.hourly + option.lost, option.victims, option.kind


Trial = Generator[None, None, Option]
"""A candidate on its way to the horizon."""


def _told(trial: Trial, state: Planning) -> Generator[Planning, None, Option]:
    """Tell how far the plan is with every piece of a trial; returns what came of that."""
    while True:
        yield state
        try:
            next(trial)
        except StopIteration as over:
            found: Option = over.value
            return found


class _Search:
    """Tries candidates in forks. Mutates: it remembers who the asked ones are."""

    def __init__(self, base: "Simulation", commands: Sequence[Command], wanted: Span, horizon: Span) -> None:
        self.base, self.commands, self.wanted, self.horizon = base, tuple(commands), wanted, horizon
        self.snapshot = base.snapshot()
        # A change wakes those that wait for it already: they come before whoever is submitted after it.
        self._start = base.now + base.policy.gathering + SECOND
        self._plain = self._future()
        asked = self._plain.simulation.snapshot()
        self.subjects = subjects_of(self.commands, asked)
        self.workloads = [asked.workloads[key] for key in sorted(self.subjects) if key in asked.workloads]

    def _future(self, changes: Sequence[Command] = (), late: Iterable[Command] = ()) -> Future:
        """A fork in which changes are made and wake whom they wake, and in which the asked ones are submitted then."""
        future = Future(self.base, changes)
        future.advance(self._start)
        for command in (*self.commands, *late):
            future.simulation.submit(command)
        return future

    def plainly(self) -> Trial:
        """What comes without any change, which all others are compared with. It has to be first."""
        yield from self._run(self._plain)
        return self._judged("nothing", "no change", (), 0.0, self._plain)

    def obstacles(self) -> Iterator[Obstacle]:
        """Why they do not run at the horizon as it is; the run without any change has to be over."""
        self._plain.simulation.show_parked(self.subjects)
        later = self._plain.simulation.snapshot()
        for line in self._plain.course.lines:
            if line.what is What.COMMAND_REFUSED:
                yield Obstacle(workload="", code=Code.INVALID, why=f"refused: {line.message}")
        for key in sorted(self.subjects):
            told = explain(later, key)
            if told.code is not Code.NOT_WAITING:
                remedies = tuple(remedy.text for remedy in told.remedies if remedy.works)
                yield Obstacle(workload=key, code=told.code, why=told.headline, remedies=remedies)

    def least(self, kind: Kind) -> Trial:
        """The least of a kind that holds, or lets them in soon where even the most of it does not hold.

        It is the most of it where not even that lets them in. First all of its parts grow alike; then each is made as
        small as it may be beside the others, the last one first, until none becomes smaller; nothing, where they are
        enough without it.
        """
        numbers = [kind.most] * len(kind.parts)
        found = yield from self._tried(kind, numbers)
        if not found.soon:
            return found
        every = range(len(kind.parts))
        found = yield from self._halved(kind, numbers, every, found, least=1)
        if len(every) == 1:
            return found
        beside: dict[int, list[int]] = {}
        while open := [part for part in reversed(every) if beside.get(part) != numbers]:
            found = yield from self._halved(kind, numbers, open[:1], found, least=0)
            beside[open[0]] = [*numbers]
        return found

    def _halved(self, kind: Kind, numbers: list[int], parts: Sequence[int], found: Option, *, least: int) -> Trial:
        """As little as holds of some parts that have one number; mutates `numbers`. `found` is what holds so far.

        As much as is asked for is tried first: with more quota others may get in before, and then it takes more of all.
        """
        below, above, likely, lasting = least - 1, numbers[parts[0]], kind.likely, found.holds
        while above - below > 1:
            # Whether it takes this part at all comes first: with a little of it others may get in before.
            number = 0 if below < 0 else likely if below < likely < above else (below + above) // 2
            option = yield from self._tried(kind, [number if at in parts else n for at, n in enumerate(numbers)])
            if option.holds or (option.soon and not lasting):
                found, above = option, number
            else:
                below = number
        for part in parts:
            numbers[part] = above
        return found

    def _tried(self, kind: Kind, numbers: Sequence[int]) -> Trial:
        """Run a candidate to the horizon: first what it changes, then what was asked for, then its priorities."""
        changes = [make(number) for make, number in zip(kind.parts, numbers, strict=True) if number]
        more = tuple(command for change in changes for command in change.commands)
        late = tuple(command for command in more if isinstance(command, SetPriority))
        early = tuple(command for command in more if not isinstance(command, SetPriority))
        future = self._future(early, late)
        yield from self._run(future)
        sort = " and ".join(dict.fromkeys(change.sort for change in changes))
        words, hourly = ", ".join(change.words for change in changes), sum(change.hourly for change in changes)
        return self._judged(sort, words, more, hourly, future)

    def _run(self, future: Future) -> Generator[None, None, None]:
        """Come to the horizon in a few pieces, so that others get their turn, or somebody gives up."""
        for part in range(1, PARTS + 1):
            future.advance(self._start + self.horizon * part // PARTS)
            yield

    def _judged(self, kind: str, words: str, more: tuple[Command, ...], hourly: float, future: Future) -> Option:
        wait_of = {key: self._wait(future, key) for key in self.subjects}
        waits = sorted(wait_of.values())
        evictions = future.course.evictions()
        more_victims = more_evictions(evictions, self._plain.course.evictions())
        victims = [one for one in more_victims if one.workload not in self.subjects]
        again = {one.workload for one in evictions if one.workload in self.subjects}
        later = (one for one in evictions if one.time >= self._start + wait_of.get(one.workload, self.horizon + SECOND))
        left = {one.workload for one in later if one.workload in self.subjects}
        p95 = waits[max(0, -(-len(waits) * 95 // 100) - 1)] if waits else None
        running = sum(wait <= self.horizon for wait in waits)
        soon = p95 is not None and p95 <= self.wanted and self._all_but_few(running)
        return Option(
            kind=kind,
            words=words,
            commands=more,
            hourly=hourly,
            soon=soon,
            holds=soon and self._all_but_few(len(waits) - len(left)),
            admitted=running,
            p95_wait=p95,
            evicted_again=len(again),
            victims=len(victims),
            lost_gpu_hours=sum(victim.lost_gpu_hours for victim in victims),
            lost=sum(victim.cost for victim in victims),
        )

    def _wait(self, future: Future, key: str) -> Span:
        started, workload = future.course.started.get(key), future.simulation.workload(key)
        ready = workload.condition("PodsReady") if workload is not None and not workload.finished else None
        reasons = {line.reason for line in future.course.lines if line.what is What.EVICTED and line.workload == key}
        if started is not None and ready is not None and reasons <= {"PodsReadyTimeout"}:
            # Pods of a Job that works with each of them have begun before all of them have nodes.
            started = max(started, ready.since) if ready.status else None
        return self.horizon + SECOND if started is None else started - self._start

    def _all_but_few(self, running: int) -> bool:
        return running * 100 >= 95 * len(self.subjects)
