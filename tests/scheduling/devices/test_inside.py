"""GPUs inside a node: which are taken together, by default wiring and by annotation."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuconsole.model.cluster import Node
from gpuconsole.model.gpus.models import NVLINK_BANDWIDTH, WIRING, Wiring, bandwidth, wiring_of
from gpuconsole.scheduling.devices.gpu_allocation import choose_gpus, closest_gpus, topology_spread
from tests.support.kube_cluster import Cluster, node, pod

A100, A30, L4 = "NVIDIA-A100-SXM4-80GB", "NVIDIA-A30", "NVIDIA-L4"


def machine(product: str = "", gpus: int = 8, wiring: str = "", replicas: int = 1) -> Node:
    labels = {"nvidia.com/gpu.product": product, "nvidia.com/gpu.replicas": str(replicas)}
    return node("n", gpus, labels=labels if product else {}, annotations={WIRING: wiring} if wiring else {})


@pytest.mark.parametrize(
    ("machine", "free", "wanted", "chosen"),
    [
        # One NVLink domain: then a switch counts, then a NUMA node.
        (machine(A100), (0, 1, 2, 3, 4, 5, 6, 7), 2, (0, 1)),
        (machine(A100), (1, 2, 3), 2, (2, 3)),
        (machine(A100), (0, 3, 5, 7), 2, (0, 3)),
        (machine(A100), (1, 4, 6), 2, (4, 6)),
        (machine(A100), (1, 2, 4, 5, 6, 7), 4, (4, 5, 6, 7)),
        # Pairs of NVLink come before anything else.
        (machine(A30, 4), (1, 2, 3), 2, (2, 3)),
        (machine(A30, 4), (0, 2), 2, (0, 2)),
        # Without NVLink the switch decides.
        (machine(L4), (1, 2, 3), 2, (2, 3)),
        # A single GPU, or all that are left, need no choice.
        (machine(A100), (1, 2, 3), 1, (1,)),
        (machine(A100), (1, 4), 3, (1, 4)),
        # Nothing is told apart on a node that does not name its GPUs, or shares them.
        (machine(), (1, 2, 3), 2, (1, 2)),
        (machine(A100, replicas=4), (1, 2, 3), 2, (1, 2)),
        # An annotation says what is there.
        (machine(wiring="nvlink=0-3,4-7"), (2, 3, 4, 5, 6), 3, (4, 5, 6)),
        (machine(wiring="nvlink=0+2,1+3", gpus=4), (0, 1, 3), 2, (1, 3)),
        (machine(wiring="numa=0-1,2-3", gpus=4), (1, 2, 3), 2, (2, 3)),
        (machine(A100, wiring="switch=all nonsense nvlink=0-x"), (1, 2, 3), 2, (2, 3)),
    ],
)
def test_a_pod_gets_gpus_that_are_close_to_each_other(
    machine: Node, free: tuple[int, ...], wanted: int, chosen: tuple[int, ...]
) -> None:
    assert choose_gpus(machine, free, wanted) == chosen


def test_a_node_is_wired_as_machines_with_its_model_are_built() -> None:
    read: dict[str, Any] = {name: wiring_of(4, machine(name).labels, {}) for name in (A100, A30, L4)}
    assert read == {
        A100: Wiring((0, 0, 0, 0), (0, 0, 1, 1), (0, 0, 1, 1)),
        A30: Wiring((0, 0, 1, 1), (0, 0, 1, 1), (0, 0, 1, 1)),
        L4: Wiring((0, 1, 2, 3), (0, 0, 1, 1), (0, 0, 1, 1)),
    }
    assert wiring_of(2, machine(A100).labels, {}) == Wiring((0, 0), (0, 0), (0, 0))
    assert wiring_of(1, machine(A100).labels, {}) is None


def test_gpus_that_an_annotation_leaves_out_are_alone() -> None:
    found = wiring_of(4, {}, {WIRING: "nvlink=0-1"})
    assert found is not None
    assert len(set(found.nvlink)) == 3
    assert found.nvlink[0] == found.nvlink[1]


def test_bandwidth_is_what_an_annotation_says() -> None:
    assert bandwidth({NVLINK_BANDWIDTH: "900"}, NVLINK_BANDWIDTH, 600) == 900
    assert bandwidth({NVLINK_BANDWIDTH: "fast"}, NVLINK_BANDWIDTH, 600) == 600


def test_placement_gives_a_pod_a_pair_on_one_switch() -> None:
    cluster = Cluster(machine(A100)).add(pod("a", 1)).settle().add(pod("b", 2, created=1)).settle()
    assert (cluster.pods["a"].gpus, cluster.pods["b"].gpus) == ((0,), (2, 3))


@given(st.sets(st.integers(0, 7), min_size=2), st.data())
def test_no_other_choice_is_closer_and_nothing_is_taken_that_is_not_free(free: set[int], data: st.DataObject) -> None:
    wiring = wiring_of(8, machine(A30).labels, {})
    assert wiring is not None
    wanted = data.draw(st.integers(1, len(free)))
    chosen = closest_gpus(wiring, tuple(sorted(free)), wanted)
    assert set(chosen) <= free
    assert len(set(chosen)) == wanted
    other = tuple(sorted(data.draw(st.permutations(sorted(free)))[:wanted]))
    assert topology_spread(wiring, chosen) <= topology_spread(wiring, other)
