"""Interactive drill: before each step the user predicts the victims, then sees victims, rules and other candidates.

A step lasts until the next one. A victim has the name that lists of work show: the Workload, else the job or the single
pod; a job counts as predicted if one of its evicted pods was.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from gpuconsole.insight.drill import DrillRun, ExpectationOutcome
from gpuconsole.insight.expectation_state import DELETED
from gpuconsole.insight.preemptions import rule_in_words
from gpuconsole.model.clock import MINUTE, Span
from gpuconsole.model.commands import Command
from gpuconsole.model.decisions import PreemptionTrace
from gpuconsole.model.device_units import WHOLE_GPU
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.sim.scenario import Scenario

LAST: Span = MINUTE
"""Minimum duration of the last step, so that its preemptor is scheduled at the end."""
_EVICTED = (HistoryEventKind.EVICTED, HistoryEventKind.POD_EVICTED)
_PLACED = (HistoryEventKind.ADMITTED, HistoryEventKind.STARTED)


class UpcomingStep(Struct, frozen=True, kw_only=True):
    """The next step."""

    number: int
    """From 1."""
    of: int
    at: Span
    """Time since the start of the drill."""
    commands: tuple[Command, ...]


class DrillEviction(Struct, frozen=True, kw_only=True):
    """One victim, with preemptor, rule and candidates."""

    key: str
    """Key in a list of work."""
    name: str
    """Name of the evicted object: of a job, its pod."""
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
        """True if the prediction is exact."""
        return not self.missed and not self.spared


class PredictionScore(Struct, frozen=True, kw_only=True):
    """Score of the predictions so far."""

    steps: int = 0
    right: int = 0
    """Steps with an exact prediction."""
    named: int = 0
    missed: int = 0
    spared: int = 0


class DrillSession:
    """A drill in progress, with the predictions. Mutates by `step`."""

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
        """Display name of a key."""
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
