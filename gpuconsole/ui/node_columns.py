"""Columns of the node list."""

from gpuconsole.insight.index.gpu_map import GpuRow, GpuState, used_of
from gpuconsole.ui.columns import Column
from gpuconsole.ui.gpu_cell_style import GPU_GLYPHS as CELLS
from gpuconsole.ui.paint import GLYPHS, Cell


def health(row: GpuRow) -> Cell:
    """The status of a node: ready, cordoned or not ready."""
    if not row.ready:
        return ((f"{GLYPHS['fault']} not ready", "fault"),)
    return ((f"{GLYPHS['held']} cordoned", "held"),) if row.cordoned else ((f"{GLYPHS['good']} ready", "good"),)


def cells(row: GpuRow) -> Cell:
    """The GPUs of a node by state."""
    return tuple((CELLS[cell.state], str(cell.state)) for cell in row.all_cells)


def mig(row: GpuRow) -> str:
    """MIG instances in use and in total, by profile."""
    return " ".join(f"{count.profile} {count.used}/{count.total}" for count in row.mig)


def _count(state: GpuState) -> Column[GpuRow]:
    role = str(state)
    return Column(
        CELLS[state],
        lambda row: _counted(row, state),
        id=role,
        width=3,
        align="right",
        sort=lambda row: row.states[state],
        down=True,
        rank=3,
    )


def _counted(row: GpuRow, state: GpuState) -> Cell:
    """The number of GPUs in a state; that of idle GPUs is unknown where not all pods are visible."""
    if state is GpuState.IDLE and row.states[GpuState.UNKNOWN]:
        return ((CELLS[GpuState.UNKNOWN], str(GpuState.UNKNOWN)),)
    return ((str(row.states[state]), str(state)),) if row.states[state] else ""


NODES: tuple[Column[GpuRow], ...] = (
    Column("NODE", lambda row: row.node, id="name", width=16, flex=2, sort=lambda row: row.node),
    Column("STATUS", health, id="status", width=11, sort=lambda row: (row.ready, not row.cordoned)),
    Column(
        "TYPE",
        lambda row: row.gpu_type + (" spot" if row.spot else ""),
        id="type",
        width=10,
        flex=1,
        sort=lambda row: row.gpu_type,
        rank=1,
    ),
    Column("GPUS", cells, width=8, flex=1),
    Column(
        "USED",
        lambda row: f"{'≥' if row.states[GpuState.UNKNOWN] else ''}{used_of(row.states)}/{len(row.all_cells)}",
        id="usage",
        width=6,
        align="right",
        sort=lambda row: used_of(row.states),
        down=True,
    ),
    _count(GpuState.BORROWED),
    _count(GpuState.IDLE),
    _count(GpuState.HELD),
    _count(GpuState.FAULT),
    Column("PODS", lambda row: str(row.pods), id="pods", width=4, align="right", sort=lambda row: row.pods, rank=2),
    Column("MIG", mig, id="mig", width=6, flex=2, rank=4),
)
