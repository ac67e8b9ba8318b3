"""What is recorded can be asked for, at once and after a restart."""

import os
import random
import sqlite3
import zlib
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gpuconsole.errors import HistoryError
from gpuconsole.insight.overview import hour_of
from gpuconsole.insight.preemption.history import LostWork, lost_by, rows
from gpuconsole.model.clock import DAY
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
from gpuconsole.store.event_blocks import MERGED_AFTER
from gpuconsole.store.recorder import CAPACITY, Opening, Recorder
from gpuconsole.store.schema import HistoryInUseError, open_for_reading, open_for_writing
from tests.support.recorded_histories import audit_log, event_count

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


def recorder_at(path: Path, *, capacity: int = CAPACITY) -> Recorder:
    return Recorder(path, Opening(version="0.1.0"), wall=lambda: 1_000_000, interval=NEVER, capacity=capacity)


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
    left.close()
    with sqlite3.connect(left.path) as db:
        # A console of an earlier version, which does not know the lock.
        db.execute("update sessions set pid = ?, ended = null", (os.getppid(),))
    db.close()
    beside = recorder_at(tmp_path / "history.db")
    assert beside.recovered == []
    beside.close()


def test_a_second_recorder_of_a_file_is_refused_until_the_first_one_ends(tmp_path: Path) -> None:
    first = recorder_at(tmp_path / "history.db")
    first.record([SUBMITTED])
    with pytest.raises(HistoryInUseError) as refused:
        recorder_at(first.path)
    problem = f"process {os.getpid()} records to this file; end it, or record to another file (--history FILE)"
    assert str(refused.value) == f"{first.path}: {problem}"
    first.flush()
    assert history.of_workload(first, "research/rlhf") == (SUBMITTED,)
    first.close()
    second = recorder_at(first.path)
    second.close()
    assert [file.name for file in tmp_path.iterdir()] == ["history.db"]


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
    assert recorder.failed_writes == 1
    blocker.execute("rollback")
    blocker.close()
    recorder.flush()
    assert (recorder.failed, recorder.failed_writes, recorder.unflushed()) == ("", 1, {})
    assert history.of_workload(recorder, "research/rlhf") == (SUBMITTED,)
    recorder.close()


def test_the_audit_is_kept_in_order_over_flushes(recorder: Recorder) -> None:
    recorder.audit(5, '{"type":"cordon"}', "sent", "")
    recorder.flush()
    recorder.audit(6, "node-1", "refused", "there is no node \x1b[31mnode-1")
    recorder.flush()
    db = open_for_reading(recorder.path)
    assert audit_log(db, recorder.session) == [
        ('{"type":"cordon"}', "sent", ""),
        ("node-1", "refused", "there is no node \x1b[31mnode-1"),
    ]
    db.close()
    recorder.close()


def test_texts_that_others_wrote_into_the_file_are_cleaned(recorder: Recorder) -> None:
    recorder.record([PREEMPTED])
    recorder.flush()
    with sqlite3.connect(recorder.path) as db:
        db.execute(
            "update names set text = text || ? where text != 'chosen' and text != 'put-back'", ("\x1b]0;pwned\x07",)
        )
        number = db.execute("select id from names where text like 'research/rlhf%'").fetchone()[0]
        db.execute("update names set text = 'research/rlhf' where id = ?", (number,))
    db.close()
    [found] = history.of_workload(recorder, "research/rlhf")
    assert found.queue == "cq-research\ufffd]0;pwned\ufffd"
    assert found.message == "Preempted to accommodate a workload\ufffd]0;pwned\ufffd"
    assert "\\x1b" not in repr(found)
    recorder.close()


DAMAGES = {
    "no compressed data": b"",
    "cut off": zlib.compress(b"1234567890" * 10)[:-8],
    "no columns": zlib.compress(b"\xc0"),
    "no times": zlib.compress(msgspec.msgpack.encode({1: [0]})),
    "an unknown kind": zlib.compress(msgspec.msgpack.encode({0: [5], 1: [99], 2: [1]})),
    "columns that differ in length": zlib.compress(msgspec.msgpack.encode({0: [5], 1: [0, 0], 2: [1]})),
    "an invalid value": zlib.compress(msgspec.msgpack.encode({0: [5], 2: [1], 11: ["many"]})),
    "a message without its variables": zlib.compress(msgspec.msgpack.encode({0: [5], 2: [1], 8: [[9]]})),
    "an Event that is none": zlib.compress(msgspec.msgpack.encode({0: [5], 2: [1], 20: [[7]]})),
    "a choice that is none": zlib.compress(msgspec.msgpack.encode({0: [5], 2: [1], 21: [[1, 2]]})),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_event_is_an_error_that_says_which(recorder: Recorder, damage: str) -> None:
    recorder.record([replace(SUBMITTED, queue="")])
    recorder.flush()
    with sqlite3.connect(recorder.path) as db:
        db.execute("insert into names (id, hash, text, used, kept) values (9, 0, ?, 0, 0)", ("a \x02 b \x01",))
        db.execute("update event_blocks set data = ?", (DAMAGES[damage],))
    db.close()
    with pytest.raises(HistoryError, match="event 0 of session 1 in the history is damaged: "):
        history.of_workload(recorder, "research/rlhf")
    recorder.close()


def test_a_file_that_is_no_database_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    path.write_text("not a database, but long enough to look like one" * 100)
    with pytest.raises(HistoryError, match="file is not a database; move the file, or use another one"):
        recorder_at(path)


def test_every_kind_of_event_has_a_number_and_every_field_is_stored(recorder: Recorder) -> None:
    told = (KueueEvent("x/other", "Pending", "07 of 8", warning=True), KueueEvent("a/b", "", "", warning=False))
    full = HistoryEvent(
        time=7,
        what=HistoryEventKind.PENDING,
        workload="a/b",
        pod="a/b-0",
        queue="q",
        by="c/d",
        by_queue="q2",
        reason="r",
        message="c/d 007 a/b 8 6f9619ff-8b86-d011-b42d-00cf4fc964ff ٣",
        node="n",
        flavor="f",
        gpus=1,
        borrowed=2,
        priority=-3,
        by_priority=4,
        lost_gpu_seconds=0.25,
        cost=1e-9,
        lost_unknown=True,
        unit="MIG 1g.10gb instance",
        waited=5,
        told=told,
        choice=PreemptionTrace(differs=True, as_of=9),
        count=3,
        last_time=11,
    )
    assert {name for name in full.__struct_fields__ if getattr(full, name) == getattr(ADMITTED, name)} == set()
    events = [full, *(HistoryEvent(time=8, what=what, workload="a/b") for what in HistoryEventKind)]
    recorder.record(events)
    recorder.close()
    with closing(open_for_reading(recorder.path)) as db:
        assert list(queries.of_workload(db, recorder.session, "a/b").values()) == events


def test_opening_twice_migrates_once(tmp_path: Path) -> None:
    open_for_writing(tmp_path / "history.db").close()
    db = open_for_writing(tmp_path / "history.db")
    applied = db.execute("select name from _sqlite_migrations").fetchall()
    names = (
        "announcements change_log choices costs counted event_blocks forecasts foretold gpu_samples history losses"
        " lost_unknown races recordings series shadow units unknown_losses unseen"
    )
    assert sorted(applied) == [(name,) for name in names.split()]
    db.close()


REFUSED = HistoryEvent(
    time=10, what=HistoryEventKind.PENDING, workload="a/b", queue="q", reason="NoFit", message="6 more needed"
)


def pending(time: int, message: str = REFUSED.message, **fields: Any) -> HistoryEvent:
    return replace(REFUSED, time=time, message=message, **fields)


@pytest.mark.parametrize("flushes", [(), (1,), (2, 3), (1, 2, 3, 4, 5, 6, 7)])
def test_a_repeated_pending_is_one_event_with_a_count_and_the_last_time(
    recorder: Recorder, flushes: tuple[int, ...]
) -> None:
    lines = [
        pending(10),
        pending(11, "2 more needed"),
        pending(12),
        pending(12, workload="a/other"),
        pending(13, "2 more needed"),
        pending(14),
        HistoryEvent(time=15, what=HistoryEventKind.ADMITTED, workload="a/b"),
        pending(16),
    ]
    for place, one in enumerate(lines):
        recorder.record([one])
        if place in flushes:
            recorder.flush()
    expected = (
        pending(10, count=3, last_time=14),
        pending(11, "2 more needed", count=2, last_time=13),
        lines[6],
        pending(16),
    )
    assert history.of_workload(recorder, "a/b") == expected
    assert history.of_workload(recorder, "a/other") == (lines[3],)
    recorder.flush()
    assert history.of_workload(recorder, "a/b") == expected
    recorder.close()
    with closing(open_for_reading(recorder.path)) as db:
        assert tuple(queries.of_workload(db, recorder.session, "a/b").values()) == expected
        assert event_count(db, recorder.session) == 5


def test_an_event_that_differs_or_comes_a_day_later_is_no_repetition(recorder: Recorder) -> None:
    lines = [
        pending(10),
        pending(11, reason="Other"),
        pending(12, queue="q2"),
        pending(13, gpus=9),
        pending(14, priority=3),
        pending(11 + DAY),
        HistoryEvent(time=12 + DAY, what=HistoryEventKind.GANG_WAITING, workload="a/b"),
        HistoryEvent(time=12 + DAY, what=HistoryEventKind.GANG_WAITING, workload="a/b"),
    ]
    recorder.record(lines)
    assert history.of_workload(recorder, "a/b") == tuple(lines)
    recorder.close()


@pytest.mark.parametrize("scanned", [0, 300], ids=["by chains", "by scanning"])
def test_blocks_are_merged_and_every_question_has_the_same_answer_before_and_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scanned: int
) -> None:
    monkeypatch.setattr("gpuconsole.store.event_blocks.MOST_SCANNED", scanned)
    chance = random.Random(5)
    kinds = list(HistoryEventKind)
    names = [f"team/job-{number}" for number in range(40)]
    lines = [
        HistoryEvent(
            time=1000 + place + chance.randrange(50),
            what=(what := chance.choice(kinds)),
            workload=chance.choice(names) if what is not HistoryEventKind.POD_EVICTED else "",
            pod=chance.choice(names) if what in (HistoryEventKind.POD_EVICTED, HistoryEventKind.POD_BOUND) else "",
            by=chance.choice(names) if what is HistoryEventKind.PREEMPTED else "",
            message=f"{place} more needed",
            lost_gpu_seconds=900.0 * chance.randrange(100) if what is HistoryEventKind.EVICTED else 0.0,
        )
        for place in range(3000)
    ]
    recorder = recorder_at(tmp_path / "history.db")
    place, sizes = 0, []
    while place < len(lines):
        size = chance.choice([1, 2, 5, 700])
        recorder.record(lines[place : place + size])
        place += size
        recorder.flush()
        with closing(sqlite3.connect(recorder.path)) as db:
            sizes.append(db.execute("select count(*) from event_blocks").fetchone()[0])
        if place % 7 == 0:
            check_answers(recorder, lines[:place], names)
    check_answers(recorder, lines, names)
    assert max(sizes) <= 2 * MERGED_AFTER
    assert any(after < before for before, after in pairwise(sizes))
    recorder.close()


def check_answers(recorder: Recorder, lines: list[HistoryEvent], names: list[str]) -> None:
    with closing(open_for_reading(recorder.path)) as db:
        for name in names[:5]:
            found = queries.of_workload(db, recorder.session, name)
            assert found == {n: one for n, one in enumerate(lines) if name in (one.workload, one.by)}
        assert rows(list(queries.preemptions(db, recorder.session, 10**6).values())) == rows(lines)
        newest = queries.preemptions(db, recorder.session, 5)
        assert rows(list(newest.values())) == rows([one for n, one in enumerate(lines) if n >= min(newest, default=0)])
        assert queries.losses(db, recorder.session, 10**6) == lost_by(lines)
        assert queries.preemption_count(db, recorder.session, 10**6) == sum(
            one.what is HistoryEventKind.PREEMPTED for one in lines
        )
        now = lines[-1].time
        assert queries.last_hour(db, recorder.session, now, 10**6) == hour_of(lines, now)
        assert list(queries.events(db, recorder.recording, 0, 2**60)) == lines
        assert queries.marks(db, recorder.recording, [HistoryEventKind.NODE_DOWN], 1100, 2000) == sorted(
            (one.time, one.what) for one in lines if one.what is HistoryEventKind.NODE_DOWN and 1100 <= one.time < 2000
        )


def test_what_was_written_while_the_question_was_asked_is_not_counted_twice(recorder: Recorder) -> None:
    evicted = replace(PREEMPTED, what=HistoryEventKind.EVICTED, lost_gpu_seconds=3600.0, cost=2.0)
    recorder.record([PREEMPTED, evicted])
    recorder.flush()
    recorder.record([PREEMPTED, evicted])
    recorder.flush()
    with closing(open_for_reading(recorder.path)) as db:
        assert queries.losses(db, recorder.session, 2) == lost_by([evicted])
        assert queries.losses(db, recorder.session, 0) == {}
        assert queries.preemption_count(db, recorder.session, 2) == 1
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
