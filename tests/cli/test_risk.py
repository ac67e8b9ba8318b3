"""`gpuconsole risk`: what may evict running work, for people and for programs."""

import json
import re

import pytest

from tests.support.command_line import Line


def test_risk_for_people(gpuconsole: Line) -> None:
    told = gpuconsole("risk", "--until", "1h0.5s", "--runs", "1", "--horizon", "10m").lines
    assert told[0].endswith("workloads may be evicted within 10m")
    assert told[2].split()[:6] == ["WORKLOAD", "QUEUE", "GPUS", "BORROWED", "PRIORITY", "RISK"]
    assert told[-6].startswith("1 simulation run from 2026-01-05T09:00:00Z; assumptions:")


def test_risk_for_programs(gpuconsole: Line) -> None:
    document = json.loads(gpuconsole("risk", "--until", "1h", "--runs", "1", "--horizon", "10m", "-o", "json").out)
    answer = document["answer"]
    assert (document["kind"], document["version"], document["time"]) == ("Risk", 6, answer["time"])
    assert (answer["horizon"], answer["runs"]) == ("2026-01-05T09:10:00Z", 1)
    assert (answer["wanted_horizon"], answer["wanted_runs"]) == ("2026-01-05T09:10:00Z", 1)
    assert [text.partition(" ")[0] for text in answer["assumptions"]] == ["run", "arrivals", "no", "quotas,", "no"]
    assert set(answer["dangers"][0]) == {
        "workload",
        "queue",
        "gpus",
        "unit",
        "borrowed",
        "priority",
        "probability",
        "median_seconds",
        "causes",
        "turns",
        "lost_gpu_hours",
        "cost",
    }


def test_where_much_happens_fewer_runs_are_told_one_by_one_and_the_answer_says_so(
    gpuconsole: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuconsole.cli.risk.EFFORT", 2_000)
    monkeypatch.setattr("gpuconsole.cli.risk.PATIENCE", 0.0)
    result = gpuconsole("risk", "--until", "31m")
    *progress, provenance = result.err.splitlines()
    said = re.fullmatch(
        r"Stopped early: (\d+) of 20 runs, (\w+) of the 6h horizon. Full result: gpuconsole risk --runs 20.",
        result.lines[-1],
    )
    assert said is not None
    runs, ahead = int(said[1]), said[2]
    assert [line.partition(":")[2].partition(":")[0] for line in progress] == [
        f" run {number} of at most 20" for number in range(1, runs + 1)
    ]
    assert all(line.endswith(f" workloads may be evicted within {ahead}") for line in progress)
    assert provenance == "gpuconsole: simulated default as of 2026-01-05T08:31:00Z"
    assert any(line.split()[5] not in ("0%", "RISK") for line in result.lines[2:8]), "many preemptions are near"


def test_the_runs_take_what_reading_the_cluster_leaves_of_the_time(
    gpuconsole: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuconsole.cli.risk.WITHIN", 0.0)
    monkeypatch.setattr("gpuconsole.cli.risk.LEAST", 1e-6)
    result = gpuconsole("risk", "--until", "31m", "-o", "json")
    answer = json.loads(result.out)["answer"]
    assert (answer["runs"], answer["wanted_runs"], answer["horizon"]) == (1, 20, "2026-01-05T08:32:00Z")
    monkeypatch.setattr("gpuconsole.cli.risk.WITHIN", 1e6)
    monkeypatch.setattr("gpuconsole.cli.risk.LIMIT", 1e6)
    monkeypatch.setattr("gpuconsole.cli.risk.EFFORT", 10**9)
    unbounded = json.loads(gpuconsole("risk", "--until", "31m", "--horizon", "20m", "-o", "json").out)["answer"]
    assert (unbounded["runs"], unbounded["horizon"]) == (20, "2026-01-05T08:51:00Z")


@pytest.mark.parametrize("question", [("risk",), ("eta", "first")])
def test_a_horizon_of_no_time_is_refused(gpuconsole: Line, question: tuple[str, ...]) -> None:
    result = gpuconsole(*question, "three-nodes", "--horizon", "0s")
    assert (result.status, "0s is too short; use at least 1m" in result.err) == (2, True)
