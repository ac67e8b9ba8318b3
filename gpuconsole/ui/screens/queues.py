"""The tree of queues: root cohorts, cohorts, ClusterQueues, LocalQueues and, unfolded, their flavors."""

import re
from collections.abc import Collection, Sequence

from textual.app import ComposeResult

from gpuconsole.insight.engine_queues import queues
from gpuconsole.insight.quota_node import NodeKind, QuotaNode, QuotaUse
from gpuconsole.model.commands import SetQuota, SetStopPolicy
from gpuconsole.model.quantity import amount, format_quantity
from gpuconsole.model.queues import StopPolicy
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui import format as fmt
from gpuconsole.ui import plan
from gpuconsole.ui.actions import Action
from gpuconsole.ui.paint import Cell
from gpuconsole.ui.screens.background import Background
from gpuconsole.ui.screens.base import Handlers
from gpuconsole.ui.screens.objects import ObjectScreen, Subject
from gpuconsole.ui.screens.queue_rows import (
    COLUMNS,
    FOLDED,
    GPUS,
    TreeRow,
    deeper,
    resources,
    tree_rows,
)
from gpuconsole.ui.screens.whatif import try_out, try_quota
from gpuconsole.ui.widgets.confirm import Field, Option, Question
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.painter import Lines

TABLES = {
    NodeKind.COHORT: "cohorts",
    NodeKind.CLUSTER_QUEUE: "cluster_queues",
    NodeKind.LOCAL_QUEUE: "local_queues",
    NodeKind.VOLCANO_QUEUE: "volcano_queues",
    NodeKind.KAI_QUEUE: "kai_queues",
    NodeKind.NAMESPACE: "namespaces",
}
KINDS = {
    NodeKind.COHORT: "cohort",
    NodeKind.CLUSTER_QUEUE: "ClusterQueue",
    NodeKind.LOCAL_QUEUE: "LocalQueue",
    NodeKind.VOLCANO_QUEUE: "Volcano queue",
    NodeKind.KAI_QUEUE: "KAI queue",
    NodeKind.NAMESPACE: "namespace",
}
KUEUES = (NodeKind.COHORT, NodeKind.CLUSTER_QUEUE, NodeKind.LOCAL_QUEUE)
"""What Kueue rules; the others can only be looked at."""
HELD = ("queue.hold", "queue.drain", "queue.resume", "object.what-if")
LIMITS = {"nominal": "nominal quota", "borrowing": "borrowing limit", "lending": "lending limit"}
UNDECLARED = ("object.delete", "object.describe", "object.yaml", "object.copy-json")
"""What needs the Cohort object itself."""
NO_LIMIT = ("none", "no", "-", "∞", "")


class QueuesScreen(ObjectScreen):
    """Cohorts and queues with their quota, as a tree."""

    view = "queues"
    reads = frozenset({"clusterqueues", "cohorts"})

    def __init__(self) -> None:
        super().__init__()
        self._roots: Sequence[QuotaNode] = ()
        self._trees = Background(self, queues, self._show_tree)
        self._levels: dict[str, int] = {}
        self._resource = GPUS

    def body(self) -> ComposeResult:
        yield Grid(
            COLUMNS,
            key=lambda row: row.path,
            fault=lambda row: bool(row.node.problem) or row.node.stop is not StopPolicy.NONE,
            empty="No queues: there is no ClusterQueue and no Cohort in this cluster.",
            id="queues",
        )
        yield Lines(id="about")

    def show(self, snapshot: Snapshot) -> None:
        self._trees.ask(snapshot)

    def _show_tree(self, roots: Sequence[QuotaNode]) -> None:
        self._roots = roots
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
            return "there is no queue under the cursor"
        if row is not None and row.node.kind not in KUEUES and action.id in HELD:
            return "only Kueue's queues can be held"
        if row is not None and row.node.kind is NodeKind.COHORT:
            if action.id in HELD:
                return "a cohort cannot be held; hold its ClusterQueues"
            if action.id in UNDECLARED and not row.node.declared:
                return "this cohort exists only because queues name it"
        if row is not None and row.node.kind is not NodeKind.CLUSTER_QUEUE and action.id == "queue.quota":
            return "only a ClusterQueue's quota can be edited here"
        if action.id == "queue.resume" and row is not None and row.node.stop is StopPolicy.NONE:
            return "it is not held"
        return super().refusal(action)

    def question(self, action: Action) -> Question | None:
        row = self._row
        if row is None:
            return None
        name = f"{KINDS[row.node.kind]} {row.node.name}"
        running = f"{row.node.running} running and {row.node.reserved - row.node.running} reserved"
        match action.id:
            case "queue.drain":
                said = (f"It admits nothing new, and {running} workloads are evicted.",)
                return Question(f"Hold and drain {name}?", said, yes="Drain")
            case "object.delete":
                said = (f"{running} workloads count against it now; {row.node.pending} wait in it.",)
                return Question(f"Delete {name}?", said, yes="Delete", word=self.delete_word())
        return super().question(action)

    def point_at(self, key: str) -> None:
        rows = tree_rows(self._roots, self._levels, self._resource)
        path = next((row.path for row in rows if row.node.name == key), None)
        if path is None or not self._tree.move_to_key(path):
            self.flash(f"{key} is folded or gone", "warning")

    def picked(self, row: object) -> None:
        self._show_about()
        self.refresh_frame()

    # Inside

    def _ask_what_if(self) -> None:
        row = self._row
        if row is None:
            return
        name = row.node.name
        refused = "" if row.node.kind is NodeKind.CLUSTER_QUEUE else "only a ClusterQueue has quotas"
        options = (Option("hold", "hold it", "s"), Option("quota", "change a quota", "e", refused=refused))
        opens = {
            "hold": lambda: try_out(self.console_app, plan.hold(name)),
            "quota": lambda: try_quota(self.console_app, name),
        }
        self.choose(f"What if, with {name}", options, lambda kind: opens[kind]())

    @property
    def _tree(self) -> Grid[TreeRow]:
        return self.query_one("#queues", Grid)

    @property
    def _row(self) -> TreeRow | None:
        return self._tree.current

    def _show_rows(self) -> None:
        rows = tree_rows(self._roots, self._levels, self._resource)
        self._tree.show([row for row in rows if in_namespaces(row, self.namespaces)])
        self._show_about()

    def _show_about(self) -> None:
        row = self._row
        self.query_one(Lines).lines = about(row) if row is not None else ()

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
            self.console_app.go("workloads", filtered=re.escape(row.node.name.rpartition("/")[2]))

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
        options = [Option(name, fmt.resource(name)) for name in resources(self._roots)]
        self.choose("Resource that the bars show", options, self._set_resource, self._resource)

    def _set_resource(self, name: str) -> None:
        self._resource = name
        self._show_rows()

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
            self.flash(f"{queue} has no quota of {resource} in {flavor} any more", "warning")
            return
        old = {"nominal": use.nominal, "borrowing": use.borrowing_limit, "lending": use.lending_limit}[which]
        before = fmt.limit(resource, old)
        wanted = Field(
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
            borrowing_limit=value if which == "borrowing" else use.borrowing_limit,
            lending_limit=value if which == "lending" else use.lending_limit,
        )
        self.send([command], f"{queue}: {LIMITS[which]} is now {fmt.limit(use.resource, value)}")

    def _quota(self, queue: str, flavor: str, resource: str) -> QuotaUse | None:
        """The quota as it is now: the one that was offered may have changed while the dialog was open."""
        rows = (row.node for row in tree_rows(self._roots, {}, GPUS))
        uses = (use for node in rows if node.name == queue for use in node.flavors)
        return next((use for use in uses if (use.flavor, use.resource) == (flavor, resource)), None)


def in_namespaces(row: TreeRow, names: Collection[str]) -> bool:
    """True for what belongs to no namespace, and for LocalQueues of these; no names = all."""
    return not names or row.node.kind is not NodeKind.LOCAL_QUEUE or row.node.name.partition("/")[0] in names


def parent(row: TreeRow) -> str:
    """The path of the row above in the tree."""
    if row.flavor:
        return row.path.rsplit(">", 2)[0]
    return row.path.rpartition(">")[0]


def about(row: TreeRow) -> tuple[Cell, ...]:
    """A few lines on the queue under the cursor: what is wrong, its limits, its policy."""
    node, use, resource = row.node, row.use, row.resource
    kind = KINDS[node.kind]
    could = f"could take {fmt.amount(resource, use.available)} now, {fmt.amount(resource, use.potential)} at most"
    reserved = use.used - use.admitted
    only = f" · {fmt.amount(resource, reserved)} only reserved" if reserved else ""
    first: Cell = ((f" {kind} ", "dim"), (node.name, "strong"), (f"  {fmt.resource(resource)}: {could}{only}", ""))
    second: Cell = ((f" {_limits(row)}", "dim"),)
    wait = f" {node.pending} wait for {node.pending_gpus} GPUs" if node.pending else " nobody waits"
    third: Cell = ((wait + (f", {node.parked} of them parked" if node.parked else ""), "dim"),)
    problem: tuple[Cell, ...] = (((f" ⚠ {node.problem}", "fault"),),) if node.problem else ()
    return (first, *problem, second, third)


def _limits(row: TreeRow) -> str:
    if row.node.kind not in KUEUES:
        resource, use = row.resource, row.use
        deserves = {NodeKind.VOLCANO_QUEUE: "deserves", NodeKind.KAI_QUEUE: "quota"}.get(row.node.kind, "may have")
        most = f" · at most {fmt.amount(resource, use.potential)}" if use.potential != use.nominal else ""
        return f"{deserves} {fmt.amount(resource, use.nominal)}{most} · {row.node.policy}"
    if row.node.kind is NodeKind.LOCAL_QUEUE:
        return "a door to its ClusterQueue; it owns no quota"
    use, resource = row.use, row.resource
    parts = [
        f"borrowing limit {fmt.limit(resource, use.borrowing_limit)}",
        f"lending limit {fmt.limit(resource, use.lending_limit)}",
    ]
    return " · ".join([*parts, row.node.policy] if row.node.policy else parts)


def _limit_options(use: QuotaUse) -> list[Option]:
    values = {"nominal": use.nominal, "borrowing": use.borrowing_limit, "lending": use.lending_limit}
    return [
        Option(
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
    return "no less than 0" if value is not None and value < 0 else ""
