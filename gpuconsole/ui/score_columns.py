"""Columns of the scheduling scores of one pod, one for each score plugin, and lines about a node."""

from collections.abc import Sequence

from gpuconsole.scheduling.placement import NodeRow, ScoreColumn, ScoreTable
from gpuconsole.ui import format as fmt
from gpuconsole.ui.columns import Column
from gpuconsole.ui.paint import GLYPHS, Cell, Painted, join

SHORT = {
    "NodeResourcesFit": "Fit",
    "NodeResourcesBalancedAllocation": "Balanced",
    "NodeAffinity": "Affinity",
    "TaintToleration": "Taints",
    "PodTopologySpread": "Spread",
    "InterPodAffinity": "Pods",
    "ImageLocality": "Images",
}
LONGEST = 9


def short(plugin: str) -> str:
    """A plugin's name, short enough for a column head."""
    return SHORT.get(plugin, plugin)[:LONGEST]


def verdict(row: NodeRow) -> Cell:
    """Chosen, feasible, refused with the plugin, or not evaluated."""
    if row.chosen:
        return (("● chosen", "running"),)
    if not row.fits:
        return ((f"{GLYPHS['fault']} {row.refusal}", "fault"),)
    return (("○ feasible", "good"),) if row.sampled else (("○ not evaluated (enough feasible nodes)", "dim"),)


def _order(row: NodeRow) -> tuple[bool, bool, int]:
    return (row.chosen, row.fits, row.total)


def score_columns(table: ScoreTable) -> tuple[Column[NodeRow], ...]:
    """Node, verdict, total, and the weighted score of each plugin, dim where the plugin skipped the pod."""
    return (
        Column("NODE", lambda row: row.node, id="name", width=14, flex=2, sort=lambda row: row.node),
        Column("VERDICT", verdict, id="status", width=20, flex=4, sort=_order, down=True),
        Column("TOTAL", _total, id="usage", width=6, align="right", sort=lambda row: row.total, down=True),
        *(_plugin(index, column) for index, column in enumerate(table.plugins)),
    )


def _total(row: NodeRow) -> Cell:
    return ((fmt.number(row.total), "strong"),) if row.scores else ((fmt.NOTHING, "dim"),)


def _plugin(index: int, column: ScoreColumn) -> Column[NodeRow]:
    def cell(row: NodeRow) -> Cell:
        if not row.scores:
            return ((fmt.NOTHING, "dim"),)
        return ((fmt.number(row.scores[index].weighted), "dim" if column.skipped else ""),)

    title = short(column.plugin) + (f"×{column.weight}" if column.weight != 1 else "")
    return Column(
        title,
        cell,
        id=f"plugin-{index}",
        width=max(5, len(title)),
        align="right",
        sort=lambda row: row.scores[index].weighted if row.scores else -1,
        down=True,
        rank=1 + column.skipped,
    )


def best_first(rows: Sequence[NodeRow]) -> list[NodeRow]:
    """The chosen node, feasible nodes by descending score, then refused nodes."""
    return sorted(rows, key=lambda row: (not row.chosen, not row.fits, -row.total))


def summary(table: ScoreTable) -> Painted:
    """The scheduler's choice."""
    fits = sum(row.fits for row in table.rows)
    head: Painted = ((f" {table.pod} ", "title"), (f" {table.scheduler}: ", "dim"))
    if not table.chosen:
        return (*head, (f"none of {fmt.number(len(table.rows))} nodes is feasible", "fault"))
    tie = (
        f" (tie broken at random with {', '.join(table.tie[:3])}{' …' if len(table.tie) > 3 else ''})"
        if table.tie
        else ""
    )
    return (*head, (table.chosen, "strong"), (f"{tie}; {fits}/{fmt.number(len(table.rows))} nodes feasible", ""))


def about(table: ScoreTable, row: NodeRow) -> tuple[Cell, ...]:
    """The node under the cursor: the calculation of each score, or every filter that refuses it."""
    head: Cell = ((f" {row.node}  ", "strong"), *verdict(row))
    if not row.fits:
        refused = zip(table.filters, row.verdicts, strict=False)
        return (head, *(((f"   {column.plugin}  ", "dim"), (text, "")) for column, text in refused if text))
    parts: list[Cell] = [
        ((f"{column.plugin} ", "dim"), (_sum(column.weight, score.normalised, score.weighted, score.raw), ""))
        for column, score in zip(table.plugins, row.scores, strict=False)
        if not column.skipped
    ]
    return (head, *(join((" ", *parts[at : at + 3]), "   ") for at in range(0, len(parts), 3)))


def _sum(weight: int, normalised: int, weighted: int, raw: int) -> str:
    made = f"{normalised}×{weight}={weighted}"
    return made if raw == normalised else f"{raw:,}→{made}"
