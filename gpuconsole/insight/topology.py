"""Topology tree with used and idle GPUs, capacity and workloads of each domain.

A domain without changed nodes is the same object as in the previous answer.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from gpuconsole.insight.fragmentation import Slots, slots_of
from gpuconsole.insight.gpumap import GpuRow, GpuState, gpu_rows
from gpuconsole.insight.topology_trees import NodeDomain, outside, topology_trees
from gpuconsole.model.device_units import Units, added
from gpuconsole.model.snapshot import Snapshot

HOST = "host"


class DomainUsage(Struct, frozen=True, eq=False, kw_only=True):
    """GPU use of a topology domain: a block, rack, network tier or host, or the root of a tree."""

    path: tuple[str, ...]
    level: str
    """A node label or a tier; `host` for a node, empty for a root."""
    slots: Slots
    """GPUs, and the slots that fit on idle ones."""
    states: Mapping[GpuState, int]
    owners: Mapping[str, int]
    """Workload, job or pod → its GPUs here, most first."""
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
        """Used GPUs."""
        return self.states[GpuState.OWN] + self.states[GpuState.BORROWED]


_kept: list[dict[tuple[str, ...], DomainUsage]] = [{}]


def domains(snapshot: Snapshot) -> tuple[DomainUsage, ...]:
    """Return the root domain of each topology tree."""
    rows = {row.node: row for row in gpu_rows(snapshot)}
    before, found = _kept[0], dict[tuple[str, ...], DomainUsage]()
    trees = topology_trees(snapshot)
    roots = tuple(_domain(tree, rows, before, found, _note(tree, snapshot)) for tree in trees)
    _kept[0] = found
    return roots


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
