"""Drills: run a scenario and check what its steps expect, a line for each expectation.

An expectation is checked right after its step, or has to come true within its `within`; the keys of one item have to
hold at the same moment. What cannot be checked (an unknown key or name, nothing expected at all) is a problem, and no
pass; so is a step whose commands were refused.
"""

from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.expect_forms import ExpectError
from gpuconsole.insight.expectations import Expectation, Finding, read_expectation
from gpuconsole.insight.look import Look
from gpuconsole.insight.names import Names
from gpuconsole.model.clock import Span, Time, format_exactly
from gpuconsole.model.commands import Finish
from gpuconsole.model.events import Happened, What
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.scenario import Scenario, build
from gpuconsole.sim.scenario_steps import Step

NO_EVICTIONS = "noEvictions"


class Verdict(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    PROBLEM = "problem"
    """It could not be checked."""


class Result(Struct, frozen=True, kw_only=True):
    """What became of one expectation."""

    step: int
    """Counts from 1; 0 speaks about the scenario as a whole."""
    at: Span = 0
    """When it was decided, since the start of the scenario."""
    key: str = ""
    verdict: Verdict
    wanted: str = ""
    got: str = ""
    """For a problem: what is wrong with the expectation."""
    item: int | None = None
    """For a problem of one item of `expect`: which, from 0."""
    where: str = ""
    """Its file, line and field, where whoever read the scenario knows them."""

    @property
    def ok(self) -> bool:
        return self.verdict is Verdict.PASSED

    @property
    def text(self) -> str:
        """The result in one line."""
        place = f"step {self.step} at {format_exactly(self.at)}: {self.key}".rstrip(": ")
        match self.verdict:
            case Verdict.PASSED:
                return f"{place}: {self.got}"
            case Verdict.FAILED:
                return f"{place}: wanted {self.wanted}; got {self.got}"
            case Verdict.PROBLEM:
                return f"{self.where or place}: {self.got}"


def run_drill(scenario: Scenario, *, seed: int | None = None) -> tuple[Result, ...]:
    """Run a scenario to its last expectation and check every one on the way: it passes if all results are ok.

    There is always one: that nothing is expected is a problem.
    """
    run = DrillRun(scenario, seed)
    for number in range(len(scenario.steps)):
        run.step(number)
    if not run.results:
        problem = "no step expects anything; a drill that checks nothing does not pass"
        run.results.append(Result(step=0, verdict=Verdict.PROBLEM, got=problem))
    return tuple(run.results)


class DrillRun:
    """One run of a scenario, step by step. Mutates."""

    def __init__(self, scenario: Scenario, seed: int | None = None) -> None:
        self.scenario = scenario
        # The steps are scheduled one by one, so that steps of the same moment are checked one after the other.
        self.twin = _Twin(build(replace(scenario, steps=()), seed=seed), Names(), [])
        self.results: list[Result] = []
        self.checked = 0
        """How many lines of history earlier checks have seen."""
        self._carried = 0
        """How many steps are scheduled."""

    def step(self, number: int) -> None:
        """Do a step, and check what it expects. The steps before it have been done."""
        step = self.scenario.steps[number]
        before = len(self.twin.lines)
        self._carry(number)
        self.twin.advance(step.at)
        for refusal in self.twin.refusals(before):
            self._add(number, step.at, "command", Verdict.PROBLEM, Finding(False, "", refusal))
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
        """Let the time after a step pass, up to the next one; after the last, until all that it expects is decided."""
        steps = self.scenario.steps
        if number + 1 < len(steps):
            following = steps[number + 1].at
            if following > self.twin.now:
                # Scheduled before the time passes, as it is where nobody looks in between.
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
        """Check one item; returns how many lines of history had happened when it was decided."""
        step = self.scenario.steps[number]
        twin = self._ahead(number, step.at + expectation.within) if expectation.within else self.twin
        try:
            findings = twin.wait_for(expectation, self.checked, step.at + expectation.within)
        except ExpectError as error:
            self._cannot_check(number, position, twin.now, error)
            return len(twin.lines)
        for key, finding in findings.items():
            self._add(number, twin.now, key, Verdict.PASSED if finding.ok else Verdict.FAILED, finding)
        return len(twin.lines)

    def _ahead(self, number: int, deadline: Time) -> "_Twin":
        """A twin that may run ahead; it also lives through the steps that come before the deadline."""
        twin = self.twin.fork()
        for later in self.scenario.steps[number + 1 :]:
            if later.at <= deadline:
                twin.carry(later)
        return twin

    def _cannot_check(self, number: int, position: int, now: Time, error: ExpectError) -> None:
        self._add(number, now, f"expect[{position}]", Verdict.PROBLEM, Finding(False, "", str(error)), position)

    def _add(
        self, number: int, now: Time, key: str, verdict: Verdict, finding: Finding, item: int | None = None
    ) -> None:
        self.results.append(
            Result(
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
    """How long an item waits; one that cannot be read waits for nothing."""
    try:
        return read_expectation(item).within
    except ExpectError:
        return 0


class _Twin:
    """A simulation with its history and the names in it. Mutates."""

    def __init__(self, simulation: Simulation, names: Names, lines: list[Happened]) -> None:
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
        self.simulation.schedule(step.at, *step.commands)

    def refusals(self, since: int) -> list[str]:
        """Why commands were not carried out. What has finished already may be finished again."""
        return [
            line.message
            for line in self.lines[since:]
            if line.what is What.COMMAND_REFUSED
            and not (line.reason == Finish.__name__ and self.names.knows(line.workload))
        ]

    def advance(self, until: Time) -> None:
        self.simulation.advance(until)
        self._listen()

    def wait_for(self, expectation: Expectation, since: int, deadline: Time) -> dict[str, Finding]:
        """Go on until all keys hold, to the deadline at most. Raises ExpectError for a key that cannot be checked.

        That nothing is evicted has to hold until the deadline. An object may appear before it.
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

    def look(self, since: int) -> Look:
        """The moment, and what happened since so many lines of history."""
        queued = self.simulation.policy.kueue is not None
        return Look(self.simulation.snapshot(), self.lines[since:], self.names, queued)

    def _listen(self) -> None:
        events = self.simulation.drain()
        self.names.see(events)
        self.lines += (event for event in events if isinstance(event, Happened))
