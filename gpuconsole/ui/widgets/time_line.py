"""The time line: curves of allocated and pending GPUs with marks for events, and the time that is shown.

It is below the body of every screen while the operator looks at earlier times; see `ui.screens.time_travel`.
"""

from collections.abc import Sequence
from statistics import fmean

from msgspec import Struct
from textual.reactive import reactive

from gpuconsole.insight.series import QueueSample
from gpuconsole.model.clock import DAY, SECOND, Time
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.ui import format as fmt
from gpuconsole.ui.paint import GLYPHS, Cell, Painted, Piece
from gpuconsole.ui.widgets.painter import DrawnLines
from gpuconsole.ui.widgets.trends import FACTS, LABEL, Trend, Values, binned, curve, highest, pending_text

MARKED: dict[HistoryEventKind, tuple[str, str]] = {
    HistoryEventKind.NODE_DOWN: (GLYPHS["fault"], "fault"),
    HistoryEventKind.PREEMPTED: (GLYPHS["victim"], "victim"),
}
"""Kinds of events that the time line marks: glyph and role, the most important kind first."""
CURSOR = "▲"


class TimeLineView(Struct, frozen=True, kw_only=True):
    """What the time line shows."""

    shown: Time | None
    """The earlier time that is shown; None for the present."""
    trend: Trend
    """Samples of the whole cluster in the window of the time line."""
    marks: tuple[tuple[Time, HistoryEventKind], ...] = ()
    """Times of the marked events in the window, in order."""
    is_playing: bool = False

    @property
    def since(self) -> Time:
        """Start of the window."""
        return self.trend.end - self.trend.window.span

    @property
    def sample(self) -> QueueSample | None:
        """The sample of the shown time; None if none is recorded."""
        until = self.trend.end if self.shown is None else self.shown
        return next((sample for time, sample in reversed(self.trend.samples) if time <= until), None)


def time_lines(view: TimeLineView, width: int) -> tuple[Cell, ...]:
    """Draw the time line as three lines: allocated GPUs, pending GPUs, and marks with the cursor."""
    trend = view.trend
    columns = max(1, min(width - LABEL - FACTS, trend.window.span // trend.window.step))
    cursor = columns - 1 if view.shown is None else _column(view, view.shown, columns)
    used = binned(trend, columns, lambda one: one.used, fmean)
    nominal = binned(trend, columns, lambda one: one.nominal, fmean)
    pending = binned(trend, columns, lambda one: one.pending_gpus, fmean)
    sample = view.sample
    facts = (
        ("nothing recorded", "")
        if sample is None
        else (
            f"{fmt.mean(sample.used)} of {fmt.mean(sample.nominal)} quota",
            f"{fmt.mean(sample.pending_gpus)}{pending_text(sample, trend.unit)}",
        )
    )
    label = f"{trend.unit}s"[: LABEL - 2]
    top = max(highest(used), highest(nominal))
    span = f"{fmt.clock(view.since)[:5]} to {fmt.clock(trend.end)[:5]} UTC"
    if view.since // DAY != (trend.end - 1) // DAY:
        span = f"{fmt.age(trend.window.span)} to {fmt.date_and_minute(trend.end)} UTC"
    return (
        _row(label, _curve(used, top, "own", cursor), facts[0]),
        _row("pending", _curve(pending, highest(pending), "pending", cursor), facts[1]),
        _row("playing" if view.is_playing else "events", _marks(view, columns, cursor), span),
    )


def _row(label: str, drawn: Sequence[Piece], fact: str) -> Painted:
    return ((f" {label:<{LABEL - 1}}", "dim"), *drawn, (f"  {fact}", "dim"))


def _column(view: TimeLineView, time: Time, columns: int) -> int:
    return max(0, min(columns - 1, (time - view.since) * columns // view.trend.window.span))


def _curve(values: Values, top: float, role: str, cursor: int) -> list[Piece]:
    drawn = curve(values, top)
    return [(drawn[:cursor], role), (drawn[cursor : cursor + 1], "key"), (drawn[cursor + 1 :], role)]


def _marks(view: TimeLineView, columns: int, cursor: int) -> list[Piece]:
    """A mark for each column with an event, and the cursor."""
    kinds: dict[int, HistoryEventKind] = {}
    order = list(MARKED)
    for time, kind in view.marks:
        column = _column(view, time, columns)
        if kind in MARKED and (column not in kinds or order.index(kind) < order.index(kinds[column])):
            kinds[column] = kind
    drawn = [MARKED[kinds[column]] if column in kinds else ("·", "dim") for column in range(columns)]
    drawn[cursor] = (CURSOR, "key")
    return drawn


def behind_text(behind: int) -> str:
    """How much earlier the shown time is: `2h10m ago`."""
    return f"{fmt.age(behind // SECOND * SECOND)} ago"


class TimeLine(DrawnLines):
    """Draws the time line; nothing without one."""

    view: reactive[TimeLineView | None] = reactive(None)

    def on_mount(self) -> None:
        self.display = self.view is not None

    def watch_view(self, old: TimeLineView | None, new: TimeLineView | None) -> None:
        self.display = new is not None
        self.refresh()

    @property
    def content(self) -> TimeLineView | None:
        return self.view

    def draw(self, width: int, height: int) -> tuple[Cell, ...]:
        return time_lines(self.view, width) if self.view is not None else ()
