"""Preemption by kube-scheduler's rules: disruption budgets, the choice of the node, how many nodes are tried."""

import pytest

from gpuconsole.model.cluster import PodDisruptionBudget, PodPhase
from gpuconsole.model.labels import LabelSelector
from gpuconsole.scheduling.kube.profile import SchedulerProfile
from tests.support.kube_cluster import Cluster, node, pod

WEB = LabelSelector({"app": "web"})

ALLOWED: dict[str, tuple[PodDisruptionBudget, int, int, int]] = {
    "two of three have to stay": (PodDisruptionBudget(name="b", min_available="2"), 3, 3, 1),
    "half of five is three": (PodDisruptionBudget(name="b", min_available="50%"), 5, 5, 2),
    "one may be away": (PodDisruptionBudget(name="b", max_unavailable="1"), 3, 3, 1),
    "one is away already": (PodDisruptionBudget(name="b", max_unavailable="1"), 3, 2, 0),
    "a third of four, rounded up": (PodDisruptionBudget(name="b", max_unavailable="34%"), 4, 4, 2),
    "never below nothing": (PodDisruptionBudget(name="b", min_available="9"), 3, 3, 0),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_how_many_pods_a_budget_lets_go(name: str) -> None:
    budget, expected, healthy, wanted = ALLOWED[name]
    assert budget.allowed(expected, healthy) == wanted


def running(name: str, where: str, gpus: int = 1, app: str = "", **fields: object) -> dict[str, object]:
    labels = {"app": app} if app else {}
    return {"name": name, "gpus": gpus, "node": where, "labels": labels, "phase": PodPhase.RUNNING, **fields}


def cluster(*there: dict[str, object], budget: PodDisruptionBudget | None = None, **policy: object) -> Cluster:
    made = Cluster(*(node(name, 2) for name in sorted({str(one["node"]) for one in there})), **policy)
    for one in there:
        made.add(pod(str(one.pop("name")), int(str(one.pop("gpus"))), **one))
    if budget is not None:
        made.placement.apply(budget, 0)
    return made


ONE_AWAY = PodDisruptionBudget(name="web", selector=WEB, max_unavailable="1")
NONE_AWAY = PodDisruptionBudget(name="web", selector=WEB, min_available="100%")

Case = tuple[tuple[dict[str, object], ...], PodDisruptionBudget | None, int, list[str]]
CASES: dict[str, Case] = {
    "a node whose pods no budget protects, though they are more important": (
        (running("w", "a", 2, "web", priority=0), running("x", "b", 2, priority=5)),
        NONE_AWAY,
        2,
        ["x"],
    ),
    "the protected pod is taken back first, though it is less important": (
        (running("w", "a", 1, "web", priority=0), running("x", "a", 1, priority=5)),
        NONE_AWAY,
        1,
        ["x"],
    ),
    "a budget that is not used up protects nobody": (
        (running("w", "a", 1, "web", priority=0), running("x", "a", 1, priority=5)),
        ONE_AWAY,
        1,
        ["w"],
    ),
    "a budget is broken where nothing else helps": (
        (running("w", "a", 2, "web", priority=0),),
        NONE_AWAY,
        2,
        ["w"],
    ),
    "a selector that asks for nothing protects nobody": (
        (running("w", "a", 2, "web", priority=0), running("x", "b", 2, priority=5)),
        PodDisruptionBudget(name="all", selector=LabelSelector(), min_available="100%"),
        2,
        ["w"],
    ),
    "of several, the fewest budgets broken": (
        (
            running("w1", "a", 1, "web", priority=0),
            running("w2", "a", 1, "web", priority=0),
            running("w3", "b", 1, "web", priority=3),
            running("x", "b", 1, priority=3),
        ),
        ONE_AWAY,
        2,
        ["w3", "x"],
    ),
    "lowest top priority, then lowest sum": (
        (
            running("p", "a", 1, priority=4),
            running("q", "a", 1, priority=1),
            running("r", "b", 1, priority=3),
            running("s", "b", 1, priority=3),
        ),
        None,
        2,
        ["r", "s"],
    ),
    "fewest victims": (
        (running("p", "a", 1), running("q", "a", 1), running("r", "b", 2)),
        None,
        2,
        ["r"],
    ),
    "the one that began last": (
        (running("p", "a", 2, bound=10), running("r", "b", 2, bound=20)),
        None,
        2,
        ["r"],
    ),
    "else the first": ((running("p", "a", 2), running("r", "b", 2)), None, 2, ["p"]),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("profile", [None, SchedulerProfile()], ids=["choice", "profile"])
def test_who_is_evicted(name: str, profile: SchedulerProfile | None) -> None:
    there, budget, gpus, wanted = CASES[name]
    made = cluster(*(dict(one) for one in there), budget=budget, profile=profile)
    made.add(pod("new", gpus, priority=9))
    made.run()
    assert sorted(made.evicted()) == wanted


@pytest.mark.parametrize(("unready", "wanted"), [(False, ["w"]), (True, ["x"])])
def test_pods_that_are_not_ready_are_away_already(unready: bool, wanted: list[str]) -> None:
    there = (
        running("w", "a", 2, "web"),
        running("v", "b", 1, "web", unready=unready),
        running("x", "c", 2, priority=5),
    )
    made = cluster(*there, budget=ONE_AWAY)
    made.add(pod("new", 2, priority=9))
    made.run()
    assert made.evicted() == wanted


def test_no_more_nodes_are_tried_than_the_profile_says() -> None:
    there = [running(f"p{number}", f"n{number}", 2, priority=9 - number) for number in range(5)]
    made = cluster(*there, profile=SchedulerProfile(candidates=(0, 3)))
    made.add(pod("new", 2, priority=20))
    made.run()
    assert made.evicted() == ["p2"]


def test_but_as_many_as_it_takes_to_find_one_that_breaks_no_budget() -> None:
    there = [running(f"p{number}", f"n{number}", 2, "web" if number < 4 else "") for number in range(5)]
    made = cluster(*there, budget=NONE_AWAY, profile=SchedulerProfile(candidates=(0, 2)))
    made.add(pod("new", 2, priority=20))
    made.run()
    assert made.evicted() == ["p4"]


def test_a_pod_of_lower_priority_loses_the_place_that_it_was_promised() -> None:
    made = cluster(running("p", "a", 2, priority=0))
    made.add(pod("mid", 2, priority=5))
    made.run()
    assert made.pods["mid"].nominated_node == "a"
    made.add(pod("high", 2, priority=9))
    made.run()
    assert (made.pods["mid"].nominated_node, made.pods["high"].nominated_node) == ("", "a")
    made.bury().run()
    assert (made.pods["mid"].node, made.pods["high"].node) == ("", "a")


def test_a_profile_without_default_preemption_evicts_nobody_and_says_nothing_of_it() -> None:
    made = cluster(running("p", "a", 2), profile=SchedulerProfile(preempts=False))
    made.add(pod("new", 2, priority=9))
    made.run()
    assert made.told("new") == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
