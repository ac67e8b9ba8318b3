"""Screens of reports about the whole cluster: ledger, fair shares, schedulable capacity, anti-patterns.

A report is computed in a fork, in the background, every `EVERY` seconds while its screen is active; ctrl+r recomputes
it immediately. A slow report is recomputed less often, so that it takes at most a twentieth of the time.

Screens of the preemption risk and of the plan, both computed by simulation runs.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from gpuconsole.errors import ConsoleError
from gpuconsole.insight.antipatterns.findings import antipatterns, engines_of, unchecked_kinds
from gpuconsole.insight.data_gaps import (
    PLACES,
    QUOTA,
    TURNS,
    bound_of_idle,
    missing_for_admission,
    missing_for_placement,
)
from gpuconsole.insight.health.telemetry import utilization
from gpuconsole.insight.index.engine_queues import engine_shares
from gpuconsole.insight.pending.why import AdmissionView
from gpuconsole.insight.preemption.risk import RUNS, EvictionRiskProgress, reclaim_risk
from gpuconsole.insight.sharing.ledger import ledger
from gpuconsole.insight.sharing.shares import shares
from gpuconsole.insight.sharing.slots import slots
from gpuconsole.insight.whatif.plan import PlanOption, PlanProgress
from gpuconsole.model.clock import Span, Time, format_span
from gpuconsole.model.commands import Command
from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.prices import Prices
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.services.analysis import AnalysisService
from gpuconsole.ui import format as fmt
from gpuconsole.ui.actions import Action
from gpuconsole.ui.answers.antipatterns import antipatterns_lines
from gpuconsole.ui.answers.parts import Part, missing_data_lines, no_data_lines
from gpuconsole.ui.answers.plan_and_risk import key_of, options_of, plan_parts, risk_parts
from gpuconsole.ui.answers.sharing import ledger_parts, shares_parts, slots_parts, starts_unknown, without_kueue
from gpuconsole.ui.screens.answers_text import AnswerChunk, LongAnswerScreen, TablesScreen
from gpuconsole.ui.screens.background import SnapshotWorker
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.screens.drill import DrillsScreen
from gpuconsole.ui.screens.mixins import Handlers
from gpuconsole.ui.whatif_changes import WhatIfChange


def risk_screen() -> LongAnswerScreen[EvictionRiskProgress]:
    """The preemption risk of each running workload."""
    return LongAnswerScreen("risk", "Preemption risk of running workloads", _risk_steps, _risk)


def _risk_steps(answers: AnalysisService) -> Iterator[EvictionRiskProgress]:
    """Results run by run; if invalid nodes or pods prevent simulation, the part that does not need them."""
    standing = answers.standing()
    if missing_for_placement(standing.snapshot):
        yield EvictionRiskProgress(runs=0, reached=0, risk=reclaim_risk(standing), last=True)
    else:
        yield from answers.risk()


class PlanScreen(LongAnswerScreen[PlanProgress]):
    """The cheapest changes of quota, nodes or policy that start the submitted jobs within a target wait."""

    def __init__(self, commands: Sequence[Command], wanted: Span, take: Callable[[WhatIfChange], object]) -> None:
        """`take` adds the changes of an option to the what-if."""
        title = f"Cheapest options to start within {format_span(wanted)}"
        super().__init__("plan", title, lambda answers: answers.plan(commands, wanted), self._chunk)
        self._take = take
        self._options: Mapping[str, PlanOption] = {}

    def _chunk(self, piece: PlanProgress) -> AnswerChunk:
        if piece.plan is None:
            return AnswerChunk(f"{piece.done} of {piece.of} kinds of options evaluated, now: {piece.kind}")
        self._options = {key_of(option): option for option in options_of(piece.plan)}
        return AnswerChunk(_as_of(piece.plan.time), plan_parts(piece.plan), whole=True)

    def handlers(self) -> Handlers:
        return {**super().handlers(), "object.rehearse": self._rehearse}

    def refusal(self, action: Action) -> str:
        if action.id == "object.rehearse" and self.option is None:
            return "no option is selected"
        if action.id == "object.rehearse" and self.option is not None and not self.option.commands:
            return "this option changes nothing"
        return super().refusal(action)

    @property
    def option(self) -> PlanOption | None:
        """The selected option."""
        return self._options.get(self.row.key) if self.row is not None else None

    def _rehearse(self) -> None:
        if (option := self.option) is not None:
            self.console_app.up()
            self._take(WhatIfChange(option.words, option.commands))


def _risk(piece: EvictionRiskProgress) -> AnswerChunk:
    parts = risk_parts(piece.risk) if piece.risk is not None else None
    if piece.risk is not None and piece.last:
        return AnswerChunk(_as_of(piece.risk.time), parts, whole=True)
    return AnswerChunk(f"run {piece.runs + 1} of at most {RUNS}, at +{format_span(piece.reached)}", parts)


def _as_of(time: Time) -> str:
    return f"as of {fmt.clock(time)}"


EVERY = 5.0
SHARE = 20


class AnswerContext(NamedTuple):
    """Input of a report."""

    standing: AdmissionView
    seen: Snapshot
    """The displayed Snapshot, with GPU telemetry, which a simulated fork lacks."""
    prices: Prices
    history: Sequence[HistoryEvent]
    """Preemptions, oldest first."""


Answer = Callable[[AnswerContext], Sequence[Part]]


class AnswerScreen(TablesScreen):
    """Screen of one report."""

    def __init__(self, name: str, title: str, answer: Answer) -> None:
        """`name` is the crumb, `title` is shown above the text."""
        super().__init__(name, title)
        self._question = answer
        self._background = SnapshotWorker(self, self._gather, self._tell, reads=True)
        self._due = 0.0

    def show(self, snapshot: Snapshot) -> None:
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + EVERY
            self._background.ask(snapshot)

    def handlers(self) -> Handlers:
        return {**super().handlers(), "app.refresh": self._again}

    def _again(self) -> None:
        self._due = 0.0
        self.show(self.console.snapshot)

    def _gather(self, snapshot: Snapshot) -> tuple[Sequence[Part], str] | ConsoleError:
        began = time.monotonic()
        try:
            standing = self.console.answers.standing()
            lines = self._question(AnswerContext(standing, snapshot, self.console.prices, self.console.preemptions()))
        except ConsoleError as error:
            return error
        self._due = max(self._due, time.monotonic() + SHARE * (time.monotonic() - began))
        return lines, fmt.clock(standing.snapshot.time)

    def _tell(self, found: tuple[Sequence[Part], str] | ConsoleError) -> None:
        if isinstance(found, ConsoleError):
            self.fail(found)
            return
        parts, when = found
        self.remark(f"as of {when}", "dim")
        self.write(parts)


def _ledger(asked: AnswerContext) -> Sequence[Part]:
    snapshot, session, _ = asked.standing
    if session is None:
        return [without_kueue(snapshot)]
    if lacking := snapshot.seen.missing_reasons(*QUOTA):
        return no_data_lines(lacking)
    return ledger_parts(ledger(snapshot, session, asked.prices), snapshot.time)


def _slots(asked: AnswerContext) -> Sequence[Part]:
    snapshot = asked.standing.snapshot
    lacking = snapshot.seen.missing_reasons(*PLACES)
    bound = bound_of_idle(snapshot)
    if bound is None:
        return no_data_lines(lacking)
    undecided = missing_for_admission(snapshot)
    return [
        *slots_parts(*slots(snapshot, bound), bound),
        "",
        *missing_data_lines((*lacking, *starts_unknown(undecided))),
    ]


def _shares(asked: AnswerContext) -> Sequence[Part]:
    snapshot, session, _ = asked.standing
    if lacking := snapshot.seen.missing_reasons(*TURNS):
        return no_data_lines(lacking)
    found = shares(session, snapshot.time) if session is not None else None
    return shares_parts(found, engine_shares(snapshot), snapshot.time)


def _antipatterns(asked: AnswerContext) -> Sequence[Part]:
    found = antipatterns(asked.seen, asked.prices, asked.history, engines_of(asked.standing.policy))
    average = utilization(asked.seen)
    lines = antipatterns_lines(found, measured=len(asked.seen.telemetry) > 0, average=average)
    return [*lines, *missing_data_lines(unchecked_kinds(asked.seen.seen))]


_WORDS: dict[str, tuple[str, Answer]] = {
    "ledger": ("Borrowed quota, and evictions if it is reclaimed", _ledger),
    "slots": ("Schedulable capacity: gangs that fit now", _slots),
    "shares": ("Fair shares and admission order", _shares),
    "antipatterns": ("Anti-patterns: wasted GPUs and how to fix them", _antipatterns),
}
"""Name → title and content of its screen."""
SCREENS: dict[str, Callable[[], ConsoleScreen]] = {
    **{name: partial(AnswerScreen, name, *about) for name, about in _WORDS.items()},
    "risk": risk_screen,
    "drills": DrillsScreen,
}
"""Name of the action `answer.NAME` → its screen."""


def answer_screen(name: str) -> ConsoleScreen:
    """The screen of one of `SCREENS`."""
    return SCREENS[name]()
