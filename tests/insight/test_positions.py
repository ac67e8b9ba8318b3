"""Places in the queues, in Kueue's order: priority, then age, then uid; parked ones included."""

from gpuconsole.insight.positions import Position, pending, position, positions
from gpuconsole.model.clock import MINUTE
from gpuconsole.model.decisions import Pending
from gpuconsole.model.queues import LocalQueue
from gpuconsole.model.workloads import Condition
from tests.insight.world import ORG_QUEUES, START, running, waiting, world

OLD = waiting("old", "prod/lq", 2, minutes_ago=30)
NEW = waiting("new", "prod/lq", 4, minutes_ago=5)
URGENT = waiting("urgent", "prod/second", 8, minutes_ago=1, priority=100, parked=True)
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
