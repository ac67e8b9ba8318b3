"""Nodes screen (GPU map, node list or device layout, with a common cursor and filter), and the screen of one node."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple, cast

from textual import on
from textual.app import ComposeResult

from gpuconsole.insight.health.telemetry import MeasuredGpu, coverage, on_node, utilization
from gpuconsole.insight.index.device_layout import (
    NO_PLACE,
    WHOLE,
    GpuUnit,
    NodeGpus,
    PodGroupGpus,
    all_node_gpus,
    pod_group_gpus,
)
from gpuconsole.insight.index.gpu_map import GpuCell, GpuRow, GpuState, gpu_map, gpu_rows, used_of
from gpuconsole.insight.index.pods import pods_by_node
from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.devices import WHOLE_GPU, DeviceUnit, added, counted_units, described, order_of
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui import format as fmt
from gpuconsole.ui.actions import Handler, Handlers
from gpuconsole.ui.messages import FilterChanged
from gpuconsole.ui.names import called
from gpuconsole.ui.node_columns import (
    NODES,
    about,
    by_unit,
    coverage_text,
    domains,
    gpu_number,
    health,
    layout,
    links,
    mig,
    of_unit,
    owners,
    source_text,
    trend_text,
    unit_columns,
    utilization_text,
)
from gpuconsole.ui.paint import GLYPHS, Cell, Painted, join
from gpuconsole.ui.screens.background import SnapshotWorker
from gpuconsole.ui.screens.base import ConsoleScreen, Subject
from gpuconsole.ui.screens.node_actions import NodeActions
from gpuconsole.ui.screens.object_lists import pod_columns
from gpuconsole.ui.screens.objects import ObjectActions, describe_screen
from gpuconsole.ui.screens.workloads import WorkloadDetailScreen
from gpuconsole.ui.table_model import Column
from gpuconsole.ui.widgets.gpumap import FREE, GPU_GLYPHS, GpuMap, Legend, word_of
from gpuconsole.ui.widgets.gpumap import GPU_GLYPHS as GLYPHS_OF
from gpuconsole.ui.widgets.grid import Grid, table_handlers
from gpuconsole.ui.widgets.painter import Lines, PaneState, StatusLine

MOST_TEAMS = 4
"""Maximum number of gangs listed below a node's GPUs."""


class NodeFacts(NamedTuple):
    """What the screen of one node shows, computed in the background."""

    row: GpuRow
    inside: NodeGpus | None
    teams: tuple[PodGroupGpus, ...]
    now: Time
    gpus: tuple[MeasuredGpu, ...]
    pods: tuple[Pod, ...]


class NodeDetailScreen(ConsoleScreen):
    """The GPUs and the pods of a node; Enter opens the workload of the selected GPU, or the selected pod."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self.groups = (ObjectActions(self), NodeActions(self))
        self._node = node
        self._facts: NodeFacts | None = None
        self._background = SnapshotWorker(self, self._gather, self._tell)

    def crumb(self) -> str:
        return self._node

    def body(self) -> ComposeResult:
        yield Lines(id="hardware")
        yield Grid(unit_columns(None, 0), key=_key, empty="This node has no GPUs.", id="units")
        yield Lines(id="about")
        columns = (column for column in pod_columns(lambda: self.snapshot) if column.title != "NODE")
        yield Grid(tuple(columns), key=lambda pod: pod.key, empty="This node has no pods.", id="pods")

    def show(self, snapshot: Snapshot) -> None:
        self._background.ask(snapshot)

    def _gather(self, snapshot: Snapshot) -> NodeFacts | None:
        row = gpu_map(snapshot).by_node.get(self._node)
        if row is None:
            return None
        found = all_node_gpus(snapshot).get(self._node)
        measured = on_node(snapshot, self._node)
        pods = tuple(pods_by_node(snapshot).on(self._node).values())
        return NodeFacts(row, found, pod_group_gpus(snapshot, self._node), snapshot.time, measured, pods)

    def _tell(self, facts: NodeFacts | None) -> None:
        self._facts = facts
        grid = self.query_one("#units", Grid)
        if facts is None:
            grid.say(PaneState.EMPTY, f"{self._node} no longer exists.")
            return
        hardware = about(facts.inside, facts.teams[:MOST_TEAMS]) if facts.inside is not None else ()
        self.query_one("#hardware", Lines).lines = (headline(facts.row), *hardware, source_text(facts.gpus, facts.now))
        grid.columns = unit_columns(facts.inside, facts.now, by_unit(facts.gpus), self.console.trends)
        grid.show(facts.inside.units if facts.inside is not None else ())
        pods, pod_grid = sorted(facts.pods, key=lambda pod: pod.key), self.query_one("#pods", Grid)
        pod_grid.styles.height = min(len(pods) + 1, max(3, self.size.height // 3)) if pods else 3
        pod_grid.show(pods)
        self._show_links()

    def _show_links(self) -> None:
        inside, unit = self._facts.inside if self._facts is not None else None, self._unit
        joined = links(inside, unit) if inside is not None and unit is not None else ""
        self.query_one("#about", Lines).lines = tuple(filter(None, (joined, self._lately(unit))))

    def _lately(self, unit: GpuUnit | None) -> Cell:
        """Utilization trend of the selected device, which the table may cut."""
        facts = self._facts
        gpu = of_unit(by_unit(facts.gpus), unit) if facts is not None and unit is not None else None
        text = trend_text(self.console.trends.of((gpu,), facts.now)) if facts is not None and gpu is not None else ""
        return f" GPU {gpu.device.gpu} utilization: {text}" if gpu is not None and text else ""

    @property
    def _unit(self) -> GpuUnit | None:
        return cast("GpuUnit | None", self.query_one("#units", Grid).current)

    def picked(self, row: object) -> None:
        self._show_links()
        self.refresh_frame()

    @property
    def _pod(self) -> Pod | None:
        """The selected pod, while the table of pods has the focus."""
        grid = self.grid
        return grid.current if grid is not None and grid.id == "pods" else None

    def subject(self) -> Subject | None:
        if self._pod is not None:
            return Subject("pods", self._pod.key)
        return Subject("nodes", self._node) if self._node in self.snapshot.nodes else None

    def handlers(self) -> Handlers:
        unit, pod = self._unit, self._pod
        if pod is not None:
            return {**super().handlers(), "object.open": lambda: self.open(describe_screen("pods", pod.key))}
        if unit is None or unit.cell.workload not in self.snapshot.workloads:
            return super().handlers()
        key = unit.cell.workload
        return {**super().handlers(), "object.open": lambda: self.open(WorkloadDetailScreen(key))}


def _key(unit: GpuUnit) -> str:
    return f"{unit.gpu} {unit.start} {unit.part} {unit.cell.index}"


def headline(row: GpuRow) -> tuple[tuple[str, str], ...]:
    """Describe a node in one line."""
    spot = "spot" if row.spot else ""
    used = ", ".join(
        f"{used_of(row.by_unit[unit])} of {counted_units(total, unit)} in use" for unit, total in row.units.items()
    )
    return join([((f" {row.node}", "title"),), health(row), row.gpu_type, spot, used, mig(row)], "  ")


@dataclass(frozen=True)
class LayoutRow:
    """Row of the device layout: one MIG or shared GPU, or a whole node whose GPUs are allocated whole."""

    node: str
    gpu: int | None
    inside: NodeGpus
    units: tuple[GpuUnit, ...]

    @property
    def key(self) -> str:
        return self.node if self.gpu is None else f"{self.node} {self.gpu}"


def layout_rows(rows: Iterable[GpuRow], known: Mapping[str, NodeGpus]) -> list[LayoutRow]:
    """Return the layout rows of these nodes, in their order; `known` has the devices of each node."""
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
    Column("WORKLOADS", lambda row: owners(unit.cell for unit in row.units), width=14, flex=3, rank=1),
)


class NodesLayout(StrEnum):
    """Layouts of the nodes screen; M cycles through them."""

    MAP = "map"
    LIST = "list"
    INSIDE = "inside"
    """GPUs by NVLink domain, MIG instances by slice, time-slicing replicas."""

    @property
    def next(self) -> "NodesLayout":
        ways = list(NodesLayout)
        return ways[(ways.index(self) + 1) % len(ways)]


class NodesScreen(ConsoleScreen):
    """All nodes, as GPU map, node list or device layout."""

    view = "nodes"
    reads = frozenset({"nodes"})
    AUTO_FOCUS = "GpuMap"

    def __init__(self) -> None:
        super().__init__()
        self.groups = (ObjectActions(self), NodeActions(self))
        self._rows: dict[str, GpuRow] = {}
        self._known: Mapping[str, NodeGpus] = {}
        self._layout_shown = NodesLayout.MAP
        self._background = SnapshotWorker(self, _answer, self._show_rows)

    def body(self) -> ComposeResult:
        yield StatusLine(id="totals")
        yield GpuMap()
        yield Grid(
            NODES,
            key=lambda row: row.node,
            labels=self._labels,
            fault=_faulty,
            object_of=lambda row: self.snapshot.nodes.get(row.node),
            empty="No nodes.",
            id="list",
        )
        yield Grid(LAYOUT, key=lambda row: row.key, empty="No nodes with GPUs.", id="inside")
        yield Lines(id="owners")
        yield Legend()

    def on_mount(self) -> None:
        self._list.display = self._inside.display = False

    @property
    def _map(self) -> GpuMap:
        return self.query_one(GpuMap)

    @property
    def _list(self) -> Grid[GpuRow]:
        return self.query_one("#list", Grid)

    @property
    def _inside(self) -> Grid[LayoutRow]:
        return self.query_one("#inside", Grid)

    @property
    def grid(self) -> Grid[GpuRow]:
        """The node list, even while hidden: it holds order, filter and marks of all layouts."""
        return self._list

    def _labels(self, row: GpuRow) -> dict[str, str]:
        node = self.snapshot.nodes.get(row.node)
        return dict(node.labels) if node is not None else {}

    def show(self, snapshot: Snapshot) -> None:
        self._background.ask(snapshot)

    def _show_rows(self, answer: tuple[tuple[GpuRow, ...], Mapping[str, NodeGpus], str]) -> None:
        rows, self._known, measured = answer
        self._rows = {row.node: row for row in rows}
        self._list.show(rows)
        line = self.query_one("#totals", StatusLine)
        line.left, line.right = totals(rows), measured
        self._follow_list()

    def _follow_list(self) -> None:
        """Show the rows of the list, in its order, on the map and in the device layout."""
        empty = self.console.status.unseen(self.reads) or "No nodes."
        if self._rows:
            empty = f"None of {len(self._rows)} nodes matches the filter (Esc shows all)."
        marked = frozenset(row.node for row in self._list.marked)
        self._map.show(self._list.rows, marked, empty, self.snapshot.time, self.snapshot.telemetry)
        if self._layout_shown is NodesLayout.INSIDE:
            self._inside.show(layout_rows(self._list.rows, self._known))
        self._show_owners()
        self.query_one(Legend).show(self._map.look)

    def _show_owners(self) -> None:
        row = self._rows.get(self._key)
        self.query_one("#owners", Lines).lines = (
            node_owners(row, max(1, self.size.height // 5)) if row is not None else ()
        )

    @property
    def _key(self) -> str:
        """The selected node."""
        if self._layout_shown is NodesLayout.MAP:
            return self._map.cursor_key
        row = self._inside.current if self._layout_shown is NodesLayout.INSIDE else self._list.current
        return row.node if row is not None else ""

    def subject(self) -> Subject | None:
        return Subject("nodes", self._key) if self._key else None

    def subjects(self) -> list[Subject]:
        marked = [row.node for row in self._list.marked]
        return [Subject("nodes", name) for name in marked or [self._key] if name]

    def handlers(self) -> Handlers:
        offered = {
            **super().handlers(),
            "node.layout": self._change_layout,
            "node.colour": self._change_colour,
        }
        if self._key:
            offered["object.open"] = lambda: self.open(NodeDetailScreen(self._key))
        return offered

    def _table_handlers(self) -> dict[str, Handler]:
        offered = super()._table_handlers()
        if self._layout_shown is NodesLayout.LIST:
            return offered
        # The list handles all actions except moving, and the other layouts follow it.
        offered = {id: self._then_follow(handler) for id, handler in offered.items() if id not in LIST_ONLY}
        if self._layout_shown is NodesLayout.INSIDE:
            return offered | {id: handler for id, handler in table_handlers(self._inside).items() if id in MOVING}
        return offered | {
            "node.left": lambda: self._map.move(-1, 0),
            "node.right": lambda: self._map.move(1, 0),
            "table.up": lambda: self._map.move(0, -1),
            "table.down": lambda: self._map.move(0, 1),
            "table.top": lambda: self._map.edge(-1),
            "table.bottom": lambda: self._map.edge(1),
            "table.page-up": lambda: self._map.page(-1),
            "table.page-down": lambda: self._map.page(1),
        }

    def _then_follow(self, handler: Handler) -> Handler:
        def run() -> None:
            handler()
            if self._list.current is not None:
                self._map.select(self._list.current.node)
            self._follow_list()

        return run

    @property
    def _shown(self) -> dict[NodesLayout, GpuMap | Grid[GpuRow] | Grid[LayoutRow]]:
        return {NodesLayout.MAP: self._map, NodesLayout.LIST: self._list, NodesLayout.INSIDE: self._inside}

    def focus_body(self) -> None:
        self.set_focus(self._shown[self._layout_shown])

    def _change_layout(self) -> None:
        key = self._key
        self._layout_shown = self._layout_shown.next
        for shown_layout, widget in self._shown.items():
            widget.display = shown_layout is self._layout_shown
        self._list.move_to_key(key)
        self._map.select(key)
        self._follow_list()
        self._inside.move_to_key(next((row.key for row in self._inside.rows if row.node == key), ""))
        self.focus_body()
        self.refresh_frame()

    def _change_colour(self) -> None:
        self._map.colour = self._map.colour.next
        self.query_one(Legend).show(self._map.look)

    @on(GpuMap.Moved)
    def _moved(self, message: GpuMap.Moved) -> None:
        message.stop()
        self._list.move_to_key(message.node)
        self._show_owners()

    @on(FilterChanged)
    def _filtered(self) -> None:
        # The base filters the list after this.
        self.call_later(self._follow_list)

    def picked(self, row: GpuRow | LayoutRow | None) -> None:
        if isinstance(row, LayoutRow) and self._layout_shown is NodesLayout.INSIDE:
            self._list.move_to_key(row.node)
        if self._layout_shown is not NodesLayout.MAP:
            self._show_owners()


def _answer(snapshot: Snapshot) -> tuple[tuple[GpuRow, ...], Mapping[str, NodeGpus], str]:
    return gpu_rows(snapshot), all_node_gpus(snapshot), measured_text(snapshot)


def measured_text(snapshot: Snapshot) -> str:
    """Format the average utilization of GPUs with running pods, and how many nodes have metrics."""
    found = utilization(snapshot)
    average = utilization_text(found.cluster) if found is not None else ""
    return " · ".join(text for text in (average, coverage_text(coverage(snapshot), snapshot.time)) if text)


LIST_ONLY = ("table.column-left", "table.column-right", "table.sort", "table.wide")
"""Table actions that apply to the node list only, as they need columns."""
MOVING = ("table.down", "table.up", "table.top", "table.bottom", "table.page-down", "table.page-up")


def totals(rows: Sequence[GpuRow]) -> Cell:
    """Format the number of nodes, GPUs in use and in total, and of nodes that are not ready or cordoned."""
    totals = added(*(row.units for row in rows))
    busy = added(*({unit: used_of(states) for unit, states in row.by_unit.items()} for row in rows))
    at_least = "at least " if any(row.states[GpuState.UNKNOWN] for row in rows) else ""
    words: list[Cell] = [
        f" {fmt.number(len(rows))} node{'s' if len(rows) != 1 else ''}",
        *(
            f"{at_least}{fmt.number(busy.get(unit, 0))} of {counted_units(totals[unit], unit)} in use"
            for unit in sorted(totals, key=order_of)
        ),
    ]
    if not totals:
        words.append("no GPUs, MIG instances or DRA devices")
    for role, word in ((GpuState.FAULT, "not ready"), (GpuState.HELD, "cordoned")):
        count = sum(1 for row in rows if (not row.ready if role is GpuState.FAULT else row.ready and row.cordoned))
        if count:
            words.append(((f"{GLYPHS[role]} {count} {word}", str(role)),))
    return join(words, " · ")


def node_owners(row: GpuRow, most: int) -> tuple[Cell, ...]:
    """Return lines with a node and the owners of its GPUs, at most `most`; the owners that do not fit are summed up."""
    head = join([((f" {row.node} ", "title"), (_sizes(row), "dim")), health(row), mig(row)], "  ")
    runs = [list(cells) for _, cells in groupby(row.all_cells, key=_owner)]
    if most <= len(runs):
        counts = Counter(cell.workload or cell.pod for cell in row.all_cells)
        held = join([((called(name), "strong"), (f" {count}", "")) for name, count in counts.items() if name])
        return (join([head, held or "no workloads"]),)
    return (head, *map(_run, runs))


def _run(cells: Sequence[GpuCell]) -> Cell:
    name, state = cells[0].workload or cells[0].pod, cells[0].state
    first, last = cells[0].index, cells[-1].index
    numbers = f"{first}" if first == last else f"{first}-{last}"
    who = ((called(name), "strong"), (f"  {cells[0].queue or 'no queue'}  {cells[0].pod}", "dim")) if name else ()
    unit = cells[0].unit
    name_of_unit = "GPU" if unit == WHOLE_GPU else unit.short
    word = word_of(cells[0])
    return ((f"   {name_of_unit} {numbers:<5} ", "dim"), (f"{GLYPHS_OF[state]} {word:<14}", str(state)), *who)


def _owner(cell: GpuCell) -> tuple[str, str, str, DeviceUnit]:
    return cell.workload, cell.pod, cell.state, cell.unit


def _sizes(row: GpuRow) -> str:
    """`h100 ×8`, and other units by their names."""
    if row.cells and not row.devices and row.unit == WHOLE_GPU:
        return f"{row.gpu_type} ×{row.gpus}"
    return f"{row.gpu_type} {described(row.units)}".strip() if row.all_cells else row.gpu_type


def _faulty(row: GpuRow) -> bool:
    return not row.ready or row.cordoned
