"""Nodes with equal books are one kind, so that a kind of pod asks only one of them."""

from msgspec.structs import replace

from gpuconsole.scheduling.kube.feasibility import NO_CLASS, NodeClasses
from gpuconsole.scheduling.kube.pod_classes import (
    AssignedPod,
    NodeState,
    PodClasses,
    Reservation,
    with_node,
    with_pod,
    with_reservation,
)
from tests.support.kube_cluster import node, template


def test_nodes_that_have_and_gave_the_same_are_one_kind() -> None:
    alike, shape = NodeClasses(), PodClasses().of(template(1))
    one, two = (with_node(NodeState(name), node(name, labels={"of": name})) for name in "ab")
    used = with_pod(two, AssignedPod("default/p", shape, 0, 0))
    assert alike.class_of(0, one) == alike.class_of(1, two) == 0
    assert (alike.class_of(1, used), alike.class_of(0, one)) == (1, 0)
    other = with_pod(one, AssignedPod("default/q", shape, 7, 9, gpus=(2,)))
    assert alike.class_of(0, other) == 1, "who has what is another matter"
    smaller = with_node(two, node("b", 2))
    assert alike.class_of(1, smaller) == 2
    assert alike.class_of(1, two) == 0


def test_a_node_where_more_than_amounts_counts_stands_alone() -> None:
    alike, shape = NodeClasses(), PodClasses().of(template(1))
    state = with_node(NodeState("a"), node("a"))
    assert alike.class_of(0, with_reservation(state, Reservation("default/p", shape, 0))) == NO_CLASS
    assert alike.class_of(0, replace(state, node=None)) == NO_CLASS
    divided = with_node(NodeState("a"), node("a", 0, allocatable={"nvidia.com/mig-1g.10gb": 7}))
    assert alike.class_of(0, divided) == NO_CLASS
