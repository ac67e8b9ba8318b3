"""`gpuconsole shadow`: whether the engine decides as a recorded Kueue did, for people and for programs."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import Line

BEGIN = "2026-01-05T08:00:00Z"
GPU = "nvidia.com/gpu"


def kueue(kind: str, name: str, spec: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "creationTimestamp": BEGIN}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, "spec": spec}


FLAVORS = [{"name": name, "resources": [{"name": GPU, "nominalQuota": "8"}]} for name in ("a100", "h100")]
QUEUE = kueue(
    "ClusterQueue",
    "cq",
    {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": [GPU], "flavors": FLAVORS}]},
)
CONTAINER = {"name": "c", "image": "i", "resources": {"requests": {GPU: "8"}}}
POD_SET = {"name": "main", "count": 1, "template": {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}}


def workload(version: int, flavor: str = "") -> dict[str, Any]:
    """A workload of 8 GPUs, pending or with its quota reserved."""
    made = kueue("Workload", "train", {"queueName": "lq", "active": True, "podSets": [POD_SET]}, "team")
    made["metadata"]["resourceVersion"] = str(version)
    if flavor:
        assigned = {"name": "main", "flavors": {GPU: flavor}, "resourceUsage": {GPU: "8"}, "count": 1}
        made["status"] = {
            "admission": {"clusterQueue": "cq", "podSetAssignments": [assigned]},
            "conditions": [
                {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "lastTransitionTime": BEGIN}
            ],
        }
    return made


def recording(folder: Path, flavor: str, *more: dict[str, Any]) -> Path:
    lists = {
        "Namespace": [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}],
        "ResourceFlavor": [kueue("ResourceFlavor", name, {}) for name in ("a100", "h100")],
        "ClusterQueue": [QUEUE],
        "LocalQueue": [kueue("LocalQueue", "lq", {"clusterQueue": "cq"}, "team")],
        "Workload": [],
    }
    lines: list[dict[str, Any]] = [{"list": kind, "items": items} for kind, items in lists.items()]
    lines.append({"t": 1.0, "kind": "Workload", "type": "ADDED", "object": workload(2)})
    lines.append({"t": 1.5, "kind": "Workload", "type": "MODIFIED", "object": workload(3, flavor)})
    file = folder / "kueue.jsonl.gz"
    file.write_bytes(gzip.compress("\n".join(map(json.dumps, (*lines, *more))).encode()))
    return file


def test_agreement_for_people(gpuconsole: Line, tmp_path: Path) -> None:
    result = gpuconsole("shadow", recording(tmp_path, "a100"))
    assert result.status == 0
    assert result.lines[:4] == [
        "1 Kueue decision in 1s: the engine agrees with 1 of 1 known ones (100.0%), 0 unknown",
        "",
        "DECISION        DECISIONS  AGREED  UNKNOWN",
        "quota-reserved          1       1        0",
    ]
    assert result.lines[-1] == (
        "Kueue's Configuration is not recorded: fair sharing is off, and waitForPodsReady is off (--kueue-config)"
    )


def test_a_disagreement_for_programs(gpuconsole: Line, tmp_path: Path) -> None:
    result = gpuconsole("shadow", recording(tmp_path, "h100"), "-o", "json")
    assert result.status == 1
    found = json.loads(result.out)
    assert (found["decisions"], found["agreed"], found["unknown"], found["agreement"]) == (1, 0, 0, 0.0)
    assert found["disagreements"] == [
        {
            "time": "2026-01-05T08:00:00.500000Z",
            "workload": "team/train",
            "queue": "cq",
            "kind": "quota-reserved",
            "expected": f"reserves quota: main×1 {GPU}=a100",
            "actual": f"reserves quota: main×1 {GPU}=h100",
            "cause": "other-flavors",
        }
    ]


def test_changes_after_the_end_of_a_watch_are_left_out_and_named(gpuconsole: Line, tmp_path: Path) -> None:
    file = recording(tmp_path, "h100", {"t": 1.2, "lost": "Workload"})
    result = gpuconsole("shadow", file)
    assert result.status == 0
    assert result.lines[0] == "no Kueue decisions to compare"
    assert result.lines[-1] == "the watch of Workload ended early; later changes are left out"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("not JSON", "1: not a line of a recording: JSON is malformed"),
        ('{"t": 1, "kind": "Pod"}', 'no recording: it has no line with the list of a kind ({"list": …})'),
    ],
)
def test_a_file_that_is_no_recording_is_refused_with_the_line(
    gpuconsole: Line, tmp_path: Path, text: str, problem: str
) -> None:
    file = tmp_path / "broken.jsonl"
    file.write_text(text)
    result = gpuconsole("shadow", file)
    assert result.status == 2
    assert problem in result.err


def test_a_recording_or_a_live_cluster_is_needed(gpuconsole: Line) -> None:
    result = gpuconsole("shadow")
    assert result.status == 2
    assert "shadow needs one recording (FILE.jsonl or FILE.jsonl.gz), or --live" in result.err


def test_what_is_followed_is_saved_for_its_owner_only_and_replayed_alike(gpuconsole: Line, tmp_path: Path) -> None:
    target = tmp_path / "saved.jsonl"
    first = gpuconsole("shadow", recording(tmp_path, "h100"), "--save", target)
    assert first.status == 1
    assert f"{target}: 2 changes, 0.0 MB; names are replaced" in first.err
    assert target.stat().st_mode & 0o777 == 0o600
    again = gpuconsole("shadow", target)
    assert (again.status, again.lines[:4]) == (1, first.lines[:4])
    assert "is not recorded" not in again.out


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("there.jsonl", "there.jsonl: File exists; name a new file in a folder that exists"),
        ("new.jsonl.gz", "recordings are saved without compression; name a file such as new.jsonl"),
        ("nowhere/new.jsonl", "new.jsonl: No such file or directory"),
    ],
)
def test_a_recording_needs_a_new_file(gpuconsole: Line, tmp_path: Path, name: str, problem: str) -> None:
    (tmp_path / "there.jsonl").write_text("kept")
    result = gpuconsole("shadow", recording(tmp_path, "h100"), "--save", tmp_path / name)
    assert result.status == 2
    assert problem in result.err
    assert (tmp_path / "there.jsonl").read_text() == "kept"


def test_a_recording_that_never_began_leaves_no_file(gpuconsole: Line, tmp_path: Path) -> None:
    result = gpuconsole("shadow", tmp_path / "nothing.jsonl", "--save", tmp_path / "new.jsonl")
    assert result.status == 2
    assert not (tmp_path / "new.jsonl").exists()
