"""Queues screen: tree of cohorts, ClusterQueues, LocalQueues and, unfolded, their flavors; lines about one queue.

Quotas can be edited: limit, flavor, new value and current value.
"""

import re
from collections.abc import Callable, Collection, Sequence

from msgspec import UNSET
from textual.app import ComposeResult

from gpuconsole.insight.health.alerts import starved_text
from gpuconsole.insight.index.available_quota import UsableQuota, usable_quota
from gpuconsole.insight.index.engine_queues import queues
from gpuconsole.insight.index.quota_tree import NodeKind, QuotaNode, QuotaUse, every, inactive_reason
from gpuconsole.insight.series import SERIES_OF, SeriesKind
from gpuconsole.insight.tables import counted
from gpuconsole.model.clock import Time
from gpuconsole.model.commands import SetQuota, SetStopPolicy
from gpuconsole.model.devices import DRA_DEVICE, WHOLE_GPU, is_counted
from gpuconsole.model.queues import StopPolicy
from gpuconsole.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, amount, format_quantity
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui import format as fmt
from gpuconsole.ui.actions import Action, Handlers
from gpuconsole.ui.paint import Cell
from gpuconsole.ui.queue_table import (
    COLUMNS,
    FOLDED,
    GPUS,
    TreeRow,
    deeper,
    hide_incomplete_queues,
    resources,
    tree_rows,
)
from gpuconsole.ui.screens.background import SnapshotWorker, TrendReader
from gpuconsole.ui.screens.base import ConsoleScreen, Subject
from gpuconsole.ui.screens.objects import ObjectActions, delete_word
from gpuconsole.ui.whatif_changes import what_if_with_queue
from gpuconsole.ui.widgets.dialogs import ChoiceOption, PromptField, Question
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.textpane import Paragraph
from gpuconsole.ui.widgets.trends import SeriesName, Trend, TrendPane

LIMITS = {"nominal": "nominal quota", "borrowing": "borrowing limit", "lending": "lending limit"}
NO_LIMIT = ("none", "no", "-", "∞", "")


class QuotaEditor:
    """The dialogs that change a quota or limit of a ClusterQueue."""

    def __init__(self, screen: ConsoleScreen, roots: Callable[[], Sequence[QuotaNode]]) -> None:
        """`roots` returns the newest queue tree."""
        self._screen = screen
        self._roots = roots

    def choose(self, row: TreeRow | None) -> None:
        """Ask which quota or limit of the queue of this row to change, then for its new value."""
        if row is not None:
            options = [option for use in row.node.flavors for option in _limit_options(use)]
            queue = row.node.name
            self._screen.dialogs.choose(f"Quota of {queue}", options, lambda id: self._ask_quota(queue, id))

    def _ask_quota(self, queue: str, id: str) -> None:
        flavor, resource, which = id.split(" ")
        use = self._quota(queue, flavor, resource)
        if use is None:
            self._screen.flash(f"{queue} no longer has quota of {resource} in {flavor}", "warning")
            return
        old = {"nominal": use.nominal, "borrowing": use.borrowing_limit, "lending": use.lending_limit}[which]
        before = fmt.limit(resource, old)
        wanted = PromptField(
            f"{queue}: {LIMITS[which]} of {fmt.resource(resource)} in {flavor}",
            "none" if old is None else format_quantity(resource, old),
            ("An amount as in a manifest: 8, 500m, 64Gi." + ("" if which == "nominal" else " `none` = no limit."),),
            lambda text: _wrong_amount(resource, text, which),
            lambda text: f"{before} → {fmt.limit(resource, _read(resource, text, which))}",
        )
        self._screen.dialogs.prompt(
            wanted, lambda text: self._set_quota(queue, use, which, _read(resource, text, which))
        )

    def _set_quota(self, queue: str, use: QuotaUse, which: str, value: int | None) -> None:
        command = SetQuota(
            queue,
            use.flavor,
            use.resource,
            nominal=value or 0 if which == "nominal" else use.nominal,
            borrowing_limit=value if which == "borrowing" else UNSET,
            lending_limit=value if which == "lending" else UNSET,
        )
        self._screen.send([command], f"{queue}: {LIMITS[which]} is now {fmt.limit(use.resource, value)}")

    def _quota(self, queue: str, flavor: str, resource: str) -> QuotaUse | None:
        """The current quota, which may have changed while the dialog was open."""
        rows = (row.node for row in tree_rows(self._roots(), {}, GPUS))
        uses = (use for node in rows if node.name == queue for use in node.flavors)
        return next((use for use in uses if (use.flavor, use.resource) == (flavor, resource)), None)


def _limit_options(use: QuotaUse) -> list[ChoiceOption]:
    values = {"nominal": use.nominal, "borrowing": use.borrowing_limit, "lending": use.lending_limit}
    return [
        ChoiceOption(
            f"{use.flavor} {use.resource} {which}",
            f"{use.flavor}  {fmt.resource(use.resource)}",
            detail=f"{LIMITS[which]}  {fmt.limit(use.resource, value)}",
        )
        for which, value in values.items()
    ]


def _read(resource: str, text: str, which: str) -> int | None:
    if which != "nominal" and text.strip().lower() in NO_LIMIT:
        return None
    return amount(resource, text)


def _wrong_amount(resource: str, text: str, which: str) -> str:
    try:
        value = _read(resource, text, which)
    except ValueError as error:
        return str(error)
    return "must be 0 or greater" if value is not None and value < 0 else ""


KINDS = {
    NodeKind.COHORT: "cohort",
    NodeKind.CLUSTER_QUEUE: "ClusterQueue",
    NodeKind.LOCAL_QUEUE: "LocalQueue",
    NodeKind.VOLCANO_QUEUE: "Volcano queue",
    NodeKind.KAI_QUEUE: "KAI queue",
    NodeKind.NAMESPACE: "namespace",
}
KUEUES = (NodeKind.COHORT, NodeKind.CLUSTER_QUEUE, NodeKind.LOCAL_QUEUE)
"""Kinds of rows whose objects belong to Kueue; other rows are read-only."""


def about(row: TreeRow, quotas: Sequence[UsableQuota] = (), now: Time = 0, shut: str = "") -> tuple[Cell, ...]:
    """Return lines about the queue under the cursor: problems, available quota per flavor, limits, policy.

    `quotas` are those of a ClusterQueue; `shut` is why it, or the LocalQueue, admits no workloads, if it does not.
    """
    node, use, resource = row.node, row.use, row.resource
    kind = KINDS[node.kind]
    shown = [one for one in quotas if resource in (GPUS, one.resource) and not row.flavor]
    could = _shut(row, shut) if shut else _could(row, shown)
    reserved = use.used - use.admitted
    only = f" · {fmt.amount(resource, reserved)} reserved, not admitted" if reserved else ""
    first: Cell = ((f" {kind} ", "dim"), (node.name, "strong"), (f"  {_subject(row)}: {could}{only}", ""))
    second: Cell = ((f" {_limits(row)}", "dim"),)
    wait = f" {node.pending} pending ({counted(node.pending_gpus, node.unit)})" if node.pending else " none pending"
    third: Cell = ((wait + (f", {node.inadmissible} inadmissible" if node.inadmissible else ""), "dim"),)
    problem: tuple[Cell, ...] = (((f" ⚠ {node.problem}", "fault"),),) if node.problem else ()
    starved: tuple[Cell, ...] = ()
    if node.starved is not None:
        starved = (((f" ⚠ {starved_text(node, node.starved, now)}", "fault"),),)
    return (first, *problem, *starved, second, third)


def _subject(row: TreeRow) -> str:
    """The unit of the amounts: a resource, or accelerators other than whole GPUs."""
    units = row.resource == GPUS and row.node.unit != WHOLE_GPU.noun
    return f"{row.node.unit}s" if units else fmt.resource(row.resource)


def _could(row: TreeRow, quotas: Sequence[UsableQuota]) -> str:
    """The quota available now, by flavor, and how much of it pending workloads could use."""
    resource, use = row.resource, row.use
    flavors: Sequence[UsableQuota | QuotaUse] = [
        one for one in quotas or row.node.flavors if not row.flavor and _counts(row, one.resource)
    ]
    if len(flavors) < 2:
        could = f"available {fmt.amount(resource, use.available)}, max {fmt.amount(resource, use.potential)}"
    else:
        could = f"available {', '.join(_flavor(one, flavors) for one in flavors)}"
    if row.node.kind is not NodeKind.CLUSTER_QUEUE or not row.node.pending or not quotas:
        return could
    useful = ", ".join(f"{_name(one, quotas)} {fmt.amount(one.resource, one.usable)}" for one in quotas if one.usable)
    return f"{could} · usable by pending workloads: {useful or 'none'}"


def _shut(row: TreeRow, why: str) -> str:
    """The reason why it admits no workloads, and its max quota by flavor."""
    flavors = [one for one in row.node.flavors if not row.flavor and _counts(row, one.resource)]
    most = [f"{_name(one, flavors)} {fmt.amount(one.resource, one.potential)}" for one in flavors]
    whole = fmt.amount(row.resource, row.use.potential)
    return f"admits no workloads: {why}; max {', '.join(most) if len(most) > 1 else whole}"


def _flavor(one: UsableQuota | QuotaUse, others: Sequence[UsableQuota | QuotaUse]) -> str:
    available, most = fmt.amount(one.resource, one.available), fmt.amount(one.resource, one.potential)
    return f"{_name(one, others)} {available} (max {most})"


def _name(one: UsableQuota | QuotaUse, others: Sequence[UsableQuota | QuotaUse]) -> str:
    """The flavor, with the resource where it has quota for several of those shown."""
    alone = sum(other.flavor == one.flavor for other in others) == 1
    return one.flavor if alone else f"{one.flavor} {fmt.resource(one.resource)}".strip()


def _counts(row: TreeRow, resource: str) -> bool:
    """True for the resources that the row shows."""
    if row.resource != GPUS:
        return resource == row.resource
    # Quota of DRA devices may have any name (Kueue: deviceClassMappings).
    devices = row.node.unit == DRA_DEVICE.noun and resource not in (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)
    return devices or is_counted(resource)


def _limits(row: TreeRow) -> str:
    if row.node.kind not in KUEUES:
        resource, use = row.resource, row.use
        deserves = {NodeKind.VOLCANO_QUEUE: "deserves", NodeKind.KAI_QUEUE: "quota"}.get(row.node.kind, "may have")
        most = f" · max {fmt.amount(resource, use.potential)}" if use.potential != use.nominal else ""
        return f"{deserves} {fmt.amount(resource, use.nominal)}{most} · {row.node.policy}"
    if row.node.kind is NodeKind.LOCAL_QUEUE:
        return "no quota of its own: uses that of its ClusterQueue"
    uses = [row.use] if row.flavor else [use for use in row.node.flavors if _counts(row, use.resource)]
    parts = [
        f"borrowing limit {_by_flavor(uses, [use.borrowing_limit for use in uses])}",
        f"lending limit {_by_flavor(uses, [use.lending_limit for use in uses])}",
    ]
    return " · ".join([*parts, row.node.policy] if row.node.policy else parts)


def _by_flavor(uses: Sequence[QuotaUse], limits: Sequence[int | None]) -> str:
    """The limits of several flavors one by one: a limit holds for its flavor alone."""
    limit_texts = [fmt.limit(use.resource, limit) for use, limit in zip(uses, limits, strict=True)]
    if len(uses) < 2 or all(limit is None for limit in limits):
        return limit_texts[0] if limit_texts else fmt.limit("", None)
    return ", ".join(f"{_name(use, uses)} {limit}" for use, limit in zip(uses, limit_texts, strict=True))


TABLES = {
    NodeKind.COHORT: "cohorts",
    NodeKind.CLUSTER_QUEUE: "cluster_queues",
    NodeKind.LOCAL_QUEUE: "local_queues",
    NodeKind.VOLCANO_QUEUE: "volcano_queues",
    NodeKind.KAI_QUEUE: "kai_queues",
    NodeKind.NAMESPACE: "namespaces",
}
HELD = ("queue.hold", "queue.drain", "queue.resume", "object.what-if")
UNDECLARED = ("object.delete", "object.describe", "object.yaml", "object.copy-json")
"""Actions that need the Cohort object, and are refused for a cohort that only ClusterQueues name."""


class QueuesScreen(ConsoleScreen):
    """Cohorts and queues with their quota, as a tree."""

    view = "queues"
    reads = frozenset({"clusterqueues", "cohorts"})
    VERTICAL_BREAKPOINTS = [(0, "-low"), (32, "-high")]

    def __init__(self) -> None:
        super().__init__()
        self.groups = (ObjectActions(self),)
        self._roots: Sequence[QuotaNode] = ()
        self._quotas = QuotaEditor(self, lambda: self._roots)
        self._trends = TrendReader(self, self._show_trend)
        self._trees = SnapshotWorker(self, queues, self._show_tree)
        self._levels: dict[str, int] = {}
        self._resource = GPUS

    def body(self) -> ComposeResult:
        yield Grid(
            COLUMNS,
            key=lambda row: row.path,
            fault=lambda row: bool(row.node.problem) or row.node.stop is not StopPolicy.NONE,
            empty="No ClusterQueues or Cohorts in this cluster.",
            id="queues",
        )
        yield TrendPane(id="trends")
        yield Paragraph(id="about")

    def show(self, snapshot: Snapshot) -> None:
        self._trees.ask(snapshot)

    def _show_trend(self, trend: Trend | None) -> None:
        self.query_one(TrendPane).trend = trend

    def _show_tree(self, roots: Sequence[QuotaNode]) -> None:
        self._roots = hide_incomplete_queues(roots, self.console.status)
        self._show_rows()

    def handlers(self) -> Handlers:
        offered = dict(super().handlers())
        if (edit := offered.pop("object.edit", None)) is not None:
            # Here `e` is for quotas.
            offered["queue.edit"] = edit
        return {
            **offered,
            **self._trends.handlers(),
            "object.open": self._open_workloads,
            "queue.fold": self._fold,
            "queue.unfold": self._unfold,
            "queue.hold": self._hold_or_resume,
            "queue.drain": lambda: self._set_stop(StopPolicy.HOLD_AND_DRAIN),
            "queue.resume": lambda: self._set_stop(StopPolicy.NONE),
            "queue.quota": lambda: self._quotas.choose(self._row),
            "queue.resource": self._choose_resource,
            "object.what-if": self._ask_what_if,
        }

    def subject(self) -> Subject | None:
        row = self._row
        return Subject(TABLES[row.node.kind], row.node.name) if row is not None else None

    def refusal(self, action: Action) -> str:
        row = self._row
        if action.id.startswith(("queue.", "object.")) and row is None and action.id != "queue.resource":
            return "no queue is selected"
        if row is not None and row.node.kind not in KUEUES and action.id in HELD:
            return "only Kueue queues can be held"
        if row is not None and row.node.kind is NodeKind.COHORT:
            if action.id in HELD:
                return "a cohort cannot be held; hold its ClusterQueues"
            if action.id in UNDECLARED and not row.node.declared:
                return "implicit cohort: no Cohort object exists"
        if row is not None and row.node.kind is not NodeKind.CLUSTER_QUEUE and action.id == "queue.quota":
            return "only a ClusterQueue's quota can be edited here"
        if action.id == "queue.resume" and row is not None and row.node.stop is StopPolicy.NONE:
            return "not held"
        return super().refusal(action)

    def question(self, action: Action) -> Question | None:
        row = self._row
        if row is None:
            return None
        name = f"{KINDS[row.node.kind]} {row.node.name}"
        running = f"{row.node.running} running, {row.node.reserved - row.node.running} reserved or admitted"
        match action.id:
            case "queue.hold":
                if row.node.stop is not StopPolicy.NONE:
                    return None
                goes_on = (
                    f"Workloads with quota continue ({running}); {row.node.pending} stay pending until it is resumed."
                )
                return Question(f"Hold {name}?", ("No new admissions.", goes_on), yes="Hold")
            case "queue.drain":
                said = (f"No new admissions; evicts workloads with quota ({running}).",)
                return Question(f"Hold and drain {name}?", said, yes="Drain")
            case "object.delete":
                said = (f"Workloads: {running}, {row.node.pending} pending.",)
                return Question(f"Delete {name}?", said, yes="Delete", word=delete_word(self.subjects()))
        return super().question(action)

    def point_at(self, key: str) -> None:
        rows = tree_rows(self._roots, self._levels, self._resource)
        path = next((row.path for row in rows if row.node.name == key), None)
        if path is None or not self._tree.move_to_key(path):
            self.flash(f"{key} is folded or no longer exists", "warning")

    def picked(self, row: object) -> None:
        self._show_about()
        self.refresh_frame()

    # Private

    def _ask_what_if(self) -> None:
        row = self._row
        if row is None:
            return
        refused = "" if row.node.kind is NodeKind.CLUSTER_QUEUE else "only ClusterQueues have quotas"
        what_if_with_queue(self, row.node.name, refused)

    @property
    def _tree(self) -> Grid[TreeRow]:
        return self.query_one("#queues", Grid)

    @property
    def _row(self) -> TreeRow | None:
        return self._tree.current

    def _show_rows(self) -> None:
        rows = tree_rows(self._roots, self._levels, self._resource, self.snapshot.time)
        self._tree.show([row for row in rows if in_namespaces(row, self.namespaces)])
        self._show_about()

    def _show_about(self) -> None:
        row = self._row
        self.query_one(Paragraph).lines = self._about(row) if row is not None else ()
        self._trends.ask(self.snapshot, self._series(row), row.node.unit if row is not None else WHOLE_GPU.noun)

    def _series(self, row: TreeRow | None) -> SeriesName | None:
        """The series of the selected row: of a LocalQueue that of its ClusterQueue; None if there is none."""
        if row is None:
            return None
        if row.node.kind is NodeKind.LOCAL_QUEUE:
            local_queue = self.snapshot.local_queues.get(row.node.name)
            return SeriesName(SeriesKind.QUEUE, local_queue.cluster_queue) if local_queue is not None else None
        return SeriesName(SERIES_OF[row.node.kind], row.node.name, row.use.flavor if row.flavor else "")

    def _about(self, row: TreeRow) -> tuple[Cell, ...]:
        now = self.snapshot.time
        local_queue = self.snapshot.local_queues.get(row.node.name) if row.node.kind is NodeKind.LOCAL_QUEUE else None
        name = local_queue.cluster_queue if local_queue is not None else row.node.name
        found = (one for one, _ in every(self._roots) if one.kind is NodeKind.CLUSTER_QUEUE and one.name == name)
        queue = next(found, None) if local_queue is not None or row.node.kind is NodeKind.CLUSTER_QUEUE else None
        if queue is None or name not in self.snapshot.cluster_queues:
            return about(row, (), now)
        shut = row.node.shut or inactive_reason(self.snapshot, queue)
        return about(row, usable_quota(self.snapshot, name), now, shut)

    def _unfold(self) -> None:
        row = self._row
        if row is not None and not row.flavor:
            self._levels[row.path] = deeper(row, self._levels)
            self._show_rows()

    def _fold(self) -> None:
        row = self._row
        if row is None:
            return
        if row.opened:
            self._levels[row.path] = FOLDED
            self._show_rows()
        else:
            self._tree.move_to_key(parent(row))

    def _open_workloads(self) -> None:
        row = self._row
        if row is not None and row.node.kind is NodeKind.COHORT:
            self._unfold()
        elif row is not None:
            self.console_app.go("workloads", filtered=self._of_queue(row.node))

    def _of_queue(self, node: QuotaNode) -> str:
        """The filter for the workloads of a queue: the workload table has ClusterQueues, but no LocalQueues."""
        local_queue = self.snapshot.local_queues.get(node.name) if node.kind is NodeKind.LOCAL_QUEUE else None
        if local_queue is None:
            return f"-w {node.name}"
        return rf"^{local_queue.namespace}/.*(?<!\S){re.escape(local_queue.cluster_queue)}(?!\S)"

    def _hold_or_resume(self) -> None:
        row = self._row
        if row is not None:
            self._set_stop(StopPolicy.HOLD if row.node.stop is StopPolicy.NONE else StopPolicy.NONE)

    def _set_stop(self, policy: StopPolicy) -> None:
        row = self._row
        if row is not None:
            done = {StopPolicy.NONE: "resumed", StopPolicy.HOLD: "held", StopPolicy.HOLD_AND_DRAIN: "held and drained"}
            self.send([SetStopPolicy(row.node.name, policy)], f"{row.node.name} is {done[policy]}")

    def _choose_resource(self) -> None:
        options = [ChoiceOption(name, fmt.resource(name)) for name in resources(self._roots)]
        self.dialogs.choose("Resource shown in the bars", options, self._set_resource, self._resource)

    def _set_resource(self, name: str) -> None:
        self._resource = name
        self._show_rows()


def in_namespaces(row: TreeRow, names: Collection[str]) -> bool:
    """Return whether a row is shown: cluster-scoped objects, and LocalQueues in the namespaces `names` (empty: all)."""
    return not names or row.node.kind is not NodeKind.LOCAL_QUEUE or row.node.name.partition("/")[0] in names


def parent(row: TreeRow) -> str:
    """Return the path of the parent of a row in the tree."""
    if row.flavor:
        return row.path.rsplit(">", 2)[0]
    return row.path.rpartition(">")[0]
