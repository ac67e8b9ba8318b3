"""What Volcano's plugins say of nodes: where a task may go, and which node is best."""

from collections.abc import Mapping

import pytest

from gpuconsole.model.cluster import Node
from gpuconsole.model.labels import HOSTNAME, LabelSelector, NodeTerm, PreferredTerm, Requirement, Taint
from gpuconsole.model.pod_template import Container, PodAffinity, PodTemplate, PodTerm, SpreadConstraint
from gpuconsole.model.resources import CPU, GPU, MEMORY, PODS
from gpuconsole.model.volcano import GroupAffinity
from gpuconsole.scheduling.volcano.api.node import NodeUsage
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.config import VolcanoArguments, VolcanoConfiguration, VolcanoPluginOption
from gpuconsole.scheduling.volcano.scheduler_conf import PLUGINS
from gpuconsole.scheduling.volcano.session import VolcanoSession, VolcanoStatement
from tests.support.volcano_clusters import GIB, NOON, cluster, job, node, pod, queue, session, task

MINUTE = 60_000_000


def refusals(opened: VolcanoSession, one: TaskInfo) -> dict[str, str]:
    """Why the task does not fit, by node; the code is behind the reason."""
    found = {}
    for name, info in opened.nodes.items():
        error = opened.predicate(one, info)
        if error is not None:
            found[name] = ", ".join(f"{status.reason} ({int(status.code)})" for status in error.statuses)
    return found


def scores(opened: VolcanoSession, one: TaskInfo) -> dict[str, float]:
    return {name: round(score, 6) for name, score in opened.node_scores(one, opened.node_list).items()}


def hosts(*names: str, **labels: str) -> list[Node]:
    return [node(name, labels={HOSTNAME: name, **labels}) for name in names]


def labelled(*, near: PodAffinity | None = None, far: PodAffinity | None = None, **facts: object) -> PodTemplate:
    given: dict[str, object] = {"containers": (Container(requests={CPU: 1000}),), **facts}
    return PodTemplate(pod_affinity=near, pod_anti_affinity=far, **given)  # type: ignore[arg-type]


ROLE = PodTerm(HOSTNAME, LabelSelector({"role": "web"}))

FILTERED: dict[str, tuple[Node, str]] = {
    "a cordoned node": (node("n", unschedulable=True), "node(s) were unschedulable (3)"),
    "a taint": (node("n", taints=(Taint("gpu", "a100"),)), "node(s) had untolerated taint {gpu: a100} (3)"),
    "a node that is not ready": (
        node("n", ready=False),
        "node(s) had untolerated taint {node.kubernetes.io/not-ready: } (3)",
    ),
    "another label": (node("n", labels={"zone": "b"}), "node(s) didn't match Pod's node affinity/selector (3)"),
    "no room for pods": (node("n", labels={"zone": "a"}, amounts={PODS: 0}), "node(s) pod number exceeded (2)"),
    "no room for pods and a taint": (
        node("n", labels={"zone": "a"}, amounts={PODS: 0}, taints=(Taint("t"),)),
        "node(s) pod number exceeded (2), node(s) had untolerated taint {t: } (3)",
    ),
}


@pytest.mark.parametrize("name", FILTERED)
def test_predicates_keep_a_task_off_a_node(name: str) -> None:
    machine, reason = FILTERED[name]
    picky = PodTemplate(
        containers=(Container(requests={CPU: 1}),), node_selector={"zone": "a"} if "zone" in machine.labels else {}
    )
    waiting = task("p", template=picky)
    opened = session("predicates", [machine], [job([waiting])])
    assert refusals(opened, waiting) == {"n": reason}


def test_predicates_can_be_switched_off() -> None:
    machine = node("n", taints=(Taint("t"),))
    waiting = task("p", template=labelled(node_selector={"zone": "a"}, far=PodAffinity((ROLE,))))
    off = dict.fromkeys(
        (f"predicate.{name}Enable" for name in ("NodeAffinity", "TaintToleration", "PodAffinity")), False
    )
    there = task("there", on="n", labels={"role": "web"})
    opened = session("predicates", [machine], [job([waiting, there])], arguments=off)
    assert refusals(opened, waiting) == {}


def test_predicates_do_not_look_at_resources() -> None:
    waiting = task("p", requests={GPU: 99})
    assert refusals(session("predicates", [node("n")], [job([waiting])]), waiting) == {}


NEIGHBOURS: dict[str, tuple[PodTemplate, dict[str, str]]] = {
    # A pod of the role web is on a; a pod on b shuns pods of the role batch.
    "near web": (labelled(near=PodAffinity((ROLE,))), {"b": "node(s) didn't match pod affinity rules (3)"}),
    "far from web": (labelled(far=PodAffinity((ROLE,))), {"a": "node(s) didn't match pod anti-affinity rules (2)"}),
    "shunned": (labelled(), {"b": "node(s) didn't satisfy existing pods anti-affinity rules (2)"}),
}


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_predicates_keep_pods_near_and_far(name: str) -> None:
    template, wanted = NEIGHBOURS[name]
    web = task("web", on="a", labels={"role": "web"})
    shy = labelled(far=PodAffinity((PodTerm(HOSTNAME, LabelSelector({"role": "batch"})),)))
    labels = {"role": "batch"} if name == "shunned" else {}
    waiting = task("p", template=template, labels=labels)
    opened = session("predicates", hosts("a", "b"), [job([web, task("shy", on="b", template=shy), waiting])])
    assert refusals(opened, waiting) == wanted


def test_a_task_that_gets_a_node_counts_for_the_next() -> None:
    apart = labelled(far=PodAffinity((ROLE,)))
    first, second = (task(name, template=apart, labels={"role": "web"}) for name in ("p0", "p1"))
    opened = session("predicates", hosts("a", "b"), [job([first, second])])
    assert refusals(opened, second) == {}
    first.node_name = "a"
    for handler in opened.functions.handlers:
        assert handler.allocate is not None
        handler.allocate(first)
    assert refusals(opened, second) == {"a": "node(s) didn't match pod anti-affinity rules (2)"}
    for handler in opened.functions.handlers:
        assert handler.deallocate is not None
        handler.deallocate(first)
    assert refusals(opened, second) == {}


def test_predicates_spread_pods_over_domains() -> None:
    even = SpreadConstraint("zone", selector=LabelSelector({"role": "web"}))
    nodes = [node("a", labels={"zone": "1"}), node("b", labels={"zone": "2"}), node("c")]
    waiting = task("p", template=labelled(spread=(even,)), labels={"role": "web"})
    opened = session("predicates", nodes, [job([waiting, task("web", on="a", labels={"role": "web"})])])
    start = "node(s) didn't match pod topology spread constraints"
    assert refusals(opened, waiting) == {"a": f"{start} (2)", "c": f"{start} (missing required label) (3)"}


PACKED: dict[str, tuple[dict[str, object], dict[str, float]]] = {
    # half: 2 of 8 cores, 2 of 8 GPUs used; the task asks for 1 core and 2 GPUs.
    "cores only, unless GPUs are listed": ({}, {"empty": 12.5, "full": 0, "half": 37.5}),
    "GPUs that are listed weigh 1": (
        {"binpack.resources": "nvidia.com/gpu"},
        {"empty": 18.75, "full": 0, "half": 43.75},
    ),
    "weights": (
        {"binpack.resources": "nvidia.com/gpu, a/a", "binpack.resources.nvidia.com/gpu": 3, "binpack.weight": 2},
        {"empty": 43.75, "full": 0, "half": 93.75},
    ),
    "a weight below zero is 1": ({"binpack.cpu": -5}, {"empty": 12.5, "full": 0, "half": 37.5}),
    "no weight, no score": ({"binpack.weight": 0}, {"empty": 0, "full": 0, "half": 0}),
}


@pytest.mark.parametrize("name", PACKED)
def test_binpack_prefers_the_node_that_is_fullest_afterwards(name: str) -> None:
    arguments, wanted = PACKED[name]
    there = [task("h", on="half", requests={CPU: 2000, GPU: 2}), task("f", on="full", requests={CPU: 8000})]
    waiting = task("p", requests={CPU: 1000, GPU: 2})
    opened = session("binpack", [node(name) for name in wanted], [job([*there, waiting])], arguments=arguments)
    assert scores(opened, waiting) == wanted


def alone(name: str) -> dict[str, object]:
    """Weights that leave only one score."""
    names = ("leastrequested", "nodeaffinity", "podaffinity", "balancedresource", "tainttoleration")
    return {
        f"{one}.weight": int(one == name) for one in (*names, "imagelocality", "podtopologyspread", "mostrequested")
    }


ORDERED: dict[str, tuple[str, dict[str, float]]] = {
    # b has a pod with 4 of 8 cores and 8 of 32 GiB; the task asks for 2 cores and 4 GiB.
    "the emptier": ("leastrequested", {"a": 81, "b": 43}),
    "the fuller": ("mostrequested", {"a": 18, "b": 56}),
    "the better balanced": ("balancedresource", {"a": 93, "b": 81}),
    "the preferred label": ("nodeaffinity", {"a": 0, "b": 100}),
    "the fewest disliked taints": ("tainttoleration", {"a": 0, "b": 100}),
    "the image that is there": ("imagelocality", {"a": 0, "b": 50}),
    "the domain of fewer": ("podtopologyspread", {"a": 100, "b": 0}),
    "the wanted neighbour": ("podaffinity", {"a": 0, "b": 100}),
}


@pytest.mark.parametrize("name", ORDERED)
def test_nodeorder_scores_as_kube_scheduler_does(name: str) -> None:
    score, wanted = ORDERED[name]
    image = {"model:1": 2 * (23 * 1024**2 + (1000 - 23) * 1024**2 // 2)}
    a = node("a", labels={HOSTNAME: "a"}, taints=(Taint("slow", "", "PreferNoSchedule"),))
    b = node("b", labels={HOSTNAME: "b", "fast": "yes"}, images=image)
    waiting = task(
        "p",
        labels={"role": "web"},
        template=labelled(
            containers=(Container(image="model:1", requests={CPU: 2000, MEMORY: 4 * GIB}),),
            preferred=(PreferredTerm(7, NodeTerm((Requirement("fast", "Exists"),))),),
            near=PodAffinity(preferred=((5, ROLE),)),
            spread=(SpreadConstraint(HOSTNAME, 1, "ScheduleAnyway", LabelSelector({"role": "web"})),),
        ),
    )
    there = task("w", on="b", labels={"role": "web"}, requests={CPU: 4000, MEMORY: 8 * GIB})
    opened = session("nodeorder", [a, b], [job([waiting, there])], arguments=alone(score))
    assert scores(opened, waiting) == wanted


def test_nodeorder_balances_gpus_only_for_tasks_that_want_some() -> None:
    there = task("g", on="b", requests={CPU: 1000, GPU: 8})
    plain, greedy = task("p", requests={CPU: 1000}), task("q", requests={CPU: 1000, GPU: 1})
    nodes = [node("a"), node("b", amounts={GPU: 16})]
    opened = session("nodeorder", nodes, [job([there, plain, greedy])], arguments=alone("balancedresource"))
    assert (scores(opened, plain), scores(opened, greedy)) == ({"a": 93, "b": 87}, {"a": 94, "b": 76})


def test_nodeorder_counts_what_predicates_saw_placed_and_taken_back() -> None:
    first, second = (task(name, requests={CPU: 8000, MEMORY: 8 * GIB}) for name in ("p", "q"))
    options = (
        VolcanoPluginOption(name="predicates"),
        VolcanoPluginOption(name="nodeorder", arguments=VolcanoArguments(alone("leastrequested"))),
    )
    made = cluster([node("a"), node("b")], [job([first, second])])
    opened = VolcanoSession(VolcanoConfiguration(tiers=(options,)), made, plugins=PLUGINS)
    before = scores(opened, second)
    statement = VolcanoStatement(opened)
    statement.allocate(first, opened.nodes["a"])
    placed = scores(opened, second)
    assert placed["a"] < before["a"]
    assert placed["b"] == before["b"]
    statement.discard()
    assert scores(opened, second) == before


UNSPECIFIED = "node group affinity not specified (3)"
UNLABELLED = "node group label not found (3)"
UNSUITED = "node does not satisfy the node group affinity (3)"

QUEUES: dict[str, tuple[GroupAffinity | None, dict[str, object], dict[str, str], dict[str, float]]] = {
    "no affinity": (
        None,
        {},
        {
            "a": UNSPECIFIED,
            "b": UNSPECIFIED,
            "none": UNLABELLED,
        },
        {"a": 0, "b": 0, "none": 0},
    ),
    "no affinity, and not strict": (
        None,
        {"strict": False},
        {"a": UNSPECIFIED, "b": UNSPECIFIED},
        {"a": 0, "b": 0, "none": 0},
    ),
    "a required group": (
        GroupAffinity(("a",)),
        {},
        {"b": UNSUITED, "none": UNLABELLED},
        {"a": 100, "b": 0, "none": 0},
    ),
    "preferred groups in order": (
        GroupAffinity((), ("b", "a")),
        {"enablePreferredOrder": True},
        {"none": UNLABELLED},
        {"a": 25, "b": 50, "none": 0},
    ),
    "a group to stay away from, one to avoid": (
        GroupAffinity(("a", "b"), (), ("a",), ("b",)),
        {},
        {"a": UNSUITED, "none": UNLABELLED},
        {"a": 100, "b": -1, "none": 0},
    ),
}


@pytest.mark.parametrize("name", QUEUES)
def test_nodegroup_sends_queues_to_their_groups(name: str) -> None:
    affinity, arguments, refused, wanted = QUEUES[name]
    nodes = [
        node("a", labels={"volcano.sh/nodegroup-name": "a"}),
        node("b", labels={"volcano.sh/nodegroup-name": "b"}),
        node("none"),
    ]
    waiting = task("p")
    mine = queue("mine", affinity=affinity)
    opened = session("nodegroup", nodes, [job([waiting], queue="mine")], arguments=arguments, queues=[mine])
    assert (refusals(opened, waiting), scores(opened, waiting)) == (refused, wanted)


USED: dict[str, tuple[NodeUsage, dict[str, str], dict[str, float]]] = {
    "half used": (NodeUsage(NOON, {"10m": 50.0}, {"10m": 70.0}), {}, {"n": 200}),
    "too many cores": (
        NodeUsage(NOON, {"10m": 81.0}, {"10m": 0.0}),
        {"n": "the CPU load of the node exceeds the upper limit. (3)"},
        {"n": 297.5},
    ),
    "too much memory": (
        NodeUsage(NOON, {"10m": 0.0}, {"10m": 81.0}),
        {"n": "the memory load of the node exceeds the upper limit. (3)"},
        {"n": 297.5},
    ),
    "measured too long ago": (NodeUsage(NOON - 5 * MINUTE - 1, {"10m": 99.0}, {"10m": 0.0}), {}, {"n": 0}),
    "not measured": (NodeUsage(NOON), {}, {"n": 0}),
}


@pytest.mark.parametrize("name", USED)
def test_usage_goes_by_what_is_really_used(name: str) -> None:
    measured, refused, wanted = USED[name]
    waiting = task("p")
    opened = session("usage", [node("n")], [job([waiting])], arguments={"thresholds": {"cpu": 80, "mem": 80}})
    opened.nodes["n"].usage = measured
    assert (refusals(opened, waiting), scores(opened, waiting)) == (refused, wanted)


FITTED: dict[str, tuple[Mapping[str, object], Mapping[str, str], dict[str, float]]] = {
    # full: 4 of 8 cores and 4 of 8 GPUs used; the task asks for 2 cores and 2 GPUs.
    "spread by default": ({}, {}, {"empty": 750, "full": 250}),
    "GPUs packed": (
        {"resources": {"nvidia.com/*": {"type": "MostAllocated", "weight": 3}, "cpu": {"type": "LeastAllocated"}}},
        {},
        {"empty": 375, "full": 625},
    ),
    "a pod's own strategy": (
        {},
        {
            "volcano.sh/resource-strategy-scoring-type": "MostAllocated",
            "volcano.sh/resource-strategy-weight": '{"cpu": 1}',
        },
        {"empty": 250, "full": 750},
    ),
    "a pod's own strategy that cannot be read": (
        {},
        {"volcano.sh/resource-strategy-scoring-type": "MostAllocated"},
        {"empty": 0, "full": 0},
    ),
}


@pytest.mark.parametrize("name", FITTED)
def test_resource_strategy_fit_has_a_rule_for_each_resource(name: str) -> None:
    arguments, annotations, wanted = FITTED[name]
    waiting = TaskInfo(pod("p", requests={CPU: 2000, GPU: 2}, annotations=annotations))
    there = task("f", on="full", requests={CPU: 4000, GPU: 4})
    opened = session(
        "resource-strategy-fit", [node("empty"), node("full")], [job([waiting, there])], arguments=arguments
    )
    assert scores(opened, waiting) == wanted


def test_resource_strategy_fit_keeps_gpu_nodes_for_who_needs_them() -> None:
    arguments = {
        "resourceStrategyFitWeight": 0,
        "sra": {"enable": True, "resources": "nvidia.com/gpu", "weight": 10},
        "proportional": {
            "enable": True,
            "resources": "nvidia.com/gpu",
            "resourceProportion": {"nvidia.com/gpu.cpu": 1, "nvidia.com/gpu.memory": 0},
        },
    }
    plain, greedy = task("p", requests={CPU: 1000}), task("q", requests={CPU: 1000, GPU: 1})
    nodes = [node("cpu", amounts={GPU: 0}), node("gpu")]
    opened = session("resource-strategy-fit", nodes, [job([plain, greedy])], arguments=arguments)
    assert (scores(opened, plain), scores(opened, greedy)) == ({"cpu": 1000, "gpu": 0}, {"cpu": 0, "gpu": 0})
    assert refusals(opened, plain) == {"gpu": "proportional of resource nvidia.com/gpu check failed (3)"}
    assert refusals(opened, greedy) == {}
