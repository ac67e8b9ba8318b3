"""`gpuconsole mig`: who has to leave for another MIG configuration."""

import json
from pathlib import Path

import pytest

from tests.support.command_line import Line

SCENARIO = """
name: mig
engine:
  admission: none
  sharing: [{nodeSelector: {pool: mig}, mig: {config: all-3g.40gb}}]
objects:
  - &node
    apiVersion: v1
    kind: Node
    metadata: {name: n1, labels: {pool: mig, nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}}
    status: {allocatable: {cpu: "64", memory: 512Gi, nvidia.com/gpu: "2", pods: "110"}}
  - {<<: *node, metadata: {name: n2, labels: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}}}
  - {<<: *node, metadata: {name: n3, labels: {nvidia.com/gpu.product: NVIDIA-L4}}}
steps:
  - create:
      - apiVersion: v1
        kind: Pod
        metadata: {name: half}
        spec: {containers: [{name: main, image: a, resources: {limits: {nvidia.com/mig-3g.40gb: "3"}}}]}
      - apiVersion: v1
        kind: Pod
        metadata: {name: whole}
        spec:
          nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}
          containers: [{name: main, image: a, resources: {limits: {nvidia.com/gpu: "1"}}}]
"""
OWN = """
version: v1
mig-configs:
  mine:
    - {devices: [1], mig-enabled: true, mig-devices: {3g.40gb: 1, 1g.10gb: 2}}
    - {devices: [0], mig-enabled: true, mig-devices: {3g.40gb: 2}}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(SCENARIO)
    return path


def test_who_has_to_leave_for_people(gpuconsole: Line, cluster: Path) -> None:
    found = gpuconsole("mig", cluster, "--until", "1s", "--config", "all-balanced")
    assert (found.status, found.lines) == (
        0,
        [
            "NODE  GPU  NOW          AFTER                            RESET  EVICTED",
            "n1      0  2 × 3g.40gb  3g.40gb + 2g.20gb + 2 × 1g.10gb  no     default/half",
            "n1      1  2 × 3g.40gb  3g.40gb + 2g.20gb + 2 × 1g.10gb  no     default/half",
            "n2      0  whole        3g.40gb + 2g.20gb + 2 × 1g.10gb  yes    default/whole",
            "n2      1  whole        3g.40gb + 2g.20gb + 2 × 1g.10gb  yes    none",
        ],
    )


def test_who_has_to_leave_for_a_configuration_of_ones_own_for_programs(
    gpuconsole: Line, cluster: Path, tmp_path: Path
) -> None:
    (tmp_path / "own.txt").write_text(OWN)
    options = ("--until", "1s", "--config", "mine", "--mig-parted", tmp_path / "own.txt", "-o", "json")
    nodes = json.loads(gpuconsole("mig", cluster, *options).out)["answer"]
    assert [(node["node"], [gpu["gpu"] for gpu in node["gpus"]]) for node in nodes] == [("n1", [1]), ("n2", [0, 1])]
    assert nodes[0]["gpus"][0] == {
        "gpu": 1,
        "now": "2 × 3g.40gb",
        "then": "3g.40gb + 2 × 1g.10gb",
        "reset": False,
        "leavers": [],
    }


def test_nodes_that_cannot_be_divided_so_are_named(gpuconsole: Line, cluster: Path) -> None:
    found = gpuconsole("mig", cluster, "--config", "all-1g.5gb")
    assert (found.status, found.lines) == (
        1,
        [
            "no changes",
            "n1: a100-80gb has no configuration all-1g.5gb",
            "n2: a100-80gb has no configuration all-1g.5gb",
        ],
    )


def test_a_file_that_cannot_be_used_is_named(gpuconsole: Line, cluster: Path, tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("version: v1\nmig-configs: {a: [{devices: all}]}\n")
    found = gpuconsole("mig", cluster, "--config", "a", "--mig-parted", tmp_path / "own.txt")
    assert found.status == 2
    assert found.err.endswith("own.txt:2: mig-configs.a[0].mig-enabled: mig-enabled is missing; write true or false\n")
