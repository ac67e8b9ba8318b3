"""A scenario that places its pods by Volcano: what is read, what is refused, what lives on in a saved simulation."""

from pathlib import Path
from typing import Any

import pytest

from gpuconsole.model.clock import MINUTE, SECOND
from gpuconsole.scheduling.kube.profile import PlacementPolicy
from gpuconsole.scheduling.volcano.config import HELM_CONF, VolcanoPolicy
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.scenario import Scenario, build_simulation, load_scenario
from gpuconsole.sim.scenario_form import ScenarioError

PREEMPTING = HELM_CONF.replace("allocate,", "allocate, preempt,")


def read(placement: dict[str, Any], folder: Path | None = None) -> Scenario:
    return load_scenario([{"engine": {"admission": "none", "placement": placement}}], folder=folder)


def test_volcano_is_what_helm_installs_unless_a_text_or_a_file_says_otherwise(tmp_path: Path) -> None:
    (tmp_path / "volcano-scheduler.conf").write_text(PREEMPTING)
    assert read({"engine": "Volcano"}).policy.placement == VolcanoPolicy(conf=HELM_CONF)
    assert read({"engine": "Volcano", "conf": PREEMPTING}).policy.placement == VolcanoPolicy(conf=PREEMPTING)
    by_file = read({"engine": "Volcano", "conf": "volcano-scheduler.conf"}, tmp_path)
    assert by_file.policy.placement == VolcanoPolicy(conf=PREEMPTING)
    assert read({}).policy.placement == PlacementPolicy()


PROBLEMS: dict[str, tuple[dict[str, Any], str]] = {
    "a configuration for another engine": (
        {"conf": HELM_CONF},
        "scenario: engine.placement.conf: engine.placement.conf:1: it holds no KubeSchedulerConfiguration; "
        "write kind: KubeSchedulerConfiguration",
    ),
    "an action that there is not": (
        {"engine": "Volcano", "conf": "actions: evict\ntiers: []\n"},
        "scenario: engine.placement.conf: engine.placement.conf:1: actions: unknown action 'evict'; "
        "one of enqueue, allocate, backfill, preempt, reclaim, shuffle, gangpreempt, gangreclaim",
    ),
    "gates of another engine": (
        {"featureGates": {"DynamicResourceAllocation": False}},
        "scenario: engine.placement.featureGates: only Volcano reads them; write engine: Volcano, or leave them out",
    ),
    "devices that are none": (
        {"engine": "Volcano", "devices": "nvidia:\n  knownMigGeometries: [{models: [A100]}]\n"},
        "scenario: engine.placement.devices: nvidia.knownMigGeometries has models and allowedGeometries: "
        "group, geometries",
    ),
    "a gate that changes nothing": (
        {"engine": "Volcano", "featureGates": {"Speed": True}},
        "scenario: engine.placement.featureGates.Speed: it changes nothing here; "
        "one of DynamicResourceAllocation, StorageCapacityScoring",
    ),
    "a file without a place": (
        {"engine": "Volcano", "conf": "volcano-scheduler.conf"},
        "scenario: engine.placement.conf: a file is relative to the scenario's own, and this one has none; "
        "write it out",
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_what_is_wrong_with_it_is_said(name: str) -> None:
    placement, problem = PROBLEMS[name]
    with pytest.raises(ScenarioError) as error:
        read(placement)
    assert str(error.value) == problem


def job(name: str, pods: int, *, queue: str = "default", least: int = 1) -> dict[str, Any]:
    container = {"name": "main", "image": "example.com/work:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    tasks = [{"name": "w", "replicas": pods, "template": template}]
    spec = {"schedulerName": "volcano", "queue": queue, "minAvailable": least, "tasks": tasks}
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def running(placement: dict[str, Any], *jobs: dict[str, Any]) -> Simulation:
    amounts = {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "4", "pods": "110"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": amounts}}
    engine = {"admission": "none", "placement": placement}
    steps = [{"advanceSeconds": 60 * number, "create": [one]} for number, one in enumerate(jobs)]
    return build_simulation(load_scenario([{"engine": engine, "objects": [node], "durations": "1h", "steps": steps}]))


def placed(simulation: Simulation) -> dict[str, tuple[int, ...]]:
    return {pod.name: pod.gpus for pod in simulation.snapshot().pods.all() if pod.node and not pod.done}


def test_a_job_of_volcano_is_let_in_then_its_pods_are_made_and_placed_together() -> None:
    simulation = running({"engine": "Volcano"}, job("a", 3, least=3), job("b", 2, least=2))
    simulation.advance(simulation.now + 2 * MINUTE)
    assert placed(simulation) == {"a-w-0": (0,), "a-w-1": (1,), "a-w-2": (2,)}
    phases = {group.name.partition("-")[0]: group.phase for group in simulation.snapshot().pod_groups.all()}
    assert phases == {"a": "Running", "b": "Pending"}


def test_a_simulation_that_is_saved_goes_on_as_it_would_have() -> None:
    simulation = running({"engine": "Volcano", "conf": PREEMPTING}, job("a", 3, least=3), job("b", 2, least=1))
    simulation.advance(simulation.now + 90 * SECOND)
    again = Simulation.load(simulation.save())
    for one in (simulation, again):
        one.advance(one.now + 120 * MINUTE)
    assert again.policy.placement == VolcanoPolicy(conf=PREEMPTING)
    assert again.save() == simulation.save()


def test_a_gang_that_has_to_be_close_lands_in_one_rack() -> None:
    amounts = {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "2", "pods": "110"}
    nodes = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{n}"}, "status": {"allocatable": amounts}}
        for n in range(4)
    ]
    racks: list[dict[str, Any]] = [
        {
            "apiVersion": "topology.volcano.sh/v1alpha1",
            "kind": "HyperNode",
            "metadata": {"name": f"rack-{rack}"},
            "spec": {
                "tier": 1,
                "members": [{"type": "Node", "selector": {"exactMatch": {"name": f"n{n}"}}} for n in (rack, rack + 2)],
            },
        }
        for rack in range(2)
    ]
    near = job("near", 4, least=4)
    near["spec"]["networkTopology"] = {"mode": "hard", "highestTierAllowed": 1}
    conf = HELM_CONF + "  - name: network-topology-aware\n"
    engine = {"admission": "none", "placement": {"engine": "Volcano", "conf": conf}}
    steps = [{"create": [job("first", 1)]}, {"advanceSeconds": 60, "create": [near]}]
    simulation = build_simulation(load_scenario([{"engine": engine, "objects": [*nodes, *racks], "steps": steps}]))
    simulation.advance(simulation.now + 2 * MINUTE)
    where = {pod.name: pod.node for pod in simulation.snapshot().pods.all()}
    assert where["first-w-0"] == "n0"
    assert {node for name, node in where.items() if name.startswith("near")} == {"n1", "n3"}


def test_a_queue_that_does_not_say_so_is_open_and_a_closed_one_lets_nobody_in() -> None:
    def queue(name: str, **status: str) -> dict[str, Any]:
        kind = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}}
        return {**kind, "spec": {"weight": 1}, "status": status} if status else {**kind, "spec": {"weight": 1}}

    simulation = running(
        {"engine": "Volcano"},
        queue("open"),
        queue("shut", state="Closed"),
        job("a", 1, queue="open"),
        job("b", 1, queue="shut"),
    )
    simulation.advance(simulation.now + 10 * MINUTE)
    assert placed(simulation) == {"a-w-0": (0,)}


def test_the_queue_of_a_ray_cluster_holds_its_pods_back_by_its_label_alone() -> None:
    def ray(name: str, queue: str) -> dict[str, Any]:
        container = {"name": "ray", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 2}}}
        template = {"spec": {"containers": [container]}}
        return {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "metadata": {"name": name, "namespace": "ml", "labels": {"volcano.sh/queue-name": queue}},
            "spec": {"headGroupSpec": {"template": template}},
        }

    def queue(name: str, gpus: int) -> dict[str, Any]:
        spec = {"capability": {"nvidia.com/gpu": gpus}}
        return {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": spec,
        }

    allocatable = {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8", "pods": "110"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": allocatable}}
    objects = [node, queue("small", 1), queue("large", 2), ray("a", "small"), ray("b", "large")]
    engine = {"admission": "none", "placement": {"engine": "Volcano"}}
    scenario = load_scenario([{"engine": engine, "objects": objects}])
    simulation = build_simulation(scenario)
    simulation.advance(scenario.start + MINUTE)
    pods = simulation.snapshot().pods.values()
    assert sorted((pod.name, pod.node) for pod in pods) == [
        ("a-head-0", ""),
        ("b-head-0", "n"),
    ]
