"""Topology screen: tree of blocks, racks and hosts, with used and free GPUs and the gangs that fit."""

from collections.abc import Sequence

from textual.app import ComposeResult

from gpuconsole.insight.index.largest_gang import NO_LIMITS, GangLimits, gang_limits
from gpuconsole.insight.index.topology import DomainUsage, domains
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui.actions import Action
from gpuconsole.ui.domain_rows import COLUMNS, SEPARATOR, DomainRow, about, domain_rows
from gpuconsole.ui.screens.actions_mixin import Handlers
from gpuconsole.ui.screens.node_actions import NodeScreen
from gpuconsole.ui.screens.node_detail import NodeDetailScreen
from gpuconsole.ui.screens.objects import Subject
from gpuconsole.ui.screens.snapshot_worker import SnapshotWorker
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.painter import Lines


class TopologyScreen(NodeScreen):
    """Topologies and HyperNodes as trees, down to the hosts."""

    view = "topology"
    reads = frozenset({"nodes"})

    def __init__(self) -> None:
        super().__init__()
        self._roots: Sequence[DomainUsage] = ()
        self._opened: dict[str, bool] = {}
        self._limits = NO_LIMITS
        self._trees = SnapshotWorker(self, _answer, self._show_tree)

    def body(self) -> ComposeResult:
        yield Grid(
            COLUMNS,
            key=lambda row: row.key,
            labels=self._labels,
            fault=_faulty,
            empty="No nodes.",
            id="domains",
        )
        yield Lines(id="about")

    def _labels(self, row: DomainRow) -> dict[str, str]:
        node = self.snapshot.nodes.get(row.domain.name) if row.domain.host is not None else None
        return dict(node.labels) if node is not None else {}

    def show(self, snapshot: Snapshot) -> None:
        self._trees.ask(snapshot)

    def _show_tree(self, answer: tuple[Sequence[DomainUsage], GangLimits]) -> None:
        self._roots, self._limits = answer
        self._show_rows()

    def _show_rows(self) -> None:
        self._tree.show(domain_rows(self._roots, self._opened, self._limits))
        self._show_about()

    def _show_about(self) -> None:
        row = self._tree.current
        self.query_one("#about", Lines).lines = about(row) if row is not None else ()

    @property
    def _tree(self) -> Grid[DomainRow]:
        return self.query_one("#domains", Grid)

    def picked(self, row: object) -> None:
        self._show_about()
        self.refresh_frame()

    def handlers(self) -> Handlers:
        return {
            **super().handlers(),
            "object.open": self._open,
            "topology.fold": self._fold,
            "topology.unfold": self._unfold,
        }

    def refusal(self, action: Action) -> str:
        if action.id in ("object.open", "topology.fold", "topology.unfold") and self._tree.current is None:
            return "nothing is selected"
        return super().refusal(action)

    def subject(self) -> Subject | None:
        row = self._tree.current
        return self._subject(row) if row is not None else None

    def subjects(self) -> list[Subject]:
        found = (self._subject(row) for row in self._tree.targets)
        return [subject for subject in found if subject is not None]

    def _subject(self, row: DomainRow) -> Subject | None:
        """The object of a row: a node, a Topology or a HyperNode; other domains have none."""
        path, name = row.domain.path, row.domain.name
        if row.domain.host is not None:
            return Subject("nodes", name)
        if len(path) == 1:
            return Subject("topologies", name) if name in self.snapshot.topologies else None
        return Subject("hyper_nodes", name) if name in self.snapshot.hyper_nodes else None

    def _open(self) -> None:
        """Open a host; fold or unfold any other domain."""
        row = self._tree.current
        if row is not None and row.domain.host is not None:
            self.open(NodeDetailScreen(row.domain.name))
        elif row is not None:
            self._turn(row, not row.opened)

    def _unfold(self) -> None:
        row = self._tree.current
        if row is not None and row.opened is False:
            self._turn(row, True)

    def _fold(self) -> None:
        row = self._tree.current
        if row is None:
            return
        if row.opened:
            self._turn(row, False)
        else:
            self._tree.move_to_key(SEPARATOR.join(row.domain.path[:-1]))

    def _turn(self, row: DomainRow, opened: bool) -> None:
        if row.opened is not None:
            self._opened[row.key] = opened
            self._show_rows()

    def point_at(self, key: str) -> None:
        """Unfold the domains above a host, and select it."""
        path = next((path for root in self._roots if (path := _way(root, key))), ())
        for depth in range(1, len(path)):
            self._opened[SEPARATOR.join(path[:depth])] = True
        self._show_rows()
        if not path or not self._tree.move_to_key(SEPARATOR.join(path)):
            self.flash(f"{key} is not in this tree", "warning")


def _way(root: DomainUsage, name: str) -> tuple[str, ...]:
    """The path of the domain of this name; empty if there is none."""
    waiting = [root]
    while waiting:
        domain = waiting.pop()
        if domain.name == name:
            return domain.path
        waiting += domain.children
    return ()


def _faulty(row: DomainRow) -> bool:
    host = row.domain.host
    return bool(row.domain.note) or (host is not None and (not host.ready or host.cordoned))


def _answer(snapshot: Snapshot) -> tuple[Sequence[DomainUsage], GangLimits]:
    return domains(snapshot), gang_limits(snapshot)
