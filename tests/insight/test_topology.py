"""The data centre as a tree: domains by Topology and by HyperNodes, with what is used, free, and who runs there."""

from gpuconsole.insight.index.gpu_map import GpuState
from gpuconsole.insight.index.topology import DomainUsage, domains
from gpuconsole.model.cluster import Node
from gpuconsole.model.events import Applied
from gpuconsole.model.labels import HOSTNAME
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import Topology
from gpuconsole.model.resources import CPU, GPU, MEMORY
from gpuconsole.model.state import ClusterState
from gpuconsole.model.volcano import HyperNode, HyperNodeMember
from tests.support.snapshots import START, pod, world

LEVELS = Topology(name="dc", levels=("block", "rack", HOSTNAME))


def node(name: str, block: str = "", rack: str = "", gpus: int = 8) -> Node:
    room = {CPU: 64_000, MEMORY: 2**40, GPU: gpus}
    labels = {key: value for key, value in (("block", block), ("rack", rack)) if value}
    return Node(name=name, labels=labels, capacity=room, allocatable=room)


def racks() -> list[Object]:
    """Two blocks, three racks, four hosts; n1 is full, n2 half full."""
    return [
        LEVELS,
        node("n1", "b1", "r1"),
        node("n2", "b1", "r1"),
        node("n3", "b1", "r2"),
        node("n4", "b2", "r3"),
        pod("p1", "n1", tuple(range(8))),
        pod("p2", "n2", (0, 1, 2, 3)),
    ]


def shape(domain: DomainUsage) -> object:
    """A tree as names with what is used of what there is."""
    here = f"{domain.name} {domain.used}/{domain.gpus}"
    return (here, [shape(child) for child in domain.children]) if domain.children else here


def test_a_topology_divides_the_nodes_down_to_the_hosts() -> None:
    (root,) = domains(world(racks()))
    assert shape(root) == (
        "dc 12/32",
        [
            ("b1 12/24", [("r1 12/16", ["n1 8/8", "n2 4/8"]), ("r2 0/8", ["n3 0/8"])]),
            ("b2 0/8", [("r3 0/8", ["n4 0/8"])]),
        ],
    )
    assert [root.level, root.children[0].level, root.children[0].children[0].level] == ["", "block", "rack"]
    assert root.children[0].children[0].children[0].level == "host"


def test_each_domain_says_what_fits_there_and_who_runs_there() -> None:
    (root,) = domains(world(racks()))
    block = root.children[0]
    assert block.slots.slots == {1: 12, 2: 6, 4: 3, 8: 1, 16: 0, 64: 0}
    assert block.slots.largest_pod == 8
    assert dict(block.owners) == {"team/p1": 8, "team/p2": 4}
    assert block.states[GpuState.IDLE] == 12


def test_nodes_without_the_labels_are_told_of_and_not_guessed() -> None:
    (root,) = domains(world([*racks(), node("stray")]))
    assert (root.gpus, root.note) == (32, "1 node with GPUs not in it")


def test_hyper_nodes_make_a_tree_of_their_own() -> None:
    def member(kind: str, name: str) -> HyperNodeMember:
        return HyperNodeMember(kind, exact=name)

    things: list[Object] = [
        node("n1"),
        node("n2"),
        HyperNode(name="leaf-1", tier=1, members=(member("Node", "n1"),)),
        HyperNode(name="leaf-2", tier=1, members=(member("Node", "n2"),)),
        HyperNode(
            name="spine",
            tier=2,
            tier_name="spine",
            members=(member("HyperNode", "leaf-1"), member("HyperNode", "leaf-2")),
        ),
    ]
    (root,) = domains(world(things))
    assert shape(root) == (
        "HyperNodes 0/16",
        [("spine 0/16", [("leaf-1 0/8", ["n1 0/8"]), ("leaf-2 0/8", ["n2 0/8"])])],
    )
    assert [root.children[0].level, root.children[0].children[0].level] == ["spine", "tier 1"]


def test_hyper_nodes_that_are_no_tree_say_why() -> None:
    things: list[Object] = [
        node("n1"),
        HyperNode(name="a", tier=1, members=(HyperNodeMember("HyperNode", exact="b"),)),
        HyperNode(name="b", tier=1, members=(HyperNodeMember("HyperNode", exact="a"),)),
    ]
    (root,) = domains(world(things))
    assert "cyclic dependency detected" in root.note


def test_without_any_topology_all_nodes_are_in_one_place() -> None:
    (root,) = domains(world([node("n2"), node("n1")]))
    assert shape(root) == ("cluster 0/16", ["n1 0/8", "n2 0/8"])


def test_domains_where_nothing_happened_are_the_same_objects() -> None:
    state = ClusterState(START)
    for thing in racks():
        state.apply(Applied(START, thing))
    (before,) = domains(state.freeze())
    state.apply(Applied(START, pod("p3", "n4", (0,))))
    (after,) = domains(state.freeze())
    assert after.children[0] is before.children[0]
    assert after.children[1] is not before.children[1]
    assert after.used == before.used + 1
