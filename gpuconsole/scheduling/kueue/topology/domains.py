"""The domains of one flavor's topology, numbered: blocks, racks, hosts (Kueue 0.19 tas_topology_tree.go).

Domains are numbered level by level, each level in the order of its values, so that comparing numbers compares values. A
`TopologyDomainTree` is frozen; changed nodes need a new one. `Counts` has the pods and slices of each domain, rolled up
from the leaves (TASFlavorSnapshot.fillInCounts). `sort_domains` and `sort_with_leader` give the order in which domains
are tried (sortedDomains, sortedDomainsWithLeader). `node_changes` tells which changes of a node matter to pending
workloads with TAS (controller/tas/resource_flavor.go).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import IntFlag

from msgspec import Struct

from gpuconsole.model.cluster import Node
from gpuconsole.model.labels import HOSTNAME
from gpuconsole.model.queues import ResourceFlavor, Topology
from gpuconsole.model.resources import MANY, Resources

Values = tuple[str, ...]
"""Label values of a domain, from the highest level down."""


class TopologyDomainTree:
    """The domains of one flavor's topology, with their nodes and capacity. Frozen; `build_domains` makes one."""

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
        self.free: list[Resources] = [_sum_vectors(node.allocatable for node in leaves[values]) for values in ordered]
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
        if not _is_node_of_flavor(node, topology, flavor):
            continue
        values = tuple(node.labels[level] for level in topology.levels)
        if topology.levels[-1] == HOSTNAME:
            values = hosts.setdefault(values[-1], values)
        leaves.setdefault(values, []).append(node)
    return TopologyDomainTree(topology, flavor, leaves)


def _is_node_of_flavor(node: Node, topology: Topology, flavor: ResourceFlavor) -> bool:
    return (
        node.ready
        and not node.unschedulable
        and all(node.labels.get(key) == value for key, value in flavor.node_labels.items())
        and bool(topology.levels)
        and all(level in node.labels for level in topology.levels)
    )


def _sum_vectors(vectors: Iterable[Resources]) -> dict[str, int]:
    total: dict[str, int] = {}
    for vector in vectors:
        for name, amount in vector.items():
            total[name] = total.get(name, 0) + amount
    return total


class PlacementShape(Struct, frozen=True):
    """Placement request of one group of pods; levels are numbers, 0 is the highest."""

    count: int
    leaders: int
    """1 where a leader pod is to be placed with the workers, else 0."""
    level: int
    slice_level: int
    slice_size: int
    inner_sizes: Mapping[int, int]
    """Level → size of further slices inside the slices."""


class Counts:
    """Numbers of pods and slices by domain: first those that fit (phase 1), then those assigned (phase 2). Mutated."""

    __slots__ = (
        "excluded",
        "leaders",
        "pods",
        "pods_with_leader",
        "scores",
        "slices",
        "slices_with_leader",
        "total_nodes",
    )

    def __init__(self, size: int) -> None:
        self.pods = [0] * size
        self.slices = [0] * size
        self.pods_with_leader = [0] * size
        self.slices_with_leader = [0] * size
        self.leaders = [0] * size
        self.scores = [0] * size
        """Weights of the preferred node affinity terms that match; not changed in phase 2."""
        self.excluded: Counter[str] = Counter()
        """Reason as the message names it → number of excluded leaves."""
        self.total_nodes = 0

    def copy(self) -> "Counts":
        """Copy the counts; scores and exclusions are shared."""
        copied = Counts(0)
        copied.pods, copied.slices, copied.leaders = self.pods[:], self.slices[:], self.leaders[:]
        copied.pods_with_leader, copied.slices_with_leader = self.pods_with_leader[:], self.slices_with_leader[:]
        copied.scores = self.scores
        copied.excluded, copied.total_nodes = self.excluded, self.total_nodes
        return copied


def belongs_to(values: Values, above: Values) -> bool:
    """True if a domain equals `above` or lies in it; an empty `above` contains every domain."""
    return values[: len(above)] == above


def count_domain(counts: Counts, domains: TopologyDomainTree, number: int, shape: PlacementShape) -> None:
    """Roll up the children's counts; slices are counted at their level and summed above it."""
    level = len(domains.values[number]) - 1
    children = domains.children[number]
    if children:
        _roll_up(counts, number, children, shape, shape.inner_sizes.get(level + 1, 1))
    if level == shape.slice_level:
        counts.slices[number] = counts.pods[number] // shape.slice_size
        counts.slices_with_leader[number] = counts.pods_with_leader[number] // shape.slice_size


def _roll_up(counts: Counts, number: int, children: Sequence[int], shape: PlacementShape, inner: int) -> None:
    """Sum up the children in whole inner slices; the leader goes to the child where it costs the fewest workers."""
    pods = slices = leaders = score = 0
    pod_cost = slice_cost = MANY
    hosts_leader = False
    for child in children:
        child_pods = counts.pods[child] // inner * inner
        pods += child_pods
        slices += counts.slices[child]
        leaders = max(leaders, counts.leaders[child])
        score += counts.scores[child]
        if not shape.leaders or counts.leaders[child]:
            hosts_leader = True
            pod_cost = min(pod_cost, child_pods - counts.pods_with_leader[child] // inner * inner)
            slice_cost = min(slice_cost, counts.slices[child] - counts.slices_with_leader[child])
    counts.pods[number], counts.slices[number], counts.leaders[number] = pods, slices, leaders
    counts.scores[number] = score
    counts.pods_with_leader[number] = pods - pod_cost if hosts_leader else 0
    counts.slices_with_leader[number] = slices - slice_cost if hosts_leader else 0


def sort_with_leader(counts: Counts, numbers: Iterable[int], *, best_fit: bool) -> list[int]:
    """Sort domains that can host the leader first, then by affinity score and by slices that fit beside the leader.

    The most slices come first, or the least without `best_fit`; then the fewest pods beside the leader.
    """
    sign = -1 if best_fit else 1
    return sorted(
        numbers,
        key=lambda n: (
            -counts.leaders[n],
            -counts.scores[n],
            sign * counts.slices_with_leader[n],
            counts.pods_with_leader[n],
            n,
        ),
    )


def sort_domains(counts: Counts, numbers: Iterable[int], *, best_fit: bool) -> list[int]:
    """Sort by affinity score, then slices that fit: most first, or least without `best_fit`; then fewest pods first."""
    sign = -1 if best_fit else 1
    return sorted(numbers, key=lambda n: (-counts.scores[n], sign * counts.slices[n], counts.pods[n], n))


class NodeChange(IntFlag):
    """The changed parts of a node; changes of other parts do not requeue workloads."""

    NOTHING = 0
    ALLOCATABLE = 1
    LABELS = 2
    TAINTS = 4
    CONDITIONS = 8
    ANNOTATIONS = 16
    UNSCHEDULABLE = 32


def node_changes(old: Node, new: Node) -> NodeChange:
    """Compare the old and the new version of a node."""
    pairs = (
        (NodeChange.ALLOCATABLE, old.allocatable, new.allocatable),
        (NodeChange.LABELS, old.labels, new.labels),
        (NodeChange.TAINTS, old.taints, new.taints),
        (NodeChange.CONDITIONS, (old.ready, old.conditions), (new.ready, new.conditions)),
        (NodeChange.ANNOTATIONS, old.annotations, new.annotations),
        (NodeChange.UNSCHEDULABLE, old.unschedulable, new.unschedulable),
    )
    changes = NodeChange.NOTHING
    for change, before, after in pairs:
        if before != after:
            changes |= change
    return changes
