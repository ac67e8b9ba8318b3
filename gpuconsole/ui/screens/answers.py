"""Screens of reports about the whole cluster: ledger, fair shares, schedulable capacity, anti-patterns.

A report is computed in a fork, in the background, every `EVERY` seconds while its screen is active; ctrl+r recomputes
it immediately. A slow report is recomputed less often, so that it takes at most a twentieth of the time.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from gpuconsole.errors import ConsoleError
from gpuconsole.insight.antipatterns.findings import antipatterns, engines_of, unchecked_kinds
from gpuconsole.insight.data_gaps import PLACES, QUOTA, TURNS, bound_of_idle, missing_for_admission
from gpuconsole.insight.health.telemetry import utilization
from gpuconsole.insight.index.engine_queues import engine_shares
from gpuconsole.insight.pending.why import AdmissionView
from gpuconsole.insight.sharing.ledger import ledger
from gpuconsole.insight.sharing.shares import shares
from gpuconsole.insight.sharing.slots import slots
from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.prices import Prices
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui import format as fmt
from gpuconsole.ui.answers.antipatterns import antipatterns_lines
from gpuconsole.ui.answers.ledger import ledger_parts, without_kueue
from gpuconsole.ui.answers.missing_data import missing_data_lines, no_data_lines
from gpuconsole.ui.answers.parts import Part
from gpuconsole.ui.answers.shares import shares_parts
from gpuconsole.ui.answers.slots import slots_parts, starts_unknown
from gpuconsole.ui.screens.actions_mixin import Handlers
from gpuconsole.ui.screens.answers_text import TablesScreen
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.screens.drills import DrillsScreen
from gpuconsole.ui.screens.plan_and_risk import risk_screen
from gpuconsole.ui.screens.snapshot_worker import SnapshotWorker

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
