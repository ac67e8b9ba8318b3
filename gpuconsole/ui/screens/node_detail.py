"""Screen of one node: its GPUs, MIG instances and time-slicing replicas with their owners, and NVLink."""

from typing import NamedTuple, cast

from textual.app import ComposeResult

from gpuconsole.insight.health.telemetry import MeasuredGpu, on_node
from gpuconsole.insight.index.device_layout import GpuUnit, NodeGpus, PodGroupGpus, all_node_gpus, pod_group_gpus
from gpuconsole.insight.index.gpu_map import GpuRow, gpu_map, used_of
from gpuconsole.model.clock import Time
from gpuconsole.model.devices import counted_units
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui.node_columns import (
    about,
    by_unit,
    health,
    links,
    mig,
    of_unit,
    source_text,
    trend_text,
    unit_columns,
)
from gpuconsole.ui.paint import Cell, join
from gpuconsole.ui.screens.background import SnapshotWorker
from gpuconsole.ui.screens.mixins import Handlers
from gpuconsole.ui.screens.node_actions import NodeScreen
from gpuconsole.ui.screens.objects import Subject
from gpuconsole.ui.screens.workload_detail import WorkloadDetailScreen
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.painter import Lines, PaneState

MOST_TEAMS = 4
"""Number of listed gangs on the node."""


class NodeFacts(NamedTuple):
    """Content of the screen."""

    row: GpuRow
    inside: NodeGpus | None
    teams: tuple[PodGroupGpus, ...]
    now: Time
    gpus: tuple[MeasuredGpu, ...]


class NodeDetailScreen(NodeScreen):
    """The GPUs of a node; Enter opens the workload of the selected one."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node
        self._facts: NodeFacts | None = None
        self._background = SnapshotWorker(self, self._gather, self._tell)

    def crumb(self) -> str:
        return self._node

    def body(self) -> ComposeResult:
        yield Lines(id="hardware")
        yield Grid(unit_columns(None, 0), key=_key, empty="This node has no GPUs.", id="units")
        yield Lines(id="about")

    def show(self, snapshot: Snapshot) -> None:
        self._background.ask(snapshot)

    def _gather(self, snapshot: Snapshot) -> NodeFacts | None:
        row = gpu_map(snapshot).by_node.get(self._node)
        if row is None:
            return None
        found = all_node_gpus(snapshot).get(self._node)
        measured = on_node(snapshot, self._node)
        return NodeFacts(row, found, pod_group_gpus(snapshot, self._node), snapshot.time, measured)

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

    def subject(self) -> Subject | None:
        return Subject("nodes", self._node) if self._node in self.snapshot.nodes else None

    def handlers(self) -> Handlers:
        unit = self._unit
        if unit is None or unit.cell.workload not in self.snapshot.workloads:
            return super().handlers()
        key = unit.cell.workload
        return {**super().handlers(), "object.open": lambda: self.open(WorkloadDetailScreen(key))}


def _key(unit: GpuUnit) -> str:
    return f"{unit.gpu} {unit.start} {unit.part} {unit.cell.index}"


def headline(row: GpuRow) -> tuple[tuple[str, str], ...]:
    """A node in one line."""
    spot = "spot" if row.spot else ""
    used = ", ".join(
        f"{used_of(row.by_unit[unit])} of {counted_units(total, unit)} in use" for unit, total in row.units.items()
    )
    return join([((f" {row.node}", "title"),), health(row), row.gpu_type, spot, used, mig(row)], "  ")
