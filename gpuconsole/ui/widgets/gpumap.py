"""The GPU map: one cell a GPU, nodes flowing over the lines, and the glyph and colour of each cell.

Colours show the state, queue, owner, age, utilization or temperature. A cell always has a glyph, so that the map is
readable without colour: by state the glyphs of the states, by queue the letter of the legend, by owner the first letter
of the workload's name. Only visible lines are drawn.
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

from gpuconsole.insight.health.telemetry import HOT
from gpuconsole.insight.index.gpu_map import GpuCell, GpuRow, GpuState
from gpuconsole.model.clock import DAY, HOUR, Span, Time
from gpuconsole.model.telemetry import GpuMetric, NodeTelemetry, busy
from gpuconsole.model.text import clean
from gpuconsole.ui import paint
from gpuconsole.ui.names import called
from gpuconsole.ui.paint import Painted, join, line
from gpuconsole.ui.widgets.painter import PaneState, RoleStyles, StatusLine, notice

SERIES = 8
GPU_GLYPHS = {
    GpuState.OWN: "▣",
    GpuState.BORROWED: paint.GLYPHS["borrowed"],
    GpuState.IDLE: paint.GLYPHS["idle"],
    GpuState.FAULT: paint.GLYPHS["fault"],
    GpuState.HELD: paint.GLYPHS["held"],
    GpuState.UNKNOWN: paint.GLYPHS["unknown"],
}
WORDS = {
    GpuState.OWN: "nominal quota",
    GpuState.BORROWED: "borrowed",
    GpuState.IDLE: "idle",
    GpuState.FAULT: "fault",
    GpuState.HELD: "held",
    GpuState.UNKNOWN: "unknown",
}
IN_USE = "in use"
"""Word for an allocated GPU whose pod no queue manages, instead of `nominal quota`."""
FREE = (GpuState.IDLE, GpuState.FAULT, GpuState.HELD, GpuState.UNKNOWN)
AGES = ((HOUR, "under 1h", "1"), (6 * HOUR, "under 6h", "6"), (DAY, "under 1d", "d"), (7 * DAY, "under 7d", "w"))
OLDEST = ("7d and more", "W")
"""Label and glyph of pods older than the last of `AGES`."""


class ColourBy(StrEnum):
    """The property that a cell's colour and glyph show."""

    STATE = "state"
    QUEUE = "queue"
    OWNER = "owner"
    AGE = "age"
    """How long the pod has had the GPU."""
    UTILISATION = "utilization"
    TEMPERATURE = "temperature"

    @property
    def next(self) -> "ColourBy":
        ways = list(ColourBy)
        return ways[(ways.index(self) + 1) % len(ways)]


class ColourStep(NamedTuple):
    """A step of a colour scale: values below `below` (percent or °C) get its word, glyph and role."""

    below: float
    word: str
    glyph: str
    role: str


UNKNOWN = ColourStep(0.0, "not measured", "·", "dim")
SCALES: Mapping[ColourBy, tuple[ColourStep, ...]] = {
    ColourBy.UTILISATION: (
        ColourStep(1, "idle", "▁", "idle"),
        ColourStep(25, "under 25%", "▂", "pending"),
        ColourStep(50, "under 50%", "▄", "lent"),
        ColourStep(75, "under 75%", "▆", "series-1"),
        ColourStep(inf, "75% and more", "█", "own"),
    ),
    ColourBy.TEMPERATURE: (
        ColourStep(45, "under 45 °C", "▁", "idle"),
        ColourStep(65, "under 65 °C", "▃", "own"),
        ColourStep(HOT, f"under {HOT:.0f} °C", "▅", "pending"),
        ColourStep(inf, f"{HOT:.0f} °C and more", "█", "fault"),
    ),
}
LASTING = (ColourBy.STATE, ColourBy.QUEUE, ColourBy.OWNER)
"""Properties that depend on the nodes alone, so that the map need not be redrawn as time passes."""
UNMEASURED: Mapping[str, NodeTelemetry] = {}
Known = dict[str, tuple[NodeTelemetry | None, GpuRow, Sequence[ColourStep]]]
"""Cache of colour steps: node → the telemetry and row that they were computed from, and the step of each GPU."""


class GpuCellStyle:
    """Chooses glyph and colour role of each cell of the GPU map, and makes the legend.

    Made for one set of rows; a queue keeps its letter while it exists.
    """

    def __init__(
        self,
        by: ColourBy,
        rows: Iterable[GpuRow],
        now: Time = 0,
        telemetry: Mapping[str, NodeTelemetry] = UNMEASURED,
        known: Known | None = None,
    ) -> None:
        """`known` caches the bands of earlier looks at the same metric; it is updated."""
        self.by = by
        self._telemetry = telemetry
        self._known: Known = {} if known is None else known
        self._now = now
        self.counts: Counter[str] = Counter()
        self.states: Counter[GpuState] = Counter()
        self._queued = False
        """Some cell is used by a workload of a queue."""
        for row in rows:
            if by in SCALES:
                for band in self._bands(row):
                    self.counts[band.word] += 1
                continue
            for state, count in row.states.items():
                self.states[state] += count
            self._queued = self._queued or any(cell.queue for cell in row.all_cells)
            if by is not ColourBy.STATE:
                self.counts.update(self._group(cell) for cell in row.all_cells if cell.state not in FREE)
        names = sorted(self.counts) if by is ColourBy.QUEUE else ()
        self._letters = {name: ascii_letters[26:][position % 26] for position, name in enumerate(names)}
        self._series = {name: f"series-{position % SERIES + 1}" for position, name in enumerate(names)}

    def _group(self, cell: GpuCell) -> str:
        """The group of an allocated cell, by which it is counted and coloured."""
        match self.by:
            case ColourBy.QUEUE:
                return cell.queue
            case ColourBy.AGE:
                return age_of(self._now - cell.since)
            case _:
                return cell.workload or cell.pod

    def row(self, row: GpuRow) -> list[tuple[str, str]]:
        """Return (glyph, role) of each cell of a node; stale metrics are dim."""
        if self.by not in SCALES:
            return [self.cell(cell) for cell in row.all_cells]
        telemetry = self._telemetry.get(row.node)
        stale = telemetry is not None and telemetry.stale(self._now)
        return [(band.glyph, "dim" if stale else band.role) for band in self._bands(row)]

    def _bands(self, row: GpuRow) -> Sequence[ColourStep]:
        telemetry, known = self._telemetry.get(row.node), self._known.get(row.node)
        if known is not None and known[0] is telemetry and known[1] is row:
            return known[2]
        values = heat(telemetry, self.by is ColourBy.TEMPERATURE)
        bands = [band_of(values.get(cell.index), SCALES[self.by]) for cell in row.cells]
        bands += [UNKNOWN] * len(row.devices)
        self._known[row.node] = (telemetry, row, bands)
        return bands

    def cell(self, cell: GpuCell) -> tuple[str, str]:
        """Return (glyph, role) of one cell."""
        if self.by is ColourBy.STATE or cell.state in FREE:
            return GPU_GLYPHS[cell.state], cell.state
        return self.owned(self._group(cell))

    def owned(self, name: str) -> tuple[str, str]:
        """Return (glyph, role) of the cells of the queue, workload or age that is called `name`."""
        if self.by is ColourBy.AGE:
            words = [word for _, word, _ in AGES]
            place = words.index(name) if name in words else len(AGES)
            return (AGES[place][2] if place < len(AGES) else OLDEST[1]), f"series-{place + 1}"
        if self.by is ColourBy.QUEUE:
            return self._letters.get(name, "▣") if name else "▣", self._series.get(name, "series-1")
        first = clean(called(name).rpartition("/")[2][:1]) or "▣"
        return (first if cell_len(first) == 1 else "▣"), f"series-{crc32(name.encode()) % SERIES + 1}"

    def legend(self) -> Painted:
        """The legend: groups with most GPUs first; metrics from low to high."""
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
        entries += [((GPU_GLYPHS[state], state), (f" {self._word(state)} {self.states[state]}", "")) for state in free]
        return join(entries)

    def _word(self, state: GpuState) -> str:
        """The word for a state; without queues, running pods use no quota."""
        return IN_USE if state is GpuState.OWN and not self._queued else WORDS[state]


def word_of(cell: GpuCell) -> str:
    """Return the word for the state of a cell; `in use` where no queue manages the pod."""
    return IN_USE if cell.state is GpuState.OWN and not cell.queue else WORDS[cell.state]


def heat(telemetry: NodeTelemetry | None, temperature: bool) -> dict[int, float]:
    """Map each GPU of a node to its temperature in °C or utilization in percent; for MIG, of its busiest instance."""
    found: dict[int, float] = {}
    if telemetry is None:
        return found
    for position, device in enumerate(telemetry.devices):
        value = telemetry.value(position, GpuMetric.TEMPERATURE) if temperature else busy(telemetry, position)
        if value is not None:
            found[device.gpu] = max(value, found.get(device.gpu, 0.0))
    return found


def band_of(value: float | None, scale: Sequence[ColourStep]) -> ColourStep:
    """Return the step of a colour scale into which a value falls; None stands for a missing metric."""
    return UNKNOWN if value is None else next((band for band in scale if value < band.below), scale[-1])


def age_of(span: Span) -> str:
    """Return the label for the time that a pod has had its GPU, such as `under 6h`."""
    return next((words for most, words, _ in AGES if span < most), OLDEST[0])


MAX_NAME = 24
GAP = 2


class Legend(StatusLine):
    """The legend of the map: glyphs and colours with their numbers of GPUs."""

    def show(self, look: GpuCellStyle) -> None:
        self.left = look.legend()
        self.right = (("B ", "key"), (f"by {look.by}", "dim"))


class GpuMap(ScrollView, RoleStyles, can_focus=True, inherit_bindings=False):
    """The GPU map: nodes as blocks `name ▣▣▣▣○○○○`, with a cursor on a node."""

    colour: reactive[ColourBy] = reactive(ColourBy.STATE)

    @dataclass
    class Moved(Message):
        """The cursor moved to another node."""

        node: str

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._rows: Sequence[GpuRow] = ()
        self._marked: frozenset[str] = frozenset()
        self._now: Time = 0
        self._telemetry = UNMEASURED
        self._known: Known = {}
        self._cursor = 0
        self._look = GpuCellStyle(ColourBy.STATE, ())
        self._columns = 1
        self._name_width = 8
        self._block = 20
        self._strips: dict[int, Strip] = {}
        self._said = notice(PaneState.LOADING)

    @property
    def cursor_key(self) -> str:
        """Name of the node under the cursor; empty without nodes."""
        return self._rows[self._cursor].node if self._rows else ""

    @property
    def look(self) -> GpuCellStyle:
        return self._look

    def show(
        self,
        rows: Sequence[GpuRow],
        marked: frozenset[str] = frozenset(),
        empty: str = "No nodes.",
        now: Time = 0,
        telemetry: Mapping[str, NodeTelemetry] = UNMEASURED,
    ) -> None:
        """Show these nodes; the cursor stays on its node while that exists. `empty` is shown without nodes."""
        key = self.cursor_key
        drawn = self._draws(rows, marked)
        self._said = notice(PaneState.EMPTY, empty)
        self._rows, self._marked, self._now, self._telemetry = rows, marked, now, telemetry
        if drawn:
            return
        self.select(key)
        self._cursor = min(self._cursor, max(0, len(rows) - 1))
        self._recolour()

    def _draws(self, rows: Sequence[GpuRow], marked: frozenset[str]) -> bool:
        """Whether it shows these rows already: most changes of a cluster change no node. Ages always need a redraw."""
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
        self._look = GpuCellStyle(self.colour, self._rows, self._now, self._telemetry, self._known)
        cells = max((len(row.all_cells) for row in self._rows), default=0)
        self._name_width = min(MAX_NAME, max((cell_len(clean(row.node)) for row in self._rows), default=8))
        self._block = self._name_width + 2 + cells + GAP
        self._arrange()

    def lines_at(self, width: int) -> int:
        """Return the number of lines that all nodes take at a width."""
        return -(-len(self._rows) // max(1, (width + GAP) // self._block)) or 1

    def _arrange(self) -> None:
        width = self.scrollable_content_region.width
        self._columns = max(1, (width + GAP) // self._block)
        self.virtual_size = Size(max(1, width), self.lines_at(width))
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
        """Move the cursor by `right` nodes and `down` lines."""
        target = self._cursor + right + down * self._columns
        if 0 <= target < len(self._rows):
            self._go(target)

    def edge(self, way: int) -> None:
        """Move the cursor to the first node (`way` -1) or the last one (1)."""
        self._go(0 if way < 0 else len(self._rows) - 1)

    def page(self, way: int) -> None:
        """Move the cursor by a screen of lines, up (`way` -1) or down (1)."""
        self._go(self._cursor + way * self._columns * max(1, self.scrollable_content_region.height - 1))

    def on_click(self, event: events.Click) -> None:
        column = event.x // self._block
        position = (event.y + self.scroll_offset.y) * self._columns + column
        if column < self._columns and position < len(self._rows):
            self._go(position)
