"""The facade: what the screens see of the world behind them, by hand-driven ticks."""

from contextlib import closing
from pathlib import Path

import pytest

from gpuconsole.errors import NotSupportedError, ReadOnlyError
from gpuconsole.model.clock import HOUR, SECOND
from gpuconsole.model.commands import Cordon
from gpuconsole.model.snapshot import EMPTY, Snapshot, Visibility, VisibilityGap
from gpuconsole.services.console import Console
from gpuconsole.services.status import ConsoleMode, ConsoleStatus
from gpuconsole.store.recorder import Opening, Recorder, newest
from gpuconsole.store.schema import open_for_reading
from tests.support.recorded_backend import RecordedBackend
from tests.support.recorded_events import ADMITTED, PAST, PREEMPTED, START, SUBMITTED
from tests.support.recorded_histories import audit_log

ABOUT = ConsoleStatus(mode=ConsoleMode.REPLAY, source="past.json", policy="binpack")


def recorder_at(path: Path) -> Recorder:
    return Recorder(path, Opening(version="test"), wall=lambda: 0, interval=1e6)


def test_before_the_first_tick_it_is_loading_and_empty() -> None:
    console = Console(RecordedBackend(PAST, speed=10), about=ABOUT)
    assert console.snapshot is EMPTY
    assert console.status == ConsoleStatus(
        mode=ConsoleMode.REPLAY, source="past.json", policy="binpack", speed=10, reached=0, loading=True, worker="off"
    )


def test_after_a_tick_the_status_tells_time_and_speed() -> None:
    console = Console(RecordedBackend(PAST, speed=10), about=ABOUT)
    console.tick(1)
    status = console.status
    assert (status.loading, status.time, status.speed, status.reached) == (False, START + 10 * SECOND, 10, 10)


def test_subscribers_get_every_snapshot_until_they_leave_and_one_that_fails_harms_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    console, seen = Console(RecordedBackend(PAST, speed=10)), list[Snapshot]()

    def fails(snapshot: Snapshot) -> None:
        raise RuntimeError("no screen")

    console.subscribe(fails)
    leave = console.subscribe(seen.append)
    console.tick(1)
    leave()
    leave()
    console.tick(1)
    assert len(seen) == 1
    assert console.status.stalled == ""
    assert [record.message for record in caplog.records] == ["A subscriber failed"], "said once, not 25 times a second"


def test_the_time_can_be_paused_stepped_and_hurried() -> None:
    console = Console(RecordedBackend(PAST, speed=10))
    console.tick(0)
    console.pause()
    console.tick(100)
    console.step()
    console.tick(100)
    assert (console.status.paused, console.snapshot.time) == (True, START + 10 * SECOND)
    console.resume()
    console.set_speed(20)
    console.tick(1)
    assert (console.status.paused, console.snapshot.time) == (False, START + 30 * SECOND)


def test_a_read_only_console_refuses_and_says_that_it_is_one(tmp_path: Path) -> None:
    recorder = recorder_at(tmp_path / "history.db")
    console = Console(RecordedBackend(PAST), read_only=True, recorder=recorder)
    assert console.status.read_only
    with pytest.raises(ReadOnlyError):
        console.submit(Cordon("node-1", True))
    console.stop()
    db = open_for_reading(recorder.path)
    assert audit_log(db, recorder.session) == [('{"type":"cordon","node":"node-1","cordoned":true}', "read-only", "")]
    db.close()


class Half(RecordedBackend):
    """A cluster whose events may not be read."""

    seen = Visibility(gaps=(VisibilityGap(table="recent", resource="events", why="cannot list events"),))


def test_what_was_not_seen_is_kept_with_what_happened(tmp_path: Path) -> None:
    recorder = recorder_at(tmp_path / "history.db")
    console = Console(Half(PAST, speed=10), recorder=recorder)
    console.tick(6)
    console.stop()
    with closing(open_for_reading(recorder.path)) as db:
        kept = newest(db)
    assert kept is not None
    assert kept.unseen == ("cannot list events",)


@pytest.mark.parametrize("kept", [True, False], ids=["with a history", "without a history"])
def test_questions_about_the_past(tmp_path: Path, kept: bool) -> None:
    console = Console(RecordedBackend(PAST, speed=10), recorder=recorder_at(tmp_path / "history.db") if kept else None)
    console.tick(6)
    assert console.preemptions() == (PREEMPTED,)
    assert console.history("research/rlhf") == (SUBMITTED, ADMITTED, PREEMPTED)
    assert console.history("prod/serve") == (PREEMPTED,)
    assert console.history("nobody/nothing") == ()
    console.stop()


def test_a_recording_has_no_other_future() -> None:
    with pytest.raises(NotSupportedError, match="--snapshot FILE"):
        next(Console(RecordedBackend(PAST)).answers.looks([Cordon("node-1", True)], HOUR))
