"""Rows of the layout table: one for each MIG or shared GPU, one for each node with whole GPUs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpuconsole.insight.index.device_layout import NO_PLACE, WHOLE, GpuUnit, NodeGpus
from gpuconsole.insight.index.gpu_map import GpuRow
from gpuconsole.ui import format as fmt
from gpuconsole.ui.columns import Column
from gpuconsole.ui.gpu_cell_style import FREE, GPU_GLYPHS
from gpuconsole.ui.paint import Cell, Painted
from gpuconsole.ui.unit_columns import domains, gpu_number, layout, owners


@dataclass(frozen=True)
class LayoutRow:
    """One GPU of a node, or the whole node where its GPUs are allocated whole."""

    node: str
    gpu: int | None
    inside: NodeGpus
    units: tuple[GpuUnit, ...]

    @property
    def key(self) -> str:
        return self.node if self.gpu is None else f"{self.node} {self.gpu}"


def layout_rows(rows: Iterable[GpuRow], known: Mapping[str, NodeGpus]) -> list[LayoutRow]:
    """The rows of these nodes, in their order."""
    found: list[LayoutRow] = []
    for row in rows:
        inside = known.get(row.node)
        if inside is None:
            continue
        if all(unit.part == WHOLE for unit in inside.units):
            found.append(LayoutRow(row.node, None, inside, inside.units))
        else:
            by_gpu: dict[int, list[GpuUnit]] = {}
            for unit in inside.units:
                by_gpu.setdefault(unit.gpu, []).append(unit)
            found += [LayoutRow(row.node, gpu, inside, tuple(units)) for gpu, units in sorted(by_gpu.items())]
    return found


def _layout(row: LayoutRow) -> Cell:
    if row.gpu is None:
        return _by_domain(row)
    if row.inside.slices and row.gpu != NO_PLACE:
        return layout(row.units, row.inside.slices)
    return tuple((GPU_GLYPHS[unit.cell.state], str(unit.cell.state)) for unit in row.units)


def _by_domain(row: LayoutRow) -> Painted:
    """Whole GPUs, those of one NVLink domain together: `▟▣▣▣▣▙ ▟▣▣○○▙`."""
    wiring = row.inside.wiring
    groups: dict[int, list[GpuUnit]] = {}
    for unit in row.units:
        domain = wiring.nvlink[unit.gpu] if wiring is not None and unit.gpu < len(wiring.nvlink) else 0
        groups.setdefault(domain, []).append(unit)
    alone = len(groups) == len(row.units)
    pieces: list[tuple[str, str]] = []
    for units in groups.values():
        pieces += [] if alone else [("▟", "dim")]
        pieces += [(GPU_GLYPHS[unit.cell.state], str(unit.cell.state)) for unit in units]
        pieces += [] if alone else [("▙ ", "dim")]
    return tuple(pieces)


def _free(row: LayoutRow) -> Cell:
    free = [unit for unit in row.units if unit.cell.state in FREE and not unit.cell.pod]
    return ((fmt.NOTHING, "dim"),) if not free else str(len(free))


def _links(row: LayoutRow) -> Cell:
    wiring, gpu = row.inside.wiring, row.gpu
    if gpu is None:
        return domains(row.inside)
    if wiring is None or not 0 <= gpu < len(wiring.nvlink):
        return ""
    return (("NVLink ", "dim"), (str(wiring.nvlink[gpu]), ""), (" NUMA ", "dim"), (str(wiring.numa[gpu]), ""))


LAYOUT: tuple[Column[LayoutRow], ...] = (
    Column("NODE", lambda row: row.node, id="name", width=12, flex=1),
    Column("GPU", lambda row: "all" if row.gpu is None else gpu_number(row.gpu), width=3, align="right"),
    Column("LAYOUT", _layout, width=31, flex=2),
    Column("FREE", _free, width=4, align="right"),
    Column("LINKS", _links, width=16, flex=1, rank=2),
    Column("SHARING", lambda row: ((row.inside.sharing, "dim"),), width=12, flex=1, rank=3),
    Column("WORKLOADS", lambda row: owners(row.units), width=14, flex=3, rank=1),
)
