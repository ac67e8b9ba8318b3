"""Elastic jobs: what a slice that takes over needs, and which of a job's slices stay."""

from typing import NamedTuple

import pytest
from msgspec.structs import replace

from gpuconsole.model.cluster import Namespace
from gpuconsole.model.events import Admit
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.queues import LocalQueue
from gpuconsole.model.workloads import Condition, Workload
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.podset import ELASTIC
from gpuconsole.scheduling.kueue.slices import REPLACEMENT_FOR, SlicePlan, latest_active_slice, new_slice, plan_slices
from tests.support.kueue_cluster import LOWER, World, cohort, pods, queue, quota, workload


def grown(old: str, new: str, queue: str, count: int) -> Workload:
    """The slice `new` with `count` pods of one GPU that is to replace `old`."""
    made = workload(new, queue, pod_sets=[pods(count)], created=5)
    return replace(made, annotations={ELASTIC: "true", REPLACEMENT_FOR: f"team/{old}"})


def test_a_slice_needs_only_what_it_adds() -> None:
    world = World(queue("q", 4)).run(workload("one", "q", pod_sets=[pods(3)]), admitted=True)
    world.apply(grown("one", "two", "q", 4))
    (decision,) = world.cycle()
    assert isinstance(decision, Admit)
    assert decision.replaces == "team/one"
    assert decision.admission.pod_sets[0].usage == {"nvidia.com/gpu": 4}
    assert world.running == {"two"}
    assert world.session.available("q", "f", "nvidia.com/gpu") == 0


def test_without_the_gate_it_needs_everything() -> None:
    config = KueueConfig(gates={"ElasticJobsViaWorkloadSlices": False})
    world = World(queue("q", 4), config=config).run(workload("one", "q", pod_sets=[pods(3)]), admitted=True)
    world.run(grown("one", "two", "q", 4))
    assert world.running == {"one"}
    assert world.message("two").endswith("insufficient unused quota for nvidia.com/gpu in flavor f, 3 more needed")


def test_what_is_missing_is_counted_without_what_the_old_slice_has() -> None:
    world = World(queue("q", 5)).run(workload("one", "q", pod_sets=[pods(3)]), workload("other", "q"))
    world.run(grown("one", "two", "q", 5))
    assert world.running == {"one", "other"}
    assert world.message("two").endswith("insufficient unused quota for nvidia.com/gpu in flavor f, 1 more needed")


def test_a_slice_stays_with_the_flavor_of_the_one_before() -> None:
    world = World(queue("q", {"a": 2, "b": 8}), flavors=("a", "b"))
    world.run(workload("one", "q", pod_sets=[pods(2)]), admitted=True)
    world.run(grown("one", "two", "q", 3))
    assert world.running == {"one"}
    assert world.message("two") == (
        "couldn't assign flavors to pod set main: could not assign b flavor since the original workload is assigned: a,"
        " insufficient unused quota for nvidia.com/gpu in flavor a, 1 more needed"
    )


def test_a_slice_preempts_for_what_it_adds_and_never_its_own_old_one() -> None:
    world = World(queue("q", 4, within=LOWER))
    world.run(workload("one", "q", pod_sets=[pods(2)]), workload("low", "q", 2, priority=-1), admitted=True)
    world.run(grown("one", "two", "q", 4))
    assert world.running == {"two"}
    assert world.workloads["low"].is_true("Preempted")
    assert not world.workloads["one"].is_true("Preempted")


def test_a_slice_replaces_only_what_is_in_its_own_namespace_and_queue() -> None:
    world = World(queue("q", quota(2), cohort="c"), queue("p", quota(2), cohort="c"), cohort("c"))
    world.run(workload("one", "p", pod_sets=[pods(2)]), admitted=True)
    world.apply(grown("one", "two", "q", 2))
    (decision,) = world.cycle()
    assert isinstance(decision, Admit)
    assert decision.replaces == ""
    assert world.running == {"one", "two"}


def test_within_one_cycle_the_old_slice_counts_as_gone_so_that_a_cohort_may_give_too_much_as_in_kueue() -> None:
    world = World(queue("a", quota(2), cohort="c"), queue("b", quota(2), cohort="c"), cohort("c"))
    world.run(workload("one", "a", pod_sets=[pods(2)]), admitted=True)
    world.apply(grown("one", "two", "a", 3), workload("other", "b", 2, created=6))
    world.cycle()
    assert world.running == {"two", "other"}
    assert world.session.available("b", "f", "nvidia.com/gpu") == 0


def test_after_that_cycle_it_is_what_the_new_slice_has_that_counts() -> None:
    world = World(queue("a", quota(2), cohort="c"), queue("b", quota(2), cohort="c"), cohort("c"))
    world.run(workload("one", "a", pod_sets=[pods(2)]), grown("one", "two", "a", 3), admitted=True)
    world.run(workload("other", "b", 2, created=6))
    assert world.running == {"two"}


def test_a_slice_of_another_namespace_is_left_alone() -> None:
    world = World(queue("q", 4)).run(workload("one", "q", pod_sets=[pods(1)]), admitted=True)
    world.apply(Namespace(name="other"), LocalQueue(namespace="other", name="q", cluster_queue="q"))
    world.apply(replace(grown("one", "two", "q", 2), namespace="other"))
    (decision,) = world.session.run_cycle(world.now)
    assert isinstance(decision, Admit)
    assert decision.replaces == ""


def test_two_slices_cannot_replace_the_same_one() -> None:
    world = World(queue("q", 4)).run(workload("one", "q", pod_sets=[pods(1)]), admitted=True)
    world.run(grown("one", "two", "q", 2), grown("one", "three", "q", 2))
    assert world.running == {"two", "three"}
    assert world.workloads["one"].finished


def test_a_new_slice_says_which_chain_it_belongs_to() -> None:
    first = new_slice(workload("one", "q"), None)
    second = new_slice(workload("two", "q"), first)
    third = new_slice(workload("three", "q"), second)
    name = "kueue.x-k8s.io/workload-slice-name"
    assert first.annotations == {ELASTIC: "true", name: "one"}
    assert second.annotations == {ELASTIC: "true", REPLACEMENT_FOR: "team/one", name: "one"}
    assert third.annotations == {ELASTIC: "true", REPLACEMENT_FOR: "team/two", name: "one"}


def part(name: str, count: int = 1, *states: str, replaces: str = "") -> Workload:
    """A slice with conditions that are true."""
    notes = {REPLACEMENT_FOR: f"team/{replaces}"} if replaces else {}
    made = workload(name, "q", pod_sets=[pods(count)])
    return replace(made, annotations=notes, conditions=tuple(Condition(state, True) for state in states))


class Slices(NamedTuple):
    """A job's slices and the number of pods that it has now."""

    slices: tuple[Workload, ...]
    pods: int
    keep: str = ""
    edited: bool = False
    ended: str = ""
    """`slice:reason` of those that are finished."""


RESERVED, EVICTED = "QuotaReserved", "Evicted"

PLANS: dict[str, Slices] = {
    "a job without slices gets one": Slices((), 2),
    "a slice of the right size stays": Slices((part("a", 2, RESERVED),), 2, "a"),
    "one that waits is edited, up": Slices((part("a", 2),), 3, "a", True),
    "or down": Slices((part("a", 2),), 1, "a", True),
    "one with quota shrinks in place": Slices((part("a", 2, RESERVED),), 1, "a", True),
    "to grow, one with quota is replaced": Slices((part("a", 2, RESERVED),), 3),
    "its replacement is edited while it waits": Slices(
        (part("a", 2, RESERVED), part("b", 3, replaces="a")), 5, "b", True
    ),
    "of two with quota the newer stays": Slices(
        (part("a", 2, RESERVED), part("b", 3, RESERVED)), 3, "b", ended="a:OutOfSync"
    ),
    "one that was replaced says so": Slices(
        (part("a", 2, RESERVED), part("b", 3, RESERVED, replaces="a")), 3, "b", ended="a:WorkloadSliceReplaced"
    ),
    "one that waits and replaces nobody goes": Slices(
        (part("a", 2, RESERVED), part("b", 3)), 2, "a", ended="b:OutOfSync"
    ),
    "one that is being evicted makes way for its replacement": Slices(
        (part("a", 2, RESERVED, EVICTED), part("b", 3, replaces="a")), 3, "b", ended="a:WorkloadSliceReplaced"
    ),
    "of two that wait the newer stays": Slices((part("a", 2), part("b", 3)), 3, "b", ended="a:OutOfSync"),
    "of two that replace the same one that with quota counts": Slices(
        (part("b", 3, replaces="a"), part("c", 4, RESERVED, replaces="a"), part("a", 2, RESERVED)),
        4,
        "c",
        ended="b:OutOfSync a:WorkloadSliceReplaced",
    ),
    "when all are being evicted a new one is made": Slices(
        (part("a", 2, EVICTED), part("b", 2, EVICTED)), 2, ended="a:OutOfSync b:OutOfSync"
    ),
}


@pytest.mark.parametrize("case", PLANS.values(), ids=PLANS)
def test_which_slices_stay(case: Slices) -> None:
    plan = plan_slices(case.slices, (pods(case.pods),))
    ended = " ".join(f"{ending.workload.name}:{ending.reason}" for ending in plan.endings)
    assert (plan.current.name if plan.current else "", plan.is_edited, ended) == (case.keep, case.edited, case.ended)
    if plan.current is not None:
        assert plan.current.pod_sets[0].count == case.pods


def test_a_job_with_other_pod_sets_is_no_slice_of_it() -> None:
    renamed: PodSet = pods(1, name="workers")
    assert plan_slices((part("a"),), (renamed,)) == SlicePlan(is_compatible=False)


def test_the_latest_active_slice_has_quota_and_keeps_it() -> None:
    slices = (part("a", 1, RESERVED), part("b", 2, RESERVED), part("c", 3, RESERVED, EVICTED), part("d", 4))
    active = latest_active_slice(slices)
    assert active is not None
    assert active.name == "b"
    assert latest_active_slice(slices[2:]) is None
