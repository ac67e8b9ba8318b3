"""Topology trees of blocks, racks and hosts, by Kueue's Topologies and Volcano's HyperNodes."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from gpuconsole.insight.derived import memoized
from gpuconsole.model.cluster import Node
from gpuconsole.model.device_units import is_counted
from gpuconsole.model.devices import ResourceSlice
from gpuconsole.model.labels import HOSTNAME
from gpuconsole.model.queues import Topology
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.volcano import HyperNode
from gpuconsole.scheduling.volcano.api.hyper_nodes import HyperNodes

WHOLE = "cluster"


class NodeDomain(Struct, frozen=True, eq=False):
    """A topology domain. The lowest domains have no children; their nodes are the hosts."""

    path: tuple[str, ...]
    """Names from the root of the tree, so that equal names are distinct."""
    level: str
    """Level: a node label or a tier; empty for a root."""
    nodes: tuple[str, ...]
    """Names of all its nodes with GPUs, by name."""
    children: tuple["NodeDomain", ...] = ()
    problem: str = ""
    """Reason why the tree is incomplete."""

    @property
    def name(self) -> str:
        """Name of the domain, without those above it."""
        return self.path[-1]


@memoized("nodes", "resource_slices")
def accelerated(snapshot: Snapshot) -> tuple[Node, ...]:
    """Return the nodes with GPUs, MIG instances or DRA devices."""
    published = {name for part in snapshot.resource_slices.all() for name in (part.node, *_nodes_of(part))}
    return tuple(
        node
        for node in snapshot.nodes.all()
        if node.name in published or any(amount and is_counted(name) for name, amount in node.allocatable.items())
    )


def _nodes_of(part: ResourceSlice) -> Iterable[str]:
    return (device.node for device in part.devices) if part.each else ()


@memoized("nodes", "topologies", "hyper_nodes", "resource_slices")
def topology_trees(snapshot: Snapshot) -> tuple[NodeDomain, ...]:
    """Build one tree for each Topology and one for all HyperNodes; without either, one domain with all nodes."""
    nodes = sorted(accelerated(snapshot), key=lambda node: node.name)
    trees = [_by_levels(topology, nodes) for topology in snapshot.topologies.all()]
    if len(snapshot.hyper_nodes):
        trees.append(_by_hyper_nodes(snapshot.hyper_nodes.all(), nodes))
    return tuple(trees) or (NodeDomain((WHOLE,), "", tuple(node.name for node in nodes)),)


def _by_levels(topology: Topology, nodes: Iterable[Node]) -> NodeDomain:
    levels = tuple(level for level in topology.levels if level != HOSTNAME)
    own = [node for node in nodes if all(level in node.labels for level in levels)]
    return _divided((topology.name,), "", levels, own)


def _divided(path: tuple[str, ...], level: str, levels: tuple[str, ...], nodes: Iterable[Node]) -> NodeDomain:
    groups: dict[str, list[Node]] = {}
    for node in nodes:
        groups.setdefault(node.labels[levels[0]] if levels else "", []).append(node)
    below = (
        tuple(_divided((*path, value), levels[0], levels[1:], group) for value, group in sorted(groups.items()))
        if levels
        else ()
    )
    return NodeDomain(path, level, tuple(node.name for group in groups.values() for node in group), below)


def _by_hyper_nodes(hyper_nodes: Iterable[HyperNode], nodes: Sequence[Node]) -> NodeDomain:
    world = HyperNodes()
    known = {node.name for node in nodes}
    for node in nodes:
        world.set_node(node)
    for hyper_node in hyper_nodes:
        world.apply(hyper_node)
    if world.problem:
        return NodeDomain(("HyperNodes",), "", tuple(sorted(known)), problem=world.problem)
    roots = sorted(info.name for info in world.tree.values() if not info.parent)
    children = tuple(_below(world, name, ("HyperNodes",), known) for name in roots)
    held = sorted({node for child in children for node in child.nodes})
    return NodeDomain(("HyperNodes",), "", tuple(held), children)


def _below(world: HyperNodes, name: str, path: tuple[str, ...], known: set[str]) -> NodeDomain:
    info = world.tree[name]
    own = sorted(world.real_nodes.get(name, frozenset()) & known)
    children = tuple(_below(world, child, (*path, name), known) for child in sorted(info.children))
    return NodeDomain((*path, name), info.tier_name or f"tier {info.tier}", tuple(own), children)


def outside(tree: NodeDomain, snapshot: Snapshot) -> int:
    """Return the number of nodes with accelerators that are not in the tree."""
    return len(accelerated(snapshot)) - len(tree.nodes)
