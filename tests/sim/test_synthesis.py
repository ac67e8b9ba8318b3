"""Nodes made from quotas: as many as hold the nominal GPUs, with the flavor's labels and taints."""

import pytest
from msgspec.structs import replace

from gpuconsole.model.clock import MINUTE
from gpuconsole.model.cluster import Node
from gpuconsole.model.labels import Taint
from gpuconsole.model.manifests import load_text
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import ClusterQueue, FlavorQuotas, Quota, ResourceFlavor, ResourceGroup, Topology
from gpuconsole.sim.scenario import build_simulation, load_scenario, with_generated_nodes
from tests.support.sim_cluster import GPU, node

H100 = ResourceFlavor(name="h100", node_labels={"accelerator": "h100-80gb"}, node_taints=(Taint("gpu", "present"),))


def pool(name: str, flavor: str, **amounts: int) -> ClusterQueue:
    names = {"gpu": GPU, "cpu": "cpu", "memory": "memory", "mig": "nvidia.com/mig-1g.10gb"}
    quotas = {names[short]: Quota(amount) for short, amount in amounts.items()}
    group = ResourceGroup(tuple(quotas), (FlavorQuotas(flavor, quotas),))
    return ClusterQueue(name=name, resource_groups=(group,))


def made(*objects: Object, gpus_per_node: int = 8) -> list[Node]:
    return [thing for thing in with_generated_nodes(objects, gpus_per_node=gpus_per_node) if isinstance(thing, Node)]


def test_nodes_hold_the_nominal_gpus_of_all_queues_rounded_up() -> None:
    nodes = made(H100, pool("a", "h100", gpu=12), pool("b", "h100", gpu=5))
    assert [n.name for n in nodes] == ["h100-1", "h100-2", "h100-3"]
    assert [n.gpus for n in nodes] == [8, 8, 8]
    assert nodes[0].labels == {"kubernetes.io/hostname": "h100-1", "accelerator": "h100-80gb"}
    assert nodes[0].taints == (Taint("gpu", "present"),)
    assert all(n.synthesised for n in nodes)


def test_gpus_per_node_can_be_said() -> None:
    assert [n.gpus for n in made(H100, pool("a", "h100", gpu=6), gpus_per_node=4)] == [4, 4]


def test_with_a_node_in_the_input_none_is_made() -> None:
    assert made(H100, pool("a", "h100", gpu=12), node("own")) == [node("own")]


def test_quota_of_cpu_and_memory_has_room_on_the_nodes() -> None:
    nodes = made(H100, pool("a", "h100", gpu=8, cpu=900_000, memory=9 * 2**40))
    assert len(nodes) == 1
    assert nodes[0].allocatable["cpu"] >= 900_000
    assert nodes[0].allocatable["memory"] >= 9 * 2**40


def test_a_flavor_without_gpus_gets_cpu_nodes() -> None:
    nodes = made(ResourceFlavor(name="cpu"), pool("a", "cpu", cpu=100_000, memory=2**30))
    assert [(n.gpus, n.allocatable["cpu"]) for n in nodes] == [(0, 64_000), (0, 64_000)]


def test_mig_slices_are_counted_by_name() -> None:
    nodes = made(ResourceFlavor(name="mig"), pool("a", "mig", mig=14))
    assert [n.allocatable["nvidia.com/mig-1g.10gb"] for n in nodes] == [8, 8]


def test_a_quota_of_nothing_makes_nothing() -> None:
    assert made(H100, pool("a", "h100", gpu=0)) == []


TAS = ResourceFlavor(name="tas", node_labels={"pool": "tas", "cloud/block": "b7"}, topology="racks")
RACKS = Topology(name="racks", levels=("cloud/block", "cloud/rack", "kubernetes.io/hostname"))


def test_nodes_of_a_flavor_with_a_topology_have_the_labels_of_all_its_levels() -> None:
    nodes = made(RACKS, TAS, H100, pool("a", "tas", gpu=12), pool("b", "h100", gpu=8))
    assert [n.labels for n in nodes] == [
        {"pool": "tas", "cloud/block": "b7", "cloud/rack": "tas", "kubernetes.io/hostname": "tas-1"},
        {"pool": "tas", "cloud/block": "b7", "cloud/rack": "tas", "kubernetes.io/hostname": "tas-2"},
        {"accelerator": "h100-80gb", "kubernetes.io/hostname": "h100-1"},
    ]


def test_a_topology_that_ends_above_the_host_labels_its_nodes_as_well() -> None:
    (node,) = made(replace(RACKS, levels=("cloud/rack",)), replace(TAS, name="f" * 70), pool("a", "f" * 70, gpu=1))
    assert node.labels["cloud/rack"] == "f" * 63


def test_a_topology_that_nobody_defines_labels_nothing() -> None:
    (node,) = made(TAS, pool("a", "tas", gpu=1))
    assert node.labels == {"pool": "tas", "cloud/block": "b7", "kubernetes.io/hostname": "tas-1"}


SAMPLE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: default}
spec:
  levels:
  - {nodeLabel: cloud.provider.com/topology-block}
  - {nodeLabel: cloud.provider.com/topology-rack}
  - {nodeLabel: kubernetes.io/hostname}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: tas-flavor}
spec: {nodeLabels: {cloud.provider.com/node-group: tas-group}, topologyName: default}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu, nvidia.com/gpu]
    flavors:
    - name: tas-flavor
      resources: [{name: cpu, nominalQuota: 100}, {name: nvidia.com/gpu, nominalQuota: 16}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq}
spec: {clusterQueue: cq}
---
apiVersion: batch/v1
kind: Job
metadata: {name: a, labels: {kueue.x-k8s.io/queue-name: lq}}
spec:
  parallelism: 3
  completions: 3
  completionMode: Indexed
  template:
    metadata: {annotations: {kueue.x-k8s.io/podset-HOW-topology: LEVEL}}
    spec:
      restartPolicy: Never
      containers: [{name: c, image: x, resources: {requests: {cpu: 1, nvidia.com/gpu: 4}, limits: {nvidia.com/gpu: 4}}}]
"""


@pytest.mark.parametrize(
    ("how", "level"),
    [
        ("required", "cloud.provider.com/topology-block"),
        ("required", "cloud.provider.com/topology-rack"),
        ("preferred", "kubernetes.io/hostname"),
        ("unconstrained", '"true"'),
    ],
)
def test_kueue_starts_jobs_with_a_topology_on_nodes_that_are_made(how: str, level: str) -> None:
    loaded = load_text(SAMPLE.replace("HOW", how).replace("LEVEL", level))
    scenario = load_scenario([], objects=loaded.objects)
    simulation = build_simulation(scenario)
    simulation.advance(scenario.start + MINUTE)
    assert [bool(pod.node) for pod in simulation.snapshot().pods.values()] == [True] * 3
