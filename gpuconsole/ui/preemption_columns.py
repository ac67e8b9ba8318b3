"""Columns of the preemption history: victim, preemptor, rule, lost work."""

from collections.abc import Sequence

from gpuconsole.insight.preemption.history import ACTIONS, RULES, PreemptionRow
from gpuconsole.model.decisions import PreemptionRule
from gpuconsole.model.device_units import short_amount
from gpuconsole.ui import format as fmt
from gpuconsole.ui.columns import Column, with_room_for_units
from gpuconsole.ui.names import called
from gpuconsole.ui.paint import GLYPHS, Cell

SHORT = {
    RULES[PreemptionRule.IN_CLUSTER_QUEUE]: "priority",
    RULES[PreemptionRule.IN_COHORT_RECLAMATION]: "reclaim",
    RULES[PreemptionRule.IN_COHORT_FAIR_SHARING]: "fair sharing",
    RULES[PreemptionRule.IN_COHORT_RECLAIM_WHILE_BORROWING]: "borrowing",
    ACTIONS["reclaim"]: "reclaim",
    ACTIONS["gangreclaim"]: "reclaim",
    ACTIONS["gangpreempt"]: "priority",
    ACTIONS["consolidation"]: "moved",
}
"""Short names of rules; the lines below the table explain the row under the cursor."""


def key_of(row: PreemptionRow) -> str:
    """The key of a preemption."""
    return f"{row.time} {row.victim} {row.by}"


def _priorities(row: PreemptionRow) -> str:
    return f"{_short(row.priority)} ← {_short(row.by_priority)}"


def _short(priority: int | None) -> str:
    if priority is None:
        return fmt.NOTHING
    return f"{priority / 1000:g}k" if abs(priority) >= 10_000 and priority % 100 == 0 else str(priority)


def _took(row: PreemptionRow) -> str:
    if row.latency is None:
        return fmt.NOTHING if row.unseen else "…"
    return f"{'≤' if row.at_most else ''}{fmt.age(row.latency)}"


def _nth(row: PreemptionRow) -> Cell:
    return ((f"⟲{row.nth}", "fault" if row.thrash else "dim"),) if row.nth > 1 else ""


PREEMPTIONS: tuple[Column[PreemptionRow], ...] = (
    Column("WHEN", lambda row: fmt.clock(row.time), id="age", width=8, sort=lambda row: row.time, down=True),
    Column(
        "VICTIM",
        lambda row: ((f"{GLYPHS['victim']} ", "victim"), (called(row.victim), "")),
        id="name",
        width=18,
        flex=1,
        sort=lambda row: row.victim,
    ),
    Column(
        "GPUS",
        lambda row: fmt.NOTHING if row.gpus is None else short_amount(row.gpus, row.unit),
        id="usage",
        width=4,
        align="right",
        sort=lambda row: row.gpus or 0,
        down=True,
    ),
    Column("← BY", lambda row: f"← {called(row.by)}", id="by", width=18, flex=1, sort=lambda row: row.by),
    Column("RULE", lambda row: SHORT.get(row.rule, row.rule), id="status", width=12, sort=lambda row: row.rule),
    Column("PRIORITY", _priorities, id="priority", width=11, sort=lambda row: row.priority or 0, rank=1),
    Column(
        "LOST",
        lambda row: "–" if row.lost_gpu_hours is None else f"{row.lost_gpu_hours:.1f}h",
        id="lost",
        width=6,
        align="right",
        sort=lambda row: row.lost_gpu_hours or 0.0,
        down=True,
    ),
    Column(
        "COST",
        lambda row: "–" if row.cost is None else fmt.money(row.cost),
        id="cost",
        width=9,
        align="right",
        sort=lambda row: row.cost or 0.0,
        down=True,
        rank=2,
    ),
    Column(
        "TERMINATION",
        _took,
        id="took",
        width=11,
        align="right",
        sort=lambda row: row.latency or 0,
        down=True,
        rank=2,
    ),
    Column("", _nth, id="times", width=3, sort=lambda row: row.nth, down=True),
)
"""LOST is in GPU-hours; TERMINATION is the time from the preemption until the victim was gone."""


def preemption_columns(rows: Sequence[PreemptionRow]) -> tuple[Column[PreemptionRow], ...]:
    """The columns for these rows: with more room for units where not all of them are GPUs."""
    return with_room_for_units(PREEMPTIONS, (row.unit for row in rows))
