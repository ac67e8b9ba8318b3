"""Pods that no topology placed take room on its nodes all the same."""

from msgspec.structs import replace

from gpuconsole.model.cluster import Node, Pod, PodPhase
from gpuconsole.model.labels import HOSTNAME
from gpuconsole.model.pod_template import TopologyRequest
from gpuconsole.model.queues import ResourceFlavor, Topology
from gpuconsole.scheduling.kueue.topology.layout import PLACED_BY_TOPOLOGY
from tests.support.kueue_cluster import GPU, World, pods, queue, workload

FLAVOR = ResourceFlavor(name="f", node_labels={"pool": "gpu"}, topology="hosts")
HOST = Node(name="n1", labels={"pool": "gpu", HOSTNAME: "n1"}, allocatable={GPU: 4, "pods": 3})
ANYWHERE = TopologyRequest(unconstrained=True)
STRANGER = Pod(namespace="other", name="daemon", template=pods(gpus=2).template, node="n1")


def world(*strangers: Pod) -> World:
    return World(Topology(name="hosts", levels=(HOSTNAME,)), HOST, FLAVOR, queue("q", 8), *strangers)


def test_a_stranger_leaves_less_room() -> None:
    town = world(STRANGER).run(workload("w", "q", pod_sets=[pods(1, 3, topology=ANYWHERE)]))
    assert town.running == set()
    assert town.message("w") == (
        "couldn't assign flavors to pod set main: topology \"hosts\" doesn't allow to fit any of 1 pod(s)."
        ' Total nodes: 1; excluded: resource "nvidia.com/gpu": 1'
    )


def test_a_stranger_counts_as_a_pod() -> None:
    small = workload("w", "q", pod_sets=[pods(3, 1, topology=ANYWHERE)])
    assert world(replace(STRANGER, template=pods(gpus=0).template)).run(small).running == set()


def test_pods_that_are_placed_by_topology_count_through_their_workload() -> None:
    placed = [replace(STRANGER, annotations={annotation: "true"}) for annotation in PLACED_BY_TOPOLOGY]
    for pod in placed:
        town = world(pod).run(workload("w", "q", pod_sets=[pods(1, 4, topology=ANYWHERE)]))
        assert town.running == {"w"}


def test_a_stranger_that_is_done_or_deleted_or_elsewhere_frees_its_room_and_wakes_who_waits() -> None:
    done = replace(STRANGER, phase=PodPhase.SUCCEEDED)
    elsewhere = replace(STRANGER, node="n2")
    for gone in (done, elsewhere, None):
        town = world(STRANGER).run(workload("w", "q", pod_sets=[pods(1, 4, topology=ANYWHERE)]))
        assert town.waiting("q") == ["(w)"]
        if gone is None:
            town.session.delete("pods", STRANGER.key, town.now)
        else:
            town.apply(gone)
        town.session.requeue_inadmissible(town.now)
        town.settle()
        assert town.running == {"w"}


def test_a_fork_has_its_own_strangers() -> None:
    town = world(STRANGER)
    twin = town.session.fork()
    twin.delete("pods", STRANGER.key, town.now)
    town.run(workload("w", "q", pod_sets=[pods(1, 4, topology=ANYWHERE)]))
    assert town.running == set()


def test_strangers_stay_when_nodes_change() -> None:
    town = world(STRANGER)
    town.apply(replace(HOST, allocatable={GPU: 5, "pods": 3}))
    town.run(workload("w", "q", pod_sets=[pods(1, 4, topology=ANYWHERE)]))
    assert town.running == set()


def test_a_pod_that_ended_takes_no_room() -> None:
    ended = replace(STRANGER, phase=PodPhase.SUCCEEDED)
    town = world(ended).run(workload("w", "q", pod_sets=[pods(1, 4, topology=ANYWHERE)]))
    assert town.running == {"w"}
