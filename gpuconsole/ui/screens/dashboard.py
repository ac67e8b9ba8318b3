"""The dashboard: an overview of the cluster whose panes lead to the details."""

import dataclasses
import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice

from msgspec.structs import replace
from textual import events
from textual.app import ComposeResult

from gpuconsole.errors import ConsoleError
from gpuconsole.insight.cost.rates import By, CostReport, cost_report
from gpuconsole.insight.health.alerts import Alert, AlertKind
from gpuconsole.insight.history_charts import QueuePair, preemption_matrix
from gpuconsole.insight.index.gpu_map import GpuRow, gpu_rows
from gpuconsole.insight.index.quota_tree import NodeKind, QuotaNode, every
from gpuconsole.insight.overview import Dashboard, GpuTotals, LastHour, UnitTotals, Waiting, dashboard, last_hour
from gpuconsole.insight.preemption.history import at_least, rows
from gpuconsole.insight.series import GpuSample, gpu_samples
from gpuconsole.insight.timeline import Repeated, folded
from gpuconsole.model.clock import HOUR, MINUTE
from gpuconsole.model.devices import WHOLE_GPU, by_kind, described
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui import format as fmt
from gpuconsole.ui.actions import Action, Handlers
from gpuconsole.ui.event_table import event_cell, reason_of, subject_of
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
from gpuconsole.ui.widgets.dialogs import ChoiceOption
from gpuconsole.ui.widgets.gpumap import GpuMap
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.painter import Lines, gauge, spark
from gpuconsole.ui.widgets.panels import Panel, PanelArea, PanelLayout, arrange
from gpuconsole.ui.widgets.trends import CHART, WHOLE_CLUSTER, Trend, TrendPane

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


def _oldest(row: TreeRow) -> Cell:
    since = row.node.oldest
    return ((fmt.age(row.now - since), "pending"),) if since is not None else ((fmt.NOTHING, "dim"),)


OLDEST: Column[TreeRow] = Column("OLDEST", _oldest, id="oldest", width=6, align="right")
QUEUES: tuple[Column[TreeRow], ...] = (
    *(
        dataclasses.replace(column, rank=1) if column.name == "running" else column
        for column in COLUMNS
        if column.id not in ("drs", "policy")
    ),
    OLDEST,
)
ATTENTION: tuple[Column[Alert], ...] = (
    Column("", _trouble, width=1),
    Column("NEEDS ATTENTION", lambda one: named(one.text), id="name", width=30, flex=1),
    Column("GPUs", lambda one: f"{one.gpus:,}" if one.gpus else "", width=6, align="right", rank=1),
)


EVENTS: tuple[Column[Repeated], ...] = (
    Column("TIME", lambda row: fmt.clock(row.line.time), id="age", width=8),
    Column("EVENT", event_cell, id="status", width=13),
    Column("OBJECT", subject_of, id="name", width=16, flex=1),
    Column("REASON", reason_of, width=12, flex=2, rank=1),
)
LISTED = (HistoryEventKind.ADMITTED, HistoryEventKind.PREEMPTED)
"""Kinds of the listed events."""
LONGEST_LIST = 60
"""Number of listed events."""

PANELS = (
    Panel(id="gpus", title="GPUs", group="totals", width=44, height=3, rank=3),
    Panel(id="waiting", title="Pending", group="totals", width=34, height=3, rank=4),
    Panel(id="lately", title="Last hour", group="totals", width=34, height=3, rank=5),
    Panel(id="cost", title="Cost", group="totals", width=28, height=3, rank=9),
    Panel(id="dash-queues", title="Queues", group="lists", width=88, height=8),
    Panel(id="attention", title="Needs attention", group="lists", width=52, height=3, rank=2),
    Panel(id="trends", title="Trends", group="recent", width=74, height=4, rank=6, grows=True),
    Panel(id="newest", title="Admissions and preemptions", group="recent", width=56, height=4, rank=8, grows=True),
    Panel(id="map", title="GPU map", group="nodes", width=40, height=2, rank=7),
)
"""The panels in their first order; heights are without frames. Their ranks: docs/how-to/arrange-dashboard.md."""
TOTALS = ("gpus", "waiting", "lately", "cost")
"""Panels that are one brief panel without a frame where the screen is narrow."""
BRIEF = Panel(id="brief", title="", group="", width=1, height=6)
SHORT_TREND = Panel(id="trends", title="", group="short", width=1, height=1, rank=6)
NARROW, LOW = 110, 32
"""Less columns than this are narrow; less lines leave panels no frame but a title line."""
SCREENS = {"gpus": "nodes", "waiting": "workloads", "lately": "preemptions", "cost": "cost"}
"""Panel → view that it opens."""


class Card(Lines, can_focus=True):
    """A panel of a few lines that can be active."""


class DashboardScreen(ConsoleScreen):
    """GPUs, pending work, the last hour, costs, queues, problems, trends, newest events, GPU map."""

    view = "dashboard"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (NARROW, "-roomy")]
    VERTICAL_BREAKPOINTS = [(0, "-low"), (LOW, "-high")]

    def __init__(self) -> None:
        super().__init__()
        self._answers = SnapshotWorker(self, _answer, self._show_answer)
        self._hours = SnapshotWorker(self, self._count_hour, self._show_hour, reads=True)
        self._costs = SnapshotWorker(self, self._sum_costs, self._show_costs, reads=True)
        self._trends = TrendReader(self, self._show_trend)
        self._summary: tuple[Sequence[Cell], ...] = (("", "", ""),) * 3
        """The lines of the first three panels."""
        self._window = "Last hour"
        """Title of the third panel."""
        self._priced: int | None = None
        """The minute of the cluster's time whose costs were computed."""
        self._paired: tuple[int, Sequence[QueuePair]] | None = None
        """The minute in which the preemptions by pair of queues were read, and these."""
        self._layout: PanelLayout | None = None

    def body(self) -> ComposeResult:
        with PanelArea(id="panels"):
            yield Lines(id="brief")
            for id in TOTALS:
                yield Card(id=id, classes="panel")
            yield Grid(QUEUES, key=lambda row: row.path, empty="No queues.", id="dash-queues", classes="panel")
            yield Grid(
                ATTENTION,
                key=lambda one: f"{one.trouble} {one.table} {one.key}",
                empty="Nothing needs attention.",
                header=False,
                id="attention",
                classes="panel",
            )
            yield TrendPane(id="trends", classes="panel")
            yield Grid(EVENTS, key=event_key, empty="No events yet.", follow=True, id="newest", classes="panel")
            yield GpuMap(id="map", classes="panel")

    def on_mount(self) -> None:
        for panel in PANELS:
            self.query_one(f"#{panel.id}").border_title = panel.title

    def on_resize(self) -> None:
        super().on_resize()
        self._arrange()

    # Panels

    @property
    def layout_of_panels(self) -> PanelLayout:
        """Which panels are shown, in which order."""
        if self._layout is None:
            self._layout = PanelLayout(PANELS, self.console_app.layout_file)
        return self._layout

    def _arrange(self) -> None:
        """Divide the room among the panels."""
        area = self.query_one(PanelArea)
        if not area.size.width or self.maximized is not None:
            return
        narrow, frame = self.size.width < NARROW, 1 if self.size.height < LOW else 2
        shown = self.layout_of_panels.shown
        if not self.console.keeps_history:
            shown = [panel for panel in shown if panel.id != "trends"]
        panels = [replace(panel, height=panel.height + frame) for panel in shown]
        if narrow:
            brief = [BRIEF] if any(panel.id in TOTALS for panel in shown) else []
            panels = [SHORT_TREND if panel.id == "trends" else panel for panel in panels if panel.id not in TOTALS]
            panels.sort(key=lambda panel: panel is not SHORT_TREND)
            panels = [*brief, *panels]
        large = frozenset[str]() if narrow else self.layout_of_panels.large
        area.put(arrange(panels, large, partial(self._wants, frame), area.size))

    def _zoom(self) -> None:
        zoomed = self.maximized
        super()._zoom()
        if (panel := self.maximized) is not None:
            # What is set on the widget has precedence over the style sheet.
            panel.styles.position, panel.styles.offset = "relative", (0, 0)
            panel.styles.width = panel.styles.height = "1fr"
        elif zoomed is not None:
            zoomed.styles.position = "absolute"
            self.query_one(PanelArea).put_back()

    def _wants(self, frame: int, id: str, width: int) -> int:
        """Height in lines that a panel would use at a width, with its frame."""
        match self.query_one(f"#{id}"):
            case Grid() as grid:
                most = LEAST_EVENTS if id == "newest" else len(grid.rows) + (id != "attention")
                return most + frame
            case GpuMap() as gpus:
                return gpus.lines_at(width - 4) + frame
            case TrendPane():
                return CHART + 2 + frame if self.size.width >= NARROW else 1
            case Lines() as lines:
                return len(lines.lines) + (0 if id == "brief" else frame)
        return 0

    @property
    def _panel(self) -> str:
        """Id of the active panel; empty if there is none."""
        focused = self.focused
        ids = {panel.id for panel in PANELS}
        return next((node.id for node in focused.ancestors_with_self if node.id in ids), "") if focused else ""

    def _change_panels(self, change: Callable[[], object]) -> None:
        change()
        self._arrange()

    def _panel_handlers(self) -> Handlers:
        layout, id = self.layout_of_panels, self._panel

        def hide() -> None:
            if len(layout.shown) > 1:
                layout.change(id, hidden=True)
                self.call_after_refresh(self.focus_body)

        def enlarge() -> None:
            layout.change(id, large=id not in layout.large)

        def move(places: int) -> None:
            if not layout.move(id, places):
                self.flash(f"This panel is the {'first' if places < 0 else 'last'} one")

        changes: dict[str, Callable[[], object]] = {
            "panel.hide": hide,
            "panel.enlarge": enlarge,
            "panel.earlier": partial(move, -1),
            "panel.later": partial(move, 1),
            "panel.reset": layout.reset,
        }
        return {name: partial(self._change_panels, change) for name, change in changes.items()} | {
            "panel.show": self._ask_panel
        }

    def _ask_panel(self) -> None:
        hidden = [one.id for one in self.layout_of_panels.choices if one.hidden]
        options = [ChoiceOption(panel.id, panel.title) for panel in PANELS if panel.id in hidden]
        self.dialogs.choose(
            "Show panel",
            options,
            lambda id: self._change_panels(partial(self.layout_of_panels.change, id, hidden=False)),
        )

    # The Snapshot

    def show(self, snapshot: Snapshot) -> None:
        self._answers.ask(snapshot)
        if self.console.keeps_history:
            self._hours.ask(snapshot)
        else:
            self._show_hour((self.console.last_hour(), ()))
        minute = snapshot.time // MINUTE
        if self.query_one("#cost").display and minute != self._priced:
            self._priced = minute
            self._costs.ask(snapshot)
        self._trends.ask(snapshot, WHOLE_CLUSTER)
        self._show_events(snapshot)

    def _show_trend(self, trend: Trend | None) -> None:
        self.query_one(TrendPane).trend = trend
        self._arrange()

    def _show_events(self, snapshot: Snapshot) -> None:
        newest = (line for line in reversed(snapshot.recent) if line.what in LISTED)
        lines = folded(list(islice(newest, LONGEST_LIST))[::-1])[::-1]
        self.query_one("#newest", Grid).show(lines)

    def _count_hour(self, snapshot: Snapshot) -> "ShownHour":
        try:
            if self._paired is None or self._paired[0] != snapshot.time // MINUTE:
                since = snapshot.time - HOUR
                found = [row for row in rows(self.console.preemptions(MOST)) if row.time > since]
                self._paired = snapshot.time // MINUTE, preemption_matrix(found).pairs
            return self.console.last_hour(), self._paired[1]
        except ConsoleError as error:
            LOG.warning("The last hour is counted over the newest events only: %s", error)
            return last_hour(snapshot.recent, snapshot.time), ()

    def _show_hour(self, shown: "ShownHour") -> None:
        hour, pairs = shown
        self._summary = *self._summary[:2], lately_lines(hour)
        self._window = window(hour)
        panel = self.query_one("#lately", Lines)
        panel.lines, panel.border_title = (*lately_lines(hour), *pair_lines(pairs)), self._window
        self._show_brief()

    def _sum_costs(self, snapshot: Snapshot) -> CostReport:
        return cost_report(snapshot, self.console.prices, {})

    def _show_costs(self, found: CostReport) -> None:
        self.query_one("#cost", Lines).lines = cost_lines(found)
        self._arrange()

    def _show_brief(self) -> None:
        gpus, waiting, lately = self._summary
        self.query_one("#brief", Lines).lines = brief_lines(gpus, waiting, lately, self._window)
        self._arrange()

    def _show_answer(self, answer: tuple[Dashboard, Sequence[GpuRow], Sequence[GpuSample]]) -> None:
        numbers, cells, types = answer
        status = self.console.status
        nodes = status.unseen({"nodes"})
        gpus = gpu_lines(numbers.gpus, nodes)
        waiting = waiting_lines(numbers.waiting, numbers.time)
        trees = hide_incomplete_queues(numbers.queues, status)
        self.query_one("#gpus", Lines).lines = (*gpus, *type_lines(types))
        self.query_one("#waiting", Lines).lines = (*waiting, *oldest_lines(trees, numbers.time))
        self._summary = gpus, waiting, self._summary[2]
        self.query_one("#dash-queues", Grid).show(queue_rows(trees, numbers.time))
        troubles = [*kueue_alerts(status), *hide_incomplete_alerts(numbers.attention, numbers.queues, status)]
        self.query_one("#attention", Grid).show(troubles)
        self.query_one(GpuMap).show(cells, empty=nodes or "No nodes.")
        self._show_brief()

    def handlers(self) -> Handlers:
        own = {"object.open": self._open, "object.explain": self._explain}
        panels = self._panel_handlers() if self.stands else {}
        return {**super().handlers(), **self._trends.handlers(), **panels, **own}

    def refusal(self, action: Action) -> str:
        if action.id == "object.open" and isinstance(self.focused, Grid) and self.focused.current is None:
            return "nothing is selected"
        if action.id == "object.explain" and self._explanation() == "":
            return "nothing to explain for this row"
        if action.id in ("panel.hide", "panel.enlarge", "panel.earlier", "panel.later") and not self._panel:
            return "no panel is active; press Tab"
        if action.id == "panel.show" and not any(one.hidden for one in self.layout_of_panels.choices):
            return "no panel is hidden"
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
            case Repeated():
                return f"{fmt.date_and_clock(row.line.time)}: {row.line.what} {subject_of(row)} {reason_of(row)}"
        return ""

    def _explain(self) -> None:
        self.flash(self._explanation())

    def _open(self) -> None:
        """Open the screen of the active panel, at its selected row."""
        if isinstance(self.focused, GpuMap):
            self.console_app.go("nodes", at=self.focused.cursor_key)
            return
        if isinstance(self.focused, Card):
            self.console_app.go(SCREENS[self._panel])
            return
        row = self.focused.current if isinstance(self.focused, Grid) else None
        match row:
            case TreeRow():
                self.console_app.go("queues", at=row.node.name)
            case Alert():
                self.console_app.go(PLACES.get(row.table, "queues"), at=row.key)
            case Repeated():
                self.console_app.go("preemptions" if row.line.what is HistoryEventKind.PREEMPTED else "history")


ShownHour = tuple[LastHour, Sequence[QueuePair]]
"""The last hour, and its preemptions by queue of victim and preemptor."""
LEAST_EVENTS = 8
"""Lines that the list of events asks for; more are welcome."""
MORE = 3
"""Number of lines that a panel of totals adds to its three, in panels that have room."""
MOST = 500
"""Preemptions that are read for the pairs."""


def event_key(row: Repeated) -> str:
    """Identify an event of the list."""
    return f"{row.first} {row.line.what} {row.line.workload} {row.line.by}"


def pair_lines(pairs: Sequence[QueuePair]) -> tuple[Cell, ...]:
    """Format the most frequent pairs of queues: `5× ranking preempted speech`."""
    return tuple(
        (
            (f"{pair.times:>4}× ", "strong"),
            (pair.by or "no queue", ""),
            (" preempted ", "victim"),
            (pair.victim or "no queue", ""),
        )
        for pair in pairs[:MORE]
    )


def type_lines(types: Sequence[GpuSample]) -> tuple[Cell, ...]:
    """Format the GPUs by type, most first: `H100  54 / 64 ████████░`."""
    most = sorted(types, key=lambda one: -one.total)[:MORE]
    width = max((len(one.gpu_type) for one in most), default=0)
    return tuple(
        (
            (f"{one.gpu_type:<{width}} ", "dim"),
            (f"{fmt.mean(one.allocated):>6}", "strong"),
            (f" / {one.total:<6,} ", "dim"),
            *gauge(round(one.allocated), one.total, 14),
        )
        for one in most
    )


def oldest_lines(roots: Sequence[QuotaNode], now: int) -> tuple[Cell, ...]:
    """Format the queues whose oldest pending workload waits longest: `1h18m llm: 6 workloads, 112 GPUs`."""
    kinds = (NodeKind.COHORT, NodeKind.LOCAL_QUEUE)
    waiting = [node for node, _ in every(roots) if node.kind not in kinds and node.oldest is not None]
    waiting.sort(key=lambda node: (node.oldest or 0, node.name))
    return tuple(
        (
            (f"{fmt.age(now - (node.oldest or now)):>6} ", "pending"),
            (node.name, "strong"),
            (f" {node.pending:,} {_noun(node.pending, 'workload')}, {node.pending_gpus:,} {node.unit}s", "dim"),
        )
        for node in waiting[:MORE]
    )


def cost_lines(found: CostReport) -> tuple[Cell, ...]:
    """Format the cost rate of the cluster, its idle part, and the most expensive queues."""
    idle = fmt.percent(found.idle_hourly, found.hourly)
    rate: Painted = ((f"{fmt.money(found.hourly)}/h", "strong"), (f"  {fmt.money(found.hourly * 24)}/day", "dim"))
    saved: Cell = ((f"spot saves {fmt.money(found.saved_hourly)}/h", "good"),) if found.saved_hourly else ""
    rest: Cell = ((f"idle {fmt.money(found.idle_hourly)}/h, {idle}", "idle"),)
    queues = [one for one in found.by[By.QUEUE] if one.name][: MORE + (not saved)]
    return (
        rate,
        rest,
        *((saved,) if saved else ()),
        *(((f"{fmt.money(one.hourly):>8}/h ", ""), (one.name, "dim")) for one in queues),
    )


def _answer(snapshot: Snapshot) -> tuple[Dashboard, Sequence[GpuRow], Sequence[GpuSample]]:
    return dashboard(snapshot), gpu_rows(snapshot), gpu_samples(snapshot)


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
