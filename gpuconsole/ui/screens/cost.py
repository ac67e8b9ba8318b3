"""The cost screen: cost of node pools, and of queues, teams or workloads."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from textual.app import ComposeResult

from gpuconsole.errors import ConsoleError
from gpuconsole.insight.cost import By, Cost, CostReport, PoolCost, cost_report
from gpuconsole.insight.preemption.history import lost_by
from gpuconsole.model.autoscaling import GROUP, POOL
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui.actions import Action
from gpuconsole.ui.cost_columns import POOLS, cost_columns, summary
from gpuconsole.ui.screens.actions_mixin import Handlers
from gpuconsole.ui.screens.objects import ObjectScreen, Subject
from gpuconsole.ui.screens.snapshot_worker import SnapshotWorker
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.painter import Lines

LABELS: Mapping[str, str] = {"karpenter": POOL, "cluster-autoscaler": GROUP}
"""Autoscaler → the label of its nodes that names their pool."""


class ViewTarget(NamedTuple):
    """A view to open, with a filter or a selected object."""

    view: str
    filtered: str = ""
    at: str = ""


AT_HAND = "in recent events"
"""Window of the lost work where no history can be read."""


class CostScreen(ObjectScreen):
    """Node pools above, cost by queue, team or workload below; B changes the grouping."""

    view = "cost"

    def __init__(self) -> None:
        super().__init__()
        self._by = By.QUEUE
        self._bill: CostReport | None = None
        self._window = AT_HAND
        """Window of the lost work."""
        self._bills = SnapshotWorker(self, self._sum_up, self._show_bill, reads=True)

    def body(self) -> ComposeResult:
        yield Lines(id="bill")
        yield Grid(POOLS, key=lambda row: row.pool.name, empty="No nodes.", id="pools")
        yield Grid(cost_columns(self._by, 0.0), key=lambda row: row.name, empty="No allocated GPUs.", id="shares")

    def show(self, snapshot: Snapshot) -> None:
        self._bills.ask(snapshot)

    def _sum_up(self, snapshot: Snapshot) -> CostReport:
        self._window = "in this session" if self.console.keeps_history else AT_HAND
        try:
            lost = self.console.losses()
        except ConsoleError:
            # The header shows why there is no history; the newest events are available nevertheless.
            lost, self._window = lost_by(snapshot.recent), AT_HAND
        return cost_report(snapshot, self.console.prices, lost)

    def _show_bill(self, found: CostReport) -> None:
        self._bill = found
        self.query_one("#bill", Lines).lines = summary(found, self._window)
        self._pools.show(found.pools)
        self._show_shares()

    def _show_shares(self) -> None:
        if self._bill is not None:
            self._shares.columns = cost_columns(self._by, self._bill.hourly)
            self._shares.show(self._bill.by[self._by])

    @property
    def _pools(self) -> Grid[PoolCost]:
        return self.query_one("#pools", Grid)

    @property
    def _shares(self) -> Grid[Cost]:
        return self.query_one("#shares", Grid)

    def handlers(self) -> Handlers:
        return {**super().handlers(), "object.open": self._open, "cost.by": self._turn}

    def refusal(self, action: Action) -> str:
        if action.id == "object.open" and self._target() is None:
            return "nothing to open for this row"
        return super().refusal(action)

    def subject(self) -> Subject | None:
        row = self._pools.current if self.grid is self._pools else None
        if row is None:
            return None
        name = row.pool.name
        if name in self.snapshot.node_pools:
            return Subject("node_pools", name)
        return Subject("node_groups", name) if name in self.snapshot.node_groups else None

    def picked(self, row: object) -> None:
        self.refresh_frame()

    def _turn(self) -> None:
        ways = list(By)
        self._by = ways[(ways.index(self._by) + 1) % len(ways)]
        self._show_shares()
        self.flash(f"Grouped by {self._by}")

    def _target(self) -> ViewTarget | None:
        """The view that shows the selected row."""
        if self.grid is self._pools:
            return _of_pool(self._pools.current)
        row = self._shares.current
        if row is None or not row.name:
            return None
        match self._by:
            case By.QUEUE:
                return ViewTarget("queues", at=row.name)
            case By.TEAM:
                return ViewTarget("workloads", filtered=f"^{re.escape(row.name)}/")
            case By.WORKLOAD:
                return ViewTarget("workloads", at=row.name)

    def _open(self) -> None:
        target = self._target()
        if target is not None:
            self.console_app.go(target.view, filtered=target.filtered, at=target.at)


def _of_pool(row: PoolCost | None) -> ViewTarget | None:
    """The nodes of a pool; all nodes if the pool has no label."""
    if row is None:
        return None
    label = LABELS.get(row.pool.autoscaler)
    return ViewTarget("nodes", filtered=f"-l {label}={row.pool.name}" if label is not None else "")
