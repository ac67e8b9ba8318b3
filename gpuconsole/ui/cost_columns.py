"""Columns and summary lines of the cost screen."""

from collections.abc import Callable
from typing import TypeVar

from gpuconsole.insight.cost import By, Cost, CostReport, PoolCost
from gpuconsole.insight.preemption.history import LostWork
from gpuconsole.model.device_units import WHOLE_GPU, short_plural
from gpuconsole.model.resources import format_quantity, short
from gpuconsole.ui import format as fmt
from gpuconsole.ui.columns import Column
from gpuconsole.ui.names import called
from gpuconsole.ui.paint import GLYPHS, Cell, Painted, join
from gpuconsole.ui.widgets.bars import USED

T = TypeVar("T")
BAR = 16
AUTOSCALERS = {"karpenter": "Karpenter", "cluster-autoscaler": "CA", "": fmt.NOTHING}


def rate(dollars: float, role: str = "") -> Cell:
    """USD, or a dash."""
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
