"""Partial admission: fewer pods, if at full size there is neither room nor anybody to evict."""

import pytest

from gpuconsole.model.pod_template import PodSet
from gpuconsole.scheduling.kueue.config import KueueConfig
from tests.support.kueue_cluster import LOWER, World, pods, queue, victims, workload

SIZES: dict[str, tuple[int, tuple[PodSet, ...], list[int]]] = {
    "full size where it fits": (10, (pods(10, least=4),), [10]),
    "as many pods as there is room for": (7, (pods(10, least=4),), [7]),
    "no fewer than the least": (3, (pods(10, least=4),), []),
    "the least itself": (4, (pods(10, least=4),), [4]),
    "pod sets that must stay whole stay whole": (7, (pods(2, name="head"), pods(8, name="work", least=1)), [2, 5]),
    "all pod sets shrink in proportion": (9, (pods(8, name="x", least=2), pods(4, name="y", least=1)), [6, 3]),
    "whole pods only": (7, (pods(4, 2, least=1),), [3]),
}


@pytest.mark.parametrize(("room", "pod_sets", "want"), SIZES.values(), ids=SIZES.keys())
def test_sizes(room: int, pod_sets: tuple[PodSet, ...], want: list[int]) -> None:
    # The quota is larger than the room, so that it is waiting, not size, which stands in the way.
    world = World(queue("q", room + 20)).run(workload("other", "q", 20), admitted=True)
    world.run(workload("w", "q", pod_sets=pod_sets, created=1))
    admission = world.workloads["w"].admission
    assert ([p.count for p in admission.pod_sets] if admission is not None else []) == want


def test_usage_is_that_of_the_pods_that_were_admitted() -> None:
    world = World(queue("q", 7)).run(workload("w", "q", pod_sets=(pods(5, 2, least=1),)))
    admission = world.workloads["w"].admission
    assert admission is not None
    assert dict(admission.pod_sets[0].usage) == {"nvidia.com/gpu": 6}
    assert world.session.available("q", "f", "nvidia.com/gpu") == 1


def test_evicting_comes_before_shrinking() -> None:
    world = World(queue("q", 8, within=LOWER)).run(workload("low", "q", 4), admitted=True)
    world.apply(workload("w", "q", priority=9, pod_sets=(pods(8, least=2),)))
    assert victims(world.cycle()) == {"low": "InClusterQueue"}


def test_without_the_gate_there_is_only_the_full_size() -> None:
    world = World(queue("q", 7), config=KueueConfig(gates={"PartialAdmission": False}))
    assert world.run(workload("w", "q", pod_sets=(pods(10, least=4),))).running == set()
