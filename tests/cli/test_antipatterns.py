"""`gpuconsole antipatterns`: what wastes GPUs or patience, for people and for programs."""

import json

from tests.support.command_line import Line


def test_antipatterns_for_people(gpuconsole: Line) -> None:
    assert gpuconsole("antipatterns", "two-jobs-without", "--until", "1h").lines == [
        "1 anti-pattern, about $720.00 per day",
        "",
        "gang-deadlock: 2 partially scheduled gangs hold 8 GPUs and wait for each other",
        "  cost      $720.00 per day (8.0 GPUs)",
        "  evidence  PyTorchJob/default/blue: holds 4 GPUs, needs 2 more, PyTorchJob/default/green: holds 4 GPUs,"
        " needs 2 more",
        "  fix       evict one gang; use gang scheduling (Kueue's waitForPodsReady, a PodGroup, or a gang scheduler)",
    ]


def test_antipatterns_for_programs(gpuconsole: Line) -> None:
    document = json.loads(gpuconsole("antipatterns", "two-jobs-without", "--until", "1h", "-o", "json").out)
    (one,) = document["answer"]["patterns"]
    assert (document["kind"], document["version"], document["answer"]["measured"]) == ("Antipatterns", 3, True)
    assert document["answer"]["cost_per_day"] == 720.0
    assert {name: one[name] for name in ("code", "subject", "table", "gpus", "cost_per_day")} == {
        "code": "gang-deadlock",
        "subject": "PyTorchJob/default/blue",
        "table": "jobs",
        "gpus": 8,
        "cost_per_day": 720.0,
    }
    assert one["since"].startswith("2026-01-05T08:")


def test_nothing_is_found(gpuconsole: Line) -> None:
    """But how well the GPUs are used on average is told."""
    assert gpuconsole("antipatterns", "org-cohort").lines == [
        "no findings",
        "",
        "TEAM      GPUS  MEASURED  UTILIZATION  SM ACTIVITY",
        "cluster      6         6  9%           8%",
        "research     6         6  9%           8%",
    ]
