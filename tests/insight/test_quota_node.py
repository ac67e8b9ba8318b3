"""The queues of the tree, from its roots down: each once, whatever is above it."""

from gpuconsole.insight.index.quota_tree import NodeKind, QuotaNode, every, queues_below
from gpuconsole.insight.whatif.futures import serving_queues

DEEP = 5000


def node(kind: NodeKind, name: str, *children: QuotaNode) -> QuotaNode:
    return QuotaNode(kind=kind, name=name, children=children)


DOOR = node(NodeKind.LOCAL_QUEUE, "ns/door")
ORG = node(
    NodeKind.COHORT,
    "org",
    node(NodeKind.COHORT, "team", node(NodeKind.CLUSTER_QUEUE, "cq-a", DOOR)),
    node(NodeKind.CLUSTER_QUEUE, "cq-b"),
)
HOMELESS = node(NodeKind.LOCAL_QUEUE, "ns/homeless")
KAI = node(
    NodeKind.KAI_QUEUE,
    "dept",
    node(NodeKind.KAI_QUEUE, "unit", node(NodeKind.KAI_QUEUE, "crew")),
    node(NodeKind.KAI_QUEUE, "other"),
)
NAMESPACE = node(NodeKind.NAMESPACE, "ns")


def test_queues_are_found_below_their_cohorts_and_what_is_below_them_is_theirs() -> None:
    found = {queue.name for queue in queues_below((ORG, HOMELESS, KAI, NAMESPACE))}
    assert found == {"cq-a", "cq-b", "ns/homeless", "dept", "ns"}


def test_every_node_is_told_from_each_root_down_with_how_many_are_above_it() -> None:
    assert [(queue.name, depth) for queue, depth in every((ORG, HOMELESS, KAI))] == [
        ("org", 0),
        ("team", 1),
        ("cq-a", 2),
        ("ns/door", 3),
        ("cq-b", 1),
        ("ns/homeless", 0),
        ("dept", 0),
        ("unit", 1),
        ("crew", 2),
        ("other", 1),
    ]


def test_what_serves_work_are_cluster_queues_and_the_innermost_queues_of_the_others() -> None:
    served = serving_queues((ORG, HOMELESS, KAI, NAMESPACE, node(NodeKind.VOLCANO_QUEUE, "default")))
    assert {name: queue.kind.value for name, queue in served.items()} == {
        "cq-a": "cluster_queue",
        "cq-b": "cluster_queue",
        "crew": "kai_queue",
        "other": "kai_queue",
        "default": "volcano_queue",
    }


def test_a_chain_of_cohorts_may_be_deeper_than_the_stack() -> None:
    chain = node(NodeKind.CLUSTER_QUEUE, "cq")
    for number in range(DEEP):
        chain = node(NodeKind.COHORT, f"c{number}", chain)
    assert [queue.name for queue in queues_below((chain,))] == ["cq"]
    assert [depth for _, depth in every((chain,))] == [*range(DEEP + 1)]
