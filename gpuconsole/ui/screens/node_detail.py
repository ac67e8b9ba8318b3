"""One node: each of its GPUs with its owner, and what is known of the node."""

from typing import cast

from textual.app import ComposeResult

from gpuconsole.insight.gpumap import GpuCell, GpuRow, gpu_rows
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui.node_columns import gpu_columns, health, mig
from gpuconsole.ui.paint import join
from gpuconsole.ui.screens.base import Handlers
from gpuconsole.ui.screens.node_actions import NodeScreen
from gpuconsole.ui.screens.objects import Subject
from gpuconsole.ui.screens.workload_detail import WorkloadDetailScreen
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.notice import State
from gpuconsole.ui.widgets.painter import Lines


class NodeDetailScreen(NodeScreen):
    """The GPUs of a node; Enter goes to the workload that owns the one under the cursor."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node

    def crumb(self) -> str:
        return self._node

    def body(self) -> ComposeResult:
        yield Lines()
        yield Grid(gpu_columns(0), key=lambda cell: str(cell.index), empty="This node has no GPUs.")

    def show(self, snapshot: Snapshot) -> None:
        grid = self.query_one(Grid)
        row = next((row for row in gpu_rows(snapshot) if row.node == self._node), None)
        if row is None:
            grid.say(State.EMPTY, f"{self._node} is gone.")
            return
        self.query_one(Lines).lines = (about(row), "")
        grid.columns = gpu_columns(snapshot.time)
        grid.show(row.cells)

    def subject(self) -> Subject | None:
        return Subject("nodes", self._node) if self._node in self.snapshot.nodes else None

    def handlers(self) -> Handlers:
        cell = cast("GpuCell | None", self.grid.current if self.grid is not None else None)
        if cell is None or cell.workload not in self.snapshot.workloads:
            return super().handlers()
        key = cell.workload
        return {**super().handlers(), "object.open": lambda: self.app.push_screen(WorkloadDetailScreen(key))}


def about(row: GpuRow) -> tuple[tuple[str, str], ...]:
    """A node in one line."""
    spot = "spot" if row.spot else ""
    used = f"{row.used} of {row.gpus} GPUs in use"
    return join([((f" {row.node}", "title"),), health(row), row.gpu_type, spot, used, mig(row)], "  ")
