"""`gpuconsole why`: the blocker, the arithmetic and what would help, for people and for programs."""

import json
from pathlib import Path

from gpuconsole.model.snapshot import encode
from tests.insight.test_why import RLHF, TEXT
from tests.support.command_line import Line
from tests.support.snapshots import ORG, world

FULL = "1 of 1 pods unschedulable: 1 Insufficient nvidia.com/gpu"
WAITS = "team/job-large-bcd0a"


def test_why_for_people(gpuconsole: Line) -> None:
    assert gpuconsole("why", "large", "strict-fifo", "--until", "1h").lines == [
        "team/large  quota  in team",
        "  large needs 8 GPUs; team has 4 GPUs of a100 available.",
        "  position 1 of 2 in team",
        "",
        "FLAVORS",
        "  a100  no preemption candidates: insufficient unused quota for nvidia.com/gpu in flavor a100, 4 more needed",
        "",
        "ARITHMETIC",
        "  a100 nvidia.com/gpu: needs 8, available 4 · 4 more needed, limited by ClusterQueue team",
        "    ClusterQueue team: quota 8, used 4, unused 4 → available 4",
        "    used by team/first 4",
        "",
        "WOULD UNBLOCK",
        "  ✓ team/first ends (4 GPUs)",
        "  ✓ request 4 GPUs per pod instead of 8 GPUs",
        "  ✓ raise the nominalQuota of ClusterQueue team by 4 GPUs of a100",
        f"    ⚠ admitted, but after 1m: {FULL}",
        "",
        "EVIDENCE",
        "  engine, 0s old and Kueue, at most 59m old: quota: couldn't assign flavors to pod set main: "
        "insufficient unused quota for nvidia.com/gpu in flavor a100, 4 more needed",
    ]


def test_why_for_programs(gpuconsole: Line) -> None:
    document = json.loads(gpuconsole("why", WAITS, "strict-fifo", "--until", "1h", "-o", "json").out)
    answer = document.pop("answer")
    assert (document["kind"], document["version"], document["mode"]) == ("Why", 3, "simulated")
    assert (answer["subject"], answer["code"], answer["cluster_queue"]) == (WAITS, "quota", "team")
    assert [level["available"] for level in answer["arithmetic"][0]["levels"]] == [4]
    assert (answer["arithmetic"][0]["short"], answer["arithmetic"][0]["ceiling"], answer["details"]) == (4, 8, [])
    assert answer["would_unblock"]["suggestions"][0] == {
        "text": "team/job-first-252ac ends (4 GPUs)",
        "steps": [{"type": "end", "workload": "team/job-first-252ac"}],
        "nodes": "found",
        "lacking": "",
        "preempts": [],
        "admitted_first": [],
    }
    assert answer["would_unblock"]["suggestions"][2]["lacking"] == FULL
    quick = json.loads(gpuconsole("why", WAITS, "strict-fifo", "--until", "1h", "--quick", "-o", "json").out)
    assert quick["answer"] == {**answer, "would_unblock": None}


def test_a_saved_cluster_is_asked_as_others_left_it_with_the_words_of_its_kueue(
    gpuconsole: Line, tmp_path: Path
) -> None:
    file = tmp_path / "saved.json"
    file.write_bytes(encode(world([*ORG, RLHF])))
    lines = gpuconsole("why", "rlhf-2", "--snapshot", file).lines
    assert lines[0] == "research/rlhf-2  quota  in cq-research"
    assert lines[-2:] == [
        f"  engine, 0s old: quota: {TEXT}2 more needed",
        f"  Kueue, at most 12m old: quota: {TEXT}4 more needed",
    ]


def test_a_name_has_to_be_somebodys_and_nobody_elses(gpuconsole: Line) -> None:
    missing = gpuconsole("why", "nobody", "strict-fifo")
    assert (missing.status, missing.err) == (2, "gpuconsole: there is no workload, job or pod nobody\n")
