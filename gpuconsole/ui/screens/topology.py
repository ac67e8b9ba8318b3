"""Topology screen: tree of blocks, racks and hosts, with used and free GPUs and the gangs that fit."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from textual.app import ComposeResult

from gpuconsole.insight.index.fragmentation import NO_LIMITS, SIZES, GangLimits, LargestGang, gang_limits, largest
from gpuconsole.insight.index.gpu_map import GpuState
from gpuconsole.insight.index.topology import HOST, DomainUsage, domains
from gpuconsole.model.devices import described
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui import format as fmt
from gpuconsole.ui.actions import Action, Handlers
from gpuconsole.ui.names import called
from gpuconsole.ui.paint import GLYPHS, Cell, Painted, join
from gpuconsole.ui.screens.background import SnapshotWorker
from gpuconsole.ui.screens.base import ConsoleScreen, Subject
from gpuconsole.ui.screens.node_actions import NodeActions
from gpuconsole.ui.screens.nodes import NodeDetailScreen
from gpuconsole.ui.screens.objects import ObjectActions
from gpuconsole.ui.table_model import Column
from gpuconsole.ui.widgets.gpumap import IN_USE, WORDS
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.painter import Lines, share

BAR = 16
DEEPEST = 8
"""Deepest indentation, so that names stay readable."""
FEW = 40
"""Up to this many hosts, all hosts are unfolded at first."""
SHADES = (
    (GpuState.OWN, "█", "own"),
    (GpuState.BORROWED, "▓", "borrowed"),
    (GpuState.HELD, "▒", "held"),
    (GpuState.FAULT, "×", "fault"),
    (GpuState.IDLE, "░", "idle"),
    (GpuState.UNKNOWN, "?", "unknown"),
)
SEPARATOR = "\x1f"


@dataclass(frozen=True)
class DomainRow:
    """A row of the topology tree: a domain such as a block, a rack or a host."""

    domain: DomainUsage
    depth: int
    opened: bool | None
    """Whether its children are shown; None if it has none."""
    limits: GangLimits

    @cached_property
    def largest_gang(self) -> LargestGang | None:
        """The largest gang that could start in the domain now."""
        return largest(self.limits.gangs(self.domain.rows))

    @property
    def key(self) -> str:
        return SEPARATOR.join(self.domain.path)


def domain_rows(roots: Iterable[DomainUsage], opened: Mapping[str, bool], limits: GangLimits) -> list[DomainRow]:
    """Flatten the tree to the rows that are shown. `opened` maps a domain's key to whether it is unfolded.

    Other domains are unfolded, except, in a tree of more than `FEW` hosts, those whose children are hosts.
    """
    roots = tuple(roots)
    few = sum(len(root.rows) for root in roots) <= FEW
    rows: list[DomainRow] = []
    waiting = [(root, 0) for root in reversed(roots)]
    while waiting:
        domain, depth = waiting.pop()
        hosts = bool(domain.children) and domain.children[0].level == HOST
        open_here = opened.get(SEPARATOR.join(domain.path), few or not hosts)
        rows.append(DomainRow(domain, depth, open_here if domain.children else None, limits))
        if open_here:
            waiting += [(child, depth + 1) for child in reversed(domain.children)]
    return rows


def bar(states: Mapping[GpuState, int], width: int) -> Painted:
    """Draw GPUs as a bar of `width` cells: used █, borrowed ▓, held ▒, faulty ×, idle ░, unknown ?."""
    amounts = tuple(states[state] for state, _, _ in SHADES)
    if not sum(amounts):
        return (("·" * width, "dim"),)
    cells = share(width, amounts)
    return tuple((shade * count, role) for (_, shade, role), count in zip(SHADES, cells, strict=True) if count)


def name_cell(row: DomainRow) -> Painted:
    """Format the name of a row, indented by depth, with fold mark, health and ⚠ if there is a note."""
    mark = "  " if row.opened is None else "▾ " if row.opened else "▸ "
    role = "title" if not row.depth else "" if row.domain.level == HOST else "strong"
    note = ((" ⚠", "fault"),) if row.domain.note else ()
    return (("  " * min(row.depth, DEEPEST) + mark, "dim"), (row.domain.name, role), *health(row.domain), *note)


def health(domain: DomainUsage) -> Painted:
    """The health of a host: cordoned or not ready."""
    host = domain.host
    if host is None or (host.ready and not host.cordoned):
        return ()
    return ((f" {GLYPHS['held']}", "held"),) if host.ready else ((f" {GLYPHS['fault']}", "fault"),)


def level_cell(row: DomainRow) -> Cell:
    """Format the topology level: the last part of its node label."""
    return ((row.domain.level.rpartition("/")[2].rpartition(".")[2] or "", "dim"),)


def owners_cell(domain: DomainUsage, most: int) -> Painted:
    """Name the workloads with the most GPUs in a domain, at most `most`, and the number of others."""
    names = list(domain.owners.items())
    shown: list[Cell] = [((called(name), "strong"), (f" {count}", "")) for name, count in names[:most]]
    more = ((f"+{len(names) - most} more", "dim"),) if len(names) > most else ()
    return join([*shown, more])


def _slots(size: int) -> Column[DomainRow]:
    def cell(row: DomainRow) -> Cell:
        count = row.domain.slots.slots[size]
        return ((fmt.number(count) if count else fmt.NOTHING, "" if count else "dim"),)

    return Column(f"×{size}", cell, id=f"slots-{size}", width=5 if size < 4 else 4, align="right", rank=1)


COLUMNS: tuple[Column[DomainRow], ...] = (
    Column("DOMAIN", name_cell, id="name", width=18, flex=2),
    Column("LEVEL", level_cell, width=8, flex=1, rank=3),
    Column("USED", lambda row: f"{fmt.number(row.domain.used)}/{fmt.number(row.domain.gpus)}", width=13, align="right"),
    Column("", lambda row: bar(row.domain.states, BAR), width=BAR),
    *(_slots(size) for size in SIZES),
    Column("MAX GANG", lambda row: fmt.gang(row.largest_gang), width=8, align="right", rank=2),
    Column("WORKLOADS", lambda row: owners_cell(row.domain, 3), width=16, flex=4, rank=4),
)


def about(row: DomainRow) -> tuple[Cell, ...]:
    """Lines about the domain under the cursor: free slots, largest gang, workloads."""
    domain, slots = row.domain, row.domain.slots
    kind = f"{domain.level.rpartition('/')[2]} " if domain.level else ""
    nodes = f"{fmt.number(slots.nodes)} node{'s' if slots.nodes != 1 else ''}, " if domain.host is None else ""
    first: Cell = (
        (f" {kind}", "dim"),
        (" / ".join(domain.path[1:]) or domain.name, "strong"),
        (f"  {nodes}{described(domain.units)}: ", ""),
        *_states(domain),
    )
    fits = "  ".join(f"{size}: {fmt.number(slots.slots[size])}" for size in SIZES)
    second: Cell = ((" free slots by GPU count  ", "dim"), (fits, ""), (f"  largest pod {slots.largest_pod}", "dim"))
    third: Cell = ((" largest gang  ", "dim"), (fmt.gang_with_limits(row.largest_gang), ""))
    who: Cell = ((" workloads  ", "dim"), *(owners_cell(domain, 4) or (("none", "dim"),)))
    note: tuple[Cell, ...] = (((f" ⚠ {domain.note}", "fault"),),) if domain.note else ()
    return (first, *note, second, third, who)


def _states(domain: DomainUsage) -> Painted:
    queued = any(cell.queue for row in domain.rows for cell in row.all_cells)
    words = {
        GpuState.OWN: WORDS[GpuState.OWN] if queued else IN_USE,
        GpuState.BORROWED: "borrowed",
        GpuState.HELD: "held",
        GpuState.FAULT: "faulty",
        GpuState.IDLE: "idle",
        GpuState.UNKNOWN: "unknown",
    }
    shown: Sequence[Cell] = [
        ((f"{shade} {fmt.number(domain.states[state])} {words[state]}", role),)
        for state, shade, role in SHADES
        if domain.states[state]
    ]
    return join(shown)


class TopologyScreen(ConsoleScreen):
    """Topologies and HyperNodes as trees, down to the hosts."""

    view = "topology"
    reads = frozenset({"nodes"})

    def __init__(self) -> None:
        super().__init__()
        self.groups = (ObjectActions(self), NodeActions(self))
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
