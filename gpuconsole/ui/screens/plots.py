"""Charts of the history, each above the table of its numbers: time series, preemptions by queue, waits, GPUs by owner.

`+` and `-` change the window, `←` and `→` move it into the past and back to the present. The table is exported, sorted
and filtered as all tables are.
"""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import log
from statistics import fmean
from typing import Any, Generic, NamedTuple, TypeVar
from zlib import crc32

from rich.cells import cell_len, set_cell_size
from textual.app import ComposeResult
from textual.reactive import reactive

from gpuconsole.errors import ConsoleError
from gpuconsole.insight.history_charts import (
    ALLOCATING,
    Allocation,
    GanttBy,
    GanttRow,
    PreemptionMatrix,
    QueuePair,
    WaitDistribution,
    allocations,
    gantt_rows,
    gpus_over_time,
    preemption_matrix,
    wait_distributions,
)
from gpuconsole.insight.preemption.history import rows
from gpuconsole.insight.series import GpuSample, QueueSample, Samples, SeriesKind
from gpuconsole.model.clock import DAY, HOUR, MINUTE, SECOND, Span, Time, in_seconds, next_multiple, quantile
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.text import clean
from gpuconsole.ui import format as fmt
from gpuconsole.ui.actions import Action, Handlers
from gpuconsole.ui.names import called
from gpuconsole.ui.paint import GLYPHS, Cell, Painted, plain
from gpuconsole.ui.screens.background import SnapshotWorker, read_samples
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.table_model import Column
from gpuconsole.ui.widgets.dialogs import ChoiceOption
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.painter import DrawnLines, Lines, PaneState
from gpuconsole.ui.widgets.trends import (
    WHOLE_CLUSTER,
    WINDOWS,
    ChartCurve,
    CurveStyle,
    SeriesName,
    Trend,
    TrendWindow,
    bin_samples,
    chart,
    curve,
    merged,
    time_axis,
    trend_charts,
    trend_of,
)

LOG = logging.getLogger(__name__)
ZOOMS = (
    TrendWindow("15 min", "15 m", 15 * MINUTE, MINUTE),
    WINDOWS[0],
    TrendWindow("6 h", "6 h", 6 * HOUR, MINUTE),
    *WINDOWS[1:],
    TrendWindow("90 d", "90 d", 90 * DAY, HOUR),
)
"""The windows of charts; that of an hour comes first."""
Data = TypeVar("Data")
Draw = Callable[[Any, int, int], tuple[Cell, ...]]


class ChartView(DrawnLines):
    """Draws the chart of a screen; its content is (data, function that draws them)."""

    shown: reactive[tuple[object, Draw] | None] = reactive(None)

    @property
    def content(self) -> object:
        return self.shown

    def draw(self, width: int, height: int) -> tuple[Cell, ...]:
        return self.shown[1](self.shown[0], width, height) if self.shown is not None else ()


class Chart(Generic[Data]):
    """One kind of chart: what it reads, draws and lists, and its own actions."""

    NAME = ""
    TITLE = ""
    COLUMNS: Sequence[Column[Any]] = ()
    DRAWN = True
    """Whether it has a chart above the table."""
    aimed = ""
    """Name of what it will show first; a chart that is open already does not show it."""

    def __init__(self, screen: "ChartScreen") -> None:
        self.screen = screen

    def read(self, snapshot: Snapshot, begin: Time, end: Time) -> Data:
        """Read the data of a window; called in a thread. Raises ConsoleError."""
        raise NotImplementedError

    def rows_of(self, data: Data) -> Sequence[Any]:
        """Return the rows of the table."""
        raise NotImplementedError

    def draw_chart(self, data: Data, width: int, height: int) -> tuple[Cell, ...]:
        """Draw the chart."""
        raise NotImplementedError

    def key_of(self, row: Any) -> str:
        """Identify a row of the table."""
        raise NotImplementedError

    def wanted(self) -> object:
        """What the data depend on, besides window and time; data are read again when it changes."""
        return None

    def fill(self, data: Data) -> None:
        """Show the data."""
        view = self.screen.view_of_chart
        view.border_title = f"{self.TITLE}, {self.screen.window_text()}"
        view.shown = data, self.draw_chart
        self.screen.numbers.show(self.rows_of(data))

    def picked(self) -> None:
        """Called when another row is selected."""

    def resized(self) -> None:
        """Called when the screen has another size."""

    def handlers(self) -> Handlers:
        """Actions of this chart."""
        return {}


class ChartScreen(ConsoleScreen):
    """A window of time, data that are read in the background, a chart, and a table of its numbers."""

    is_answer = True

    def __init__(self, chart: "Callable[[ChartScreen], Chart[Any]]") -> None:
        super().__init__()
        self.chart = chart(self)
        self._zoom_level = 1
        self._end: Time | None = None
        """End of the window; None for the present."""
        self._worker = SnapshotWorker(self, self._gather, self._came, reads=True)
        self._asked: object = None
        self.data: Any = None
        """What the chart has read; None before that."""

    def crumb(self) -> str:
        return self.chart.NAME

    def same(self, other: ConsoleScreen) -> bool:
        if not isinstance(other, ChartScreen) or self.chart.aimed or other.chart.aimed:
            return False
        return self.chart.NAME == other.chart.NAME

    def body(self) -> ComposeResult:
        chart = self.chart
        yield Lines(id="said")
        yield ChartView(id="chart", classes="panel")
        yield Grid(chart.COLUMNS, key=chart.key_of, empty="Nothing is recorded in this window.", id="numbers")

    def on_mount(self) -> None:
        self.view_of_chart.display = self.chart.DRAWN

    @property
    def view_of_chart(self) -> ChartView:
        """The widget that draws the chart."""
        return self.query_one(ChartView)

    @property
    def numbers(self) -> Grid[Any]:
        """The table of the chart's numbers."""
        return self.query_one("#numbers", Grid)

    def on_resize(self) -> None:
        super().on_resize()
        self.chart.resized()

    def picked(self, row: Any) -> None:
        self.chart.picked()

    @property
    def window(self) -> TrendWindow:
        """The shown window."""
        return ZOOMS[self._zoom_level]

    def show(self, snapshot: Snapshot) -> None:
        end = self._end if self._end is not None else snapshot.time
        asked = (self.chart.wanted(), self.window, end // MINUTE, self.console.answers)
        if asked != self._asked:
            self._asked = asked
            self._worker.ask(snapshot)

    def _gather(self, snapshot: Snapshot) -> Any:
        end = next_multiple(self._end if self._end is not None else snapshot.time, MINUTE)
        try:
            return self.chart.read(snapshot, end - self.window.span, end)
        except ConsoleError as error:
            return error

    def _came(self, found: Any) -> None:
        grid = self.numbers
        if isinstance(found, ConsoleError):
            grid.say(PaneState.FAILED, str(found))
            return
        self.data = found
        self.chart.fill(found)

    def window_text(self) -> str:
        """The window in words: `last hour`, or its end if that is not the present."""
        if self._end is None:
            return self.window.name if self.window in WINDOWS else f"last {self.window.name}"
        return f"{self.window.short} until {fmt.date_and_minute(self._end)}"

    def handlers(self) -> Handlers:
        return {
            **super().handlers(),
            "window.longer": partial(self._turn_zoom, 1),
            "window.shorter": partial(self._turn_zoom, -1),
            "chart.earlier": partial(self._pan, -1),
            "chart.later": partial(self._pan, 1),
            **self.chart.handlers(),
        }

    def refusal(self, action: Action) -> str:
        if action.id == "chart.later" and self._end is None:
            return "the window ends at the present"
        if action.id == "object.open" and self.numbers.current is None:
            return "nothing is selected"
        return super().refusal(action)

    def _turn_zoom(self, steps: int) -> None:
        if not 0 <= self._zoom_level + steps < len(ZOOMS):
            self.flash(f"{self.window.name} is the {'longest' if steps > 0 else 'shortest'} window")
            return
        self._zoom_level += steps
        self.redraw()

    def _pan(self, way: int) -> None:
        now = self.snapshot.time
        end = (self._end if self._end is not None else now) + way * self.window.span // 2
        self._end = end if end < now else None
        self.redraw()


# Time series


class PlotChoice(NamedTuple):
    """A series that can be plotted."""

    title: str
    series: SeriesName | None = None
    """Quota and pending work; None for the others."""
    gpu_type: str = ""
    """GPUs of a type."""


COST = PlotChoice("cost rate")
CLUSTER = PlotChoice("cluster", WHOLE_CLUSTER)
TITLES = {
    SeriesKind.QUEUE: "queue",
    SeriesKind.COHORT: "cohort",
    SeriesKind.FLAVOR: "flavor",
    SeriesKind.VOLCANO_QUEUE: "Volcano queue",
    SeriesKind.KAI_QUEUE: "KAI queue",
    SeriesKind.NAMESPACE: "namespace",
}


def choices_of(samples: Sequence[Samples]) -> list[PlotChoice]:
    """Return the series of these samples, the cluster first."""
    quota: dict[PlotChoice, None] = {CLUSTER: None}
    types: dict[PlotChoice, None] = {}
    for one in samples:
        for queue in one.queues:
            if queue.kind is not SeriesKind.CLUSTER:
                flavor = f", flavor {queue.flavor}" if queue.flavor else ""
                name = SeriesName(queue.kind, queue.name, queue.flavor)
                quota[PlotChoice(f"{TITLES[queue.kind]} {queue.name}{flavor}", name)] = None
        types.update(dict.fromkeys(PlotChoice(f"GPU type {gpu.gpu_type}", gpu_type=gpu.gpu_type) for gpu in one.gpus))
    return [*quota, *types, COST]


class Plotted(NamedTuple):
    """What the plot shows."""

    choice: PlotChoice
    window: TrendWindow
    end: Time
    quota: Trend | None = None
    gpus: tuple[tuple[Time, GpuSample], ...] = ()
    cost: tuple[tuple[Time, Samples], ...] = ()

    @property
    def samples(self) -> Sequence[tuple[Time, Any]]:
        return self.quota.samples if self.quota is not None else self.gpus or self.cost


def _seconds(value: float | None) -> str:
    return fmt.age(round(value * SECOND)) if value is not None else fmt.NOTHING


def _time_column(say: Callable[[Time], str]) -> Column[tuple[Time, Any]]:
    return Column("TIME", lambda row: say(row[0]), id="age", width=12, sort=lambda row: row[0], down=True)


def _number(
    title: str,
    value: Callable[[Any], float | None],
    text: Callable[[float], str] = fmt.mean,
    unit: str = "",
    *,
    id: str = "",
    name: str = "",
    width: int = 9,
) -> Column[Any]:
    """A column of numbers, the highest first when it is sorted by them."""

    def cell(row: Any) -> str:
        found = value(row)
        return text(found) if found is not None else fmt.NOTHING

    return Column(
        title,
        cell,
        id=id,
        width=max(width, len(title)),
        align="right",
        sort=lambda row: value(row) or 0.0,
        down=True,
        name=name,
        number=value,
        unit=unit,
    )


def _sampled(
    title: str, value: Callable[[Any], float | None], text: Callable[[float], str] = fmt.mean, unit: str = ""
) -> Column[tuple[Time, Any]]:
    """A column of numbers of samples."""
    return _number(title, lambda row: value(row[1]), text, unit)


AT = _time_column(fmt.date_and_minute)
QUOTA_COLUMNS: tuple[Column[tuple[Time, QueueSample]], ...] = (
    AT,
    _sampled("IN USE", lambda one: one.used),
    _sampled("NOMINAL", lambda one: one.nominal),
    _sampled("BORROWED", lambda one: one.borrowed),
    _sampled("LENT", lambda one: one.lent),
    _sampled("PENDING", lambda one: one.pending),
    _sampled("PENDING GPUs", lambda one: one.pending_gpus),
    _sampled("WAIT P95", lambda one: one.wait_p95, _seconds, "seconds"),
    _sampled("ADMITTED", lambda one: one.admitted),
    _sampled("PREEMPTED", lambda one: one.preempted),
    _sampled("EVICTED", lambda one: one.evicted),
)
TYPE_COLUMNS: tuple[Column[tuple[Time, GpuSample]], ...] = (
    AT,
    _sampled("TOTAL", lambda one: one.total),
    _sampled("ALLOCATED", lambda one: one.allocated),
    _sampled("IDLE", lambda one: one.idle),
    _sampled("UNHEALTHY", lambda one: one.unhealthy),
    _sampled("UTILIZATION", lambda one: one.utilization, lambda value: f"{value:.0f}%", "percent"),
)
COST_COLUMNS: tuple[Column[tuple[Time, Samples]], ...] = (
    AT,
    _sampled("COST/H", lambda one: one.cost_hourly, fmt.money, "usd"),
)


class SeriesChart(Chart[Plotted]):
    """Any recorded series over time."""

    NAME = "plot"
    COLUMNS = QUOTA_COLUMNS

    def __init__(self, screen: ChartScreen, aimed: str = "") -> None:
        """`aimed` is the name of a series, such as `llm` or `queue llm`; empty for the cluster."""
        super().__init__(screen)
        self._choice = CLUSTER
        self.aimed = aimed

    def wanted(self) -> object:
        return self._choice, self.aimed

    def read(self, snapshot: Snapshot, begin: Time, end: Time) -> Plotted:
        if self.aimed:
            self._choice, self.aimed = self._named(self.aimed), ""
        choice, window = self._choice, self.screen.window
        if choice.series is not None:
            found = read_samples(self.screen.console.samples, choice.series, window, end)
            return Plotted(choice, window, end, quota=trend_of(found, choice.series, window, end))
        samples = self.screen.console.samples(begin, end, window.step)
        if choice is COST:
            return Plotted(choice, window, end, cost=tuple((one.time, one) for one in samples))
        gpus = ((one.time, gpu) for one in samples for gpu in one.gpus if gpu.gpu_type == choice.gpu_type)
        return Plotted(choice, window, end, gpus=tuple(gpus))

    def _choices(self) -> list[PlotChoice]:
        now = self.screen.snapshot.time
        newest = self.screen.console.samples(now - 30 * MINUTE, now + MINUTE, MINUTE)
        return choices_of(newest or self.screen.console.samples(now - 7 * DAY, now + MINUTE, HOUR))

    def _named(self, wanted: str) -> PlotChoice:
        choices = self._choices()
        for matches in (
            lambda title: title == wanted,
            lambda title: title.partition(" ")[2] == wanted,
            lambda title: wanted.lower() in title.lower(),
        ):
            found = next((one for one in choices if matches(one.title)), None)
            if found is not None:
                return found
        raise ConsoleError(f"no series {wanted!r} in the last 30m; press B to choose one of {len(choices)}")

    def fill(self, data: Plotted) -> None:
        columns: Mapping[bool, Sequence[Column[Any]]] = {True: TYPE_COLUMNS, False: COST_COLUMNS}
        wanted = QUOTA_COLUMNS if data.quota is not None else columns[bool(data.choice.gpu_type)]
        grid = self.screen.numbers
        if grid.columns != tuple(wanted):
            grid.columns = wanted
        super().fill(data)
        self.screen.view_of_chart.border_title = f"{data.choice.title}, {self.screen.window_text()}"

    def rows_of(self, data: Plotted) -> Sequence[Any]:
        return data.samples[::-1]

    def key_of(self, row: tuple[Time, Any]) -> str:
        return str(row[0])

    def draw_chart(self, data: Plotted, width: int, height: int) -> tuple[Cell, ...]:
        if data.quota is not None:
            return trend_charts(data.quota, width, height)
        if not data.samples:
            return ((("Nothing is recorded in this window.", "dim"),),)
        axis = partial(time_axis, data.end - data.window.span, data.end)

        def values(
            label: str, role: str, value: Callable[[Any], float | None], style: CurveStyle, text: Callable[[float], str]
        ) -> ChartCurve:
            found = bin_samples(data.samples, data.window, data.end, width, value, fmean)
            newest = value(data.samples[-1][1])
            said = text(newest) if newest is not None else fmt.NOTHING
            return ChartCurve(label=label, role=role, values=found, style=style, newest=said)

        if data.cost:
            cost = values("cost per hour", "own", lambda one: one.cost_hourly, CurveStyle.AREA, fmt.money)
            return chart([cost], axis, width, height, fmt.money)
        curves = [
            values("allocated", "own", lambda one: one.allocated, CurveStyle.AREA, fmt.mean),
            values("unhealthy", "fault", lambda one: one.unhealthy, CurveStyle.DOTS, fmt.mean),
            values("total", "strong", lambda one: float(one.total), CurveStyle.LINE, fmt.mean),
        ]
        return chart(curves, axis, width, height)

    def handlers(self) -> Handlers:
        return {"chart.series": self._ask_series}

    def _ask_series(self) -> None:
        try:
            choices = self._choices()
        except ConsoleError as error:
            self.screen.flash(str(error), "error")
            return

        def take(title: str) -> None:
            self._choice, self.aimed = next(one for one in choices if one.title == title), ""
            self.screen.redraw()

        options = [ChoiceOption(one.title, one.title) for one in choices]
        self.screen.dialogs.choose("Plot", options, take, self._choice.title)


# Preemptions by queue


SHADES = " ·░▒▓█"
"""Shades of a heat map, from no preemption to the most of any pair."""
CELL, LABEL = 9, 20
"""Widths of a column of the heat map, and of its row names."""
PAIRS: tuple[Column[QueuePair], ...] = (
    Column(
        "VICTIM QUEUE", lambda row: row.victim or NO_QUEUE, id="name", width=20, flex=1, sort=lambda row: row.victim
    ),
    Column("PREEMPTOR QUEUE", lambda row: row.by or NO_QUEUE, id="by", width=20, flex=1, sort=lambda row: row.by),
    _number("PREEMPTIONS", lambda row: row.times, id="usage"),
    _number("LOST", lambda row: row.lost_gpu_hours, lambda hours: f"{hours:,.1f} GPU-h", "gpu_hours", width=13),
    _number("COST", lambda row: row.cost, fmt.money, "usd", width=10),
)
NO_QUEUE = "(no queue)"
MOST = 500
"""Number of preemptions that are read."""


class MatrixChart(Chart[PreemptionMatrix]):
    """Preemptions by queue of the victim and queue of the preemptor, as a heat map."""

    NAME = "matrix"
    TITLE = "Preemptions: victim queue ← preemptor queue"
    COLUMNS = PAIRS

    oldest: Time | None = None
    """Time of the oldest preemption that was read, if there are older ones in the window; None if all were read."""

    def read(self, snapshot: Snapshot, begin: Time, end: Time) -> PreemptionMatrix:
        events = self.screen.console.preemptions(MOST)
        self.oldest = events[0].time if len(events) >= MOST and events[0].time > begin else None
        return preemption_matrix(row for row in rows(events) if begin <= row.time < end)

    def rows_of(self, data: PreemptionMatrix) -> Sequence[QueuePair]:
        return data.pairs

    def key_of(self, row: QueuePair) -> str:
        return f"{row.victim} {row.by}"

    def fill(self, data: PreemptionMatrix) -> None:
        super().fill(data)
        self.screen.view_of_chart.styles.height = max(6, min(len(data.queues) + 4, self.screen.size.height * 2 // 3))

    def draw_chart(self, data: PreemptionMatrix, width: int, height: int) -> tuple[Cell, ...]:
        if self.oldest is None:
            return matrix_lines(data, width, height)
        note = f"Only the newest {MOST} preemptions, since {fmt.date_and_clock(self.oldest)}."
        return (((note, "pending"),), *matrix_lines(data, width, height - 1))

    def handlers(self) -> Handlers:
        return {"object.open": self._open}

    def _open(self) -> None:
        row = self.screen.numbers.current
        if isinstance(row, QueuePair):
            self.screen.console_app.go("preemptions", filtered=f"-f {row.victim}" if row.victim else "")


def matrix_lines(data: PreemptionMatrix, width: int, height: int) -> tuple[Cell, ...]:
    """Draw a heat map: a line for each queue of victims, a column for each queue of preemptors."""
    queues, counts = data.queues, data.counts
    if not queues:
        return ((("No preemptions to show in this window.", "dim"),),)
    shown = queues[: max(1, min((width - LABEL) // CELL, height - 2))]
    top = max(counts.values())
    head = "".join(f"{_short(name, CELL - 1):>{CELL}}" for name in shown)
    lines: list[Cell] = [((f"{'victim ↓ preemptor →':<{LABEL}}", "dim"), (head, "title"))]
    for victim in shown:
        cells: list[tuple[str, str]] = [(f"{_short(victim, LABEL - 1):<{LABEL}}", "title")]
        for by in shown:
            times = counts.get((victim, by), 0)
            shade = SHADES[-(-times * (len(SHADES) - 1) // top)] * 3
            cells.append(
                (f" {shade}{f'{times:,}' if times else fmt.NOTHING:>{CELL - 4}}", "victim" if times else "dim")
            )
        lines.append(tuple(cells))
    if len(shown) < len(queues):
        lines.append(((f"and {len(queues) - len(shown):,} more queues in the table", "dim"),))
    return tuple(lines)


def _short(name: str, width: int) -> str:
    name = clean(name) or NO_QUEUE
    return name if cell_len(name) <= width else set_cell_size(name, width - 1) + "…"


# Waits


QUANTILES = (("P50", 0.5), ("P90", 0.9), ("P95", 0.95), ("P99", 0.99), ("LONGEST", 1.0))
TICKS = (1, 10, 60, 600, 3_600, 6 * 3_600, 86_400, 7 * 86_400, 30 * 86_400)
"""Seconds that the axis of waits names."""


def _quantile(title: str, part: float) -> Column[WaitDistribution]:
    return _number(title, lambda row: in_seconds(quantile(row.waits, part)), _seconds, "seconds")


WAITS: tuple[Column[WaitDistribution], ...] = (
    Column("QUEUE", lambda row: row.queue or "all queues", id="name", width=20, flex=1, sort=lambda row: row.queue),
    _number("ADMITTED", lambda row: len(row.waits), id="usage"),
    *(_quantile(title, part) for title, part in QUANTILES),
)
Distributions = tuple[WaitDistribution, ...]


class WaitsChart(Chart[Distributions]):
    """Cumulative distribution of the waits of admitted workloads."""

    NAME = "waits"
    TITLE = "Waits until admission"
    COLUMNS = WAITS

    def read(self, snapshot: Snapshot, begin: Time, end: Time) -> Distributions:
        return wait_distributions(self.screen.console.events(begin, end, (HistoryEventKind.ADMITTED,)))

    def rows_of(self, data: Distributions) -> Sequence[WaitDistribution]:
        return data if data[0].waits else ()

    def key_of(self, row: WaitDistribution) -> str:
        return row.queue

    def picked(self) -> None:
        if self.screen.data is not None:
            # A new function, as the same one with the same data would not be drawn again.
            self.screen.view_of_chart.shown = self.screen.data, partial(self.draw_chart)

    def draw_chart(self, data: Distributions, width: int, height: int) -> tuple[Cell, ...]:
        row = self.screen.numbers.current
        picked = row if isinstance(row, WaitDistribution) and row.queue else None
        return waits_lines(data[0], picked, width, height)


def waits_lines(every: WaitDistribution, picked: WaitDistribution | None, width: int, height: int) -> tuple[Cell, ...]:
    """Draw the percentage of workloads that waited at most so long, over a logarithmic axis of waits.

    All queues are an area, and one queue is a line over it.
    """
    if not every.waits:
        return ((("No admissions in this window.", "dim"),),)
    longest = max(2.0, every.waits[-1] / SECOND)

    def wait_at(column: int, columns: int) -> Span:
        part: float = longest ** (column / max(1, columns - 1))
        return round(part * SECOND)

    def curve_of(one: WaitDistribution, role: str, style: CurveStyle) -> ChartCurve:
        values = tuple(100 * one.fraction(wait_at(column, width)) for column in range(width))
        median, most = (_seconds(in_seconds(quantile(one.waits, part))) for part in (0.5, 0.95))
        newest = f"P50 {median}, P95 {most}"
        return ChartCurve(label=one.queue or "all queues", role=role, values=values, style=style, newest=newest)

    def axis(columns: int) -> Painted:
        marks = ["─"] * columns
        for tick in TICKS:
            if tick > longest:
                break
            said = fmt.age(tick * SECOND).removesuffix("00s").removesuffix("00m").removesuffix("0h")
            at = round(log(tick) / log(longest) * (columns - 1))
            at = min(at, columns - len(said))
            if all(mark == "─" for mark in marks[max(0, at - 1) : at + len(said) + 1]):
                marks[at : at + len(said)] = said
        return (("".join(marks), "dim"),)

    curves = [curve_of(every, "own", CurveStyle.AREA)]
    if picked is not None:
        curves.append(curve_of(picked, "strong", CurveStyle.LINE))
    return chart(curves, axis, width, height, lambda value: f"{value:.0f}%")


# GPUs over time by owner


def gantt_bar(row: GanttRow, width: int) -> Painted:
    """Draw the GPUs of an owner over time, relative to the most that it had; ✖ marks evictions."""
    values = gpus_over_time(row.parts, row.begin, row.end, width)
    # One workload has its GPUs or not: a cell in which it has them for a part of the time is full.
    is_one = len({one.workload for one in row.parts}) == 1
    top = 0.0 if is_one else max(values, default=0.0)
    cells = [" " if value <= 0 else curve((value,), top or value) for value in values]
    roles = ["series-1" if len({one.queue for one in row.parts}) > 1 else _series(row.queue)] * width
    for one in row.parts:
        if one.outcome is HistoryEventKind.EVICTED:
            at = min(width - 1, (one.end - row.begin) * width // (row.end - row.begin))
            cells[at], roles[at] = GLYPHS["victim"], "victim"
    return merged(list(zip(cells, roles, strict=True)))


def _series(queue: str) -> str:
    """The colour of a queue, the same in every window."""
    return f"series-{crc32(queue.encode()) % 8 + 1}"


BAR_LEAST, BESIDE = 20, 66
"""Least width of the bars, and width of the other columns."""


def gantt_columns(by: GanttBy, begin: Time, end: Time, width: int) -> tuple[Column[GanttRow], ...]:
    """Return the columns for a screen of this width; the head of the bars is the axis."""
    room = max(BAR_LEAST, width - BESIDE)
    axis = plain(time_axis(begin, end, room))
    return (
        Column(
            by.value.upper(),
            lambda row: called(row.owner) or NO_QUEUE,
            id="name",
            width=22,
            flex=1,
            sort=lambda row: row.owner,
            name=by.value,
        ),
        Column("QUEUE", lambda row: ((row.queue, "dim"),), width=12, rank=1, sort=lambda row: row.queue),
        _number("GPUs", lambda row: row.gpus, id="usage", width=5),
        _number("GPU-h", lambda row: row.gpu_hours, lambda hours: f"{hours:,.1f}", name="gpu_hours", width=8),
        _number("✖", lambda row: row.evictions or None, name="evictions", width=3),
        Column(axis, lambda row: gantt_bar(row, room), width=room, name="gpus_over_time"),
    )


Allocations = tuple[Sequence[Allocation], Time, Time]
"""The allocations of a window, and its begin and end."""


class GanttChart(Chart[Allocations]):
    """GPUs over time by workload, queue or namespace."""

    NAME = "gantt"
    TITLE = "GPUs by owner"
    DRAWN = False

    def __init__(self, screen: ChartScreen) -> None:
        super().__init__(screen)
        self._by = GanttBy.WORKLOAD

    def read(self, snapshot: Snapshot, begin: Time, end: Time) -> Allocations:
        events = self.screen.console.events(begin, end, ALLOCATING)
        return allocations(events, snapshot, begin, min(end, snapshot.time)), begin, end

    def fill(self, data: Allocations) -> None:
        found, begin, end = data
        grid = self.screen.numbers
        grid.columns = gantt_columns(self._by, begin, end, self.screen.size.width)
        lines = f" GPUs by {self._by.value}, {self.screen.window_text()}"
        self.screen.query_one("#said", Lines).lines = (((lines, "title"), ("  ✖ eviction", "victim")),)
        grid.show(gantt_rows(found, self._by, begin, end))

    def resized(self) -> None:
        if self.screen.data is not None:
            self.fill(self.screen.data)

    def key_of(self, row: GanttRow) -> str:
        return row.owner

    def handlers(self) -> Handlers:
        return {"chart.series": self._group, "object.open": self._open}

    def _group(self) -> None:
        self._by = self._by.next
        if self.screen.data is not None:
            self.fill(self.screen.data)

    def _open(self) -> None:
        row = self.screen.numbers.current
        if not isinstance(row, GanttRow):
            return
        match self._by:
            case GanttBy.WORKLOAD:
                self.screen.console_app.go("workloads", at=row.owner)
            case GanttBy.QUEUE:
                self.screen.console_app.go("queues", at=row.owner)
            case GanttBy.NAMESPACE:
                self.screen.console_app.go("workloads", filtered=f"^{re.escape(row.owner)}/")


CHARTS: Mapping[str, Callable[[ChartScreen], Chart[Any]]] = {
    "plot": SeriesChart,
    "matrix": MatrixChart,
    "waits": WaitsChart,
    "gantt": GanttChart,
}
"""Name of a chart, as in the action `answer.NAME` → its kind."""


def answer_screen(name: str) -> ConsoleScreen:
    """Make the screen of the chart with this name, a key of `CHARTS`."""
    return ChartScreen(CHARTS[name])


def plot(screen: ConsoleScreen, name: str) -> None:
    """Open the plot of a series by its name."""
    screen.open(ChartScreen(partial(SeriesChart, aimed=name)))
