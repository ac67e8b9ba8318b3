"""Nodes made from quotas: as many as hold the nominal GPUs, with the flavor's labels and taints."""

from gpuconsole.model.cluster import Node
from gpuconsole.model.labels import Taint
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import ClusterQueue, FlavorQuotas, Quota, ResourceFlavor, ResourceGroup
from gpuconsole.sim.synthesis import complete
from tests.sim.cluster import GPU, node

H100 = ResourceFlavor(name="h100", node_labels={"accelerator": "h100-80gb"}, node_taints=(Taint("gpu", "present"),))


def pool(name: str, flavor: str, **amounts: int) -> ClusterQueue:
    names = {"gpu": GPU, "cpu": "cpu", "memory": "memory", "mig": "nvidia.com/mig-1g.10gb"}
    quotas = {names[short]: Quota(amount) for short, amount in amounts.items()}
    group = ResourceGroup(tuple(quotas), (FlavorQuotas(flavor, quotas),))
    return ClusterQueue(name=name, resource_groups=(group,))


def made(*objects: Object, gpus_per_node: int = 8) -> list[Node]:
    return [thing for thing in complete(objects, gpus_per_node=gpus_per_node) if isinstance(thing, Node)]


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
