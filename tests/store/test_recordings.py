"""Costs, time series and the change log of a recording: what is added is returned, over sessions and failed writes."""

import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from gpuconsole.errors import HistoryError
from gpuconsole.insight.cost.allocation import CostHour, CostKind, CostOwner
from gpuconsole.insight.series import GpuSample, QueueSample, Samples, SeriesKind, hourly
from gpuconsole.model.change_log import ChangeBatch, Checkpoint
from gpuconsole.model.clock import HOUR, MINUTE, SECOND
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.store import queries, rows
from gpuconsole.store.recorder import Opening, Recorder
from gpuconsole.store.schema import open_for_reading

NEVER = 1e6
START = 490_000 * HOUR
JOB = CostOwner(kind=CostKind.WORKLOAD, workload="llm/pretrain", namespace="llm", team="llm", gpu_type="a100-80gb")
IDLE = CostOwner(kind=CostKind.IDLE, gpu_type="a100-80gb", capacity_type="spot", zone="eu-1a")


def opened(path: Path, *, mode: str = "LIVE", source: str = "prod") -> Recorder:
    opening = Opening(version="0.1.0", mode=mode, source=source)
    return Recorder(path, opening, wall=lambda: START, interval=NEVER)


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    recorder = opened(tmp_path / "history.db")
    yield recorder
    recorder.close()


@pytest.fixture
def db(recorder: Recorder) -> Iterator[sqlite3.Connection]:
    with closing(open_for_reading(recorder.path)) as db:
        yield db


def sample(minute: int, *, used: float = 8.0) -> Samples:
    return Samples(
        time=START + minute * MINUTE,
        span=MINUTE,
        queues=(
            QueueSample(kind=SeriesKind.QUEUE, name="research", nominal=16.0, used=used, wait_p50=2.5, admitted=minute),
            QueueSample(kind=SeriesKind.QUEUE, name="research", flavor="a100", nominal=16.0, used=used),
            QueueSample(kind=SeriesKind.COHORT, name="org", nominal=16.0, used=used, borrowed=0.5),
            QueueSample(kind=SeriesKind.QUEUE, name="batch", pending=3),
        ),
        gpus=(GpuSample(gpu_type="a100-80gb", total=16, allocated=used, idle=16 - used, unhealthy=0.0),),
        evictions={"Preempted": minute} if minute else {},
        cost_hourly=35.36,
    )


def test_events_that_a_later_session_reports_again_are_counted_once(tmp_path: Path) -> None:
    path, clock = tmp_path / "history.db", [START]
    kinds = (HistoryEventKind.ADMITTED, HistoryEventKind.PREEMPTED, HistoryEventKind.EVICTED)
    admitted, preempted, evicted = (
        HistoryEvent(time=START + minute * MINUTE, what=what, workload="llm/a", gpus=8, lost_unknown=minute == 2)
        for minute, what in enumerate(kinds)
    )
    missed = replace(preempted, time=START + 30 * MINUTE)
    again = replace(admitted, time=START + 70 * MINUTE)

    def record(*events: HistoryEvent) -> int:
        recorder = Recorder(
            path, Opening(version="1", mode="LIVE", source="prod"), wall=lambda: clock[0], interval=NEVER
        )
        recorder.record(events)
        recorder.close()
        return recorder.session

    record(admitted, preempted, evicted)
    clock[0] = START + HOUR
    # Kubernetes' Events have the times of their own, and say nothing about the lost work.
    reported = [replace(one, time=one.time + 2 * SECOND) for one in (admitted, preempted, evicted)]
    second = record(*reported, missed, again)
    with closing(open_for_reading(path)) as db:
        ends = START, START + 2 * HOUR
        assert list(queries.events(db, 1, *ends)) == [admitted, preempted, evicted, missed, again]
        assert queries.counted_events(db, 1, *ends) == [admitted, preempted, evicted, missed, again]
        assert queries.events_until(db, 1, ends[1], 3) == [evicted, missed, again]
        assert queries.marks(db, 1, [HistoryEventKind.PREEMPTED], *ends) == [
            (preempted.time, HistoryEventKind.PREEMPTED),
            (missed.time, HistoryEventKind.PREEMPTED),
        ]
        found = queries.of_workload(db, second, "llm/a")
        assert list(found.values()) == [*reported, missed, again], "a session keeps what it was told"


def test_costs_of_the_same_owner_and_hour_are_added_up(recorder: Recorder, db: sqlite3.Connection) -> None:
    recorder.add_costs([CostHour(owner=JOB, hour=START, gpu_seconds=60.0, used_usd=1.25)])
    recorder.add_costs([CostHour(owner=IDLE, hour=START, gpu_seconds=30.0, idle_usd=0.5, saved_usd=0.25)])
    recorder.flush()
    recorder.add_costs([CostHour(owner=JOB, hour=START, used_usd=-0.75, lost_usd=0.75, busy_gpu_seconds=9.5)])
    recorder.add_costs([CostHour(owner=JOB, hour=START + HOUR, system_usd=3.0, underutilized_usd=2.0)])
    recorder.flush()
    first = CostHour(owner=JOB, hour=START, gpu_seconds=60.0, used_usd=0.5, lost_usd=0.75, busy_gpu_seconds=9.5)
    idle = CostHour(owner=IDLE, hour=START, gpu_seconds=30.0, idle_usd=0.5, saved_usd=0.25)
    second = CostHour(owner=JOB, hour=START + HOUR, system_usd=3.0, underutilized_usd=2.0)
    assert queries.cost_hours(db, recorder.recording, START, START + 2 * HOUR) == [first, idle, second]
    assert queries.cost_hours(db, recorder.recording, START + HOUR + 1, START + HOUR + 2) == [second]
    total = replace(first, system_usd=3.0, underutilized_usd=2.0)
    assert queries.cost_sums(db, recorder.recording, START, START + 2 * HOUR) == [total, idle]


def test_costs_that_could_not_be_written_are_written_once_later(recorder: Recorder, db: sqlite3.Connection) -> None:
    blocker = sqlite3.connect(recorder.path, isolation_level=None)
    recorder._db.execute("pragma busy_timeout = 1")
    blocker.execute("begin immediate")
    recorder.add_costs([CostHour(owner=JOB, hour=START, used_usd=1.0)])
    recorder.add_samples(sample(0))
    recorder.flush()
    assert recorder.failed
    blocker.execute("rollback")
    blocker.close()
    recorder.flush()
    recorder.flush()
    assert queries.cost_hours(db, recorder.recording, 0, 2 * START) == [CostHour(owner=JOB, hour=START, used_usd=1.0)]
    assert queries.samples(db, recorder.recording, 0, 2 * START, span=MINUTE) == [sample(0)]


def test_a_live_cluster_is_one_recording_over_sessions_and_each_simulation_is_one(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    for hour, (mode, source) in enumerate([("LIVE", "prod"), ("SIM", "x"), ("LIVE", "prod"), ("SIM", "x")]):
        recorder = opened(path, mode=mode, source=source)
        recorder.add_costs([CostHour(owner=JOB, hour=START + hour * HOUR, used_usd=1.0)])
        recorder.add_samples(sample(60 * hour))
        recorder.close()
    with closing(open_for_reading(path)) as db:
        found = queries.recordings(db)
        hours = [[one.hour for one in queries.cost_hours(db, each.id, 0, 2 * START)] for each in found]
    assert [(one.mode, one.source, (one.first - START) // HOUR, (one.last - START) // HOUR) for one in found] == [
        ("SIM", "x", 1, 1),
        ("LIVE", "prod", 0, 2),
        ("SIM", "x", 3, 3),
    ]
    assert hours == [[START + HOUR], [START, START + 2 * HOUR], [START + 3 * HOUR]]


def test_samples_come_back_as_they_were_over_blocks_sessions_and_repetitions(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    for minutes in (range(50), range(49, 130, 2)):
        recorder = opened(path)
        for minute in minutes:
            recorder.add_samples(sample(minute, used=minute / 7))
            if not minute % 3:
                recorder.flush()
        recorder.close()
    written = [*range(50), *range(51, 130, 2)]
    with closing(open_for_reading(path)) as db:
        found = queries.samples(db, recorder.recording, START, START + 130 * MINUTE, span=MINUTE)
        part = queries.samples(db, recorder.recording, START + 59 * MINUTE, START + 62 * MINUTE, span=MINUTE)
        hours = queries.samples(db, recorder.recording, 0, 2 * START, span=HOUR)
    assert found == [sample(minute, used=minute / 7) for minute in written]
    assert part == [sample(59, used=59 / 7), sample(61, used=61 / 7)]
    assert hours == [hourly(found[:55]), hourly(found[55:85])], "an hour is summarized once it is over"


def test_samples_of_one_queue_leave_out_everything_else(recorder: Recorder, db: sqlite3.Connection) -> None:
    for minute in range(0, 130, 10):
        recorder.add_samples(sample(minute))
    recorder.flush()
    whole = (recorder.recording, 0, 2 * START)
    found = queries.samples(db, *whole, span=MINUTE, kind=SeriesKind.QUEUE, name="research")
    assert [one.time for one in found] == [START + minute * MINUTE for minute in range(0, 130, 10)]
    assert found[3].queues == sample(30).queues[:2]
    assert (found[3].gpus, found[3].evictions, found[3].cost_hourly) == ((), {}, 0.0)
    cohorts = queries.samples(db, *whole, span=MINUTE, kind=SeriesKind.COHORT)
    assert {one.queues for one in cohorts} == {sample(0).queues[2:3]}
    assert queries.samples(db, *whole, span=MINUTE, kind=SeriesKind.QUEUE, name="unknown") == []
    assert queries.samples(db, *whole, span=MINUTE, kind=SeriesKind.COHORT, name="research") == []


def test_damaged_samples_are_an_error(recorder: Recorder, db: sqlite3.Connection) -> None:
    recorder.add_samples(sample(0))
    recorder.add_samples(sample(60))
    recorder.flush()
    for value in (b"", b"\x78", b"\x78\x9c\x03\x00\x00\x00\x00\x01"):
        with sqlite3.connect(recorder.path) as other:
            other.execute("update series set data = ? where kind = 'cohort'", (value,))
            other.execute("update recent_samples set data = ?", (value,))
        other.close()
        for since in (START, START + HOUR):
            with pytest.raises(HistoryError, match="time series of the history are damaged"):
                queries.samples(db, recorder.recording, since, since + HOUR, span=MINUTE)


def test_a_state_is_rebuilt_from_the_last_checkpoint_and_the_changes_after_it(
    recorder: Recorder, db: sqlite3.Connection
) -> None:
    second = START + SECOND
    batches = [ChangeBatch(START + n * SECOND, second + n * SECOND, b"%d" % n) for n in range(6)]
    recorder.add_changes(Checkpoint(START, b"first"), batches[0])
    recorder.add_changes(None, batches[1])
    recorder.flush()
    recorder.add_changes(None, batches[2])
    recorder.add_changes(Checkpoint(START + 3 * SECOND, b"next"), batches[3])
    recorder.add_changes(None, None)
    recorder.flush()
    recorder.add_changes(None, batches[4])
    recorder.flush()
    number = recorder.recording
    assert queries.rebuild_at(db, number, START) == (Checkpoint(START, b"first"), batches[:1])
    assert queries.rebuild_at(db, number, START + 3 * SECOND - 1) == (Checkpoint(START, b"first"), batches[:3])
    assert queries.rebuild_at(db, number, START + 9 * SECOND) == (Checkpoint(START + 3 * SECOND, b"next"), batches[3:5])


@pytest.mark.parametrize("seconds", [-1, 3600, 3 * 3600])
def test_a_time_at_which_nothing_was_recorded_is_an_error_that_names_recorded_times(
    tmp_path: Path, seconds: int
) -> None:
    for hour in (0, 2):
        recorder = opened(tmp_path / "history.db")
        start = START + hour * HOUR
        recorder.add_changes(Checkpoint(start, b""), ChangeBatch(start, start + 60 * SECOND, b""))
        recorder.close()
    time = START + seconds * SECOND
    told = "2025-11-24T16:00:00Z to 2025-11-24T16:01:00Z and 2025-11-24T18:00:00Z to 2025-11-24T18:01:00Z"
    with closing(open_for_reading(recorder.path)) as db, pytest.raises(HistoryError) as refused:
        queries.rebuild_at(db, recorder.recording, time)
    assert str(refused.value).startswith("nothing is recorded at 2025-11-24T")
    assert str(refused.value).endswith(f"; choose a time in {told}")


def test_changes_after_lost_ones_wait_for_the_next_checkpoint(
    recorder: Recorder, db: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuconsole.store.recorder.MOST_CHANGES", 20)
    recorder.add_changes(Checkpoint(START, b"12345"), None)
    recorder.flush()
    recorder.add_changes(None, ChangeBatch(START, START + 1, b"x" * 30))
    recorder.add_changes(None, ChangeBatch(START + 1, START + 2, b"y"))
    recorder.flush()
    assert queries.rebuild_at(db, recorder.recording, START + 2) == (Checkpoint(START, b"12345"), [])
    recorder.add_changes(Checkpoint(START + 3, b"z"), ChangeBatch(START + 3, START + 4, b"z"))
    recorder.flush()
    assert queries.rebuild_at(db, recorder.recording, START + 4) == (
        Checkpoint(START + 3, b"z"),
        [ChangeBatch(START + 3, START + 4, b"z")],
    )


def test_marks_are_the_times_of_some_kinds_of_events(recorder: Recorder, db: sqlite3.Connection) -> None:
    kinds = (HistoryEventKind.ADMITTED, HistoryEventKind.SUBMITTED, HistoryEventKind.PREEMPTED)
    recorder.record([HistoryEvent(time=START + n, what=kinds[n % 3], workload="a/b") for n in range(9)])
    recorder.flush()
    found = queries.marks(db, recorder.recording, (kinds[0], kinds[2]), START + 2, START + 6)
    assert found == [(START + 2, kinds[2]), (START + 3, kinds[0]), (START + 5, kinds[2])]


def test_fields_that_a_later_version_adds_are_spelt_out_and_ignored(
    recorder: Recorder, db: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = rows._LAYOUTS[1]
    assert ("kind", "name", *known) == QueueSample.__struct_fields__
    assert rows._LAYOUTS[2] == GpuSample.__struct_fields__
    monkeypatch.setattr(rows, "_LAYOUTS", {3: rows._LAYOUTS[3]})
    recorder.add_samples(sample(0))
    recorder.add_samples(sample(60))
    recorder.flush()
    monkeypatch.undo()
    assert queries.samples(db, recorder.recording, START, START + HOUR, span=MINUTE) == [sample(0)]
    [data] = db.execute("select data from series where kind = 'cohort'").fetchone()
    layout, *rest = msgspec.msgpack.decode(rows.inflated(data))
    rest[-1].append([7])
    with sqlite3.connect(recorder.path) as other:
        later = zlib.compress(msgspec.msgpack.encode([[*layout, "colour"], *rest]))
        other.execute("update series set data = ? where kind = 'cohort'", (later,))
    other.close()
    assert queries.samples(db, recorder.recording, START, START + HOUR, span=MINUTE) == [sample(0)]
