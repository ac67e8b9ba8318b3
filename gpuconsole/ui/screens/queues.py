"""Queues screen: tree of cohorts, ClusterQueues, LocalQueues and, unfolded, their flavors.

Edits a quota: limit, flavor, new value and current value.

Lines about one queue: its problems, available quota, limits and policy.

Rows and columns of the queue tree, without problems that only seem to exist while a cluster is loading.

Rows and columns of the queue tree.

Hides problems of queues that only seem to be missing while a cluster is still being loaded.

Objects that are not visible (RBAC) are handled by the answers themselves (`Snapshot.seen`).
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from msgspec import UNSET
from textual.app import ComposeResult

from gpuconsole.insight.health.alerts import Alert, AlertKind, starved_text
from gpuconsole.insight.index.available_quota import UsableQuota, usable_quota
from gpuconsole.insight.index.engine_queues import queues
from gpuconsole.insight.index.quota_tree import NodeKind, QuotaNode, QuotaUse, every, inactive_reason, sum_up
from gpuconsole.insight.tables import counted
from gpuconsole.model.clock import Time
from gpuconsole.model.commands import SetQuota, SetStopPolicy
from gpuconsole.model.devices import DRA_DEVICE, WHOLE_GPU, is_counted
from gpuconsole.model.queues import StopPolicy
from gpuconsole.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, amount, format_quantity
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.services.status import ConsoleStatus
from gpuconsole.ui import format as fmt
from gpuconsole.ui.actions import Action
from gpuconsole.ui.paint import Cell, Painted
from gpuconsole.ui.screens.background import SnapshotWorker
from gpuconsole.ui.screens.mixins import Handlers
from gpuconsole.ui.screens.objects import ObjectScreen, Subject
from gpuconsole.ui.table_model import Column
from gpuconsole.ui.whatif_changes import what_if_with_queue
from gpuconsole.ui.widgets.dialogs import ChoiceOption, PromptField, Question
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.painter import bar, pool
from gpuconsole.ui.widgets.textpane import Paragraph

FOLDED, CHILDREN, FLAVORS = 0, 1, 2
GPUS = "gpu"
"""Sum of all whole GPUs, whatever their resource is called."""
USED, BAR = 14, 22
"""Widths of columns."""
ENDLESS = 2**63 - 1
DEEPEST = 8
"""Maximum indentation level, so that names stay readable."""


@dataclass(frozen=True)
class TreeRow:
    """A row of the tree: a queue, or one flavor of it."""

    path: str
    """Names from the root, which distinguish equal names."""
    node: QuotaNode
    depth: int
    opened: bool | None
    """None if there is nothing below."""
    resource: str
    use: QuotaUse
    """Quota usage of the displayed resource."""
    flavor: bool = False
    now: Time = 0


def tree_rows(roots: Sequence[QuotaNode], levels: Mapping[str, int], resource: str, now: Time = 0) -> list[TreeRow]:
    """Flatten the tree. `levels` maps a path to its fold level; other paths show their children."""
    rows: list[TreeRow] = []
    # A chain of thousands of cohorts is legal input: a stack instead of recursion.
    waiting = [(root, "", 0) for root in reversed(roots)]
    while waiting:
        node, above, depth = waiting.pop()
        path = f"{above}>{node.kind}:{node.name}"
        level = levels.get(path, CHILDREN if node.children else FOLDED)
        below = bool(node.children) or bool(node.flavors)
        opened = level > FOLDED if below else None
        rows.append(TreeRow(path, node, depth, opened, resource, use_of(node, resource), now=now))
        if level >= FLAVORS:
            rows += [
                TreeRow(f"{path}>{use.flavor}>{use.resource}", node, depth + 1, None, use.resource, use, flavor=True)
                for use in node.flavors
            ]
        if level >= CHILDREN:
            waiting += [(child, path, depth + 1) for child in reversed(node.children)]
    return rows


def use_of(node: QuotaNode, resource: str) -> QuotaUse:
    """Quota usage of a resource, summed over all flavors."""
    if resource == GPUS:
        return node.gpus
    return sum_up((use for use in node.flavors if use.resource == resource), resource)


def resources(roots: Sequence[QuotaNode]) -> list[str]:
    """Resources with quota or usage in any node, the GPU sum first."""
    found: dict[str, None] = {GPUS: None}
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        found.update(dict.fromkeys(use.resource for use in node.flavors))
        waiting += node.children
    return [GPUS, *sorted(name for name in found if name != GPUS)]


def deeper(row: TreeRow, levels: Mapping[str, int]) -> int:
    """The level after one more step of unfolding."""
    level = levels.get(row.path, CHILDREN if row.node.children else FOLDED)
    if level == FOLDED and row.node.children:
        return CHILDREN
    return FLAVORS if row.node.flavors else level


def name_cell(row: TreeRow) -> Painted:
    """The name, indented by depth, with fold mark and problem marks."""
    indent = "  " * min(row.depth, DEEPEST)
    if row.flavor:
        return (
            (f"{indent}  ", ""),
            (row.use.flavor or "(no flavor)", "dim"),
            (f" {fmt.resource(row.use.resource)}", "dim"),
        )
    mark = "  " if row.opened is None else "▾ " if row.opened else "▸ "
    pieces = [(f"{indent}{mark}", "dim"), (row.node.name, _name_role(row.node))]
    if row.node.stop is not StopPolicy.NONE:
        pieces.append((" ⏸ drain" if row.node.stop is StopPolicy.HOLD_AND_DRAIN else " ⏸ hold", "held"))
    if row.node.starved is not None:
        pieces.append((f" ⚠ starved {fmt.since(row.now, row.node.starved.since)}".rstrip(), "fault"))
    if row.node.problem:
        pieces.append((" ⚠", "fault"))
    if not row.node.declared:
        pieces.append((" (implicit)", "dim"))
    return tuple(pieces)


def _name_role(node: QuotaNode) -> str:
    if node.kind is NodeKind.LOCAL_QUEUE:
        return ""
    return "title" if node.kind is NodeKind.COHORT else "strong"


def used_cell(row: TreeRow) -> Cell:
    """`12 / 8`: used and nominal; a LocalQueue owns nothing, so it has one number."""
    used = fmt.amount(row.resource, row.use.used)
    if row.node.kind is NodeKind.LOCAL_QUEUE:
        return ((used, "" if row.use.used else "dim"),)
    of = f" / {fmt.amount(row.resource, row.use.nominal)}"
    of += _unit(row, USED - len(used) - len(of))
    return ((used, "borrowed" if row.use.borrowed else ""), (of, "dim"))


def _unit(row: TreeRow, room: int) -> str:
    """The unit in so few characters, where the row counts accelerators that are no whole GPUs: ` devices`, ` dev`."""
    if row.resource != GPUS or row.node.unit == WHOLE_GPU.noun or not row.use.nominal:
        return ""
    noun = row.node.unit.rpartition(" ")[2]
    word = " MIG" if row.node.unit.startswith("MIG ") else f" {noun}s"
    return word if len(word) <= room else f" {noun[:3]}"


def bar_cell(row: TreeRow) -> Cell:
    if row.node.kind is NodeKind.LOCAL_QUEUE:
        return ""
    return pool(row.use, BAR) if row.node.kind is NodeKind.COHORT else bar(row.use, BAR)


def _count(value: int, role: str) -> Painted:
    return ((f"{value:,}" if value else fmt.NOTHING, role if value else "dim"),)


def _amount(resource: str, value: int, role: str) -> Painted:
    return ((fmt.amount(resource, value) if value else fmt.NOTHING, role if value else "dim"),)


def weighted_share_cell(row: TreeRow) -> Cell:
    if row.flavor or row.node.kind not in (NodeKind.COHORT, NodeKind.CLUSTER_QUEUE):
        return ""
    return ((fmt.permille(float("inf") if row.node.weighted_share >= ENDLESS else row.node.weighted_share), "dim"),)


def _of_queue(cell: Callable[[TreeRow], Cell]) -> Callable[[TreeRow], Cell]:
    """The cell of a queue's row; empty on the rows of its flavors."""
    return lambda row: "" if row.flavor else cell(row)


COLUMNS: tuple[Column[TreeRow], ...] = (
    Column("COHORT / QUEUE", name_cell, id="name", width=22, flex=3),
    Column("USED / NOMINAL", used_cell, width=USED, align="right"),
    Column("", bar_cell, width=BAR),
    Column("▲BORROW", lambda row: _amount(row.resource, row.use.borrowed, "borrowed"), width=7, align="right", rank=2),
    Column("▼LENT", lambda row: _amount(row.resource, row.use.lent, "lent"), width=6, align="right", rank=2),
    Column("SHARE", _of_queue(lambda row: f"{row.node.share_percent:.0f}%"), width=6, align="right", rank=3),
    Column("DRS ‰", weighted_share_cell, id="drs", width=5, align="right", rank=4),
    Column("◐PEND", _of_queue(lambda row: _count(row.node.pending, "pending")), width=5, align="right"),
    Column("●RUN", _of_queue(lambda row: _count(row.node.running, "running")), width=5, align="right"),
    Column("POLICY", _of_queue(lambda row: ((row.node.policy, "dim"),)), id="policy", width=14, flex=2, rank=5),
)


def hide_incomplete_queues(roots: Sequence[QuotaNode], status: ConsoleStatus) -> Sequence[QuotaNode]:
    """The queue trees, without LocalQueues whose ClusterQueue may still be loading."""
    return [root for root in roots if not _alone(root)] if status.loading else roots


def kueue_alerts(status: ConsoleStatus) -> list[Alert]:
    """Problems of Kueue itself, for the list of problems."""
    return [Alert(trouble=AlertKind.KUEUE, text=one.text, key=one.mark.split(" for ")[0]) for one in status.kueue]


def hide_incomplete_alerts(
    troubles: Sequence[Alert], roots: Sequence[QuotaNode], status: ConsoleStatus
) -> Sequence[Alert]:
    """The problems, without those of LocalQueues whose ClusterQueue is not loaded yet."""
    if not status.loading:
        return troubles
    alone = {root.name for root in roots if _alone(root)}
    return [one for one in troubles if one.trouble is not AlertKind.QUEUE_INACTIVE or one.key not in alone]


def _alone(root: QuotaNode) -> bool:
    return root.kind is NodeKind.LOCAL_QUEUE


LIMITS = {"nominal": "nominal quota", "borrowing": "borrowing limit", "lending": "lending limit"}
NO_LIMIT = ("none", "no", "-", "∞", "")


class QuotaScreen(ObjectScreen):
    """A screen with queue rows whose quotas can be edited."""

    def __init__(self) -> None:
        super().__init__()
        self._roots: Sequence[QuotaNode] = ()

    @property
    def _row(self) -> TreeRow | None:
        """The selected row."""
        raise NotImplementedError

    def _choose_quota(self) -> None:
        row = self._row
        if row is not None:
            options = [option for use in row.node.flavors for option in _limit_options(use)]
            queue = row.node.name
            self.choose(f"Quota of {queue}", options, lambda id: self._ask_quota(queue, id))

    def _ask_quota(self, queue: str, id: str) -> None:
        flavor, resource, which = id.split(" ")
        use = self._quota(queue, flavor, resource)
        if use is None:
            self.flash(f"{queue} no longer has quota of {resource} in {flavor}", "warning")
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
        self.prompt(wanted, lambda text: self._set_quota(queue, use, which, _read(resource, text, which)))

    def _set_quota(self, queue: str, use: QuotaUse, which: str, value: int | None) -> None:
        command = SetQuota(
            queue,
            use.flavor,
            use.resource,
            nominal=value or 0 if which == "nominal" else use.nominal,
            borrowing_limit=value if which == "borrowing" else UNSET,
            lending_limit=value if which == "lending" else UNSET,
        )
        self.send([command], f"{queue}: {LIMITS[which]} is now {fmt.limit(use.resource, value)}")

    def _quota(self, queue: str, flavor: str, resource: str) -> QuotaUse | None:
        """The current quota, which may have changed while the dialog was open."""
        rows = (row.node for row in tree_rows(self._roots, {}, GPUS))
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
"""Kinds that belong to Kueue; the others are shown only."""


def about(row: TreeRow, quotas: Sequence[UsableQuota] = (), now: Time = 0, shut: str = "") -> tuple[Cell, ...]:
    """Lines about the queue under the cursor: problems, available quota per flavor, limits, policy.

    `quotas` are those of a ClusterQueue; `shut` says why it, or the LocalQueue, admits no workloads, if so.
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
"""Actions that need the Cohort object itself."""


class QueuesScreen(QuotaScreen):
    """Cohorts and queues with their quota, as a tree."""

    view = "queues"
    reads = frozenset({"clusterqueues", "cohorts"})

    def __init__(self) -> None:
        super().__init__()
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
        yield Paragraph(id="about")

    def show(self, snapshot: Snapshot) -> None:
        self._trees.ask(snapshot)

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
            "object.open": self._open_workloads,
            "queue.fold": self._fold,
            "queue.unfold": self._unfold,
            "queue.hold": self._hold_or_resume,
            "queue.drain": lambda: self._set_stop(StopPolicy.HOLD_AND_DRAIN),
            "queue.resume": lambda: self._set_stop(StopPolicy.NONE),
            "queue.quota": self._choose_quota,
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
                return Question(f"Delete {name}?", said, yes="Delete", word=self.delete_word())
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
        self.choose("Resource shown in the bars", options, self._set_resource, self._resource)

    def _set_resource(self, name: str) -> None:
        self._resource = name
        self._show_rows()


def in_namespaces(row: TreeRow, names: Collection[str]) -> bool:
    """True for cluster-scoped objects, and for LocalQueues in these namespaces; no names = all."""
    return not names or row.node.kind is not NodeKind.LOCAL_QUEUE or row.node.name.partition("/")[0] in names


def parent(row: TreeRow) -> str:
    """The path of the row above in the tree."""
    if row.flavor:
        return row.path.rsplit(">", 2)[0]
    return row.path.rpartition(">")[0]
