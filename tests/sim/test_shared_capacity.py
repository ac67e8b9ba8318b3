"""Machines that an autoscaler buys share and divide their GPUs as all others do, and it counts on that."""

from typing import Any

import pytest

from gpuconsole.insight.cost.rates import By, cost_report, pools
from gpuconsole.model.clock import HOUR, MINUTE
from gpuconsole.model.cluster import Node
from gpuconsole.model.prices import Prices
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.scenario import build_simulation, load_scenario

CATALOGUE = {
    "zones": ["a"],
    "gpus": {"a100": {"product": "NVIDIA-A100-SXM4-80GB", "memory": "80Gi"}},
    "types": {"p.1": {"cpu": 64, "memory": "512Gi", "gpus": 1, "gpu": "a100", "onDemand": 4.0}},
}
KARPENTER = {"kind": "karpenter", "catalogue": CATALOGUE}
AUTOSCALER = {
    "kind": "cluster-autoscaler",
    "catalogue": CATALOGUE,
    "groups": [{"name": "p", "instanceType": "p.1", "max": 9}],
}
POOL = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "p"},
    "spec": {
        "template": {"spec": {"nodeClassRef": {"group": "g", "kind": "K", "name": "n"}, "requirements": []}},
        "disruption": {"consolidateAfter": "Never"},
    },
}
MIG = ({"mig": {"config": "all-1g.10gb"}}, "nvidia.com/mig-1g.10gb", 7)
SLICED = ({"timeSlicing": {"resources": [{"replicas": 4}]}}, "nvidia.com/gpu", 4)
RENAMED = ({"mps": {"renameByDefault": True, "resources": [{"replicas": 3}]}}, "nvidia.com/gpu.shared", 3)


def work(name: str, resource: str, namespace: str = "ml") -> dict[str, Any]:
    container = {"name": "main", "image": "example.com/work:1", "resources": {"limits": {resource: "1"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "annotations": {"gpuconsole.io/duration": "9h"}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }


def burst(capacity: object, sharing: object, jobs: list[dict[str, Any]]) -> Simulation:
    document = {
        "engine": {"admission": "none", "capacity": capacity, "sharing": sharing},
        "objects": [POOL],
        "steps": [{"create": jobs}],
    }
    simulation = build_simulation(load_scenario([document]))
    simulation.advance(simulation.now + 10 * MINUTE)
    return simulation


@pytest.mark.parametrize("capacity", [KARPENTER, AUTOSCALER], ids=["karpenter", "cluster-autoscaler"])
@pytest.mark.parametrize(("sharing", "resource", "each"), [MIG, SLICED, RENAMED], ids=["mig", "time-slicing", "mps"])
def test_as_many_machines_come_as_it_takes(capacity: object, sharing: object, resource: str, each: int) -> None:
    """What fills a machine fits on one; one pod more makes two."""
    jobs = [work(f"j{n}", resource) for n in range(each + 1)]
    simulation = burst(capacity, sharing, jobs[:-1])
    nodes: list[Node] = list(simulation.snapshot().nodes.all())
    assert [node.allocatable[resource] for node in nodes] == [each]
    assert {pod.node for pod in simulation.snapshot().pods.all()} == {"p-1"}
    simulation = burst(capacity, sharing, jobs)
    assert sorted(simulation.snapshot().nodes) == ["p-1", "p-2"]
    assert all(pod.node for pod in simulation.snapshot().pods.all())


@pytest.mark.parametrize(
    ("sharing", "resource", "each", "red", "blue"),
    [(*MIG, 4 / 7, 8 / 7), (*SLICED, 1.0, 2.0)],
    ids=["a slice has a seventh of the compute", "a turn is a quarter"],
)
def test_the_price_of_a_machine_is_shared_by_what_pods_have_of_its_gpu(
    sharing: object, resource: str, each: int, red: float, blue: float
) -> None:
    """Of 4 USD an hour: who has two of the pods pays twice as much as who has one; nobody pays for the rest.

    The pool counts what its nodes offer; none of its GPUs is idle as a whole.
    """
    simulation = burst(KARPENTER, sharing, [work("a", resource, "red"), *(work(n, resource, "blue") for n in "bc")])
    parts = {one.name: one.hourly for one in cost_report(simulation.snapshot(), Prices(), {}).by[By.TEAM]}
    assert parts == pytest.approx({"": 4.0 - red - blue, "blue": blue, "red": red})
    (row,) = pools(simulation.snapshot())
    assert (row.used, row.gpus, row.idle_hourly) == (3, each, 0)


def test_nodes_that_are_made_from_flavors_share_their_gpus_too() -> None:
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "a"}}
    quota = {"name": "a", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": 8}]}
    queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "q"},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": ["nvidia.com/gpu"], "flavors": [quota]}],
        },
    }
    document = {"engine": {"sharing": SLICED[0]}, "objects": [flavor, queue]}
    simulation = build_simulation(load_scenario([document]))
    simulation.advance(simulation.now + HOUR)
    assert [node.allocatable["nvidia.com/gpu"] for node in simulation.snapshot().nodes.all()] == [32]
