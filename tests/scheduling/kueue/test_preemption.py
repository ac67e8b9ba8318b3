"""Whom a workload may evict, how few, in which order, and what is kept for one that finds nobody."""

from typing import NamedTuple

import pytest
from msgspec.structs import replace

from gpuconsole.model.clock import SECOND
from gpuconsole.model.events import Preempt
from gpuconsole.model.queues import BorrowWithinCohort, ClusterQueue, Cohort, ResourceFlavor
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.config import KueueConfig
from tests.support.kueue_cluster import (
    ANY,
    LOWER,
    NEWER_EQUAL,
    World,
    admitted,
    cohort,
    queue,
    quota,
    refused,
    victims,
    workload,
)

OWN = "InClusterQueue"
RECLAIM = "InCohortReclamation"
WHILE_BORROWING = "InCohortReclaimWhileBorrowing"


class Case(NamedTuple):
    """Who runs (admitted one after the other), who comes, and the victims of the next cycle."""

    things: tuple[ClusterQueue | Cohort, ...]
    running: tuple[Workload, ...]
    newcomer: Workload
    want: dict[str, str]


def w(name: str, where: str, gpus: int, priority: int = 0, created: int = 0) -> Workload:
    return workload(name, where, gpus, priority=priority, created=created)


def pair(**of_a: object) -> tuple[ClusterQueue, ...]:
    """Queues a and b of 4 each in one cohort; b has no rights."""
    return queue("a", 4, cohort="c", **of_a), queue("b", 4, cohort="c")  # type: ignore[arg-type]


POLICIES: dict[str, Case] = {
    "Never takes from nobody": Case((queue("a", 4),), (w("low", "a", 4, -5),), w("new", "a", 4), {}),
    "LowerPriority takes lower ones of its own queue": Case(
        (queue("a", 4, within=LOWER),), (w("low", "a", 4, -5),), w("new", "a", 4), {"low": OWN}
    ),
    "LowerPriority spares equals": Case(
        (queue("a", 4, within=LOWER),), (w("same", "a", 4),), w("new", "a", 4, created=-5), {}
    ),
    "LowerOrNewerEqualPriority takes equals that were created later": Case(
        (queue("a", 4, within=NEWER_EQUAL),),
        (w("same", "a", 4, created=9),),
        w("new", "a", 4, created=5),
        {"same": OWN},
    ),
    "LowerOrNewerEqualPriority spares equals that were created earlier": Case(
        (queue("a", 4, within=NEWER_EQUAL),), (w("same", "a", 4, created=1),), w("new", "a", 4, created=5), {}
    ),
    "LowerOrNewerEqualPriority takes lower ones of any age": Case(
        (queue("a", 4, within=NEWER_EQUAL),), (w("low", "a", 4, -1),), w("new", "a", 4, created=5), {"low": OWN}
    ),
    "within the queue gives no right over others": Case(
        pair(within=LOWER), (w("b0", "b", 8, -5),), w("new", "a", 4), {}
    ),
    "reclaim Any takes whatever borrows": Case(
        pair(reclaim=ANY), (w("b0", "b", 4, 9), w("b1", "b", 4, 9)), w("new", "a", 4), {"b1": RECLAIM}
    ),
    "reclaim LowerPriority spares equals": Case(pair(reclaim=LOWER), (w("b0", "b", 8),), w("new", "a", 4), {}),
    "reclaim LowerPriority takes lower ones": Case(
        pair(reclaim=LOWER), (w("b0", "b", 8, -1),), w("new", "a", 4), {"b0": RECLAIM}
    ),
    "nobody takes from a queue within its nominal quota": Case(
        (queue("a", 4, cohort="c", reclaim=ANY), queue("b", 4, cohort="c"), queue("d", 2, cohort="c")),
        (w("a0", "a", 4, 9), w("b0", "b", 4, -5), w("d0", "d", 2, -5)),
        w("new", "a", 4),
        {},
    ),
    "reclaiming stops when the other queue borrows no more": Case(
        (queue("a", 6, cohort="c", reclaim=ANY), queue("b", 4, cohort="c")),
        (w("b0", "b", 2), w("b1", "b", 2), w("b2", "b", 2), w("b3", "b", 2), w("b4", "b", 2)),
        w("new", "a", 6),
        {"b2": RECLAIM, "b3": RECLAIM, "b4": RECLAIM},
    ),
    "then it is another queue's turn, whatever the priorities": Case(
        (
            queue("a", 4, cohort="c", reclaim=ANY),
            queue("b", 4, cohort="c"),
            queue("d", 2, cohort="c"),
        ),
        (w("b0", "b", 2, -5), w("b1", "b", 2, -5), w("b2", "b", 2, -5), w("d0", "d", 2, 9), w("d1", "d", 2, 9)),
        w("new", "a", 4),
        {"b2": RECLAIM, "d1": RECLAIM},
    ),
    "reclaiming goes together with evicting the own, if the queue borrows nothing in the end": Case(
        (queue("a", 4, cohort="c", within=LOWER, reclaim=ANY), queue("b", 4, cohort="c")),
        (w("a0", "a", 2, -1), w("b0", "b", 2), w("b1", "b", 2), w("b2", "b", 2)),
        w("new", "a", 4),
        {"a0": OWN, "b2": RECLAIM},
    ),
    "nobody reclaims in order to borrow": Case(
        pair(reclaim=ANY), (w("b0", "b", 4), w("b1", "b", 4)), w("new", "a", 6), {}
    ),
    "unless borrowWithinCohort allows it, from lower priorities": Case(
        (
            cohort("c", 4),
            queue("a", 2, cohort="c", reclaim=LOWER, borrow=BorrowWithinCohort(LOWER)),
            queue("b", 0, cohort="c"),
        ),
        (w("b0", "b", 4, -1), w("b1", "b", 2, -1)),
        w("new", "a", 4, 0),
        {"b0": WHILE_BORROWING},
    ),
    "up to the threshold": Case(
        (
            cohort("c", 4),
            queue("a", 0, cohort="c", reclaim=LOWER, borrow=BorrowWithinCohort(LOWER, 5)),
            queue("b", 0, cohort="c"),
        ),
        (w("low", "b", 2, 5), w("high", "b", 2, 6)),
        w("new", "a", 2, 9),
        {"low": WHILE_BORROWING},
    ),
    "and not above it": Case(
        (
            cohort("c", 4),
            queue("a", 0, cohort="c", reclaim=LOWER, borrow=BorrowWithinCohort(LOWER, 4)),
            queue("b", 0, cohort="c"),
        ),
        (w("low", "b", 2, 5), w("high", "b", 2, 6)),
        w("new", "a", 2, 9),
        {},
    ),
    "a queue without a cohort knows only its own": Case(
        (queue("a", 4, within=LOWER, reclaim=ANY), queue("b", 4)),
        (w("a0", "a", 4, -1), w("b0", "b", 4, -1)),
        w("new", "a", 2),
        {"a0": OWN},
    ),
}

SETS: dict[str, Case] = {
    "the lowest priority first": Case(
        (queue("a", 4, within=LOWER),),
        (w("p2", "a", 2, 2), w("p1", "a", 2, 1)),
        w("new", "a", 2, 9),
        {"p1": OWN},
    ),
    "of equals the newest reservation": Case(
        (queue("a", 6, within=LOWER),),
        (w("first", "a", 2, 1, 3), w("second", "a", 2, 1, 2), w("third", "a", 2, 1, 1)),
        w("new", "a", 4, 9),
        {"second": OWN, "third": OWN},
    ),
    "others before the own, even at a higher priority": Case(
        (queue("a", 4, cohort="c", within=LOWER, reclaim=ANY), queue("b", 2, cohort="c")),
        (w("own", "a", 2, 0), w("loan", "b", 4, 10)),
        w("new", "a", 2, 20),
        {"loan": RECLAIM},
    ),
    "victims that are not needed in the end are put back": Case(
        (queue("a", 6, within=LOWER),),
        (w("five", "a", 5, 2), w("one", "a", 1, 1)),
        w("new", "a", 5, 9),
        {"five": OWN},
    ),
    "those that are needed stay victims": Case(
        (queue("a", 6, within=LOWER),),
        (w("four", "a", 4, 2), w("two", "a", 2, 1)),
        w("new", "a", 5, 9),
        {"four": OWN, "two": OWN},
    ),
    "no set is enough, so nobody goes": Case(
        (queue("a", 6, within=LOWER),),
        (w("low", "a", 2, 1), w("high", "a", 4, 9)),
        w("new", "a", 4, 5),
        {},
    ),
    "what is free already is not taken from anybody": Case(
        (queue("a", 6, within=LOWER),),
        (w("x", "a", 2, 1), w("y", "a", 2, 1)),
        w("new", "a", 4, 9),
        {"y": OWN},
    ),
    "a queue that lends nothing out of its own evicts less when others within their quota do not count": Case(
        (cohort("c", 4), queue("a", 10, cohort="c", within=LOWER, reclaim=ANY), queue("b", 10, cohort="c")),
        (w("a0", "a", 4, -1), w("a1", "a", 4, -1), w("b0", "b", 10, -1)),
        w("new", "a", 10),
        {"a1": OWN},
    ),
}

TREES: dict[str, Case] = {
    "what is borrowed from further away is nearer to its owner": Case(
        (
            cohort("root"),
            cohort("left", parent="root"),
            cohort("right", parent="root"),
            queue("a", 4, cohort="left", reclaim=ANY),
            queue("near", 0, cohort="left"),
            queue("far", 0, cohort="right"),
        ),
        (w("near0", "near", 2, 1), w("far0", "far", 2, 9)),
        w("new", "a", 2),
        {"near0": RECLAIM},
    ),
    "by priority it takes from near and far alike": Case(
        (
            cohort("root"),
            cohort("left", parent="root"),
            cohort("right", parent="root"),
            queue("a", 4, cohort="left", reclaim=LOWER),
            queue("near", 0, cohort="left"),
            queue("far", 0, cohort="right"),
        ),
        (w("near0", "near", 2, 1), w("far0", "far", 2, -9)),
        w("new", "a", 2),
        {"far0": RECLAIM},
    ),
    "what its own cohort could give is its to reclaim from further away": Case(
        (
            cohort("root"),
            cohort("left", 4, parent="root"),
            cohort("right", parent="root"),
            queue("a", 0, cohort="left", reclaim=ANY),
            queue("far", 0, cohort="right"),
        ),
        (w("far0", "far", 4, 9),),
        w("new", "a", 4),
        {"far0": RECLAIM},
    ),
    "a cohort within its quota protects its queues": Case(
        (
            cohort("root"),
            cohort("left", parent="root"),
            cohort("right", 2, parent="root"),
            queue("a", 4, cohort="left", reclaim=ANY),
            queue("far", 0, cohort="right"),
            queue("loan", 0, cohort="root"),
        ),
        (w("far0", "far", 2, -9), w("loan0", "loan", 4, 9)),
        w("new", "a", 4),
        {"loan0": RECLAIM},
    ),
}

CASES = POLICIES | SETS | TREES
WITH_VICTIMS = {name: case for name, case in CASES.items() if case.want}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_victims(case: Case) -> None:
    world = World(*case.things).run(*case.running, admitted=True)
    world.apply(case.newcomer)
    assert victims(world.cycle()) == case.want


@pytest.mark.parametrize(
    "case", [case for case in CASES.values() if case.want], ids=[k for k in CASES if CASES[k].want]
)
def test_a_preemptor_gets_what_its_victims_leave(case: Case) -> None:
    world = World(*case.things).run(*case.running, admitted=True)
    world.apply(case.newcomer)
    world.cycle()
    assert case.newcomer.name in admitted(world.cycle())


def test_the_texts_of_a_preemption() -> None:
    world = World(cohort("root"), cohort("left", parent="root"), queue("a", 4, cohort="left", within=LOWER))
    world.run(workload("low", "a", 4), admitted=True)
    job = replace(workload("new", "a", 2, priority=7), labels={"kueue.x-k8s.io/job-uid": "job-1"})
    world.apply(job)
    decisions = world.cycle()
    assert [d for d in decisions if isinstance(d, Preempt)] == [
        Preempt(
            "team/low",
            "team/new",
            decisions[0].rule,  # type: ignore[union-attr]
            "Preempted to accommodate a workload (UID: uid-new, JobUID: job-1) due to prioritization in the "
            "ClusterQueue; preemptor path: /root/left/a; preemptee path: /root/left/a",
        )
    ]
    assert refused(decisions) == {
        "new": "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor f, "
        "2 more needed. Pending the preemption of 1 workload(s)"
    }
    low = world.workloads["low"]
    assert (low.is_true("Preempted"), low.is_true("Evicted"), low.is_true("Requeued")) == (True, True, True)


def test_a_victim_is_asked_to_go_once_and_holds_its_quota_until_it_is_gone() -> None:
    world = World(queue("a", 4, within=LOWER)).run(workload("low", "a", 4), admitted=True)
    world.apply(workload("new", "a", 4, priority=9))
    assert victims(world.session.run_cycle(world.now)) == {"low": OWN}
    world.apply(conditions.mark_evicted(world.workloads["low"], "Preempted", "", world.now))
    again = world.session.run_cycle(world.now + SECOND)
    assert (victims(again), list(refused(again))) == ({}, ["new"])
    assert world.session.available("a", "f", "nvidia.com/gpu") == 0


def test_two_heads_do_not_take_the_same_victim() -> None:
    world = World(
        queue("a", 2, cohort="c", reclaim=ANY), queue("b", 2, cohort="c", reclaim=ANY), queue("loan", 0, cohort="c")
    )
    world.run(workload("big", "loan", 4), admitted=True)
    world.apply(workload("a0", "a", 2, created=1), workload("b0", "b", 2, created=2))
    decisions = world.cycle()
    assert victims(decisions) == {"big": RECLAIM}
    assert refused(decisions)["b0"] == "Workload has overlapping preemption targets with another workload"
    assert admitted(world.cycle()) == ["a0", "b0"]


def keeper(reclaim_policy: object) -> World:
    """Queue a (4) needs all of its quota, of which b borrows 2; b's second head would take what is left of it."""
    world = World(
        queue("a", 4, cohort="c", reclaim=reclaim_policy),  # type: ignore[arg-type]
        queue("b", 0, cohort="c"),
    )
    world.run(workload("b0", "b", 2, priority=9), admitted=True)
    world.apply(workload("a0", "a", 4, created=1), workload("b1", "b", 2, created=2))
    return world


def test_what_a_head_cannot_reclaim_is_kept_for_it() -> None:
    world = keeper(LOWER)
    decisions = world.cycle()
    assert (admitted(decisions), victims(decisions)) == ([], {})
    assert refused(decisions)["b1"] == "Workload no longer fits after processing another workload"


def test_nothing_is_kept_for_one_that_may_reclaim_from_anybody() -> None:
    """With nobody to evict now it need not fear later loans: it can take them back."""
    world = World(queue("a", 4, cohort="c", reclaim=ANY), queue("b", 2, cohort="c"), queue("d", 0, cohort="c"))
    world.run(workload("a0", "a", 2, priority=9), workload("b0", "b", 2, priority=9), admitted=True)
    world.apply(workload("a1", "a", 4, created=1), workload("d0", "d", 2, created=2))
    assert admitted(world.cycle()) == ["d0"]


def test_heads_that_do_not_borrow_come_first_whatever_their_priority() -> None:
    world = World(queue("a", 4, cohort="c"), queue("b", 0, cohort="c"))
    world.apply(workload("own", "a", 4, created=5), workload("loan", "b", 4, priority=100))
    assert admitted(world.cycle()) == ["own"]
    assert world.message("loan") == "Workload no longer fits after processing another workload"


ORDERS: dict[str, tuple[Workload, Workload, str]] = {
    "then the higher priority": (
        workload("a0", "a", 4, created=1),
        workload("b0", "b", 4, created=2, priority=1),
        "b0",
    ),
    "then the older": (workload("a0", "a", 4, created=2), workload("b0", "b", 4, created=1), "b0"),
    "then the queue's name": (workload("a0", "a", 4, created=1), workload("b0", "b", 4, created=1), "a0"),
}


@pytest.mark.parametrize(("first", "second", "want"), ORDERS.values(), ids=ORDERS.keys())
def test_order_of_heads(first: Workload, second: Workload, want: str) -> None:
    world = World(cohort("c", 4), queue("a", 0, cohort="c"), queue("b", 0, cohort="c"))
    world.apply(first, second)
    assert admitted(world.cycle()) == [want]


def test_an_over_admitted_queue_gets_nothing_and_loses_nothing() -> None:
    world = World(queue("a", 8)).run(workload("big", "a", 8), admitted=True)
    world.apply(queue("a", 4))
    world.run(workload("new", "a", 1))
    assert world.running == {"big"}


def test_a_timestamp_buffer_spares_workloads_that_are_hardly_newer() -> None:
    config = KueueConfig(gates={"SchedulerTimestampPreemptionBuffer": True})
    for age, want in ((300, {}), (301, {"same": OWN})):
        world = World(queue("a", 4, within=NEWER_EQUAL), config=config)
        world.run(workload("same", "a", 4, created=age), admitted=True)
        world.apply(workload("new", "a", 4))
        assert victims(world.cycle()) == want


def test_a_boost_counts_where_its_gate_is_on() -> None:
    for gates, want in (({}, {}), ({"PriorityBoost": True}, {"low": OWN})):
        world = World(queue("a", 4, within=LOWER), config=KueueConfig(gates=gates))
        world.run(workload("low", "a", 4), admitted=True)
        world.apply(replace(workload("new", "a", 4), annotations={"kueue.x-k8s.io/priority-boost": "5"}))
        assert victims(world.cycle()) == want


def test_another_flavor_is_not_reclaimed() -> None:
    flavors = (ResourceFlavor(name="f"), ResourceFlavor(name="g"))
    world = World(
        *flavors,
        queue("a", {"f": 4}, cohort="c", reclaim=ANY),
        queue("b", {"f": 0, "g": quota(4)}, cohort="c"),
        flavors=(),
    )
    world.run(workload("f0", "b", 4), workload("g0", "b", 4), admitted=True)
    world.apply(workload("new", "a", 4))
    assert victims(world.cycle()) == {"f0": RECLAIM}
