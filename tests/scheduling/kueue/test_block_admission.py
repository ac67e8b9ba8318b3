"""waitForPodsReady.blockAdmission: nobody is admitted before all those that are admitted are ready."""

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from gpuconsole.model.events import Refuse
from gpuconsole.model.workloads import Condition
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.config import KueueConfig, WaitForPodsReady
from tests.scheduling.kueue.test_topology import RACK, places, required, site
from tests.support.kueue_cluster import ANY, LOWER, World, admitted, pods, queue, refused, victims, workload

BLOCKING = KueueConfig(wait_for_pods_ready=WaitForPodsReady(block_admission=True))
WAITS = "waiting for all admitted workloads to be in PodsReady condition"


def ready(world: World, *names: str) -> None:
    for name in names:
        seen = world.workloads[name].with_condition(Condition("PodsReady", True, "Started", "", world.now))
        world.apply(seen)


def three_queues(config: KueueConfig = BLOCKING) -> World:
    """Each has room for its workload; `a` is the first in every order."""
    world = World(*(queue(name, 4) for name in "abc"), config=config)
    world.apply(*(workload(name, name, priority=-n) for n, name in enumerate("abc")))
    return world


def test_one_is_admitted_in_a_cycle_and_the_next_is_told_to_wait() -> None:
    world = three_queues()
    decisions = world.cycle()
    assert (admitted(decisions), refused(decisions)) == (["a"], {"b": WAITS})
    assert [d.reason for d in decisions if isinstance(d, Refuse)] == ["Waiting"]
    assert [world.waiting(name) for name in "abc"] == [[], ["b"], ["c"]]


def test_the_next_comes_when_the_one_before_is_ready() -> None:
    world = three_queues()
    seen = []
    for _ in range(4):
        seen.append(admitted(world.cycle()))
        ready(world, *world.running)
    assert seen == [["a"], ["b"], ["c"], []]


def test_until_then_another_cycle_decides_nothing_new() -> None:
    world = three_queues()
    world.cycle()
    assert (admitted(world.cycle()), world.session.has_progressed) == ([], False)


def test_whoever_goes_unready_lets_the_next_in() -> None:
    world = three_queues()
    world.cycle()
    world.finish("a")
    assert admitted(world.cycle()) == ["b"]


def test_a_workload_that_only_has_quota_is_waited_for_too() -> None:
    world = three_queues()
    (decision, *_) = world.session.run_cycle(world.now)
    world.apply(conditions.reserve_quota(world.workloads["a"], decision.admission, world.now))  # type: ignore[union-attr]
    assert admitted(world.cycle()) == []


def test_preemption_goes_on_meanwhile() -> None:
    world = World(queue("a", 4, within=LOWER, reclaim=ANY), queue("b", 4), config=BLOCKING)
    world.run(workload("runs", "a", gpus=4))
    world.apply(workload("urgent", "a", gpus=4, priority=9))
    assert victims(world.cycle()) == {"runs": "InClusterQueue"}


def test_those_behind_the_first_that_waits_are_told_nothing_and_tried_anew() -> None:
    world = World(*(queue(name, 4) for name in "abc"), config=BLOCKING)
    world.run(workload("runs", "a"))
    world.apply(workload("b", "b"), workload("late", "c", gpus=9, priority=-1))
    decisions = world.cycle()
    assert refused(decisions) == {"b": WAITS}
    assert world.waiting("c") == ["late"]
    ready(world, "runs")
    assert list(refused(world.cycle())) == ["late"]


def without(*gates: str) -> KueueConfig:
    return replace(BLOCKING, gates=dict.fromkeys(gates, True))


@pytest.mark.parametrize(
    "config", [KueueConfig(), without("DisableWaitForPodsReady")], ids=["not blocking", "disabled"]
)
def test_otherwise_all_come_at_once(config: KueueConfig) -> None:
    assert admitted(three_queues(config).cycle()) == ["a", "b", "c"]


def reasons(decisions: Iterable[object]) -> list[str]:
    return [decision.reason for decision in decisions if isinstance(decision, Refuse)]


def test_behind_its_gate_the_reason_says_what_is_waited_for() -> None:
    assert reasons(three_queues(without("UnadmittedWorkloadsObservability")).cycle()) == ["WaitingForPodsReady"]


def test_a_workload_whose_node_failed_gets_another_place_meanwhile() -> None:
    """It is itself one of those that are waited for."""
    shape = pods(2, 1, topology=required(RACK))
    world = World(*site(((2,), (2,))), queue("q", 100), config=BLOCKING)
    world.run(workload("w", "q", pod_sets=(shape,)), admitted=True)
    first = places(world, "w")["main"]
    for node in first:
        world.session.delete("nodes", node, world.now)
    world.apply(replace(world.workloads["w"], unhealthy_nodes=tuple(first)))
    assert admitted(world.cycle()) == ["w"]
    assert places(world, "w")["main"].keys().isdisjoint(first)


def test_whoever_left_while_a_cycle_waited_is_a_candidate_in_it_and_is_not_evicted() -> None:
    """The cycle goes on with what it knew when it began, so that the preemptor is tried again, not inadmissible."""
    shape = (pods(2, 1, topology=required(RACK)),)
    world = World(*site(((2,), (2,))), queue("a", 4), queue("b", 4, within=LOWER), config=BLOCKING)
    world.run(workload("gone", "b", pod_sets=shape))
    world.apply(workload("x", "a", priority=10, pod_sets=shape), workload("y", "b", priority=9, pod_sets=shape))
    assert refused(world.session.run_cycle(world.now, stays_open=True)) == {"x": WAITS}
    world.session.delete("workloads", "team/gone", world.now)
    decisions = world.session.run_cycle(world.now, stays_open=True)
    assert (admitted(decisions), victims(decisions), world.waiting("b")) == (["x"], {}, ["y"])
