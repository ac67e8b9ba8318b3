"""Files that earlier versions wrote: today's commands read all that is in them."""

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuconsole.insight.forecast.estimates import Interval, PastEstimate
from gpuconsole.insight.health.telemetry import UtilizationSample
from gpuconsole.insight.index.pods import phase_of
from gpuconsole.insight.preemption.history import LostWork
from gpuconsole.model.clock import HOUR, MINUTE, SECOND, parse_time
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.objects import TABLES
from gpuconsole.model.snapshot import Snapshot, decode
from gpuconsole.model.state import ClusterState
from gpuconsole.sim.engine import policy_of_snapshot
from gpuconsole.store import queries
from gpuconsole.store import recorder as gpus
from gpuconsole.store import recorder as sessions
from gpuconsole.store.schema import earlier_sessions
from tests.support.command_line import Line
from tests.support.recorded_histories import audit_log, event_count

DATA = Path(__file__).parent / "data"
SNAPSHOTS = sorted(file.name.removesuffix(".json.gz") for file in DATA.glob("*.json.gz"))
END = parse_time("2026-01-05T09:21:00Z")
"""When the second session of the history ended."""


def content(name: str) -> bytes:
    return gzip.decompress((DATA / f"{name}.json.gz").read_bytes())


def snapshot(name: str) -> Snapshot:
    return ClusterState.from_file(decode(content(name))).freeze()


def unpacked(name: str) -> Path:
    """The file in the folder of the test, as a user has it."""
    file = Path(f"{name}.json")
    file.write_bytes(content(name))
    return file


@pytest.fixture
def history(gpuconsole: Line) -> Path:
    """The old history, where the commands look for it."""
    file = Path("state/history.db")
    file.parent.mkdir()
    file.write_bytes(gzip.decompress((DATA / "history.db.gz").read_bytes()))
    return file


def lost(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """What of an old document the new one has not, or has with another value. It may have more."""
    match old, new:
        case dict(), dict():
            for key, value in old.items():
                yield from lost(value, new[key], f"{path}.{key}") if key in new else [f"{path}.{key}"]
        case list(), list() if len(old) == len(new):
            for number, (before, after) in enumerate(zip(old, new, strict=True)):
                yield from lost(before, after, f"{path}[{number}]")
        case _:
            if old != new:
                yield f"{path}: {old!r} is now {new!r}"


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_nothing_of_a_snapshot_is_lost(name: str) -> None:
    """It is read, and written again: each of its values is there, under its name."""
    file = decode(content(name))
    before, after = json.loads(content(name)), json.loads(msgspec.json.encode(file))
    assert list(lost(before, after)) == []
    assert list(lost(before["policy"], json.loads(msgspec.json.encode(policy_of_snapshot(file))))) == []


def test_every_kind_of_object_of_that_version_is_in_one_of_them() -> None:
    assert len({type(thing) for thing in decode(content("every-field")).objects}) == 43


COUNTS: dict[str, dict[str, int]] = {
    "burst-karpenter": {"namespaces": 1, "nodes": 1, "node_pools": 1, "node_groups": 1, "jobs": 8, "pods": 8},
    "clique": {
        "namespaces": 1,
        "workload_priority_classes": 2,
        "topologies": 1,
        "nodes": 4,
        "flavors": 1,
        "cluster_queues": 1,
        "local_queues": 1,
        "jobs": 4,
        "workloads": 4,
        "pods": 4,
        "running": 4,
    },
    "default": {
        "namespaces": 5,
        "workload_priority_classes": 3,
        "topologies": 1,
        "nodes": 24,
        "flavors": 3,
        "cohorts": 2,
        "cluster_queues": 5,
        "local_queues": 5,
        "jobs": 52,
        "workloads": 52,
        "pods": 65,
        "admitted": 1,
        "finished": 11,
        "pending": 9,
        "running": 31,
    },
    "multikueue": {
        "namespaces": 1,
        "nodes": 1,
        "flavors": 1,
        "multikueue_clusters": 2,
        "multikueue_configs": 1,
        "admission_checks": 1,
        "cluster_queues": 1,
        "local_queues": 1,
        "jobs": 1,
        "workloads": 1,
        "running": 1,
    },
    "org-cohort": {
        "namespaces": 2,
        "nodes": 3,
        "flavors": 1,
        "cluster_queues": 2,
        "local_queues": 2,
        "jobs": 5,
        "workloads": 5,
        "pods": 4,
        "pending": 1,
        "running": 4,
    },
    "reclaim-kai": {"namespaces": 1, "nodes": 2, "kai_queues": 3, "pods": 8},
    "reclaim-volcano": {
        "namespaces": 1,
        "priority_classes": 1,
        "nodes": 2,
        "volcano_queues": 2,
        "pod_groups": 2,
        "jobs": 2,
        "pods": 12,
    },
    "seven-1g": {"namespaces": 1, "nodes": 1, "pods": 8},
}
"""Name → objects by table, and workloads by phase."""


@pytest.mark.parametrize("name", COUNTS)
def test_a_snapshot_has_its_cluster(name: str) -> None:
    cluster = snapshot(name)
    tables = {table: len(getattr(cluster, table)) for table in TABLES.values()}
    phases = Counter(phase_of(cluster, workload).value for workload in cluster.workloads.all())
    assert {table: count for table, count in tables.items() if count} | dict(phases) == COUNTS[name]


IDLE: dict[str, dict[str, tuple[int, int]]] = {
    "burst-karpenter": {"GPU": (8, 0)},
    "clique": {"GPU": (32, 0)},
    "default": {"GPU": (192, 16)},
    "multikueue": {"GPU": (8, 8)},
    "org-cohort": {"GPU": (24, 2)},
    "reclaim-kai": {"GPU": (8, 0)},
    "reclaim-volcano": {"GPU": (8, 0)},
    "seven-1g": {"MIG 1g.10gb instance": (7, 0)},
}
"""Name → GPUs or their parts by unit: all, and idle ones."""


@pytest.mark.parametrize("name", COUNTS)
def test_slots_of_a_snapshot(gpuconsole: Line, name: str) -> None:
    result = gpuconsole("slots", "--snapshot", unpacked(name), "-o", "json")
    answer = json.loads(result.out)["answer"]
    units = [answer["cluster"], *answer["others"]]
    assert {one["unit"]: (one["gpus"], one["idle"]) for one in units} == IDLE[name]


ENDED: dict[str, tuple[int, dict[str, int]]] = {
    "burst-karpenter": (0, {"capacity": 1}),
    "clique": (0, {}),
    "default": (
        20,
        {
            "admitted": 16,
            "evicted": 4,
            "finished": 13,
            "gang-waiting": 1,
            "pending": 106,
            "pod-bound": 23,
            "preempted": 4,
            "requeued": 4,
            "started": 16,
            "submitted": 8,
        },
    ),
    "multikueue": (0, {}),
    "org-cohort": (0, {}),
    "reclaim-kai": (0, {}),
    "reclaim-volcano": (0, {"gang-waiting": 1, "pod-bound": 4, "started": 1}),
    "seven-1g": (0, {}),
}
"""Name → events of the next ten minutes."""


@pytest.mark.parametrize("name", COUNTS)
def test_a_simulation_goes_on_from_a_snapshot(gpuconsole: Line, name: str) -> None:
    result = gpuconsole("simulate", "--snapshot", unpacked(name), "--until", "10m", "-o", "json")
    assert result.status == 0
    document = json.loads(result.out)
    assert (document["seed"], document["counts"]) == ENDED[name]


RECLAIMED = {
    "time": "2026-01-05T09:20:00Z",
    "victim": "research/job-rlhf-e06a1",
    "victim_queue": "cq-research",
    "victim_path": "/org-cohort/cq-research",
    "victim_priority": 0,
    "gpus": 6,
    "unit": "GPU",
    "by": "prod/job-serve-more-9f642",
    "by_queue": "cq-prod",
    "by_path": "/org-cohort/cq-prod",
    "by_priority": 0,
    "reason": "InCohortReclamation",
    "lost_gpu_hours": 6.0,
    "cost": 13.26,
    "freed_after_seconds": 1.0,
    "by_known": True,
    "by_admitted": "2026-01-05T09:20:01Z",
    "in_vain": False,
    "nth": 1,
    "chain": ["research/job-rlhf-e06a1", "prod/job-serve-more-9f642"],
}
"""The preemption in `org-cohort`."""


def test_preemptions_of_a_snapshot(gpuconsole: Line) -> None:
    document = json.loads(gpuconsole("preemptions", "--snapshot", unpacked("org-cohort"), "-o", "json").out)
    (row,) = document["answer"]["preemptions"]
    assert (document["mode"], document["time"], document["age_seconds"]) == ("saved", "2026-01-05T09:21:00Z", None)
    assert {name: row[name] for name in RECLAIMED} == RECLAIMED


def test_questions_about_a_snapshot(gpuconsole: Line) -> None:
    file = unpacked("org-cohort")
    why = json.loads(gpuconsole("why", "research/rlhf", "--snapshot", file, "-o", "json").out)["answer"]
    assert (why["code"], why["cluster_queue"], why["position"]["in_cluster_queue"]) == ("quota", "cq-research", 1)
    assert [(room["needed"], room["available"], room["short"]) for room in why["arithmetic"]] == [(6, 2, 4)]
    users = [(user["workload"], user["amount"]) for user in why["arithmetic"][0]["users"]]
    assert users == [
        ("prod/job-serve-73e13", 8),
        ("prod/job-serve-more-9f642", 8),
        ("research/job-llm-ft-7b62f", 4),
        ("research/job-embed-265a9", 2),
    ]
    shares = json.loads(gpuconsole("shares", "--snapshot", file, "-o", "json").out)["answer"]["kueue"]
    assert {one["name"]: one["share"] for one in shares["tree"]} == {
        "org-cohort": "0",
        "cq-prod": "0",
        "cq-research": "0",
    }
    (forecast,) = json.loads(gpuconsole("forecast", "--snapshot", file, "-o", "json").out)["answer"]["forecast"]
    assert (forecast["workload"], forecast["fate"], forecast["gpus"]) == ("research/job-rlhf-e06a1", "waits", 6)


def test_preemptions_of_the_history(gpuconsole: Line, history: Path) -> None:
    document = json.loads(gpuconsole("preemptions", "--history", "-o", "json").out)
    (row,) = document["answer"]["preemptions"]
    assert (document["source"], document["mode"], document["time"]) == ("prod", "recorded", "2026-01-05T09:20:30Z")
    assert {name: row[name] for name in RECLAIMED} == RECLAIMED
    assert [(one["workload"], one["verdict"]) for one in row["choice"]["considered"]] == [
        ("research/job-rlhf-e06a1", "chosen"),
        ("research/job-embed-265a9", "not-needed"),
        ("research/job-llm-ft-7b62f", "not-needed"),
        ("prod/job-serve-73e13", "priority"),
    ]


def test_decisions_that_the_history_compared(gpuconsole: Line, history: Path) -> None:
    document = json.loads(gpuconsole("forecast", "--check", "--history", "-o", "json").out)
    assert document["answer"]["agreement"] == {
        "decisions": 33,
        "agreed": 21,
        "timing": 9,
        "order": 0,
        "unseen": 0,
        "race": 2,
        "memory": 1,
        "disagreement": 0,
        "part": 0.9091,
    }
    assert len(document["answer"]["differences"]) == 12
    assert document["answer"]["differences"][-1] == {
        "time": "2026-01-05T09:21:00Z",
        "workload": "prod/job-serve-73e13",
        "queue": "cq-prod",
        "foreseen": "pending",
        "fact": "admitted",
        "cause": "race",
        "detail": "a Node changed",
        "object": "Node a100-1",
        "span_seconds": 2.0,
    }


UNSEEN = "events may not be listed in namespace prod"


def test_sessions_of_the_history(history: Path) -> None:
    with earlier_sessions(history) as db:
        newest = sessions.newest(db)
        counts = [event_count(db, number) for number in (1, 2)]
        preempted = [queries.preemption_count(db, number, 2**62) for number in (1, 2)]
        lines = list(queries.of_workload(db, 2, "research/job-rlhf-e06a1").values())
        audit = audit_log(db, 2)
        losses = queries.losses(db, 2, 2**62)
        hour = queries.last_hour(db, 2, END, 2**62)
    assert newest == sessions.Kept(number=2, mode="LIVE", source="prod", last=END - 30 * SECOND, unseen=(UNSEEN,))
    assert (counts, preempted) == ([329, 27], [10, 1])
    assert [(line.what, (line.time - END) // SECOND, len(line.told)) for line in lines] == [
        (HistoryEventKind.SUBMITTED, -3660, 0),
        (HistoryEventKind.ADMITTED, -3660, 2),
        (HistoryEventKind.POD_BOUND, -3660, 0),
        (HistoryEventKind.STARTED, -3660, 0),
        (HistoryEventKind.PREEMPTED, -60, 2),
        (HistoryEventKind.EVICTED, -60, 1),
        (HistoryEventKind.REQUEUED, -59, 0),
        (HistoryEventKind.PENDING, -59, 1),
        (HistoryEventKind.PENDING, -59, 1),
    ]
    assert audit == [
        ("set-priority research/rlhf 5", "done", ""),
        ("drain a100-1", "refused", "the session is read-only"),
    ]
    assert losses == {("cq-research", "research/job-rlhf-e06a1"): LostWork(6.0, 13.26, 1, 0, 0)}
    assert (hour.admitted, hour.preempted, hour.lost_gpu_hours, hour.losses) == (1, 1, 6.0, 1)


def test_estimates_and_samples_of_the_history(history: Path) -> None:
    with earlier_sessions(history) as db:
        told = queries.estimates(db, "prod", 10)
        samples = gpus.kept(db, "prod", ["a100-1"], 0)
    interval = Interval(END, END + HOUR)
    assert told == [
        PastEstimate(workload="prod/job-serve-73e13", asked_at=END, median=END + MINUTE, interval=interval),
        PastEstimate(
            workload="research/job-rlhf-e06a1",
            asked_at=END,
            median=END + MINUTE,
            interval=interval,
            started=END + 2 * MINUTE,
        ),
    ]
    assert samples == [
        UtilizationSample("a100-1", END, ((0, -1), (1, -1)), bytes((40, 255))),
        UtilizationSample("a100-1", END + MINUTE, ((0, -1), (1, -1)), bytes((90, 10))),
    ]
