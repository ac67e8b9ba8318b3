"""Screens of reports about the whole cluster: ledger, fair shares, capacity, anti-patterns, preemption risk, plan.

All have the same screen, `AnswerScreen`, and one of two sources. A quick report (`RepeatedReport`) is computed in a
fork, in the background, every `EVERY` seconds while its screen is active; ctrl+r recomputes it immediately. If it is
slow, it is computed less often, to take at most a twentieth of the time. The risk and the plan (`LongReport`) come from
simulation runs: they are computed once, show partial results and progress, and can be cancelled.

A report has lines of text and tables, on whose rows the object actions work. Tables that do not fit together share the
height by their number of rows, the focused one first; `tab` focuses the next one.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical

from gpuconsole.errors import ConsoleError
from gpuconsole.insight.data_gaps import (
    PLACES,
    QUOTA,
    TURNS,
    bound_of_idle,
    missing_for_admission,
    missing_for_placement,
)
from gpuconsole.insight.forecast.agreement import ShadowReport
from gpuconsole.insight.health.antipatterns import antipatterns, engines_of, unchecked_kinds
from gpuconsole.insight.health.telemetry import utilization
from gpuconsole.insight.index.engine_queues import engine_shares
from gpuconsole.insight.pending.why import AdmissionView
from gpuconsole.insight.preemption.risk import Risk, reclaim_risk
from gpuconsole.insight.sharing.fair_shares import shares
from gpuconsole.insight.sharing.ledger import ledger
from gpuconsole.insight.sharing.slots import slots
from gpuconsole.insight.tables import Cell, Valued, shown
from gpuconsole.insight.whatif.plan import CapacityPlan, PlanOption
from gpuconsole.model.clock import Span, Time, format_span
from gpuconsole.model.commands import Command
from gpuconsole.model.cooperative import Progress
from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.prices import Prices
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.services.analysis import AnalysisService
from gpuconsole.ui import format as fmt
from gpuconsole.ui.actions import Action, Handlers
from gpuconsole.ui.answers.cluster_reports import (
    AnswerTable,
    Part,
    Row,
    antipatterns_lines,
    apart,
    key_of,
    ledger_parts,
    missing_data_lines,
    no_data_lines,
    options_of,
    plan_parts,
    risk_parts,
    shares_parts,
    slots_parts,
    starts_unknown,
    without_kueue,
)
from gpuconsole.ui.answers.shadow import shadow_parts
from gpuconsole.ui.paint import Painted
from gpuconsole.ui.screens.alerts import AlertsScreen
from gpuconsole.ui.screens.background import LongAnswer, SnapshotWorker
from gpuconsole.ui.screens.base import ActionGroup, ConsoleScreen, Subject, scrolling
from gpuconsole.ui.screens.drill import DrillsScreen
from gpuconsole.ui.screens.objects import ObjectActions, describe_screen
from gpuconsole.ui.screens.workload_actions import WorkloadActions
from gpuconsole.ui.screens.workloads import WorkloadDetailScreen
from gpuconsole.ui.table_model import Column
from gpuconsole.ui.whatif_changes import WhatIfChange, what_if_with_queue
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.painter import PaneState, StatusLine, notice
from gpuconsole.ui.widgets.textpane import BLANK, TextPane, text_line

WIDEST = 44
"""Maximum width of a column in cells, except of the last one, which takes the remaining width."""
IDS = {"PRIORITY": "priority", "GPUS": "usage", "SINCE": "age", "WAITS": "age", "OUTCOME": "status", "RISK": "status"}
"""Column head → id of the column, by which the sort keys find it."""


def columns(part: AnswerTable) -> tuple[Column[Row], ...]:
    """The columns of a table, as wide as their contents; a narrow screen drops the last ones first."""
    return tuple(_column(part, place, numeric) for place, numeric in enumerate(part.table.numeric))


def _column(part: AnswerTable, place: int, numeric: bool) -> Column[Row]:
    name = part.head[place]
    widest = max([len(name), *(len(shown(row.cells[place])) for row in part.rows)])
    return Column(
        name,
        lambda row: shown(row.cells[place]),
        id="name" if not place else IDS.get(name, ""),
        width=min(widest, WIDEST),
        flex=int(place == len(part.head) - 1 and not numeric),
        align="right" if numeric else "left",
        sort=lambda row: _order(row.cells[place]),
        down=numeric,
        rank=place,
    )


def _order(cell: Cell) -> tuple[bool, float, str]:
    """Numbers first, by their size; then words."""
    match cell:
        case Valued():
            return False, cell.value, ""
        case int() | float():
            return False, cell, ""
        case _:
            return True, 0.0, shown(cell)


MOST_TABLES = 6
"""Maximum number of tables of a report."""
OPEN = 5
"""Minimum height of the focused table in lines, with its head."""
SAID = 0.3
"""Maximum share of the screen height for the text below the tables."""
QUEUES = ("cluster_queues", "cohorts", "volcano_queues", "kai_queues")


class ReportSource(Protocol):
    """Computes a report for its screen, and has it shown."""

    def update(self, snapshot: Snapshot) -> None:
        """Called for each Snapshot while the screen is active."""

    def compute(self) -> None:
        """Compute the report now."""


class AnswerScreen(ConsoleScreen):
    """A report: a title with a remark at its right, and the lines and tables that its source computes."""

    AUTO_FOCUS = "Grid, TextPane"

    def __init__(self, name: str, title: str, source: Callable[["AnswerScreen"], ReportSource]) -> None:
        """`name` is the crumb, `title` is shown above the text, `source` makes the report's source."""
        super().__init__()
        self.groups = (ObjectActions(self), WorkloadActions(self))
        self._source = source(self)
        self._trail, self._title = name, title
        self._lines: list[str] = []
        """Lines below the tables."""
        self._shown = False
        """Whether there are tables."""

    def crumb(self) -> str:
        return self._trail

    def body(self) -> ComposeResult:
        yield StatusLine(id="summary")
        above = TextPane(id="above")
        above.can_focus = False
        yield above
        with Vertical(id="tables"):
            for _ in range(MOST_TABLES):
                table: Grid[Row] = Grid((), key=lambda row: row.key)
                table.display = False
                yield table
        yield TextPane(id="said")

    def on_mount(self) -> None:
        self.query_one("#summary", StatusLine).left = ((f" {self._title} ", "title"),)
        for grid in self._grids:
            # The cut columns are known only once the table has its width.
            self.watch(grid, "virtual_size", self._tell_row_later, init=False)

    def show(self, snapshot: Snapshot) -> None:
        self._source.update(snapshot)

    # What it shows

    def remark(self, text: str, role: str) -> None:
        """Show a remark beside the title, such as the age or the progress of the report."""
        self.query_one("#summary", StatusLine).right = ((f" {text} ", role),) if text else ""

    def write(self, parts: Sequence[Part]) -> None:
        """Show a report, preceded by a line about required objects that are not visible, if there are any."""
        above, tables, below = apart(parts)
        if not tables:
            above, below = [], above
        unseen = self.console.status.undecided
        if unseen:
            above = [f"⊘ {unseen}", *above]
        self._lines = below
        self.query_one("#above", TextPane).show(text_line(text) for text in above)
        for grid, part in zip(self._grids, [*tables, *[None] * MOST_TABLES], strict=False):
            grid.display = part is not None
            if part is not None:
                _fill(grid, part)
        if tables and not self._shown:
            # The text had the focus until now.
            self._grids[0].focus()
        self._shown = bool(tables)
        self._say()
        self._arrange()
        self._tell_row_later()

    def _tell_row_later(self) -> None:
        self.call_after_refresh(self._tell_row)

    def _tell_row(self) -> None:
        if self.stands:
            self._say()
            self._arrange()
            self.refresh_frame()

    def fail(self, error: ConsoleError) -> None:
        """Show an error in place of the report."""
        for grid in self._grids:
            grid.display = False
        self.query_one("#above", TextPane).show(())
        self.query_one("#said", TextPane).show([notice(PaneState.FAILED, str(error))])
        self._arrange()

    def _say(self) -> None:
        """Fill the text below the tables: the cut cells of the selected row, then the lines about all rows."""
        row, grid = self.row, self.grid
        note: list[Painted] = []
        if row is not None and grid is not None:
            cut = " · ".join(f"{title} {text}" for title, text in grid.unseen_of(row))
            note = [text_line((text, "strong")) for text in (cut, row.note) if text]
        said = [text_line(text) for text in self._lines]
        self.query_one("#said", TextPane).show([*note, *([BLANK] if note and said else []), *said])

    def _arrange(self) -> None:
        """Give each table the height that it needs, or a share of the available height."""
        if self.maximized is not None:
            # What is set here goes before the stylesheet.
            self.maximized.styles.height, self.maximized.styles.margin = "1fr", 0
            return
        above, said = self.query_one("#above", TextPane), self.query_one("#said", TextPane)
        height = self.query_one("#body").size.height - 1
        lines = min(above.line_count, height // 3)
        above.styles.height, above.display = lines, bool(lines)
        shown = [grid for grid in self._grids if grid.display]
        if not shown:
            said.styles.height, said.display = "1fr", True
            return
        wants = [len(grid.rows) + 1 for grid in shown]
        room = height - lines
        spare = room - sum(wants) - len(shown)
        lines = min(said.line_count, max(int(height * SAID), spare))
        said.styles.height, said.display = lines, bool(lines)
        room -= lines
        front = shown.index(self.grid) if self.grid in shown else 0
        gap = int(sum(wants) + len(shown) <= room)
        for grid, lines in zip(shown, share_height(wants, room, front), strict=True):
            grid.styles.height = lines
            grid.styles.margin = (0, 0, gap, 0)

    def _zoom(self) -> None:
        super()._zoom()
        self._arrange()

    def on_resize(self) -> None:
        super().on_resize()
        self._tell_row_later()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        self._tell_row()

    def picked(self, row: object) -> None:
        self._tell_row()

    # What is under the cursor

    @property
    def _grids(self) -> list[Grid[Row]]:
        return list(self.query("#tables > Grid").results(Grid))

    @property
    def row(self) -> Row | None:
        grid = self.grid
        return grid.current if grid is not None else None

    def subject(self) -> Subject | None:
        row = self.row
        return self._known(row) if row is not None else None

    def subjects(self) -> list[Subject]:
        found = [self._known(row) for row in self.grid.targets] if self.grid is not None else []
        return [subject for subject in found if subject is not None]

    def _known(self, row: Row) -> Subject | None:
        """The object that a row describes, if it exists."""
        if row.about is None or row.about.key not in getattr(self.snapshot, row.about.table):
            return None
        return Subject(*row.about)

    def handlers(self) -> Handlers:
        offered = {**super().handlers(), "app.refresh": self._source.compute}
        # `f` is the way to the fair shares, from one answer to the next.
        offered.pop("workload.scores", None)
        if isinstance(self.focused, TextPane):
            return {**offered, **scrolling(self.focused)}
        subject = self.subject()
        if subject is None:
            return {**offered, "object.open": lambda: None}
        return {**offered, **self._ways(subject)}

    def refusal(self, action: Action) -> str:
        if action.id == "object.open" and self.subject() is None:
            return "nothing to open for this row"
        return super().refusal(action)

    def _ways(self, subject: Subject) -> dict[str, Callable[[], object]]:
        """Handlers for the object of a row."""
        table, key = subject
        if table == "workloads":

            def page() -> None:
                self.open(WorkloadDetailScreen(key))

            return {"object.open": page, "object.explain": page}
        if table in QUEUES:
            return {
                "object.open": lambda: self.console_app.go("queues", at=key),
                "object.explain": lambda: self.open(describe_screen(*subject)),
                **({"object.what-if": lambda: what_if_with_queue(self, key)} if table == "cluster_queues" else {}),
            }
        return {"object.open": lambda: self.open(describe_screen(*subject))}


def share_height(wants: Sequence[int], room: int, front: int) -> list[int]:
    """Share `room` lines among tables of which each wants `wants[i]` lines; `front` is the index of the focused one.

    Each gets one line for its head, the focused one up to half of the room (at least `OPEN` lines); the others then
    grow evenly until they have what they want, and the rest goes to the focused one.
    """
    shares = [1] * len(wants)
    left = room - len(wants)
    opened = max(0, min(wants[front] - 1, left, max(OPEN, room // 2) - 1))
    shares[front] += opened
    left -= opened
    while left > 0:
        growing = [index for index, want in enumerate(wants) if shares[index] < want]
        if not growing:
            break
        shortest = min(growing, key=lambda index: (index == front, shares[index]))
        shares[shortest] += 1
        left -= 1
    return shares


def _fill(grid: Grid[Row], part: AnswerTable) -> None:
    """Show the rows; columns are replaced only if they look different."""
    wanted = columns(part)
    if [_look(column) for column in grid.columns] != [_look(column) for column in wanted]:
        grid.columns = wanted
    grid.show(part.rows)


def _look(column: Column[Row]) -> tuple[str, int, str]:
    return column.title, column.width, column.align


Answered = TypeVar("Answered")


class AnswerChunk(NamedTuple):
    """A part of a slow report that can be shown: its progress, and the lines and tables so far."""

    progress: str
    """The progress to show; for the complete result, its time."""
    parts: Sequence[Part] | None = None
    """Lines and tables; None leaves those of the previous chunk."""
    whole: bool = False


class LongReport(Generic[Answered]):
    """Source of a slow report: computed once when the screen opens, and again only on request (ctrl+r)."""

    def __init__(
        self,
        screen: AnswerScreen,
        steps: Callable[[AnalysisService], Iterator[Progress[Answered]]],
        tell: Callable[[Progress[Answered]], AnswerChunk],
    ) -> None:
        """`steps` begins the analysis, `tell` makes the text of each piece."""
        self._screen, self._tell = screen, tell
        self._run = LongAnswer(screen, steps, self._came, self._failed)
        self._is_asked = False

    def update(self, snapshot: Snapshot) -> None:
        if not self._is_asked or self._run.is_outdated:
            self.compute()

    def compute(self) -> None:
        self._is_asked = True
        self._screen.remark("starting …", "pending")
        self._run.start()

    def _came(self, piece: Progress[Answered]) -> None:
        chunk = self._tell(piece)
        self._screen.remark(chunk.progress, "dim" if chunk.whole else "pending")
        if chunk.parts is not None:
            self._screen.write(chunk.parts)

    def _failed(self, error: ConsoleError) -> None:
        self._screen.remark("", "")
        self._screen.fail(error)


def risk_screen() -> AnswerScreen:
    """Make the screen of the preemption risk of each running workload."""
    title = "Preemption risk of running workloads"
    return AnswerScreen("risk", title, lambda screen: LongReport(screen, _risk_steps, _risk))


def _risk_steps(answers: AnalysisService) -> Iterator[Progress[Risk]]:
    """Results run by run; if invalid nodes or pods prevent simulation, the part that does not need them."""
    standing = answers.standing()
    if missing_for_placement(standing.snapshot):
        yield Progress(answer=reclaim_risk(standing), last=True)
    else:
        yield from answers.risk()


class PlanOptions(ActionGroup):
    """The options of a plan, and the action that adds the selected one to the what-if that the plan is for."""

    def __init__(self, screen: AnswerScreen, take: Callable[[WhatIfChange], object]) -> None:
        """`take` adds the changes of an option to the what-if."""
        self._screen = screen
        self._take = take
        self._options: Mapping[str, PlanOption] = {}

    def tell(self, piece: Progress[CapacityPlan]) -> AnswerChunk:
        """Make the text of a piece of the plan, and keep its options."""
        if piece.answer is None:
            return AnswerChunk(f"{piece.done} of {piece.total} kinds of options evaluated, now: {piece.doing}")
        self._options = {key_of(option): option for option in options_of(piece.answer)}
        return AnswerChunk(_as_of(piece.answer.time), plan_parts(piece.answer), whole=True)

    def handlers(self) -> Handlers:
        return {"object.rehearse": self._rehearse}

    def refusal(self, action: Action) -> str:
        if action.id != "object.rehearse":
            return ""
        if (option := self.selected) is None:
            return "no option is selected"
        return "" if option.commands else "this option changes nothing"

    @property
    def selected(self) -> PlanOption | None:
        row = self._screen.row
        return self._options.get(row.key) if row is not None else None

    def _rehearse(self) -> None:
        if (option := self.selected) is not None:
            self._screen.console_app.up()
            self._take(WhatIfChange(option.words, option.commands))


def plan_screen(commands: Sequence[Command], wanted: Span, take: Callable[[WhatIfChange], object]) -> AnswerScreen:
    """Make the screen of the cheapest changes of quota, nodes or policy that start jobs within the wait `wanted`.

    `commands` submit the jobs; `take` adds the changes of an option to the what-if.
    """

    def source(screen: AnswerScreen) -> LongReport[CapacityPlan]:
        options = PlanOptions(screen, take)
        screen.groups = (*screen.groups, options)
        return LongReport(screen, lambda answers: answers.plan(commands, wanted), options.tell)

    return AnswerScreen("plan", f"Cheapest options to start within {format_span(wanted)}", source)


def _risk(piece: Progress[Risk]) -> AnswerChunk:
    parts = risk_parts(piece.answer) if piece.answer is not None else None
    if piece.answer is not None and piece.last:
        return AnswerChunk(_as_of(piece.answer.time), parts, whole=True)
    return AnswerChunk(f"run {piece.done + 1} of at most {piece.total}, {piece.doing}", parts)


def _as_of(time: Time) -> str:
    return f"as of {fmt.clock(time)}"


EVERY = 5.0
SHARE = 20


class AnswerContext(NamedTuple):
    """The data from which a report is computed."""

    view: Callable[[], AdmissionView]
    """Returns the cluster with its admission state, which takes a fork."""
    seen: Snapshot
    """The displayed Snapshot, with GPU telemetry, which a simulated fork lacks."""
    prices: Prices
    history: Sequence[HistoryEvent]
    """Preemptions, oldest first."""
    shadow: ShadowReport | None
    """Comparison of Kueue's decisions with the engine's; None without a shadow."""
    agreement: str
    """The same as a sentence about the last 24 hours."""


Answer = Callable[[AnswerContext], Sequence[Part]]


class RepeatedReport:
    """Source of a quick report, which is recomputed regularly."""

    def __init__(self, screen: AnswerScreen, answer: Answer) -> None:
        self._screen = screen
        self._answer = answer
        self._background = SnapshotWorker(screen, self._gather, self._tell, reads=True)
        self._due = 0.0

    def update(self, snapshot: Snapshot) -> None:
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + EVERY
            self._background.ask(snapshot)

    def compute(self) -> None:
        self._due = 0.0
        self.update(self._screen.console.snapshot)

    def _gather(self, snapshot: Snapshot) -> tuple[Sequence[Part], str] | ConsoleError:
        began, console = time.monotonic(), self._screen.console
        try:
            asked = AnswerContext(
                console.answers.standing,
                snapshot,
                console.prices,
                console.preemptions(),
                console.shadow_report,
                console.agreement,
            )
            lines = self._answer(asked)
        except ConsoleError as error:
            return error
        self._due = max(self._due, time.monotonic() + SHARE * (time.monotonic() - began))
        return lines, fmt.clock(snapshot.time)

    def _tell(self, found: tuple[Sequence[Part], str] | ConsoleError) -> None:
        if isinstance(found, ConsoleError):
            self._screen.fail(found)
            return
        parts, when = found
        self._screen.remark(f"as of {when}", "dim")
        self._screen.write(parts)


def report_screen(name: str, title: str, answer: Answer) -> AnswerScreen:
    """Make the screen of a quick report; `name` is its crumb."""
    return AnswerScreen(name, title, lambda screen: RepeatedReport(screen, answer))


def _ledger(asked: AnswerContext) -> Sequence[Part]:
    snapshot, session, _ = asked.view()
    if session is None:
        return [without_kueue(snapshot)]
    if lacking := snapshot.seen.missing_reasons(*QUOTA):
        return no_data_lines(lacking)
    return ledger_parts(ledger(snapshot, session, asked.prices), snapshot.time)


def _slots(asked: AnswerContext) -> Sequence[Part]:
    snapshot = asked.view().snapshot
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
    snapshot, session, _ = asked.view()
    if lacking := snapshot.seen.missing_reasons(*TURNS):
        return no_data_lines(lacking)
    found = shares(session, snapshot.time) if session is not None else None
    return shares_parts(found, engine_shares(snapshot), snapshot.time)


def _antipatterns(asked: AnswerContext) -> Sequence[Part]:
    found = antipatterns(asked.seen, asked.prices, asked.history, engines_of(asked.view().policy))
    average = utilization(asked.seen)
    lines = antipatterns_lines(found, measured=len(asked.seen.telemetry) > 0, average=average)
    return [*lines, *missing_data_lines(unchecked_kinds(asked.seen.seen))]


def _shadow(asked: AnswerContext) -> Sequence[Part]:
    if asked.shadow is None:
        return [NO_SHADOW]
    return [asked.agreement, "", *shadow_parts(asked.shadow)]


NO_SHADOW = "no comparison: it needs a live cluster with Kueue, and the worker process"
_WORDS: dict[str, tuple[str, Answer]] = {
    "ledger": ("Borrowed quota, and evictions if it is reclaimed", _ledger),
    "slots": ("Schedulable capacity: gangs that fit now", _slots),
    "shares": ("Fair shares and admission order", _shares),
    "shadow": ("Agreement of the engine with Kueue's decisions", _shadow),
    "antipatterns": ("Anti-patterns: wasted GPUs and how to fix them", _antipatterns),
}
"""Name → title and content of its screen."""
SCREENS: dict[str, Callable[[], ConsoleScreen]] = {
    **{name: partial(report_screen, name, *about) for name, about in _WORDS.items()},
    "risk": risk_screen,
    "drills": DrillsScreen,
    "alerts": AlertsScreen,
}
"""Report name, as in the action `answer.NAME` → function that makes its screen."""


def answer_screen(name: str) -> ConsoleScreen:
    """Make the screen of the report with this name, a key of `SCREENS`."""
    return SCREENS[name]()
