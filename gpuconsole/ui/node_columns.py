"""The columns of the list of nodes, and of the list of one node's GPUs."""

from gpuconsole.insight.gpumap import GpuCell, GpuRow, GpuState
from gpuconsole.ui import format as fmt
from gpuconsole.ui.columns import Column
from gpuconsole.ui.names import called
from gpuconsole.ui.paint import GLYPHS, Cell
from gpuconsole.ui.widgets.gpumap import GLYPHS as CELLS
from gpuconsole.ui.widgets.gpumap import WORDS


def health(row: GpuRow) -> Cell:
    """What is the matter with a node, in a word and a glyph."""
    if not row.ready:
        return ((f"{GLYPHS['fault']} not ready", "fault"),)
    return ((f"{GLYPHS['held']} cordoned", "held"),) if row.cordoned else ((f"{GLYPHS['good']} ready", "good"),)


def cells(row: GpuRow) -> Cell:
    """The GPUs of a node by state."""
    return tuple((CELLS[cell.state], str(cell.state)) for cell in row.cells)


def mig(row: GpuRow) -> str:
    """MIG slices by the name of their profile."""
    return " ".join(f"{count.profile} {count.used}/{count.total}" for count in row.mig)


def _count(state: GpuState) -> Column[GpuRow]:
    role = str(state)
    return Column(
        CELLS[state],
        lambda row: ((str(row.counts[state]), role),) if row.counts[state] else "",
        id=role,
        width=3,
        align="right",
        sort=lambda row: row.counts[state],
        down=True,
        rank=3,
    )


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
        lambda row: f"{row.used}/{row.gpus}",
        id="usage",
        width=6,
        align="right",
        sort=lambda row: row.used,
        down=True,
    ),
    _count(GpuState.BORROWED),
    _count(GpuState.IDLE),
    _count(GpuState.HELD),
    _count(GpuState.FAULT),
    Column("PODS", lambda row: str(row.pods), id="pods", width=4, align="right", sort=lambda row: row.pods, rank=2),
    Column("MIG", mig, id="mig", width=6, flex=2, rank=4),
)


def gpu_columns(now: int) -> tuple[Column[GpuCell], ...]:
    """The columns of one node's GPUs."""
    return (
        Column("GPU", lambda cell: str(cell.index), id="name", width=4, align="right", sort=lambda cell: cell.index),
        Column(
            "STATE",
            lambda cell: ((f"{CELLS[cell.state]} {WORDS[cell.state]}", str(cell.state)),),
            id="status",
            width=14,
            sort=lambda cell: cell.state,
        ),
        Column(
            "WORKLOAD",
            lambda cell: called(cell.workload),
            id="workload",
            width=18,
            flex=2,
            sort=lambda cell: cell.workload,
        ),
        Column("POD", lambda cell: cell.pod, id="pod", width=14, flex=2, sort=lambda cell: cell.pod, rank=1),
        Column("QUEUE", lambda cell: cell.queue, id="queue", width=10, flex=1, sort=lambda cell: cell.queue),
        Column(
            "SINCE",
            lambda cell: fmt.since(now, cell.since) if cell.since else "",
            id="age",
            width=7,
            align="right",
            sort=lambda cell: cell.since,
        ),
    )
