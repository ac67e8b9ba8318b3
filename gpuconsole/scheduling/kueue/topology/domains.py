"""The domains of one flavor's topology, numbered: blocks, racks, hosts (Kueue 0.19 tas_topology_tree.go).

Domains are numbered level by level, each level in the order of its values, so that comparing numbers compares values.
A tree is frozen; changed nodes need a new one.
"""

from collections.abc import Iterable, Mapping

from gpuconsole.model.cluster import Node
from gpuconsole.model.labels import HOSTNAME
from gpuconsole.model.queues import ResourceFlavor, Topology
from gpuconsole.model.resources import Resources

Values = tuple[str, ...]


class TopologyDomainTree:
    """A forest of domains. Frozen after construction; `build_domains` makes one."""

    __slots__ = (
        "by_level",
        "children",
        "flavor",
        "free",
        "hostnames",
        "leaf_domains",
        "leaf_of",
        "leaves",
        "levels",
        "name",
        "nodes",
        "parent",
        "values",
    )

    def __init__(self, topology: Topology, flavor: ResourceFlavor, leaves: Mapping[Values, list[Node]]) -> None:
        self.name = topology.name
        self.flavor = flavor
        self.levels = topology.levels
        self.hostnames = bool(self.levels) and self.levels[-1] == HOSTNAME
        """True if the lowest level is the node; then node selectors and taints are checked node by node."""
        everything = {values[:depth] for values in leaves for depth in range(1, len(values) + 1)}
        self.values = sorted(everything, key=lambda values: (len(values), values))
        numbers = {values: number for number, values in enumerate(self.values)}
        self.by_level: list[list[int]] = [[] for _ in self.levels]
        self.children: list[list[int]] = [[] for _ in self.values]
        self.parent = [-1] * len(self.values)
        for number, values in enumerate(self.values):
            self.by_level[len(values) - 1].append(number)
            if len(values) > 1:
                above = self.parent[number] = numbers[values[:-1]]
                self.children[above].append(number)
        ordered = sorted(leaves)
        self.leaf_domains = [numbers[values] for values in ordered]
        """Number of the domain of each leaf; leaves are numbered by their values."""
        self.leaves = {self.leaf_values(values): leaf for leaf, values in enumerate(ordered)}
        """Values in an assignment → leaf."""
        self.nodes = [leaves[values][0] if self.hostnames else None for values in ordered]
        self.leaf_of = {node.name: leaf for leaf, values in enumerate(ordered) for node in leaves[values]}
        """Node → the leaf that it is in."""
        self.free: list[Resources] = [_total(node.allocatable for node in leaves[values]) for values in ordered]
        """Allocatable resources of the nodes of each leaf."""

    def leaf_values(self, values: Values) -> Values:
        """The values of a leaf in an assignment: only the hostname if the lowest level is the node."""
        return values[-1:] if self.hostnames else values

    @property
    def assignment_levels(self) -> tuple[str, ...]:
        """The levels whose values an assignment contains: only the hostname if the lowest level is the node."""
        return self.levels[-1:] if self.hostnames else self.levels


def build_domains(topology: Topology, flavor: ResourceFlavor, nodes: Iterable[Node]) -> TopologyDomainTree:
    """Build the tree from the ready, schedulable nodes of a flavor that have a label for every level."""
    leaves: dict[Values, list[Node]] = {}
    hosts: dict[str, Values] = {}
    for node in sorted(nodes, key=lambda node: node.name):
        if not _belongs(node, topology, flavor):
            continue
        values = tuple(node.labels[level] for level in topology.levels)
        if topology.levels[-1] == HOSTNAME:
            values = hosts.setdefault(values[-1], values)
        leaves.setdefault(values, []).append(node)
    return TopologyDomainTree(topology, flavor, leaves)


def _belongs(node: Node, topology: Topology, flavor: ResourceFlavor) -> bool:
    return (
        node.ready
        and not node.unschedulable
        and all(node.labels.get(key) == value for key, value in flavor.node_labels.items())
        and bool(topology.levels)
        and all(level in node.labels for level in topology.levels)
    )


def _total(vectors: Iterable[Resources]) -> dict[str, int]:
    total: dict[str, int] = {}
    for vector in vectors:
        for name, amount in vector.items():
            total[name] = total.get(name, 0) + amount
    return total
