"""Drills: run a scenario, check the expectations of its steps, and let the user predict the victims.

An expectation is checked right after its step, or has to hold within its `within`; the keys of one item have to hold at
the same time. An expectation that cannot be checked (unknown key or name, no expectation at all) is a problem and does
not pass. A step whose commands were rejected does not pass either.

In an interactive drill (`DrillSession`) a step lasts until the next one. Before each step the user predicts the
victims, then sees victims, rules and other candidates. A victim has the name that lists of work show: the Workload,
else the job or the single pod; a job counts as predicted if one of its evicted pods was.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.expectations import (
    DELETED,
    Expectation,
    ExpectationCheck,
    ExpectationState,
    ExpectError,
    ObjectNames,
    read_expectation,
)
from gpuconsole.insight.preemption.history import rule_in_words
from gpuconsole.model.clock import MINUTE, Span, Time, format_exactly
from gpuconsole.model.commands import Command, Finish
from gpuconsole.model.devices import WHOLE_GPU
from gpuconsole.model.events import HistoryEvent, HistoryEventKind, PreemptionTrace
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.scenario import Scenario, build_simulation
from gpuconsole.sim.scenario_form import Step

NO_EVICTIONS = "noEvictions"


class ExpectationVerdict(StrEnum):
    """Result of checking one expectation."""

    PASSED = "passed"
    FAILED = "failed"
    PROBLEM = "problem"
    """It cannot be checked, as it is invalid or names something unknown."""


class ExpectationOutcome(Struct, frozen=True, kw_only=True):
    """Result of checking one expectation."""

    step: int
    """From 1; 0 is the scenario as a whole."""
    at: Span = 0
    """Time at which it was decided, since the start of the scenario."""
    key: str = ""
    verdict: ExpectationVerdict
    wanted: str = ""
    got: str = ""
    """Actual value; for a problem, the error."""
    item: int | None = None
    """For a problem of one item of `expect`: its index, from 0."""
    where: str = ""
    """File, line and field, if the reader of the scenario knows them."""

    @property
    def ok(self) -> bool:
        """True if the expectation holds."""
        return self.verdict is ExpectationVerdict.PASSED

    @property
    def text(self) -> str:
        """The result in one line."""
        place = f"step {self.step} at {format_exactly(self.at)}: {self.key}".rstrip(": ")
        match self.verdict:
            case ExpectationVerdict.PASSED:
                return f"{place}: {self.got}"
            case ExpectationVerdict.FAILED:
                return f"{place}: expected {self.wanted}; got {self.got}"
            case ExpectationVerdict.PROBLEM:
                return f"{self.where or place}: {self.got}"


def run_drill(scenario: Scenario, *, seed: int | None = None) -> tuple[ExpectationOutcome, ...]:
    """Run a scenario and check every expectation: the drill passes if all results are ok.

    There is always at least one result: a scenario without expectations is a problem.
    """
    run = DrillRun(scenario, seed)
    for number in range(len(scenario.steps)):
        run.step(number)
    if not run.results:
        problem = "no step has an expectation; a drill without expectations fails"
        run.results.append(ExpectationOutcome(step=0, verdict=ExpectationVerdict.PROBLEM, got=problem))
    return tuple(run.results)


class DrillRun:
    """Runs a scenario step by step, and checks the expectations of each step. Mutates."""

    def __init__(self, scenario: Scenario, seed: int | None = None) -> None:
        self.scenario = scenario
        # Steps are scheduled one by one, so that steps with the same time are checked one after the other.
        self.twin = _Twin(build_simulation(replace(scenario, steps=()), seed=seed), ObjectNames(), [])
        self.results: list[ExpectationOutcome] = []
        self.checked = 0
        """Number of history lines that earlier checks have covered."""
        self._carried = 0
        """Number of scheduled steps."""

    def step(self, number: int) -> None:
        """Execute a step and check its expectations. The earlier steps must have been executed."""
        step = self.scenario.steps[number]
        before = len(self.twin.lines)
        self._carry(number)
        self.twin.advance(step.at)
        for refusal in self.twin.refusals(before):
            self._add(number, step.at, "command", ExpectationVerdict.PROBLEM, ExpectationCheck(False, "", refusal))
        seen = self.checked
        for position, item in enumerate(step.expect):
            try:
                expectation = read_expectation(item)
            except ExpectError as error:
                self._cannot_check(number, position, step.at, error)
            else:
                seen = max(seen, self._expect(number, position, expectation))
        self.checked = seen

    def rest(self, number: int, at_least: Span) -> None:
        """Advance time from a step to just before the next one.

        After the last step, by `at_least`, or by the longest `within` of its expectations if that is longer.
        """
        steps = self.scenario.steps
        if number + 1 < len(steps):
            following = steps[number + 1].at
            if following > self.twin.now:
                # Scheduled before the time passes, as in a run without pauses.
                self._carry(number + 1)
                self.twin.advance(following - 1)
            return
        items = steps[number].expect
        self.twin.advance(steps[number].at + max([at_least, *map(_within, items)]))

    def _carry(self, number: int) -> None:
        if number >= self._carried:
            self.twin.carry(self.scenario.steps[number])
            self._carried = number + 1

    def _expect(self, number: int, position: int, expectation: Expectation) -> int:
        """Check one item; return the number of history lines at the time of the decision."""
        step = self.scenario.steps[number]
        twin = self._ahead(number, step.at + expectation.within) if expectation.within else self.twin
        try:
            findings = twin.wait_for(expectation, self.checked, step.at + expectation.within)
        except ExpectError as error:
            self._cannot_check(number, position, twin.now, error)
            return len(twin.lines)
        for key, finding in findings.items():
            self._add(
                number, twin.now, key, ExpectationVerdict.PASSED if finding.ok else ExpectationVerdict.FAILED, finding
            )
        return len(twin.lines)

    def _ahead(self, number: int, deadline: Time) -> "_Twin":
        """Return a fork that runs to the deadline, with the steps scheduled before it."""
        twin = self.twin.fork()
        for later in self.scenario.steps[number + 1 :]:
            if later.at <= deadline:
                twin.carry(later)
        return twin

    def _cannot_check(self, number: int, position: int, now: Time, error: ExpectError) -> None:
        self._add(
            number,
            now,
            f"expect[{position}]",
            ExpectationVerdict.PROBLEM,
            ExpectationCheck(False, "", str(error)),
            position,
        )

    def _add(
        self,
        number: int,
        now: Time,
        key: str,
        verdict: ExpectationVerdict,
        finding: ExpectationCheck,
        item: int | None = None,
    ) -> None:
        self.results.append(
            ExpectationOutcome(
                step=number + 1,
                at=now - self.scenario.start,
                key=key,
                verdict=verdict,
                wanted=finding.wanted,
                got=finding.got,
                item=item,
            )
        )


def _within(item: Mapping[str, Any]) -> Span:
    """Read the `within` of an item; 0 if it is invalid."""
    try:
        return read_expectation(item).within
    except ExpectError:
        return 0


class _Twin:
    """A fork of the drill's simulation with its history and the names in it. Mutates."""

    def __init__(self, simulation: Simulation, names: ObjectNames, lines: list[HistoryEvent]) -> None:
        self.simulation = simulation
        self.names = names
        self.lines = lines
        self._listen()

    @property
    def now(self) -> Time:
        return self.simulation.now

    def fork(self) -> "_Twin":
        return _Twin(self.simulation.fork(), self.names.copy(), self.lines.copy())

    def carry(self, step: Step) -> None:
        self.simulation.schedule_commands(step.at, *step.commands)

    def refusals(self, since: int) -> list[str]:
        """Return why commands were rejected; finishing a finished workload is not an error."""
        return [
            line.message
            for line in self.lines[since:]
            if line.what is HistoryEventKind.COMMAND_REFUSED
            and not (line.reason == Finish.__name__ and self.names.knows(line.workload))
        ]

    def advance(self, until: Time) -> None:
        self.simulation.advance(until)
        self._listen()

    def wait_for(self, expectation: Expectation, since: int, deadline: Time) -> dict[str, ExpectationCheck]:
        """Run until all keys hold, at most to the deadline. Raises ExpectError for a key that cannot be checked.

        `noEvictions` has to hold until the deadline. An object may appear before it.
        """
        while self.now < deadline:
            if NO_EVICTIONS not in expectation.wanted:
                with suppress(ExpectError):
                    findings = expectation.check(self.look(since))
                    if all(finding.ok for finding in findings.values()):
                        return findings
            due = self.simulation.next_time
            self.advance(deadline if due is None else min(due, deadline))
        return expectation.check(self.look(since))

    def look(self, since: int) -> ExpectationState:
        """Return the current state, with the history lines after the first `since`."""
        queued = self.simulation.policy.kueue is not None
        return ExpectationState(self.simulation.snapshot(), self.lines[since:], self.names, queued)

    def _listen(self) -> None:
        events = self.simulation.drain()
        self.names.see(events)
        self.lines += (event for event in events if isinstance(event, HistoryEvent))


LAST: Span = MINUTE
"""Minimum time that follows the last step, so that its preemptors are scheduled by the end."""
_EVICTED = (HistoryEventKind.EVICTED, HistoryEventKind.POD_EVICTED)
_PLACED = (HistoryEventKind.ADMITTED, HistoryEventKind.STARTED)


class UpcomingStep(Struct, frozen=True, kw_only=True):
    """The next step of a drill, shown before the user predicts its victims."""

    number: int
    """From 1."""
    of: int
    at: Span
    """Time since the start of the drill."""
    commands: tuple[Command, ...]


class DrillEviction(Struct, frozen=True, kw_only=True):
    """One eviction in a step, with preemptor, rule and candidates."""

    key: str
    """Key of the evicted work: its Workload, its job or the pod."""
    name: str
    """Display name of what was evicted: for a job without a Workload, the name of its pod."""
    gpus: int
    """GPUs, or what `unit` names."""
    unit: str = WHOLE_GPU.noun
    priority: int
    at: Span
    reason: str
    """Text of the preemption rule if there is one, else the reason of the eviction."""
    by: str
    by_priority: int
    message: str
    choice: PreemptionTrace | None


class StepResult(Struct, frozen=True, kw_only=True):
    """Outcome of a step, compared with the prediction."""

    coming: UpcomingStep
    gone: tuple[DrillEviction, ...]
    placed: tuple[str, ...]
    """Names of admitted or scheduled work."""
    waiting: Mapping[str, str]
    """Name → reason code, of work that is pending at the end."""
    expected: tuple[ExpectationOutcome, ...]
    """Results of the drill's own expectations."""
    named: tuple[str, ...]
    """Keys of predicted victims (true positives)."""
    missed: tuple[str, ...]
    """Victims that were not predicted (false negatives)."""
    spared: tuple[str, ...]
    """Predicted, but not evicted (false positives)."""

    @property
    def right(self) -> bool:
        """True if the user predicted exactly the victims."""
        return not self.missed and not self.spared


class PredictionScore(Struct, frozen=True, kw_only=True):
    """Score of the predictions so far."""

    steps: int = 0
    right: int = 0
    """Number of steps with an exact prediction."""
    named: int = 0
    missed: int = 0
    spared: int = 0


class DrillSession:
    """An interactive drill: runs the steps one by one and scores the user's predictions. Mutates by `step`."""

    def __init__(self, scenario: Scenario, *, seed: int | None = None) -> None:
        self.scenario = scenario
        self._run = DrillRun(scenario, seed)
        self.played: list[StepResult] = []
        self.snapshot = self._run.twin.simulation.snapshot()

    @property
    def coming(self) -> UpcomingStep | None:
        """The next step; None after the last."""
        number, steps = len(self.played), self.scenario.steps
        if number >= len(steps):
            return None
        at = steps[number].at - self.scenario.start
        return UpcomingStep(number=number + 1, of=len(steps), at=at, commands=steps[number].commands)

    @property
    def score(self) -> PredictionScore:
        """Score of the predictions so far."""
        return PredictionScore(
            steps=len(self.played),
            right=sum(one.right for one in self.played),
            named=sum(len(one.named) for one in self.played),
            missed=sum(len(one.missed) for one in self.played),
            spared=sum(len(one.spared) for one in self.played),
        )

    @property
    def results(self) -> tuple[ExpectationOutcome, ...]:
        """Results of the drill's own expectations so far."""
        return tuple(self._run.results)

    def step(self, predicted: Iterable[str]) -> StepResult:
        """Execute the next step; `predicted` has the keys of the predicted victims."""
        coming = self.coming
        if coming is None:
            raise LookupError("the drill is over")
        number, twin = coming.number - 1, self._run.twin
        checked, lines_before = len(self._run.results), len(twin.lines)
        self._run.step(number)
        self._run.rest(number, LAST)
        self.snapshot = self._run.twin.simulation.snapshot()
        lines = twin.lines[lines_before:]
        gone = tuple(self._gone(line, lines) for line in lines if line.what in _EVICTED and line.reason != DELETED)
        said, went = dict.fromkeys(predicted), dict.fromkeys(one.key for one in gone)
        played = StepResult(
            coming=coming,
            gone=gone,
            placed=tuple(dict.fromkeys(twin.names.label(line.workload) for line in lines if line.what in _PLACED)),
            waiting=twin.look(lines_before).pending,
            expected=tuple(self._run.results[checked:]),
            named=tuple(key for key in went if key in said),
            missed=tuple(key for key in went if key not in said),
            spared=tuple(key for key in said if key not in went),
        )
        self.played.append(played)
        return played

    def label(self, key: str) -> str:
        """Return the display name of a workload, job or pod by its key."""
        return self._run.twin.names.label(key)

    def _gone(self, line: HistoryEvent, lines: Sequence[HistoryEvent]) -> DrillEviction:
        """An eviction, with the preemption that caused it."""
        subject = line.workload or line.pod
        orders = (one for one in lines if one.what is HistoryEventKind.PREEMPTED and one.time <= line.time)
        chosen = next((one for one in reversed(list(orders)) if subject in (one.workload, one.pod)), line)
        names = self._run.twin.names
        return DrillEviction(
            key=names.top(subject),
            name=names.label(subject),
            gpus=line.gpus,
            unit=line.unit,
            priority=line.priority,
            at=line.time - self.scenario.start,
            reason=rule_in_words(chosen.reason),
            by=names.label(line.by),
            by_priority=line.by_priority,
            message=line.message,
            choice=chosen.choice,
        )
