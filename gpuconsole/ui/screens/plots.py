"""Charts of the history, each above the table of its numbers: time series, preemptions by queue, waits, GPUs by owner.

`+` and `-` change the window, `←` and `→` move it into the past and back to the present. The table is exported, sorted
and filtered as all tables are.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any, Generic, NamedTuple, TypeVar

from textual.app import ComposeResult
from textual.reactive import reactive

from gpuconsole.errors import ConsoleError
from gpuconsole.insight.series import GpuSample, QueueSample, Samples, SeriesKind
from gpuconsole.model.clock import DAY, HOUR, MINUTE, SECOND, Time, next_multiple
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui import format as fmt
from gpuconsole.ui.actions import Action, Handlers
from gpuconsole.ui.paint import Cell
from gpuconsole.ui.screens.background import SnapshotWorker, read_samples
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.table_model import Column
from gpuconsole.ui.widgets.dialogs import ChoiceOption
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.painter import DrawnLines, PaneState
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


class ChartScreen(ConsoleScreen, Generic[Data]):
    """Base of the charts: a window of time, data that are read in the background, a chart and a table."""

    is_answer = True
    NAME = ""
    TITLE_OF_CHART = ""
    COLUMNS: Sequence[Column[Any]] = ()
    DRAWN = True
    """Whether it has a chart above the table."""

    def __init__(self) -> None:
        super().__init__()
        self._zoom_level = 1
        self._end: Time | None = None
        """End of the window; None for the present."""
        self._worker = SnapshotWorker(self, self._gather, self._came, reads=True)
        self._asked: object = None
        self.data: Data | None = None

    # Overridden by charts

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

    # The frame

    def crumb(self) -> str:
        return self.NAME

    def body(self) -> ComposeResult:
        yield ChartView(id="chart", classes="panel")
        yield Grid(self.COLUMNS, key=self.key_of, empty="Nothing is recorded in this window.", id="numbers")

    def on_mount(self) -> None:
        self.query_one(ChartView).display = self.DRAWN

    @property
    def window(self) -> TrendWindow:
        """The shown window."""
        return ZOOMS[self._zoom_level]

    def show(self, snapshot: Snapshot) -> None:
        end = self._end if self._end is not None else snapshot.time
        asked = (self.wanted(), self.window, end // MINUTE, self.console.answers)
        if asked != self._asked:
            self._asked = asked
            self._worker.ask(snapshot)

    def _gather(self, snapshot: Snapshot) -> Data | ConsoleError:
        end = next_multiple(self._end if self._end is not None else snapshot.time, MINUTE)
        try:
            return self.read(snapshot, end - self.window.span, end)
        except ConsoleError as error:
            return error

    def _came(self, found: Data | ConsoleError) -> None:
        grid = self.query_one(Grid)
        if isinstance(found, ConsoleError):
            grid.say(PaneState.FAILED, str(found))
            return
        self.data = found
        self.fill(found)

    def fill(self, data: Data) -> None:
        """Show the data."""
        view = self.query_one(ChartView)
        view.border_title = f"{self.TITLE_OF_CHART}, {self.window_text()}"
        view.shown = data, self.draw_chart
        self.query_one(Grid).show(self.rows_of(data))

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
        }

    def refusal(self, action: Action) -> str:
        if action.id == "chart.later" and self._end is None:
            return "the window ends at the present"
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
    title: str, value: Callable[[Any], float | None], text: Callable[[float], str] = fmt.mean, unit: str = ""
) -> Column[tuple[Time, Any]]:
    def cell(row: tuple[Time, Any]) -> str:
        found = value(row[1])
        return text(found) if found is not None else fmt.NOTHING

    return Column(
        title,
        cell,
        width=max(9, len(title)),
        align="right",
        sort=lambda row: value(row[1]) or 0.0,
        down=True,
        number=lambda row: value(row[1]),
        unit=unit,
    )


AT = _time_column(fmt.date_and_minute)
QUOTA_COLUMNS: tuple[Column[tuple[Time, QueueSample]], ...] = (
    AT,
    _number("IN USE", lambda one: one.used),
    _number("QUOTA", lambda one: one.nominal),
    _number("BORROWED", lambda one: one.borrowed),
    _number("LENT", lambda one: one.lent),
    _number("PENDING", lambda one: one.pending),
    _number("PENDING GPUs", lambda one: one.pending_gpus),
    _number("WAIT P95", lambda one: one.wait_p95, _seconds, "seconds"),
    _number("ADMITTED", lambda one: one.admitted),
    _number("PREEMPTED", lambda one: one.preempted),
    _number("EVICTED", lambda one: one.evicted),
)
TYPE_COLUMNS: tuple[Column[tuple[Time, GpuSample]], ...] = (
    AT,
    _number("TOTAL", lambda one: one.total),
    _number("ALLOCATED", lambda one: one.allocated),
    _number("IDLE", lambda one: one.idle),
    _number("UNHEALTHY", lambda one: one.unhealthy),
    _number("UTILIZATION", lambda one: one.utilization, lambda value: f"{value:.0f}%", "percent"),
)
COST_COLUMNS: tuple[Column[tuple[Time, Samples]], ...] = (
    AT,
    _number("COST/H", lambda one: one.cost_hourly, fmt.money, "usd"),
)


class SeriesScreen(ChartScreen[Plotted]):
    """Any recorded series over time."""

    NAME = "plot"
    COLUMNS = QUOTA_COLUMNS

    def __init__(self, wanted: str = "") -> None:
        """`wanted` is the name of a series, such as `llm` or `queue llm`; empty for the cluster."""
        super().__init__()
        self._choice = CLUSTER
        self._wanted = wanted

    def same(self, other: ConsoleScreen) -> bool:
        return isinstance(other, SeriesScreen) and not other._wanted and not self._wanted

    def wanted(self) -> object:
        return self._choice, self._wanted

    def read(self, snapshot: Snapshot, begin: Time, end: Time) -> Plotted:
        if self._wanted:
            self._choice, self._wanted = self._named(self._wanted), ""
        choice, window = self._choice, self.window
        if choice.series is not None:
            found = read_samples(self.console.samples, choice.series, window, end)
            return Plotted(choice, window, end, quota=trend_of(found, choice.series, window, end))
        samples = self.console.samples(begin, end, window.step)
        if choice is COST:
            return Plotted(choice, window, end, cost=tuple((one.time, one) for one in samples))
        gpus = ((one.time, gpu) for one in samples for gpu in one.gpus if gpu.gpu_type == choice.gpu_type)
        return Plotted(choice, window, end, gpus=tuple(gpus))

    def _choices(self) -> list[PlotChoice]:
        now = self.snapshot.time
        newest = self.console.samples(now - 30 * MINUTE, now + MINUTE, MINUTE)
        return choices_of(newest or self.console.samples(now - 7 * DAY, now + MINUTE, HOUR))

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
        raise ConsoleError(f"no series {wanted!r} is recorded; press B to choose one of {len(choices)}")

    def fill(self, data: Plotted) -> None:
        columns: Mapping[bool, Sequence[Column[Any]]] = {True: TYPE_COLUMNS, False: COST_COLUMNS}
        wanted = QUOTA_COLUMNS if data.quota is not None else columns[bool(data.choice.gpu_type)]
        grid = self.query_one(Grid)
        if grid.columns != tuple(wanted):
            grid.columns = wanted
        super().fill(data)
        self.query_one(ChartView).border_title = f"{data.choice.title}, {self.window_text()}"

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
        return {**super().handlers(), "chart.series": self._ask_series}

    def _ask_series(self) -> None:
        try:
            choices = self._choices()
        except ConsoleError as error:
            self.flash(str(error), "error")
            return

        def take(title: str) -> None:
            self._choice, self._wanted = next(one for one in choices if one.title == title), ""
            self.redraw()

        options = [ChoiceOption(one.title, one.title) for one in choices]
        self.dialogs.choose("Plot", options, take, self._choice.title)


SCREENS: dict[str, Callable[[], ChartScreen[Any]]] = {"plot": SeriesScreen}
"""Name of a chart, as in the action `answer.NAME` → its screen."""


def answer_screen(name: str) -> ConsoleScreen:
    """Make the screen of the chart with this name, a key of `SCREENS`."""
    return SCREENS[name]()


def plot(screen: ConsoleScreen, name: str) -> None:
    """Open the plot of a series by its name."""
    screen.open(SeriesScreen(name))
