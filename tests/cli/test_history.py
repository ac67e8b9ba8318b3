"""`gpuconsole history`: what is recorded, whether it is whole, deleting, copying and exporting it."""

import csv
import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gpuconsole.insight.cost.allocation import CostHour, CostKind, CostOwner
from gpuconsole.insight.series import GpuSample, QueueSample, Samples, SeriesKind
from gpuconsole.model.change_log import ChangeLogWriter
from gpuconsole.model.clock import DAY, HOUR, MINUTE, SECOND, Time, format_time
from gpuconsole.model.cluster import Namespace
from gpuconsole.model.events import Applied, HistoryEvent, HistoryEventKind
from gpuconsole.model.state import ClusterState
from gpuconsole.store import queries
from gpuconsole.store.recorder import Opening, Recorder
from tests.support.command_line import Line

START = 20_000 * DAY
HOSTILE = "=HYPERLINK(team)/x\x1b[31m"


def refused(time: Time) -> HistoryEvent:
    return HistoryEvent(time=time, what=HistoryEventKind.PENDING, workload="llm/pretrain", message="no quota")


def record(file: Path, *, mode: str = "LIVE", source: str = "prod", start: Time = START) -> Recorder:
    """Record an hour and a minute; the recorder is still open."""
    file.parent.mkdir(parents=True, exist_ok=True)
    recorder = Recorder(file, Opening(version="test", mode=mode, source=source), wall=lambda: start, interval=1e6)
    recorder.record(
        [
            HistoryEvent(time=start, what=HistoryEventKind.SUBMITTED, workload="llm/pretrain", queue="llm", gpus=8),
            HistoryEvent(
                time=start + SECOND, what=HistoryEventKind.PENDING, workload="llm/pretrain", message="no quota"
            ),
            HistoryEvent(
                time=start + MINUTE, what=HistoryEventKind.PENDING, workload="llm/pretrain", message="no quota"
            ),
            HistoryEvent(
                time=start + 2 * MINUTE,
                what=HistoryEventKind.PREEMPTED,
                workload=HOSTILE,
                queue="dev",
                by="llm/pretrain",
                by_queue="llm",
                reason="InCohortReclamation",
                gpus=8,
                lost_gpu_seconds=3600.0,
                cost=2.21,
            ),
            HistoryEvent(time=start + 3 * MINUTE, what=HistoryEventKind.ADMITTED, workload="llm/pretrain", gpus=8),
        ]
    )
    for minute in range(62):
        recorder.add_samples(
            Samples(
                time=start + minute * MINUTE,
                span=MINUTE,
                queues=(QueueSample(kind=SeriesKind.QUEUE, name="llm", nominal=16.0, used=float(minute)),),
                gpus=(GpuSample(gpu_type="l4", total=8, allocated=2.0, idle=6.0, unhealthy=0.0),),
            )
        )
    owner = CostOwner(kind=CostKind.WORKLOAD, workload="llm/pretrain", team="llm", gpu_type="l4")
    recorder.add_costs([CostHour(owner=owner, hour=start, gpu_seconds=7200.0, used_usd=1.62)])
    recorder.audit(start + MINUTE, "cordon l4-1", "done", "")
    log = ChangeLogWriter(ClusterState(start))
    log.add([Applied(start, Namespace(name="llm"))])
    recorder.add_changes(*log.flush())
    log.add([Applied(start + HOUR, Namespace(name="dev"))])
    recorder.add_changes(*log.flush())
    recorder.flush()
    return recorder


@pytest.fixture
def file(gpuconsole: Line, tmp_path: Path) -> Path:
    recorder = record(tmp_path / "state" / "history-prod.db")
    recorder.close()
    return recorder.path


def test_info_names_recordings_size_and_growth(gpuconsole: Line, file: Path) -> None:
    document = json.loads(gpuconsole("history", "info", "-o", "json").out)
    answer = document["answer"]
    assert (document["source"], answer["file"], answer["bytes"]) == (str(file), str(file), file.stat().st_size)
    assert answer["recordings"] == [
        {
            "id": 1,
            "mode": "LIVE",
            "source": "prod",
            "first": format_time(START),
            "last": format_time(START + 61 * MINUTE),
        }
    ]
    rows = {one["name"]: one["rows"] for one in answer["tables"]}
    assert (rows["sessions"], rows["cost_hours"], rows["audit"], rows["checkpoints"]) == (1, 1, 1, 1)
    text = gpuconsole("history", "info").out
    assert "too short to tell its growth" in text
    assert "prod" in text


def test_the_newest_of_all_histories_is_meant_unless_one_is_named(gpuconsole: Line, file: Path, tmp_path: Path) -> None:
    record(tmp_path / "state" / "history.db", mode="SIM", source="fixture").close()
    assert "fixture" in gpuconsole("history", "info").out
    assert "prod" in gpuconsole("history", "info", "--history", file).out


def test_without_a_history_the_commands_say_how_to_get_one(gpuconsole: Line) -> None:
    for arguments in (["info"], ["check"], ["prune"], ["backup", "x.db"], ["export", "events"]):
        result = gpuconsole("history", *arguments)
        assert (result.status, result.out) == (2, "")
        assert "nothing is recorded yet; run the console or `gpuconsole record`" in result.err


def test_a_whole_history_has_no_problems_also_while_it_is_written(gpuconsole: Line, tmp_path: Path) -> None:
    recorder = record(tmp_path / "state" / "history.db")
    result = gpuconsole("history", "check")
    assert (result.status, result.out) == (0, f"{recorder.path}: no problems found\n")
    recorder.close()
    assert gpuconsole("history", "check").status == 0


def test_events_that_are_written_during_the_check_are_no_problem(
    gpuconsole: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder, written = record(tmp_path / "state" / "history.db"), queries.written

    def counted(db: sqlite3.Connection, session: int) -> int:
        found = written(db, session)
        recorder.record([refused(START + 5 * MINUTE)])
        recorder.flush()
        return found

    monkeypatch.setattr(queries, "written", counted)
    result = gpuconsole("history", "check")
    assert (result.status, result.out) == (0, f"{recorder.path}: no problems found\n")
    recorder.close()


DAMAGES = {
    "update event_blocks set data = x'00'": "event 0 of session 1 in the history is damaged",
    "update event_blocks set last = last + 1": "the block of event 0 has other events than it should have",
    "insert into event_blocks select id + 1, session, first, last, kinds, data from event_blocks": "overlap at event 1",
    "update event_blocks set session = 7": "event blocks without a session: 1",
    "update sessions set recording = null": "sessions without a recording: 1",
    "delete from checkpoints": "changes without a checkpoint: 2",
    "update change_batches set id = id + 100": "checkpoints of which changes are missing: 1",
    "update change_batches set data = x'00112233'": "recording 1: ",
    "delete from cost_owners": "costs without an owner: 1",
    "update series set data = x'00' where kind = 'queue'": "time series of the history are damaged",
    "update series set name = 99": "time series without a name: ",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_history_is_described_and_exits_with_1(gpuconsole: Line, file: Path, damage: str) -> None:
    with closing(sqlite3.connect(file)) as db, db:
        db.execute(damage)
    result = gpuconsole("history", "check")
    assert (result.status, DAMAGES[damage] in result.out) == (1, True), result.out
    answer = json.loads(gpuconsole("history", "check", "-o", "json").out)["answer"]
    assert answer["problem_count"] == len(answer["problems"]) >= 1


@pytest.mark.parametrize(
    ("command", "damage", "problem"),
    [
        ("cost", "delete from cost_owners", "the history has costs of owner 0, which is missing"),
        ("report", "update recent_samples set data = x'00'", "time series of the history are damaged: "),
        ("report", "update event_blocks set data = x'00'", "event 0 of session 1 in the history is damaged: "),
    ],
)
def test_a_report_on_a_damaged_history_names_the_file_and_what_to_do(
    gpuconsole: Line, file: Path, command: str, damage: str, problem: str
) -> None:
    with closing(sqlite3.connect(file)) as db, db:
        db.execute(damage)
    result = gpuconsole(command, "--history", file)
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith(f"gpuconsole: {file}: {problem}")
    other = "move the file, or use another one (--history FILE, or GPUCONSOLE_STATE_DIR for another folder)"
    check = f"`gpuconsole history check --history {file}` lists all damage"
    assert result.err.endswith(f"; {check}; to record anew, {other}\n")


def test_damaged_pages_are_a_problem_or_an_error_but_never_a_traceback(gpuconsole: Line, file: Path) -> None:
    whole = file.read_bytes()
    found = 0
    for page in range(1, len(whole) // 4096):
        file.write_bytes(whole[: page * 4096] + b"\x5a" * 4096 + whole[(page + 1) * 4096 :])
        result = gpuconsole("history", "check")
        # A page may be free.
        assert result.status in (0, 1, 2), page
        found += result.status > 0
        assert "Traceback" not in result.err
    assert found > 20


def test_prune_says_what_it_would_delete_and_deletes_with_yes(gpuconsole: Line, file: Path) -> None:
    before = file.read_bytes()
    result = gpuconsole("history", "prune")
    assert "would delete 1 event blocks" in result.lines
    assert "would delete 1 checkpoints" in result.lines
    assert result.err == "gpuconsole: nothing was deleted; add --yes to delete\n"
    assert file.read_bytes() == before
    done = gpuconsole("history", "prune", "--yes")
    assert (done.status, "deleted 1 event blocks" in done.lines) == (0, True)
    assert gpuconsole("history", "prune").lines == ["nothing is older than the settings allow"]


def test_a_history_that_is_being_recorded_is_not_pruned(gpuconsole: Line, tmp_path: Path) -> None:
    recorder = record(tmp_path / "state" / "history.db")
    result = gpuconsole("history", "prune", "--yes")
    assert (result.status, "records to this file" in result.err) == (2, True)
    recorder.close()


def test_a_backup_is_private_whole_and_made_while_another_process_writes(gpuconsole: Line, tmp_path: Path) -> None:
    recorder = record(tmp_path / "state" / "history.db")
    copy = tmp_path / "copy.db"
    assert gpuconsole("history", "backup", copy).status == 0
    recorder.record([HistoryEvent(time=START, what=HistoryEventKind.DELETED, workload="a/b")])
    recorder.flush()
    assert recorder.failed == ""
    assert oct(copy.stat().st_mode & 0o777) == "0o600"
    assert [one.name for one in tmp_path.glob("copy*")] == ["copy.db"]
    assert gpuconsole("history", "check", "--history", copy).status == 0
    again = gpuconsole("history", "backup", copy)
    assert (again.status, again.err) == (2, f"gpuconsole: {copy} exists; name another file\n")
    recorder.close()


def test_a_backup_to_stdout_is_the_file(
    gpuconsole: Line, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr("sys.stdout", out)
    gpuconsole("history", "backup", "-")
    copy = tmp_path / "copy.db"
    copy.write_bytes(out.buffer.getvalue())
    monkeypatch.undo()
    with closing(sqlite3.connect(copy)) as db:
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)
        assert db.execute("select count(*) from sessions").fetchone() == (1,)


class Export:
    """Exports a table to a file and reads it."""

    def __init__(self, gpuconsole: Line, folder: Path) -> None:
        self._gpuconsole, self._file = gpuconsole, folder / "exported"

    def __call__(self, *arguments: str) -> str:
        self._file.unlink(missing_ok=True)
        result = self._gpuconsole("history", "export", *arguments, "--to", self._file)
        assert (result.status, result.err) == (0, "")
        return self._file.read_text()

    def rows(self, *arguments: str) -> list[dict[str, object]]:
        return [json.loads(line) for line in self(*arguments, "-o", "jsonl").splitlines()]


@pytest.fixture
def export(gpuconsole: Line, file: Path, tmp_path: Path) -> Export:
    return Export(gpuconsole, tmp_path)


def test_events_are_exported_with_repetitions_and_names_that_are_no_formulas(export: Export) -> None:
    found = list(csv.DictReader(io.StringIO(export("events"))))
    assert [(row["kind"], row["workload"], row["count"], row["last_time"]) for row in found] == [
        ("submitted", "llm/pretrain", "1", format_time(START)),
        ("pending", "llm/pretrain", "2", format_time(START + MINUTE)),
        ("preempted", "'=HYPERLINK(team)/x\ufffd[31m", "1", format_time(START + 2 * MINUTE)),
        ("admitted", "llm/pretrain", "1", format_time(START + 3 * MINUTE)),
    ]
    assert [row["kind"] for row in export.rows("decisions")] == ["pending", "preempted", "admitted"]


def test_a_window_limits_what_is_exported(export: Export) -> None:
    since, until = format_time(START + SECOND), format_time(START + 2 * MINUTE)
    assert [row["kind"] for row in export.rows("events", "--since", since, "--until", until)] == ["pending"]
    assert len(export.rows("series", "--span", "minute", "--since", "-10m")) == 11
    assert export.rows("costs", "--since", "-1s") == []


def test_preemptions_have_their_victims_and_what_became_of_them(export: Export) -> None:
    [row] = export.rows("preemptions")
    assert row == {
        "time": format_time(START + 2 * MINUTE),
        "victim": "=HYPERLINK(team)/x\ufffd[31m",
        "victim_queue": "dev",
        "gpus": 8,
        "unit": "GPU",
        "priority": 0,
        "by": "llm/pretrain",
        "by_queue": "llm",
        "by_priority": 0,
        "reason": "InCohortReclamation",
        "rule": "reclaimed in the cohort",
        "lost_gpu_hours": 1.0,
        "lost_usd": 2.21,
        "freed_after_seconds": 60.0,
        "preemptor_admitted": format_time(START + 3 * MINUTE),
        "nth": 1,
    } | {"rule": row["rule"], "freed_after_seconds": row["freed_after_seconds"]}


def test_series_gpus_costs_and_audit_are_exported(export: Export) -> None:
    [hour] = export.rows("series")
    assert (hour["time"], hour["kind"], hour["name"], hour["used_gpus"]) == (format_time(START), "queue", "llm", 29.5)
    assert export.rows("series", "--since", format_time(START + 10 * MINUTE)) == [hour]
    minutes = export.rows("series", "--span", "minute")
    assert [row["used_gpus"] for row in minutes] == [float(minute) for minute in range(62)]
    assert export.rows("gpus")[0] == {
        "time": format_time(START),
        "gpu_type": "l4",
        "total": 8,
        "allocated": 2.0,
        "idle": 6.0,
        "unhealthy": 0.0,
        "utilization_percent": None,
    }
    [cost] = export.rows("costs")
    assert (cost["hour"], cost["workload"], cost["team"], cost["cost_usd"]) == (
        format_time(START),
        "llm/pretrain",
        "llm",
        1.62,
    )
    [audit] = export.rows("audit")
    assert (audit["command"], audit["outcome"]) == ("cordon l4-1", "done")


def test_parquet_without_pyarrow_says_how_to_install_it(
    gpuconsole: Line, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    result = gpuconsole("history", "export", "events", "-o", "parquet", "--to", tmp_path / "events.parquet")
    assert (result.status, result.err) == (
        2,
        "gpuconsole: -o parquet needs pyarrow; install it with: pip install 'gpuconsole[parquet]'\n",
    )
    assert not (tmp_path / "events.parquet").exists()


def has_pyarrow() -> bool:
    """True if pyarrow is installed, with a NumPy that it supports."""
    try:
        import pyarrow

        pyarrow.array([""])
    except ImportError:
        return False
    return True


@pytest.mark.skipif(not has_pyarrow(), reason="the extra parquet (pyarrow with a NumPy for it) is not installed")
@pytest.mark.parametrize("table", ["events", "decisions", "preemptions", "audit", "series", "gpus", "costs"])
def test_parquet_has_the_rows_of_the_json_lines(gpuconsole: Line, export: Export, tmp_path: Path, table: str) -> None:
    from pyarrow import parquet

    lines = export.rows(table)
    file = tmp_path / "table.parquet"
    assert gpuconsole("history", "export", table, "-o", "parquet", "--to", file).status == 0
    found = parquet.read_table(file)
    assert found.num_rows == len(lines)
    assert found.column_names == list(lines[0])


def test_an_unknown_recording_and_an_invalid_time_are_errors(gpuconsole: Line, file: Path) -> None:
    assert (
        "there is no recording 9; it has 1 (prod)" in gpuconsole("history", "export", "events", "--recording", "9").err
    )
    assert "TIME 'soon'" in gpuconsole("history", "export", "events", "--since", "soon").err
