"""`gpuconsole slots`: what idle GPUs are good for, for people and for programs."""

import json
from pathlib import Path

import pytest

from gpuconsole.model.snapshot import Visibility, VisibilityGap, encode
from tests.support.command_line import Line
from tests.support.console_clusters import org_cohort, snapshot_of

CLUSTER = """
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {accelerator: nvidia-a100-80gb}}
status: {allocatable: {cpu: "64", memory: 512Gi, nvidia.com/gpu: 8, pods: 110}}
---
apiVersion: v1
kind: Node
metadata: {name: n2, labels: {accelerator: nvidia-a100-80gb}}
status: {allocatable: {cpu: "64", memory: 512Gi, nvidia.com/gpu: 8, pods: 110}}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  nodeName: n1
  containers: [{name: main, image: a, resources: {requests: {cpu: "4"}, limits: {nvidia.com/gpu: 3}}}]
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    return path


def test_slots_for_people(gpuconsole: Line, cluster: Path) -> None:
    assert gpuconsole("slots", cluster).lines == [
        "FLAVOR   NODES  GPUS  IDLE  LARGEST POD  LARGEST GANG   1  2  4  8  16  64",
        "cluster      2    16    13            8  3 × 4         13  6  3  1   0   0",
        "",
        "TYPICAL POD  CPU  MODEL  PERCENT  FITTING NODES",
        "3 GPUs       4.0  any        100              2",
        "",
        "0.0 of 13 idle GPUs are fragmented (0%)",
    ]


def test_slots_for_programs(gpuconsole: Line, cluster: Path) -> None:
    document = json.loads(gpuconsole("slots", cluster, "-o", "json").out)
    answer = document.pop("answer")
    assert document == {
        "kind": "Slots",
        "version": 4,
        "source": "cluster.yaml",
        "mode": "simulated",
        "time": "2026-01-05T08:00:00Z",
        "age_seconds": None,
        "assumed": [],
        "unknown": [],
    }
    assert answer["cluster"] == {
        "name": "cluster",
        "level": "",
        "unit": "GPU",
        "nodes": 2,
        "gpus": 16,
        "idle": 13,
        "largestPod": 8,
        "largestGang": {
            "flavor": "",
            "model": "a100-80gb",
            "unit": "GPU",
            "pods": 3,
            "gpus": 4,
            "byNodes": 3,
            "byQuota": None,
            "queue": "",
        },
        "slots": {"1": 13, "2": 6, "4": 3, "8": 1, "16": 0, "64": 0},
    }
    assert answer["fragments"] == {
        "idle": 13,
        "fragment": 0.0,
        "typical": [{"gpus": 3, "part": "", "cpu": 4000, "model": "", "percent": 100, "nodes": 2}],
        "percent": 0.0,
    }


def test_slots_after_a_while(gpuconsole: Line) -> None:
    first, later = (gpuconsole("slots", "--until", span).out for span in ("0s", "2h"))
    assert first != later


def test_a_cluster_without_pods_has_no_typical_ones(gpuconsole: Line, tmp_path: Path) -> None:
    path = tmp_path / "nodes.yaml"
    path.write_text(CLUSTER.rpartition("---")[0])
    assert gpuconsole("slots", path).lines[-1] == "fragmentation unknown: no pods to measure it with"


@pytest.mark.parametrize(("table", "bound"), [("nodes", "at least"), ("pods", "at most")])
def test_of_a_cluster_in_which_one_object_makes_no_sense_bounds_are_told(
    gpuconsole: Line, tmp_path: Path, table: str, bound: str
) -> None:
    saved, why = tmp_path / "s.json", f"1 of {table} could not be read"
    snapshot = snapshot_of(org_cohort())
    snapshot.seen = Visibility(gaps=(VisibilityGap(table=table, resource=table, why=why, partly=True),))
    saved.write_bytes(encode(snapshot))
    result = gpuconsole("slots", "--snapshot", saved, "-o", "json")
    document = json.loads(result.out)
    answer = document["answer"]
    assert (result.status, document["unknown"]) == (0, [why])
    assert (answer["bound"], answer["fragments"], answer["cluster"]["idle"]) == (bound, None, 4)
    assert {one["queue"] for one in answer["queues"]} == {"cq-prod", "cq-research"}
