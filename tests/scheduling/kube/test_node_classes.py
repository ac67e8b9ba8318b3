"""Nodes with equal books are one kind, so that a kind of pod asks only one of them."""

from msgspec.structs import replace

from gpuconsole.scheduling.kube.feasibility import ALONE, NodeClasses
from gpuconsole.scheduling.kube.pod_classes import (
    AssignedPod,
    NodeState,
    PodClasses,
    Reservation,
    describe,
    reserving,
    seated,
)
from tests.support.kube_cluster import node, template


def test_nodes_that_have_and_gave_the_same_are_one_kind() -> None:
    alike, shape = NodeClasses(), PodClasses().of(template(1))
    one, two = (describe(NodeState(name), node(name, labels={"of": name})) for name in "ab")
    used = seated(two, AssignedPod("default/p", shape, 0, 0))
    assert alike.kind(0, one) == alike.kind(1, two) == 0
    assert (alike.kind(1, used), alike.kind(0, one)) == (1, 0)
    other = seated(one, AssignedPod("default/q", shape, 7, 9, gpus=(2,)))
    assert alike.kind(0, other) == 1, "who has what is another matter"
    smaller = describe(two, node("b", 2))
    assert alike.kind(1, smaller) == 2
    assert alike.kind(1, two) == 0


def test_a_node_where_more_than_amounts_counts_stands_alone() -> None:
    alike, shape = NodeClasses(), PodClasses().of(template(1))
    state = describe(NodeState("a"), node("a"))
    assert alike.kind(0, reserving(state, Reservation("default/p", shape, 0))) == ALONE
    assert alike.kind(0, replace(state, node=None)) == ALONE
    divided = describe(NodeState("a"), node("a", 0, allocatable={"nvidia.com/mig-1g.10gb": 7}))
    assert alike.kind(0, divided) == ALONE
