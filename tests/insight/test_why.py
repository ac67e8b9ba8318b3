"""Why it waits, as the engine finds it on the cluster as it is; and what Kueue wrote, with its age."""

import pytest
from msgspec.structs import replace

from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.insight.pending.shortage import (
    KUEUE,
    LendingLimitGap,
    QuotaBreakdown,
    QuotaLevel,
    QuotaUser,
    room_lines,
)
from gpuconsole.insight.pending.why import (
    ENGINE,
    OBJECTS,
    ConsideredFlavor,
    Evidence,
    evidence_lines,
    flavor_lines,
    quota_breakdowns,
    rehearsal_on,
    tried,
    unblocking,
    why,
)
from gpuconsole.insight.unblock.admission_trial import dominant_blocker, examined
from gpuconsole.model.autoscaling import NodePool
from gpuconsole.model.clock import MINUTE
from gpuconsole.model.cluster import Namespace, Node
from gpuconsole.model.labels import LabelSelector, Taint
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.pod_template import TopologyRequest
from gpuconsole.model.queues import (
    ClusterQueue,
    ClusterQueuePreemption,
    LocalQueue,
    QueueingStrategy,
    Quota,
    ResourceFlavor,
)
from gpuconsole.model.resources import GPU
from gpuconsole.model.snapshot import EMPTY
from gpuconsole.model.workloads import CheckState, Workload
from gpuconsole.scheduling.kueue.config import DEFAULT
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from tests.insight.test_unblock import after, racks
from tests.support.kueue_cluster import LOWER, cohort, pods, queue, quota, workload
from tests.support.snapshots import A100, ORG, ORG_QUEUES, START, cluster_queue, running, unseen, waiting, world

TEXT = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor a100, "
STOPPED = "ClusterQueue cq-research is stopped"
RLHF = waiting("rlhf-2", "research/lq", 6, TEXT + "4 more needed", minutes_ago=12, priority=500)


def test_the_drawn_example_whole() -> None:
    snapshot = world([*ORG, RLHF])
    answer = why(snapshot, rehearsal_on(snapshot, DEFAULT), "research/rlhf-2")

    assert (answer.subject, answer.code) == ("research/rlhf-2", PendingReason.QUOTA)
    assert answer.explanation.headline == "rlhf-2 needs 6 GPUs; cohort org-cohort has 4 GPUs of a100 available."
    assert answer.considered == (
        ConsideredFlavor(
            pod_set="main",
            flavor="a100",
            mode="no preemption candidates",
            borrows=1,
            code=PendingReason.QUOTA,
            reasons=("insufficient unused quota for nvidia.com/gpu in flavor a100, 2 more needed",),
        ),
    )
    assert answer.rooms == (
        QuotaBreakdown(
            flavor="a100",
            resource=GPU,
            needed=6,
            available=4,
            ceiling=16,
            levels=(
                QuotaLevel(
                    kind="ClusterQueue",
                    name="cq-research",
                    nominal=8,
                    quota=8,
                    used=12,
                    unused=0,
                    withheld=0,
                    borrowing_limit=8,
                    available=4,
                ),
                QuotaLevel(
                    kind="Cohort",
                    name="org-cohort",
                    nominal=0,
                    quota=24,
                    used=20,
                    unused=4,
                    withheld=0,
                    borrowing_limit=None,
                    available=4,
                ),
            ),
            blocked_at="Cohort org-cohort",
            keepers=(),
            users=(
                QuotaUser("prod/serve", "cq-prod", 8),
                QuotaUser("research/rlhf", "cq-research", 6),
                QuotaUser("research/llm-ft", "cq-research", 4),
                QuotaUser("research/embed", "cq-research", 2),
            ),
        ),
    )
    assert answer.evidence == (
        Evidence(source=ENGINE, code=PendingReason.QUOTA, text=TEXT + "2 more needed", since=START),
        Evidence(source=KUEUE, code=PendingReason.QUOTA, text=TEXT + "4 more needed", since=START - 12 * MINUTE),
    )
    assert list(flavor_lines(answer)) == [
        "a100  no preemption candidates, borrowing level 1: "
        "insufficient unused quota for nvidia.com/gpu in flavor a100, 2 more needed"
    ]
    assert list(room_lines(answer.rooms[0])) == [
        "a100 nvidia.com/gpu: needs 6, available 4 · 2 more needed, limited by Cohort org-cohort",
        "  ClusterQueue cq-research: quota 8, used 12, unused 0, borrowing limit 8 → available 4",
        "  Cohort org-cohort: quota 24, used 20, unused 4 → available 4",
        "  used by prod/serve 8, research/rlhf 6, research/llm-ft 4, research/embed 2",
    ]


def test_a_text_that_the_cluster_has_overtaken_stands_beside_what_is_true_now() -> None:
    snapshot = world([*ORG_QUEUES, RLHF])
    answer = why(snapshot, rehearsal_on(snapshot, DEFAULT), "research/rlhf-2")
    assert (answer.code, answer.explanation.headline) == (
        PendingReason.QUEUED,
        "Fits: cq-research admits it in its next scheduling cycle.",
    )
    assert list(evidence_lines(answer, START)) == [
        "engine, 0s old: fits",
        f"Kueue, at most 12m old: quota: {TEXT}4 more needed",
    ]


def test_a_queue_that_was_resumed_since_kueues_message_is_tried() -> None:
    snapshot = world([*ORG, replace(RLHF, conditions=waiting("x", "research/lq", 6, STOPPED).conditions)])
    answer = why(snapshot, rehearsal_on(snapshot, DEFAULT), "research/rlhf-2")
    assert (answer.code, answer.explanation.headline) == (
        PendingReason.QUOTA,
        "rlhf-2 needs 6 GPUs; cohort org-cohort has 4 GPUs of a100 available.",
    )
    assert list(evidence_lines(answer, START))[1] == (f"Kueue, at most 0s old: queue-stopped (out of date): {STOPPED}")
    assert why(snapshot, None, "research/rlhf-2").code is PendingReason.QUEUE_STOPPED


def test_a_borrowing_limit_is_where_it_ends_if_the_cohort_has_more() -> None:
    objects: list[Object] = [
        Namespace(name="ns"),
        A100,
        cluster_queue("q", "c", Quota(4, borrowing_limit=2), preemption=ClusterQueuePreemption()),
        cluster_queue("other", "c", Quota(20, lending_limit=9)),
        LocalQueue(namespace="ns", name="lq", cluster_queue="q"),
        running("w", "ns/lq", 5, "q"),
        waiting("new", "ns/lq", 4),
    ]
    snapshot = world(objects)
    room = why(snapshot, rehearsal_on(snapshot, DEFAULT), "ns/new").rooms[0]
    assert (room.short, room.blocked_at, room.keepers) == (3, "borrowingLimit of ClusterQueue q", ())
    wide = world([*objects[:-1], waiting("new", "ns/lq", 40)])
    room = why(wide, rehearsal_on(wide, DEFAULT), "ns/new").rooms[0]
    assert (room.short, room.blocked_at) == (39, "borrowingLimit of ClusterQueue q, and Cohort c")


def test_who_could_lend_more_is_named_where_the_cohort_has_no_more() -> None:
    rehearsal = after(
        cohort("root"),
        cohort("far", quota(10, None, 0), parent="root"),
        queue("q", 8, cohort="root"),
        queue("training", quota(64, None, 16), cohort="root"),
        queue("open", 4, cohort="root"),
        workload("w", "training", 42),
        workload("new", "q", 40),
    )
    entry = examined(rehearsal, "team/new")
    assert entry is not None
    (found,) = quota_breakdowns(EMPTY, rehearsal.session, entry)
    assert found.keepers == (
        LendingLimitGap(kind="Cohort", name="far", nominal=10, quota=10, lending_limit=0, withheld=10),
        LendingLimitGap(kind="ClusterQueue", name="training", nominal=64, quota=64, lending_limit=16, withheld=6),
    )
    assert list(room_lines(found)) == [
        "f nvidia.com/gpu: needs 40, available 28, maximum capacity 28 · 12 more needed, limited by Cohort root",
        "  ClusterQueue q: quota 8, used 0, unused 8 → available 28",
        "  Cohort root: quota 28, used 0, unused 28 → available 28",
        "  Cohort far withholds 10 unused: quota 10, lending limit 0",
        "  ClusterQueue training withholds 6 unused: quota 64, lending limit 16",
    ]


def test_a_cohorts_limit_is_found_beyond_what_its_queue_keeps_for_itself() -> None:
    rehearsal = after(
        cohort("root"),
        cohort("a", quota(0, 2), parent="root"),
        queue("q", quota(4, None, 1), cohort="a"),
        queue("other", 4, cohort="root"),
        workload("new", "q", 8),
    )
    entry = examined(rehearsal, "team/new")
    assert entry is not None
    (found,) = quota_breakdowns(EMPTY, rehearsal.session, entry)
    assert (found.available, found.blocked_at) == (6, "borrowingLimit of Cohort a")
    assert [(level.name, level.withheld, level.available) for level in found.levels] == [
        ("q", 3, 6),
        ("a", 0, 3),
        ("root", 0, 5),
    ]


def test_who_is_not_the_head_of_a_strict_queue_waits_for_its_turn_behind_it() -> None:
    objects: list[Object] = [
        Namespace(name="ns"),
        A100,
        cluster_queue("q", "", Quota(4), queueing_strategy=QueueingStrategy.STRICT_FIFO),
        LocalQueue(namespace="ns", name="lq", cluster_queue="q"),
        waiting("head", "ns/lq", 8, minutes_ago=9),
        waiting("new", "ns/lq", 1, minutes_ago=3),
    ]
    snapshot = world(objects)
    rehearsal = rehearsal_on(snapshot, DEFAULT)
    answer = why(snapshot, rehearsal, "ns/new")
    assert (answer.code, answer.head) == (PendingReason.QUEUED, "ns/head")
    assert answer.explanation.headline == ("Queued, position 2 of 2 in q; the head of the queue is ns/head.")
    assert why(snapshot, rehearsal, "ns/head").code is PendingReason.EXCEEDS_MAX


def test_what_objects_show_needs_no_trial() -> None:
    snapshot = world([*ORG])
    answer = why(snapshot, rehearsal_on(snapshot, DEFAULT), "prod/serve")
    assert answer.code is PendingReason.NOT_WAITING
    assert answer.evidence == (
        Evidence(source=OBJECTS, code=PendingReason.NOT_WAITING, text=answer.explanation.headline, since=START),
    )
    assert unblocking(snapshot, rehearsal_on(snapshot, DEFAULT), answer) is None
    assert why(snapshot, None, "prod/serve") == answer
    assert tried(world([*ORG, RLHF]), None, "research/rlhf-2").suggestions is None


NEVER = "No topology domain fits its pods, even if every node were empty: waiting does not help."
AWAY = "There is quota, but no topology domain fits its pods."


def door(name: str) -> LocalQueue:
    return LocalQueue(namespace="team", name=name, cluster_queue=name)


def near(pods_: int) -> list[Object]:
    """A rack of two hosts with four GPUs each, and who wants so many pods of three in one rack."""
    asked = pods(pods_, 3, topology=TopologyRequest(required="rack"))
    hosts = [replace(t, unschedulable=True) if isinstance(t, Node) and t.name == "n1" else t for t in racks(2)]
    return [Namespace(name="team"), *hosts, queue("q", 20), door("q"), workload("new", "q", pod_sets=(asked,))]


@pytest.mark.parametrize(
    ("things", "never", "headline"),
    [
        pytest.param(near(2), False, AWAY, id="a host is cordoned, which ends some time"),
        pytest.param(near(3), True, NEVER, id="a rack has two hosts"),
        pytest.param([*near(3), NodePool(name="more")], False, AWAY, id="somebody may buy more"),
    ],
)
def test_what_no_empty_cluster_would_take_is_told_that_waiting_does_not_help(
    things: list[Object], never: bool, headline: str
) -> None:
    snapshot = world(things)
    simulation = Simulation.from_snapshot(snapshot, policy=SimPolicy(kueue=DEFAULT), seed=0)
    answer = why(snapshot, rehearsal_on(snapshot, DEFAULT), "team/new", lambda: simulation)
    assert (answer.code, answer.never, answer.explanation.headline) == (PendingReason.TOPOLOGY, never, headline)


def test_what_is_parked_and_would_fit_now_is_not_said_to_be_looked_at_next() -> None:
    """Work of another tree left the host that both may use: Kueue 0.19 wakes the tree of what ended alone."""
    whole = pods(1, 4, topology=TopologyRequest(required="rack"))
    things = [Namespace(name="team"), *racks(1), queue("q", 4), queue("other", 4), door("q"), door("other")]
    first, late = workload("first", "other", pod_sets=(whole,)), workload("late", "q", pod_sets=(whole,))
    rehearsal = after(*things, first, late)
    rehearsal.finish(first.key)
    rehearsal.requeue_inadmissible()
    answer = why(world([*things, *rehearsal.workloads.values()]), rehearsal, late.key)
    assert (answer.code, answer.explanation.headline) == (
        PendingReason.QUEUED,
        "Fits now, but is inadmissible in q until a workload of its cohort tree ends, "
        "or a queue, flavor or node changes.",
    )


def test_what_no_flavor_suits_waits_in_vain() -> None:
    snapshot = world([Namespace(name="team"), shy("f"), queue("q", 4), door("q"), LATE])
    simulation = Simulation.from_snapshot(snapshot, policy=SimPolicy(kueue=DEFAULT), seed=0)
    answer = why(snapshot, rehearsal_on(snapshot, DEFAULT), "team/new", lambda: simulation)
    assert (answer.never, answer.explanation.headline) == (
        True,
        "No flavor of q matches its pods: waiting does not help.",
    )


FULL = workload("full", "q", 4, created=1)
LATE = workload("new", "q", 3, created=2)
SPLIT = pods(2, 2, topology=TopologyRequest(required="kubernetes.io/hostname"))


def shy(name: str) -> ResourceFlavor:
    return ResourceFlavor(name=name, node_taints=(Taint("gpu"),))


@pytest.mark.parametrize("kind", [ClusterQueue, LocalQueue, ResourceFlavor, Workload])
def test_where_something_that_decides_may_not_be_seen_nothing_is_tried(kind: type[Object]) -> None:
    """Kueue's own word is told; the engine's on what is left would be another."""
    left = [thing for thing in ORG if not isinstance(thing, kind)]
    hidden = world([*left, RLHF], seen=unseen(kind))
    answer = tried(hidden, rehearsal_on(hidden, DEFAULT), "research/rlhf-2")
    assert (answer.why.code, answer.why.considered, answer.why.rooms, answer.suggestions) == (
        PendingReason.QUOTA,
        (),
        (),
        None,
    )
    assert [one.source for one in answer.why.evidence] == ["Kueue"]
    assert f"not verified (cannot list {TABLES[kind]})." in answer.why.explanation.lines[0]


def test_what_was_never_judged_and_cannot_be_tried_is_not_said_to_get_in() -> None:
    new = waiting("new", "research/lq", 1)
    hidden = world([*ORG, new], seen=unseen(Workload, within=("research",)))
    answer = tried(hidden, rehearsal_on(hidden, DEFAULT), "research/new")
    assert (answer.why.code, answer.why.explanation.headline, answer.suggestions) == (
        PendingReason.UNSEEN,
        "Pending; the reason is unknown: cannot list workloads.",
        None,
    )


BLOCKERS: dict[str, tuple[list[Object], str, PendingReason]] = {
    "it fits": ([queue("q", 4), LATE], "new", PendingReason.NOT_WAITING),
    "no quota left": ([queue("q", 4), FULL, LATE], "new", PendingReason.QUOTA),
    "more than there could ever be": ([queue("q", 2), LATE], "new", PendingReason.EXCEEDS_MAX),
    "a taint": ([shy("f"), queue("q", 4), LATE], "new", PendingReason.FLAVOR_MISMATCH),
    "a taint on one flavor, no quota in the other": (
        [shy("f"), ResourceFlavor(name="g"), queue("q", {"f": 4, "g": 1}), LATE],
        "new",
        PendingReason.EXCEEDS_MAX,
    ),
    "a resource that nobody gives": (
        [queue("q", 4), workload("new", "q", pod_sets=(pods(1, 1, cpu=1),))],
        "new",
        PendingReason.FLAVOR_MISMATCH,
    ),
    "no place near enough": (
        [
            *racks(1),
            queue("q", 9),
            workload("new", "q", pod_sets=(pods(3, 2, topology=TopologyRequest(required="rack")),)),
        ],
        "new",
        PendingReason.TOPOLOGY,
    ),
    "victims have to go first": (
        [queue("q", 4, within=LOWER), FULL, replace(LATE, priority=9)],
        "new",
        PendingReason.WAITING_FOR_VICTIMS,
    ),
    "somebody else takes it in the same cycle": (
        [
            cohort("c"),
            queue("p", 0, cohort="c"),
            queue("q", 0, cohort="c"),
            queue("r", 4, cohort="c"),
            workload("first", "p", 3, created=1),
            LATE,
        ],
        "new",
        PendingReason.CONTENTION,
    ),
    "its namespace is not let in": (
        [queue("q", 4, selector=LabelSelector({"a": "b"})), LATE],
        "new",
        PendingReason.NAMESPACE,
    ),
    "its checks were rejected": (
        [queue("q", 4), replace(LATE, checks=(CheckState(name="c", state="Retry"),))],
        "new",
        PendingReason.CHECKS,
    ),
}


@pytest.mark.parametrize(("things", "name", "want"), BLOCKERS.values(), ids=BLOCKERS)
def test_the_engine_names_the_blocker_by_its_rules(things: list[Object], name: str, want: PendingReason) -> None:
    fresh = [thing for thing in things if isinstance(thing, Workload) and thing.name not in ("full",)]
    rehearsal = after(*(thing for thing in things if thing not in fresh))
    for thing in fresh:
        rehearsal.apply(thing)
    entry = examined(rehearsal, f"team/{name}")
    assert entry is not None
    assert dominant_blocker(entry) is want


def test_an_old_text_keeps_its_own_code_beside_what_the_objects_show_now() -> None:
    stopped = waiting("rlhf-2", "research/lq", 6, TEXT + "4 more needed", active=False)
    found = why(world([*ORG, stopped]), None, "research/rlhf-2")
    assert (found.code, [one.code for one in found.evidence]) == (PendingReason.DEACTIVATED, [PendingReason.QUOTA])
