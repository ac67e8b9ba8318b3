"""The tour: eight steps through the console, each of which opens its screen and says what to do there."""

import re
from typing import NamedTuple

from textual.app import ComposeResult
from textual.widgets import Static

from gpuconsole.ui.actions import Handlers
from gpuconsole.ui.actions.keys import spell_all
from gpuconsole.ui.paint import Cell
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.table_model import Column
from gpuconsole.ui.widgets.grid import Grid

READING = 20
"""Seconds for which the instructions of a step are shown."""


class TourStep(NamedTuple):
    """A step of the tour."""

    question: str
    action: str
    """Id of the action that opens its screen."""
    text: str
    """What to do on that screen; an action's id in braces stands for its keys."""
    view: str = ""
    """View in which the action is run; empty for the current one."""


STEPS = (
    TourStep(
        "What needs attention?",
        "view.dashboard",
        "The dashboard shows GPUs, pending work, cost, queues and problems. Tab goes to the next panel, Enter opens the"
        " selected row.",
    ),
    TourStep(
        "What is pending, and why?",
        "view.workloads",
        "Pending workloads are first, by their position. {object.explain} explains the selected one: what blocks it,"
        " and what would admit it.",
    ),
    TourStep(
        "Who borrows from whom?",
        "answer.ledger",
        "Borrowed quota: the borrower, the lender, and the workloads that a reclaim would evict.",
    ),
    TourStep(
        "What fits now?",
        "answer.slots",
        "Schedulable capacity: the largest pod and gang that would start now, by quota, nodes and topology.",
    ),
    TourStep(
        "Who was preempted, by whom?",
        "view.preemptions",
        "Each preemption with its rule and the work that it lost. Enter opens the selected one.",
    ),
    TourStep(
        "What would happen if …?",
        "view.whatif",
        "{whatif.add} adds a change: a job, a quota, a lost node. Enter simulates it in a fork; the cluster does not"
        " change.",
    ),
    TourStep(
        "How do I submit a job?",
        "view.submit",
        "The verdict changes while you type. {submit.what-if} tries the job in a what-if; {submit.send} submits it, and"
        " asks first.",
    ),
    TourStep(
        "What happened an hour ago?",
        "time.open",
        "The whole console at an earlier time. The footer names the keys: by minutes, hours, preemptions and"
        " admissions, and back to the present.",
        view="dashboard",
    ),
)


class TourScreen(ConsoleScreen):
    """Lists the steps; Enter makes the selected one."""

    passing = True

    def crumb(self) -> str:
        return "tour"

    def body(self) -> ComposeResult:
        yield Static(
            "A tour of gpuconsole in eight steps. Enter opens a step; type :tour to come back for the next one.",
            markup=False,
        )
        yield Grid(self._columns(), key=lambda step: step.action)
        yield Static("", id="told", markup=False)

    def _columns(self) -> tuple[Column[TourStep], ...]:
        return (
            Column("", lambda step: "✓" if step.action in self._made else "", width=1),
            Column("STEP", lambda step: str(STEPS.index(step) + 1), width=4, align="right"),
            Column("QUESTION", lambda step: step.question, id="name", width=28),
            Column("KEY", self._keys, width=7),
            Column("WHAT TO DO", self._text, width=30, flex=1),
        )

    def _keys(self, step: TourStep) -> Cell:
        return ((self._spelled(step.action), "strong"),)

    def _spelled(self, id: str) -> str:
        """The keys that an action has now."""
        return spell_all(next(action for action in self.console_app.keymap.actions if action.id == id))

    def _text(self, step: TourStep) -> str:
        """What to do, with the keys that the named actions have now."""
        return re.sub(r"\{([\w.-]+)\}", lambda found: self._spelled(found[1]) or f":{found[1]}", step.text)

    def on_mount(self) -> None:
        if self.grid is not None:
            self.grid.show(STEPS)
            left = next((step for step in STEPS if step.action not in self._made), STEPS[0])
            self.grid.move_to_key(left.action)

    def picked(self, row: object) -> None:
        self.query_one("#told", Static).update(self._text(row) if isinstance(row, TourStep) else "")

    @property
    def _made(self) -> set[str]:
        return self.console_app.tour_steps_made

    def handlers(self) -> Handlers:
        return {**super().handlers(), "object.open": self._make}

    def _make(self) -> None:
        """Make the selected step: open its screen, and say there what to do."""
        step = self.grid.current if self.grid is not None else None
        app = self.console_app
        if not isinstance(step, TourStep):
            return
        self._made.add(step.action)
        app.up()
        if step.view:
            app.go(step.view)
        if app.front is not None:
            app.front.actions.run_id(step.action)
            number = STEPS.index(step) + 1
            left = len(STEPS) - len(self._made)
            more = f" Then :tour for the {left} steps left." if left else " The tour is complete."
            self.app.notify(f"{number}/{len(STEPS)} {self._text(step)}{more}", timeout=READING, markup=False)
