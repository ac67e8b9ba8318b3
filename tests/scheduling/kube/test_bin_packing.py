"""Packing policies in kube-scheduler's place: what they see of a node, and where they put pods."""

from collections import Counter

import pytest

from gpuconsole.model.cluster import Pod
from gpuconsole.model.resources import CPU, MEMORY
from gpuconsole.scheduling.kube.packing.policies import POLICIES, FreeCapacity, PodDemand
from gpuconsole.scheduling.kube.pod_classes import AssignedPod, NodeState, PodClasses, with_node, with_pod
from gpuconsole.scheduling.kube.profile import Score
from gpuconsole.scheduling.kube.scores import free_capacity, pod_demand, random_choice, typical_pods
from tests.support.kube_cluster import GIB, Cluster, node, pod, pods, template

T4 = {"nvidia.com/gpu.product": "Tesla-T4"}
H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}


def cpu_pod(name: str, cpu: int, gpus: int = 0) -> Pod:
    requests = {CPU: cpu, **({"nvidia.com/gpu": gpus} if gpus else {})}
    return pod(name, template=template(requests=requests))


def test_what_a_policy_sees_of_a_node() -> None:
    state = with_node(NodeState("n"), node("n", 3, labels=T4))
    shape = PodClasses().of(template(requests={CPU: 4000, MEMORY: 12 * GIB, "nvidia.com/gpu": 2}))
    taken = with_pod(state, AssignedPod("default/p", shape, 0, 0, (0, 2)))
    assert free_capacity(taken, "t4") == FreeCapacity(60_000, 500 * GIB, (0, 1000, 0), "t4", frozenset({"2-gpu"}))


def test_what_a_policy_sees_of_a_pod() -> None:
    shape = PodClasses().of(template(requests={CPU: 4000, MEMORY: GIB, "nvidia.com/gpu": 2}, node_selector=T4))
    assert pod_demand(shape) == PodDemand(cpu=4000, memory=GIB, gpus=2, milli=1000, models=("t4",))
    assert pod_demand(PodClasses().of(template(requests={CPU: 500}, node_selector=T4))) == PodDemand(cpu=500)


def test_typical_pods_count_in_percents() -> None:
    shapes = PodClasses()
    one, two = (shapes.of(template(gpus)) for gpus in (1, 2))
    want = ((PodDemand(cpu=0, gpus=1, milli=1000), 67), (PodDemand(cpu=0, gpus=2, milli=1000), 33))
    assert typical_pods([one, two, one]) == typical_pods([one, two, one] * 500) == want
    assert typical_pods([]) == ()


def placed(score: Score, *things: Pod, nodes: tuple[int, ...] = (4, 4)) -> dict[str, list[str]]:
    cluster = Cluster(*(node(f"n{number}", gpus) for number, gpus in enumerate(nodes, 1)), score=score)
    cluster.add(things).run()
    return cluster.where()


PLACES: dict[str, tuple[Score, tuple[int, ...], dict[str, list[str]]]] = {
    "best-fit takes the smaller node": ("best-fit", (8, 2), {"n2": ["a"]}),
    "dot-product takes the smaller node": ("dot-product", (8, 2), {"n2": ["a"]}),
    "gpu-packing takes the free node with fewer GPUs": ("gpu-packing", (8, 2), {"n2": ["a"]}),
    "gpu-clustering takes the free node with fewer GPUs": ("gpu-clustering", (8, 2), {"n2": ["a"]}),
    "fgd takes the first by name of equal nodes": ("fgd", (4, 4), {"n1": ["a"]}),
}


@pytest.mark.parametrize("name", PLACES)
def test_where_a_pod_goes(name: str) -> None:
    score, nodes, want = PLACES[name]
    assert placed(score, pod("a"), nodes=nodes) == want


def test_clustering_keeps_pods_of_one_size_together() -> None:
    things = [pod("one"), *pods("two", 2, 2, created=1), pod("next", created=9)]
    assert placed("gpu-clustering", *things) == {"n1": ["next", "one"], "n2": ["two-0", "two-1"]}


def test_packing_fills_a_node_in_use_first() -> None:
    assert placed("gpu-packing", *pods("a", 5)) == {"n1": ["a-0", "a-1", "a-2", "a-3"], "n2": ["a-4"]}


def test_fgd_keeps_whole_what_typical_pods_need_whole() -> None:
    """Most pods need four GPUs: a single one goes where four are left all the same."""
    things = [pod("big-0", 4), pod("big-1", 4, created=1), pod("small", 1, created=2)]
    assert placed("fgd", *things, nodes=(4, 4, 4, 6)) == {"n1": ["big-0"], "n2": ["big-1"], "n4": ["small"]}
    assert placed("binpack", *things, nodes=(4, 4, 4, 6)) == {"n1": ["big-0"], "n2": ["big-1"], "n3": ["small"]}


def test_fgd_strands_no_gpus_for_want_of_cpu() -> None:
    """On n1 the loader would leave too little cpu for the second trainer: its GPUs would be of no use to it."""
    cluster = Cluster(node("n1", 6), node("n2", 2), node("n3", 4), score="fgd")
    for each in (cpu_pod("trainer-0", 4_000, 4), cpu_pod("trainer-1", 8_000, 2), cpu_pod("loader", 60_000)):
        cluster.add(each).run()
    assert cluster.where() == {"n2": ["trainer-1"], "n3": ["loader", "trainer-0"]}


def test_models_that_typical_pods_ask_for_count() -> None:
    """Nobody asks for T4: their GPUs are fragments already, so a pod without a preference goes there."""
    cluster = Cluster(node("h", 4, labels=H100), node("t", 4, labels=T4), score="fgd")
    cluster.add(pod(f"big-{n}", template=template(4, node_selector={**H100, "pool": "none"})) for n in range(9)).run()
    assert cluster.where() == {}
    cluster.add(pod("any", created=1)).run()
    assert cluster.where() == {"t": ["any"]}


def test_what_is_typical_later_counts_on_nodes_that_did_not_change() -> None:
    nodes = (node("a", 1), node("h", 4, labels=H100), node("t", 4, labels=T4))
    cluster = Cluster(*nodes, score="fgd").add(pod("first"))
    cluster.run()
    cluster.add(pod(f"big-{n}", template=template(4, node_selector={**H100, "pool": "none"})) for n in range(9))
    cluster.add(pod("second", created=1)).run()
    assert cluster.where() == {"a": ["first"], "t": ["second"]}


def test_random_draws_by_the_pods_key_from_all_that_fit() -> None:
    names = [f"n{number}" for number in range(1, 5)]
    assert random_choice("default/a", names) == random_choice("default/a", names[::-1])
    seen = Counter(random_choice(f"default/p-{number}", names) for number in range(400))
    assert set(seen) == set(names)
    assert min(seen.values()) > 70
    for name in ("a", "b", "c", "d"):
        assert placed("random", pod(name), nodes=(8, 8, 8, 8)) == {random_choice(f"default/{name}", names): [name]}
    things = pods("p", 8, 1)
    assert placed("random", *things, nodes=(2, 2, 2, 2)) == placed("random", *things, nodes=(2, 2, 2, 2))
    assert sum(map(len, placed("random", *things, nodes=(2, 2, 2, 2)).values())) == 8, "all that fit find a place"


@pytest.mark.parametrize("score", POLICIES)
def test_a_fork_and_a_session_built_anew_decide_alike(score: Score) -> None:
    cluster = Cluster(node("n1", 4), node("n2", 3), node("n3", 8), score=score)
    cluster.add(pods("a", 3, 2)).run()
    later = [pod("b", 3, created=50), pod("c", 1, created=51), pod("d", 4, created=52)]
    twin, anew = cluster.placement.fork(), Cluster(node("n1", 4), node("n2", 3), node("n3", 8), score=score)
    anew.add(cluster.pods.values())
    for each in later:
        twin.apply(each, 9)
        anew.placement.apply(each, 9)
    cluster.add(later)
    assert twin.schedule(9) == anew.placement.schedule(9) == cluster.placement.schedule(9)
