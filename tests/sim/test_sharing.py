"""Scenarios whose GPUs are divided and shared: what nodes offer then, who runs, who is refused."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gpuconsole.model.cluster import Node, Pod, PodPhase
from gpuconsole.model.gpus.mig import MigInstance
from gpuconsole.model.gpus.models import NETWORK_BANDWIDTH, NVLINK_BANDWIDTH, WIRING
from gpuconsole.model.gpus.sharing import device
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.scenario import build_simulation, load_scenario
from gpuconsole.sim.scenario_form import ScenarioError

GPU = "nvidia.com/gpu"
T4, A100 = "Tesla-T4", "NVIDIA-A100-SXM4-80GB"


def machine(name: str = "n1", gpus: int = 2, product: str = T4) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": product, "pool": name}},
        "status": {"allocatable": {"cpu": "64", "memory": "512Gi", GPU: str(gpus), "pods": "110"}},
    }


def work(name: str, resource: str = GPU, count: int = 1) -> dict[str, Any]:
    container = {"name": "main", "image": "example.com/work:1", "resources": {"limits": {resource: str(count)}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


def run(sharing: object, nodes: Iterable[dict[str, Any]], pods: Iterable[dict[str, Any]] = ()) -> Simulation:
    document = {
        "engine": {"admission": "none", "sharing": sharing},
        "objects": list(nodes),
        "steps": [{"create": list(pods)}],
    }
    simulation = build_simulation(load_scenario([document]))
    simulation.advance(simulation.now + 1_000_000)
    return simulation


def offered(simulation: Simulation, name: str = "n1") -> dict[str, int]:
    node: Node | None = simulation.snapshot().nodes.get(name)
    assert node is not None
    return {key: count for key, count in node.allocatable.items() if key.startswith("nvidia.com/")}


def pod(simulation: Simulation, name: str) -> Pod:
    found: Pod | None = simulation.snapshot().pods.get(f"default/{name}")
    assert found is not None
    return found


def test_pods_take_turns_on_gpus_that_are_time_sliced() -> None:
    sharing = {"timeSlicing": {"resources": [{"name": GPU, "replicas": 4}]}}
    simulation = run(sharing, [machine()], [work(f"p{n}") for n in range(9)])
    assert offered(simulation) == {GPU: 8}
    labels = simulation.snapshot().nodes["n1"].labels
    assert labels["nvidia.com/gpu.product"] == "Tesla-T4-SHARED"
    turns = [device(index, 8, labels) for n in range(8) for index in pod(simulation, f"p{n}").gpus]
    assert sorted(turns) == [0, 0, 0, 0, 1, 1, 1, 1]
    assert pod(simulation, "p8").node == ""


def test_turns_that_are_renamed_are_asked_for_by_their_name() -> None:
    sharing = {"timeSlicing": {"renameByDefault": True, "resources": [{"name": GPU, "replicas": 2}]}}
    simulation = run(sharing, [machine()], [work("whole"), work("turn", f"{GPU}.shared")])
    assert offered(simulation) == {f"{GPU}.shared": 4}
    assert (pod(simulation, "whole").node, pod(simulation, "turn").node) == ("", "n1")
    assert pod(simulation, "turn").gpus == (0,)


@pytest.mark.parametrize(
    "sharing",
    [
        {"timeSlicing": {"failRequestsGreaterThanOne": True, "resources": [{"replicas": 4}]}},
        {"mps": {"resources": [{"replicas": 4}]}},
    ],
)
def test_a_pod_that_asks_for_two_shared_gpus_is_refused_by_its_node(sharing: object) -> None:
    simulation = run(sharing, [machine()], [work("one"), work("two", count=2)])
    refused = pod(simulation, "two")
    assert (refused.phase, refused.reason) == (PodPhase.FAILED, "UnexpectedAdmissionError")
    assert refused.message == (
        "Allocate failed due to rpc error: code = Unknown desc = request for 'nvidia.com/gpu: 2' too large: "
        "maximum request size for shared resources is 1, which is unexpected"
    )
    assert pod(simulation, "one").phase is PodPhase.RUNNING


def test_nodes_are_divided_and_shared_by_the_first_rule_that_fits() -> None:
    sharing = [
        {"nodeSelector": {"pool": "n1"}, "mig": {"config": "all-balanced"}},
        {"nodeSelector": {"pool": "n2"}, "mig": {"strategy": "single", "config": "all-3g.40gb"}},
        {"timeSlicing": {"resources": [{"replicas": 2}]}},
    ]
    simulation = run(sharing, [machine(f"n{number}", product=A100) for number in (1, 2, 3)])
    assert [offered(simulation, f"n{number}") for number in (1, 2, 3)] == [
        {"nvidia.com/mig-1g.10gb": 4, "nvidia.com/mig-2g.20gb": 2, "nvidia.com/mig-3g.40gb": 2},
        {GPU: 4},
        {GPU: 4},
    ]
    assert simulation.snapshot().nodes["n1"].labels["nvidia.com/mig.config"] == "all-balanced"


def test_instances_can_be_time_sliced_too() -> None:
    sharing = {
        "mig": {"config": "all-7g.80gb"},
        "timeSlicing": {"resources": [{"name": "nvidia.com/mig-7g.80gb", "replicas": 3}]},
    }
    assert offered(run(sharing, [machine(product=A100)])) == {"nvidia.com/mig-7g.80gb": 6}


def test_gpus_that_are_divided_as_pods_come_serve_big_and_small_ones() -> None:
    sharing = {"mig": {"config": "all-enabled", "dynamic": True}}
    pods = [
        work("big", "nvidia.com/mig-4g.40gb"),
        work("small", "nvidia.com/mig-1g.10gb"),
        work("whole", "nvidia.com/mig-7g.80gb"),
    ]
    simulation = run(sharing, [machine(gpus=1, product=A100)], pods)
    assert [str(pod(simulation, name).slices) for name in ("big", "small")] == [
        "(MigInstance(gpu=0, profile='4g.40gb', start=0),)",
        "(MigInstance(gpu=0, profile='1g.10gb', start=6),)",
    ]
    assert pod(simulation, "whole").node == ""


def test_a_saved_simulation_keeps_who_owns_which_instance() -> None:
    simulation = run(
        {"mig": {"config": "all-1g.10gb"}}, [machine(gpus=1, product=A100)], [work("p", "nvidia.com/mig-1g.10gb")]
    )
    assert pod(Simulation.load(simulation.save()), "p").slices == pod(simulation, "p").slices != ()


@pytest.mark.parametrize("engine", ["kube-scheduler", "Volcano", "KAI"])
def test_a_running_pod_that_does_not_name_its_instances_is_given_some(engine: str) -> None:
    running = work("p", "nvidia.com/mig-1g.10gb")
    running["spec"]["nodeName"] = "n1"
    document = {
        "engine": {
            "admission": "none",
            "placement": {} if engine == "kube-scheduler" else {"engine": engine},
            "sharing": {"mig": {"config": "all-1g.10gb"}},
        },
        "objects": [machine(gpus=1, product=A100), running],
    }
    simulation = build_simulation(load_scenario([document]))
    simulation.advance(simulation.now + 1_000_000)
    assert pod(simulation, "p").slices == (MigInstance(0, "1g.10gb", 0),)


def test_a_node_that_joins_later_is_shared_alike() -> None:
    sharing = {"timeSlicing": {"resources": [{"replicas": 4}]}}
    document = {"engine": {"admission": "none", "sharing": sharing}, "steps": [{"create": [machine()]}]}
    simulation = build_simulation(load_scenario([document]))
    simulation.advance(simulation.now + 1_000_000)
    assert offered(simulation) == {GPU: 8}


CUSTOM = """
version: v1
mig-configs:
  half:
    - {devices: [0], mig-enabled: true, mig-devices: {3g.40gb: 2}}
    - {devices: [1], mig-enabled: false}
"""


def test_a_file_of_mig_parted_divides_some_gpus(tmp_path: Path) -> None:
    (tmp_path / "mig.yaml").write_text(CUSTOM)
    document = {
        "engine": {"admission": "none", "sharing": {"mig": {"config": "half", "configs": "mig.yaml"}}},
        "objects": [machine(product=A100)],
    }
    simulation = build_simulation(load_scenario([document], folder=tmp_path))
    assert offered(simulation) == {GPU: 1, "nvidia.com/mig-3g.40gb": 2}


def test_how_gpus_are_joined_is_said_once_for_all_nodes_that_do_not_say_it() -> None:
    own = machine("n2")
    own["metadata"]["annotations"] = {NETWORK_BANDWIDTH: "100"}
    links = {"wiring": "nvlink=0-1", "nvlink": 900, "network": 50}
    document = {"engine": {"capacity": {"links": links}}, "objects": [machine("n1"), own]}
    nodes = build_simulation(load_scenario([document])).snapshot().nodes
    said = {WIRING: "nvlink=0-1", NVLINK_BANDWIDTH: "900"}
    assert dict(nodes["n1"].annotations) == said | {NETWORK_BANDWIDTH: "50"}
    assert dict(nodes["n2"].annotations) == said | {NETWORK_BANDWIDTH: "100"}


@pytest.mark.parametrize(
    ("links", "problem"),
    [
        ({"wiring": "nvlink=a"}, "engine.capacity.links.wiring: 'nvlink=a' is not nvlink=0-3,4-7 switch=0-1,… numa=…"),
        ({"wiring": "bus=0-1"}, "engine.capacity.links.wiring: 'bus=0-1' is not nvlink=0-3,4-7 switch=0-1,… numa=…"),
        ({"network": 0}, "engine.capacity.links: nvlink and network are GB/s, 1 or more"),
    ],
)
def test_links_that_make_no_sense_are_named(links: object, problem: str) -> None:
    with pytest.raises(ScenarioError) as error:
        load_scenario([{"engine": {"capacity": {"links": links}}}])
    assert str(error.value) == f"scenario: {problem}"


@pytest.mark.parametrize(
    ("sharing", "problem"),
    [
        (
            {"timeSlicing": {}, "mps": {}},
            "engine.sharing: timeSlicing and mps exclude each other; leave one of them out",
        ),
        (
            [{"timeSlicing": {"resources": [{"replicas": 1}]}}],
            "engine.sharing[0].timeSlicing.resources[0].replicas: 1 shares nothing; write 2 or more",
        ),
        (
            {"mps": {"resources": [{"name": "nvidia.com/mig-1g.10gb"}]}},
            "engine.sharing.mps.resources[0].name: MPS shares whole GPUs only; write nvidia.com/gpu",
        ),
        (
            {"mig": {"dynamic": True, "strategy": "single"}},
            "engine.sharing.mig.dynamic: instances that come and go have names of their own; write strategy: mixed",
        ),
        ({"mig": {"config": "all-1g.5gb"}}, "engine.sharing.mig: node n1: there is no configuration all-1g.5gb"),
        (
            {"mig": {"strategy": "single"}},
            "engine.sharing.mig: node n1 offers nothing under single: more than one MIG device type present on node",
        ),
        (
            {"mig": {"configs": {"version": "v1", "mig-configs": {"a": [{"devices": "all"}]}}, "config": "a"}},
            "engine.sharing.mig.configs: mig-configs.a[0].mig-enabled: mig-enabled is missing; write true or false",
        ),
        (
            {"mig": {"configs": "mig.yaml"}},
            "engine.sharing.mig.configs: a file is relative to the scenario's own, and this one has none; write it out",
        ),
    ],
)
def test_what_is_wrong_is_said(sharing: object, problem: str) -> None:
    document = {"engine": {"sharing": sharing}, "objects": [machine(product=A100)]}
    with pytest.raises(ScenarioError) as error:
        load_scenario([document])
    assert f"scenario: {problem}" in str(error.value).splitlines()


def test_a_gpu_without_mig_cannot_be_divided() -> None:
    document = {"engine": {"sharing": {"mig": {"config": "all-enabled"}}}, "objects": [machine()]}
    with pytest.raises(ScenarioError, match=r"node n1: GPU 0 \(t4\) has no MIG"):
        load_scenario([document])
