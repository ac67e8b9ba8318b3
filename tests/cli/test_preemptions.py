"""`gpuconsole preemptions`: who had to make room for whom, for people and for programs, now and as recorded."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuconsole.model.clock import MINUTE, parse_time
from gpuconsole.model.events import (
    CandidateVerdict,
    ConsideredCandidate,
    HistoryEvent,
    HistoryEventKind,
    PreemptionTrace,
)
from gpuconsole.model.snapshot import EVERYTHING, Visibility, VisibilityGap
from gpuconsole.store.recorder import Opening, Recorder
from tests.support.command_line import Line

RECLAIMED = ("org-cohort", "--until", "2h")
"""Research loses a workload that borrowed; see the drill of that name."""


def test_preemptions_for_people(gpuconsole: Line) -> None:
    assert gpuconsole("preemptions", *RECLAIMED).lines == [
        "1 preemption: 6.0 GPU-hours lost, $13.26",
        "",
        "WHEN                  VICTIM         GPUS  PREEMPTOR        RULE               PRIORITY  LOST GPU-H  COST $"
        "  RELEASED AFTER  TIMES",
        "2026-01-05T09:20:00Z  research/rlhf     6  prod/serve-more  reclaim in cohort  0, 0      6.0         13.26 "
        "  1s              1",
        "",
        "RULE               TIMES  LOST GPU-H  COST $",
        "reclaim in cohort      1  6.0         13.26",
        "",
        "VICTIM         TIMES  LOST GPU-H  COST $",
        "research/rlhf      1  6.0         13.26",
        "",
        "PREEMPTOR        TIMES  LOST GPU-H  COST $",
        "prod/serve-more      1  6.0         13.26",
        "",
        "VICTIM QUEUE  TIMES  LOST GPU-H  COST $",
        "cq-research       1  6.0         13.26",
        "",
        "PREEMPTOR QUEUE  TIMES  LOST GPU-H  COST $",
        "cq-prod              1  6.0         13.26",
    ]


def test_of_one_workload_it_is_told_who_else_was_considered(gpuconsole: Line) -> None:
    assert gpuconsole("preemptions", "research/rlhf", *RECLAIMED).lines == [
        "1 preemption: 6.0 GPU-hours lost, $13.26",
        "",
        "2026-01-05T09:20:00Z  research/rlhf (/org-cohort/cq-research, priority 0, 6 GPUs)",
        "  preempted by prod/serve-more (/org-cohort/cq-prod, priority 0): reclaim in cohort",
        "  lost 6.0 GPU-hours, $13.26; quota released after 1s; prod/serve-more was admitted at 2026-01-05T09:20:01Z",
        "  candidates, in preemption order (share ~166 ‰ ← 0 ‰):",
        "     WORKLOAD         QUEUE        PRIORITY  OUTCOME",
        "     research/rlhf    cq-research         0  evicted",
        "     research/embed   cq-research         0  skipped: enough capacity without it",
        "     research/llm-ft  cq-research         0  skipped: enough capacity without it",
        "     prod/serve       cq-prod             0  not a candidate: the policy requires a lower priority",
    ]


def test_preemptions_for_programs(gpuconsole: Line) -> None:
    document = json.loads(gpuconsole("preemptions", *RECLAIMED, "-o", "json").out)
    (told,) = document["answer"]["preemptions"]
    assert (document["kind"], document["version"], document["source"]) == ("Preemptions", 5, "org-cohort")
    assert told.pop("message").startswith("Preempted to accommodate a workload (UID: ")
    assert [one["verdict"] for one in told.pop("choice")["considered"]][:2] == ["chosen", "not-needed"]
    assert {name: told[name] for name in ("time", "victim_path", "by_path", "reason", "freed_after_seconds")} == {
        "time": "2026-01-05T09:20:00Z",
        "victim_path": "/org-cohort/cq-research",
        "by_path": "/org-cohort/cq-prod",
        "reason": "InCohortReclamation",
        "freed_after_seconds": 1.0,
    }
    assert document["answer"]["summary"]["circles"] == []


def test_a_cluster_in_which_nobody_was_preempted(gpuconsole: Line) -> None:
    assert gpuconsole("preemptions", "org-cohort").lines == ["no preemptions"]


def test_a_name_that_nobody_knows_is_an_error(gpuconsole: Line) -> None:
    result = gpuconsole("preemptions", "no/body", "org-cohort")
    assert (result.status, result.err) == (
        2,
        "gpuconsole: there is no workload, job or pod no/body\n",
    )


@pytest.fixture
def recorded(tmp_path: Path) -> None:
    at = parse_time("2026-03-01T12:00:00Z")
    choice = PreemptionTrace("100", "0", (ConsideredCandidate("r/a", "cq-a", CandidateVerdict.CHOSEN, 1),))
    recorder = Recorder(
        tmp_path / "state" / "history.db", Opening(version="0.1.0", mode="LIVE", source="gpu-east"), wall=lambda: 0
    )
    for victim, found in (("r/b", replace(choice, as_of=at)), ("r/c", PreemptionTrace(as_of=at, differs=True))):
        line = HistoryEvent(
            time=at, what=HistoryEventKind.PREEMPTED, workload=victim, by="p/b", reason="InClusterQueue"
        )
        recorder.record([line, replace(line, what=HistoryEventKind.RECONSTRUCTED, reason="", choice=found)])
    one = HistoryEvent(time=at, what=HistoryEventKind.PREEMPTED, workload="r/a", by="p/b", reason="InClusterQueue")
    recorder.record(
        [
            replace(one, gpus=2, choice=choice),
            HistoryEvent(time=at + MINUTE, what=HistoryEventKind.REQUEUED, workload="r/a"),
        ]
    )
    recorder.close()


@pytest.mark.usefixtures("recorded")
def test_what_was_recorded_outlives_the_cluster(gpuconsole: Line) -> None:
    result = gpuconsole("preemptions", "r/a", "--history")
    assert result.lines[3:7] == [
        "2026-03-01T12:00:00Z  r/a (priority 0, 2 GPUs)",
        "  preempted by p/b (priority 0): priority in the queue",
        "  lost 0.0 GPU-hours, $0.00; quota released after 1m; p/b is still unscheduled",
        "  candidates, in preemption order (share 100 ‰ ← 0 ‰):",
    ]
    document = json.loads(gpuconsole("preemptions", "--history", "-o", "json").out)
    assert (document["source"], document["mode"], document["time"]) == ("gpu-east", "recorded", "2026-03-01T12:01:00Z")


@pytest.mark.parametrize(("mode", "aged"), [("LIVE", True), ("SIM", False)])
def test_what_a_simulation_went_through_has_no_age(gpuconsole: Line, tmp_path: Path, mode: str, aged: bool) -> None:
    opening = Opening(version="0.1.0", mode=mode, source="default")
    recorder = Recorder(tmp_path / "state" / "history.db", opening, wall=lambda: 0)
    at = parse_time("2026-03-01T12:00:00Z")
    recorder.record(
        [HistoryEvent(time=at, what=HistoryEventKind.PREEMPTED, workload="r/a", by="p/b", reason="InClusterQueue")]
    )
    recorder.close()
    assert gpuconsole("preemptions", "--history").err.endswith(" ago\n") == aged
    document = json.loads(gpuconsole("preemptions", "--history", "-o", "json").out)
    assert (document["mode"], document["age_seconds"] is not None) == ("recorded", aged)


def test_what_was_not_seen_while_it_was_recorded_is_said_of_the_recording(gpuconsole: Line, tmp_path: Path) -> None:
    """The rights came later; who was preempted before is in nobody's record."""
    opening = Opening(version="0.1.0", mode="LIVE", source="gpu-east")
    recorder = Recorder(tmp_path / "state" / "history.db", opening, wall=lambda: 0)
    events = VisibilityGap(table="recent", resource="events", why="cannot list events at the cluster scope")
    recorder.saw(Visibility(gaps=(events, VisibilityGap(table="nodes", resource="nodes", why="cannot list nodes"))))
    recorder.saw(EVERYTHING)
    recorder.record(
        [HistoryEvent(time=MINUTE, what=HistoryEventKind.PREEMPTED, workload="r/a", by="p/b", reason="InClusterQueue")]
    )
    recorder.close()
    left_open = "other preemptions: cannot list events at the cluster scope"
    assert json.loads(gpuconsole("preemptions", "--history", "-o", "json").out)["unknown"] == [left_open]
    assert gpuconsole("preemptions", "--history").lines[-1] == f"unknown: {left_open}"


def test_what_nobody_knows_to_be_lost_is_told_as_unknown(gpuconsole: Line, tmp_path: Path) -> None:
    opening = Opening(version="0.1.0", mode="LIVE", source="gpu-east")
    recorder = Recorder(tmp_path / "state" / "history.db", opening, wall=lambda: 0)
    known = HistoryEvent(
        time=parse_time("2026-03-01T12:00:00Z"),
        what=HistoryEventKind.PREEMPTED,
        workload="r/a",
        by="p/b",
        reason="InClusterQueue",
        gpus=2,
        lost_gpu_seconds=7200.0,
        cost=4.0,
    )
    unknown = replace(known, workload="r/c", lost_gpu_seconds=0.0, cost=0.0, lost_unknown=True)
    recorder.record([known, unknown])
    recorder.close()

    lines = gpuconsole("preemptions", "--history").lines
    assert lines[0] == "2 preemptions: at least 2.0 GPU-hours lost, at least $4.00"
    assert lines[4].split()[-4:] == ["–", "–", "–", "1"]
    assert [line.split() for line in lines if line.startswith(("r/a ", "r/c "))] == [
        ["r/a", "1", "2.0", "4.00"],
        ["r/c", "1", "unknown", "unknown"],
    ]
    alone = gpuconsole("preemptions", "r/c", "--history").lines
    assert alone[0] == "1 preemption: unknown GPU-hours lost, cost unknown"
    assert alone[5].startswith("  lost unknown GPU-hours (it ran before it was observed); quota release time unknown; ")
    answer = json.loads(gpuconsole("preemptions", "--history", "-o", "json").out)["answer"]
    assert [(one["victim"], one["lost_gpu_hours"], one["cost"]) for one in answer["preemptions"]] == [
        ("r/c", None, None),
        ("r/a", 2.0, 4.0),
    ]
    summary = answer["summary"]
    assert (summary["lost_gpu_hours"], summary["cost"], summary["unknown"]) == (2.0, 4.0, 1)
    assert [(one["name"], one["lost_gpu_hours"], one["cost"]) for one in summary["victims"]] == [
        ("r/a", 2.0, 4.0),
        ("r/c", None, None),
    ]


@pytest.mark.usefixtures("recorded")
def test_candidates_that_the_engine_reconstructed_are_said_to_be_so(gpuconsole: Line) -> None:
    assert gpuconsole("preemptions", "r/b", "--history").lines[6:] == [
        "  candidates, in preemption order (share 100 ‰ ← 0 ‰; reconstructed from the state at 2026-03-01T12:00:00Z):",
        "     WORKLOAD  QUEUE  PRIORITY  OUTCOME",
        "     r/a       cq-a          1  evicted",
    ]
    assert gpuconsole("preemptions", "r/c", "--history").lines[6:] == [
        "  candidates unknown: a replay from the state at 2026-03-01T12:00:00Z chose no such victim",
    ]
    document = json.loads(gpuconsole("preemptions", "--history", "-o", "json").out)
    told = {one["victim"]: (one["choice_as_of"], one["choice"]) for one in document["answer"]["preemptions"]}
    whole = {"share": "100", "considered": [{"workload": "r/a", "queue": "cq-a", "verdict": "chosen", "priority": 1}]}
    assert told == {
        "r/a": (None, whole),
        "r/b": ("2026-03-01T12:00:00Z", whole),
        "r/c": ("2026-03-01T12:00:00Z", {"differs": True}),
    }


def test_without_a_history_there_is_nothing_to_show(gpuconsole: Line) -> None:
    result = gpuconsole("preemptions", "--history")
    assert result.err == "gpuconsole: no session has been recorded; the console records its history while it runs\n"


def test_a_history_and_a_cluster_are_not_asked_together(gpuconsole: Line) -> None:
    result = gpuconsole("preemptions", "default", "--history")
    assert result.err == "gpuconsole: --history reads the recorded session; omit FILES, --live and --snapshot\n"


def test_a_name_alone_will_do_where_a_cluster_is_given(gpuconsole: Line) -> None:
    assert (
        gpuconsole("preemptions", "rlhf", *RECLAIMED).lines
        == gpuconsole("preemptions", "research/rlhf", *RECLAIMED).lines
    )
    assert (
        gpuconsole("preemptions", "nobody", *RECLAIMED).err == "gpuconsole: there is no workload, job or pod nobody\n"
    )


def test_what_the_pods_of_a_job_lost_belongs_to_it_where_no_workload_stands_for_it(gpuconsole: Line) -> None:
    """Volcano: release takes four GPUs from sweep, and deadline is about to take one more."""
    cluster = ("reclaim-volcano", "--until", "20m")
    told = gpuconsole("preemptions", "sweep", *cluster, "-o", "json")
    answer = json.loads(told.out)["answer"]

    assert (answer["workload"], answer["summary"]["preemptions"]) == ("VolcanoJob/default/sweep", 5)
    assert [(one["victim"], one["by"], one["freed_after_seconds"]) for one in answer["preemptions"]] == [
        ("default/sweep-worker-1", "default/deadline-worker-0", None),
        ("default/sweep-worker-0", "default/release-worker-3", 30.0),
        ("default/sweep-worker-2", "default/release-worker-2", 30.0),
        ("default/sweep-worker-4", "default/release-worker-1", 30.0),
        ("default/sweep-worker-6", "default/release-worker-0", 30.0),
    ]
    queues = [
        [(one["name"], one["times"]) for one in answer["summary"][key]] for key in ("victim_queues", "causing_queues")
    ]
    assert queues == [[("research", 5)], [("product", 4), ("research", 1)]]
    assert gpuconsole("preemptions", "deadline", *cluster).lines == [
        "1 preemption: 0.7 GPU-hours lost, $1.33",
        "1 preemptor still unscheduled",
        "",
        "2026-01-05T08:20:00Z  default/sweep-worker-1 (research, priority 0, 1 GPU)",
        "  preempted by default/deadline-worker-0 (research, priority 1000): priority in the queue",
        "  lost 0.7 GPU-hours, $1.33; quota not released yet; default/deadline-worker-0 is still unscheduled",
    ]


def test_a_saved_simulation_tells_of_the_same_preemptions(gpuconsole: Line, tmp_path: Path) -> None:
    """It holds the newest happenings only, and of the older ones those that preemptions consist of."""
    file = tmp_path / "default.json"
    gpuconsole("snapshot", "save", file, "default", "--until", "2h")
    saved = json.loads(gpuconsole("preemptions", "--snapshot", file, "-o", "json").out)
    simulated = json.loads(gpuconsole("preemptions", "default", "--until", "2h", "-o", "json").out)
    assert len(simulated["answer"]["preemptions"]) > 20
    for answer in (saved["answer"], simulated["answer"]):
        for told in answer["preemptions"]:
            # Who else was considered is told by a simulation that is asked for it.
            del told["choice"], told["choice_as_of"]
    assert (saved["answer"], saved["unknown"]) == (simulated["answer"], [])


def test_what_is_older_than_all_that_is_kept_is_said_to_be_unknown(gpuconsole: Line, tmp_path: Path) -> None:
    """A simulation that told what happened while it ran keeps the newest lines only, as a live cluster does."""
    file = tmp_path / "default.json"
    gpuconsole("simulate", "default", "--until", "2h", "--save", file)
    answer = gpuconsole("preemptions", "--snapshot", file)
    (said,) = [line for line in answer.lines if "nothing older than 20" in line]
    assert "other preemptions" in said
