"""The dashboard: an overview of the cluster whose panes lead to the details."""

import logging
from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal

from gpuconsole.errors import ConsoleError
from gpuconsole.insight.health.alerts import Alert, AlertKind
from gpuconsole.insight.index.gpu_map import GpuRow, gpu_rows
from gpuconsole.insight.index.quota_tree import NodeKind, QuotaNode
from gpuconsole.insight.overview import Dashboard, GpuTotals, LastHour, UnitTotals, Waiting, dashboard, last_hour
from gpuconsole.insight.preemption.history import at_least
from gpuconsole.model.devices import WHOLE_GPU, by_kind, described
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui import format as fmt
from gpuconsole.ui.actions import Action, Handlers
from gpuconsole.ui.names import called, named
from gpuconsole.ui.paint import Cell, Painted, join, painted
from gpuconsole.ui.queue_table import (
    COLUMNS,
    FOLDED,
    GPUS,
    TreeRow,
    hide_incomplete_alerts,
    hide_incomplete_queues,
    kueue_alerts,
    tree_rows,
)
from gpuconsole.ui.screens.background import SnapshotWorker, TrendReader
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.table_model import Column
from gpuconsole.ui.widgets.gpumap import GpuMap
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.painter import Lines, gauge, spark
from gpuconsole.ui.widgets.trends import WHOLE_CLUSTER, Trend, TrendPane

LOG = logging.getLogger(__name__)
URGENT = (
    AlertKind.KUEUE,
    AlertKind.DEADLOCK,
    AlertKind.NODE_DOWN,
    AlertKind.QUEUE_INACTIVE,
    AlertKind.THRASH,
    AlertKind.STARVED,
)
PLACES = {"nodes": "nodes", "workloads": "workloads", "jobs": "workloads", "pods": "nodes"}
"""Table of an object → the view to open for it; other tables open the queues view."""


def _trouble(one: Alert) -> Painted:
    return (("⚠", "fault" if one.trouble in URGENT else "pending"),)


QUEUES: tuple[Column[TreeRow], ...] = tuple(column for column in COLUMNS if column.id not in ("drs", "policy"))
ATTENTION: tuple[Column[Alert], ...] = (
    Column("", _trouble, width=1),
    Column("NEEDS ATTENTION", lambda one: named(one.text), id="name", width=30, flex=1),
    Column("GPUs", lambda one: f"{one.gpus:,}" if one.gpus else "", width=6, align="right", rank=1),
)


class DashboardScreen(ConsoleScreen):
    """GPUs, pending work, the last hour, queues, problems, GPU map."""

    view = "dashboard"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-roomy")]
    VERTICAL_BREAKPOINTS = [(0, "-low"), (32, "-high"), (44, "-tall")]

    def __init__(self) -> None:
        super().__init__()
        self._answers = SnapshotWorker(self, _answer, self._show_answer)
        self._hours = SnapshotWorker(self, self._count_hour, self._show_hour, reads=True)
        self._trends = TrendReader(self, self._show_trend)
        self._summary: tuple[Sequence[Cell], ...] = (("", "", ""),) * 3
        """The lines of the first three panels."""
        self._window = "Last hour"
        """Title of the third panel."""

    def body(self) -> ComposeResult:
        with Horizontal(id="summary"):
            yield Lines(id="gpus", classes="panel")
            yield Lines(id="waiting", classes="panel")
            yield Lines(id="lately", classes="panel")
        yield Lines(id="brief")
        yield TrendPane(id="trends", classes="panel")
        yield Grid(QUEUES, key=lambda row: row.path, empty="No queues.", id="dash-queues", classes="panel")
        yield Grid(
            ATTENTION,
            key=lambda one: f"{one.trouble} {one.table} {one.key}",
            empty="Nothing needs attention.",
            header=False,
            id="attention",
            classes="panel",
        )
        yield GpuMap(id="map", classes="panel")

    def on_mount(self) -> None:
        titles = {"gpus": "GPUs", "waiting": "Pending", "lately": "Last hour", "dash-queues": "Queues"}
        titles |= {"attention": "Needs attention", "map": "GPU map"}
        for id, title in titles.items():
            self.query_one(f"#{id}").border_title = title

    def show(self, snapshot: Snapshot) -> None:
        self._answers.ask(snapshot)
        if self.console.keeps_history:
            self._hours.ask(snapshot)
        else:
            self._show_hour(self.console.last_hour())
        self._trends.ask(snapshot, WHOLE_CLUSTER)

    def _show_trend(self, trend: Trend | None) -> None:
        self.query_one(TrendPane).trend = trend

    def _count_hour(self, snapshot: Snapshot) -> LastHour:
        try:
            return self.console.last_hour()
        except ConsoleError as error:
            LOG.warning("The last hour is counted over the newest events only: %s", error)
            return last_hour(snapshot.recent, snapshot.time)

    def _show_hour(self, hour: LastHour) -> None:
        self._summary = *self._summary[:2], lately_lines(hour)
        self._window = window(hour)
        panel = self.query_one("#lately", Lines)
        panel.lines, panel.border_title = lately_lines(hour), self._window
        self._show_brief()

    def _show_brief(self) -> None:
        gpus, waiting, lately = self._summary
        self.query_one("#brief", Lines).lines = brief_lines(gpus, waiting, lately, self._window)

    def _show_answer(self, answer: tuple[Dashboard, Sequence[GpuRow]]) -> None:
        numbers, cells = answer
        status = self.console.status
        nodes = status.unseen({"nodes"})
        gpus = gpu_lines(numbers.gpus, nodes)
        waiting = waiting_lines(numbers.waiting, numbers.time)
        self.query_one("#gpus", Lines).lines = gpus
        self.query_one("#waiting", Lines).lines = waiting
        self._summary = gpus, waiting, self._summary[2]
        self._show_brief()
        self.query_one("#dash-queues", Grid).show(
            queue_rows(hide_incomplete_queues(numbers.queues, status), numbers.time)
        )
        troubles = [*kueue_alerts(status), *hide_incomplete_alerts(numbers.attention, numbers.queues, status)]
        self.query_one("#attention", Grid).show(troubles)
        self.query_one(GpuMap).show(cells, empty=nodes or "No nodes.")

    def handlers(self) -> Handlers:
        own = {"object.open": self._open, "object.explain": self._explain}
        return {**super().handlers(), **self._trends.handlers(), **own}

    def refusal(self, action: Action) -> str:
        if action.id == "object.open" and isinstance(self.focused, Grid) and self.focused.current is None:
            return "nothing is selected"
        if action.id == "object.explain" and self._explanation() == "":
            return "nothing to explain for this row"
        return super().refusal(action)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        self.call_after_refresh(self.show_keys)

    def _explanation(self) -> str:
        """Full text of the selected row."""
        row = self.focused.current if isinstance(self.focused, Grid) else None
        match row:
            case TreeRow():
                return row.node.problem
            case Alert():
                return named(row.text)
        return ""

    def _explain(self) -> None:
        self.flash(self._explanation())

    def _open(self) -> None:
        """Open the selected row of the focused pane."""
        if isinstance(self.focused, GpuMap):
            self.console_app.go("nodes", at=self.focused.cursor_key)
            return
        row = self.focused.current if isinstance(self.focused, Grid) else None
        match row:
            case TreeRow():
                self.console_app.go("queues", at=row.node.name)
            case Alert():
                self.console_app.go(PLACES.get(row.table, "queues"), at=row.key)


def _answer(snapshot: Snapshot) -> tuple[Dashboard, Sequence[GpuRow]]:
    return dashboard(snapshot), gpu_rows(snapshot)


def queue_rows(roots: Sequence[QuotaNode], now: int = 0) -> list[TreeRow]:
    """Return the tree rows of cohorts and ClusterQueues; LocalQueues are shown on the queues screen only."""
    rows = tree_rows(roots, {}, GPUS, now)
    folded = {
        row.path: FOLDED
        for row in rows
        if row.node.kind not in (NodeKind.COHORT, NodeKind.VOLCANO_QUEUE, NodeKind.KAI_QUEUE)
    }
    return tree_rows(roots, folded, GPUS, now)


def gpu_lines(gpus: GpuTotals, unseen: str = "") -> tuple[Cell, ...]:
    """Return lines with the GPU totals by state; where no node is visible, with the reason `unseen`."""
    if not gpus.total and unseen:
        return (((f"⊘ {unseen}", "held"),), "", "")
    if not gpus.total:
        return ((("○ no GPUs, MIG instances or DRA devices in this cluster", "dim"),), "", "")
    at_least = "at least " if gpus.unknown else ""
    first = (*join([_in_use(one, at_least) for one in _few(gpus.units)], ", "), (" in use  ", ""))
    states = [
        _number(gpus.unknown, "?", "unknown", "unknown") if gpus.unknown else _number(gpus.idle, "○", "idle", "idle"),
        _number(gpus.faulty, "⚠", "faulty", "fault"),
        _number(gpus.held, "⏸", "held", "held"),
        _number(gpus.borrowed, "▲", "borrowed", "borrowed"),
    ]
    gang = "unknown" if gpus.unknown and gpus.largest_gang is None else fmt.gang_with_limits(gpus.largest_gang)
    fits: Painted = (("largest gang: ", "dim"), (gang, ""))
    return ((*first, *gauge(gpus.in_use, gpus.total, 14)), join(states, " "), fits)


def _in_use(one: UnitTotals, at_least: str) -> Painted:
    """`3 of 14 MIG 1g.10gb instances`; for whole GPUs the unit is omitted."""
    unit = "" if one.unit == WHOLE_GPU else f" {one.unit.noun}{'' if one.total == 1 else 's'}"
    return (f"{at_least}{one.in_use:,}", "strong"), (f" of {one.total:,}{unit}", "")


def _few(units: Sequence[UnitTotals]) -> Sequence[UnitTotals]:
    """Totals by unit, or by kind if there are more than two units: MIG instances of all profiles together."""
    if len(units) <= 2:
        return units
    totals = by_kind({one.unit: one.total for one in units})
    used, idle = by_kind({one.unit: one.in_use for one in units}), by_kind({one.unit: one.idle for one in units})
    return [UnitTotals(unit, total, used.get(unit, 0), idle.get(unit, 0)) for unit, total in totals.items()]


def _number(value: int, glyph: str, word: str, role: str) -> Painted:
    return ((f"{glyph} {value:,} {word}", role if value else "dim"),)


def window(hour: LastHour) -> str:
    """Window of the last-hour totals: `Last hour`, or `Since 08:52:10` if older events are not available."""
    return "Last hour" if hour.whole else f"Since {fmt.clock(hour.since)}"


def brief_lines(gpus: Sequence[Cell], waiting: Sequence[Cell], lately: Sequence[Cell], hour: str) -> tuple[Cell, ...]:
    """The three panels in one, for narrow screens; `hour` is the window of the last one."""
    rows = (
        ("GPUs", gpus[0], _without_zeros(gpus[1])),
        ("", gpus[2]),
        ("Pending", waiting[0], waiting[2]),
        ("", waiting[1]),
        (hour, *lately[:2]),
        ("", lately[2]),
    )
    width = max(10, len(hour) + 1)
    return tuple(((f" {name:<{width}}", "title"), *join(cells)) for name, *cells in rows)


def _without_zeros(cell: Cell) -> Cell:
    """Only the states with a count above 0 (the others are dim)."""
    return tuple(piece for piece in painted(cell) if piece[1] not in ("dim",))


def waiting_lines(waiting: Waiting, now: int) -> tuple[Cell, ...]:
    """Number of pending workloads, and what they wait for."""
    checks: Cell = ((f"⏸ {waiting.checking:,} in admission checks: {described(waiting.checking_units)}", "held"),)
    if not waiting.in_all:
        return (("✓ no pending workloads", "good"),), "", ""
    first: Painted = (
        ("◐ ", "pending"),
        (f"{waiting.in_all:,}", "strong"),
        (f" {_noun(waiting.in_all, 'workload')}, {described(waiting.units)}", ""),
    )
    oldest = f"oldest {called(waiting.oldest)}, {fmt.since(now, waiting.oldest_since)}" if waiting.oldest else ""
    causes = f"{waiting.by_quota:,} for quota, {waiting.by_nodes:,} for nodes"
    more = (
        (waiting.checking, "for admission checks"),
        (waiting.by_resource_quota, "for ResourceQuota"),
        (waiting.otherwise, "other"),
    )
    causes = ", ".join([causes, *(f"{number:,} {how}" for number, how in more if number)])
    return (first, oldest, causes) if not waiting.checking else (first, checks, causes)


def lately_lines(lately: LastHour) -> tuple[Cell, ...]:
    """Totals of the last hour, or of the window named in the panel's title."""
    hours = at_least(f"{lately.lost_gpu_hours:,.1f}", lately.unknown, lately.losses)
    cost = at_least(fmt.money(lately.cost), lately.unpriced, lately.losses)
    lost: Painted = (
        ("lost     ", ""),
        (f"{hours} GPU-h", "victim" if lately.losses else "dim"),
        (f" cost {cost}" if cost == "unknown" else f" {cost}", "dim"),
    )
    return (
        _sparks("admitted ", f"{lately.admitted:,}", lately.admitted_bins, "running"),
        _sparks("preempted", f"{lately.preempted:,}", lately.preempted_bins, "victim"),
        lost,
    )


def _sparks(word: str, number: str, bins: tuple[int, ...], role: str) -> Painted:
    return ((f"{word} ", ""), (f"{number:>4} ", "strong"), (spark(bins), role))


def _noun(number: int, noun: str) -> str:
    return noun if number == 1 else f"{noun}s"
