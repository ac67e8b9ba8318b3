"""Gangs in one domain of the network, and tasks of one job whose roles like each other."""

import pytest

from gpuconsole.model.resources import CPU, GPU
from gpuconsole.model.volcano import NetworkTopology
from gpuconsole.scheduling.volcano.api.hyper_nodes import ROOT_NAME, HyperNodeDomains, HyperNodeInfo
from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.plugins.task_topology import TaskTopology, topology_of
from gpuconsole.scheduling.volcano.session import VolcanoSession
from gpuconsole.scheduling.volcano.session_plugins import Purpose
from tests.support.volcano_clusters import job, node, session, task

NETWORK = "network-topology-aware"
NODES = {
    "rack-a": ["a1", "a2"],
    "rack-b": ["b1", "b2"],
    "rack-c": ["c1"],
    "spine-1": ["a1", "a2", "b1", "b2"],
    "spine-2": ["c1"],
}


def racks() -> HyperNodeDomains:
    """Two racks below one spine, one below another; a node x is in none."""
    infos = {
        "spine-1": HyperNodeInfo("spine-1", 2, children={"rack-a", "rack-b"}),
        "spine-2": HyperNodeInfo("spine-2", 2, children={"rack-c"}),
        "rack-a": HyperNodeInfo("rack-a", 1, parent="spine-1"),
        "rack-b": HyperNodeInfo("rack-b", 1, parent="spine-1"),
        "rack-c": HyperNodeInfo("rack-c", 1, parent="spine-2"),
    }
    return HyperNodeDomains(infos, NODES, by_tier={1: ["rack-a", "rack-b", "rack-c"], 2: ["spine-1", "spine-2"]})


def opened(*jobs: JobInfo, arguments: dict[str, object] | None = None) -> VolcanoSession:
    names = ("a1", "a2", "b1", "b2", "c1", "x")
    return session(NETWORK, [node(name) for name in names], jobs, arguments=arguments, domains=racks())


def gang(*tasks: TaskInfo, tier: int = 2, mode: str = "hard", **facts: object) -> JobInfo:
    return job(tasks, network_topology=NetworkTopology(mode, tier), **facts)


def rounded(scores: dict[str, float]) -> dict[str, float]:
    return {name: round(score, 3) for name, score in scores.items()}


def node_scores(on: VolcanoSession, one: TaskInfo) -> dict[str, float]:
    return rounded(on.functions.batch_node_order[NETWORK](one, on.node_list))


def test_the_closer_a_node_is_to_where_the_gang_is_the_better() -> None:
    first, second = task("p0", on="a1"), task("p1")
    on = opened(gang(first, second))
    assert node_scores(on, second) == {}, "nothing is known yet"
    second.hyper_node = "rack-a"
    # Of three tiers (racks, spines, the top): the same rack, the same spine, only the top in common.
    assert node_scores(on, second) == {"a1": 150, "a2": 150, "b1": 50, "b2": 50, "c1": 0, "x": 0}


def test_pods_that_ask_for_no_closeness_fill_domains_that_are_full_already() -> None:
    there, one = task("p0", on="a1", requests={CPU: 8000}), task("p1", requests={CPU: 8000})
    on = opened(job([there, one]))
    rack, spine, top = (1 * 1.0 + 0.8 * 0.5 + 0.64 / 3), (0.5 + 0.8 * 0.5 + 0.64 / 3), 1 + 0.8 * 1 + 0.64 / 3
    total = 1 + 0.8 + 0.64
    wanted = {"a1": rack, "a2": rack, "b1": spine, "b2": spine, "c1": top, "x": top}
    assert node_scores(on, one) == rounded({name: 100 * score / total for name, score in wanted.items()})
    off = opened(job([there.copy(), one]), arguments={"hypernode.binpack.normal-pod.enable": False})
    assert node_scores(off, one) == {}


def test_a_task_that_is_placed_counts_for_its_domains() -> None:
    one, other = task("p0", requests={CPU: 8000}), task("p1", requests={CPU: 8000})
    on = opened(job([one, other]), arguments={"hypernode.binpack.normal-pod.fading": 0})
    before = node_scores(on, other)
    one.node_name = "a1"
    (handler,) = on.functions.handlers
    assert handler.allocate is not None
    assert handler.deallocate is not None
    handler.allocate(one)
    assert (before["a2"], node_scores(on, other)["a2"]) == (50, 100)
    handler.deallocate(one)
    assert node_scores(on, other) == before


def test_the_fullest_domain_is_best_and_among_equals_the_one_where_the_gang_is_already() -> None:
    first, second = task("p0", on="b1", requests={CPU: 2000}), task("p1", requests={CPU: 2000})
    other = job([task("q", group="other", on="a1", requests={CPU: 2000})], name="other")
    on = opened(gang(first, second), other)
    (unit,) = on.jobs["default/job"].sub_jobs.values()
    order = on.functions.hyper_node_order[NETWORK]
    # Of 16 cores 2 are used in a and b, of 8 none in c; the gang asks for 4.
    assert rounded(order(unit, {key: [] for key in ("rack-a", "rack-b", "rack-c")})) == {
        "rack-a": 37.5,
        "rack-b": 37.5,
        "rack-c": 50,
    }
    assert rounded(order(unit, {key: [] for key in ("rack-a", "rack-b")})) == {"rack-a": 37.5, "rack-b": 87.5}


def test_gpus_count_for_domains_only_where_they_are_listed() -> None:
    one = task("p0", requests={CPU: 2000, GPU: 8})
    arguments = {"hypernode.binpack.resources": GPU, f"hypernode.binpack.resources.{GPU}": 3, "weight": 2}
    plain, listed = opened(gang(one)), opened(gang(one.copy()), arguments=arguments)
    found = []
    for on in (plain, listed):
        (unit,) = on.jobs["default/job"].sub_jobs.values()
        found.append(on.functions.hyper_node_order[NETWORK](unit, on.real_node_list)["rack-c"])
    assert found == [25, 2 * (25 + 3 * 100) / 4]


GRADIENTS: dict[str, tuple[int, str, int, Purpose, list[list[str]]]] = {
    # tier, where it is already, GPUs that it asks for, purpose
    "racks with room first, then spines": (2, "", 9, Purpose.ALLOCATE, [["rack-a", "rack-b"], ["spine-1"]]),
    "nothing above its tier": (1, "", 8, Purpose.ALLOCATE, [["rack-a", "rack-b", "rack-c"]]),
    "nothing is large enough": (1, "", 17, Purpose.ALLOCATE, []),
    "within the spine where it is": (2, "rack-b", 99, Purpose.ALLOCATE, [["rack-a", "rack-b"], ["spine-1"]]),
    "within the rack where it is": (1, "rack-b", 99, Purpose.ALLOCATE, [["rack-b"]]),
    "for victims the widest first, and only a few": (2, "", 9, Purpose.EVICT, [["spine-1"], ["rack-b"]]),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_domains_that_suit_a_gang(name: str) -> None:
    tier, allocated, gpus, purpose, wanted = GRADIENTS[name]
    unit = gang(task("p"), tier=tier, min_resources={GPU: gpus})
    on = opened(unit, arguments={"hypernode.gradient.evict.max-hypernodes": 2})
    unit.allocated_hyper_node = allocated
    found = on.functions.job_gradients[NETWORK](unit, on.hyper_nodes[ROOT_NAME], purpose)
    assert [[info.name for info in group] for group in found] == wanted


def test_a_gang_that_is_elsewhere_finds_nothing_below_a_domain() -> None:
    unit = gang(task("p"), tier=1)
    on = opened(unit)
    unit.allocated_hyper_node = "rack-c"
    assert on.functions.job_gradients[NETWORK](unit, on.hyper_nodes["spine-1"], Purpose.ALLOCATE) == []


# task-topology

LIKES = {"volcano.sh/task-topology-affinity": "ps,worker", "volcano.sh/task-topology-anti-affinity": "ps"}


def roles(*listed: str) -> list[TaskInfo]:
    return [task(f"{role}-{number}", role=role, requests={CPU: 1000}) for number, role in enumerate(listed)]


READ: dict[str, tuple[dict[str, str], object]] = {
    "nothing": ({}, None),
    "groups and an order": (
        {**LIKES, "volcano.sh/task-topology-task-order": "worker,ps"},
        TaskTopology((("ps", "worker"),), (("ps",),), ("worker", "ps")),
    ),
    "a role that is none": (
        {"volcano.sh/task-topology-affinity": "ps,boss"},
        "task boss do not exist in job <default/job>",
    ),
    "a role twice": ({"volcano.sh/task-topology-anti-affinity": "ps,ps"}, "task ps is duplicate in job <default/job>"),
}


@pytest.mark.parametrize("name", READ)
def test_annotations_say_which_roles_belong_together(name: str) -> None:
    annotations, wanted = READ[name]
    assert topology_of(job(roles("ps", "worker"), annotations=annotations)) == wanted


def test_each_parameter_server_has_its_workers_beside_it() -> None:
    tasks = roles("ps", "ps", "worker", "worker", "other")
    on = session("task-topology", [node("n1"), node("n2")], [job(tasks, annotations=LIKES)])
    order = on.functions.task_order["task-topology"]
    first, second, third, fourth, other = tasks
    # Buckets: ps-0 with worker-2, ps-1 with worker-3; `other` is in none.
    pairs = [(first, second), (second, third), (first, third), (third, fourth), (fourth, other), (other, first)]
    assert [order(left, right) for left, right in pairs] == [-1, 1, -1, -1, -1, 1]
    first.node_name = "n1"
    (handler,) = on.functions.handlers
    assert handler.allocate is not None
    handler.allocate(first)

    def score(one: TaskInfo) -> dict[str, float]:
        return {name: on.functions.node_order["task-topology"](one, info) for name, info in on.nodes.items()}

    assert score(third) == {"n1": 100, "n2": 50}
    assert score(second) == {"n1": 50, "n2": 100}, "two of their kind shun each other"
    assert score(other) == {"n1": 0, "n2": 0}


def test_a_node_that_takes_only_part_of_a_bucket_is_worth_less() -> None:
    tasks = roles("ps", "worker", "worker")
    small = [node("small", amounts={CPU: 2000}), node("large"), node("tiny", amounts={CPU: 500})]
    on = session("task-topology", small, [job(tasks, annotations=LIKES)], arguments={"task-topology.weight": 3})
    scores = {name: on.functions.node_order["task-topology"](tasks[0], info) for name, info in on.nodes.items()}
    assert scores == {"small": 200, "large": 300, "tiny": 0}
