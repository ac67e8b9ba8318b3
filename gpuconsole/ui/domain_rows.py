"""Rows and columns of the topology tree."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from gpuconsole.insight.index.gpu_map import GpuState
from gpuconsole.insight.index.largest_gang import SIZES, GangLimits, LargestGang, largest
from gpuconsole.insight.index.topology import HOST, DomainUsage
from gpuconsole.model.device_units import described
from gpuconsole.ui import format as fmt
from gpuconsole.ui.columns import Column
from gpuconsole.ui.gpu_cell_style import IN_USE, WORDS
from gpuconsole.ui.names import called
from gpuconsole.ui.paint import GLYPHS, Cell, Painted, join
from gpuconsole.ui.widgets.bars import share

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
    """A line of the tree."""

    domain: DomainUsage
    depth: int
    opened: bool | None
    """None where there is nothing below."""
    limits: GangLimits

    @cached_property
    def largest_gang(self) -> LargestGang | None:
        """The largest gang that could start in the domain now."""
        return largest(self.limits.gangs(self.domain.rows))

    @property
    def key(self) -> str:
        return SEPARATOR.join(self.domain.path)


def domain_rows(roots: Iterable[DomainUsage], opened: Mapping[str, bool], limits: GangLimits) -> list[DomainRow]:
    """Flatten the unfolded part of the tree; domains not in `opened` are unfolded, unless they have many hosts."""
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
    """The states of GPUs as a bar: used █, borrowed ▓, held ▒, faulty ×, idle ░, unknown ?."""
    amounts = tuple(states[state] for state, _, _ in SHADES)
    if not sum(amounts):
        return (("·" * width, "dim"),)
    cells = share(width, amounts)
    return tuple((shade * count, role) for (_, shade, role), count in zip(SHADES, cells, strict=True) if count)


def name_cell(row: DomainRow) -> Painted:
    """The name, indented by its depth, with the fold mark."""
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
    """The topology level: the last part of its label."""
    return ((row.domain.level.rpartition("/")[2].rpartition(".")[2] or "", "dim"),)


def owners_cell(domain: DomainUsage, most: int) -> Painted:
    """The workloads with the most GPUs here, and the number of others."""
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
