"""Trends of a queue or the whole cluster over a window of time: GPUs, pending GPUs, waits and preemptions as curves.

A gap in the recording is a gap in the curve. Samples that are further apart than the columns are no gap.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean, median

from msgspec import Struct
from textual.reactive import reactive

from gpuconsole.insight.series import QueueSample, Samples, SeriesKind
from gpuconsole.model.clock import DAY, HOUR, MINUTE, SECOND, Span, Time, next_multiple
from gpuconsole.model.devices import WHOLE_GPU
from gpuconsole.ui import format as fmt
from gpuconsole.ui.paint import GLYPHS, Cell, Painted, Piece, join
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
        times = [time for time, _ in self.samples]
        steps = [after - before for before, after in pairwise(times)]
        return max(self.window.step, round(median(steps)) if steps else 0)

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


def binned(
    trend: Trend,
    columns: int,
    value: Callable[[QueueSample], float | None],
    reduce: Callable[[Sequence[float]], float],
    *,
    absent: float | None = None,
) -> Values:
    """Reduce the samples of each column to one value; there are at most as many columns as samples in the window.

    A column between two samples that follow each other at the usual interval repeats the value before it, or has the
    value `absent`, if that is given. The interval before or after that one is usual, too: a fast simulation is sampled
    less often than a slow one.
    """
    columns = max(1, min(columns, trend.window.span // trend.window.step))
    begin = trend.end - trend.window.span
    found: list[list[float | None]] = [[] for _ in range(columns)]
    covered = [False] * columns
    interval = trend.interval
    times = [time for time, _ in trend.samples]
    steps = [0, *(after - before for before, after in pairwise(times)), 0]
    for place, (time, sample) in enumerate(trend.samples):
        column = (time - begin) * columns // trend.window.span
        after = times[place + 1] if place + 1 < len(times) else min(trend.end, time + interval)
        usual = max(interval, steps[place], *steps[place + 2 : place + 3])
        last = after if after - time <= usual + usual // 2 else time + trend.window.step
        until = (min(last, trend.end) - 1 - begin) * columns // trend.window.span
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


def _total(values: Sequence[float]) -> float:
    return float(sum(values))


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
    """Draws a trend: four curves where it is high enough, else one line; nothing without a trend."""

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
        return trend_lines(trend, width) if height > 1 else (trend_brief(trend, width),)
