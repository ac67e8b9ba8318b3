"""Retention deletes what is older than the settings allow, or too much, and nothing that is still needed."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gpuconsole.config import HistorySettings
from gpuconsole.errors import HistoryError
from gpuconsole.insight.cost.allocation import CostHour, CostKind, CostOwner
from gpuconsole.insight.forecast.agreement import (
    AgreementCounts,
    AgreementRecord,
    DecisionKind,
    DisagreementCause,
    ShadowDisagreement,
)
from gpuconsole.insight.series import QueueSample, Samples, SeriesKind
from gpuconsole.model.change_log import ChangeBatch, Checkpoint
from gpuconsole.model.clock import DAY, HOUR, MINUTE, Time
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.store import queries
from gpuconsole.store import recorder as history
from gpuconsole.store.recorder import Opening, Recorder
from gpuconsole.store.retention import Deleted, planned, prune
from gpuconsole.store.schema import open_for_reading, open_for_writing
from tests.support.recorded_histories import event_count

NOW = 20_000 * DAY
SETTINGS = HistorySettings(raw_days=7, minutes_days=90, hours_days=730)


def recorder_at(path: Path, wall: Time, mode: str = "LIVE", source: str = "prod") -> Recorder:
    opening = Opening(version="test", mode=mode, source=source)
    return Recorder(path, opening, wall=lambda: wall, interval=1e6, retention=SETTINGS)


def record_day(recorder: Recorder, time: Time) -> None:
    """Record an hour of a day: an admission and an eviction, three samples, a cost, a checkpoint with changes."""
    day = time // DAY
    job = f"team/job-{day}"
    recorder.record(
        [
            HistoryEvent(time=time, what=HistoryEventKind.ADMITTED, workload=job, queue="q"),
            HistoryEvent(time=time + 1, what=HistoryEventKind.PENDING, workload="team/always", message="no quota"),
            HistoryEvent(
                time=time + 2, what=HistoryEventKind.EVICTED, workload=job, lost_gpu_seconds=3600.0, queue="q"
            ),
        ]
    )
    queue = QueueSample(kind=SeriesKind.QUEUE, name="q", used=float(day))
    for minute in range(3):
        recorder.add_samples(Samples(time=time + minute * MINUTE, span=MINUTE, queues=(queue,)))
    owner = CostOwner(kind=CostKind.WORKLOAD, workload=job)
    recorder.add_costs([CostHour(owner=owner, hour=time, used_usd=1.0)])
    recorder.add_changes(Checkpoint(time, b"state"), ChangeBatch(time, time + 2, b"changes"))
    recorder.audit(time, "cordon", "done", "")
    found = ShadowDisagreement(
        time=time,
        workload=job,
        kind=DecisionKind.PENDING,
        expected="",
        actual="",
        cause=DisagreementCause.NOT_TRIED,
    )
    recorder.add_agreement(AgreementRecord(hours={time // HOUR: AgreementCounts(1)}, disagreements=(found,)))
    recorder.flush()


def live_history(path: Path, days: list[int]) -> int:
    """Record these days before NOW, each in a session of its own; returns the recording's number."""
    for day in days:
        recorder = recorder_at(path, NOW - day * DAY)
        record_day(recorder, NOW - day * DAY)
        recorder.close()
    return recorder.recording


def pruned(path: Path, settings: HistorySettings = SETTINGS, now: Time = NOW) -> Deleted:
    with closing(open_for_writing(path)) as db:
        expected = planned(db, settings, now)
        found = prune(db, settings, now)
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)
        assert planned(db, settings, now) == Deleted()
    assert found == expected
    return found


def days_of(times: list[Time]) -> list[int]:
    return sorted({-(-(NOW - time) // DAY) for time in times}, reverse=True)


def test_each_kind_of_data_is_kept_as_long_as_the_settings_say(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    recording = live_history(path, [800, 731, 100, 89, 8, 6, 0])
    deleted = pruned(path)
    assert (deleted.event_blocks, deleted.checkpoints, deleted.change_batches) == (5, 4, 4)
    with closing(open_for_reading(path)) as db:
        whole = (recording, 0, 2 * NOW)
        events = list(queries.events(db, *whole))
        assert days_of([one.time for one in events]) == [6, 0]
        assert {one.message for one in events if one.what is HistoryEventKind.PENDING} == {"no quota"}
        assert days_of([one.time for one in queries.samples(db, *whole, span=MINUTE)]) == [89, 8, 6, 0]
        assert days_of([one.time for one in queries.samples(db, *whole, span=HOUR)]) == [100, 89, 8, 6]
        for time in ("hour * 3600000000", "time"):
            table = "disagreements" if time == "time" else "agreement_hours"
            assert days_of([at for (at,) in db.execute(f"select {time} from {table}")]) == [6, 0]
        costs = queries.cost_hours(db, *whole)
        assert days_of([one.hour for one in costs]) == [100, 89, 8, 6, 0]
        assert {one.owner.workload for one in costs} == {f"team/job-{one.hour // DAY}" for one in costs}
        # The checkpoint of the eighth day leads to the states until the sixth.
        assert queries.rebuild_at(db, recording, NOW - 6 * DAY)[0].time == NOW - 6 * DAY
        with pytest.raises(HistoryError, match="nothing is recorded at"):
            queries.rebuild_at(db, recording, NOW - 100 * DAY)
        names = {name for (name,) in db.execute("select text from names")}
    assert f"team/job-{(NOW - 800 * DAY) // DAY}" not in names
    assert f"team/job-{(NOW - 100 * DAY) // DAY}" in names


def test_the_totals_of_a_session_outlive_its_events(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    live_history(path, [8])
    pruned(path)
    with closing(open_for_reading(path)) as db:
        assert event_count(db, 1) == 3
        assert [lost.gpu_hours for lost in queries.losses(db, 1, 10).values()] == [1.0]
        assert queries.of_workload(db, 1, "team/always") == {}


def test_a_simulation_is_as_old_as_its_session_whatever_its_own_time_is(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    for age in (800, 10, 3):
        recorder = recorder_at(path, NOW - age * DAY, mode="SIM", source=f"fixture-{age}")
        record_day(recorder, 5 * DAY)
        recorder.close()
    pruned(path)
    with closing(open_for_reading(path)) as db:
        found = {one.source: one.id for one in queries.recordings(db)}
        events = {source: len(list(queries.events(db, number, 0, NOW))) for source, number in found.items()}
        costs = {source: len(queries.cost_hours(db, number, 0, NOW)) for source, number in found.items()}
    assert events == {"fixture-10": 0, "fixture-3": 3}
    assert costs == {"fixture-10": 1, "fixture-3": 1}


def test_a_file_that_is_too_large_loses_its_oldest_raw_data_first(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    for day in range(7, -1, -1):
        recorder = recorder_at(path, NOW - day * DAY)
        record_day(recorder, NOW - day * DAY)
        for hour in range(1, 9):
            time = NOW - day * DAY + hour * HOUR // 10
            recorder.add_changes(Checkpoint(time, bytes(100_000)), None)
        recorder.close()
    before = path.stat().st_size
    settings = HistorySettings(max_gib=before / 3 / 2**30)
    with closing(open_for_writing(path)) as db:
        deleted = prune(db, settings, NOW)
    assert deleted.checkpoints > 30
    assert deleted.costs == deleted.series_blocks == 0
    assert path.stat().st_size < before / 2, "pages were given back"
    with closing(open_for_reading(path)) as db:
        assert queries.rebuild_at(db, recorder.recording, NOW)
        assert len(queries.cost_hours(db, recorder.recording, 0, 2 * NOW)) == 8


def test_a_recorder_goes_on_while_and_after_it_prunes(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    live_history(path, [9, 8])
    recorder = recorder_at(path, NOW)
    record_day(recorder, NOW)
    recorder.prune()
    record_day(recorder, NOW + HOUR)
    recorder.prune()
    found = history.of_workload(recorder, "team/always")
    assert [(one.time, one.count, one.last_time) for one in found] == [(NOW + 1, 2, NOW + HOUR + 1)]
    assert history.of_workload(recorder, f"team/job-{NOW // DAY}")[0].queue == "q"
    assert recorder.failed == ""
    recorder.close()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)
        assert db.execute("select count(*) from event_blocks where session < 3").fetchone() == (0,)


def test_minutes_of_a_killed_session_become_an_hour(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    killed = recorder_at(path, NOW - DAY)
    record_day(killed, NOW - DAY)
    killed._closing.set()
    killed._thread.join()
    killed._db.close()
    killed._lock.release()
    recorder = recorder_at(path, NOW)
    record_day(recorder, NOW)
    recorder.prune()
    with closing(open_for_reading(path)) as db:
        hours = queries.samples(db, recorder.recording, 0, 2 * NOW, span=HOUR)
        minutes = queries.samples(db, recorder.recording, 0, 2 * NOW, span=MINUTE)
    assert ([one.time for one in hours], len(minutes)) == ([NOW - DAY], 6)
    recorder.close()
