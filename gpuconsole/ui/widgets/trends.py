"""Trends of a queue or the whole cluster over a window of time: GPUs, pending GPUs, waits and preemptions as curves.

A gap in the recording is a gap in the curve. Samples that are further apart than the columns are no gap. `chart` draws
curves over several lines; areas, lines and dots can be told apart without colours.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from itertools import groupby, pairwise
from math import floor, log10
from statistics import fmean, median
from typing import TypeVar

from msgspec import Struct
from textual.reactive import reactive

from gpuconsole.insight.series import QueueSample, Samples, SeriesKind
from gpuconsole.model.clock import DAY, HOUR, MINUTE, SECOND, Span, Time, next_multiple
from gpuconsole.model.devices import WHOLE_GPU
from gpuconsole.ui import format as fmt
from gpuconsole.ui.paint import GLYPHS, Cell, Painted, Piece, join, plain
from gpuconsole.ui.widgets.painter import DrawnLines


class TrendWindow(Struct, frozen=True):
    """A window of time that ends now."""

    name: str
    """In a sentence: `2 preemptions in the last hour`."""
    short: str
    span: Span
    step: Span
    """Span of the samples that are read for it: MINUTE or HOUR."""


LAST_DAY = TrendWindow("last 24 h", "24 h", DAY, MINUTE)
WINDOWS = (
    TrendWindow("last hour", "1 h", HOUR, MINUTE),
    LAST_DAY,
    TrendWindow("last 7 d", "7 d", 7 * DAY, HOUR),
    TrendWindow("last 30 d", "30 d", 30 * DAY, HOUR),
)


class SeriesName(Struct, frozen=True):
    """Which series a trend shows."""

    kind: SeriesKind
    name: str = ""
    flavor: str = ""


WHOLE_CLUSTER = SeriesName(SeriesKind.CLUSTER)


class Trend(Struct, frozen=True, kw_only=True):
    """The samples of one series in a window, oldest first."""

    series: SeriesName
    window: TrendWindow
    end: Time
    """End of the window: the start of the next minute or hour."""
    unit: str = WHOLE_GPU.noun
    """Unit of the amounts."""
    samples: tuple[tuple[Time, QueueSample], ...] = ()

    @property
    def since(self) -> Time | None:
        """Start of the recording, if that is later than the start of the window; else None."""
        begin = self.end - self.window.span
        first = self.samples[0][0] if self.samples else self.end
        return first if first >= begin + 2 * self.interval else None

    @property
    def interval(self) -> Span:
        """The usual time between two samples, at least that of the window's samples."""
        return usual_interval([time for time, _ in self.samples], self.window.step)

    @property
    def preempted(self) -> int:
        """Preemptions in the window, as far as it is recorded."""
        return sum(sample.preempted for _, sample in self.samples)


def trend_of(
    samples: Sequence[Samples], series: SeriesName, window: TrendWindow, now: Time, unit: str = WHOLE_GPU.noun
) -> Trend:
    """Select the samples of one series in the window that ends at `now`."""
    end = next_multiple(now, window.step)
    found = [
        (one.time, queue)
        for one in samples
        if end - window.span <= one.time < end
        for queue in one.queues
        if (queue.kind, queue.name, queue.flavor) == (series.kind, series.name, series.flavor)
    ]
    return Trend(series=series, window=window, end=end, unit=unit, samples=tuple(found))


Values = tuple[float | None, ...]
"""One value per column; None where nothing is recorded."""


Sample = TypeVar("Sample")


def binned(
    trend: Trend,
    columns: int,
    value: Callable[[QueueSample], float | None],
    reduce: Callable[[Sequence[float]], float],
    *,
    absent: float | None = None,
) -> Values:
    """Reduce the samples of each column to one value, as `bin_samples` does."""
    return bin_samples(trend.samples, trend.window, trend.end, columns, value, reduce, absent=absent)


def usual_interval(times: Sequence[Time], step: Span) -> Span:
    """The usual time between two samples, at least `step`."""
    steps = [after - before for before, after in pairwise(times)]
    return max(step, round(median(steps)) if steps else 0)


def bin_samples(
    samples: Sequence[tuple[Time, Sample]],
    window: TrendWindow,
    end: Time,
    columns: int,
    value: Callable[[Sample], float | None],
    reduce: Callable[[Sequence[float]], float],
    *,
    absent: float | None = None,
) -> Values:
    """Reduce the samples of each column to one value; there are at most as many columns as samples in the window.

    A column between two samples that follow each other at the usual interval repeats the value before it, or has the
    value `absent`, if that is given. The interval before or after that one is usual, too: a fast simulation is sampled
    less often than a slow one.
    """
    columns = max(1, min(columns, window.span // window.step))
    begin = end - window.span
    found: list[list[float | None]] = [[] for _ in range(columns)]
    covered = [False] * columns
    times = [time for time, _ in samples]
    interval = usual_interval(times, window.step)
    steps = [0, *(after - before for before, after in pairwise(times)), 0]
    for place, (time, sample) in enumerate(samples):
        column = (time - begin) * columns // window.span
        after = times[place + 1] if place + 1 < len(times) else min(end, time + interval)
        usual = max(interval, steps[place], *steps[place + 2 : place + 3])
        last = after if after - time <= usual + usual // 2 else time + window.step
        until = (min(last, end) - 1 - begin) * columns // window.span
        covered[column : until + 1] = [True] * (until + 1 - column)
        found[column].append(value(sample))
    values: list[float | None] = []
    for here, is_covered in zip(found, covered, strict=True):
        known = [one for one in here if one is not None]
        before = values[-1] if values and absent is None else absent
        values.append(reduce(known) if known else before if is_covered and not here else None)
    return tuple(values)


LEVELS = "▁▂▃▄▅▆▇█"
GAP = " "


def curve(values: Values, top: float) -> str:
    """Draw values as columns of one line; `top` fills a column, and gaps are blank."""
    return "".join(GAP if value is None else _level(value, top) for value in values)


def _level(value: float, top: float) -> str:
    if top <= 0 or value <= 0:
        return LEVELS[0]
    return LEVELS[max(0, min(len(LEVELS) - 1, round(value / top * len(LEVELS)) - 1))]


def highest(values: Values) -> float:
    """Return the highest value; 0 without values."""
    return max((value for value in values if value is not None), default=0.0)


class CurveStyle(StrEnum):
    """How a curve of a chart is drawn."""

    AREA = "area"
    LINE = "line"
    DOTS = "dots"


class ChartCurve(Struct, frozen=True, kw_only=True):
    """One curve of a chart."""

    label: str
    role: str
    values: Values
    style: CurveStyle = CurveStyle.AREA
    newest: str = ""
    """Its newest value with its unit, for the legend."""


SCAN = {CurveStyle.LINE: "⎽⎼─⎻⎺", CurveStyle.DOTS: ".·˙"}
"""Glyphs of a line from the bottom to the top of a terminal cell."""
LEGEND = {CurveStyle.AREA: "█", CurveStyle.LINE: "─", CurveStyle.DOTS: "·"}
_Canvas = list[list[Piece]]
"""Lines from the top, each with one piece per column."""


def chart(
    curves: Sequence[ChartCurve],
    axis: Callable[[int], Painted],
    width: int,
    height: int,
    label: Callable[[float], str] = fmt.mean,
    least: int = 0,
) -> tuple[Cell, ...]:
    """Draw curves: legend, canvas with a scale from 0, and the axis, which `axis` draws for a number of columns.

    Later curves are drawn over earlier ones. `label` formats a value of the scale, which has `least` cells at least.
    With less than four lines there is no room for a canvas, and only the legend is drawn.
    """
    named: Cell = join(
        [
            ((f"{LEGEND[one.style]} ", one.role), (one.label, ""), (f" {one.newest}" if one.newest else "", "strong"))
            for one in curves
        ]
    )
    rows = height - 2
    if rows < 2:
        return (named,)
    top = round_up(max((highest(one.values) for one in curves), default=0.0))
    scale = [label(top), *[""] * (rows - 1)]
    if rows >= 5:
        scale[rows // 2] = label(top / 2)
    left = max(least, *map(len, [*scale, label(0.0)]))
    columns = max(1, width - left - 1)
    canvas: _Canvas = [[(" ", "")] * columns for _ in range(rows)]
    for one in curves:
        _draw(canvas, one, top)
    lines = [
        ((f"{said:>{left}}", "dim"), ("┤" if said else "│", "dim"), *merged(row))
        for said, row in zip(scale, canvas, strict=True)
    ]
    return (named, *lines, ((f"{label(0.0):>{left}}", "dim"), ("┼", "dim"), *axis(columns)))


def round_up(value: float) -> float:
    """Return the end of a scale: the smallest of 1, 1.5, 2, 3, 4, 5, 6, 8, 10 times a power of ten that is enough."""
    if value <= 0:
        return 1.0
    power = 10.0 ** floor(log10(value))
    return next(step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 20) if step * power >= value)


def _draw(canvas: _Canvas, one: ChartCurve, top: float) -> None:
    rows, columns = len(canvas), len(canvas[0])
    for column in range(columns):
        value = one.values[column * len(one.values) // columns] if one.values else None
        if value is None:
            continue
        height = max(0.0, min(1.0, value / top)) * rows
        if one.style is not CurveStyle.AREA:
            row, glyphs = min(rows - 1, int(height)), SCAN[one.style]
            part = min(len(glyphs) - 1, int((height - row) * len(glyphs)))
            canvas[rows - 1 - row][column] = (glyphs[part], one.role)
            continue
        eighths = max(1 if value > 0 else 0, round(height * len(LEVELS)))
        full, part = divmod(eighths, len(LEVELS))
        for row in range(full):
            canvas[rows - 1 - row][column] = (LEVELS[-1], one.role)
        if part:
            canvas[rows - 1 - full][column] = (LEVELS[part - 1], one.role)


def merged(pieces: Sequence[Piece]) -> Painted:
    """Join neighbours of one role to one piece."""
    return tuple(("".join(text for text, _ in run), role) for role, run in groupby(pieces, lambda piece: piece[1]))


def time_axis(begin: Time, end: Time, columns: int) -> Painted:
    """Draw an axis of `columns` cells with the times at its ends and in between."""
    is_short = end - begin <= DAY
    length = len("09:14" if is_short else "25 Jan 09:14")
    marks = max(1, min(5, columns // (length + 8)))
    axis = ["─"] * columns
    for mark in range(marks + 1):
        time = begin + (end - begin) * mark // marks
        said = fmt.clock(time)[:length] if is_short else f"{fmt.date_and_minute(time):>{length}}"
        at = max(0, min(columns - length, round(mark * columns / marks) - length // 2))
        axis[at : at + length] = said
    return (("".join(axis)[:columns], "dim"),)


def _total(values: Sequence[float]) -> float:
    return float(sum(values))


CHART, TWO_CHARTS = 7, 15
"""Least heights of one chart, and of two."""
SCALE = 6
"""Width of the scales of two charts, so that one time is in one column."""


def trend_charts(trend: Trend, width: int, height: int) -> tuple[Cell, ...]:
    """Draw GPUs against quota and pending GPUs; where there is room, also waits and preemptions below."""
    if not trend.samples:
        return (_nothing(trend),)
    newest, columns = trend.samples[-1][1], max(1, width)
    axis = partial(time_axis, trend.end - trend.window.span, trend.end)
    used = binned(trend, columns, lambda one: one.used, fmean)
    curves = [ChartCurve(label=f"{trend.unit}s in use", role="own", values=used, newest=fmt.mean(newest.used))]
    if not _flavor_only(trend):
        pending = binned(trend, columns, lambda one: one.pending_gpus, fmean)
        curves.append(
            ChartCurve(
                label="pending",
                role="pending",
                values=pending,
                style=CurveStyle.DOTS,
                newest=f"{fmt.mean(newest.pending_gpus)}{pending_text(newest, trend.unit)}",
            )
        )
    nominal = binned(trend, columns, lambda one: one.nominal, fmean)
    curves.append(
        ChartCurve(label="quota", role="strong", values=nominal, style=CurveStyle.LINE, newest=fmt.mean(newest.nominal))
    )
    if height < TWO_CHARTS or _flavor_only(trend):
        return chart(curves, axis, width, height)
    waits = binned(trend, columns, lambda one: one.wait_p95, max)
    preempted = binned(trend, columns, lambda one: float(one.preempted), _total, absent=0.0)
    wait = ChartCurve(label="wait p95", role="pending", values=waits, newest=plain(_wait(newest.wait_p95, 0)))
    below = max(CHART - 1, (height - 1) // 3)
    counts: Cell = (
        (f"{GLYPHS['victim']} preempted ", "victim"),
        (f"{trend.preempted:,} ", "strong"),
        (curve(preempted, highest(preempted)), "victim"),
    )
    return (
        *chart(curves, axis, width, height - below - 1, least=SCALE),
        *chart([wait], axis, width, below, lambda value: fmt.age(round(value * SECOND)), SCALE),
        counts,
    )


LABEL, FACTS = 10, 27
"""Widths of the label of a curve, and of the numbers after it."""


def trend_lines(trend: Trend, width: int) -> tuple[Cell, ...]:
    """Draw four curves with their newest values: GPUs against nominal quota, pending GPUs, wait p95, preemptions."""
    if not trend.samples:
        return (_nothing(trend),)
    columns, newest = max(1, width - LABEL - FACTS), trend.samples[-1][1]
    used = binned(trend, columns, lambda one: one.used, fmean)
    nominal = binned(trend, columns, lambda one: one.nominal, fmean)
    rows: list[tuple[str, Painted, Cell]] = [
        (
            f"{trend.unit}s"[: LABEL - 1],
            _against(used, nominal),
            ((fmt.mean(newest.used), "strong"), (f" of {fmt.mean(newest.nominal)} quota", "dim")),
        )
    ]
    if not _flavor_only(trend):
        pending = binned(trend, columns, lambda one: one.pending_gpus, fmean)
        waits = binned(trend, columns, lambda one: one.wait_p95, max)
        preempted = binned(trend, columns, lambda one: float(one.preempted), _total, absent=0.0)
        rows += [
            (
                "pending",
                ((curve(pending, highest(pending)), "pending"),),
                ((fmt.mean(newest.pending_gpus), "strong"), (pending_text(newest, trend.unit), "dim")),
            ),
            ("wait p95", ((curve(waits, highest(waits)), "pending"),), _wait(newest.wait_p95, highest(waits))),
            (
                "preempted",
                ((curve(preempted, highest(preempted)), "victim"),),
                ((f"{trend.preempted:,}", "strong"), (f" in {trend.window.short}", "dim")),
            ),
        ]
    return tuple(((f"{label:<{LABEL}}", "dim"), *drawn, ("  ", ""), *facts) for label, drawn, facts in rows)


def trend_brief(trend: Trend, width: int) -> Cell:
    """Draw the trends on one line, for small terminals: the curve of GPUs, and the other numbers."""
    if not trend.samples:
        return _nothing(trend)
    newest = trend.samples[-1][1]
    facts: list[Cell] = [((f"{fmt.mean(newest.used)}/{fmt.mean(newest.nominal)}", "strong"), (f" {trend.unit}s", ""))]
    if not _flavor_only(trend):
        facts.append((((f"{GLYPHS['pending']} {fmt.mean(newest.pending_gpus)}"), "pending"),))
        if newest.wait_p95 is not None:
            facts.append(f"p95 {fmt.age(round(newest.wait_p95 * SECOND))}")
        facts.append(((f"{GLYPHS['victim']} {trend.preempted:,}", "victim" if trend.preempted else "dim"),))
    tail = join(facts, " · ")
    room = width - LABEL - 3 - sum(len(text) for text, _ in tail)
    columns = max(8, min(room, 60))
    used = binned(trend, columns, lambda one: one.used, fmean)
    nominal = binned(trend, columns, lambda one: one.nominal, fmean)
    return ((f" {trend.window.short:<{LABEL}}", "title"), *_against(used, nominal), ("  ", ""), *tail)


def pending_text(sample: QueueSample, unit: str) -> str:
    """Unit of the pending amount, and number of pending workloads: ` GPUs, 12 workloads`."""
    units = "" if sample.pending_gpus == 1 else "s"
    return f" {unit}{units}, {sample.pending:,} workload{'' if sample.pending == 1 else 's'}"


def _flavor_only(trend: Trend) -> bool:
    """True for a flavor, or one flavor of a queue, whose samples have no pending work, waits and counts."""
    sample = trend.samples[-1][1]
    return bool(sample.flavor) or sample.kind is SeriesKind.FLAVOR


def _nothing(trend: Trend) -> Painted:
    return ((f" Nothing is recorded in the {trend.window.name}.", "dim"),)


def _against(used: Values, nominal: Values) -> Painted:
    """The curve of GPUs; its scale ends at the highest of both, and GPUs above nominal quota are borrowed."""
    top = max(highest(used), highest(nominal))
    pieces: list[Piece] = []
    for value, owned in zip(used, nominal, strict=True):
        role = "borrowed" if value is not None and owned is not None and value > owned else "own"
        drawn = curve((value,), top)
        if pieces and pieces[-1][1] == role:
            pieces[-1] = (pieces[-1][0] + drawn, role)
        else:
            pieces.append((drawn, role))
    return tuple(pieces)


def _wait(newest: float | None, longest: float) -> Painted:
    now = fmt.age(round(newest * SECOND)) if newest is not None else fmt.NOTHING
    most = fmt.age(round(longest * SECOND))
    return ((now, "strong"), (f", at most {most}" if longest and most != now else "", "dim"))


def window_title(trend: Trend) -> str:
    """Title of a pane: the window, and the start of the recording if that is later."""
    since = f", since {fmt.date_and_clock(trend.since)}" if trend.since is not None and trend.samples else ""
    return f"{trend.window.name}{since}"


class TrendPane(DrawnLines):
    """Draws a trend: charts where it is high enough, else four curves, or one line; nothing without a trend."""

    trend: reactive[Trend | None] = reactive(None)

    def watch_trend(self, old: Trend | None, new: Trend | None) -> None:
        self.display = new is not None
        self.border_title = f"Trends, {window_title(new)}" if new is not None else ""
        self.refresh()

    def on_mount(self) -> None:
        self.display = self.trend is not None

    @property
    def content(self) -> Trend | None:
        return self.trend

    def draw(self, width: int, height: int) -> tuple[Cell, ...]:
        trend = self.trend
        if trend is None:
            return ()
        if height >= CHART:
            return trend_charts(trend, width, height)
        return trend_lines(trend, width) if height > 1 else (trend_brief(trend, width),)
