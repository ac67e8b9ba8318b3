"""Columns and drawings of a node's GPUs: NVLink domains, MIG instances with their slices, workloads."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from gpuconsole.insight.health.trends import Trends
from gpuconsole.insight.index.device_layout import NO_PLACE, WHOLE, GpuUnit, NodeGpus, PodGroupGpus, guessed_uses
from gpuconsole.model.gpus.models import Groups
from gpuconsole.ui import format as fmt
from gpuconsole.ui.columns import Column
from gpuconsole.ui.gpu_cell_style import GPU_GLYPHS, word_of
from gpuconsole.ui.names import called
from gpuconsole.ui.paint import Cell, Painted, Piece, join
from gpuconsole.ui.telemetry_text import NO_TRENDS, NOT_MEASURED, Measured, measured_columns


def unit_columns(
    inside: NodeGpus | None, now: int, measured: Measured = NOT_MEASURED, trends: Trends = NO_TRENDS
) -> tuple[Column[GpuUnit], ...]:
    """The columns of one node's GPUs, MIG instances or replicas."""
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
    """The number of a GPU on its node; `–` if it is unknown which GPU it is."""
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
    """The memory slices of its GPU that a unit covers: `··▣▣····`."""
    glyph = GPU_GLYPHS[unit.cell.state]
    before, after = unit.start, max(0, slices - unit.start - unit.span)
    return (("·" * before, "dim"), (glyph * unit.span, str(unit.cell.state)), ("·" * after, "dim"))


def domains(inside: NodeGpus) -> Painted:
    """The NVLink domains with their GPUs: `▟0 1 2 3▙▟4 5 6 7▙`."""
    if inside.wiring is None:
        return ()
    places: dict[int, list[str]] = {}
    for gpu, domain in enumerate(inside.wiring.nvlink):
        places.setdefault(domain, []).append(str(gpu))
    if len(places) == len(inside.wiring.nvlink):
        return (("no NVLink", "dim"),)
    return tuple(piece for gpus in places.values() for piece in (("▟", "dim"), (" ".join(gpus), ""), ("▙", "dim")))


def layout(units: Sequence[GpuUnit], slices: int) -> Painted:
    """One MIG GPU, four cells a slice: `▣1g ○1g ▣2g──── ○4g────────────`; `·` is not covered by an instance."""
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
    """The node's hardware, the MIG instances by workload, and the links between the GPUs of one workload."""
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
    """The links of a GPU to the others of its node."""
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
    """`0-3,6`: numbers with ranges collapsed."""
    parts = []
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        parts.append(f"{members[0]}" if len(members) == 1 else f"{members[0]}-{members[-1]}")
    return ",".join(parts)


def owners(units: Iterable[GpuUnit]) -> Painted:
    """The workloads on a GPU."""
    names = dict.fromkeys(called(unit.cell.workload or unit.cell.pod) for unit in units if unit.cell.pod)
    return join([((name, "strong"),) for name in names]) or (("none", "dim"),)
