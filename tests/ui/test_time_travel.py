"""The time line shows the whole console at an earlier time, and escape leads back to the present."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuconsole.cli.options import OpenRequest
from gpuconsole.cli.run import _simulated
from gpuconsole.config import Config
from gpuconsole.insight.series import QueueSample, SeriesKind
from gpuconsole.model.clock import DAY, HOUR, MINUTE, Time, next_multiple
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.store.recorder import Opening, Recorder
from gpuconsole.ui import format as fmt
from gpuconsole.ui.actions.global_actions import TIME_TRAVEL
from gpuconsole.ui.paint import plain
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.screens.time_travel import NO_HISTORY
from gpuconsole.ui.screens.views import VIEWS
from gpuconsole.ui.widgets.time_line import TimeLine, TimeLineView, time_lines
from gpuconsole.ui.widgets.trends import WHOLE_CLUSTER, Trend, TrendWindow
from tests.support.console_clusters import org_cohort
from tests.support.console_clusters import recorded as unrecorded
from tests.support.console_stage import SIZES, Stage, staged
from tests.support.recorded_histories import RecordedConsole

PREEMPTED, NODE_DOWN = HistoryEventKind.PREEMPTED, HistoryEventKind.NODE_DOWN


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[RecordedConsole]:
    found = RecordedConsole(tmp_path / "history.db", minutes=75)
    yield found
    found.console.stop()


def shown(stage: Stage) -> Time:
    front = stage.app.front
    assert front is not None
    assert front.snapshot is stage.app.cluster.snapshot
    assert fmt.date_and_clock(front.snapshot.time) in stage.lines[0]
    return front.snapshot.time


def said(stage: Stage) -> list[str]:
    return [toast.message for toast in stage.app._notifications]


async def comes(stage: Stage, words: str) -> bool:
    """Whether these words appear soon: what is computed waits until no keys are pressed."""
    for _ in range(100):
        if stage.line(words):
            return True
        await stage.wait(0.05)
    return False


async def test_keys_move_by_minutes_and_hours_and_escape_returns_to_the_present(recorded: RecordedConsole) -> None:
    present = recorded.console.snapshot.time
    async with staged(recorded.console) as stage:
        await stage.press("ctrl+t")
        assert (shown(stage), stage.app.cluster.is_travelling) == (present, False)
        assert stage.line(" events")
        times = []
        for key in ("left", "left", "right", "shift+left", "shift+right"):
            await stage.press(key)
            times.append((present - shown(stage)) // MINUTE)
        assert times == [1, 2, 1, 61, 1]
        assert " PAST " in stage.lines[0]
        assert "1m00s ago" in stage.lines[0]
        await stage.press("right")
        assert (shown(stage), stage.app.cluster.is_travelling) == (present, False)
        await stage.press("left", "escape")
        assert (shown(stage), stage.app.cluster.is_travelling, stage.line(" events")) == (present, False, "")
        assert " PAST " not in stage.lines[0]


async def test_a_step_back_from_a_fast_simulation_leads_to_the_newest_recorded_time(recorded: RecordedConsole) -> None:
    console, last = recorded.console, recorded.snapshots[-1].time
    while console.newest.time < last + 10 * MINUTE:
        # A recorder writes once a second, in which a fast simulation passes many minutes.
        console.tick(0.25)
    async with staged(console) as stage:
        await stage.press("ctrl+t", "left")
        assert (shown(stage), console.is_travelling) == (last, True)
        await stage.press("left")
        assert shown(stage) == last - MINUTE
        await stage.press("right", "right")
        assert (shown(stage), console.is_travelling) == (console.newest.time, False)
        await stage.press("{")
        assert shown(stage) <= last
        assert console.is_travelling


async def test_before_the_recording_its_first_state_is_shown(recorded: RecordedConsole) -> None:
    async with staged(recorded.console) as stage:
        await stage.press("ctrl+t", "shift+left", "shift+left", "shift+left")
        assert stage.app.cluster.time_travel is not None
        assert shown(stage) == stage.app.cluster.time_travel.recording().first


@pytest.mark.parametrize("view", list(VIEWS))
@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_each_screen_shows_the_earlier_time(
    recorded: RecordedConsole, view: str, size: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    then = recorded.console.snapshot.time - HOUR
    async with staged(recorded.console, size) as stage:
        await stage.press("ctrl+t", "shift+left")
        stage.app.go(view)
        await stage.settle()
        assert shown(stage) == then
        keys: dict[str, list[str]] = {}
        front = stage.app.front
        assert front is not None
        for action in front.actions.offered():
            for key in action.keys:
                keys.setdefault(key, []).append(action.id)
        assert {key: ids for key, ids in keys.items() if len(ids) > 1} == {}
        await stage.press("escape")
        assert stage.app.cluster.is_travelling is False
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_reports_are_computed_for_the_shown_time(recorded: RecordedConsole) -> None:
    then = recorded.console.snapshot.time - HOUR
    async with staged(recorded.console) as stage:
        await stage.press("ctrl+t", "shift+left", "b")
        assert await comes(stage, f"as of {fmt.clock(then)}")
        await stage.press("right")
        assert await comes(stage, f"as of {fmt.clock(then + MINUTE)}")
        await stage.press("escape")
        assert await comes(stage, f"as of {fmt.clock(then + HOUR)}")


async def test_the_present_goes_on_unseen(recorded: RecordedConsole) -> None:
    async with staged(recorded.console) as stage:
        await stage.press("ctrl+t", "left")
        before = shown(stage)
        await stage.tick(times=3)
        assert shown(stage) == before
        await stage.press("escape")
        assert shown(stage) == recorded.console.newest.time > before + MINUTE


async def test_changes_are_refused_with_the_reason(recorded: RecordedConsole) -> None:
    async with staged(recorded.console) as stage:
        await stage.press("4", "ctrl+t", "left", "c")
        assert said(stage)[-1].endswith("an earlier time is shown; Esc returns to the present")
        await stage.press("escape")
        node: Snapshot = recorded.console.newest
        assert not any(one.unschedulable for one in node.nodes.all())


async def test_keys_go_to_the_events_before_and_after(recorded: RecordedConsole) -> None:
    admitted = sorted({line.time for line in recorded.history if line.what is HistoryEventKind.ADMITTED})
    async with staged(recorded.console) as stage:
        await stage.press("ctrl+t", "{")
        assert shown(stage) == admitted[-1]
        await stage.press("{")
        assert shown(stage) == admitted[-2]
        await stage.press("}")
        assert shown(stage) == admitted[-1]
        await stage.press("}")
        assert said(stage)[-1] == "No later admission"
        await stage.press("ctrl+left")
        assert said(stage)[-1] == "No earlier node failure"


async def test_the_recording_is_played_until_the_present(
    recorded: RecordedConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuconsole.ui.screens.time_travel.PLAY_INTERVAL", 0.01)
    async with staged(recorded.console) as stage:
        await stage.press("ctrl+t", "left", "left", "left")
        await stage.press("full_stop")
        for _ in range(50):
            if not stage.app.cluster.is_travelling:
                break
            await stage.wait(0.05)
        assert not stage.app.cluster.is_travelling
        assert shown(stage) == recorded.console.newest.time
        assert stage.line(" events")


async def test_a_time_can_be_typed(recorded: RecordedConsole) -> None:
    present = recorded.console.snapshot.time
    async with staged(recorded.console) as stage:
        await stage.press("colon")
        await stage.write("at -30m")
        await stage.press("enter")
        assert shown(stage) == present - 30 * MINUTE
        await stage.press("colon")
        await stage.write("at noon")
        await stage.press("enter")
        assert "TIME 'noon': write it as" in said(stage)[-1]
        assert shown(stage) == present - 30 * MINUTE


async def test_escape_closes_the_filter_before_the_time_line(recorded: RecordedConsole) -> None:
    async with staged(recorded.console) as stage:
        await stage.press("3", "ctrl+t", "left", "slash")
        await stage.write("x")
        await stage.press("escape")
        assert stage.app.cluster.is_travelling
        await stage.press("escape")
        assert not stage.app.cluster.is_travelling


async def test_without_a_history_the_reason_is_said() -> None:
    async with staged(unrecorded(org_cohort())) as stage:
        await stage.press("ctrl+t")
        assert said(stage)[-1] == NO_HISTORY
        assert isinstance(stage.app.screen, ConsoleScreen)
        assert not {action.id for action in stage.app.screen.actions.offered()} & {action.id for action in TIME_TRAVEL}
        assert not stage.app.screen.query_one(TimeLine).display


async def test_a_history_that_another_process_records_is_named(tmp_path: Path) -> None:
    other = Recorder(tmp_path / "history.db", Opening(version="1", mode="SIM", source="test"), wall=lambda: 0)
    console = _simulated(OpenRequest(files=("org-cohort",)), Config(state_dir=str(tmp_path), worker=False))
    async with staged(console) as stage:
        await stage.press("ctrl+t")
        assert said(stage)[-1] == f"{NO_HISTORY}: {console.status.history}"
        assert "records to this file" in console.status.history
    other.close()


START = 1_767_600_000_000_000


def test_the_time_line_has_curves_marks_and_a_cursor() -> None:
    window = TrendWindow("", "", HOUR, MINUTE)
    samples = tuple(
        (
            START + minute * MINUTE,
            QueueSample(
                kind=SeriesKind.CLUSTER,
                name="",
                nominal=8.0,
                used=minute / 7.5,
                borrowed=0.0,
                lent=0.0,
                pending=1,
                pending_gpus=4.0 if minute < 30 else 0.0,
            ),
        )
        for minute in range(60)
    )
    trend = Trend(series=WHOLE_CLUSTER, window=window, end=START + HOUR, samples=samples)
    marks = ((START + 12 * MINUTE, PREEMPTED), (START + 13 * MINUTE, NODE_DOWN), (START + 45 * MINUTE, PREEMPTED))
    view = TimeLineView(shown=START + 30 * MINUTE, trend=trend, marks=marks)
    assert [plain(line) for line in time_lines(view, 57)] == [
        " GPUs     ▁▁▁▁▂▂▃▃▃▄▄▅▅▅▆▆▇▇▇█  4 of 8 quota",
        " pending  ██████████▁▁▁▁▁▁▁▁▁▁  0 GPUs, 1 workload",
        " events   ····⚠·····▲····✖····  08:00 to 09:00 UTC",
    ]
    present = TimeLineView(shown=None, trend=trend, marks=marks, is_playing=False)
    assert plain(time_lines(present, 57)[2]) == " events   ····⚠··········✖···▲  08:00 to 09:00 UTC"
    midnight = TimeLineView(shown=None, trend=replace(trend, end=next_multiple(START, DAY) + 20 * MINUTE, samples=()))
    assert plain(time_lines(midnight, 57)[2]).endswith("  1h00m to 6 Jan 00:20 UTC")
