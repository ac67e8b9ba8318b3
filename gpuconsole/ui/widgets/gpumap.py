"""The GPU map: one cell a GPU, nodes flowing over the lines. Only visible lines are drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import is_

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from gpuconsole.insight.index.gpu_map import GpuRow
from gpuconsole.model.clock import Time
from gpuconsole.model.telemetry import NodeTelemetry
from gpuconsole.model.text import clean
from gpuconsole.ui.gpu_cell_style import LASTING, UNMEASURED, ColourBy, GpuCellStyle, Known
from gpuconsole.ui.paint import line
from gpuconsole.ui.widgets.painter import PaneState, RoleStyles, StatusLine, notice

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
        self._arrange()

    def _arrange(self) -> None:
        cells = max((len(row.all_cells) for row in self._rows), default=0)
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
