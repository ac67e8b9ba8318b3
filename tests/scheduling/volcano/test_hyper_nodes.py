"""The tree of hyper nodes: who holds which nodes, who lies above whom, and what spoils the tree."""

import pytest

from gpuconsole.model.cluster import Node
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.volcano import HyperNode, HyperNodeMember
from gpuconsole.scheduling.volcano.api.hyper_nodes import (
    HyperNodes,
    ancestors,
    lowest_common_ancestor,
    selected_nodes,
)
from tests.support.volcano_clusters import node


def domain(name: str, tier: int, *members: HyperNodeMember) -> HyperNode:
    return HyperNode(name=name, tier=tier, members=members)


def inside(name: str) -> HyperNodeMember:
    return HyperNodeMember("Node", name)


def below(name: str) -> HyperNodeMember:
    return HyperNodeMember("HyperNode", name)


def built(*domains: HyperNode, nodes: tuple[Node, ...] = ()) -> HyperNodes:
    made = HyperNodes()
    for one in nodes:
        made.set_node(one)
    for thing in domains:
        made.apply(thing)
    return made


RACKS = (
    domain("spine", 2, below("rack-a"), below("rack-b")),
    domain("rack-a", 1, inside("n1"), inside("n2")),
    domain("rack-b", 1, inside("n3")),
    domain("island", 1, inside("n4")),
)


def test_a_domain_holds_what_those_below_it_hold() -> None:
    made = built(*RACKS)
    assert {name: sorted(nodes) for name, nodes in made.real_nodes.items()} == {
        "rack-a": ["n1", "n2"],
        "rack-b": ["n3"],
        "spine": ["n1", "n2", "n3"],
        "island": ["n4"],
    }
    assert {name: (info.parent, sorted(info.children)) for name, info in made.tree.items()} == {
        "spine": ("", ["rack-a", "rack-b"]),
        "rack-a": ("spine", []),
        "rack-b": ("spine", []),
        "island": ("", []),
    }
    assert {tier: sorted(names) for tier, names in made.by_tier.items()} == {
        1: ["island", "rack-a", "rack-b"],
        2: ["spine"],
    }


def test_relations_are_read_from_the_tree() -> None:
    tree = built(*RACKS).tree
    assert ancestors(tree, "rack-a") == ["rack-a", "spine"]
    pairs = [("rack-a", "rack-b"), ("rack-a", "spine"), ("rack-a", "island"), ("", "rack-a"), ("rack-a", "")]
    assert [lowest_common_ancestor(tree, *pair) for pair in pairs] == ["spine", "spine", "", "rack-a", "rack-a"]


PROBLEMS = {
    "two parents": (
        (domain("a", 2, below("x")), domain("b", 2, below("x")), domain("x", 1, inside("n"))),
        "HyperNode x already has a parent a, and cannot set another parent b",
    ),
    "its own ancestor": (
        (domain("a", 1, below("b")), domain("b", 2, below("a"))),
        "cyclic dependency detected: HyperNode a is already in the ancestor chain [a b]",
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_tree_that_is_none_says_why_until_it_is_repaired(name: str) -> None:
    domains, problem = PROBLEMS[name]
    made = built(*domains)
    assert made.problem == problem
    made.apply(domain("b", 2, inside("m")))
    assert (made.problem, sorted(made.real_nodes["b"])) == ("", ["m"])
    made.delete("b")
    assert "b" not in made.tree


MEMBERS: dict[str, tuple[HyperNodeMember, set[str]]] = {
    "by name, whether it exists or not": (HyperNodeMember("Node", "n9"), {"n9"}),
    "by an empty name": (HyperNodeMember("Node", ""), set()),
    "by a pattern anywhere in the name": (HyperNodeMember("Node", pattern="pu-[12]"), {"gpu-1", "gpu-2"}),
    "by a pattern that is none": (HyperNodeMember("Node", pattern="("), set()),
    "by labels": (HyperNodeMember("Node", selector=LabelSelector({"rack": "a"})), {"gpu-1"}),
    "by labels that ask for nothing": (HyperNodeMember("Node", selector=LabelSelector()), set()),
}


@pytest.mark.parametrize("name", MEMBERS)
def test_members_choose_nodes(name: str) -> None:
    member, wanted = MEMBERS[name]
    nodes = (node("gpu-1", labels={"rack": "a"}), node("gpu-2", labels={"rack": "b"}), node("cpu"))
    assert selected_nodes(member, nodes) == wanted


def test_nodes_that_come_and_go_change_what_patterns_and_labels_choose() -> None:
    by_label = HyperNodeMember("Node", selector=LabelSelector({"rack": "a"}))
    made = built(domain("spine", 2, below("rack")), domain("rack", 1, by_label), nodes=(node("n1"),))
    assert made.real_nodes == {"rack": frozenset(), "spine": frozenset()}
    made.set_node(node("n1", labels={"rack": "a"}))
    assert made.real_nodes == {"rack": {"n1"}, "spine": {"n1"}}
    made.set_node(node("n1", labels={"rack": "b"}))
    made.set_node(node("n2", labels={"rack": "a"}))
    assert made.real_nodes["spine"] == {"n2"}
    made.delete_node("n2")
    assert made.real_nodes["spine"] == set()


def test_a_fork_never_touches_the_original() -> None:
    made = built(*RACKS)
    twin = made.fork()
    twin.delete("rack-b")
    assert (sorted(made.real_nodes["spine"]), sorted(twin.real_nodes["spine"])) == (["n1", "n2", "n3"], ["n1", "n2"])
