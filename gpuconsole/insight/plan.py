"""Capacity plan: the cheapest change with which requested workloads run within a target wait, simulated in forks.

As a rule, more of a change (GPUs of quota, nodes, priority) does not make the requested workloads wait longer. So the
smallest sufficient amount is found by binary search, and it is simulated before it is proposed.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from gpuconsole.insight.future_events import more_evictions
from gpuconsole.insight.futures import Future
from gpuconsole.insight.pending import explain
from gpuconsole.insight.plan_kinds import PlanKind, kinds, subjects
from gpuconsole.insight.reasons import PendingReason
from gpuconsole.insight.subjects import subjects_of
from gpuconsole.model.clock import HOUR, SECOND, Span, Time
from gpuconsole.model.commands import Command, SetPriority
from gpuconsole.model.events import HistoryEventKind

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation

PARTS = 12
"""Number of steps of a run to the horizon."""


class PlanOption(Struct, frozen=True, kw_only=True):
    """A simulated change, and its effect on the requested workloads."""

    kind: str
    """`nothing`, `preemption`, `priority`, `fair sharing`, `quota`, `nodes` or `quota and nodes`."""
    words: str
    commands: tuple[Command, ...]
    hourly: float
    """Cost of the added nodes, USD per hour. Quota alone costs nothing, except to other queues."""
    soon: bool
    """The requested workloads run within the target wait."""
    holds: bool
    """The requested workloads run within the target wait, and at least 95% of them keep running to the horizon."""
    admitted: int
    """Number of requested workloads that run before the horizon."""
    p95_wait: Span | None
    """Wait until they run; more than the horizon if they do not run before it. None without workloads."""
    evicted_again: int
    """Number of requested workloads that are evicted before the horizon."""
    victims: int
    """Additional evictions of other workloads."""
    lost_gpu_hours: float
    lost: float
    """Cost of the work that others lose, USD."""


class PlanObstacle(Struct, frozen=True, kw_only=True):
    """Obstacle that keeps a requested workload from running without a change."""

    workload: str
    """Empty if it cannot be submitted."""
    code: PendingReason
    why: str
    """A sentence."""
    remedies: tuple[str, ...] = ()
    """Remedies that no option covers, such as creating or resuming a queue."""


class CapacityPlan(Struct, frozen=True, kw_only=True):
    """The request, the result without a change, and the options, cheapest first."""

    time: Time
    """Time of the fork."""
    workloads: tuple[str, ...]
    wanted: Span
    horizon: Span
    without: PlanOption
    options: tuple[PlanOption, ...]
    """The smallest sufficient option of each kind, by cost.

    Options whose workloads keep running come first; those whose workloads are evicted again come after them.
    """
    failed: tuple[PlanOption, ...]
    """Kinds that do not meet the target with the largest amount that was tried."""
    obstacles: tuple[PlanObstacle, ...] = ()
    """Reasons why workloads are pending at the horizon without a change."""

    @property
    def best(self) -> PlanOption | None:
        """The cheapest option that holds; if none does, the cheapest that meets the target temporarily."""
        return self.options[0] if self.options else None


class PlanProgress(Struct, frozen=True, kw_only=True):
    """Progress of a plan: the kind that is simulated, and the number of kinds done."""

    kind: str = ""
    done: int
    of: int
    plan: CapacityPlan | None = None
    """The result, once all kinds are done."""


def plan(base: "Simulation", commands: Sequence[Command], wanted: Span, horizon: Span = HOUR) -> CapacityPlan:
    """Find changes that let the workloads that `commands` submit run with a p95 wait of at most `wanted`.

    `base` is not modified. Every option is simulated in a fork of it, to `horizon` (at least `wanted`).
    """
    *_, last = plan_steps(base, commands, wanted, horizon)
    assert last.plan is not None
    return last.plan


def plan_steps(
    base: "Simulation", commands: Sequence[Command], wanted: Span, horizon: Span = HOUR
) -> Iterator[PlanProgress]:
    """`plan` as an iterator whose last item has the plan; to cancel, stop iterating."""
    search = _Search(base, commands, wanted, max(wanted, horizon))
    without = yield from _with_progress(search.plainly(), PlanProgress(kind="no change", done=0, of=1))
    options: list[PlanOption] = []
    failed: list[PlanOption] = []
    tried = [] if without.holds or not search.subjects else kinds(search.snapshot, search.workloads, base.policy)
    for done, kind in enumerate(tried, start=1):
        found = yield from _with_progress(
            search.least(kind), PlanProgress(kind=kind.name, done=done, of=len(tried) + 1)
        )
        if not found.soon:
            failed.append(found)
        elif not any(subjects(found.commands) == subjects(other.commands) for other in options):
            options.append(found)
    if without.soon:
        options.append(without)
    made = CapacityPlan(
        time=base.now,
        workloads=tuple(sorted(search.subjects)),
        wanted=wanted,
        horizon=search.horizon,
        without=without,
        options=tuple(sorted(options, key=_rank)),
        failed=tuple(failed),
        obstacles=tuple(search.obstacles()),
    )
    yield PlanProgress(done=len(tried) + 1, of=len(tried) + 1, plan=made)


def _rank(option: PlanOption) -> tuple[bool, float, int, str]:
    return not option.holds, option.hourly + option.lost, option.victims, option.kind


Trial = Generator[None, None, PlanOption]
"""Simulation of an option up to the horizon, in steps."""


def _with_progress(trial: Trial, state: PlanProgress) -> Generator[PlanProgress, None, PlanOption]:
    """Yield the progress at every step of a simulation; return its result."""
    while True:
        yield state
        try:
            next(trial)
        except StopIteration as over:
            found: PlanOption = over.value
            return found


class _Search:
    """Simulates options in forks. Mutates: it records the requested workloads."""

    def __init__(self, base: "Simulation", commands: Sequence[Command], wanted: Span, horizon: Span) -> None:
        self.base, self.commands, self.wanted, self.horizon = base, tuple(commands), wanted, horizon
        self.snapshot = base.snapshot()
        # Kueue requeues pending workloads after the change: they are ahead of workloads submitted after it.
        self._start = base.now + base.policy.gathering + SECOND
        self._plain = self._future()
        asked = self._plain.simulation.snapshot()
        self.subjects = subjects_of(self.commands, asked)
        self.workloads = [asked.workloads[key] for key in sorted(self.subjects) if key in asked.workloads]

    def _future(self, changes: Sequence[Command] = (), late: Iterable[Command] = ()) -> Future:
        """Return a fork with the changes applied, pending workloads requeued, and then the requested ones submitted."""
        future = Future(self.base, changes)
        future.advance(self._start)
        for command in (*self.commands, *late):
            future.simulation.submit(command)
        return future

    def plainly(self) -> Trial:
        """Simulate without a change, as the baseline of all options. Has to run first."""
        yield from self._run(self._plain)
        return self._judged("nothing", "no change", (), 0.0, self._plain)

    def obstacles(self) -> Iterator[PlanObstacle]:
        """Yield why workloads do not run at the horizon in the baseline; its run has to be complete."""
        self._plain.simulation.show_inadmissible(self.subjects)
        later = self._plain.simulation.snapshot()
        for line in self._plain.course.lines:
            if line.what is HistoryEventKind.COMMAND_REFUSED:
                yield PlanObstacle(workload="", code=PendingReason.INVALID, why=f"refused: {line.message}")
        for key in sorted(self.subjects):
            explanation = explain(later, key)
            if explanation.code is not PendingReason.NOT_WAITING:
                remedies = tuple(remedy.text for remedy in explanation.remedies if remedy.works)
                yield PlanObstacle(workload=key, code=explanation.code, why=explanation.headline, remedies=remedies)

    def least(self, kind: PlanKind) -> Trial:
        """Find the smallest amount of a kind that holds; if none does, the smallest that meets the target temporarily.

        It is the largest amount if that does not meet the target either. First all parts get the same number; then each
        is minimized given the others, the last one first, until none gets smaller. A part can become zero.
        """
        numbers = [kind.most] * len(kind.parts)
        found = yield from self._tried(kind, numbers)
        if not found.soon:
            return found
        every = range(len(kind.parts))
        found = yield from self._halved(kind, numbers, every, found, least=1)
        if len(every) == 1:
            return found
        tried_with: dict[int, list[int]] = {}
        while open := [part for part in reversed(every) if tried_with.get(part) != numbers]:
            found = yield from self._halved(kind, numbers, open[:1], found, least=0)
            tried_with[open[0]] = [*numbers]
        return found

    def _halved(
        self, kind: PlanKind, numbers: list[int], parts: Sequence[int], found: PlanOption, *, least: int
    ) -> Trial:
        """Find the smallest number of `parts` that holds, by binary search; mutates `numbers`. `found` is the best so
        far.

        The requested amount is tried first: with more quota, other workloads may be admitted first, so that more is
        needed.
        """
        below, above, likely, lasting = least - 1, numbers[parts[0]], kind.likely, found.holds
        while above - below > 1:
            # Zero is tried first: with a small amount, other workloads may be admitted first.
            number = 0 if below < 0 else likely if below < likely < above else (below + above) // 2
            option = yield from self._tried(kind, [number if at in parts else n for at, n in enumerate(numbers)])
            if option.holds or (option.soon and not lasting):
                found, above = option, number
            else:
                below = number
        for part in parts:
            numbers[part] = above
        return found

    def _tried(self, kind: PlanKind, numbers: Sequence[int]) -> Trial:
        """Simulate an option to the horizon: its changes, then the requested workloads, then their priorities."""
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
        """Advance to the horizon in steps, so that the caller can do other work or cancel."""
        for part in range(1, PARTS + 1):
            future.advance(self._start + self.horizon * part // PARTS)
            yield

    def _judged(self, kind: str, words: str, more: tuple[Command, ...], hourly: float, future: Future) -> PlanOption:
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
        return PlanOption(
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
        reasons = {
            line.reason
            for line in future.course.lines
            if line.what is HistoryEventKind.EVICTED and line.workload == key
        }
        if started is not None and ready is not None and reasons <= {"PodsReadyTimeout"}:
            # Independent pods of a Job start before all of them have nodes.
            started = max(started, ready.since) if ready.status else None
        return self.horizon + SECOND if started is None else started - self._start

    def _all_but_few(self, running: int) -> bool:
        return running * 100 >= 95 * len(self.subjects)
