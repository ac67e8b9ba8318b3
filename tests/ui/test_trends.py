"""Trends on the dashboard and on the queues screen: curves over a window, which `+` and `-` change."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.app import App, ComposeResult

from gpuconsole.insight.series import QueueSample, Samples, SeriesKind
from gpuconsole.model.clock import DAY, HOUR, MINUTE, Span, Time
from gpuconsole.services.console import Console
from gpuconsole.ui import format as fmt
from gpuconsole.ui.paint import plain
from gpuconsole.ui.screens.background import read_samples
from gpuconsole.ui.screens.dashboard import DashboardScreen
from gpuconsole.ui.widgets.painter import DrawnLines
from gpuconsole.ui.widgets.textpane import TextPane
from gpuconsole.ui.widgets.trends import (
    WHOLE_CLUSTER,
    WINDOWS,
    ChartCurve,
    CurveStyle,
    SeriesName,
    Trend,
    TrendPane,
    TrendWindow,
    binned,
    chart,
    curve,
    round_up,
    time_axis,
    trend_brief,
    trend_lines,
    trend_of,
    window_title,
)
from tests.support.console_clusters import NOW, history, org_cohort, recorded
from tests.support.console_stage import Stage, staged

LAST_HOUR, LAST_DAY, LAST_WEEK, LAST_MONTH = WINDOWS
END = NOW // MINUTE * MINUTE + MINUTE


def sample(kind: SeriesKind = SeriesKind.CLUSTER, name: str = "", **fields: float | None) -> QueueSample:
    return QueueSample(kind=kind, name=name, **{"nominal": 24.0, "used": 12.0, **fields})  # type: ignore[arg-type]


def minutes(rows: Iterable[tuple[int, QueueSample]]) -> list[Samples]:
    """Samples so many minutes before the end of the window, the oldest first."""
    return [Samples(time=END - ago * MINUTE, span=MINUTE, queues=(row,)) for ago, row in rows]


def trend(rows: Iterable[tuple[int, QueueSample]], window: TrendWindow = LAST_HOUR) -> Trend:
    return trend_of(minutes(rows), WHOLE_CLUSTER, window, NOW)


def used(found: Trend, columns: int) -> tuple[float | None, ...]:
    return binned(found, columns, lambda one: one.used, max)


def test_a_gap_in_the_recording_is_a_gap_in_the_curve_and_not_zero() -> None:
    rows = [(ago, sample(used=float(ago % 5))) for ago in range(60, 0, -1) if not 20 < ago <= 40]
    values = used(trend(rows), 60)
    assert values[20:40] == (None,) * 20
    assert None not in values[:20] + values[40:]
    assert curve(values, 4.0)[18:42] == "▄▂" + " " * 20 + "▁█"


def test_samples_further_apart_than_the_columns_leave_no_gaps() -> None:
    rows = [(ago, sample(used=float(ago), preempted=1)) for ago in range(60, 0, -4)]
    found = trend(rows)
    assert used(found, 60) == tuple(float(ago) for ago in range(60, 0, -4) for _ in range(4))
    preempted = binned(found, 60, lambda one: float(one.preempted), sum, absent=0.0)
    assert preempted == (1.0, 0.0, 0.0, 0.0) * 15


def test_a_change_of_the_speed_of_a_simulation_leaves_no_gaps() -> None:
    fast, slow = range(60, 20, -4), range(20, 0, -1)
    rows = [(ago, sample(used=float(ago))) for ago in (*fast, *slow)]
    assert used(trend(rows), 60) == (*(float(ago) for ago in fast for _ in range(4)), *map(float, slow))


def test_a_column_has_the_reduced_value_of_its_samples() -> None:
    assert used(trend([(ago, sample(used=float(ago))) for ago in range(60, 0, -1)]), 4) == (60.0, 45.0, 30.0, 15.0)


def test_no_wait_is_drawn_where_no_workload_was_admitted() -> None:
    rows = [(ago, sample(wait_p95=60.0 if ago > 30 else None)) for ago in range(60, 0, -1)]
    values = binned(trend(rows), 60, lambda one: one.wait_p95, max)
    assert values == (60.0,) * 30 + (None,) * 30


def test_a_trend_has_the_samples_of_its_series_in_its_window() -> None:
    rows = [(61, sample(used=1.0)), (60, sample(used=2.0)), (1, sample(used=3.0)), (0, sample(used=4.0))]
    others = minutes([(2, sample(SeriesKind.QUEUE, "q")), (2, sample(SeriesKind.CLUSTER, "other"))])
    found = trend_of([*minutes(rows), *others], WHOLE_CLUSTER, LAST_HOUR, NOW)
    assert [one.used for _, one in found.samples] == [2.0, 3.0]
    assert found.end == END


FULL = [
    (ago, sample(used=24.0 if ago <= 30 else 12.0, pending=3, pending_gpus=6.0, wait_p95=90.0, preempted=ago == 5))
    for ago in range(60, 0, -1)
]


def test_the_four_curves_have_their_newest_values() -> None:
    lines = [plain(line) for line in trend_lines(trend(FULL), 67)]
    assert lines == [
        f"GPUs      {'▄' * 15}{'█' * 15}  24 of 24 quota",
        f"pending   {'█' * 30}  6 GPUs, 3 workloads",
        f"wait p95  {'█' * 30}  1m30s",
        f"preempted {'▁' * 27}█▁▁  1 in 1 h",
    ]


def test_gpus_above_nominal_quota_are_drawn_as_borrowed() -> None:
    rows = [(ago, sample(used=30.0 if ago <= 30 else 12.0)) for ago in range(60, 0, -1)]
    pieces = trend_lines(trend(rows), 67)[0]
    assert [piece for piece in pieces if piece[1] in ("own", "borrowed")] == [("▃" * 15, "own"), ("█" * 15, "borrowed")]


def test_one_line_has_all_numbers_where_there_is_no_room() -> None:
    line = plain(trend_brief(trend(FULL), 80))
    assert line.startswith(" 1 h       ▄▄▄")
    assert line.endswith("  24/24 GPUs · ◐ 6 · p95 1m30s · ✖ 1")
    assert len(line) <= 80


class Counted(DrawnLines):
    """A widget that counts how often it draws."""

    DEFAULT_CSS = "Counted { height: 3; }"
    shown: tuple[str, ...] = ("a", "b", "c")
    draws = 0

    @property
    def content(self) -> tuple[str, ...]:
        return self.shown

    def draw(self, width: int, height: int) -> tuple[str, ...]:
        self.draws += 1
        return self.shown


async def test_lines_are_drawn_once_for_each_content_and_size() -> None:
    class OneWidget(App[None]):
        def compose(self) -> ComposeResult:
            yield Counted()

    async with OneWidget().run_test(size=(20, 5)) as pilot:
        widget = pilot.app.query_one(Counted)

        async def drawn() -> int:
            widget.refresh()
            await pilot.pause()
            return widget.draws

        assert [await drawn(), await drawn()] == [1, 1]
        widget.shown = ("d",)
        assert [await drawn(), await drawn()] == [2, 2]
        assert [strip.text.rstrip() for strip in map(widget.render_line, range(3))] == ["d", "", ""]
        await pilot.resize_terminal(30, 5)
        assert [await drawn(), await drawn()] == [3, 3]


def test_large_and_broken_amounts_are_written_in_full() -> None:
    assert [fmt.mean(one) for one in (0.0, 8.0, 7.46, 1_234_567.0, 12_345.6)] == [
        *("0", "8", "7.5", "1,234,567", "12,345.6"),
    ]


def test_a_flavor_has_quota_only() -> None:
    series = SeriesName(SeriesKind.QUEUE, "q", "a100")
    rows = [(ago, sample(SeriesKind.QUEUE, "q", flavor="a100")) for ago in (2, 1)]  # type: ignore[arg-type]
    lines = trend_lines(trend_of(minutes(rows), series, LAST_HOUR, NOW), 80)
    assert len(lines) == 1
    assert plain(lines[0]).endswith("12 of 24 quota")


@pytest.mark.parametrize("window", WINDOWS, ids=lambda window: window.short)
def test_a_window_says_since_when_it_is_recorded(window: TrendWindow) -> None:
    whole = Trend(series=WHOLE_CLUSTER, window=window, end=END, samples=((END - window.span, sample()),))
    later = Trend(series=WHOLE_CLUSTER, window=window, end=END, samples=((END - window.span // 2, sample()),))
    assert window_title(whole) == window.name
    assert window_title(later).startswith(f"{window.name}, since ")


def test_nothing_is_recorded_in_an_empty_window() -> None:
    assert plain(trend_lines(trend([]), 80)[0]).strip() == "Nothing is recorded in the last hour."
    assert plain(trend_brief(trend([], LAST_WEEK), 80)).strip() == "Nothing is recorded in the last 7 d."


# Reading


class Recording:
    """What a history contains: some hours, then minutes; it remembers what was read."""

    def __init__(self, hours_until: Time) -> None:
        self.hours_until = hours_until
        self.reads: list[tuple[Span, Time, Time]] = []

    def __call__(
        self, since: Time, until: Time, span: Span, *, kind: SeriesKind | None = None, name: str | None = None
    ) -> list[Samples]:
        assert (kind, name) == (SeriesKind.CLUSTER, "")
        self.reads.append((span, since, until))
        until = min(until, self.hours_until) if span == HOUR else min(until, NOW + 1)
        times = range(-(-since // span) * span, until, span)
        return [Samples(time=time, span=span, queues=(sample(preempted=1),)) for time in times]


def test_hours_that_are_not_reduced_yet_are_made_of_their_minutes() -> None:
    this_hour = NOW // HOUR * HOUR
    read = Recording(hours_until=this_hour - HOUR)
    found = read_samples(read, WHOLE_CLUSTER, LAST_WEEK, NOW)
    assert [one.time for one in found] == list(range(this_hour - 7 * DAY + HOUR, this_hour + 1, HOUR))
    assert [one.queues[0].preempted for one in found[-3:]] == [1, 60, 15]
    assert all(one.span == HOUR for one in found)


def test_minutes_are_read_for_short_windows_only() -> None:
    read = Recording(hours_until=0)
    assert len(read_samples(read, WHOLE_CLUSTER, LAST_HOUR, NOW)) == 60
    assert len(read_samples(read, WHOLE_CLUSTER, LAST_DAY, NOW)) == 24 * 60
    read.reads.clear()
    read_samples(read, WHOLE_CLUSTER, LAST_MONTH, NOW)
    assert [(span, until - since) for span, since, until in read.reads] == [(HOUR, 30 * DAY), (MINUTE, 2 * DAY)]


# Screens


class RecordedConsole(Console):
    """A console whose history has a sample of each minute of the last 40 minutes, and of each hour of two days."""

    keeps_history = True

    def samples(
        self, since: Time, until: Time, span: Span, *, kind: SeriesKind | None = None, name: str | None = None
    ) -> list[Samples]:
        assert kind is not None
        assert name is not None
        first = max(-(-since // span) * span, NOW - (40 * MINUTE if span == MINUTE else 2 * DAY))
        row = sample(kind, name, used=20.0, pending=2, pending_gpus=6.0, wait_p95=660.0, preempted=1)
        return [Samples(time=time, span=span, queues=(row,)) for time in range(first, min(until, NOW), span)]


def with_samples() -> Console:
    console = recorded(org_cohort(), history())
    console.__class__ = RecordedConsole
    return console


def titles(stage: Stage) -> str:
    return str(stage.app.screen.query_one(TrendPane).border_title)


def plain_lines(stage: Stage) -> list[str]:
    return [plain(line) for line in stage.app.screen.query_one(TrendPane).lines]


async def test_the_dashboard_shows_the_last_hour_and_plus_and_minus_change_the_window() -> None:
    async with staged(with_samples(), (160, 50)) as stage:
        await stage.press("1")
        assert titles(stage) == "Trends, last hour, since Mon 5 Jan 08:34:20"
        lines = plain_lines(stage)
        assert [one.rstrip() for one in (lines[0], lines[-1].split("  ")[0])] == [
            "█ GPUs in use 20  · pending 6 GPUs, 2 workloads  ─ quota 24",
            "✖ preempted 40",
        ]
        assert "█ wait p95 11m" in lines
        await stage.press("plus", "plus")
        assert titles(stage).startswith("Trends, last 7 d, since Sat 3 Jan 09:")
        await stage.press("plus")
        assert titles(stage).startswith("Trends, last 30 d")
        await stage.press("plus")
        assert [one.message for one in stage.app._notifications] == ["The last 30 d are the longest window"]
        await stage.press("minus", "minus", "minus")
        assert titles(stage).startswith("Trends, last hour")


async def test_at_80x24_the_trends_are_one_line() -> None:
    async with staged(with_samples(), (80, 24)) as stage:
        await stage.press("1")
        assert stage.screen(DashboardScreen).query_one(TrendPane).size.height == 1
        assert "20/24 GPUs · ◐ 6 · p95 11m · ✖ 40" in stage.line(" 1 h ")
        await stage.press("plus")
        assert " 24 h " in stage.text
        assert "cq-research" in stage.text


async def test_each_queue_has_its_trend_and_a_local_queue_that_of_its_cluster_queue() -> None:
    async with staged(with_samples(), (120, 36)) as stage:
        await stage.press("2", "j")
        pane = stage.app.screen.query_one(TrendPane)
        found = []
        for _ in range(3):
            assert pane.trend is not None
            found.append((pane.trend.series.kind, pane.trend.series.name))
            await stage.press("j")
        assert found == [
            (SeriesKind.QUEUE, "cq-prod"),
            (SeriesKind.QUEUE, "cq-prod"),
            (SeriesKind.QUEUE, "cq-research"),
        ]
        assert "20 of 24 quota" in stage.text


async def test_the_preemptions_of_a_window_are_listed_and_the_totals_name_the_window() -> None:
    async with staged(with_samples(), (160, 50)) as stage:
        await stage.press("6")
        counts = stage.app.screen.query_one("#counts", TextPane)
        assert counts.text.splitlines()[1] == "  40 in the last 24 h, since Mon 5 Jan 08:34:20"
        assert "LISTED: LAST 24 H" in counts.text
        assert stage.line(" Last 24 h").endswith("2 preemptions, 3.0 GPU-h lost, $6.63")
        await stage.press("minus")
        assert "LISTED: LAST HOUR" in counts.text
        assert stage.line(" Last hour").endswith("1 preemption, 2.9 GPU-h lost, $6.41")
        assert "dev/notebook-2" not in stage.text


async def test_without_a_history_there_are_no_trends_and_minus_means_the_last_view() -> None:
    async with staged(recorded(org_cohort(), history())) as stage:
        await stage.press("2", "1")
        assert not stage.app.screen.query_one(TrendPane).display
        await stage.press("minus")
        assert stage.app.view == "queues"


# Charts


def test_a_chart_draws_areas_lines_and_dots_over_a_scale_and_an_axis() -> None:
    curves = [
        ChartCurve(label="in use", role="own", values=(0.0, 1.0, 2.0, None), newest="2"),
        ChartCurve(label="pending", role="pending", values=(0.2, 0.2, 0.2, 0.2), style=CurveStyle.DOTS),
        ChartCurve(label="quota", role="strong", values=(2.0, 2.0, 2.0, 2.0), style=CurveStyle.LINE),
    ]
    drawn = chart(curves, lambda columns: (("-" * columns, ""),), 6, 4)
    assert [plain(line) for line in drawn] == [
        "█ in use 2  · pending  ─ quota",
        "2┤⎺⎺⎺⎺",
        " │....",
        "0┼----",
    ]
    assert [plain(line) for line in chart(curves, lambda columns: (), 6, 3)] == [plain(drawn[0])]


@given(st.floats(0.001, 1e9))
def test_a_scale_ends_at_a_round_number_that_is_enough(value: float) -> None:
    assert value <= round_up(value) * (1 + 1e-9) <= 2 * value * (1 + 1e-6)


def test_an_axis_has_the_times_of_its_ends() -> None:
    assert plain(time_axis(0, HOUR, 30)) == "00:00────────00:30───────01:00"
    assert plain(time_axis(0, 7 * DAY, 40)).startswith(" 1 Jan 00:00─")
