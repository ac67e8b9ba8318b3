"""`gpuconsole forecast`: what comes next, and how often it came, for people and for programs."""

import json
import sqlite3
from pathlib import Path

import pytest

from gpuconsole.insight.forecast.backtest import DifferenceCause, ForecastDifference, ForecastDifferences
from gpuconsole.model.snapshot import encode
from gpuconsole.store.recorder import Opening, Recorder
from tests.insight.test_forecast_check import WAITS, admitted, later
from tests.support.command_line import Line
from tests.support.snapshots import ORG_QUEUES, waiting, world

HUGE = waiting("huge", "prod/lq", 64, minutes_ago=1)


@pytest.fixture
def snapshots(tmp_path: Path) -> list[Path]:
    """One that waits, and what Kueue made of it: as foreseen, and otherwise."""
    states = {
        "before": world([*ORG_QUEUES, WAITS, HUGE]),
        "after": later([*ORG_QUEUES, admitted(WAITS), HUGE]),
        "other": later([*ORG_QUEUES, admitted(WAITS, flavor="h100"), HUGE]),
    }
    for name, snapshot in states.items():
        (tmp_path / name).write_bytes(encode(snapshot))
    return [tmp_path / name for name in states]


def test_what_comes_next_for_people(gpuconsole: Line, snapshots: list[Path]) -> None:
    result = gpuconsole("forecast", "--snapshot", snapshots[0])
    assert result.lines[0] == (
        "At 2026-01-05T08:00:00Z: 1 would be admitted, 0 would preempt others, 0 would be preempted, "
        "1 would stay pending; simulated, nothing is reserved"
    )
    assert result.lines[2:4] == [
        "WORKLOAD    QUEUE    GPUS  PRIORITY  FORECAST",
        "prod/waits  cq-prod     8         0  admitted in cycle 1 on a100",
    ]
    assert result.lines[4].startswith(
        "prod/huge   cq-prod    64         0  pending: couldn't assign flavors to pod set"
    )


def test_what_comes_next_for_programs(gpuconsole: Line, snapshots: list[Path]) -> None:
    document = json.loads(gpuconsole("forecast", "--snapshot", snapshots[0], "-o", "json").out)
    assert (document["kind"], document["version"], document["source"]) == ("Forecast", 3, "before")
    assert (document["mode"], document["time"], document["assumed"]) == ("saved", "2026-01-05T08:00:00Z", [])
    assert document["age_seconds"] > 0
    assert list(document["answer"]) == ["forecast"]
    first = document["answer"]["forecast"][0]
    assert (first["workload"], first["fate"], first["cycle"]) == ("prod/waits", "admitted", 1)
    assert first["flavors"] == ["a100"]


def test_snapshots_one_after_another_are_a_recording(gpuconsole: Line, snapshots: list[Path]) -> None:
    before, after, _ = snapshots
    result = gpuconsole("forecast", "--check", "--snapshot", before, "--against", after)
    assert result.status == 0
    assert result.lines[0] == "1 Kueue decision compared, 100.0% agreement"


@pytest.mark.parametrize(
    ("content", "why"),
    [(b'{"format": 1, "obj', "Input data was truncated"), (b'{"a":' * 20_000, "nested too deeply")],
    ids=["cut off", "nested without end"],
)
def test_a_file_that_is_no_snapshot_is_told_as_by_every_other_command(
    gpuconsole: Line, snapshots: list[Path], tmp_path: Path, content: bytes, why: str
) -> None:
    file = tmp_path / "none.json"
    file.write_bytes(content)
    other = gpuconsole("slots", "--snapshot", file)
    assert other.status == 2
    assert other.err.startswith(f"gpuconsole: {file}: not a snapshot: {why}; ")
    assert gpuconsole("forecast", "--snapshot", file).err == other.err
    assert gpuconsole("forecast", "--check", "--snapshot", snapshots[0], "--against", file).err == other.err


def test_a_disagreement_is_told_and_is_a_finding(gpuconsole: Line, snapshots: list[Path]) -> None:
    before, _, other = snapshots
    result = gpuconsole("forecast", "--check", "--snapshot", before, "--against", other)
    assert result.status == 1
    assert result.lines[-3:] == [
        "2026-01-05T08:00:01Z  prod/waits  disagreement",
        "  forecast: admitted in cycle 1 on a100",
        "  Kueue:    admitted: main×1 nvidia.com/gpu=h100",
    ]
    result = gpuconsole("forecast", "--check", "--snapshot", before, "--against", other, "-o", "json")
    document, status = json.loads(result.out), result.status
    assert (document["source"], status) == ("other", 1)
    assert document["answer"]["agreement"] == {
        "decisions": 1,
        "agreed": 0,
        "timing": 0,
        "order": 0,
        "unseen": 0,
        "race": 0,
        "memory": 0,
        "disagreement": 1,
        "part": 0.0,
    }
    assert document["answer"]["differences"][0]["fact"] == "admitted: main×1 nvidia.com/gpu=h100"


def test_the_simulator_does_what_is_foreseen(gpuconsole: Line) -> None:
    result = gpuconsole("forecast", "--check", "--for", "10m", "org-cohort")
    assert (result.status, result.lines[0]) == (0, "3 Kueue decisions compared, 100.0% agreement")


def test_a_cluster_is_run_on_first_as_for_every_other_answer(gpuconsole: Line, snapshots: list[Path]) -> None:
    result = gpuconsole("forecast", "org-cohort", "--until", "10m")
    assert result.lines[0].startswith("At 2026-01-05T08:10:00Z: "), result.err
    assert gpuconsole("forecast", "--check", "--for", "10m", "--until", "10m", "org-cohort").status == 0
    document = json.loads(gpuconsole("forecast", "--snapshot", snapshots[0], "--until", "1m", "-o", "json").out)
    assert (document["mode"], document["time"]) == ("simulated", "2026-01-05T08:01:00Z")
    assert [(one["workload"], one["fate"]) for one in document["answer"]["forecast"]] == [("prod/huge", "waits")]


def test_a_race_is_counted_and_named_with_its_object_and_span(
    gpuconsole: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUCONSOLE_STATE_DIR", str(tmp_path))
    race = ForecastDifference(
        time=0,
        workload="a/b",
        queue="cq",
        forecast="pending",
        fact="admitted",
        cause=DifferenceCause.RACE,
        detail="Workload a/c finished within the 2.5s between two observations",
        object="Workload a/c",
        span=2_500_000,
    )
    recorder = Recorder(tmp_path / "history.db", Opening(version="test"), wall=lambda: 0)
    recorder.compared(ForecastDifferences(decisions=2, agreed=1, differences=(race,)))
    recorder.close()
    result = gpuconsole("forecast", "--check", "--history")
    assert (result.status, result.lines[0]) == (0, "2 Kueue decisions compared, 50.0% agreement")
    assert result.lines[-3:] == [
        "1970-01-01T00:00:00Z  a/b  race: Workload a/c finished within the 2.5s between two observations",
        "  forecast: pending",
        "  Kueue:    admitted",
    ]
    document = json.loads(gpuconsole("forecast", "--check", "--history", "-o", "json").out)
    assert (document["version"], document["answer"]["agreement"]["race"]) == (3, 1)
    assert document["answer"]["differences"] == [
        {
            "time": "1970-01-01T00:00:00Z",
            "workload": "a/b",
            "queue": "cq",
            "foreseen": "pending",
            "fact": "admitted",
            "cause": "race",
            "detail": "Workload a/c finished within the 2.5s between two observations",
            "object": "Workload a/c",
            "span_seconds": 2.5,
        }
    ]


def test_what_live_sessions_recorded_can_be_read_later(
    gpuconsole: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUCONSOLE_STATE_DIR", str(tmp_path))
    assert gpuconsole("forecast", "--check", "--history").lines[0] == "no Kueue decisions to compare"
    difference = ForecastDifference(
        time=0,
        workload="a/b",
        queue="cq",
        forecast="pending",
        fact="admitted",
        cause=DifferenceCause.ORDER,
        detail="a/c has the same priority and timestamp",
    )
    for decisions in (2, 3):
        recorder = Recorder(tmp_path / "history.db", Opening(version="test"), wall=lambda: 0)
        recorder.compared(ForecastDifferences(decisions=decisions, agreed=decisions - 1, differences=(difference,)))
        recorder.close()
    lines = gpuconsole("forecast", "--check", "--history").lines
    assert lines[0] == "5 Kueue decisions compared, 60.0% agreement"
    assert lines[-3] == "1970-01-01T00:00:00Z  a/b  order: a/c has the same priority and timestamp"
    document = json.loads(gpuconsole("forecast", "--check", "--history", "-o", "json").out)
    assert [document[name] for name in ("source", "mode", "time", "age_seconds")] == [
        str(tmp_path / "history.db"),
        "recorded",
        None,
        None,
    ]
    assert list(document["answer"]) == ["agreement", "differences"]


def test_causes_are_counted_over_all_differences_and_the_newest_are_listed(
    gpuconsole: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUCONSOLE_STATE_DIR", str(tmp_path))
    causes = [
        *[DifferenceCause.TIMING] * 600,
        *[DifferenceCause.ORDER] * 30,
        *[DifferenceCause.MEMORY] * 120,
        DifferenceCause.DISAGREEMENT,
    ]
    found = tuple(
        ForecastDifference(
            time=n * 1_000_000, workload=f"a/{n}", queue="cq", forecast="pending", fact="admitted", cause=cause
        )
        for n, cause in enumerate(causes)
    )
    for part in (found[:100], found[100:]):
        recorder = Recorder(tmp_path / "history.db", Opening(version="test"), wall=lambda: 0)
        recorder.compared(ForecastDifferences(decisions=len(part) + 150, agreed=150, differences=part))
        recorder.close()
    with sqlite3.connect(tmp_path / "history.db") as db:
        db.execute("update differences set cause = 'of a later version' where workload = 'a/0'")
    db.close()
    document = json.loads(gpuconsole("forecast", "--check", "--history", "-o", "json").out)["answer"]
    assert document["agreement"] == {
        "decisions": 1051,
        "agreed": 300,
        "timing": 599,
        "order": 30,
        "unseen": 0,
        "race": 0,
        "memory": 120,
        "disagreement": 2,
        "part": round((300 + 599) / 1051, 4),
    }
    assert [one["workload"] for one in document["differences"]] == [f"a/{n}" for n in range(551, 751)]
    result = gpuconsole("forecast", "--check", "--history")
    assert result.status == 1
    assert result.lines[0] == "1,051 Kueue decisions compared, 85.5% agreement"
    assert [line.split()[:2] for line in result.lines[2:9]] == [
        ["300", "agreed"],
        ["599", "timing"],
        ["30", "order"],
        ["0", "unseen"],
        ["0", "race"],
        ["120", "memory"],
        ["2", "disagreement"],
    ]
    assert "The newest 200 of 751 differences, except timing:" in result.lines


def test_a_history_that_is_none_is_told_with_its_file(
    gpuconsole: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUCONSOLE_STATE_DIR", str(tmp_path))
    file = tmp_path / "history.db"
    file.write_text("this is no database")
    result = gpuconsole("forecast", "--check", "--history")
    remedy = "move the file, or use another one (--history FILE, or GPUCONSOLE_STATE_DIR for another folder)"
    assert (result.status, result.err) == (2, f"gpuconsole: {file}: file is not a database; {remedy}\n")
    file.write_bytes(b"")
    assert gpuconsole("forecast", "--check", "--history").status == 0, "what older versions left is brought up to date"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--history"],
        ["--against", "{}"],
        ["--check", "--against", "{}"],
        ["--check", "--history", "org-cohort"],
        ["--check", "--history", "--until", "1h"],
        ["--check", "--snapshot", "{}", "--against", "{}", "--until", "1h"],
    ],
    ids=[
        "history without check",
        "against without check",
        "against nothing",
        "history of files",
        "history that is run on",
        "against what is run on",
    ],
)
def test_what_makes_no_sense_is_refused(gpuconsole: Line, snapshots: list[Path], arguments: list[str]) -> None:
    assert gpuconsole("forecast", *(text.format(snapshots[0]) for text in arguments)).status == 2
