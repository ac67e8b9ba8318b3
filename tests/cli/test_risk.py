"""`gpuconsole risk`: what may evict running work, for people and for programs."""

import json

import pytest

from tests.cli.line import Line


def test_risk_for_people(gpuconsole: Line) -> None:
    told = gpuconsole("risk", "--until", "1h0.5s", "--runs", "1", "--horizon", "10m").lines
    assert told[0].endswith("workloads may be evicted within 10m")
    assert told[2].split()[:6] == ["WORKLOAD", "QUEUE", "GPUS", "BORROWED", "PRIORITY", "RISK"]
    assert told[-4].startswith("1 run of the cluster from 2026-01-05T09:00:00Z on; assumed:")


def test_risk_for_programs(gpuconsole: Line) -> None:
    document = json.loads(gpuconsole("risk", "--until", "1h", "--runs", "1", "--horizon", "10m", "-o", "json").out)
    answer = document["answer"]
    assert (document["kind"], document["version"], document["time"]) == ("Risk", 4, answer["time"])
    assert (answer["horizon"], answer["runs"]) == ("2026-01-05T09:10:00Z", 1)
    assert set(answer["dangers"][0]) == {
        "workload",
        "queue",
        "gpus",
        "instances",
        "borrowed",
        "priority",
        "probability",
        "median_seconds",
        "causes",
        "turns",
        "lost_gpu_hours",
        "cost",
    }


@pytest.mark.parametrize("question", [("risk",), ("eta", "first")])
def test_a_horizon_of_no_time_is_refused(gpuconsole: Line, question: tuple[str, ...]) -> None:
    result = gpuconsole(*question, "three-nodes", "--horizon", "0s")
    assert (result.status, "0s is too short; give it 1m or more" in result.err) == (2, True)
