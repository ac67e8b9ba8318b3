"""The totals of the last hour are those of the history, however much happened, and name their window."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from gpuconsole.insight.overview import BINS, hour_of
from gpuconsole.model.clock import HOUR, MINUTE, SECOND
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.snapshot import KEPT
from gpuconsole.services.console import Console
from gpuconsole.services.status import ConsoleMode, ConsoleStatus
from gpuconsole.store import recorder as history
from gpuconsole.store.recorder import Recorder
from gpuconsole.ui.screens.dashboard import window
from tests.store.test_recorder import recorder_at
from tests.support.console_clusters import NOW
from tests.support.console_stage import staged
from tests.support.live_console import FakeCluster, live
from tests.support.recorded_backend import RecordedBackend


def line(ago: int, what: HistoryEventKind, **fields: object) -> HistoryEvent:
    return HistoryEvent(time=NOW - ago, what=what, workload="team/job", **fields)  # type: ignore[arg-type]


def busy_hour() -> list[HistoryEvent]:
    """704 admissions and 367 preemptions in the last hour, others before it, and much besides."""
    lines = [line(HOUR + n * SECOND, HistoryEventKind.ADMITTED) for n in range(50)]
    lines += [line(n * 5 * SECOND, HistoryEventKind.ADMITTED) for n in range(704)]
    lines += [
        line(n * 9 * SECOND, HistoryEventKind.PREEMPTED, by="team/other", lost_gpu_seconds=60, cost=0.1)
        for n in range(367)
    ]
    lines += [line(n * 9 * SECOND, HistoryEventKind.EVICTED, lost_gpu_seconds=60, cost=0.1) for n in range(367)]
    lines += [line(n * SECOND, HistoryEventKind.PENDING) for n in range(2_000)]
    lines += [
        line(MINUTE, HistoryEventKind.EVICTED, lost_unknown=True),
        line(MINUTE, HistoryEventKind.FAILED, lost_gpu_seconds=36),
    ]
    return sorted(lines, key=lambda one: one.time)


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return recorder_at(tmp_path / "history.db")


@pytest.mark.parametrize("part", [0.0, 0.3, 0.9, 1.0], ids="{} written".format)
def test_the_history_counts_as_its_lines_do_whether_they_are_written_or_wait(recorder: Recorder, part: float) -> None:
    lines = busy_hour()
    cut = int(part * len(lines))
    recorder.record(lines[:cut])
    recorder.flush()
    recorder.record(lines[cut:])
    found, want = history.last_hour(recorder, NOW), hour_of(lines, NOW)
    assert (found.admitted, found.preempted, len(found.admitted_bins)) == (704, 367, BINS)
    assert (found.losses, found.unknown, found.unpriced, found.since) == (369, 1, 2, NOW - HOUR)
    assert (found.admitted_bins, found.preempted_bins) == (want.admitted_bins, want.preempted_bins)
    assert found.lost_gpu_hours == pytest.approx(want.lost_gpu_hours)
    assert found.cost == pytest.approx(want.cost)
    assert history.preemption_count(recorder) == 367
    recorder.close()


def test_another_session_does_not_count(tmp_path: Path) -> None:
    first = recorder_at(tmp_path / "history.db")
    first.record(busy_hour())
    first.close()
    second = recorder_at(tmp_path / "history.db")
    assert history.last_hour(second, NOW) == hour_of([], NOW)
    assert history.preemption_count(second) == 0
    second.close()


class BusyCluster(FakeCluster):
    """A live cluster that tells a busy hour."""

    def __init__(self, lines: Sequence[HistoryEvent]) -> None:
        super().__init__()
        self._events += lines


async def test_the_dashboard_and_the_preemptions_screen_say_the_same(recorder: Recorder) -> None:
    async with staged(live(BusyCluster(busy_hour()), recorder=recorder), (160, 50)) as stage:
        assert "Last hour" in stage.text
        assert "admitted   704" in stage.text
        assert "preempted  367" in stage.text
        assert "≥" not in stage.text
        await stage.press("6")
        assert "367 in the last hour" in stage.text
        assert "367 in this session" in stage.text


async def test_without_a_history_the_window_is_what_is_at_hand() -> None:
    lines = busy_hour()
    async with staged(live(BusyCluster(lines), history="history.db: it is a directory"), (160, 50)) as stage:
        kept = lines[-KEPT:]
        since = f"Since {window(stage.app.cluster.last_hour()).removeprefix('Since ')}"
        assert stage.app.cluster.last_hour().since == kept[0].time
        assert since in stage.text
        assert "Last hour" not in stage.text
        await stage.press("6")
        assert f"{since.lower()}" in stage.text


def test_a_simulation_that_was_saved_knows_the_end_of_its_past_only(recorder: Recorder) -> None:
    lines = [line(KEPT * SECOND - n * SECOND, HistoryEventKind.ADMITTED) for n in range(KEPT)]
    backend = RecordedBackend(lines, speed=1.0)
    console = Console(backend, about=ConsoleStatus(mode=ConsoleMode.REPLAY), recorder=recorder)
    console.tick(2 * KEPT)
    found = console.last_hour()
    assert (found.since, found.admitted, window(found)[:6]) == (lines[0].time, KEPT, "Since ")
    console.stop()


async def test_lost_work_on_the_cost_screen_names_its_window(recorder: Recorder) -> None:
    async with staged(live(BusyCluster(busy_hour()), recorder=recorder), (160, 50)) as stage:
        await stage.press("9")
        assert stage.line("of lost work").rstrip().endswith("in this session")
