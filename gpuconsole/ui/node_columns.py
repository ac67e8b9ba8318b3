"""Columns and lines about nodes and their GPUs: NVLink domains, MIG instances, owners, GPU metrics."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from gpuconsole.insight.health.telemetry import (
    BINS,
    HOT,
    Average,
    Coverage,
    GpuUtilization,
    MeasuredGpu,
    Trend,
    Trends,
    known,
)
from gpuconsole.insight.index.device_layout import NO_PLACE, WHOLE, GpuUnit, NodeGpus, PodGroupGpus, guessed_uses
from gpuconsole.insight.index.gpu_map import GpuCell, GpuRow, GpuState, used_of
from gpuconsole.model.clock import Time
from gpuconsole.model.gpus.models import Groups
from gpuconsole.model.telemetry import GpuMetric
from gpuconsole.ui import format as fmt
from gpuconsole.ui.names import called
from gpuconsole.ui.paint import GLYPHS, Cell, Painted, Piece, join
from gpuconsole.ui.table_model import Column
from gpuconsole.ui.widgets.gpumap import GPU_GLYPHS, word_of
from gpuconsole.ui.widgets.gpumap import GPU_GLYPHS as CELLS


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
    # The filter, also that of the map, finds the nodes of a workload by it.
    Column("WORKLOADS", lambda row: owners(row.all_cells), id="workloads", width=14, flex=2, rank=5),
)


Measured = Mapping[tuple[int, str, str], MeasuredGpu]
"""(GPU, MIG profile, pod) → its metrics; profile and pod are empty for a whole GPU."""
NOT_MEASURED: Measured = {}
HEIGHTS = "▁▂▃▄▅▆▇█"
NO_TRENDS = Trends()


def by_unit(gpus: Sequence[MeasuredGpu]) -> Measured:
    """Index a node's devices with metrics, so that `of_unit` finds those of a GPU or MIG instance."""
    whole = {(gpu.device.gpu, "", ""): gpu for gpu in gpus if gpu.device.instance < 0}
    parts = {(gpu.device.gpu, gpu.device.profile, gpu.pod): gpu for gpu in gpus if gpu.device.instance >= 0}
    return {**whole, **parts}


def of_unit(measured: Measured, unit: GpuUnit) -> MeasuredGpu | None:
    """Return the metrics of a GPU or MIG instance, or None; a time-slicing replica has those of the whole GPU."""
    divided = unit.part != WHOLE and "/" not in unit.part
    return measured.get((unit.gpu, unit.part, unit.cell.pod) if divided else (unit.gpu, "", ""))


def measured_columns(measured: Measured, now: Time, trends: Trends) -> tuple[Column[GpuUnit], ...]:
    """Return columns of utilization, SM activity, memory, power and temperature; none if the node has no metrics.

    Stale metrics are dim.
    """
    if not measured:
        return ()

    def column(
        title: str, id: str, width: int, value: Callable[[MeasuredGpu], float | None], text: Callable[[float], str]
    ) -> Column[GpuUnit]:
        def number(unit: GpuUnit) -> float | None:
            gpu = of_unit(measured, unit)
            return value(gpu) if gpu is not None else None

        def draw(unit: GpuUnit) -> Cell:
            found, gpu = number(unit), of_unit(measured, unit)
            if found is None or gpu is None:
                return ((fmt.NOTHING, "dim"),)
            hot = id == "temperature" and found >= HOT
            return ((text(found), "dim" if gpu.telemetry.stale(now) else "fault" if hot else ""),)

        def order(unit: GpuUnit) -> float:
            found = number(unit)
            return -1.0 if found is None else found

        return Column(title, draw, id=id, width=width, align="right", sort=order, down=True, rank=2)

    def lately(unit: GpuUnit) -> Cell:
        gpu = of_unit(measured, unit)
        return trend_cell(trends.of((gpu,), now)) if gpu is not None else ""

    return (
        column("GPU UTIL", "busy", 8, lambda gpu: gpu.busy, lambda value: f"{value:.0f}%"),
        column("SM", "sm", 6, lambda gpu: gpu.value(GpuMetric.SM), lambda value: f"{100 * value:.0f}%"),
        column("MEM", "memory", 8, lambda gpu: gpu.value(GpuMetric.MEMORY_USED), mebibytes),
        column("W", "power", 5, lambda gpu: gpu.value(GpuMetric.POWER), lambda value: f"{value:.0f}"),
        column("°C", "temperature", 4, lambda gpu: gpu.value(GpuMetric.TEMPERATURE), lambda value: f"{value:.0f}"),
        column("XID", "xid", 4, lambda gpu: gpu.value(GpuMetric.XID) or None, lambda value: f"{value:.0f}"),
        Column("LAST HOUR", lately, id="lately", width=BINS, rank=4),
    )


def trend_cell(trend: Trend) -> Cell:
    """GPU utilization in the last hour as a sparkline of 5-minute bins; a gap without metrics."""
    return ((_heights(trend), "running"),) if known(trend) else ((fmt.NOTHING, "dim"),)


def trend_text(trend: Trend) -> str:
    """Return the sparkline of `trend_cell` as text, for a line; empty without metrics."""
    return f"last hour {_heights(trend)}" if known(trend) else ""


def _heights(trend: Trend) -> str:
    return "".join(" " if value is None else HEIGHTS[min(7, int(value * 8 / 100))] for value in trend)


def mebibytes(value: float) -> str:
    """Memory given in MiB: `56.9 GiB`."""
    return f"{value / 1024:.1f}Gi" if value >= 1024 else f"{value:.0f}Mi"


def use_text(use: GpuUtilization | None) -> str:
    """Format a workload's GPU use in a line: SM activity, GPU utilization, memory, power; empty without metrics."""
    if use is None:
        return ""
    if not use.measured:
        return f"metrics of its {fmt.gpus(use.gpus)} are stale"
    facts = [
        f"SM {use.sm:.0f}%" if use.sm is not None else "",
        f"GPU util {use.busy:.0f}%" if use.busy is not None else "",
        f"memory {mebibytes(use.memory)}" if use.memory is not None else "",
        f"{use.power / 1000:.1f} kW" if use.power is not None else "",
        f"max {use.hottest:.0f} °C" if use.hottest is not None else "",
        f"metrics of {use.measured}/{use.gpus} GPUs" if use.measured < use.gpus else "",
    ]
    return " · ".join(fact for fact in facts if fact)


def source_text(gpus: Sequence[MeasuredGpu], now: Time) -> Cell:
    """Source and age of a node's GPU metrics."""
    if not gpus:
        return ""
    telemetry = gpus[0].telemetry
    if telemetry.simulated:
        return ((" metrics are simulated", "dim"),)
    whose = f" by {telemetry.source}" if telemetry.source else ""
    late = ", stale" if telemetry.stale(now) else ""
    return ((f" sampled {fmt.since(now, telemetry.time)} ago{whose}{late}", "dim"),)


def utilization_text(average: Average) -> str:
    """`average utilization 64%, SM activity 41%`; without the missing metrics."""
    parts = [("utilization", average.utilization), ("SM activity", average.sm)]
    return "average " + ", ".join(f"{what} {value:.0f}%" for what, value in parts if value is not None)


def coverage_text(found: Coverage | None, now: Time) -> str:
    """How many nodes have metrics; empty where all have, or none ever had."""
    if found is None or not found.partial:
        return ""
    stale = f", {found.stale} stale" if found.stale else ""
    return f"GPU metrics: {found.measured} of {found.nodes} nodes{stale} ({fmt.since(now, found.newest)} ago)"


def unit_columns(
    inside: NodeGpus | None, now: int, measured: Measured = NOT_MEASURED, trends: Trends = NO_TRENDS
) -> tuple[Column[GpuUnit], ...]:
    """Return the columns for a node's GPUs, MIG instances, replicas or DRA devices; `inside` None: no data yet."""
    parts = inside is not None and any(unit.part != WHOLE for unit in inside.units)
    divided = inside is not None and inside.slices > 0
    columns: tuple[Column[GpuUnit], ...] = (
        Column("GPU", lambda unit: gpu_number(unit.gpu), id="gpu", width=4, align="right", sort=lambda unit: unit.gpu),
    )
    if parts and inside is not None:
        title = "MIG PROFILE" if divided else "REPLICA"
        title = "DEVICE" if all(unit.cell.device for unit in inside.units) else title
        columns += (Column(title, lambda unit: unit.part, id="part", width=11, sort=lambda unit: unit.part),)
    if divided and inside is not None:
        slices = inside.slices
        columns += (Column("SLICES", lambda unit: spans(unit, slices), width=8),)
    columns += (
        Column("STATE", _state, id="status", width=15, sort=lambda unit: unit.cell.state),
        Column(
            "WORKLOAD",
            lambda unit: called(unit.cell.workload or unit.cell.pod),
            id="name",
            width=16,
            flex=2,
            sort=lambda unit: unit.cell.workload or unit.cell.pod,
        ),
        Column("POD", _pod, id="pod", width=14, flex=2, sort=lambda unit: unit.cell.pod, rank=2),
        Column(
            "QUEUE",
            lambda unit: unit.cell.queue,
            id="queue",
            width=9,
            flex=1,
            sort=lambda unit: unit.cell.queue,
            rank=1,
        ),
        Column(
            "SINCE",
            lambda unit: fmt.since(now, unit.cell.since) if unit.cell.since else "",
            id="age",
            width=7,
            align="right",
            sort=lambda unit: unit.cell.since,
        ),
    )
    columns += measured_columns(measured, now, trends)
    wiring = inside.wiring if inside is not None else None
    if wiring is not None:
        columns += (
            _group("NVLINK", wiring.nvlink),
            _group("PCIe", wiring.switch),
            _group("NUMA", wiring.numa),
        )
    return columns


def gpu_number(gpu: int) -> str:
    """Format the index of a GPU on its node; `–` if it is unknown which GPU it is."""
    return str(gpu) if gpu != NO_PLACE else fmt.NOTHING


def _group(title: str, groups: Groups) -> Column[GpuUnit]:
    def group(unit: GpuUnit) -> int:
        return groups[unit.gpu] if 0 <= unit.gpu < len(groups) else -1

    return Column(title, lambda unit: str(group(unit)), id=title.lower(), width=6, align="right", sort=group, rank=3)


def _pod(unit: GpuUnit) -> str:
    """Its pod; `~` marks a pod whose GPU on the node is unknown."""
    return f"~ {unit.cell.pod}" if unit.cell.assumed else unit.cell.pod


def _state(unit: GpuUnit) -> Cell:
    return ((f"{GPU_GLYPHS[unit.cell.state]} {word_of(unit.cell)}", str(unit.cell.state)),)


def spans(unit: GpuUnit, slices: int) -> Painted:
    """Draw which memory slices of its MIG GPU a unit covers: `··▣▣····`."""
    glyph = GPU_GLYPHS[unit.cell.state]
    before, after = unit.start, max(0, slices - unit.start - unit.span)
    return (("·" * before, "dim"), (glyph * unit.span, str(unit.cell.state)), ("·" * after, "dim"))


def domains(inside: NodeGpus) -> Painted:
    """Draw the NVLink domains of a node with their GPUs: `▟0 1 2 3▙▟4 5 6 7▙`."""
    if inside.wiring is None:
        return ()
    places: dict[int, list[str]] = {}
    for gpu, domain in enumerate(inside.wiring.nvlink):
        places.setdefault(domain, []).append(str(gpu))
    if len(places) == len(inside.wiring.nvlink):
        return (("no NVLink", "dim"),)
    return tuple(piece for gpus in places.values() for piece in (("▟", "dim"), (" ".join(gpus), ""), ("▙", "dim")))


def layout(units: Sequence[GpuUnit], slices: int) -> Painted:
    """Draw the MIG instances of a GPU, four cells a slice: `▣1g ○1g ▣2g──── ○4g────────────`; `·` is unpartitioned."""
    pieces: list[Piece] = []
    place = 0
    for unit in units:
        pieces += [("·   ", "dim")] * (unit.start - place)
        name = unit.part if unit.part == WHOLE else unit.part.partition(".")[0]
        room = 4 * max(1, unit.span) - 1
        pieces.append((f"{GPU_GLYPHS[unit.cell.state]}{name}".ljust(room, "─")[:room], str(unit.cell.state)))
        pieces.append((" ", ""))
        place = unit.start + unit.span
    return (*pieces, *[("·   ", "dim")] * (slices - place))


def about(inside: NodeGpus, teams: Iterable[PodGroupGpus]) -> tuple[Cell, ...]:
    """Return lines about the node's hardware and MIG instances, and how the GPUs of each workload are linked."""
    memory = f"{inside.memory / 1024:.0f} GiB each" if inside.memory else ""
    model = inside.model or "GPU"
    model += f" ×{inside.gpus}" if inside.gpus else ""
    links: Cell = (("NVLink ", "dim"), *domains(inside)) if inside.wiring is not None else ""
    sharing: Cell = ((inside.sharing, "held"),) if inside.sharing else ""
    head = join([((f" {model}", "strong"),), memory, links, sharing], "  ")
    talk = (((f"   {called(team.owner)}  ", "strong"), (team.connection.text, "")) for team in teams)
    return (head, *_guessed(inside), *talk)


def _guessed(inside: NodeGpus) -> Iterator[Cell]:
    """`MIG 1g.10gb instances: 4 of 7 in use: research/tune 3, prod/serve 1`, where the instances are unknown."""
    uses = guessed_uses(inside)
    for use in uses:
        names = ", ".join(f"{called(owner)} {count}" for owner, count in use.owners.items())
        yield ((f"   {use.unit.noun}s: {use.used} of {use.total} in use: ", "dim"), (names, "strong"))
    if uses:
        yield (("   ~ unknown which one a pod uses: the cluster does not report it", "dim"),)


def links(inside: NodeGpus, unit: GpuUnit) -> Cell:
    """Say with which other GPUs of its node a GPU shares an NVLink domain, PCIe switch and NUMA node."""
    wiring = inside.wiring
    if wiring is None or not 0 <= unit.gpu < len(wiring.nvlink):
        return ""
    words = []
    for name, groups in (("NVLink domain", wiring.nvlink), ("PCIe switch", wiring.switch), ("NUMA node", wiring.numa)):
        mine = groups[unit.gpu]
        others = [gpu for gpu, group in enumerate(groups) if group == mine]
        words.append(f"{name} {mine} (GPU {runs(others)})")
    return ((f" GPU {unit.gpu}  ", "dim"), (" · ".join(words), ""))


def runs(numbers: Sequence[int]) -> str:
    """Format numbers with consecutive ones collapsed: `0-3,6`."""
    parts = []
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        parts.append(f"{members[0]}" if len(members) == 1 else f"{members[0]}-{members[-1]}")
    return ",".join(parts)


def owners(cells: Iterable[GpuCell]) -> Painted:
    """The workloads that have these GPUs, else their pods."""
    names = dict.fromkeys(called(cell.workload or cell.pod) for cell in cells if cell.pod)
    return join([((name, "strong"),) for name in names]) or (("none", "dim"),)
