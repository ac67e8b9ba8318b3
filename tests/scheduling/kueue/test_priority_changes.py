"""A running workload's priority changes: those who wait may now preempt it, so they are tried again."""

import pytest
from msgspec.structs import replace

from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.pod_resources import PRIORITY_BOOST, effective_priority, priority_changed
from tests.support.kueue_cluster import LOWER, World, queue, workload

LOW = Workload(name="w", priority=10, priority_class="low", priority_kind="WorkloadPriorityClass")
PLAIN = Workload(name="w")
POD = Workload(name="w", priority=10, priority_class="low", priority_kind="PriorityClass")
BOOSTED = replace(LOW, annotations={PRIORITY_BOOST: "5"})

CASES = {
    "another class": (LOW, replace(LOW, priority_class="high"), True),
    "a class for the first time": (PLAIN, LOW, True),
    "the class has another value": (LOW, replace(LOW, priority=5), True),
    "the same": (LOW, replace(LOW), False),
    "the class is taken away": (LOW, PLAIN, False),
    "priorities of pods do not change": (POD, replace(POD, priority=50), False),
    "a number without a class": (PLAIN, replace(PLAIN, priority=5), False),
    "a boost, which counts behind its gate only": (LOW, BOOSTED, False),
}


@pytest.mark.parametrize(("old", "new", "want"), CASES.values(), ids=CASES)
def test_which_changes_are_changes_of_priority(old: Workload, new: Workload, want: bool) -> None:
    assert priority_changed(old, new, KueueConfig()) is want


def test_a_boost_changes_the_priority_where_its_gate_is_on() -> None:
    assert priority_changed(LOW, BOOSTED, KueueConfig(gates={"PriorityBoost": True}))


def test_who_waits_is_tried_again_when_a_running_workload_loses_priority() -> None:
    world = World(queue("q", 4, within=LOWER))
    high = replace(workload("runs", "q", 4, priority=10), priority_class="high", priority_kind="WorkloadPriorityClass")
    world.run(high, admitted=True).run(workload("waits", "q", 4, priority=5))
    assert world.waiting("q") == ["(waits)"]
    world.apply(replace(world.workloads["runs"], priority=1))
    world.session.requeue_inadmissible(world.now)
    world.settle()
    assert world.running == {"waits"}


@pytest.mark.parametrize("text", ["", "0", "high", "1_0", " 5", "2147483648"])
def test_a_boost_that_is_no_number_of_32_bits_boosts_nothing(text: str) -> None:
    boosted = replace(LOW, annotations={PRIORITY_BOOST: text})
    assert effective_priority(boosted, KueueConfig(gates={"PriorityBoost": True})) == 10
