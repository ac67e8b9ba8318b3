"""Fair shares with their arithmetic, whose turn is next, and what other engines' queues have of what they deserve."""

from gpuconsole.insight.index.engine_queues import QueueShare, engine_shares
from gpuconsole.insight.sharing.fair_shares import CycleHead, NodeShare, ResourceShare, order_of, shares
from gpuconsole.model.clock import MINUTE
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import LocalQueue, Quota
from gpuconsole.model.resources import GPU
from gpuconsole.model.volcano import VolcanoQueue
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.session import KueueSession
from gpuconsole.ui.answers.cluster_reports import shares_lines
from tests.support.snapshots import A100, ORG_QUEUES, START, cluster_queue, cohort, node, pod, running, waiting, world

FAIR = KueueConfig(fair_sharing=True)


def engine(*things: Object, config: KueueConfig = FAIR) -> KueueSession:
    session = KueueSession(config)
    for thing in things:
        session.apply(thing, START)
    return session


def door(name: str) -> LocalQueue:
    return LocalQueue(namespace="research", name=name, cluster_queue=name)


TREE: tuple[Object, ...] = (
    *ORG_QUEUES[:3],
    cohort("root"),
    cohort("left", "root"),
    cluster_queue("a", "left", Quota(4), fair_weight=2.0),
    cluster_queue("b", "left", Quota(4)),
    cluster_queue("c", "root", Quota(12)),
    *map(door, "abc"),
    running("w", "research/a", 14, "a", uid="w"),
)
"""Queue a owns 4 of 20 and uses 14: 10 of its 14 are others'; with its sibling b, its cohort is 6 over its own 8."""


def test_each_level_borrows_from_the_one_above_by_its_own_arithmetic() -> None:
    assert shares(engine(*TREE), START).tree == (
        NodeShare(kind="cohort", name="root", depth=0, weight=1.0, dominant="", parts=(), share="0"),
        NodeShare(
            kind="cohort",
            name="left",
            depth=1,
            weight=1.0,
            dominant=GPU,
            parts=(ResourceShare(resource=GPU, borrowed=6, lendable=20, ratio=300.0),),
            share="300",
        ),
        NodeShare(
            kind="queue",
            name="a",
            depth=2,
            weight=2.0,
            dominant=GPU,
            parts=(ResourceShare(resource=GPU, borrowed=10, lendable=20, ratio=500.0),),
            share="250",
        ),
        NodeShare(kind="queue", name="b", depth=2, weight=1.0, dominant="", parts=(), share="0"),
        NodeShare(kind="queue", name="c", depth=1, weight=1.0, dominant="", parts=(), share="0"),
    )


WAITING = (
    A100,
    cohort("shared", quota=Quota(8)),
    *(cluster_queue(name, "shared") for name in "ab"),
    *map(door, "ab"),
    *ORG_QUEUES[:2],
    running("w", "research/a", 2, "a", uid="w"),
    waiting("first", "research/a", 2, minutes_ago=9, priority=5),
    waiting("second", "research/b", 2, minutes_ago=4),
)


def test_with_fair_sharing_the_smaller_share_is_next_whatever_the_priority() -> None:
    found = shares(engine(*WAITING), START)
    assert found.turns == (
        CycleHead(
            place=1,
            workload="research/second",
            queue="b",
            priority=0,
            queued=START - 4 * MINUTE,
            borrows=found.turns[0].borrows,
            share_with_it="250",
            outcome="admitted",
            message="",
        ),
        CycleHead(
            place=2,
            workload="research/first",
            queue="a",
            priority=5,
            queued=START - 9 * MINUTE,
            borrows=found.turns[1].borrows,
            share_with_it="500",
            outcome="admitted",
            message="",
        ),
    )


def test_without_fair_sharing_the_priority_decides() -> None:
    found = shares(engine(*WAITING, config=KueueConfig()), START)
    assert [turn.workload for turn in found.turns] == ["research/first", "research/second"]
    assert (found.fair_sharing, found.within) == (False, "higher priority, then oldest")


def test_the_rule_of_the_order_follows_the_configuration() -> None:
    assert order_of(KueueConfig()) == "lower borrowing level, then higher priority, then oldest"
    gates = {"PrioritySortingWithinCohort": False, "FairSharingPrioritizeNonBorrowing": False}
    assert order_of(KueueConfig(fair_sharing=True, gates=gates)) == (
        "lower share with the workload included, at each cohort from the root down, then oldest"
    )


def test_a_cohort_that_is_only_named_has_no_weight_and_who_gets_no_flavor_no_share() -> None:
    named = tuple(cluster_queue(name, "shared", Quota(3)) for name in "ab")
    things = (*ORG_QUEUES[:3], *named, *map(door, "ab"), waiting("huge", "research/a", 99))
    found = shares(engine(*things, running("w", "research/a", 4, "a", uid="w")), START)
    assert [(node.name, node.weight, node.share) for node in found.tree] == [
        ("shared", None, "0"),
        ("a", 1.0, "166.666667"),
        ("b", 1.0, "0"),
    ]
    assert [(turn.workload, turn.share_with_it) for turn in found.turns] == [("research/huge", None)]
    lines = shares_lines(found, (), START)
    assert lines[3:6] == [
        "shared          –         0 ‰  borrows nothing",
        "  a             1       167 ‰  1 nvidia.com/gpu borrowed of 6 lendable = 166.7 ‰",
        "  b             1         0 ‰  borrows nothing",
    ]
    assert lines[-4:-1] == [
        "ORDER  WORKLOAD       OUTCOME        QUEUE  PRIORITY  WAIT  BORROWING  SHARE IF ADMITTED",
        "    1  research/huge  stays pending  a             0    0s  –          –",
        "",
    ]
    assert lines[-1].startswith("research/huge: couldn't assign flavors to pod set main: ")


def test_asking_changes_nothing() -> None:
    session = engine(*WAITING)
    assert shares(session, START) == shares(session, START)
    assert len(session.pending_workloads("a")) == 1


def test_volcano_serves_the_queue_next_that_has_least_of_what_it_deserves() -> None:
    queues = (VolcanoQueue(name="prod", weight=1), VolcanoQueue(name="dev", weight=1))
    label = "scheduling.volcano.sh/queue-name"
    pods = (
        pod("p", "n1", (0, 1, 2), annotations={label: "prod"}),
        pod("q", "n1", (3,), annotations={label: "dev"}),
        pod("r", wants=4, annotations={label: "prod"}),
        pod("s", wants=4, annotations={label: "dev"}),
    )
    found = engine_shares(world((node("n1"), *queues, *pods)))
    assert found == (
        QueueShare(
            engine="Volcano",
            name="dev",
            depth=0,
            deserved=4,
            used=1,
            waiting=4,
            share=0.25,
            words="weight 1 · reclaimable",
            turn=1,
        ),
        QueueShare(
            engine="Volcano",
            name="prod",
            depth=0,
            deserved=4,
            used=3,
            waiting=4,
            share=0.75,
            words="weight 1 · reclaimable",
            turn=2,
        ),
    )
