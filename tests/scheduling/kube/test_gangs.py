"""All or nothing: a gang holds no GPU before all the pods that it needs have a place."""

import pytest
from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.events import Unschedulable
from gpuconsole.model.volcano import PodGroup
from gpuconsole.scheduling.placement import PartiallyPlacedGang, PlacementDeadlock
from tests.support.kube_cluster import Cluster, gang, node, pod, pods, template

FOUR = tuple(node(f"node-{number}") for number in range(1, 5))
SERVING = pods("serving", 4, priority=1)


class Case(Struct, frozen=True, kw_only=True):
    """A cluster of 1-GPU workers; `held` are the GPUs that the job holds with and without gangs."""

    free: tuple[Node, ...]
    jobs: tuple[tuple[str, int], ...]
    held_whole: int
    held_one_by_one: int
    deadlocked: tuple[str, ...]


CASES = {
    "sixteen workers find twelve GPUs": Case(
        free=FOUR[:3], jobs=(("train", 16),), held_whole=0, held_one_by_one=12, deadlocked=("train",)
    ),
    "four workers find two": Case(
        free=(node("n", 2),), jobs=(("train", 4),), held_whole=0, held_one_by_one=2, deadlocked=("train",)
    ),
    "eight workers find six": Case(
        free=(node("m", 4), node("n", 2)), jobs=(("train", 8),), held_whole=0, held_one_by_one=6, deadlocked=("train",)
    ),
    "eight workers find eight": Case(
        free=FOUR[:2], jobs=(("train", 8),), held_whole=8, held_one_by_one=8, deadlocked=()
    ),
    "a gang that waits does not block a smaller one": Case(
        free=(node("n", 4),),
        jobs=(("big", 5), ("small", 4)),
        held_whole=4,
        held_one_by_one=4,
        deadlocked=("big", "small"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_with_gangs_nothing_is_held_unless_all_fit(name: str) -> None:
    case = CASES[name]
    cluster = Cluster(*case.free)
    for job, size in case.jobs:
        cluster.add(gang(job, size))
    cluster.run()
    assert sum(len(names) for names in cluster.where().values()) == case.held_whole
    assert cluster.placement.deadlock() is None


@pytest.mark.parametrize("name", CASES)
def test_without_gangs_pods_hold_gpus_and_wait(name: str) -> None:
    case = CASES[name]
    cluster = Cluster(*case.free, gangs=False)
    for job, size in case.jobs:
        cluster.add(gang(job, size))
    cluster.run()
    assert sum(len(names) for names in cluster.where().values()) == case.held_one_by_one
    found = cluster.placement.deadlock()
    named = tuple(job.name for job in found.jobs) if found else ()
    assert named == tuple(f"Job/default/{job}" for job in case.deadlocked)


def two_against_each_other(gangs: bool) -> Cluster:
    """Two jobs of six on eight GPUs, whose pods come in turn."""
    cluster = Cluster(node("m"), node("n"), gangs=gangs)
    for a, b in zip(gang("a", 6, created=0), gang("b", 6, created=0), strict=True):
        cluster.add([a, b])
    cluster.run()
    return cluster


def test_two_jobs_in_each_others_way_are_named() -> None:
    cluster = two_against_each_other(gangs=False)
    found = cluster.placement.deadlock()
    assert found == PlacementDeadlock(
        (
            PartiallyPlacedGang(gang="default/a", job="Job/default/a", placed=4, size=6, gpus_held=4, gpus_missing=2),
            PartiallyPlacedGang(gang="default/b", job="Job/default/b", placed=4, size=6, gpus_held=4, gpus_missing=2),
        ),
        0,
    )
    assert found.gpus_held == 8
    assert found.message == (
        "Job/default/a holds 4 GPUs with 4 of 6 pods and waits for 2 more; "
        "Job/default/b holds 4 GPUs with 4 of 6 pods and waits for 2 more; 0 GPUs are free"
    )


def test_with_gangs_one_of_the_two_runs_and_then_the_other() -> None:
    cluster = two_against_each_other(gangs=True)
    assert cluster.where() == {"m": ["a-0", "a-1", "a-2", "a-3"], "n": ["a-4", "a-5"]}
    for number in range(6):
        cluster.remove(f"a-{number}")
    cluster.run()
    assert cluster.where() == {"m": ["b-0", "b-1", "b-2", "b-3"], "n": ["b-4", "b-5"]}


def test_a_waiting_gang_says_how_many_fit_and_what_stops_the_next() -> None:
    cluster = Cluster(*FOUR).add(SERVING)
    cluster.run()
    cluster.add(gang("train", 16)).run()
    assert cluster.told("train-0") == cluster.told("train-15") == (
        "gang default/train not scheduled: 12 of 16 pods fit; 0/4 nodes are available: 4 Insufficient nvidia.com/gpu. "
        "preemption: 0/4 nodes are available: 4 No preemption victims found for incoming pod."
    )  # fmt: skip


def test_a_gang_waits_until_all_its_pods_exist() -> None:
    members = gang("train", 4)
    cluster = Cluster(node("n")).add(members[:2])
    cluster.run()
    assert cluster.told("train-0") == "gang default/train waits for its pods: 2 of 4 exist"
    cluster.add(members[2:]).run()
    assert cluster.where() == {"n": ["train-0", "train-1", "train-2", "train-3"]}


def test_pods_beyond_the_minimum_are_welcome_but_not_waited_for() -> None:
    cluster = Cluster(node("n", 3)).add(gang("elastic", 5, size=2))
    cluster.run()
    assert cluster.where() == {"n": ["elastic-0", "elastic-1", "elastic-2"]}
    assert cluster.told("elastic-3") == (
        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. "
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )
    cluster.placement.apply(node("m", 1), 0)
    cluster.run()
    assert cluster.where()["m"] == ["elastic-3"]


def test_a_pod_group_gives_the_size_that_the_pods_do_not_name() -> None:
    cluster = Cluster(node("n", 2))
    cluster.placement.apply(PodGroup(name="g", min_member=3), 0)
    cluster.add(pods("p", 3, gang="g")).run()
    assert cluster.where() == {}


def test_a_pod_that_is_made_again_joins_its_running_gang_alone() -> None:
    cluster = Cluster(node("n", 4)).add(gang("train", 4))
    cluster.run()
    cluster.remove("train-2").add(gang("train", 4)[2])
    cluster.run()
    assert cluster.where() == {"n": ["train-0", "train-1", "train-2", "train-3"]}


def test_pods_that_are_leaving_count_for_the_gang_no_longer() -> None:
    members = gang("train", 2)
    cluster = Cluster(node("n", 4)).add(members)
    cluster.run()
    for name in ("train-0", "train-1"):
        cluster.add(replace(cluster.pods[name], deleted=9))
    cluster.add(pod("train-again", gang="train", gang_size=2)).run()
    assert cluster.told("train-again") == "gang default/train waits for its pods: 1 of 2 exist"


def test_large_pods_of_a_gang_are_placed_before_small_ones() -> None:
    # Spread, in order of the names, would put a small pod on each node and leave no room for the leader.
    cluster = Cluster(node("a"), node("b"), score="spread")
    workers = pods("a-worker", 4, gang="g", gang_size=5)
    cluster.add([*workers, pod("leader", 4, gang="g", gang_size=5)]).run()
    assert cluster.where() == {"a": ["leader"], "b": ["a-worker-0", "a-worker-1", "a-worker-2", "a-worker-3"]}


def test_a_gang_of_different_pods_that_do_not_fit_together_holds_nothing() -> None:
    # Each kind alone would fit: the leader on one of the nodes, the two workers as well.
    cluster = Cluster(node("a", 4), node("b", 1))
    cluster.add([pod("leader", 4, gang="g", gang_size=3), *pods("worker", 2, gang="g", gang_size=3)]).run()
    assert cluster.where() == {}
    assert cluster.placement.free_gpus() == {"a": (0, 1, 2, 3), "b": (0,)}


def test_a_gang_evicts_only_if_it_then_fits_whole() -> None:
    low = [pod(f"low-{number}", node="n", bound=number + 1, created=number, priority=1) for number in range(4)]
    cluster = Cluster(node("n", 4)).add(low).add(gang("big", 5, priority=9)).settle()
    assert cluster.evicted() == []
    cluster.add(gang("fits", 3, priority=9)).settle()
    assert cluster.evicted() == ["low-3", "low-2", "low-1"]
    assert cluster.where() == {"n": ["fits-0", "fits-1", "fits-2", "low-0"]}


def test_a_gang_that_waits_for_its_victims_holds_nothing_yet_but_its_room_is_kept() -> None:
    cluster = Cluster(node("m", 2), node("n", 2)).add(pod("low", 2, node="n", bound=1, priority=1))
    cluster.add(gang("high", 4, priority=9)).run()
    assert cluster.where() == {"n": ["low"]}
    cluster.add(pods("late", 2, priority=9)).run()
    assert cluster.where() == {"n": ["low"]}
    cluster.bury().run()
    assert cluster.where() == {"m": ["high-0", "high-1"], "n": ["high-2", "high-3"]}


def test_a_gang_whose_pods_must_not_preempt_waits() -> None:
    polite = template(1, preemption_policy="Never")
    cluster = Cluster(node("n", 1)).add(pod("low", node="n", bound=1, priority=1))
    cluster.add(gang("high", 1, priority=9, template=polite)).settle()
    assert cluster.evicted() == []


def test_the_victims_pods_alone_go_even_if_they_are_of_a_gang() -> None:
    cluster = Cluster(node("n", 4)).add(gang("low", 4, priority=1)).settle()
    cluster.add(pod("high", priority=9)).settle()
    assert cluster.evicted() == ["low-3"]


def test_gangs_of_the_same_name_in_two_namespaces_are_two_gangs() -> None:
    other: list[Pod] = [replace(each, namespace="other") for each in gang("train", 2)]
    cluster = Cluster(node("n", 2))
    for each in [gang("train", 2)[0], other[1]]:
        cluster.placement.apply(each, 0)
    refused = [decision.pod for decision in cluster.placement.schedule(0) if isinstance(decision, Unschedulable)]
    assert refused == ["default/train-0", "other/train-1"]
    assert cluster.placement.free_gpus() == {"n": (0, 1)}


def test_slots_are_what_fits_now_all_at_once() -> None:
    cluster = Cluster(node("a", 5), node("b", 3, unschedulable=True), node("c", 4))
    assert cluster.placement.largest_gang(template(2)) == 4
    cluster.add(pod("p", node="c"))
    assert cluster.placement.largest_gang(template(2)) == 3
