"""Node scores screen: for one pod, the scheduler's filter result and plugin scores of each node, computed in a fork."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from textual.app import ComposeResult

from gpuconsole.errors import ConsoleError
from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.cooperative import Progress
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.placement import NodeRow, ScoreColumn, ScoreTable
from gpuconsole.services.analysis import AnalysisService
from gpuconsole.ui import format as fmt
from gpuconsole.ui.actions import Handlers
from gpuconsole.ui.paint import GLYPHS, Cell, Painted, join
from gpuconsole.ui.screens.background import LongAnswer
from gpuconsole.ui.screens.base import ConsoleScreen, Subject
from gpuconsole.ui.screens.node_actions import NodeActions
from gpuconsole.ui.screens.objects import ObjectActions
from gpuconsole.ui.table_model import Column
from gpuconsole.ui.widgets.dialogs import ChoiceOption
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.painter import Lines, PaneState, StatusLine, notice

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
    """Shorten a plugin's name so that it fits a column head."""
    return SHORT.get(plugin, plugin)[:LONGEST]


def verdict(row: NodeRow) -> Cell:
    """Format the result for a node: chosen, feasible, refused with the plugin, or not evaluated."""
    if row.chosen:
        return (("● chosen", "running"),)
    if not row.fits:
        return ((f"{GLYPHS['fault']} {row.refusal}", "fault"),)
    return (("○ feasible", "good"),) if row.sampled else (("○ not evaluated (enough feasible nodes)", "dim"),)


def _order(row: NodeRow) -> tuple[bool, bool, int]:
    return (row.chosen, row.fits, row.total)


def score_columns(table: ScoreTable) -> tuple[Column[NodeRow], ...]:
    """Return the table's columns: node, verdict, total, and the weighted score of each plugin.

    A score is dim where the plugin skipped the pod.
    """
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
    """Sort rows: the chosen node, feasible nodes by descending score, then refused nodes."""
    return sorted(rows, key=lambda row: (not row.chosen, not row.fits, -row.total))


def summary(table: ScoreTable) -> Painted:
    """Format the scheduler's choice for the pod: the chosen node, ties, and the number of feasible nodes."""
    fits = sum(row.fits for row in table.rows)
    head: Painted = ((f" {table.pod} ", "title"), (f" {table.scheduler}: ", "dim"))
    if not table.chosen:
        return (*head, (f"none of {fmt.number(len(table.rows))} nodes is feasible", "fault"))
    tie = (
        f" (tie broken at random with {', '.join(table.ties[:3])}{' …' if len(table.ties) > 3 else ''})"
        if table.ties
        else ""
    )
    return (*head, (table.chosen, "strong"), (f"{tie}; {fits}/{fmt.number(len(table.rows))} nodes feasible", ""))


def about(table: ScoreTable, row: NodeRow) -> tuple[Cell, ...]:
    """Return lines about the node under the cursor: the calculation of each score, or every filter that refuses it."""
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


UNKNOWN = ScoreTable(pod="", scheduler="", filters=(), plugins=(), rows=())


class ScoresAnswer(NamedTuple):
    """A computed score table with its time; no table if the scheduler does not score nodes."""

    time: Time
    table: ScoreTable | None


def candidates(snapshot: Snapshot, workload: Workload) -> list[Pod]:
    """The pods of a workload, unscheduled ones first; without pods, one template pod of each pod set."""
    pods = [pod for pod in snapshot.pods.all() if pod.workload == workload.key and not pod.done]
    if pods:
        return sorted(pods, key=lambda pod: (bool(pod.node), pod.pod_set, pod.index, pod.name))
    return [
        Pod(
            namespace=workload.namespace,
            name=f"{workload.name}-{pod_set.name}",
            template=pod_set.template,
            labels=pod_set.template.labels,
            priority=workload.priority,
        )
        for pod_set in workload.pod_sets
    ]


class ScoresScreen(ConsoleScreen):
    """Score table of one pod of a workload; ctrl+r recomputes it, f selects another pod."""

    def __init__(self, pods: Sequence[Pod]) -> None:
        super().__init__()
        self.groups = (ObjectActions(self), NodeActions(self))
        self._pods = pods
        self._pod = pods[0]
        self._table = UNKNOWN
        self._run = LongAnswer(self, self._steps, self._came, self._failed)

    def crumb(self) -> str:
        return "node scores"

    def body(self) -> ComposeResult:
        yield StatusLine(id="summary")
        yield Grid(
            score_columns(UNKNOWN),
            key=lambda row: row.node,
            fault=lambda row: not row.fits,
            empty="No nodes.",
            id="scores",
        )
        yield Lines(id="about")

    def on_mount(self) -> None:
        self._run.start()

    def show(self, snapshot: Snapshot) -> None:
        if self._run.is_outdated:
            self._run.start()

    @property
    def _grid(self) -> Grid[NodeRow]:
        return self.query_one("#scores", Grid)

    def subject(self) -> Subject | None:
        row = self._grid.current
        return Subject("nodes", row.node) if row is not None and row.node in self.snapshot.nodes else None

    def handlers(self) -> Handlers:
        return {**super().handlers(), "app.refresh": self._run.start, "workload.scores": self._choose}

    def picked(self, row: object) -> None:
        self._show_about()
        self.refresh_frame()

    def _choose(self) -> None:
        options = [
            ChoiceOption(pod.key, pod.name, detail=((pod.node or "not scheduled", "dim"),)) for pod in self._pods
        ]
        self.dialogs.choose("Node scores of pod", options, self._take, chosen=self._pod.key)

    def _take(self, key: str) -> None:
        self._pod = next(pod for pod in self._pods if pod.key == key)
        self._run.start()

    def _steps(self, answers: AnalysisService) -> Iterator[Progress[ScoresAnswer]]:
        newest = self.console.snapshot
        table = answers.scores(newest.pods.get(self._pod.key) or self._pod)
        yield Progress(answer=ScoresAnswer(newest.time, table), last=True)

    def _failed(self, error: ConsoleError) -> None:
        self._show_status(notice(PaneState.FAILED, str(error)), self.console.snapshot.time)
        self._grid.say(PaneState.EMPTY, str(error))

    def _show_status(self, text: Painted, time: Time) -> None:
        status = self.query_one("#summary", StatusLine)
        status.left, status.right = text, ((f"as of {fmt.clock(time)} ", "dim"),)

    def _came(self, progress: Progress[ScoresAnswer]) -> None:
        found = progress.answer
        assert found is not None
        if found.table is None:
            words = "this scheduler does not score nodes"
            self._show_status(notice(PaneState.EMPTY, words), found.time)
            self._grid.say(PaneState.EMPTY, words)
            return
        self._table = found.table
        self._show_status(summary(self._table), found.time)
        self._grid.columns = score_columns(self._table)
        self._grid.show(best_first(self._table.rows))
        self._show_about()
        self.refresh_frame()

    def _show_about(self) -> None:
        row = self._grid.current
        lines = about(self._table, row) if row is not None else ()
        message = self._table.message
        event_line = tuple(
            ((f" {GLYPHS['fault']} FailedScheduling  ", "fault"), (text, "")) for text in [message] if text
        )
        self.query_one("#about", Lines).lines = (*event_line, *lines)
