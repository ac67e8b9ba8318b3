"""The GPU map: one cell a GPU, nodes flowing over the lines, coloured by state, queue, owner, age, use or heat.

Only visible lines are drawn. A cell always has a glyph too, so that the map reads without colour: by state the glyphs
of the states, by queue the letter of the legend, by owner the first letter of the workload's name.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from math import inf
from operator import is_
from string import ascii_letters
from typing import NamedTuple
from zlib import crc32

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from gpuconsole.insight.gpumap import GpuCell, GpuRow, GpuState
from gpuconsole.insight.measured import HOT
from gpuconsole.model.clock import DAY, HOUR, Span, Time
from gpuconsole.model.telemetry import Measure, NodeTelemetry, busy
from gpuconsole.model.text import clean
from gpuconsole.ui import paint
from gpuconsole.ui.names import called
from gpuconsole.ui.paint import Painted, join, line
from gpuconsole.ui.widgets.notice import State, notice
from gpuconsole.ui.widgets.painter import RoleStyles, StatusLine

SERIES = 8
MAX_NAME = 24
GAP = 2
GLYPHS = {
    GpuState.OWN: "▣",
    GpuState.BORROWED: paint.GLYPHS["borrowed"],
    GpuState.IDLE: paint.GLYPHS["idle"],
    GpuState.FAULT: paint.GLYPHS["fault"],
    GpuState.HELD: paint.GLYPHS["held"],
}
WORDS = {
    GpuState.OWN: "in own quota",
    GpuState.BORROWED: "borrowed",
    GpuState.IDLE: "idle",
    GpuState.FAULT: "fault",
    GpuState.HELD: "held",
}
FREE = (GpuState.IDLE, GpuState.FAULT, GpuState.HELD)
AGES = ((HOUR, "under 1 h", "1"), (6 * HOUR, "under 6 h", "6"), (DAY, "under 1 d", "d"), (7 * DAY, "under 7 d", "w"))
OLDEST = ("7 d and more", "W")
"""Spans with their words and their glyphs; each has a colour of its own."""


class ColourBy(StrEnum):
    """What a cell's colour and glyph tell."""

    STATE = "state"
    QUEUE = "queue"
    OWNER = "owner"
    AGE = "age"
    """How long the pod has had the GPU."""
    UTILISATION = "utilisation"
    TEMPERATURE = "temperature"

    @property
    def next(self) -> "ColourBy":
        ways = list(ColourBy)
        return ways[(ways.index(self) + 1) % len(ways)]


class Band(NamedTuple):
    """A stretch of a scale; `below` is its end."""

    below: float
    word: str
    glyph: str
    role: str


UNKNOWN = Band(0.0, "not measured", "·", "dim")
SCALES: Mapping[ColourBy, tuple[Band, ...]] = {
    ColourBy.UTILISATION: (
        Band(1, "idle", "▁", "idle"),
        Band(25, "under 25 %", "▂", "pending"),
        Band(50, "under 50 %", "▄", "lent"),
        Band(75, "under 75 %", "▆", "series-1"),
        Band(inf, "75 % and more", "█", "own"),
    ),
    ColourBy.TEMPERATURE: (
        Band(45, "under 45 °C", "▁", "idle"),
        Band(65, "under 65 °C", "▃", "own"),
        Band(HOT, f"under {HOT:.0f} °C", "▅", "pending"),
        Band(inf, f"{HOT:.0f} °C and more", "█", "fault"),
    ),
}
LASTING = (ColourBy.STATE, ColourBy.QUEUE, ColourBy.OWNER)
"""What is the same as long as the nodes are, whatever time it is."""
UNMEASURED: Mapping[str, NodeTelemetry] = {}
Known = dict[str, tuple[NodeTelemetry | None, GpuRow, Sequence[Band]]]
"""Node → what its bands were made of, and they."""


class Look:
    """Glyph and colour role of each cell, for one set of rows; queues keep their letters while they exist."""

    def __init__(
        self,
        by: ColourBy,
        rows: Iterable[GpuRow],
        now: Time = 0,
        telemetry: Mapping[str, NodeTelemetry] = UNMEASURED,
        known: Known | None = None,
    ) -> None:
        """`known` is what an earlier look at the same measure found; it is kept up."""
        self.by = by
        self._telemetry = telemetry
        self._known: Known = {} if known is None else known
        self._now = now
        self.counts: Counter[str] = Counter()
        self.states: Counter[GpuState] = Counter()
        for row in rows:
            if by in SCALES:
                for band in self._bands(row):
                    self.counts[band.word] += 1
                continue
            for state, count in row.counts.items():
                self.states[state] += count
            if by is not ColourBy.STATE:
                self.counts.update(self._group(cell) for cell in row.cells if cell.state not in FREE)
        names = sorted(self.counts) if by is ColourBy.QUEUE else ()
        self._letters = {name: ascii_letters[26:][position % 26] for position, name in enumerate(names)}
        self._series = {name: f"series-{position % SERIES + 1}" for position, name in enumerate(names)}

    def _group(self, cell: GpuCell) -> str:
        """What a cell that somebody owns is counted and coloured with."""
        match self.by:
            case ColourBy.QUEUE:
                return cell.queue
            case ColourBy.AGE:
                return age_of(self._now - cell.since)
            case _:
                return cell.workload or cell.pod

    def row(self, row: GpuRow) -> list[tuple[str, str]]:
        """(glyph, role) of each cell of a node; where nothing new is known, what was known is dim."""
        if self.by not in SCALES:
            return [self.cell(cell) for cell in row.cells]
        telemetry = self._telemetry.get(row.node)
        stale = telemetry is not None and telemetry.stale(self._now)
        return [(band.glyph, "dim" if stale else band.role) for band in self._bands(row)]

    def _bands(self, row: GpuRow) -> Sequence[Band]:
        telemetry, known = self._telemetry.get(row.node), self._known.get(row.node)
        if known is not None and known[0] is telemetry and known[1] is row:
            return known[2]
        values = heat(telemetry, self.by is ColourBy.TEMPERATURE)
        bands = [band_of(values.get(cell.index), SCALES[self.by]) for cell in row.cells]
        self._known[row.node] = (telemetry, row, bands)
        return bands

    def cell(self, cell: GpuCell) -> tuple[str, str]:
        """(glyph, role) of a cell."""
        if self.by is ColourBy.STATE or cell.state in FREE:
            return GLYPHS[cell.state], cell.state
        return self.owned(self._group(cell))

    def owned(self, name: str) -> tuple[str, str]:
        """(glyph, role) of the cells of a queue, a workload or an age."""
        if self.by is ColourBy.AGE:
            words = [word for _, word, _ in AGES]
            place = words.index(name) if name in words else len(AGES)
            return (AGES[place][2] if place < len(AGES) else OLDEST[1]), f"series-{place + 1}"
        if self.by is ColourBy.QUEUE:
            return self._letters.get(name, "▣") if name else "▣", self._series.get(name, "series-1")
        first = clean(called(name).rpartition("/")[2][:1]) or "▣"
        return (first if cell_len(first) == 1 else "▣"), f"series-{crc32(name.encode()) % SERIES + 1}"

    def legend(self) -> Painted:
        """What the map shows, most GPUs first; measures from low to high."""
        if self.by in SCALES:
            bands = (*SCALES[self.by], UNKNOWN)
            return join(
                [((b.glyph, b.role), (f" {b.word} {self.counts[b.word]}", "")) for b in bands if self.counts[b.word]]
            )
        free = [state for state in FREE if self.states[state]]
        entries: list[Painted] = []
        if self.by is ColourBy.STATE:
            free = [state for state in (GpuState.OWN, GpuState.BORROWED) if self.states[state]] + free
        else:
            for name, count in self.counts.most_common():
                entries.append((self.owned(name), (f" {called(name) or 'no queue'} {count}", "")))
        entries += [((GLYPHS[state], state), (f" {WORDS[state]} {self.states[state]}", "")) for state in free]
        return join(entries)


def heat(telemetry: NodeTelemetry | None, temperature: bool) -> dict[int, float]:
    """The temperature of each GPU of a node, or how busy it is in percent; a divided one is as busy as its busiest."""
    found: dict[int, float] = {}
    if telemetry is None:
        return found
    for position, device in enumerate(telemetry.devices):
        value = telemetry.value(position, Measure.TEMPERATURE) if temperature else busy(telemetry, position)
        if value is not None:
            found[device.gpu] = max(value, found.get(device.gpu, 0.0))
    return found


def band_of(value: float | None, scale: Sequence[Band]) -> Band:
    """Where a value lies."""
    return UNKNOWN if value is None else next((band for band in scale if value < band.below), scale[-1])


def age_of(span: Span) -> str:
    """The words for how long a pod has had its GPU."""
    return next((words for most, words, _ in AGES if span < most), OLDEST[0])


class Legend(StatusLine):
    """One line that says what the map's glyphs and colours mean, and how many GPUs have each."""

    def show(self, look: Look) -> None:
        self.left = look.legend()
        self.right = (("B ", "key"), (f"by {look.by}", "dim"))


class GpuMap(ScrollView, RoleStyles, can_focus=True, inherit_bindings=False):
    """Nodes as blocks `name ▣▣▣▣○○○○`, with a cursor on a node."""

    colour: reactive[ColourBy] = reactive(ColourBy.STATE)

    @dataclass
    class Moved(Message):
        """The cursor is on another node."""

        node: str

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._rows: Sequence[GpuRow] = ()
        self._marked: frozenset[str] = frozenset()
        self._now: Time = 0
        self._telemetry = UNMEASURED
        self._known: Known = {}
        self._cursor = 0
        self._look = Look(ColourBy.STATE, ())
        self._columns = 1
        self._name_width = 8
        self._block = 20
        self._strips: dict[int, Strip] = {}
        self._said = notice(State.LOADING)

    @property
    def cursor_key(self) -> str:
        """Name of the node under the cursor, or nothing where there are no nodes."""
        return self._rows[self._cursor].node if self._rows else ""

    @property
    def look(self) -> Look:
        return self._look

    def show(
        self,
        rows: Sequence[GpuRow],
        marked: frozenset[str] = frozenset(),
        empty: str = "No nodes.",
        now: Time = 0,
        telemetry: Mapping[str, NodeTelemetry] = UNMEASURED,
    ) -> None:
        """Show these nodes; the cursor stays on its node while that is there. `empty` is said where there are none."""
        key = self.cursor_key
        drawn = self._draws(rows, marked)
        self._said = notice(State.EMPTY, empty)
        self._rows, self._marked, self._now, self._telemetry = rows, marked, now, telemetry
        if drawn:
            return
        self.select(key)
        self._cursor = min(self._cursor, max(0, len(rows) - 1))
        self._recolour()

    def _draws(self, rows: Sequence[GpuRow], marked: frozenset[str]) -> bool:
        """Whether it shows just that already: most changes of a cluster change no node. What ages is never done."""
        return (
            self.colour in LASTING
            and bool(rows)
            and len(rows) == len(self._rows)
            and all(map(is_, rows, self._rows))
            and marked == self._marked
        )

    def select(self, node: str) -> None:
        """Put the cursor on this node, if it is there."""
        position = next((position for position, row in enumerate(self._rows) if row.node == node), None)
        if position is not None:
            self._go(position)

    def watch_colour(self) -> None:
        self._known.clear()
        self._recolour()

    def on_resize(self) -> None:
        self._arrange()

    def _recolour(self) -> None:
        self._look = Look(self.colour, self._rows, self._now, self._telemetry, self._known)
        self._arrange()

    def _arrange(self) -> None:
        cells = max((len(row.cells) for row in self._rows), default=0)
        self._name_width = min(MAX_NAME, max((cell_len(clean(row.node)) for row in self._rows), default=8))
        self._block = self._name_width + 2 + cells + GAP
        width = self.scrollable_content_region.width
        self._columns = max(1, (width + GAP) // self._block)
        lines = -(-len(self._rows) // self._columns)
        self.virtual_size = Size(max(1, width), lines)
        self._strips.clear()
        self.refresh()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        if not self._rows:
            return line(self._said if y == 1 else "", "", width, self.base, self.style_of)
        number = y + self.scroll_offset.y
        strip = self._strips.get(number)
        if strip is None:
            strip = self._strips[number] = self._line(number).extend_cell_length(width, self.base)
        return strip.crop(0, width)

    def _line(self, number: int) -> Strip:
        first = number * self._columns
        segments: list[Segment] = []
        base = self.base
        for position in range(first, min(first + self._columns, len(self._rows))):
            row = self._rows[position]
            at_cursor = position == self._cursor and self.has_focus
            segments += self._node(row, base, at_cursor)
        return Strip(segments)

    def _node(self, row: GpuRow, base: Style, at_cursor: bool) -> list[Segment]:
        role = "cursor" if at_cursor else self._name_role(row)
        # Cursor and mark have a sign of their own, for terminals without colours.
        sign = "▌" if at_cursor else "*" if row.node in self._marked else " "
        name = sign + set_cell_size(clean(row.node), self._name_width)
        segments = [Segment(name, self._style(role, base)), Segment(" ", base)]
        looks = self._look.row(row)
        for cell_role, run in groupby(looks, key=lambda look: look[1]):
            segments.append(Segment("".join(glyph for glyph, _ in run), self._style(cell_role, base)))
        blank = self._block - self._name_width - 2 - len(looks)
        segments.append(Segment(" " * blank, base))
        return segments

    def _name_role(self, row: GpuRow) -> str:
        if row.node in self._marked:
            return "marked"
        if not row.ready:
            return "fault"
        return "held" if row.cordoned else ""

    def _style(self, role: str, base: Style) -> Style:
        return base + self.style_of(role) if role else base

    def _go(self, position: int) -> None:
        position = max(0, min(position, len(self._rows) - 1))
        if position == self._cursor or not self._rows:
            return
        for changed in (self._cursor, position):
            self._strips.pop(changed // self._columns, None)
        self._cursor = position
        self.scroll_to_region(Region(0, position // self._columns, 1, 1), animate=False, force=True)
        self.refresh()
        self.post_message(self.Moved(self.cursor_key))

    def on_focus(self) -> None:
        self._strips.clear()
        self.refresh()

    def on_blur(self) -> None:
        self._strips.clear()
        self.refresh()

    def move(self, right: int, down: int) -> None:
        """Move the cursor by nodes and lines."""
        target = self._cursor + right + down * self._columns
        if 0 <= target < len(self._rows):
            self._go(target)

    def edge(self, way: int) -> None:
        """Move the cursor to the first or the last node."""
        self._go(0 if way < 0 else len(self._rows) - 1)

    def page(self, way: int) -> None:
        """Move the cursor by a page of lines."""
        self._go(self._cursor + way * self._columns * max(1, self.scrollable_content_region.height - 1))

    def on_click(self, event: events.Click) -> None:
        column = event.x // self._block
        position = (event.y + self.scroll_offset.y) * self._columns + column
        if column < self._columns and position < len(self._rows):
            self._go(position)
