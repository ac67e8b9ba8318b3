"""kube-scheduler's own profile: exact scores, the order and the length of the search, back-off."""

import pytest

from gpuconsole.model.clock import SECOND
from gpuconsole.model.cluster import Node
from gpuconsole.model.events import PlacementDecision
from gpuconsole.model.pod_template import Container, PodTemplate
from gpuconsole.model.resources import CPU, GPU, MEMORY
from gpuconsole.scheduling.kube.framework_runtime import prepare_node_plugins
from gpuconsole.scheduling.kube.plugins.framework import balanced_score
from gpuconsole.scheduling.kube.pod_classes import AssignedPod, NodeState, PodClasses, with_node, with_pod
from gpuconsole.scheduling.kube.profile import BackoffSettings, SchedulerProfile, ScoringStrategy, Weights
from gpuconsole.scheduling.kube.scores import Images, broken_line
from gpuconsole.scheduling.placement import NodeScore
from tests.support.kube_cluster import GIB, Cluster, node, pod, pods, template

ALONE: Weights = (("NodeResourcesFit", 1),)
MEGABYTE = 1024 * 1024


def bare(name: str, cpu: int, memory: int, **fields: object) -> Node:
    return node(name, 0, allocatable={CPU: cpu, MEMORY: memory}, **fields)


def score(rules: SchedulerProfile, machine: Node, there: dict[str, int], asks: dict[str, int]) -> int:
    shapes = PodClasses(rules)
    state = with_node(NodeState(machine.name), machine)
    if there:
        state = with_pod(state, AssignedPod("default/there", shapes.of(template(requests=there)), 0, 0))
    return prepare_node_plugins(rules, shapes.of(template(requests=asks)), Images(()), None).score(state)


# Worked out by hand from the formula.
LEAST: dict[str, tuple[Node, dict[str, int], dict[str, int], int]] = {
    # ((4000 − 3000) · 100 / 4000 + (10000 − 5000) · 100 / 10000) / 2
    "a node of four cores": (bare("n", 4000, 10_000), {}, {CPU: 3000, MEMORY: 5000}, 37),
    "a node of six cores": (bare("n", 6000, 10_000), {}, {CPU: 3000, MEMORY: 5000}, 50),
    "with pods there": (bare("n", 10_000, 20_000), {CPU: 3000, MEMORY: 5000}, {CPU: 3000, MEMORY: 5000}, 45),
    "more memory asked for than there is": (bare("n", 4000, 10_000), {}, {CPU: 3000, MEMORY: 20_000}, 12),
    "nothing there": (bare("n", 0, 0), {}, {CPU: 3000, MEMORY: 5000}, 0),
}


@pytest.mark.parametrize("name", LEAST)
def test_least_allocated(name: str) -> None:
    machine, there, asks, wanted = LEAST[name]
    assert score(SchedulerProfile(scores=ALONE), machine, there, asks) == wanted


RATIO = ScoringStrategy(
    type="RequestedToCapacityRatio",
    resources=((GPU, 3), (CPU, 1)),
    shape=((0, 0), (100, 10)),
)
RATIOS: dict[str, tuple[dict[str, int], dict[str, int], int]] = {
    # GPU (1 + 1) / 4 = 50, cpu (1 + 2) / 10 = 30: (3 · 50 + 30) / 4
    "GPUs three times": ({GPU: 1, CPU: 1000}, {GPU: 1, CPU: 2000}, 45),
    # cpu (1 + 2) / 10 alone
    "without GPUs only cpu": ({GPU: 1, CPU: 1000}, {CPU: 2000}, 30),
    # GPU 25, cpu 1: 76 / 4
    "rounded": ({}, {GPU: 1, CPU: 100}, 19),
}


@pytest.mark.parametrize("name", RATIOS)
def test_requested_to_capacity_ratio(name: str) -> None:
    there, asks, wanted = RATIOS[name]
    machine = node("n", 4, allocatable={CPU: 10_000, MEMORY: 100 * GIB})
    assert score(SchedulerProfile(scores=ALONE, strategy=RATIO), machine, there, asks) == wanted


LINES: dict[str, tuple[tuple[tuple[int, int], ...], dict[int, int]]] = {
    "rising": (((0, 0), (100, 10)), {0: 0, 25: 25, 100: 100}),
    "falling rounds towards zero": (((0, 10), (30, 0)), {0: 100, 10: 67, 20: 34, 40: 0}),
    "level before and after": (((20, 2), (40, 4)), {0: 20, 30: 30, 90: 40}),
}


@pytest.mark.parametrize("name", LINES)
def test_a_shape_is_a_broken_line(name: str) -> None:
    shape, wanted = LINES[name]
    assert {at: broken_line(shape, at) for at in wanted} == wanted


BALANCES: dict[str, tuple[list[float], int]] = {
    "the same part of both": ([0.5, 0.5], 100),
    # |0.75 − 0.5| / 2 = 0.125
    "a quarter apart": ([0.75, 0.5], 87),
    "one alone": ([0.3], 100),
    # mean 0.5, variance (0.25 + 0 + 0.25) / 3
    "three": ([0.0, 0.5, 1.0], 59),
}


@pytest.mark.parametrize("name", BALANCES)
def test_balance(name: str) -> None:
    parts, wanted = BALANCES[name]
    assert balanced_score(parts) == wanted


def test_balance_counts_what_is_asked_for_and_not_what_is_supposed() -> None:
    rules = SchedulerProfile(scores=(("NodeResourcesBalancedAllocation", 1),))
    machine = bare("n", 10_000, 10 * GIB)
    # cpu (1 + 4) / 10, memory 1 / 10: |0.5 − 0.1| / 2
    assert score(rules, machine, {CPU: 1000, MEMORY: GIB}, {CPU: 4000}) == 80
    assert score(rules, machine, {CPU: 1000, MEMORY: GIB}, {}) == 0, "skipped for a pod that asks for nothing"


def test_images_that_are_there_count_by_size_and_by_how_many_nodes_hold_them() -> None:
    held = {"train:1": 300 * MEGABYTE}
    made = Cluster(node("a"), node("b", images=held), profile=SchedulerProfile())
    asks = PodTemplate(containers=(Container(requests={GPU: 1}, image="train:1"),))
    table = made.placement.scores(pod("p", template=asks))
    column = [one.plugin for one in table.plugins].index("ImageLocality")
    # 300 MB on one node of two is worth 150: (150 − 23) · 100 / (1000 − 23)
    assert {row.node: row.scores[column] for row in table.rows} == {"a": NodeScore(0, 0, 0), "b": NodeScore(12, 12, 12)}
    made.placement.apply(node("c", images=held), 0)
    table = made.placement.scores(pod("p", template=asks))
    assert {row.node: row.scores[column].raw for row in table.rows} == {"a": 0, "b": 18, "c": 18}


def test_the_default_profile_in_numbers() -> None:
    made = Cluster(bare("a", 4000, 10 * GIB), bare("b", 8000, 10 * GIB), profile=SchedulerProfile())
    table = made.placement.scores(pod("p", template=template(requests={CPU: 1000, MEMORY: 5 * GIB})))
    rows = {row.node: row.scores for row in table.rows}
    skipped = NodeScore(0, 0, 0)
    # Balanced: a |0.25 − 0.5| / 2 = 0.125, b |0.125 − 0.5| / 2 = 0.1875. Least: a (75 + 50) / 2, b (87 + 50) / 2.
    assert rows["a"] == (
        *(NodeScore(0, 100, 300), skipped, NodeScore(62, 62, 62), skipped, skipped),
        *(NodeScore(87, 87, 87), skipped),
    )
    assert rows["b"] == (
        *(NodeScore(0, 100, 300), skipped, NodeScore(68, 68, 68), skipped, skipped),
        *(NodeScore(81, 81, 81), skipped),
    )
    assert table.chosen == "a"
    made.add(pod("p", template=template(requests={CPU: 1000, MEMORY: 5 * GIB}))).run()
    assert made.pods["p"].node == "a"


SAMPLES = {(50, 0): 50, (100, 0): 100, (99, 5): 99, (1000, 0): 420, (5000, 0): 500, (6000, 0): 300, (1000, 30): 300}


@pytest.mark.parametrize(("nodes", "percentage"), SAMPLES)
def test_how_many_nodes_that_fit_are_enough(nodes: int, percentage: int) -> None:
    assert SchedulerProfile(percentage=percentage).nodes_to_find(nodes) == SAMPLES[nodes, percentage]


def test_nodes_are_searched_zone_by_zone_from_where_the_last_search_ended() -> None:
    zone = "topology.kubernetes.io/zone"
    machines = [node(f"{name}{number:02}", labels={zone: name}) for name in "abc" for number in range(50)]
    made = Cluster(*machines, profile=SchedulerProfile(percentage=1))
    table = made.placement.scores(pod("p"))
    assert [row.node for row in table.rows[:4]] == ["a00", "b00", "c00", "a01"]
    assert [row.sampled for row in table.rows] == [True] * 100 + [False] * 50
    assert table.chosen == "a00"
    assert table.ties == tuple(row.node for row in table.rows[1:100])
    made.add(pods("p", 2)).run()
    # The first search saw 100 nodes, so the second begins with the 101st.
    assert (made.pods["p-0"].node, made.pods["p-1"].node) == ("a00", "b33")


def test_a_pod_that_was_refused_waits_a_second_then_two_then_four_up_to_ten() -> None:
    made = Cluster(node("a", 1), profile=SchedulerProfile())
    made.add(pod("old", node="a")).add(pod("new"))
    placement = made.placement
    waits = []
    now = 0
    assert placement.schedule(now)
    for _ in range(6):
        # Another node comes, and does not help.
        placement.apply(node("b", 0, annotations={"at": str(now)}), now)
        assert placement.schedule(now) == []
        alarm = placement.next_timer()
        assert alarm is not None
        waits.append((alarm - now) // SECOND)
        now = alarm
        placement.request_pass()
        assert placement.has_pending
        placement.schedule(now)
        assert placement.next_timer() is None, "nothing happened since"
    assert waits == [1, 2, 4, 8, 10, 10]


def test_a_new_pod_goes_before_one_that_backs_off() -> None:
    made = Cluster(node("a", 1), profile=SchedulerProfile(backoff=BackoffSettings(5 * SECOND, 5 * SECOND)))
    made.add(pod("old", node="a")).add(pod("first", created=1)).run()
    made.remove("old")
    made.add(pod("second", created=2)).run()
    assert (made.pods["first"].node, made.pods["second"].node) == ("", "a")


def test_a_pod_that_was_refused_comes_after_those_that_wait_longer() -> None:
    made = Cluster(node("a", 1), profile=SchedulerProfile())
    made.add(pod("old", node="a")).add(pod("first", created=1)).run()
    made.time = SECOND // 2
    made.add(pod("second", created=2, template=template(1, requests={GPU: 1, CPU: 1}))).run()
    # Only the first one's back-off is over when a node comes, so it is refused once more.
    made.time = SECOND + SECOND // 5
    made.placement.apply(node("b", 0), made.time)
    made.run()
    made.time = 4 * SECOND
    made.remove("old").run()
    assert (made.pods["first"].node, made.pods["second"].node) == ("", "a")


def test_what_backs_off_lives_on_in_a_session_that_is_taken_up_again() -> None:
    made = Cluster(node("a", 1), profile=SchedulerProfile())
    made.add(pod("old", node="a")).add(pod("new")).run()
    again = Cluster(node("a", 1), profile=SchedulerProfile())
    for each in made.pods.values():
        again.add(each)
    again.placement.load(made.placement.dump())
    twins = [made.placement, again.placement, made.placement.fork()]

    def told(now: int) -> list[tuple[list[PlacementDecision], int | None]]:
        return [(twin.schedule(now), twin.next_timer()) for twin in twins]

    for twin in twins:
        twin.delete("pods", "default/old", 1)
    assert told(1) == [([], SECOND)] * 3
    for twin in twins:
        twin.request_pass()
    bound = told(SECOND)
    assert bound[0][0]
    assert bound == [bound[0]] * 3
