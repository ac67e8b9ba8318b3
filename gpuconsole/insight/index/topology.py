"""Topology trees of blocks, racks and hosts, with used and idle GPUs of each domain.

The trees are those of Kueue's Topologies and Volcano's HyperNodes (`topology_trees`); `domains` adds usage.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from gpuconsole.insight.derived import incremental, memoized
from gpuconsole.insight.index.fragmentation import Slots, slots_of
from gpuconsole.insight.index.gpu_map import GpuRow, GpuState, gpu_rows
from gpuconsole.model.cluster import Node
from gpuconsole.model.devices import ResourceSlice, Units, added, is_counted
from gpuconsole.model.labels import HOSTNAME
from gpuconsole.model.queues import Topology
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.volcano import HyperNode
from gpuconsole.scheduling.volcano.api.hyper_nodes import HyperNodes

WHOLE = "cluster"


class NodeDomain(Struct, frozen=True, eq=False):
    """A topology domain with its nodes. The lowest domains have no children; their nodes are the hosts."""

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


HOST = "host"


class DomainUsage(Struct, frozen=True, eq=False, kw_only=True):
    """GPU use of a topology domain: a block, rack, network tier or host, or the root of a tree."""

    path: tuple[str, ...]
    level: str
    """A node label or a tier; `host` for a node, empty for a root."""
    slots: Slots
    """Counts of its first unit (GPUs if it has any), and the slots that fit on idle ones."""
    states: Mapping[GpuState, int]
    owners: Mapping[str, int]
    """Workload, job or pod → its devices here, most first."""
    children: tuple["DomainUsage", ...] = ()
    host: GpuRow | None = None
    """The node, if the domain is a host."""
    rows: tuple[GpuRow, ...] = ()
    """The rows of its nodes."""
    note: str = ""
    """Problem of the tree, or nodes that it leaves out."""

    @property
    def name(self) -> str:
        """Name of the domain, without those above it."""
        return self.path[-1]

    @property
    def gpus(self) -> int:
        """Units of every kind: GPUs, MIG instances, replicas, DRA devices."""
        return sum(self.states.values())

    @property
    def units(self) -> Units:
        """Number of devices of each unit."""
        return added(*(row.units for row in self.rows))

    @property
    def used(self) -> int:
        """Devices that visible pods use."""
        return self.states[GpuState.OWN] + self.states[GpuState.BORROWED]


DomainUsages = tuple[tuple[DomainUsage, ...], Mapping[tuple[str, ...], DomainUsage]]
_NO_DOMAINS: DomainUsages = ((), {})


def domains(snapshot: Snapshot) -> tuple[DomainUsage, ...]:
    """Return the root domain of each topology tree; domains without changed nodes are the same objects as before."""
    return _domains(snapshot)[0]


@incremental(_NO_DOMAINS)
def _domains(snapshot: Snapshot, usages: DomainUsages) -> DomainUsages:
    _, before = usages
    rows = {row.node: row for row in gpu_rows(snapshot)}
    found = dict[tuple[str, ...], DomainUsage]()
    trees = topology_trees(snapshot)
    return tuple(_domain(tree, rows, before, found, _note(tree, snapshot)) for tree in trees), found


def _note(tree: NodeDomain, snapshot: Snapshot) -> str:
    missing = outside(tree, snapshot)
    left_out = f"{missing} node{'s' if missing > 1 else ''} with GPUs not in it" if missing > 0 else ""
    return tree.problem or left_out


KnownDomains = Mapping[tuple[str, ...], DomainUsage]


def _domain(
    place: NodeDomain,
    rows: Mapping[str, GpuRow],
    before: KnownDomains,
    found: dict[tuple[str, ...], DomainUsage],
    note: str = "",
) -> DomainUsage:
    own = tuple(rows[name] for name in place.nodes if name in rows)
    if place.children:
        children = tuple(_domain(child, rows, before, found) for child in place.children)
    else:
        children = tuple(_host((*place.path, row.node), row, before, found) for row in own)
    known = before.get(place.path)
    if known is None or known.note != note or not _same(known, own, children):
        known = DomainUsage(
            path=place.path,
            level=place.level,
            slots=slots_of("/".join(place.path), own, place.level),
            states=_sum(own),
            owners=_most(own),
            children=children,
            rows=own,
            note=note,
        )
    found[place.path] = known
    return known


def _same(known: DomainUsage, rows: Sequence[GpuRow], children: Sequence[DomainUsage]) -> bool:
    return (
        len(known.rows) == len(rows)
        and len(known.children) == len(children)
        and all(old is new for old, new in zip(known.rows, rows, strict=True))
        and all(old is new for old, new in zip(known.children, children, strict=True))
    )


def _host(
    path: tuple[str, ...], row: GpuRow, before: KnownDomains, found: dict[tuple[str, ...], DomainUsage]
) -> DomainUsage:
    known = before.get(path)
    if known is None or known.host is not row:
        known = DomainUsage(
            path=path,
            level=HOST,
            slots=slots_of(row.node, (row,), HOST),
            states=row.states,
            owners=_most((row,)),
            host=row,
            rows=(row,),
        )
    found[path] = known
    return known


def _sum(rows: Sequence[GpuRow]) -> Mapping[GpuState, int]:
    return {state: sum(row.states[state] for row in rows) for state in GpuState}


def _most(rows: Sequence[GpuRow]) -> Mapping[str, int]:
    counts = Counter(name for row in rows for cell in row.all_cells if (name := cell.workload or cell.pod))
    return dict(counts.most_common())
