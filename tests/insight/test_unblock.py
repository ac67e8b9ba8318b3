"""What would let a workload in: the smallest change of each kind, and nothing that was not tried."""

from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuconsole.insight.unblock import admission_trial as trial
from gpuconsole.insight.unblock.admission_trial import OtherWorkloads
from gpuconsole.insight.unblock.changes import (
    AddNodesStep,
    AdmitNamespace,
    AskLess,
    DropSelector,
    End,
    FewerPods,
    LowerGang,
    MoveTo,
    RaiseLimit,
    Resume,
    Step,
    Tolerate,
    UsePriority,
    UseTopology,
    in_words,
)
from gpuconsole.insight.unblock.search import Suggestion, Suggestions
from gpuconsole.model.cluster import Node
from gpuconsole.model.labels import LabelSelector, Taint
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import PodTemplate, TopologyRequest
from gpuconsole.model.queues import LocalQueue, ResourceFlavor, StopPolicy, Topology, WorkloadPriorityClass
from gpuconsole.model.snapshot import EMPTY
from gpuconsole.model.workloads import Admission, Condition, PodSetAssignment, Workload
from gpuconsole.sim.admission_simulator import AdmissionSimulator
from tests.support.kueue_cluster import ANY, GPU, LOWER, STRICT, World, cohort, pods, queue, quota, workload
from tests.support.random_admission import rest
from tests.support.snapshots import world
from tests.tools.check_why import States, suggest

HOST, RACK = "kubernetes.io/hostname", "rack"
LABELS = {"model": "f", RACK: "r0"}


def after(*things: Object, **options: object) -> AdmissionSimulator:
    """A cluster to which these things came one after the other, at rest."""
    workloads = [thing for thing in things if isinstance(thing, Workload)]
    world = World(*(thing for thing in things if not isinstance(thing, Workload)), **options)  # type: ignore[arg-type]
    rehearsal = AdmissionSimulator(world.session, world.now)
    for arrival in workloads:
        rehearsal.apply(arrival)
        rest(rehearsal)
    return rehearsal


def steps(found: Suggestions) -> list[tuple[Step, ...]]:
    return [suggestion.steps for suggestion in found.found]


def answers(rehearsal: AdmissionSimulator, name: str, *kinds: type[Step]) -> list[tuple[Step, ...]]:
    """The suggestions of some kinds."""
    return [one for one in steps(suggest(rehearsal, f"team/{name}")) if any(isinstance(step, kinds) for step in one)]


def test_all_kinds_that_help_are_found_and_the_least_of_each() -> None:
    rehearsal = after(
        cohort("c"),
        queue("q", quota(8, 2), cohort="c", within=LOWER),
        queue("p", 8, cohort="c"),
        workload("big", "q", 6, created=1),
        workload("small", "q", 2, created=2),
        workload("new", "q", 5, created=3, pod_sets=(pods(5, 1),)),
    )
    assert steps(suggest(rehearsal, "team/new")) == [
        (End("team/big"),),
        (FewerPods(pod_set="main", count=2, was=5),),
        (RaiseLimit(kind="ClusterQueue", name="q", limit="borrowingLimit", flavor="f", resource=GPU, by=3),),
        (RaiseLimit(kind="ClusterQueue", name="q", limit="nominalQuota", flavor="f", resource=GPU, by=3),),
        (UsePriority(priority=1, was=0),),
        (MoveTo("p"),),
    ]


def test_where_no_end_is_enough_alone_a_few_are_named_and_no_more_than_needed() -> None:
    rehearsal = after(queue("q", 6), *(workload(f"w{n}", "q", 2, created=n) for n in range(3)), workload("new", "q", 4))
    assert answers(rehearsal, "new", End) == [(End("team/w0"), End("team/w1"))]


def test_more_quota_is_tried_from_the_least_on_for_a_greater_one_lets_others_in_before() -> None:
    """With 2 more the two small ones get in, past the large ones; with 4 the first one takes them all."""
    sizes = (("four", 4), ("eight", 8), ("small", 1), ("mine", 1))
    waits = [workload(name, "q", gpus, created=n) for n, (name, gpus) in enumerate(sizes, start=2)]
    rehearsal = after(queue("q", 8), workload("runs", "q", 8, created=1), *waits)
    limit = RaiseLimit(kind="ClusterQueue", name="q", limit="nominalQuota", flavor="f", resource=GPU, by=2)
    assert (
        Suggestion((limit,), others=OtherWorkloads(admitted_first=("team/small",)))
        in suggest(rehearsal, "team/mine").found
    )
    assert answers(rehearsal, "mine", RaiseLimit) == [(limit,)]


def test_a_suggestion_names_the_workloads_that_it_preempts() -> None:
    """The raised quota is its own, so that it reclaims the rest from the borrower; another cohort is not affected."""
    rehearsal = after(
        queue("q", 4, cohort="c", reclaim=ANY),
        queue("guest", 0, cohort="c"),
        queue("far", 4),
        workload("runs", "guest", 2, created=1),
        workload("elsewhere", "far", 8, created=1),
        workload("new", "q", 6, created=2),
    )
    limit = RaiseLimit(kind="ClusterQueue", name="q", limit="nominalQuota", flavor="f", resource=GPU, by=2)
    named = Suggestion((limit,), others=OtherWorkloads(preempted=("team/runs",)))
    assert named in suggest(rehearsal, "team/new").found


def test_who_would_be_let_in_and_be_evicted_in_the_next_cycles_is_not_helped() -> None:
    """When `runs` ends, the lender tries its greater workload first; the guest gets in, and gives it back at once."""
    lender = queue("lender", 4, cohort="c", reclaim=ANY)
    things: list[Object] = [
        queue("guest", 0, cohort="c"),
        lender,
        workload("runs", "lender", 4),
        workload("new", "guest", 4),
    ]
    assert answers(after(*things), "new", End) == [(End("team/runs"),)]
    waits: list[Object] = [workload("greater", "lender", 8, priority=1), workload("waits", "lender", 4)]
    assert answers(after(*things, *waits), "new", End) == []


def test_who_is_before_it_in_a_strict_queue_can_be_withdrawn_or_passed_or_given_what_it_wants() -> None:
    rehearsal = after(
        queue("q", 4, strategy=STRICT), workload("head", "q", 8, created=1), workload("new", "q", 1, created=2)
    )
    quota = RaiseLimit(kind="ClusterQueue", name="q", limit="nominalQuota", flavor="f", resource=GPU, by=8 + 1 - 4)
    assert steps(suggest(rehearsal, "team/new")) == [
        (End("team/head"),),
        (quota,),
        (UsePriority(priority=1, was=0),),
    ]


def test_the_lowest_class_that_is_enough_is_named_beside_the_priority() -> None:
    rehearsal = after(
        queue("q", 4, within=LOWER), workload("old", "q", 4, priority=7, created=1), workload("new", "q", 4)
    )
    classes = [WorkloadPriorityClass(name=name, value=value) for name, value in (("low", 5), ("top", 99), ("high", 50))]
    found = suggest(rehearsal, "team/new", classes)
    step = UsePriority(priority=8, was=0, priority_class="high", class_priority=50)
    assert (step,) in steps(found)
    assert in_words((step,), EMPTY) == "raise the priority from 0 to 8 (class high: 50)"


def test_quota_may_lie_with_a_cohort_or_be_held_back_by_a_lender() -> None:
    rehearsal = after(
        cohort("c"),
        queue("q", quota(2), cohort="c"),
        queue("lender", quota(6, None, 1), cohort="c"),
        workload("new", "q", 6),
    )
    found = answers(rehearsal, "new", RaiseLimit)
    assert [step for (step,) in found] == [
        RaiseLimit(kind="ClusterQueue", name="q", limit="nominalQuota", flavor="f", resource=GPU, by=3),
        RaiseLimit(kind="Cohort", name="c", limit="nominalQuota", flavor="f", resource=GPU, by=3),
        RaiseLimit(kind="ClusterQueue", name="lender", limit="lendingLimit", flavor="f", resource=GPU, by=3),
    ]


def racks(hosts: int) -> list[Object]:
    """Hosts of four GPUs in one rack."""
    room = {GPU: 4, "pods": 10}
    names = [f"n{number}" for number in range(hosts)]
    return [
        Topology(name="t", levels=(RACK, HOST)),
        ResourceFlavor(name="f", node_labels={"model": "f"}, topology="t"),
        *(Node(name=n, labels={**LABELS, HOST: n}, capacity=room, allocatable=room) for n in names),
    ]


def test_pods_that_find_no_place_together_get_more_nodes_or_a_wider_level() -> None:
    near = pods(2, 4, topology=TopologyRequest(required=HOST))
    rehearsal = after(*racks(2), queue("q", 20), workload("new", "q", pod_sets=(near,)))
    assert answers(rehearsal, "new", UseTopology) == [(UseTopology(pod_set="main", required=RACK),)]
    wide = pods(3, 4, topology=TopologyRequest(required=RACK))
    rehearsal = after(*racks(2), queue("q", 20), workload("new", "q", pod_sets=(wide,)))
    assert answers(rehearsal, "new", AddNodesStep) == [(AddNodesStep(flavor="f", like="n0", count=1),)]


def test_a_level_that_no_topology_has_gives_way_to_one_that_is_there() -> None:
    for asked, wanted in (
        (TopologyRequest(required="zone"), UseTopology(pod_set="main", required=RACK)),
        (TopologyRequest(preferred="zone"), UseTopology(pod_set="main", preferred=RACK)),
    ):
        new = workload("new", "q", pod_sets=(pods(2, 4, topology=asked),))
        assert answers(after(*racks(2), queue("q", 20), new), "new", UseTopology) == [(wanted,)]


def test_on_a_node_of_a_topology_that_keeps_its_pods_away_either_the_taint_or_the_selector_has_to_go() -> None:
    """It selects n1, whose taint it does not tolerate; n0 is free."""
    *others, last = racks(2)
    assert isinstance(last, Node)
    tainted = replace(last, taints=(Taint("m", "x"), Taint("hint", "y", "PreferNoSchedule")))
    pinned = pods(1, 4, topology=TopologyRequest(required=RACK), template=PodTemplate(node_selector={HOST: "n1"}))
    rehearsal = after(*others, tainted, queue("q", 20), workload("new", "q", pod_sets=(pinned,)))
    assert answers(rehearsal, "new", Tolerate, DropSelector) == [
        (Tolerate(pod_set="main", key="m", value="x", effect="NoSchedule"),),
        (DropSelector(pod_set="main", label=HOST),),
    ]


def test_where_the_taint_and_the_selector_keep_its_pods_away_each_alone_both_have_to_go() -> None:
    """It selects a node that is not there, and the only one that is has a taint."""
    *others, last = racks(1)
    assert isinstance(last, Node)
    tainted = replace(last, taints=(Taint("m", "x"),))
    pinned = pods(1, 4, topology=TopologyRequest(required=RACK), template=PodTemplate(node_selector={HOST: "gone"}))
    rehearsal = after(*others, tainted, queue("q", 20), workload("new", "q", pod_sets=(pinned,)))
    assert answers(rehearsal, "new", Tolerate, DropSelector) == [
        (
            Tolerate(pod_set="main", key="m", value="x", effect="NoSchedule"),
            DropSelector(pod_set="main", label=HOST),
        )
    ]


def test_of_more_nodes_no_more_are_tried_than_leave_its_place_to_it() -> None:
    """Sixteen at once would let in who is before it, and that takes all the quota."""
    first = workload("first", "q", created=1, pod_sets=(pods(6, 4, topology=TopologyRequest(required=RACK)),))
    new = workload("new", "q", created=2, pod_sets=(pods(3, 4, topology=TopologyRequest(required=RACK)),))
    rehearsal = after(*racks(2), queue("q", 24), first, new)
    assert answers(rehearsal, "new", AddNodesStep) == [(AddNodesStep(flavor="f", like="n0", count=1),)]


SHY = ResourceFlavor(name="f", node_labels={"model": "f"}, node_taints=(Taint("gpu", "yes"),))
PICKY = PodTemplate(node_selector={"model": "z"})
CLOSED = queue("q", 4, selector=LabelSelector({"kind": "lab"}))
HELD = LocalQueue(namespace="team", name="door", cluster_queue="q", stop_policy=StopPolicy.HOLD)


def test_one_change_that_suits_several_flavors_is_one_suggestion() -> None:
    flavors = [ResourceFlavor(name=name, node_labels={"model": name}) for name in "fg"]
    rehearsal = after(*flavors, queue("q", {"f": 4, "g": 4}), workload("new", "q", pod_sets=(pods(template=PICKY),)))
    assert answers(rehearsal, "new", DropSelector) == [(DropSelector(pod_set="main", label="model"),)]


def test_less_is_told_in_units_that_people_write() -> None:
    asked = AskLess(pod_set="main", resource="memory", amount=357_913_941, was=400 * 2**20)
    assert in_words((asked,), EMPTY) == "request 341Mi memory per pod instead of 400Mi memory"
    assert in_words((replace(asked, amount=0),), EMPTY) == "do not request memory"
    assert in_words((replace(asked, amount=1000),), EMPTY) == "request 1k memory per pod instead of 400Mi memory"


RED_TAPE: dict[str, tuple[list[Object], Workload, tuple[Step, ...], str]] = {
    "a taint and a label": (
        [SHY, queue("q", 4)],
        workload("new", "q", pod_sets=(pods(1, 1, template=PICKY),)),
        (
            Tolerate(pod_set="main", key="gpu", value="yes", effect="NoSchedule"),
            DropSelector(pod_set="main", label="model"),
        ),
        "add a toleration for gpu=yes:NoSchedule to main, and remove label model from the node selector of main",
    ),
    "a namespace that is not let in": (
        [CLOSED],
        workload("new", "q", 1),
        (AdmitNamespace(cluster_queue="q", namespace="team"),),
        "let the namespaceSelector of ClusterQueue q match namespace team",
    ),
    "it and its queue were stopped": (
        [queue("q", 4), HELD],
        replace(workload("new", "door", 1), active=False),
        (Resume(kind="Workload", name="team/new"), Resume(kind="LocalQueue", name="team/door")),
        "resume Workload team/new, and resume LocalQueue team/door",
    ),
    "a resource that the queue does not give": (
        [queue("q", 4)],
        workload("new", "q", pod_sets=(pods(1, 1, cpu=500),)),
        (AskLess(pod_set="main", resource="cpu", amount=0, was=500),),
        "do not request cpu",
    ),
    "another door leads to a queue with room": (
        [queue("q", 0), queue("p", 4)],
        workload("new", "q", 1),
        (MoveTo("p"),),
        "submit it to LocalQueue p",
    ),
    "who is before it takes what is given first": (
        [queue("q", 4, strategy=STRICT)],
        workload("new", "q", 5, created=9),
        (RaiseLimit(kind="ClusterQueue", name="q", limit="nominalQuota", flavor="f", resource=GPU, by=10),),
        "raise the nominalQuota of ClusterQueue q by 10 GPUs of f",
    ),
    "more than one thing keeps it out": (
        [queue("q", 4, strategy=STRICT), workload("never", "q", pod_sets=(pods(1, 1, cpu=1),))],
        workload("new", "q", 5, created=9),
        (
            UsePriority(priority=1, was=0),
            RaiseLimit(kind="ClusterQueue", name="q", limit="nominalQuota", flavor="f", resource=GPU, by=1),
        ),
        "raise the priority from 0 to 1, and raise the nominalQuota of ClusterQueue q by 1 GPU of f",
    ),
}


@pytest.mark.parametrize(("things", "new", "want", "words"), RED_TAPE.values(), ids=RED_TAPE)
def test_what_is_not_a_matter_of_quota(things: list[Object], new: Workload, want: tuple[Step, ...], words: str) -> None:
    before: Iterable[Workload] = [workload("head", "q", 9)] if new.created else []
    rehearsal = after(*things, *before, new)
    assert want in steps(suggest(rehearsal, new.key))
    assert in_words(want, EMPTY) == words


@pytest.mark.parametrize(
    ("had", "short", "want"),
    [
        ({GPU: 0, "cpu": 4000}, ["cpu"], "team/old ends (4 cpu)"),
        ({GPU: 8, "cpu": 4000}, ["cpu"], "team/old ends (4 cpu)"),
        ({GPU: 8, "cpu": 4000}, [GPU, "cpu"], "team/old ends (8 GPUs, 4 cpu)"),
        ({GPU: 8, "cpu": 4000}, [], "team/old ends (8 GPUs)"),
        ({"cpu": 4000}, [GPU], "team/old ends (4 cpu)"),
        ({}, [GPU], "team/old ends"),
    ],
)
def test_an_end_is_told_with_what_it_frees_of_what_is_short(had: dict[str, int], short: list[str], want: str) -> None:
    admission = Admission(cluster_queue="q", pod_sets=(PodSetAssignment(flavors=dict.fromkeys(had, "f"), usage=had),))
    old = replace(workload("old", "q", 8), admission=admission, conditions=(Condition("QuotaReserved", True),))
    assert in_words((End("team/old"),), world([old]), short) == want


def test_who_gets_in_anyway_needs_nothing_and_an_end_of_trying_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    rehearsal = after(queue("q", 4))
    rehearsal.apply(workload("new", "q", 4))
    assert suggest(rehearsal, "team/new") == Suggestions(admitted_anyway=True, tried=1)
    full = after(queue("q", 4), workload("old", "q", 4), workload("new", "q", 4, created=5))
    whole = suggest(full, "team/new")
    monkeypatch.setattr(trial.ChangeTrial.__init__, "__defaults__", ((), 2))
    cut = suggest(full, "team/new")
    assert (whole.complete, cut.complete) == (True, False)
    assert set(cut.found) < set(whole.found)


def test_nothing_that_is_tried_touches_the_cluster() -> None:
    rehearsal = after(queue("q", 4), workload("old", "q", 4), workload("new", "q", 4, created=5))
    before = (dict(rehearsal.workloads), rehearsal.now, rehearsal.session.dump())
    suggest(rehearsal, "team/new")
    assert (dict(rehearsal.workloads), rehearsal.now, rehearsal.session.dump()) == before


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10_000_000))
def test_every_suggestion_lets_it_in_and_nothing_of_it_can_be_left_out(seed: int) -> None:
    states = States()
    states.judge(seed)
    assert states.misses == []


def test_who_takes_fewer_pods_may_begin_with_fewer_still() -> None:
    rehearsal = after(
        queue("q", 6),
        workload("runs", "q", 4, created=1),
        workload("new", "q", created=2, pod_sets=(pods(6, 1, least=4),)),
    )
    step = LowerGang(gang="main", field="minCount", count=2, was=4)
    assert answers(rehearsal, "new", LowerGang) == [(step,)]
    assert in_words((step,), EMPTY) == "lower minCount of main from 4 to 2"
    assert answers(rehearsal, "new", FewerPods) == [], "its count is no minimum"


def test_what_is_stopped_and_has_no_room_either_goes_on_and_gets_some() -> None:
    """Both together are named, where neither is enough."""
    rehearsal = after(
        queue("q", 8),
        LocalQueue(namespace="team", name="door", cluster_queue="q", stop_policy=StopPolicy.HOLD),
        workload("runs", "q", 8, created=1),
        replace(workload("new", "q", 4, created=2), queue="door"),
    )
    door = Resume(kind="LocalQueue", name="team/door")
    more = RaiseLimit(kind="ClusterQueue", name="q", limit="nominalQuota", flavor="f", resource=GPU, by=4)
    assert answers(rehearsal, "new", Resume) == [(door, End("team/runs")), (door, more)]


def test_the_nodes_go_where_fewest_are_enough() -> None:
    """One rack is full; in the other one more host makes three."""
    room = {GPU: 4, "pods": 10}
    there = [("a0", "r0"), ("b0", "r1"), ("b1", "r1")]
    hosts = [
        Node(name=name, labels={**LABELS, RACK: rack, HOST: name}, capacity=room, allocatable=room)
        for name, rack in there
    ]
    flat: list[Object] = [thing for thing in racks(0) if not isinstance(thing, Node)]
    wide = pods(3, 4, topology=TopologyRequest(required=RACK))
    rehearsal = after(*flat, *hosts, queue("q", 40), workload("new", "q", pod_sets=(wide,)))
    assert answers(rehearsal, "new", AddNodesStep) == [(AddNodesStep(flavor="f", like="b0", count=1),)]
