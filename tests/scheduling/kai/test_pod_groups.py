"""Pod groups as they are written: minima, sub-groups, priorities, and what is said when they cannot be scheduled."""

from msgspec.structs import replace

from gpuconsole.model.cluster import Pod, PriorityClass
from gpuconsole.model.events import Bind, MarkGroup, PlacementDecision, Unschedulable
from gpuconsole.model.kai import UNSCHEDULABLE_ON_NODE_POOL, KaiCondition, KaiPodGroup, KaiSubGroup, KaiTopology
from gpuconsole.model.queues import Topology
from gpuconsole.scheduling.kai.engine import KaiPlacement
from tests.scheduling.kai.test_engine import binds, engine, node, pod, queue

GROUP = KaiPodGroup(name="g", queue="a", min_member=2)
LACKING = "no nodes with enough resources were found: 1 node(s) didn't have enough resources: GPUs."


def member(name: str, gpus: int = 1, sub_group: str = "", **rest: int) -> Pod:
    made = pod(name, gpus, pod_group_name="g", **rest)  # type: ignore[arg-type]
    return replace(made, labels={**made.labels, "kai.scheduler/subgroup-name": sub_group}) if sub_group else made


def marks(decisions: list[PlacementDecision]) -> list[MarkGroup]:
    return [decision for decision in decisions if isinstance(decision, MarkGroup)]


def test_a_group_starts_with_its_minimum_and_takes_more_as_they_fit() -> None:
    made = engine([node("n1", 3), queue("a", 4), GROUP, *(member(f"p{n}") for n in range(4))])
    assert list(binds(made.schedule(1))) == ["default/p0", "default/p1", "default/p2"]


def test_a_group_waits_for_pods_that_are_not_there_yet() -> None:
    made = engine([node("n1", 4), queue("a", 4), GROUP, member("p0")])
    (said,) = made.schedule(1)
    text = "Job is not ready for scheduling. Waiting for 2 pods, currently 1 exist, 0 are gated"
    assert said == Unschedulable("default/p0", text, "", text)


def test_what_keeps_a_group_back_is_its_condition_and_the_pods_know_their_own_part() -> None:
    made = engine([node("n1", 1), queue("a", 4), GROUP, member("p0"), member("p1")])
    said = made.schedule(1)
    whole = (
        "PodSchedulingErrors: Resources were found for 1 pods while 2 are required for gang scheduling."
        f" Additional pods cannot be scheduled due to: {LACKING}."
    )
    assert [(s.pod, s.message) for s in said if isinstance(s, Unschedulable)] == [
        ("default/p0", whole),
        ("default/p1", LACKING),
    ]
    (mark,) = marks(said)
    assert (mark.group, mark.message, [reason for reason, _ in mark.reasons]) == (
        "default/g",
        whole,
        ["PodSchedulingErrors"],
    )


def waiting(group: KaiPodGroup) -> KaiPlacement:
    return engine([node("n1", 1), queue("a", 4), group, member("p0"), member("p1")])


def test_a_group_that_is_tried_once_a_pool_names_the_pool_and_pods_may_be_left_in_peace() -> None:
    (mark,) = marks(waiting(replace(GROUP, backoff=1)).schedule(1))
    assert mark.message.startswith("Node-Pool 'default': PodSchedulingErrors: ")
    quiet = waiting(replace(GROUP, mark_unschedulable=False)).schedule(1)
    assert [type(decision) for decision in quiet] == [MarkGroup]


def test_the_condition_goes_when_the_group_starts() -> None:
    made = waiting(GROUP)
    (mark,) = marks(made.schedule(1))
    condition = KaiCondition(type=UNSCHEDULABLE_ON_NODE_POOL, message=mark.message)
    made.apply(replace(GROUP, conditions=(condition,)), 2)
    assert made.schedule(2) == []
    made.apply(node("n2", 1), 3)
    said = made.schedule(3)
    assert len([decision for decision in said if isinstance(decision, Bind)]) == 2
    assert marks(said) == [MarkGroup("default/g")]


def test_a_queue_that_is_not_there_is_named() -> None:
    made = engine([node("n1", 4), queue("a", 4), replace(GROUP, queue="nowhere"), member("p0"), member("p1")])
    assert [mark.message for mark in marks(made.schedule(1))] == ["QueueDoesNotExist: Queue 'nowhere' does not exist."]


def test_over_the_limit_and_over_quota_are_said_in_their_own_words() -> None:
    over = replace(GROUP, preemptibility="non-preemptible")
    made = engine([node("n1", 4), queue("a", 1), over, member("p0"), member("p1")])
    (mark,) = marks(made.schedule(1))
    assert mark.reasons == (
        (
            "NonPreemptibleOverQuota",
            "Non-preemptible workload is over quota. Workload requested 2 GPUs, but a quota is 1 GPUs, while 0 GPUs are"
            " already allocated for non-preemptible pods. Use a preemptible workload to go over quota.",
        ),
    )


def test_the_priority_is_that_of_the_class_and_decides_whether_it_can_be_preempted() -> None:
    build = PriorityClass(name="build", value=100)
    made = engine([node("n1", 4), queue("a", 1), build, replace(GROUP, priority_class="build")])
    for name in ("p0", "p1"):
        made.apply(member(name), 0)
    assert [reason for mark in marks(made.schedule(1)) for reason, _ in mark.reasons] == ["NonPreemptibleOverQuota"]


def test_sub_groups_have_minima_and_racks_of_their_own() -> None:
    site = Topology(name="site", levels=("rack",))
    nodes = [
        replace(node(f"n{n}", 2), labels={"rack": f"r{n // 2}", "nvidia.com/gpu.memory": "80000"}) for n in range(4)
    ]
    near = KaiTopology(topology="site", required="rack")
    group = replace(
        GROUP,
        sub_groups=(
            KaiSubGroup(name="prefill", min_member=4, constraint=near),
            KaiSubGroup(name="decode", min_member=3, constraint=near),
        ),
    )
    pods = [member(f"prefill-{n}", 1, "prefill") for n in range(4)] + [
        member(f"decode-{n}", 1, "decode") for n in range(3)
    ]
    made = engine([site, *nodes, queue("a", 8), group, *pods])
    racks = {name.rpartition("-")[0]: set[str]() for name in binds(made.schedule(1))}
    for name, (where, _) in binds(engine([site, *nodes, queue("a", 8), group, *pods]).schedule(1)).items():
        racks[name.rpartition("-")[0]].add("r0" if where in ("n0", "n1") else "r1")
    assert len(racks["default/prefill"]) == len(racks["default/decode"]) == 1
    assert racks["default/prefill"] != racks["default/decode"]
