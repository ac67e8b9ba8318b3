"""`gpuconsole shares`: fair shares and turns, for people and for programs."""

import json

from tests.support.command_line import Line


def test_shares_for_people(gpuconsole: Line) -> None:
    lines = gpuconsole("shares", "final-share", "--until", "20m").lines
    assert lines[:6] == [
        "Kueue, fair sharing on",
        "",
        "COHORT / QUEUE  WEIGHT  SHARE  CALCULATION",
        "shared          1         0 ‰  borrows nothing",
        "  team-a        1       800 ‰  8 nvidia.com/gpu borrowed of 10 lendable = 800 ‰",
        "  team-b        1         0 ‰  borrows nothing",
    ]
    assert lines[-1] == "no pending workloads"


def test_shares_for_programs(gpuconsole: Line) -> None:
    document = json.loads(gpuconsole("shares", "org-cohort", "--until", "2h", "-o", "json").out)
    answer = document["answer"]
    assert (document["kind"], answer["queues"], answer["kueue"]["fair_sharing"]) == ("Shares", [], False)
    (turn,) = answer["kueue"]["turns"]
    assert (turn["queue"], turn["queued"], turn["outcome"]) == ("cq-research", "2026-01-05T08:20:00Z", "waits")


def test_the_queues_of_other_engines(gpuconsole: Line) -> None:
    lines = gpuconsole("shares", "proportion-volcano", "--until", "10m").lines
    assert lines[2:] == [
        "QUEUE     GPUS  DESERVED  SHARE  PENDING  ORDER  RULES",
        "product      2         2   100%        6  1      weight 1 · reclaimable",
        "research     6         6   100%        2  2      weight 3 · reclaimable",
    ]


def test_a_cluster_without_queues(gpuconsole: Line) -> None:
    assert gpuconsole("shares", "three-nodes").lines == ["no queues with fair shares"]
