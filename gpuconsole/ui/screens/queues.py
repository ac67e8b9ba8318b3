"""Queues screen: tree of cohorts, ClusterQueues, LocalQueues and, unfolded, their flavors."""

import re
from collections.abc import Collection, Sequence

from textual.app import ComposeResult

from gpuconsole.insight.index.available_quota import usable_quota
from gpuconsole.insight.index.engine_queues import queues
from gpuconsole.insight.index.quota_tree import NodeKind, QuotaNode, every, inactive_reason
from gpuconsole.model.commands import SetStopPolicy
from gpuconsole.model.queues import StopPolicy
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui import format as fmt
from gpuconsole.ui.actions import Action
from gpuconsole.ui.incomplete_data import hide_incomplete_queues
from gpuconsole.ui.paint import Cell
from gpuconsole.ui.queue_text import KINDS, KUEUES, about
from gpuconsole.ui.screens.actions_mixin import Handlers
from gpuconsole.ui.screens.objects import Subject
from gpuconsole.ui.screens.queue_quota import QuotaScreen
from gpuconsole.ui.screens.queue_rows import (
    COLUMNS,
    FOLDED,
    GPUS,
    TreeRow,
    deeper,
    resources,
    tree_rows,
)
from gpuconsole.ui.screens.snapshot_worker import SnapshotWorker
from gpuconsole.ui.screens.whatif_links import what_if_with_queue
from gpuconsole.ui.widgets.confirm import ChoiceOption, Question
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.paragraph import Paragraph

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
