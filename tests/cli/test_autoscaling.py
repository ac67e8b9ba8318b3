"""Clusters that grow and shrink, by command line: the catalogue, the pools at the end, and who provides nodes."""

import json
from pathlib import Path

import pytest

from gpuconsole.cli.options import OpenRequest
from gpuconsole.cli.sources import FindingsError, open_simulation
from gpuconsole.sim.policy import FixedCapacity, KarpenterPolicy
from tests.support.command_line import Line

SCENARIO = """
name: small
engine: {admission: none, capacity: {kind: karpenter, spot: {interruptions: 0}}}
objects:
  - apiVersion: karpenter.sh/v1
    kind: NodePool
    metadata: {name: gpu}
    spec:
      template:
        spec:
          nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
          requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}]
steps:
  - create:
      - apiVersion: v1
        kind: Pod
        metadata: {name: p}
        spec: {containers: [{name: main, image: i, resources: {limits: {nvidia.com/gpu: "1"}}}]}
"""
CATALOGUE = """
zones: [z]
gpus: {x: {product: X, memory: 16Gi}}
types: {dear.1: {cpu: 8, memory: 32Gi, gpus: 1, gpu: x, onDemand: 60}}
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    file = tmp_path / "small.yaml"
    file.write_text(SCENARIO)
    return file


def test_a_scenario_that_names_no_catalogue_gets_the_one_that_comes_along(scenario: Path) -> None:
    opened = open_simulation(OpenRequest(files=(str(scenario),), seed=0))
    capacity = opened.simulation.policy.capacity
    assert isinstance(capacity, KarpenterPolicy)
    assert "g5.xlarge" in capacity.catalogue.types
    assert (opened.notices, opened.about.policy) == ((), "binpack · gangs on")
    assert opened.about.engines.capacity.name == "Karpenter"


def test_pools_are_told_at_the_end(gpuconsole: Line, scenario: Path, tmp_path: Path) -> None:
    file = tmp_path / "sold.yaml"
    file.write_text(CATALOGUE)
    result = gpuconsole("simulate", str(scenario), "--catalogue", str(file), "--until", "61s")
    assert result.out.splitlines()[:2] == [
        "POOL  AUTOSCALER  NODES  GPUS  SPOT  LAUNCHED  REMOVED  INTERRUPTED  USD/H  IDLE USD/H  USD",
        "gpu   karpenter       1  1/1      0         1        0            0  60.00  0.00        1.00",
    ]
    told = json.loads(
        gpuconsole("simulate", str(scenario), "--catalogue", str(file), "--until", "61s", "-o", "json").out
    )
    assert [(pool["name"], pool["launched"], pool["spent"]) for pool in told["pools"]] == [("gpu", 1, 1.0)]


def test_a_catalogue_that_is_wrong_is_named_with_its_line(scenario: Path, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("zones: [z]\ntypes: {a.1: {onDemand: cheap}}\n")
    with pytest.raises(FindingsError, match=r"wrong\.yaml:2: types\[a\.1\]\.onDemand: 'cheap' is not a valid number"):
        open_simulation(OpenRequest(files=(str(scenario),), seed=0, catalogue=file))


POOL = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: gpu}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}]
"""
POD = """
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {containers: [{name: main, image: i, resources: {limits: {nvidia.com/gpu: "1"}}}]}
"""
PROVISIONS = (
    "gpuconsole: Karpenter provisions nodes for 1 NodePool from the built-in instance-type catalogue;"
    " --catalogue selects another one, engine.capacity in a scenario overrides this"
)


def test_karpenter_provisions_for_a_node_pool_among_the_manifests(gpuconsole: Line, tmp_path: Path) -> None:
    (tmp_path / "pool.yaml").write_text(POOL + POD)
    result = gpuconsole("simulate", str(tmp_path / "pool.yaml"), "--until", "5m", "--type", "pod-bound", "-o", "jsonl")
    assert [json.loads(line)["workload"] for line in result.out.splitlines()] == ["default/p"]
    assert result.err.splitlines() == [PROVISIONS]


def test_a_scenario_without_capacity_provisions_for_its_node_pools_with_the_catalogue_that_is_named(
    tmp_path: Path,
) -> None:
    (tmp_path / "sold.yaml").write_text(CATALOGUE)
    (tmp_path / "s.yaml").write_text("name: s\nfiles: [pool.yaml]\n")
    (tmp_path / "pool.yaml").write_text(POOL)
    opened = open_simulation(OpenRequest(files=(str(tmp_path / "s.yaml"),), seed=0, catalogue=tmp_path / "sold.yaml"))
    capacity = opened.simulation.policy.capacity
    assert isinstance(capacity, KarpenterPolicy)
    assert set(capacity.catalogue.types) == {"dear.1"}
    named = "Karpenter provisions nodes for 1 NodePool from the instance-type catalogue sold.yaml;"
    assert opened.notices == (f"{named} engine.capacity in a scenario overrides this",)


def test_a_scenario_that_says_capacity_is_taken_at_its_word(tmp_path: Path) -> None:
    (tmp_path / "pool.yaml").write_text(POOL)
    (tmp_path / "s.yaml").write_text("engine: {capacity: {gpusPerNode: 4}}\nfiles: [pool.yaml]\n")
    opened = open_simulation(OpenRequest(files=(str(tmp_path / "s.yaml"),), seed=0))
    assert isinstance(opened.simulation.policy.capacity, FixedCapacity)
    assert not any("Karpenter" in notice for notice in opened.notices)
