"""Whom a pod evicts, where, and whom it leaves alone."""

from collections.abc import Callable

import pytest
from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.cluster import Node, Pod, PriorityClass
from gpuconsole.model.events import Bind, EvictPod, Nominate, Unschedulable
from gpuconsole.model.labels import Taint
from gpuconsole.model.resources import CPU
from tests.support.kube_cluster import Cluster, node, pod, pods, short, template

MESSAGE = "default-scheduler: preempting to accommodate a higher priority pod"


def there(name: str, where: str, priority: int, *, bound: int = 1, gpus: int = 1) -> Pod:
    """A pod that runs already."""
    return pod(name, gpus, node=where, priority=priority, bound=bound, created=bound)


class Case(Struct, frozen=True, kw_only=True):
    running: tuple[Pod, ...]
    comes: Pod
    nodes: tuple[Node, ...] = (node("a", 2), node("b", 2))
    evicts: tuple[str, ...]
    lands: str = ""


FULL = (there("a-1", "a", 5), there("a-2", "a", 5), there("b-1", "b", 5), there("b-2", "b", 5))

CASES = {
    "equal priority is left alone": Case(running=FULL, comes=pod("p", priority=5), evicts=()),
    "higher priority is left alone": Case(running=FULL, comes=pod("p", priority=4), evicts=()),
    "one place needs one victim": Case(running=FULL, comes=pod("p", priority=6), evicts=("a-2",), lands="a"),
    "two places on one node need two": Case(
        running=FULL, comes=pod("p", 2, priority=6), evicts=("a-1", "a-2"), lands="a"
    ),
    "free GPUs beside the victim are used": Case(
        running=(*FULL[:2], there("b-1", "b", 9)), comes=pod("p", 2, priority=6), evicts=("a-1", "a-2"), lands="a"
    ),
    "the node whose top victim matters least": Case(
        running=(there("a-1", "a", 1, gpus=1), there("a-2", "a", 3), there("b-1", "b", 2), there("b-2", "b", 2)),
        comes=pod("p", 2, priority=6),
        evicts=("b-1", "b-2"),
        lands="b",
    ),
    "then the lowest sum of priorities": Case(
        running=(there("a-1", "a", 3), there("a-2", "a", 2), there("b-1", "b", 3), there("b-2", "b", 1)),
        comes=pod("p", 2, priority=6),
        evicts=("b-1", "b-2"),
        lands="b",
    ),
    "few victims beat many, even with negative priorities": Case(
        running=(there("a-1", "a", -5), there("a-2", "a", -5), there("b-1", "b", -5, gpus=2)),
        comes=pod("p", 2, priority=6),
        evicts=("b-1",),
        lands="b",
    ),
    "then the node whose top victim started last": Case(
        running=(
            there("a-1", "a", 5, bound=30),
            there("a-2", "a", 5, bound=10),
            there("b-1", "b", 5, bound=40),
            there("b-2", "b", 5, bound=20),
        ),
        comes=pod("p", 2, priority=6),
        evicts=("b-2", "b-1"),
        lands="b",
    ),
    "then the first by name": Case(
        running=FULL, comes=pod("p", 2, priority=6), nodes=(node("b", 2), node("a", 2)),
        evicts=("a-1", "a-2"), lands="a",
    ),
    "on a node the newest of equal pods goes": Case(
        running=(there("old", "a", 5, bound=10), there("new", "a", 5, bound=20)),
        nodes=(node("a", 2),),
        comes=pod("p", priority=6),
        evicts=("new",),
        lands="a",
    ),
    "on a node the least important pod goes": Case(
        running=(there("low", "a", 1, bound=10), there("high", "a", 5, bound=20)),
        nodes=(node("a", 2),),
        comes=pod("p", priority=6),
        evicts=("low",),
        lands="a",
    ),
    "pods that need not go are taken back, the important first": Case(
        running=(there("x", "a", 1), there("y", "a", 2), there("z", "a", 3), there("w", "a", 4)),
        nodes=(node("a", 4),),
        comes=pod("p", 2, priority=6),
        evicts=("y", "x"),
        lands="a",
    ),
    "a small pod is taken back where a more important large one is not": Case(
        running=(there("large", "a", 3, gpus=3), there("small", "a", 1)),
        nodes=(node("a", 4),),
        comes=pod("p", 2, priority=6),
        evicts=("large",),
        lands="a",
    ),
    "cpu alone can be what has to be freed": Case(
        running=(
            pod("eater", template=template(requests={CPU: 64_000}), node="a", priority=1, bound=1),
            there("gpu", "a", 1),
        ),
        nodes=(node("a", 2),),
        comes=pod("p", template=template(requests={CPU: 1000}), priority=6),
        evicts=("eater",),
        lands="a",
    ),
    "a taint is no reason to evict": Case(
        running=(there("a-1", "a", 1, gpus=2), there("b-1", "b", 5, gpus=2)),
        nodes=(node("a", 2, taints=(Taint("x"),)), node("b", 2)),
        comes=pod("p", priority=6),
        evicts=("b-1",),
        lands="b",
    ),
    "no node is big enough however many go": Case(running=FULL, comes=pod("p", 3, priority=6), evicts=()),
    "with preemptionPolicy Never it waits": Case(
        running=FULL, comes=pod("p", template=template(1, preemption_policy="Never"), priority=6), evicts=()
    ),
    "a priority class can say Never": Case(
        running=FULL, comes=pod("p", template=template(1, priority_class="polite"), priority=6), evicts=()
    ),
    "a pod's own policy beats its class": Case(
        running=FULL,
        comes=pod(
            "p", template=template(1, priority_class="polite", preemption_policy="PreemptLowerPriority"), priority=6
        ),
        evicts=("a-2",),
        lands="a",
    ),
    "a victim's preemptionPolicy Never does not protect it": Case(
        running=(pod("dev", 2, node="a", bound=1, priority=1),),
        nodes=(node("a", 2),),
        comes=pod("p", priority=6),
        evicts=("dev",),
        lands="a",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_preemption(name: str) -> None:
    case = CASES[name]
    cluster = Cluster(*case.nodes)
    cluster.placement.apply(PriorityClass(name="polite", value=6, preemption_policy="Never"), 0)
    cluster.add(case.running).add(case.comes)
    first = cluster.run()
    wanted = [EvictPod(f"default/{victim}", "default/p", case.lands, MESSAGE) for victim in case.evicts]
    if not case.evicts:
        assert cluster.evicted() == []
        assert cluster.pods["p"].node == ""
        return
    assert first == [*wanted, Nominate("default/p", case.lands)]
    assert cluster.run() == []
    assert cluster.bury().run()[0] == Bind("default/p", case.lands, cluster.pods["p"].gpus)


def test_never_is_told_to_the_operator() -> None:
    cluster = Cluster(node("a", 2)).add(FULL[:2])
    cluster.add(pod("p", template=template(1, preemption_policy="Never"), priority=6)).run()
    assert cluster.told("p").endswith("preemption: not eligible due to preemptionPolicy=Never.")


def test_a_policy_without_preemption_evicts_nobody() -> None:
    cluster = Cluster(node("a", 2), preemption=False).add(FULL[:2]).add(pod("p", priority=6)).settle()
    assert cluster.evicted() == []


def three_nodes(inference: list[Pod]) -> Cluster:
    """The seeds' picture: node 1 full of dev, nodes 2 and 3 of train."""
    cluster = Cluster(node("node-1"), node("node-2"), node("node-3"))
    cluster.add(pods("dev", 4, priority=100)).settle()
    cluster.add(pods("train", 8, priority=500, created=10)).settle()
    assert cluster.where()["node-1"] == ["dev-0", "dev-1", "dev-2", "dev-3"]
    return cluster.add(inference).settle()


ARRIVALS: dict[str, Callable[[], list[Pod]]] = {
    "one pod of four GPUs": lambda: [pod("inference", 4, priority=10_000, created=20)],
    "four pods of one GPU": lambda: pods("inference", 4, priority=10_000, created=20),
    "a gang of four": lambda: pods("inference", 4, priority=10_000, created=20, gang="g", gang_size=4),
}


@pytest.mark.parametrize("arrival", ARRIVALS)
def test_inference_takes_the_node_of_the_least_important_pods(arrival: str) -> None:
    inference = ARRIVALS[arrival]()
    cluster = three_nodes(inference)
    assert sorted(cluster.evicted()) == ["dev-0", "dev-1", "dev-2", "dev-3"]
    assert cluster.where()["node-1"] == sorted(each.name for each in inference)


def test_room_is_kept_for_the_nominated_pod_against_equal_and_lower_priority() -> None:
    cluster = Cluster(node("a", 1)).add(there("old", "a", 1)).add(pod("first", priority=6))
    cluster.run()
    cluster.add(pod("same", priority=6, created=-1)).add(pod("less", priority=5)).bury().run()
    assert cluster.where() == {"a": ["first"]}


def test_room_is_not_kept_against_higher_priority() -> None:
    cluster = Cluster(node("a", 1)).add(there("old", "a", 1)).add(pod("first", priority=6))
    cluster.run()
    cluster.add(pod("more", priority=7)).bury().run()
    assert cluster.where() == {"a": ["more"]}
    assert cluster.evicted() == ["old"]


def test_a_nominated_pod_evicts_nobody_else_while_its_victims_leave() -> None:
    cluster = Cluster(node("a", 2), node("b", 2)).add(FULL).add(pod("p", 2, priority=6))
    cluster.run()
    cluster.placement.apply(node("b", 2, labels={"changed": ""}), 0)
    assert cluster.run() == []
    assert cluster.evicted() == ["a-1", "a-2"]


def test_a_pod_that_leaves_anyway_is_waited_for_before_anyone_is_evicted() -> None:
    cluster = Cluster(node("a", 2)).add([there("goes", "a", 2), there("stays", "a", 1)])
    cluster.add(replace(cluster.pods["goes"], deleted=5)).add(pod("p", priority=6))
    assert cluster.run() == [Nominate("default/p", "a")]


def test_a_terminating_pod_of_a_higher_priority_is_not_waited_for() -> None:
    cluster = Cluster(node("a", 2)).add([there("goes", "a", 9), there("stays", "a", 1)])
    cluster.add(replace(cluster.pods["goes"], deleted=5)).add(pod("p", priority=6))
    cluster.run()
    assert cluster.evicted() == ["stays"]


def test_a_nomination_is_given_up_when_its_node_fails() -> None:
    cluster = Cluster(node("a", 1)).add(there("old", "a", 1)).add(pod("p", priority=6))
    cluster.run()
    cluster.placement.apply(node("a", 1, ready=False), 0)
    assert cluster.run()[0] == Nominate("default/p", "")
    cluster.run()
    assert cluster.told("p").startswith(
        "0/1 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }."
    )


def test_each_pod_of_one_pass_finds_victims_of_its_own() -> None:
    cluster = Cluster(node("a", 2), node("b", 2)).add(FULL).add(pods("p", 3, priority=6)).settle()
    assert sorted(cluster.evicted()) == ["a-1", "a-2", "b-2"]
    assert cluster.where() == {"a": ["p-0", "p-1"], "b": ["b-1", "p-2"]}


def test_who_loses_a_nomination_waits_behind_an_equal_pod_that_is_older() -> None:
    cluster = Cluster(node("b", 2), gangs=False).add(there("low", "b", 0, gpus=2))
    cluster.add(pods("mid", 2, priority=2, created=10)).run()
    cluster.add(pod("older", priority=2, created=5)).run()
    cluster.add(pod("high", 2, priority=3, created=20))
    cluster.placement.apply(node("d", 1), cluster.time)
    decisions = [(type(each), short(getattr(each, "pod", "")), getattr(each, "node", "")) for each in cluster.run()]
    assert decisions == [
        (Nominate, "mid-0", ""),
        (Nominate, "mid-1", ""),
        (Nominate, "high", "b"),
        (Bind, "older", "d"),
        (Unschedulable, "mid-0", ""),
        (Unschedulable, "mid-1", ""),
    ]
