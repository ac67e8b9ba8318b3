"""Places in the queues, in Kueue's order: priority, then age, then uid; parked ones included."""

from typing import Any

import pytest
from msgspec.structs import replace

from gpuconsole.insight.index.queues import Position, pending, position, positions, queue_index
from gpuconsole.model.clock import MINUTE
from gpuconsole.model.events import Applied, Pending
from gpuconsole.model.queues import LocalQueue, QueueingStrategy, Quota, StopPolicy
from gpuconsole.model.state import ClusterState
from gpuconsole.model.workloads import Condition
from tests.support.snapshots import ORG_QUEUES, START, cluster_queue, running, waiting, world

REFUSED = "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor a100"

OLD = waiting("old", "prod/lq", 2, minutes_ago=30)
NEW = waiting("new", "prod/lq", 4, minutes_ago=5)
URGENT = waiting("urgent", "prod/second", 8, minutes_ago=1, priority=100, inadmissible=True)
TIMED_OUT = waiting(
    "timed-out",
    "prod/lq",
    1,
    minutes_ago=60,
    conditions=(Condition("Evicted", True, "PodsReadyTimeout", "", START - 10 * MINUTE),),
)
PREEMPTED = waiting(
    "preempted",
    "prod/lq",
    1,
    minutes_ago=40,
    conditions=(Condition("Evicted", True, "Preempted", "", START - MINUTE),),
)
TWIN_A = waiting("a", "prod/lq", 1, minutes_ago=2, uid="2")
TWIN_B = waiting("b", "prod/lq", 1, minutes_ago=2, uid="1")
SNAPSHOT = world(
    [
        *ORG_QUEUES,
        LocalQueue(namespace="prod", name="second", cluster_queue="cq-prod"),
        TWIN_A,
        NEW,
        OLD,
        TIMED_OUT,
        TWIN_B,
        URGENT,
        PREEMPTED,
        waiting("stopped", "prod/lq", 1, active=False),
        waiting("elsewhere", "nowhere/lq", 1),
        running("runs", "prod/lq", 1, "cq-prod"),
        waiting("other", "research/lq", 1),
    ]
)


def test_the_order_is_priority_then_age_then_uid() -> None:
    """A preempted workload keeps the place of its creation, one that timed out starts again at its eviction."""
    assert pending(SNAPSHOT, "cq-prod") == [
        Pending(URGENT, 1, True),
        Pending(PREEMPTED, 2, False),
        Pending(OLD, 3, False),
        Pending(TIMED_OUT, 4, False),
        Pending(NEW, 5, False),
        Pending(TWIN_B, 6, False),
        Pending(TWIN_A, 7, False),
    ]
    assert pending(SNAPSHOT, "unknown") == []


def test_a_position_counts_both_queues_and_the_gpus_ahead() -> None:
    assert position(SNAPSHOT, "prod/new") == Position(
        workload="prod/new",
        cluster_queue="cq-prod",
        in_cluster_queue=5,
        of_cluster_queue=7,
        in_local_queue=4,
        of_local_queue=6,
        gpus_ahead=8 + 1 + 2 + 1,
    )


def test_who_does_not_wait_has_no_position() -> None:
    assert [position(SNAPSHOT, f"prod/{name}") for name in ("runs", "stopped", "gone")] == [None, None, None]
    assert position(SNAPSHOT, "nowhere/elsewhere") is None


def test_all_positions_at_once() -> None:
    assert positions(SNAPSHOT) == {
        "prod/urgent": 1,
        "prod/preempted": 2,
        "prod/old": 3,
        "prod/timed-out": 4,
        "prod/new": 5,
        "prod/b": 6,
        "prod/a": 7,
        "research/other": 1,
    }


def test_where_local_queues_take_turns_the_one_that_used_least_comes_first() -> None:
    """Within a LocalQueue the order stays; a LocalQueue of another ClusterQueue does not matter."""
    doors = [
        LocalQueue(namespace="prod", name="second", cluster_queue="cq-prod", usage=7.5),
        LocalQueue(namespace="prod", name="lq", cluster_queue="cq-prod", usage=2.0),
    ]
    snapshot = world([*ORG_QUEUES, *doors, URGENT, OLD, NEW, waiting("other", "research/lq", 1)])
    assert [entry.workload for entry in pending(snapshot, "cq-prod")] == [OLD, NEW, URGENT]
    assert position(snapshot, "prod/urgent") == Position("prod/urgent", "cq-prod", 3, 3, 1, 1, 6)
    assert positions(snapshot) == {"prod/old": 1, "prod/new": 2, "prod/urgent": 3, "research/other": 1}


def test_who_waits_in_a_local_queue_that_is_stopped_has_no_place_and_is_before_nobody() -> None:
    held = LocalQueue(namespace="prod", name="second", cluster_queue="cq-prod", stop_policy=StopPolicy.HOLD)
    snapshot = world([*ORG_QUEUES, held, URGENT, OLD, NEW])
    assert positions(snapshot) == {"prod/old": 1, "prod/new": 2}
    assert position(snapshot, "prod/urgent") is None
    assert position(snapshot, "prod/new") == Position("prod/new", "cq-prod", 2, 2, 2, 2, gpus_ahead=2)


KEEPS_IN_FRONT = {
    QueueingStrategy.BEST_EFFORT_FIFO: ["newer", "old", "new"],
    QueueingStrategy.STRICT_FIFO: ["old", "new", "newer"],
}


@pytest.mark.parametrize("strategy", KEEPS_IN_FRONT)
def test_who_waits_for_its_victims_is_kept_in_front_but_by_a_strict_queue(strategy: QueueingStrategy) -> None:
    newer = waiting("newer", "prod/lq", 1, f"{REFUSED}. Pending the preemption of 1 workload(s)", minutes_ago=1)
    refused = replace(NEW, conditions=(Condition("QuotaReserved", False, "Pending", REFUSED, START),))
    queue = cluster_queue("cq-prod", "org-cohort", Quota(16), queueing_strategy=strategy)
    snapshot = world([*ORG_QUEUES, queue, OLD, refused, newer])
    assert [entry.workload.name for entry in pending(snapshot, "cq-prod")] == KEEPS_IN_FRONT[strategy]
    assert [name.removeprefix("prod/") for name in positions(snapshot)] == KEEPS_IN_FRONT[strategy]


PAGES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "all": ({}, ["urgent", "preempted", "old", "timed-out", "new", "b", "a"]),
    "the first two": ({"limit": 2}, ["urgent", "preempted"]),
    "the next two": ({"offset": 2, "limit": 2}, ["old", "timed-out"]),
    "one LocalQueue's": ({"local_queue": "prod/second"}, ["urgent"]),
    "the second page of one LocalQueue": ({"local_queue": "prod/lq", "offset": 4, "limit": 9}, ["b", "a"]),
    "nothing beyond the end": ({"offset": 7}, []),
    "numbers below zero count as zero": ({"offset": -1, "limit": -1}, []),
}


@pytest.mark.parametrize("case", PAGES)
def test_a_page_of_who_waits_is(case: str) -> None:
    asked, names = PAGES[case]
    assert [entry.workload.name for entry in pending(SNAPSHOT, "cq-prod", **asked)] == names
    assert [entry.position for entry in pending(SNAPSHOT, "cq-prod", offset=2, limit=2)] == [3, 4]


def test_what_local_queues_used_lately_does_not_have_everything_counted_anew() -> None:
    state = ClusterState(START)
    for thing in SNAPSHOT.objects():
        state.apply(Applied(START, thing))
    before = state.freeze()
    book = queue_index(before).cluster_queue("cq-prod")
    state.apply(Applied(START, replace(before.local_queues["prod/lq"], usage=1.0)))
    assert queue_index(state.freeze()).cluster_queue("cq-prod") is book
