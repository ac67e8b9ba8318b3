"""Books, whereabouts and GPU map: carried on from Snapshot to Snapshot, they equal those made from scratch."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from gpuconsole.insight.index.gpu_map import GpuMapIndex, gpu_map
from gpuconsole.insight.index.pods import NO_PODS_BY_NODE, pods_by_node
from gpuconsole.insight.index.pods import updated as pods_carried_on
from gpuconsole.insight.index.queues import QueueIndex, pending_reason, queue_index, updated
from gpuconsole.insight.pending.pending import explain
from gpuconsole.insight.pending.reasons import PendingReason, flavor_groups
from gpuconsole.model.events import Applied, Deleted
from gpuconsole.model.queues import FlavorQuotas, Quota, ResourceFlavor, ResourceGroup
from gpuconsole.model.resources import GPU
from gpuconsole.model.snapshot import Snapshot, row_changes
from gpuconsole.model.state import ClusterState
from tests.support.snapshots import ORG, ORG_QUEUES, START, cluster_queue, node, pod, running, waiting, world

NAMES = st.sampled_from([f"w{n}" for n in range(3)])
QUEUES = st.sampled_from([("research/lq", "cq-research"), ("prod/lq", "cq-prod"), ("nowhere/lq", "gone")])
REFUSED = "Workload no longer fits after processing another workload"
MESSAGES = st.sampled_from(["", REFUSED])


def test_rows_that_changed_moved_or_left_are_found_by_identity() -> None:
    one, two, three = "one", "two", "three"

    assert row_changes([one, None, two], [one, three, None]) == ([two], [three])
    assert row_changes([one, two], [two]) == ([one, two], [two])
    assert row_changes([], [one]) == ([], [one])


def summary(made: QueueIndex) -> dict[str, Any]:
    """All that a book answers."""
    return {
        name: (
            sorted(workload.key for workload in book.holding),
            [workload.key for workload in book.queue],
            dict(book.usage),
            book.count,
            book.longest,
            +book.codes,
            {door: book.local_count(door) for door in book.pages},
        )
        for name, book in made.by_queue.items()
        if book.pages
    }


def rebuilt(snapshot: Snapshot) -> QueueIndex:
    doors = {door.key: door.cluster_queue for door in snapshot.local_queues.all()}
    groups = {queue.name: flavor_groups(queue) for queue in snapshot.cluster_queues.all()}
    return updated(QueueIndex((), doors, {}, groups), snapshot.workloads.rows)


SHORT_OF_BOTH = (
    "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor a100, previously "
    "considered podsets requests (0) + current podset request (64) > maximum capacity (8), "
    "insufficient unused quota for cpu in flavor small-cpu, 4 more needed"
)


def test_a_reason_follows_the_resource_groups_of_its_queue_as_the_explanation_does() -> None:
    gpus = FlavorQuotas("a100", {GPU: Quota(8)})
    two = (ResourceGroup((GPU,), (gpus,)), ResourceGroup(("cpu",), (FlavorQuotas("small-cpu", {"cpu": Quota(4)}),)))
    one = (ResourceGroup((GPU, "cpu"), (gpus, FlavorQuotas("small-cpu", {"cpu": Quota(4)}))),)
    state = ClusterState(START)
    for thing in (*ORG_QUEUES, ResourceFlavor(name="small-cpu"), waiting("w", "prod/lq", 64, SHORT_OF_BOTH)):
        state.apply(Applied(START, thing))
    for groups, code in ((two, PendingReason.EXCEEDS_MAX), (one, PendingReason.QUOTA)):
        state.apply(Applied(START, cluster_queue("cq-prod", resource_groups=groups)))
        snapshot = state.freeze()
        (workload,) = snapshot.workloads.all()
        assert pending_reason(snapshot, workload) is code
        assert explain(snapshot, workload.key).code is code
        assert queue_index(snapshot).cluster_queue("cq-prod").codes == {code: 1}


class LivingCluster(RuleBasedStateMachine):
    """Workloads and pods come, change and go in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.state = ClusterState(START)
        for thing in (*ORG_QUEUES, node("n1", 8), node("n2", 8)):
            self.state.apply(Applied(START, thing))
        self.minutes = 0

    @rule(name=NAMES, queue=QUEUES, gpus=st.integers(0, 9), message=MESSAGES, parked=st.booleans())
    def wait(self, name: str, queue: tuple[str, str], gpus: int, message: str, parked: bool) -> None:
        self.minutes += 1
        thing = waiting(name, queue[0], gpus, message, self.minutes, inadmissible=parked, priority=gpus % 3)
        self.state.apply(Applied(START, thing))

    @rule(parked=st.booleans())
    def park(self, parked: bool) -> None:
        for workload in self.state.freeze().workloads.all():
            self.state.apply(Applied(START, replace(workload, inadmissible=parked)))

    @rule(name=NAMES, queue=QUEUES, gpus=st.integers(0, 9))
    def run(self, name: str, queue: tuple[str, str], gpus: int) -> None:
        self.state.apply(Applied(START, running(name, queue[0], gpus, queue[1])))

    @rule(name=NAMES, queue=QUEUES)
    def leave(self, name: str, queue: tuple[str, str]) -> None:
        self.state.apply(Deleted(START, "workloads", f"{queue[0].partition('/')[0]}/{name}"))

    @rule(
        name=NAMES,
        place=st.sampled_from([("n1", (0, 1)), ("n1", (2,)), ("n2", (0, 1, 2, 3)), ("n2", ()), ("", ())]),
        gang=st.sampled_from(["", "g"]),
    )
    def bind(self, name: str, place: tuple[str, tuple[int, ...]], gang: str) -> None:
        fields = {"workload": f"research/{name}", "gang": gang, "nominated_node": "" if place[0] else "n1"}
        self.state.apply(Applied(START, pod(name, place[0], place[1], wants=len(place[1]) or 1, **fields)))

    @rule(name=NAMES)
    def vanish(self, name: str) -> None:
        self.state.apply(Deleted(START, "pods", f"team/{name}"))

    @rule(nominal=st.integers(0, 8))
    def give_quota(self, nominal: int) -> None:
        self.state.apply(Applied(START, cluster_queue("cq-research", "org-cohort", Quota(nominal))))

    @rule(cordoned=st.booleans(), ready=st.booleans())
    def touch_node(self, cordoned: bool, ready: bool) -> None:
        self.state.apply(Applied(START, replace(node("n2", 8), unschedulable=cordoned, ready=ready)))

    @invariant()
    def carried_on_equals_rebuilt(self) -> None:
        snapshot = self.state.freeze()
        assert summary(queue_index(snapshot)) == summary(rebuilt(snapshot))

        fresh = pods_carried_on(NO_PODS_BY_NODE, snapshot.pods.rows)
        kept = pods_by_node(snapshot)
        assert {name: dict(pods) for name, pods in kept.by_node.items() if pods} == {
            name: dict(pods) for name, pods in fresh.by_node.items() if pods
        }

        drawn = GpuMapIndex(snapshot)
        drawn.draw(None)
        assert gpu_map(snapshot).rows == drawn.rows


TestLivingCluster = LivingCluster.TestCase
TestLivingCluster.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)


def test_books_of_queues_where_nothing_changed_are_the_same() -> None:
    state = ClusterState(START)
    for thing in ORG:
        state.apply(Applied(START, thing))
    before = queue_index(state.freeze())
    state.apply(Applied(START, waiting("new", "research/lq", 2)))
    after = queue_index(state.freeze())

    assert after.cluster_queue("cq-prod") is before.cluster_queue("cq-prod")
    assert [workload.name for workload in after.cluster_queue("cq-research").queue] == ["new"]
    assert before.cluster_queue("cq-research").queue == []


def test_a_workload_holds_quota_where_it_was_admitted_even_if_its_local_queue_is_gone() -> None:
    made = queue_index(
        world([*ORG_QUEUES, running("w", "elsewhere/lq", 3, "cq-prod"), waiting("v", "elsewhere/lq", 2)])
    )

    assert [workload.name for workload in made.cluster_queue("cq-prod").holding] == ["w"]
    assert [workload.name for workload in made.cluster_queue("").queue] == ["v"]


def test_what_was_stopped_holds_no_quota_though_its_pods_are_on_their_way_out() -> None:
    """Kueue 0.19 takes it out of its cache at once (workload_controller.go)."""
    stopped = replace(running("old", "prod/lq", 4, "cq-prod"), active=False)
    book = queue_index(world([*ORG_QUEUES, stopped])).cluster_queue("cq-prod")
    assert (book.holding, book.usage, book.queue) == ([], {}, [])
