"""What is recorded can be asked for, at once and after a restart."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuconsole.errors import HistoryError
from gpuconsole.insight.preemption.history import LostWork, lost_by, rows
from gpuconsole.model.events import (
    CandidateVerdict,
    ConsideredCandidate,
    HistoryEvent,
    HistoryEventKind,
    KueueEvent,
    PreemptionTrace,
)
from gpuconsole.store import queries
from gpuconsole.store import recorder as history
from gpuconsole.store.recorder import Opening, Recorder
from gpuconsole.store.schema import open_for_reading, open_for_writing

NEVER = 1e6
"""An interval at which nothing is written but by `flush`."""

SUBMITTED = HistoryEvent(
    time=1, what=HistoryEventKind.SUBMITTED, workload="research/rlhf", queue="cq-research", gpus=6, priority=500
)
ADMITTED = HistoryEvent(
    time=2, what=HistoryEventKind.ADMITTED, workload="research/rlhf", queue="cq-research", gpus=6, borrowed=4
)
OTHER = HistoryEvent(
    time=3, what=HistoryEventKind.SUBMITTED, workload="prod/serve-2", queue="cq-prod", gpus=8, priority=10_000
)
PREEMPTED = HistoryEvent(
    time=4,
    what=HistoryEventKind.PREEMPTED,
    workload="research/rlhf",
    queue="cq-research",
    by="prod/serve-2",
    by_queue="cq-prod",
    reason="InCohortReclamation",
    message="Preempted to accommodate a workload",
    flavor="a100-80gb",
    gpus=6,
    priority=500,
    by_priority=10_000,
    lost_gpu_seconds=5_760.5,
    cost=3.53,
    waited=9,
    told=(
        KueueEvent("research/rlhf", "EvictedDueToPreempted", "Preempted to accommodate a workload"),
        KueueEvent("prod/serve-2", "Pending", "Waits for 1 workload(s)", warning=True),
    ),
    choice=PreemptionTrace(
        share="166.666667",
        considered=(
            ConsideredCandidate("research/embed", "cq-research", CandidateVerdict.PUT_BACK, 400),
            ConsideredCandidate("research/rlhf", "cq-research", CandidateVerdict.CHOSEN, 500),
        ),
        left_out=3,
    ),
)


def recorder_at(path: Path, **options: int) -> Recorder:
    return Recorder(path, Opening(version="0.1.0"), wall=lambda: 1_000_000, interval=NEVER, **options)


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return recorder_at(tmp_path / "history.db")


def test_every_field_of_a_line_comes_back_from_the_file(recorder: Recorder) -> None:
    recorder.record([PREEMPTED])
    recorder.close()
    db = open_for_reading(recorder.path)
    assert queries.preemptions(db, recorder.session, 10) == {0: PREEMPTED}
    db.close()


def test_a_line_can_be_asked_for_before_it_is_written(recorder: Recorder) -> None:
    recorder.record([SUBMITTED, ADMITTED])
    recorder.flush()
    recorder.record([OTHER, PREEMPTED])
    assert history.of_workload(recorder, "research/rlhf") == (SUBMITTED, ADMITTED, PREEMPTED)
    assert history.of_workload(recorder, "prod/serve-2") == (OTHER, PREEMPTED)
    assert history.preemptions(recorder, 10) == (PREEMPTED,)
    recorder.flush()
    assert history.of_workload(recorder, "research/rlhf") == (SUBMITTED, ADMITTED, PREEMPTED)
    recorder.close()


def line(time: int, what: HistoryEventKind, **fields: str) -> HistoryEvent:
    return HistoryEvent(time=time, what=what, **fields)  # type: ignore[arg-type]


TOLD = [
    line(0, HistoryEventKind.ADMITTED, workload="a/early"),
    line(1, HistoryEventKind.PREEMPTED, workload="a/victim-1", by="b/first"),
    line(2, HistoryEventKind.EVICTED, workload="a/victim-1", reason="Preempted"),
    line(3, HistoryEventKind.ADMITTED, workload="b/first"),
    line(4, HistoryEventKind.PREEMPTED, workload="a/victim-2", by="b/second"),
    line(5, HistoryEventKind.PREEMPTED, pod="dev/pod", by="infra/pod"),
    line(6, HistoryEventKind.POD_EVICTED, pod="dev/lost", reason="NodeLost"),
    line(7, HistoryEventKind.ADMITTED, workload="c/bystander"),
    line(8, HistoryEventKind.REQUEUED, workload="a/victim-2"),
    line(9, HistoryEventKind.POD_BOUND, pod="infra/pod"),
    line(10, HistoryEventKind.STARTED, workload="b/second"),
    line(11, HistoryEventKind.SUBMITTED, workload="b/second"),
]


@pytest.mark.parametrize("flushed", range(len(TOLD) + 1))
def test_preemptions_come_with_what_became_of_victims_and_preemptors(recorder: Recorder, flushed: int) -> None:
    recorder.record(TOLD[:flushed])
    recorder.flush()
    recorder.record(TOLD[flushed:])
    assert history.preemptions(recorder, 2)[0].time == 4, "the second newest preemption is the first line"
    assert rows(history.preemptions(recorder, 3)) == rows(TOLD)
    recorder.close()


def test_stored_preemptions_leave_out_what_does_not_concern_them(recorder: Recorder) -> None:
    recorder.record(TOLD)
    recorder.flush()
    assert [found.time for found in history.preemptions(recorder, 3)] == [1, 2, 3, 4, 5, 8, 9, 10]
    assert [found.time for found in history.preemptions(recorder, 1)] == [5, 9]
    recorder.close()


def test_another_session_has_its_own_history(tmp_path: Path) -> None:
    first = recorder_at(tmp_path / "history.db")
    first.record([SUBMITTED])
    first.close()
    second = recorder_at(tmp_path / "history.db")
    assert (second.recovered, second.session != first.session) == ([], True)
    assert history.of_workload(second, "research/rlhf") == ()
    second.close()


def test_a_session_whose_process_lives_is_let_be(tmp_path: Path) -> None:
    left = recorder_at(tmp_path / "history.db")
    left.record([SUBMITTED])
    left.flush()
    with sqlite3.connect(left.path) as db:
        db.execute("update sessions set pid = ?", (os.getppid(),))
    db.close()
    beside = recorder_at(tmp_path / "history.db")
    assert beside.recovered == []
    beside.close()
    left.close()


def test_a_producer_that_finds_no_room_loses_lines_and_they_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuconsole.store.recorder.PATIENCE", 0.01)
    recorder = recorder_at(tmp_path / "history.db", capacity=3)
    recorder.record([SUBMITTED, ADMITTED])
    recorder.record([OTHER, PREEMPTED])
    assert (list(recorder.unflushed().values()), recorder.lost) == ([SUBMITTED, ADMITTED, OTHER], 1)
    recorder.close()


def test_a_failed_write_is_said_and_made_good_later(recorder: Recorder) -> None:
    blocker = sqlite3.connect(recorder.path, isolation_level=None)
    recorder._db.execute("pragma busy_timeout = 1")
    blocker.execute("begin immediate")
    recorder.record([SUBMITTED])
    recorder.flush()
    assert recorder.failed == f"{recorder.path}: database is locked"
    blocker.execute("rollback")
    blocker.close()
    recorder.flush()
    assert (recorder.failed, recorder.unflushed()) == ("", {})
    assert history.of_workload(recorder, "research/rlhf") == (SUBMITTED,)
    recorder.close()


def test_the_audit_is_kept_in_order_over_flushes(recorder: Recorder) -> None:
    recorder.audit(5, '{"type":"cordon"}', "sent", "")
    recorder.flush()
    recorder.audit(6, "node-1", "refused", "there is no node \x1b[31mnode-1")
    recorder.flush()
    db = open_for_reading(recorder.path)
    assert queries.audit(db, recorder.session) == [
        ('{"type":"cordon"}', "sent", ""),
        ("node-1", "refused", "there is no node \ufffd[31mnode-1"),
    ]
    db.close()
    recorder.close()


def test_texts_that_others_wrote_into_the_file_are_cleaned(recorder: Recorder) -> None:
    recorder.record([SUBMITTED])
    recorder.flush()
    with sqlite3.connect(recorder.path) as db:
        db.execute("update events set message = ?", ("\x1b]0;pwned\x07",))
    db.close()
    [found] = history.of_workload(recorder, "research/rlhf")
    assert found.message == "\ufffd]0;pwned\ufffd"
    recorder.close()


def test_a_damaged_line_is_an_error_that_says_which(recorder: Recorder) -> None:
    recorder.record([SUBMITTED])
    recorder.flush()
    with sqlite3.connect(recorder.path) as db:
        db.execute("update events set what = 'danced'")
    db.close()
    with pytest.raises(HistoryError, match="line 0 of the history is damaged: Invalid enum value 'danced'"):
        history.of_workload(recorder, "research/rlhf")
    recorder.close()


def test_a_file_that_is_no_database_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    path.write_text("not a database, but long enough to look like one" * 100)
    with pytest.raises(HistoryError, match="file is not a database; move the file, or set GPUCONSOLE_STATE_DIR"):
        recorder_at(path)


def test_the_table_of_events_has_a_column_for_every_field_of_a_line(tmp_path: Path) -> None:
    db = open_for_writing(tmp_path / "history.db")
    columns = [row[1] for row in db.execute("pragma table_info(events)")]
    assert sorted(columns) == sorted(["session", "n", *HistoryEvent.__struct_fields__])
    db.close()


def test_opening_twice_migrates_once(tmp_path: Path) -> None:
    open_for_writing(tmp_path / "history.db").close()
    db = open_for_writing(tmp_path / "history.db")
    applied = db.execute("select name from _sqlite_migrations").fetchall()
    names = (
        "announcements change_log choices costs counted forecasts foretold gpu_samples history losses lost_unknown"
        " races recordings series units unknown_losses unseen"
    )
    assert sorted(applied) == [(name,) for name in names.split()]
    db.close()


def test_lines_from_before_announcements_and_choices_were_kept_can_still_be_read(recorder: Recorder) -> None:
    recorder.record([PREEMPTED])
    recorder.close()
    with sqlite3.connect(recorder.path) as db:
        db.execute("alter table events drop column told")
        db.execute("alter table events drop column choice")
        db.execute("delete from _sqlite_migrations where name in ('announcements', 'choices')")
    db.close()
    open_for_writing(recorder.path).close()
    with closing(open_for_reading(recorder.path)) as db:
        assert queries.preemptions(db, recorder.session, 10) == {0: replace(PREEMPTED, told=(), choice=None)}


def test_damaged_announcements_are_an_error_that_says_which(recorder: Recorder) -> None:
    recorder.record([SUBMITTED])
    recorder.flush()
    with sqlite3.connect(recorder.path) as db:
        db.execute("update events set told = '[{]'")
    db.close()
    with pytest.raises(HistoryError, match="line 0 of the history is damaged: JSON is malformed"):
        history.of_workload(recorder, "research/rlhf")
    recorder.close()


def test_lost_work_is_summed_up_over_what_is_stored_and_what_waits(recorder: Recorder) -> None:
    evicted = replace(PREEMPTED, what=HistoryEventKind.EVICTED, lost_gpu_seconds=3600.0, cost=2.0)
    recorder.record([PREEMPTED, evicted])
    recorder.flush()
    recorder.record([evicted, replace(evicted, workload="", pod="prod/p-0")])
    assert history.losses(recorder) == {
        (PREEMPTED.queue, PREEMPTED.workload): LostWork(2.0, 4.0, 2),
        (PREEMPTED.queue, "prod/p-0"): LostWork(1.0, 2.0, 1),
    }
    recorder.flush()
    assert history.losses(recorder)[PREEMPTED.queue, PREEMPTED.workload] == LostWork(2.0, 4.0, 2)
    recorder.close()


def test_lost_work_that_is_unknown_or_has_no_price_is_counted_as_that(recorder: Recorder) -> None:
    evicted = replace(PREEMPTED, what=HistoryEventKind.EVICTED, lost_gpu_seconds=3600.0, cost=2.0)
    unknown = replace(evicted, lost_gpu_seconds=0.0, cost=0.0, lost_unknown=True)
    lines = [PREEMPTED, evicted, unknown, replace(evicted, cost=0.0), replace(unknown, workload="prod/other")]
    recorder.record(lines)
    waiting = history.losses(recorder)
    recorder.flush()
    assert (
        history.losses(recorder)
        == waiting
        == lost_by(lines)
        == {
            (PREEMPTED.queue, PREEMPTED.workload): LostWork(2.0, 2.0, 3, 1, 2),
            (PREEMPTED.queue, "prod/other"): LostWork(0.0, 0.0, 1, 1, 1),
        }
    )
    recorder.close()


def test_a_disk_that_fills_up_as_the_session_is_closed_does_not_stop_the_end_and_the_next_start_closes_it(
    tmp_path: Path,
) -> None:
    recorder = recorder_at(tmp_path / "history.db")
    recorder.record([SUBMITTED])
    recorder._db.execute(
        "create trigger full before update of ended on sessions"
        " begin select raise(fail, 'database or disk is full'); end"
    )
    recorder.close()
    with closing(sqlite3.connect(recorder.path)) as db, db:
        assert db.execute("select ended from sessions").fetchall() == [(None,)]
        db.execute("drop trigger full")
        # The process of the session is this one, which lives.
        db.execute("update sessions set pid = 999999999")
    again = recorder_at(recorder.path)
    assert [one.lines for one in again.recovered] == [1]
    again.close()
