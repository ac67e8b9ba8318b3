"""Who is next, who is parked, and who wakes whom."""

import pytest
from msgspec.structs import replace

from gpuconsole.model.clock import SECOND
from gpuconsole.model.cluster import Namespace
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.queues import LocalQueue, StopPolicy
from gpuconsole.model.workloads import Condition, RequeueState, Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.config import KueueConfig
from tests.support.kueue_cluster import (
    LOWER,
    STRICT,
    World,
    admitted,
    cohort,
    pods,
    queue,
    quota,
    refused,
    victims,
    workload,
)

ORDERS: dict[str, tuple[tuple[Workload, ...], list[str]]] = {
    "the oldest first": (
        (workload("b", "q", created=2), workload("a", "q", created=1), workload("c", "q", created=3)),
        ["a", "b", "c"],
    ),
    "a higher priority before an older one": (
        (workload("old", "q", created=1), workload("high", "q", created=2, priority=10)),
        ["high", "old"],
    ),
    "of one second the uid decides": (
        (workload("b", "q", created=1), workload("a", "q", created=1)),
        ["a", "b"],
    ),
    "one that was evicted by an admission check counts as queued since then": (
        (
            replace(
                workload("back", "q", created=1),
                conditions=(Condition("Evicted", True, "AdmissionCheck", "", 9 * SECOND),),
            ),
            workload("new", "q", created=5),
        ),
        ["new", "back"],
    ),
    "one that was preempted keeps its place": (
        (
            replace(
                workload("back", "q", created=1), conditions=(Condition("Evicted", True, "Preempted", "", 9 * SECOND),)
            ),
            workload("new", "q", created=5),
        ),
        ["back", "new"],
    ),
}


@pytest.mark.parametrize(("arrivals", "want"), ORDERS.values(), ids=ORDERS.keys())
def test_order_in_a_queue(arrivals: tuple[Workload, ...], want: list[str]) -> None:
    world = World(queue("q", 10))
    world.apply(*arrivals)
    assert world.waiting("q") == want
    assert [p.position for p in world.session.pending_workloads("q")] == list(range(1, len(want) + 1))


def test_each_cycle_takes_one_head_of_every_queue() -> None:
    world = World(queue("a", 9), queue("b", 9))
    world.apply(*(workload(f"{q}{n}", q, created=n) for q in "ab" for n in range(2)))
    assert admitted(world.cycle()) == ["a0", "b0"]
    assert admitted(world.cycle()) == ["a1", "b1"]


def test_strict_fifo_lets_nobody_pass_the_head() -> None:
    world = World(queue("q", 4, strategy=STRICT))
    world.run(workload("big", "q", 8, created=1), workload("small", "q", 2, created=2))
    assert world.running == set()
    assert world.waiting("q") == ["big", "small"]


def test_a_strict_head_does_not_stop_other_queues() -> None:
    world = World(queue("q", 4, cohort="c", strategy=STRICT), queue("other", 0, cohort="c"))
    world.run(workload("big", "q", 16, created=1), workload("loan", "other", 2, created=2))
    assert world.running == {"loan"}


def test_best_effort_parks_the_head_and_goes_on() -> None:
    world = World(queue("q", 4))
    world.run(workload("big", "q", 8, created=1), workload("small", "q", 2, created=2))
    assert world.running == {"small"}
    assert world.waiting("q") == ["(big)"]
    assert world.session.is_inadmissible("team/big")
    assert not world.session.has_heads


def test_what_ends_anywhere_in_the_tree_wakes_all_of_it() -> None:
    world = World(
        cohort("root"),
        cohort("left", parent="root"),
        cohort("right", parent="root"),
        queue("a", 2, cohort="left"),
        queue("b", 2, cohort="right"),
        queue("alone", 1),
    )
    world.run(workload("a0", "a", 2), workload("b0", "b", 2), workload("c0", "alone", 1), admitted=True)
    world.run(workload("a1", "a", 1), workload("b1", "b", 1), workload("c1", "alone", 1))
    assert (world.waiting("a"), world.waiting("b"), world.waiting("alone")) == (["(a1)"], ["(b1)"], ["(c1)"])
    world.finish("b0")
    assert (world.waiting("a"), world.waiting("b"), world.waiting("alone")) == (["a1"], ["b1"], ["(c1)"])


def test_wake_ups_wait_until_they_are_asked_for() -> None:
    world = World(queue("q", 2))
    world.run(workload("first", "q", 2), workload("second", "q", 2, created=1))
    world.simulator.finish("team/first")
    assert world.session.has_requeue_due
    assert not world.session.has_heads
    world.session.requeue_inadmissible(world.now)
    assert not world.session.has_requeue_due
    assert world.waiting("q") == ["second"]


def test_arrivals_wake_nobody() -> None:
    world = World(queue("q", 2))
    world.run(workload("big", "q", 4))
    world.apply(workload("new", "q", 1, created=1))
    assert world.waiting("q") == ["(big)", "new"]
    assert not world.session.has_requeue_due


def test_a_bigger_quota_wakes_the_queue() -> None:
    world = World(queue("q", 2))
    world.run(workload("big", "q", 4))
    world.apply(queue("q", 4))
    world.session.requeue_inadmissible(world.now)
    world.settle()
    assert world.running == {"big"}


def test_a_deleted_waiting_workload_wakes_too() -> None:
    world = World(queue("q", 2))
    world.run(workload("big", "q", 4), workload("bigger", "q", 8))
    world.session.delete("workloads", "team/big", world.now)
    assert world.session.has_requeue_due


def test_look_alikes_are_parked_unseen() -> None:
    world = World(queue("q", 2))
    world.apply(*(workload(f"big{n}", "q", 4, created=n) for n in range(3)), workload("small", "q", 1, created=9))
    assert list(refused(world.cycle())) == ["big0"]
    assert world.waiting("q") == ["(big0)", "(big1)", "(big2)", "small"]
    world.apply(workload("big3", "q", 4, created=3), workload("other", "q", 5, created=4))
    assert world.waiting("q") == ["(big0)", "(big1)", "(big2)", "(big3)", "other", "small"]
    assert world.message("big1") == ""


def test_look_alikes_differ_by_priority_and_by_pod_set_name() -> None:
    world = World(queue("q", 2))
    world.run(workload("big", "q", 4))
    world.apply(
        workload("high", "q", 4, created=1, priority=1),
        workload("named", "q", created=2, pod_sets=(pods(1, 4, name="other"),)),
    )
    assert world.waiting("q") == ["high", "(big)", "named"]


def test_without_the_gate_every_look_alike_is_tried() -> None:
    world = World(queue("q", 2), config=KueueConfig(gates={"SchedulingEquivalenceHashing": False}))
    world.apply(*(workload(f"big{n}", "q", 4, created=n) for n in range(2)))
    world.cycle()
    assert world.waiting("q") == ["(big0)", "big1"]


def test_a_preemptor_stays_the_head_while_its_victim_goes() -> None:
    """Somebody with a higher priority arrives, but the preemptor is tried first until its quota is free."""
    world = World(queue("q", 2, within=LOWER))
    world.run(workload("low", "q", 2), admitted=True)
    world.apply(workload("high", "q", 2, priority=10, created=1))
    world.now += SECOND
    assert victims(world.session.run_cycle(world.now)) == {"low": "InClusterQueue"}
    world.apply(workload("higher", "q", 2, priority=20, created=2))
    assert world.waiting("q") == ["high", "higher"]
    world.apply(
        conditions.release_quota(conditions.mark_evicted(world.workloads["low"], "Preempted", "", world.now), world.now)
    )
    assert admitted(world.cycle()) == ["high"]


def test_under_strict_fifo_a_preemptor_gives_way_to_a_higher_priority() -> None:
    world = World(queue("q", 2, within=LOWER, strategy=STRICT))
    world.run(workload("low", "q", 2), admitted=True)
    world.apply(workload("high", "q", 2, priority=10, created=1))
    world.now += SECOND
    world.session.run_cycle(world.now)
    world.apply(workload("higher", "q", 2, priority=20, created=2))
    assert world.waiting("q") == ["higher", "high"]


def test_a_backoff_parks_until_somebody_ends_it() -> None:
    world = World(queue("q", 2))
    until = world.now + 60 * SECOND
    waits = replace(
        workload("w", "q"),
        requeue=RequeueState(1, until),
        conditions=(Condition("Requeued", False, "PodsReadyTimeout", "", world.now),),
    )
    world.apply(waits)
    assert world.waiting("q") == ["(w)"]
    assert world.session.next_requeue == until
    world.apply(queue("q", 3))
    world.session.requeue_inadmissible(world.now)
    assert world.waiting("q") == ["(w)"], "a wake-up does not shorten it"
    world.now = until
    world.apply(conditions.mark_requeued(waits, "BackoffFinished", "The workload backoff was finished", until))
    assert world.waiting("q") == ["w"]
    assert world.session.next_requeue is None


def test_a_head_that_has_to_wait_meanwhile_is_parked_even_in_strict_fifo() -> None:
    world = World(queue("q", 2, strategy=STRICT))
    world.apply(workload("big", "q", 4))
    world.apply(
        replace(world.workloads["big"], conditions=(Condition("Requeued", False, "PodsReadyTimeout", "", world.now),))
    )
    assert world.waiting("q") == ["big"]
    world.cycle()
    assert world.waiting("q") == ["(big)"]


def test_a_parked_workload_comes_back_for_a_change_that_matters() -> None:
    world = World(queue("q", 2))
    world.run(workload("big", "q", 4))
    world.apply(replace(world.workloads["big"], labels={"seen": "yes"}))
    assert world.waiting("q") == ["(big)"]
    world.apply(replace(world.workloads["big"], priority=5))
    assert world.waiting("q") == ["big"]


def test_priority_and_queue_of_a_waiting_workload_can_change() -> None:
    world = World(queue("q", 2), queue("r", 2))
    world.apply(workload("a", "q", created=1), workload("b", "q", created=2))
    world.apply(workload("b", "q", created=2, priority=3))
    assert world.waiting("q") == ["b", "a"]
    world.apply(workload("b", "r", created=2, priority=3))
    assert (world.waiting("q"), world.waiting("r")) == (["a"], ["b"])


def test_a_namespace_that_is_gone_is_named() -> None:
    world = World(queue("q", 2))
    world.session.delete("namespaces", "team", world.now)
    world.run(workload("w", "q"))
    assert world.message("w") == 'workload namespace "team" does not exist: namespaces "team" not found'
    world.apply(Namespace(name="team"))
    world.session.requeue_inadmissible(world.now)
    world.settle()
    assert world.running == {"w"}


def test_a_namespace_that_does_not_match_is_parked_even_in_strict_fifo() -> None:
    selector = LabelSelector(match_labels={"team": "yes"})
    world = World(queue("q", 2, strategy=STRICT, selector=selector))
    world.run(workload("w", "q"))
    assert world.waiting("q") == ["(w)"]
    assert world.message("w") == "workload namespace doesn't match ClusterQueue selector"
    world.apply(Namespace(name="team", labels={"team": "yes"}))
    world.session.requeue_inadmissible(world.now)
    world.settle()
    assert world.running == {"w"}


def test_a_queue_without_a_selector_admits_nobody() -> None:
    assert World(queue("q", 2, selector=None)).run(workload("w", "q")).running == set()


@pytest.mark.parametrize("policy", [StopPolicy.HOLD, StopPolicy.HOLD_AND_DRAIN])
def test_a_stopped_queue_tries_nobody_until_it_is_opened(policy: StopPolicy) -> None:
    world = World(replace(queue("q", 2), stop_policy=policy))
    world.apply(workload("w", "q"))
    assert not world.session.has_heads
    assert world.cycle() == []
    world.apply(queue("q", 2))
    world.session.requeue_inadmissible(world.now)
    world.settle()
    assert world.running == {"w"}


def test_workloads_wait_for_their_local_queue() -> None:
    world = World(queue("q", 2))
    world.apply(workload("w", "nowhere"))
    assert not world.session.has_heads
    world.apply(LocalQueue(namespace="team", name="nowhere", cluster_queue="q"))
    assert world.waiting("q") == ["w"]
    world.apply(LocalQueue(namespace="team", name="nowhere", cluster_queue="q", stop_policy=StopPolicy.HOLD))
    assert world.waiting("q") == []


def test_a_flavor_that_does_not_exist_closes_its_queue() -> None:
    world = World(queue("q", {"gone": 2}))
    world.apply(workload("w", "q"))
    assert not world.session.has_heads


def test_cohorts_in_a_circle_admit_nobody_until_it_is_broken() -> None:
    world = World(cohort("x", parent="y"), cohort("y", parent="x"), queue("q", quota(2), cohort="x"))
    world.apply(workload("w", "q"))
    assert not world.session.has_heads
    world.apply(cohort("y"))
    world.session.requeue_inadmissible(world.now)
    world.settle()
    assert world.running == {"w"}


def test_finished_stopped_and_deleted_workloads_give_their_quota_back() -> None:
    world = World(queue("q", 3))
    world.run(*(workload(name, "q", 1) for name in ("done", "stopped", "deleted")), admitted=True)
    assert world.session.available("q", "f", "nvidia.com/gpu") == 0
    world.finish("done")
    world.apply(replace(world.workloads["stopped"], active=False))
    world.session.delete("workloads", "team/deleted", world.now)
    assert world.session.available("q", "f", "nvidia.com/gpu") == 3
