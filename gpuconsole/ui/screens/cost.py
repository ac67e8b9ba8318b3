"""The cost screen: cost of node pools, and of queues, teams or workloads."""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from textual.app import ComposeResult

from gpuconsole.errors import ConsoleError
from gpuconsole.insight.cost.rates import By, Cost, CostReport, PoolCost, cost_report
from gpuconsole.insight.preemption.history import LostWork, lost_by
from gpuconsole.model.autoscaling import GROUP, POOL
from gpuconsole.model.devices import WHOLE_GPU, short_plural
from gpuconsole.model.resources import format_quantity, short
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui import format as fmt
from gpuconsole.ui.actions import Action, Handlers
from gpuconsole.ui.names import called
from gpuconsole.ui.paint import GLYPHS, Cell, Painted, join
from gpuconsole.ui.screens.background import SnapshotWorker
from gpuconsole.ui.screens.objects import ObjectScreen, Subject
from gpuconsole.ui.table_model import Column
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.painter import USED, Lines

T = TypeVar("T")
BAR = 16
AUTOSCALERS = {"karpenter": "Karpenter", "cluster-autoscaler": "CA", "": fmt.NOTHING}


def rate(dollars: float, role: str = "") -> Cell:
    """Format dollars per hour; a dash for 0."""
    return ((fmt.money(dollars), role),) if dollars else ((fmt.NOTHING, "dim"),)


def _dollars(title: str, value: Callable[[T], float], id: str, width: int, role: str = "") -> Column[T]:
    """A column of USD, the highest first."""
    return Column(title, lambda row: rate(value(row), role), id=id, width=width, align="right", sort=value, down=True)


def _nodes(row: PoolCost) -> Cell:
    pool = row.pool
    pieces: list[tuple[str, str]] = [(str(pool.nodes), "")]
    if pool.starting:
        pieces.append((f" +{pool.starting}", "pending"))
    if pool.leaving:
        pieces.append((f" -{pool.leaving}", "victim"))
    return tuple(pieces)


def _devices(row: PoolCost) -> Cell:
    unit = "" if row.pool.unit == WHOLE_GPU.noun else f" {short_plural(row.pool.unit)[:3]}"
    return f"{fmt.number(row.pool.used)}/{fmt.number(row.pool.gpus)}{unit}"


def _limits(row: PoolCost) -> Cell:
    words = [f"{fmt.resource(name)} {format_quantity(name, row.limits[name])}" for name in short(row.limits)]
    return " ".join(words) or ((fmt.NOTHING, "dim"),)


def _interruptions(row: PoolCost) -> Cell:
    count = row.pool.interrupted
    return ((f"{GLYPHS['victim']}{count}", "victim"),) if count else ((fmt.NOTHING, "dim"),)


POOLS: tuple[Column[PoolCost], ...] = (
    Column("POOL", lambda row: row.pool.name, id="name", width=13, flex=3, sort=lambda row: row.pool.name),
    Column(
        "AUTOSCALER", lambda row: AUTOSCALERS.get(row.pool.autoscaler, row.pool.autoscaler), id="by", width=10, rank=3
    ),
    Column("NODES", _nodes, id="nodes", width=8, sort=lambda row: row.pool.nodes, down=True),
    Column(
        "GPUS",
        _devices,
        id="usage",
        width=13,
        align="right",
        sort=lambda row: row.pool.used,
        down=True,
    ),
    Column("LIMIT", _limits, id="limit", width=10, flex=1, rank=4),
    _dollars("ON DEMAND/h", lambda row: row.on_demand_hourly, "on-demand", 11),
    _dollars("SPOT/h", lambda row: row.spot_hourly, "spot", 10),
    _dollars("IDLE/h", lambda row: row.pool.idle_hourly, "idle", 10, "pending"),
    Column("ACCRUED", lambda row: rate(row.pool.spent), id="spent", width=10, align="right", rank=2),
    Column("INTERRUPTED", _interruptions, id="interrupted", width=11, align="right", rank=1),
)


def name_cell(by: By) -> "Column[Cost]":
    """The column of names; GPUs without a name are unallocated."""

    def cell(row: Cost) -> Cell:
        if not row.name:
            return ((f"{GLYPHS['idle']} unallocated", "idle"),)
        return called(row.name) if by is By.WORKLOAD else row.name

    return Column(str(by).upper(), cell, id="name", width=20, flex=3, sort=lambda row: row.name)


def cost_columns(by: By, whole: float) -> tuple[Column[Cost], ...]:
    """The columns of the cost rates, whose sum is `whole` USD per hour."""

    def bar(row: Cost) -> Cell:
        cells = round(BAR * row.hourly / whole) if whole else 0
        return ((USED * cells, "own" if row.name else "idle"),)

    return (
        name_cell(by),
        Column(
            "GPUS",
            lambda row: fmt.number(row.gpus) if row.gpus else ((fmt.NOTHING, "dim"),),
            id="usage",
            width=6,
            align="right",
            sort=lambda row: row.gpus,
            down=True,
        ),
        _dollars("COST/h", lambda row: row.hourly, "hourly", 11),
        Column("", bar, width=BAR),
        Column("", lambda row: fmt.percent(row.hourly, whole), width=5, align="right"),
        Column(
            "LOST",
            lambda row: _lost(row.lost, f"{row.lost.hours_text()}{_unit(row.lost)}"),
            id="lost-hours",
            width=11,
            align="right",
            sort=lambda row: row.lost.gpu_hours,
            down=True,
            rank=1,
        ),
        Column(
            "LOST $",
            lambda row: _lost(row.lost, row.lost.cost_text(fmt.money(row.lost.cost))),
            id="lost",
            width=10,
            align="right",
            sort=lambda row: row.lost.cost,
            down=True,
        ),
    )


def _lost(lost: LostWork, text: str) -> Cell:
    """Lost work, shorter than in the summary above the table."""
    return ((text.replace("at least ", "≥"), "victim"),) if lost.times else rate(0.0)


def _unit(lost: LostWork, unit: str = "GPU-h") -> str:
    return f" {unit}" if lost.unknown < lost.times else ""


def summary(bill: CostReport, window: str) -> tuple[Cell, ...]:
    """Cost rate, cost of idle GPUs, accrued cost, savings by spot, and the work lost in `window`."""
    now: Painted = ((f" {fmt.money(bill.hourly)}", "strong"), ("/h now", ""))
    idle = ((f"○ {fmt.money(bill.idle_hourly)}/h idle, {fmt.percent(bill.idle_hourly, bill.hourly)}", "pending"),)
    spent = (("accrued ", "dim"), (fmt.money(bill.spent), "")) if bill.spent else ""
    saved = ((f"spot saves {fmt.money(bill.saved_hourly)}/h", "good"),) if bill.saved_hourly else ""
    plural = "s" if bill.interrupted != 1 else ""
    taken = ((f"{GLYPHS['victim']} {bill.interrupted} interruption{plural}", "victim"),) if bill.interrupted else ""
    gone, cost = bill.lost.hours_text(), bill.lost.cost_text(fmt.money(bill.lost.cost))
    lost_text = f"{cost} of lost work, {gone}{_unit(bill.lost, 'GPU-hours')}"
    if cost == "unknown":
        lost_text = "lost work unknown" if gone == "unknown" else f"lost work {gone} GPU-hours, cost unknown"
    lost: Painted = ((f" {GLYPHS['victim']} {lost_text}", "victim"), (f" {window}", "dim"))
    if not bill.lost.times:
        lost = ((f" no work lost {window}", "dim"),)
    return (join([now, idle if bill.idle_hourly else "", spent], "  ·  "), join([lost, saved, taken], "  ·  "))


LABELS: Mapping[str, str] = {"karpenter": POOL, "cluster-autoscaler": GROUP}
"""Autoscaler → the label of its nodes that names their pool."""


class ViewTarget(NamedTuple):
    """A view to open, with a filter or a selected object."""

    view: str
    filtered: str = ""
    at: str = ""


AT_HAND = "in recent events"
"""Describes the time window of the lost work where no history can be read."""


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
