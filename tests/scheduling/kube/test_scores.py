"""Which of the nodes that fit is best, in kube-scheduler's integers."""

import pytest

from gpuconsole.model.labels import NodeTerm, PreferredTerm, Requirement, Taint, Toleration
from gpuconsole.model.resources import CPU, GPU, MEMORY
from gpuconsole.scheduling.kube.framework_runtime import prepare_node_plugins
from gpuconsole.scheduling.kube.pod_classes import AssignedPod, NodeState, PodClasses, with_pod
from gpuconsole.scheduling.kube.profile import PlacementPolicy, Score
from gpuconsole.scheduling.kube.scores import Images, least_allocated, most_allocated, scored_resources
from tests.support.kube_cluster import GIB, Cluster, node, pod, pods, template


@pytest.mark.parametrize(
    ("requested", "capacity", "most", "least"),
    [(0, 4, 0, 100), (1, 3, 33, 66), (3, 4, 75, 25), (4, 4, 100, 0), (5, 4, 100, 0), (1, 0, 0, 0)],
)
def test_the_formulas_round_down(requested: int, capacity: int, most: int, least: int) -> None:
    assert (most_allocated(requested, capacity), least_allocated(requested, capacity)) == (most, least)


SCORES: dict[str, tuple[PlacementPolicy, dict[str, int], int]] = {
    # The node: 10 cpu, 100 GiB, 3 GPUs; a pod with 1 cpu, 10 GiB and 1 GPU is there.
    "cpu and memory weigh alike": (PlacementPolicy(resources=((CPU, 1), (MEMORY, 1))), {CPU: 4000, MEMORY: 0}, 30),
    "a weight counts twice": (PlacementPolicy(resources=((CPU, 2), (MEMORY, 1))), {CPU: 4000, MEMORY: 20 * GIB}, 43),
    "what is missing counts 100m and 200Mi": (PlacementPolicy(resources=((CPU, 1), (MEMORY, 1))), {}, 10),
    "GPUs weigh five times by default": (PlacementPolicy(), {GPU: 1, CPU: 1000, MEMORY: 10 * GIB}, 52),
    "GPUs do not count for a pod that wants none": (PlacementPolicy(), {CPU: 1000, MEMORY: 10 * GIB}, 20),
    "a resource that the node lacks does not count": (PlacementPolicy(), {"amd.com/gpu": 1, CPU: 1000}, 15),
    "spread is the other formula": (PlacementPolicy(score="spread"), {GPU: 1, CPU: 1000, MEMORY: 10 * GIB}, 46),
}


@pytest.mark.parametrize("name", SCORES)
def test_the_score_of_a_node(name: str) -> None:
    policy, wanted, score = SCORES[name]
    machine = node("n", 3, allocatable={CPU: 10_000, MEMORY: 100 * GIB})
    shapes = PodClasses()
    before = shapes.of(template(requests={CPU: 1000, MEMORY: 10 * GIB, GPU: 1}))
    state = with_pod(NodeState("n", machine, owners=("",) * 3), AssignedPod("default/there", before, 0, 0))
    shape = shapes.of(template(requests=wanted))
    assert prepare_node_plugins(policy.scheduler_profile, shape, Images(()), None).score(state) == score


def test_a_weight_for_mig_counts_every_profile() -> None:
    profile = "nvidia.com/mig-1g.10gb"
    shape = PodClasses().of(template(requests={profile: 1}))
    assert scored_resources(PlacementPolicy().resources, shape) == (
        (CPU, 1, 100),
        (MEMORY, 1, 200 * 1024**2),
        (profile, 5, 1),
    )


PLACES: dict[tuple[Score, int], dict[str, list[str]]] = {
    ("binpack", 3): {"n1": ["p-0", "p-1", "p-2"]},
    ("spread", 3): {"n1": ["p-0"], "n2": ["p-1"], "n3": ["p-2"]},
    ("binpack", 5): {"n1": ["p-0", "p-1", "p-2", "p-3"], "n2": ["p-4"]},
    ("spread", 5): {"n1": ["p-0", "p-3"], "n2": ["p-1", "p-4"], "n3": ["p-2"]},
}


@pytest.mark.parametrize(("score", "count"), PLACES)
def test_single_gpu_pods_are_packed_or_spread(score: Score, count: int) -> None:
    cluster = Cluster(node("n1"), node("n2"), node("n3"), score=score).add(pods("p", count))
    cluster.run()
    assert cluster.where() == PLACES[score, count]


def test_binpack_fills_the_fullest_node_that_fits() -> None:
    cluster = Cluster(node("a"), node("b"), node("c")).add(pod("x", 3, node="b")).add(pod("y", 2, node="c"))
    cluster.add([pod("one"), pod("two", 2), pod("three", 3)]).run()
    assert cluster.where() == {"a": ["three"], "b": ["one", "x"], "c": ["two", "y"]}


def test_equal_nodes_go_by_name_whatever_their_order() -> None:
    cluster = Cluster(node("c"), node("a"), node("b")).add(pod("p"))
    cluster.run()
    assert cluster.where() == {"a": ["p"]}


def prefers(weight: int, key: str) -> PreferredTerm:
    return PreferredTerm(weight, NodeTerm(expressions=(Requirement(key, "Exists"),)))


def test_a_preferred_term_beats_packing() -> None:
    cluster = Cluster(node("a"), node("b", labels={"fast": ""})).add(pod("x", 3, node="a"))
    cluster.add(pod("p", template=template(1, preferred=(prefers(1, "fast"),)))).run()
    assert cluster.where() == {"a": ["x"], "b": ["p"]}


def test_preferences_are_measured_against_the_best_node_that_fits() -> None:
    # Of 80 and 60 only 60 is left once the first is full, and it then counts as 100.
    wants = template(1, preferred=(prefers(80, "fast"), prefers(60, "near")))
    nodes = (node("a", 1, labels={"fast": ""}), node("b", 1, labels={"near": ""}), node("c", 1))
    cluster = Cluster(*nodes).add(pods("p", 3, template=wants))
    cluster.run()
    assert cluster.where() == {"a": ["p-0"], "b": ["p-1"], "c": ["p-2"]}


def test_prefer_no_schedule_is_avoided_while_there_is_room() -> None:
    slow = Taint("slow", "", "PreferNoSchedule")
    cluster = Cluster(node("a", 1, taints=(slow,)), node("b", 1)).add(pods("p", 2))
    cluster.run()
    assert cluster.where() == {"a": ["p-1"], "b": ["p-0"]}


def test_a_tolerated_prefer_no_schedule_is_not_avoided() -> None:
    slow = Taint("slow", "", "PreferNoSchedule")
    tolerant = template(1, tolerations=(Toleration("slow", "Exists"),))
    cluster = Cluster(node("a", taints=(slow,)), node("b")).add(pod("p", template=tolerant))
    cluster.run()
    assert cluster.where() == {"a": ["p"]}
