"""The cost screen: cost of node pools, and of queues, teams or workloads, now or in a day or month."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from msgspec import Struct
from textual.app import ComposeResult

from gpuconsole.errors import ConsoleError
from gpuconsole.insight.cost.allocation import CostHour, CostOwner
from gpuconsole.insight.cost.rates import By, Cost, CostReport, PoolCost, cost_report
from gpuconsole.insight.cost.report import (
    NO_LOANS,
    CostBy,
    CostItem,
    CostPeriod,
    CostSummary,
    LoanRates,
    cost_summary,
    loan_rates,
    period_window,
    present_rates,
)
from gpuconsole.insight.preemption.history import NOTHING_LOST, Losses, LostWork, lost_by
from gpuconsole.model.autoscaling import GROUP, POOL
from gpuconsole.model.clock import HOUR, MINUTE, Time, next_multiple
from gpuconsole.model.devices import WHOLE_GPU, short_plural
from gpuconsole.model.resources import format_quantity, short
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui import format as fmt
from gpuconsole.ui.actions import Action, Handlers
from gpuconsole.ui.names import called
from gpuconsole.ui.paint import GLYPHS, Cell, Painted, join
from gpuconsole.ui.screens.background import SnapshotWorker
from gpuconsole.ui.screens.base import ConsoleScreen, Subject
from gpuconsole.ui.screens.objects import ObjectActions
from gpuconsole.ui.table_model import Column
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.painter import USED, Lines

T = TypeVar("T")
BAR = 16
AUTOSCALERS = {"karpenter": "Karpenter", "cluster-autoscaler": "CA", "": fmt.NOTHING}


def rate(dollars: float, role: str = "") -> Cell:
    """Format dollars per hour; a dash for 0."""
    return ((fmt.money(dollars), role),) if dollars else ((fmt.NOTHING, "dim"),)


def _dollars(title: str, value: Callable[[T], float], id: str, width: int, role: str = "", rank: int = 0) -> Column[T]:
    """A column of USD, the highest first; on a narrow screen the columns with the highest rank are left out first."""
    return Column(
        title,
        lambda row: rate(value(row), role),
        id=id,
        width=width,
        align="right",
        sort=value,
        down=True,
        rank=rank,
        number=value,
        unit="usd",
    )


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


ORDER = (*(CostBy.QUEUE, CostBy.TEAM, CostBy.WORKLOAD, CostBy.PROJECT, CostBy.NAMESPACE, CostBy.USER, CostBy.GPU_TYPE),)
"""The groupings in the order in which a key shows them."""
NO_NAME = "(none)"
"""Shown for cost without a value of the dimension, such as pods without a queue or a project."""


class ShownLoans(NamedTuple):
    """Parts of the present cost rates in USD per hour: on borrowed quota by row, and on lent quota by ClusterQueue."""

    borrowed: Mapping[str, float]
    lent: Mapping[str, float]


NO_SHOWN_LOANS = ShownLoans({}, {})


def head_of(by: CostBy) -> str:
    """The head of the column of names."""
    return by.value.replace("-", " ").upper()


def name_cell(by: CostBy) -> "Column[Cost]":
    """The column of names; GPUs without a name are idle."""

    def cell(row: Cost) -> Cell:
        if not row.name:
            return ((f"{GLYPHS['idle']} idle", "idle"),)
        return called(row.name) if by is CostBy.WORKLOAD else row.name

    return Column(head_of(by), cell, id="name", width=20, flex=3, sort=lambda row: row.name)


def cost_columns(by: CostBy, whole: float, loans: ShownLoans = NO_SHOWN_LOANS) -> tuple[Column[Cost], ...]:
    """The columns of the cost rates, whose sum is `whole` USD per hour; only queues lend."""
    borrowed: Column[Cost] = _dollars(
        "BORROWED/h", lambda row: loans.borrowed.get(row.name, 0.0), "borrowed", 10, "borrowed", 2
    )
    lent: Column[Cost] = _dollars("LENT/h", lambda row: loans.lent.get(row.name, 0.0), "lent", 9, "own", 3)

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
        borrowed,
        *([lent] if by is CostBy.QUEUE else []),
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


IDLE, SYSTEM = " idle", " system"
"""Keys of the rows for idle GPUs and for system pods; names of others do not begin with a space."""


def period_items(found: CostSummary) -> list[CostItem]:
    """The rows of a period: its items, and rows for idle GPUs and system pods if they cost anything."""

    def row(name: str, usd: float, gpu_hours: float) -> CostItem:
        return CostItem(
            name=name,
            gpu_hours=gpu_hours,
            cost_usd=usd,
            used_usd=0.0,
            underutilized_usd=0.0,
            lost_usd=0.0,
            saved_usd=0.0,
            utilization=None,
            first=found.window[0],
            last=found.window[1],
        )

    idle = row(IDLE, found.idle_cost_usd, found.idle_gpu_hours)
    system = row(SYSTEM, found.system_cost_usd, 0.0)
    rows = [*found.items, *(one for one in (idle, system) if one.cost_usd)]
    return sorted(rows, key=lambda one: -one.cost_usd)


def period_columns(by: CostBy, whole: float) -> tuple[Column[CostItem], ...]:
    """The columns of the costs in a period, whose sum is `whole` USD."""

    def name(row: CostItem) -> Cell:
        if row.name in (IDLE, SYSTEM):
            return ((f"{GLYPHS['idle']}{row.name}", "idle"),)
        return (called(row.name) if by is CostBy.WORKLOAD else row.name) or ((NO_NAME, "dim"),)

    def bar(row: CostItem) -> Cell:
        cells = round(BAR * row.cost_usd / whole) if whole else 0
        return ((USED * cells, "idle" if row.name in (IDLE, SYSTEM) else "own"),)

    def busy(row: CostItem) -> Cell:
        return ((fmt.NOTHING, "dim"),) if row.utilization is None else f"{row.utilization:.0f}%"

    return (
        Column(head_of(by), name, id="name", width=20, flex=3, sort=lambda row: row.name),
        Column(
            "GPU-h",
            lambda row: f"{row.gpu_hours:,.1f}" if row.gpu_hours else ((fmt.NOTHING, "dim"),),
            id="usage",
            width=9,
            align="right",
            sort=lambda row: row.gpu_hours,
            down=True,
        ),
        _dollars("COST", lambda row: row.cost_usd, "hourly", 10),
        Column("", bar, width=BAR, rank=2),
        Column("", lambda row: fmt.percent(row.cost_usd, whole), width=5, align="right"),
        _dollars("USED", lambda row: row.used_usd, "used", 10, rank=5),
        _dollars("UNDERUTILIZED", lambda row: row.underutilized_usd, "underutilized", 13, "pending", rank=4),
        _dollars("LOST", lambda row: row.lost_usd, "lost", 9, "victim"),
        _dollars("SPOT SAVES", lambda row: row.saved_usd, "saved", 10, "good", rank=3),
        Column("UTIL", busy, id="utilization", width=5, align="right", rank=1),
    )


PERIODS: tuple[CostPeriod | None, ...] = (None, CostPeriod.TODAY, CostPeriod.MONTH, CostPeriod.LAST_MONTH)
"""The windows in the order of the keys; None is the present."""
TITLES = {CostPeriod.TODAY: "today", CostPeriod.MONTH: "this month", CostPeriod.LAST_MONTH: "last month"}


class PeriodCosts(NamedTuple):
    """The recorded costs of a period."""

    period: CostPeriod
    window: tuple[Time, Time]
    rows: tuple[CostHour, ...]
    problem: str = ""
    """Why they cannot be read."""
    until: Time | None = None
    """End of the counted costs, if that is later than the shown time, because costs are kept by the hour."""


def period_summary(costs: PeriodCosts, found: CostSummary) -> tuple[Cell, ...]:
    """Cost of a period, of its idle GPUs and system pods, work lost, savings by spot, and the recorded time."""
    title = TITLES[costs.period]
    until = f" until {fmt.date_and_minute(costs.until)} UTC, by the hour" if costs.until is not None else ""
    total: Painted = ((f" {fmt.money(found.total_cost_usd)}", "strong"), (f" {title}{until}", ""))
    if costs.problem:
        return (((f" {title.capitalize()}: {costs.problem}", "fault"),), "")
    if not costs.rows:
        return (((f" No cost is recorded for {title}", "dim"),), "")
    part = fmt.percent(found.idle_cost_usd, found.total_cost_usd)
    idle = ((f"○ {fmt.money(found.idle_cost_usd)} idle, {part}", "pending"),) if found.idle_cost_usd else ""
    system = f"{fmt.money(found.system_cost_usd)} system" if found.system_cost_usd else ""
    lost = sum(item.lost_usd for item in found.items)
    gone = ((f" {GLYPHS['victim']} {fmt.money(lost)} of lost work", "victim"),) if lost else ((" no work lost", "dim"),)
    saved = ((f"spot saved {fmt.money(found.saved_usd)}", "good"),) if found.saved_usd else ""
    first = max(min(row.hour for row in costs.rows), costs.window[0])
    since = ((f"recorded since {fmt.date_and_clock(first)} UTC", "dim"),)
    return (join([total, idle, system], "  ·  "), join([gone, saved, since], "  ·  "))


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


class ShownCosts(Struct, frozen=True, kw_only=True):
    """What the screen shows: the present, and the recorded costs of a period."""

    by: CostBy
    bill: CostReport
    lost: Losses
    """Lost work by queue and workload."""
    window: str
    """The time of the lost work."""
    rates: tuple[CostHour, ...]
    """Present rates, for the groupings that the report does not have."""
    period: PeriodCosts | None
    loans: LoanRates = NO_LOANS
    """What borrowed quota costs at present, by workload and lender."""
    queues: Mapping[str, str] = {}
    """Workload on borrowed quota → its ClusterQueue."""

    @property
    def lent(self) -> Mapping[str, float]:
        """What each row of the table lends, in US dollars per hour: only queues lend."""
        return self.loans.lent if self.by is CostBy.QUEUE else {}

    def by_row(self) -> ShownLoans:
        """Sum what is borrowed by the rows of the table."""
        owners = {row.owner.workload: row.owner for row in self.rates}

        def name(workload: str) -> str:
            match self.by:
                case CostBy.WORKLOAD:
                    return workload
                case CostBy.QUEUE:
                    return self.queues[workload]
                case CostBy.NAMESPACE:
                    return workload.partition("/")[0]
                case _:
                    owner = owners.get(workload)
                    return str(getattr(owner, self.by.value.replace("-", "_"), "")) or NO_NAME

        return ShownLoans(self.loans.borrowed_by(name), self.lent)


_OF_RATES = {CostBy.QUEUE: By.QUEUE, CostBy.NAMESPACE: By.TEAM, CostBy.WORKLOAD: By.WORKLOAD}
"""The groupings whose present rows the report has; they count MIG instances and DRA devices, too."""


def present_rows(shown: ShownCosts) -> tuple[Cost, ...]:
    """The rows of the present cost rates, with the work that was lost."""
    by = shown.by
    if by in _OF_RATES:
        present = shown.bill.by[_OF_RATES[by]]
        names = {row.name for row in present}
        # A lender may have no workloads of its own.
        return (*present, *(Cost(name=name) for name in sorted(shown.lent) if name not in names))
    hours = shown.rates
    found = cost_summary(hours, by, (hours[0].hour, hours[0].hour + HOUR)) if hours else None
    lost = _lost_by(shown.lost, by, hours)
    items = found.items if found is not None else ()
    rows = [
        Cost(
            name=item.name or NO_NAME,
            gpus=round(item.gpu_hours),
            hourly=item.cost_usd,
            lost=lost.pop(item.name, NOTHING_LOST),
        )
        for item in items
    ]
    rows += [Cost(name=name or NO_NAME, lost=work) for name, work in lost.items()]
    if found is not None and found.idle_cost_usd:
        rows.append(Cost(name="", hourly=found.idle_cost_usd))
    return tuple(sorted(rows, key=lambda row: (-row.hourly, -row.lost.cost, row.name)))


def _lost_by(lost: Losses, by: CostBy, hours: Iterable[CostHour]) -> dict[str, LostWork]:
    """Lost work by a dimension; of workloads without present cost only the namespace is known, which is the team."""
    owners: dict[str, CostOwner] = {row.owner.workload: row.owner for row in hours}
    found: dict[str, LostWork] = {}
    for (_, workload), work in lost.items():
        owner = owners.get(workload)
        if owner is not None:
            name = str(getattr(owner, by.value.replace("-", "_")))
        else:
            name = workload.split("/")[-2] if by is CostBy.TEAM and "/" in workload else ""
        found[name] = found.get(name, NOTHING_LOST) + work
    return found


class CostScreen(ConsoleScreen):
    """Node pools above; cost by queue, team, workload and others below, now or in a recorded day or month."""

    view = "cost"

    def __init__(self) -> None:
        super().__init__()
        self.groups = (ObjectActions(self),)
        self._by = ORDER[0]
        self._period = PERIODS[0]
        self._shown: ShownCosts | None = None
        self._read: tuple[Time, PeriodCosts] | None = None
        """The minute in which a period was read, and its costs."""
        self._bills = SnapshotWorker(self, self._sum_up, self._show_bill, reads=True)

    def body(self) -> ComposeResult:
        yield Lines(id="bill")
        yield Grid(POOLS, key=lambda row: row.pool.name, empty="No nodes.", id="pools")
        yield Grid(cost_columns(self._by, 0.0), key=lambda row: row.name, empty="No cost.", id="shares")

    def show(self, snapshot: Snapshot) -> None:
        self._bills.ask(snapshot)

    def _sum_up(self, snapshot: Snapshot) -> ShownCosts:
        window = "in this session" if self.console.keeps_history else AT_HAND
        try:
            lost = self.console.losses()
        except ConsoleError:
            # The header shows why there is no history; the newest events are available nevertheless.
            lost, window = lost_by(snapshot.recent), AT_HAND
        prices, by, period = self.console.prices, self._by, self._period
        bill = cost_report(snapshot, prices, lost)
        loans = loan_rates(snapshot, {row.name: row.hourly for row in bill.by[By.WORKLOAD]})
        return ShownCosts(
            by=by,
            bill=bill,
            loans=loans,
            queues={key: snapshot.workloads[key].cluster_queue for key in loans.borrowed},
            lost=lost,
            window=window,
            rates=present_rates(snapshot, prices, self.console.cost_labels) if by not in _OF_RATES else (),
            period=self._costs_of(period, snapshot.time) if period is not None else None,
        )

    def _costs_of(self, period: CostPeriod, now: Time) -> PeriodCosts:
        """Read the costs of a period, at most once a minute of the cluster's time."""
        if self._read is not None and self._read[0] == now // MINUTE and self._read[1].period is period:
            return self._read[1]
        window = period_window(period, now)
        newest = self.console.newest.time
        until = min(newest, next_multiple(now, HOUR)) if now < newest and window[1] == now else None
        try:
            costs = PeriodCosts(period, window, tuple(self.console.cost_sums(*window)), until=until)
        except ConsoleError as error:
            costs = PeriodCosts(period, window, (), str(error))
        self._read = now // MINUTE, costs
        return costs

    def _show_bill(self, found: ShownCosts) -> None:
        self._shown = found
        self._pools.show(found.bill.pools)
        self._show_shares()

    def _show_shares(self) -> None:
        shown = self._shown
        if shown is None:
            return
        lines, shares = self.query_one("#bill", Lines), self.query_one("#shares", Grid)
        if shown.period is None:
            lines.lines = summary(shown.bill, shown.window)
            shares.columns = cost_columns(shown.by, shown.bill.hourly, shown.by_row())
            shares.show(present_rows(shown))
            return
        costs = shown.period
        found = cost_summary(costs.rows, shown.by, costs.window)
        lines.lines = period_summary(costs, found)
        shares.columns = period_columns(shown.by, found.total_cost_usd)
        shares.show(period_items(found))

    @property
    def _pools(self) -> Grid[PoolCost]:
        return self.query_one("#pools", Grid)

    def handlers(self) -> Handlers:
        windows = {"window.longer": lambda: self._turn_window(1), "window.shorter": lambda: self._turn_window(-1)}
        return {
            **super().handlers(),
            "object.open": self._open,
            "cost.by": self._turn,
            **(windows if self.console.keeps_history else {}),
        }

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
        self._by = ORDER[(ORDER.index(self._by) + 1) % len(ORDER)]
        self.redraw()
        self.flash(f"Grouped by {self._by.value.replace('-', ' ').replace('gpu', 'GPU')}")

    def _turn_window(self, steps: int) -> None:
        place = PERIODS.index(self._period) + steps
        if not 0 <= place < len(PERIODS):
            self.flash("Last month is the last window" if steps > 0 else "The present is the first window")
            return
        self._period = PERIODS[place]
        self.redraw()

    def _target(self) -> ViewTarget | None:
        """The view that shows the selected row."""
        if self.grid is self._pools:
            return _of_pool(self._pools.current)
        row = self.query_one("#shares", Grid).current
        name = row.name if row is not None else ""
        if not name or name in (IDLE, SYSTEM, NO_NAME):
            return None
        match self._by:
            case CostBy.QUEUE:
                return ViewTarget("queues", at=name)
            case CostBy.NAMESPACE | CostBy.TEAM:
                return ViewTarget("workloads", filtered=f"^{re.escape(name)}/")
            case CostBy.WORKLOAD:
                return ViewTarget("workloads", at=name)
            case _:
                return None

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
