"""The formulas of the packing policies, by hand: what fits, typical pods, fragments, scores, GPUs inside the node."""

from collections import Counter
from math import exp
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuconsole.scheduling.kube.packing import policies as fgd
from gpuconsole.scheduling.kube.packing import policies as scores
from gpuconsole.scheduling.kube.packing.policies import (
    POLICIES,
    Fragmentation,
    FreeCapacity,
    PodDemand,
    PolicyName,
    TypicalPods,
    best_fit_gpus,
    first_free_gpus,
    fits,
    typical_pods_of,
)
from tests.tools.packing_replay import GpuAmounts, Replay, ReplayedPlacement, taken

NOTHING = Fragmentation(())
PLENTY = 10**9


def share(milli: int, cpu: int = 1000, *models: str) -> PodDemand:
    return PodDemand(cpu=cpu, gpus=1, milli=milli, models=models)


def wholes(count: int, cpu: int = 1000, *models: str) -> PodDemand:
    return PodDemand(cpu=cpu, gpus=count, milli=1000, models=models)


def no_gpu(cpu: int = 1000) -> PodDemand:
    return PodDemand(cpu=cpu)


def room(*gpus: int, cpu: int = 64_000, model: str = "T4", kinds: tuple[str, ...] = ()) -> FreeCapacity:
    return FreeCapacity(cpu, PLENTY, gpus, model, frozenset(kinds))


@pytest.mark.parametrize(
    ("node", "demand", "want"),
    [
        pytest.param(room(300, 500), share(500), True, id="one GPU has enough left"),
        pytest.param(room(300, 499), share(500), False, id="no single GPU has, though together they would"),
        pytest.param(room(1000, 999), wholes(1), True, id="one is wholly free"),
        pytest.param(room(1000, 999), wholes(2), False, id="a GPU in use is no whole one"),
        pytest.param(room(1000, 1000), wholes(2), True, id="two are wholly free"),
        pytest.param(room(1000), wholes(2), False, id="the node has fewer GPUs"),
        pytest.param(room(1000, cpu=999), share(10), False, id="cpu is short"),
        pytest.param(FreeCapacity(9000, 5, (1000,)), PodDemand(cpu=1, memory=6), False, id="memory is short"),
        pytest.param(room(1000), share(10, 1000, "G2", "T4"), True, id="the model is one of those that will do"),
        pytest.param(room(1000), share(10, 1000, "G2"), False, id="the model will not do"),
        pytest.param(room(cpu=1000, model=""), no_gpu(), True, id="a pod without GPUs needs none"),
    ],
)
def test_a_node_takes_a_pod(node: FreeCapacity, demand: PodDemand, want: bool) -> None:
    assert fits(node, demand) is want


def test_gpus_inside_the_node() -> None:
    node = room(400, 1000, 300, 300, 1000)
    assert best_fit_gpus(node, share(300)) == (2,), "the one with the least left that is enough, the lowest index"
    assert best_fit_gpus(node, share(350)) == (0,)
    assert best_fit_gpus(node, share(401)) == (1,)
    assert best_fit_gpus(node, wholes(2)) == first_free_gpus(node, 2) == (1, 4)


def test_a_taken_room_has_less_and_remembers_the_kind() -> None:
    node = FreeCapacity(8000, 64, (1000, 500), "T4", frozenset({"1-gpu"}))
    after = taken(node, PodDemand(cpu=3000, memory=4, gpus=1, milli=400), (1,))
    assert after == FreeCapacity(5000, 60, (1000, 100), "T4", frozenset({"1-gpu", "share-gpu"}))
    assert taken(node, no_gpu(8000), ()) == FreeCapacity(0, 64, (1000, 500), "T4", frozenset({"1-gpu"}))


def test_typical_pods_are_the_most_frequent_until_95_percent() -> None:
    pods = [share(500)] * 60 + [wholes(1)] * 30 + [no_gpu()] * 5 + [wholes(8)] * 4 + [share(10)]
    assert typical_pods_of(pods) == ((share(500), 60), (wholes(1), 30), (no_gpu(), 5))
    assert typical_pods_of([*pods, share(10)])[-1] == (wholes(8), 4), "95 of 101 are less than 95 %"


def test_typical_pods_are_told_apart_by_models_but_not_by_memory() -> None:
    pods = {PodDemand(cpu=1, memory=8, gpus=1, milli=1000): 2, PodDemand(cpu=1, memory=9, gpus=1, milli=1000): 1}
    assert typical_pods_of(pods) == ((PodDemand(cpu=1, gpus=1, milli=1000), 3),)
    assert typical_pods_of([share(10, 1, "T4"), share(10, 1, "G2")]) == (
        (share(10, 1, "T4"), 1),
        (share(10, 1, "G2"), 1),
    )


def test_of_equally_frequent_pods_the_larger_is_typical() -> None:
    pods = {share(500): 95, share(100, 2000): 5, share(100, 3000): 5}
    assert typical_pods_of(pods) == ((share(500), 95), (share(100, 3000), 5))


def test_no_pods_have_no_typical_ones_and_fragment_nothing() -> None:
    assert typical_pods_of([]) == ()
    assert NOTHING.of(room(1000, 300)) == 1300, "what nobody asks for is of no use"


@pytest.mark.parametrize(
    ("pods", "node", "want"),
    [
        pytest.param(((share(500), 1),), room(400, 600, 1000), 400, id="only GPUs with too little left for the pod"),
        pytest.param(((share(500), 1),), room(400, 499), 899, id="all of it if no GPU has enough"),
        pytest.param(((wholes(2), 1),), room(1000, 900, 800), 2700, id="all of it if too few GPUs have"),
        pytest.param(((wholes(2), 1),), room(1000, 900, 1000), 900, id="the GPU in use if two others are free"),
        pytest.param(((share(500, 65_000), 1),), room(400, 1000), 1400, id="all of it if cpu is short"),
        pytest.param(((share(500, 1000, "G2"), 1),), room(400, 1000), 1400, id="all of it if the model will not do"),
        pytest.param(((no_gpu(), 1),), room(400, 1000), 1400, id="all of it for a pod without GPUs"),
        pytest.param(((share(500), 3), (no_gpu(), 1)), room(400, 1000), 650, id="the mean by frequency"),
        pytest.param(((share(500), 1),), room(0, 0), 0, id="a full node has no fragments"),
    ],
)
def test_fragments(pods: TypicalPods, node: FreeCapacity, want: float) -> None:
    assert Fragmentation(pods).of(node) == want


def test_memory_does_not_count_as_a_fragment() -> None:
    assert Fragmentation(((PodDemand(cpu=1, memory=99, gpus=1, milli=1000), 1),)).of(FreeCapacity(10, 0, (1000,))) == 0


DEMANDS = st.builds(
    lambda cpu, shape, models: PodDemand(cpu=cpu, gpus=shape[0], milli=shape[1], models=models),
    st.integers(0, 8),
    st.one_of(
        st.just((0, 0)), st.tuples(st.just(1), st.integers(1, 1000)), st.tuples(st.integers(1, 4), st.just(1000))
    ),
    st.sampled_from([(), ("T4",), ("G2", "T4"), ("A10",)]),
)
ROOMS = st.builds(
    lambda cpu, gpus, model: FreeCapacity(cpu, PLENTY, tuple(gpus), model),
    st.integers(0, 8),
    st.lists(st.sampled_from([0, 1, 250, 500, 999, 1000]), min_size=1, max_size=6),
    st.sampled_from(["T4", "G2"]),
)


@given(st.dictionaries(DEMANDS, st.integers(1, 9), min_size=1, max_size=6), ROOMS)
def test_the_measure_is_the_definition(counts: dict[PodDemand, int], node: FreeCapacity) -> None:
    """As in the paper, pod by pod."""

    def fragment(pod: PodDemand) -> int:
        if not pod.gpus or not fits(node, pod):
            return sum(node.gpus)
        return sum(left for left in node.gpus if left < pod.milli)

    pods = tuple(counts.items())
    measure = Fragmentation(pods)
    assert measure.amount(node.model, node.cpu, node.ordered) == sum(count * fragment(pod) for pod, count in pods)


def test_fgd_scores_the_descent_of_fragmentation() -> None:
    measure = Fragmentation(((share(500), 1), (wholes(1), 1)))
    # Before: 400 is of no use to either. On GPU 0 100 stays; on GPU 1 700, which only the whole one cannot use.
    node = room(400, 1000)
    assert measure.of(node) == 400
    assert measure.of(room(100, 1000)) == 100
    assert measure.of(room(400, 700)) == (400 + 1100) / 2
    assert fgd.fgd_score(node, share(300), measure) == int(100 / (1 + exp(-0.3))) == 57
    assert fgd.fgd_choose(node, share(300), measure) == (0,)


def test_fgd_gives_half_where_nothing_changes() -> None:
    measure = Fragmentation(((wholes(1), 1),))
    assert fgd.fgd_score(room(1000, 1000), wholes(1), measure) == 50
    assert fgd.fgd_score(room(1000), no_gpu(), measure) == 50
    assert fgd.fgd_score(room(1000, cpu=1500), no_gpu(1000), measure) == int(100 / (1 + exp(1))), (
        "its cpu strands a GPU"
    )


def test_fgd_counts_the_cpu_that_a_shared_pod_takes() -> None:
    measure = Fragmentation(((share(500, 1000), 1),))
    assert fgd.fgd_score(room(1000, cpu=1500), share(100, 1000), measure) == int(100 / (1 + exp(0.9)))
    assert fgd.fgd_score(room(1000, cpu=2500), share(100, 1000), measure) == 50


def test_fgd_takes_whole_gpus_by_index_and_the_first_of_equal_shares() -> None:
    measure = Fragmentation(((share(500), 1),))
    assert fgd.fgd_choose(room(500, 1000, 1000), wholes(2), measure) == (1, 2)
    assert fgd.fgd_choose(room(1000, 500, 500), share(500), measure) == (0,), "every GPU leaves no fragment"
    assert fgd.fgd_choose(room(400, 700, 500), share(300), measure) == (0,), "400 is a fragment already"


@pytest.mark.parametrize(
    ("node", "demand", "want"),
    [
        pytest.param(room(1000, cpu=64_000), wholes(1, 64_000), 100, id="nothing is left"),
        pytest.param(room(*[1000] * 8, cpu=128_000), no_gpu(0), 0, id="all of the largest node is left"),
        pytest.param(room(*[1000] * 8, cpu=64_000), wholes(4, 0), 50, id="half the cpu, half the GPUs"),
        pytest.param(room(300, cpu=1000), share(200, 0), 98, id="rounded down: 98.98"),
        pytest.param(room(1000, cpu=400_000), wholes(1, 0), -56, id="a node beyond the largest is below zero"),
    ],
)
def test_best_fit(node: FreeCapacity, demand: PodDemand, want: int) -> None:
    assert scores.best_fit(node, demand) == want


@pytest.mark.parametrize(
    ("node", "demand", "want"),
    [
        pytest.param(room(*[1000] * 8, cpu=128_000), wholes(8, 128_000), 0, id="the largest pod in the largest node"),
        pytest.param(room(*[1000] * 4, cpu=64_000), wholes(2, 32_000), 87, id="100 · (1 − ½ · (½·¼ + ½·¼)) = 87.5"),
        pytest.param(room(*[1000] * 4, cpu=64_000), no_gpu(0), 100, id="nothing is asked for"),
    ],
)
def test_dot_product(node: FreeCapacity, demand: PodDemand, want: int) -> None:
    assert scores.dot_product(node, demand) == want


@pytest.mark.parametrize(
    ("node", "demand", "want"),
    [
        pytest.param(room(1000, 1000), share(500), 31, id="a free node: 33 less its GPUs"),
        pytest.param(room(*[1000] * 20), share(500), 20, id="a free node with many GPUs: at least their number"),
        pytest.param(room(500, 1000, 1000), wholes(2), 48, id="free GPUs of a node in use: 50 less these"),
        pytest.param(room(0, *[1000] * 20), wholes(20), 33, id="many of them: at least 33"),
        pytest.param(room(650, 1000), share(500), 94, id="a GPU in use: 100 less a tenth of the percent left"),
        pytest.param(room(500, 650), share(500), 95, id="the tightest GPU in use counts"),
        pytest.param(room(500, 1000), no_gpu(), 0, id="a pod without GPUs"),
    ],
)
def test_gpu_packing(node: FreeCapacity, demand: PodDemand, want: int) -> None:
    assert scores.gpu_packing(node, demand) == want


@pytest.mark.parametrize(
    ("node", "demand", "want"),
    [
        pytest.param(room(500, kinds=("share-gpu",)), share(500), 98, id="this kind alone: 75 and the fullness"),
        pytest.param(room(500, kinds=("share-gpu", "1-gpu")), share(500), 73, id="this kind and others: 50"),
        pytest.param(room(1000), share(500), 46, id="nobody: 25"),
        pytest.param(room(1000, kinds=("2-gpu",)), share(500), 21, id="others: 0"),
        pytest.param(room(*[1000] * 8), wholes(8), 25, id="the largest node, empty"),
        pytest.param(room(*[1000] * 16), wholes(8), 25, id="a node beyond the largest is not below its band"),
        pytest.param(room(1000, kinds=("1-gpu",)), no_gpu(), 0, id="a pod without GPUs"),
    ],
)
def test_gpu_clustering(node: FreeCapacity, demand: PodDemand, want: int) -> None:
    assert scores.gpu_clustering(node, demand) == want


def test_the_random_policy_takes_any_gpu_that_has_enough() -> None:
    node, policy = room(100, 1000, 300, 1000), POLICIES["random"]
    chosen = {policy.choose(node, share(300), NOTHING, Random(seed)) for seed in range(40)}
    assert chosen == {(1,), (2,), (3,)}
    assert policy.choose(node, wholes(2), NOTHING, Random(1)) == (1, 3)


def replayed(
    rooms: list[FreeCapacity], policy: PolicyName, order: list[int], *demands: PodDemand
) -> list[ReplayedPlacement | None]:
    replay = Replay(rooms, policy, Fragmentation(typical_pods_of(demands)), order, Random(1))
    return [replay.place(demand) for demand in demands]


def test_ties_go_to_the_first_node_of_the_order() -> None:
    nodes = [room(1000), room(1000), room(1000)]
    assert replayed(nodes, "best-fit", [1, 2, 0], wholes(1), wholes(1), wholes(1), wholes(1)) == [
        ReplayedPlacement(1, (0,)),
        ReplayedPlacement(2, (0,)),
        ReplayedPlacement(0, (0,)),
        None,
    ]


def test_scores_follow_the_nodes_that_changed() -> None:
    nodes = [room(1000, 1000), room(1000, 1000)]
    assert replayed(nodes, "gpu-packing", [0, 1], share(400), share(700), share(300), share(500)) == [
        ReplayedPlacement(0, (0,)),
        ReplayedPlacement(0, (1,)),
        ReplayedPlacement(0, (1,)),
        ReplayedPlacement(0, (0,)),
    ]


def test_random_draws_from_all_nodes_that_take_the_pod_alike() -> None:
    nodes = [room(1000), room(0), room(1000), room(1000)]
    firsts = [Replay(nodes, "random", NOTHING, range(4), Random(seed)).place(wholes(1)) for seed in range(300)]
    counts = Counter(placed.node for placed in firsts if placed is not None)
    assert set(counts) == {0, 2, 3}
    assert min(counts.values()) > 75


def test_random_finds_the_one_node_among_many_and_knows_when_there_is_none() -> None:
    nodes = [*[room(0)] * 500, room(1000)]
    assert replayed(nodes, "random", list(range(501)), wholes(1), wholes(1), wholes(1)) == [
        ReplayedPlacement(500, (0,)),
        None,
        None,
    ]


def test_clustering_keeps_kinds_apart() -> None:
    nodes = [room(1000, 1000), room(1000, 1000)]
    assert replayed(nodes, "gpu-clustering", [0, 1], share(400), wholes(1), share(700)) == [
        ReplayedPlacement(0, (0,)),
        ReplayedPlacement(1, (0,)),
        ReplayedPlacement(0, (1,)),
    ]


def test_amounts_after_each_pod() -> None:
    demands = [share(400), wholes(1), wholes(2)]
    replay = Replay([room(1000, 1000)], "fgd", Fragmentation(((wholes(1), 1),)), [0], Random(1))
    assert list(replay.run(demands)) == [
        GpuAmounts(arrived=400, allocated=400, idle=1600, fragment=600),
        GpuAmounts(arrived=1400, allocated=1400, idle=600, fragment=600),
        GpuAmounts(arrived=3400, allocated=1400, idle=600, fragment=600),
    ]


@given(
    st.lists(ROOMS, min_size=1, max_size=4),
    st.lists(DEMANDS, min_size=1, max_size=12),
    st.sampled_from(list(POLICIES)),
    st.integers(0, 3),
)
def test_a_replay_is_what_scoring_everything_anew_gives(
    rooms: list[FreeCapacity], demands: list[PodDemand], policy: PolicyName, seed: int
) -> None:
    """No GPU is ever overdrawn, and what is kept between pods changes nothing."""
    measure = Fragmentation(typical_pods_of(demands))
    order = Random(seed).sample(range(len(rooms)), len(rooms))
    replay = Replay(rooms, policy, measure, order, Random(seed))
    left = list(rooms)
    for demand in demands:
        placed = replay.place(demand)
        able = [number for number in order if fits(left[number], demand)]
        assert (placed is None) == (not able)
        if placed is not None:
            best = max(able, key=lambda number: POLICIES[policy].score(left[number], demand, measure))
            assert policy == "random" or placed.node == best
            left[placed.node] = taken(left[placed.node], demand, placed.gpus)
            assert len(placed.gpus) == demand.gpus
            assert min(left[placed.node].gpus) >= 0
    assert replay.amounts.idle == sum(node.idle for node in left)
    assert replay.amounts.fragment == pytest.approx(sum(measure.of(node) for node in left))
