"""Drawing of tables: only visible rows, and of these only lines that changed.

Columns are fitted to the width, a row is rendered when it is first visible, and new data repaints only the lines that
it changes.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.cache import LRUCache
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from gpuconsole.ui.columns import GAP, Column, Layout, fit, total
from gpuconsole.ui.paint import Cell, fitted, line, painted, plain
from gpuconsole.ui.rows import Rows
from gpuconsole.ui.widgets.notice import PaneState, notice
from gpuconsole.ui.widgets.painter import RoleStyles
from gpuconsole.ui.widgets.textpane import wrapped

T = TypeVar("T")

GUTTER = 2
"""Cells before the first column: the cursor and the mark, which must be seen without colours too."""


class GridLines(ScrollView, RoleStyles, Generic[T]):
    """The lines of a table of rows of type T: a header, and the rows, or why there are none."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "grid--header",
        "grid--picked",
        "grid--row",
        "grid--odd",
        "grid--cursor",
        "grid--resting",
        "grid--marked",
    }

    def __init__(self, rows: Rows[T], *, header: bool, id: str | None, classes: str | None) -> None:
        super().__init__(id=id, classes=classes)
        self._rows = rows
        self._header = int(header)
        self._state = PaneState.LOADING
        self._said = ""
        self._picked: int | None = None
        self._wide = False
        self._layout: Layout[T] = ()
        self._fitted = -1
        """The width that the layout was made for."""
        self._strips: LRUCache[Any, Strip] = LRUCache(1024)
        self._drawn: dict[int, Strip] = {}
        """The contents of each line, so that new data repaint only lines that changed."""

    def nothing(self) -> str:
        """Why there is no row."""
        return ""

    @property
    def columns(self) -> tuple[Column[T], ...]:
        return self._rows.columns

    @columns.setter
    def columns(self, columns: Sequence[Column[T]]) -> None:
        self._rows.columns = tuple(columns)
        self._rows.forget_texts()
        self._fit()

    @property
    def rows(self) -> Sequence[T]:
        """The filtered and sorted rows."""
        return self._rows.order

    @property
    def cursor(self) -> int:
        return self._rows.cursor

    def unseen_of(self, row: T) -> list[tuple[str, str]]:
        """The heads and texts of a row's hidden columns and cut cells."""
        if self._fitted <= GUTTER:
            return []
        widths = {column.title: width for column, width in self._layout}
        texts = ((column.title, plain(painted(column.cell(row)))) for column in self.columns)
        return [(title, text) for title, text in texts if cell_len(text) > widths.get(title, 0)]

    # Room

    @property
    def _height(self) -> int:
        """The number of visible rows."""
        return max(0, self.scrollable_content_region.height - self._header)

    def _follow(self) -> None:
        """Scroll so that the cursor can be seen."""
        top = round(self.scroll_y)
        if self.cursor < top:
            self.scroll_to(y=self.cursor, animate=False)
        elif self._height and self.cursor >= top + self._height:
            self.scroll_to(y=self.cursor - self._height + 1, animate=False)

    def _fit(self) -> None:
        self._fitted = self.scrollable_content_region.width
        self._layout = fit(self.columns, max(0, self._fitted - GUTTER), self._wide)
        if self._picked is not None:
            self._picked = min(self._picked, len(self._layout) - 1)
        self._resize()
        self._repaint()

    def _resize(self) -> None:
        region, height = self.scrollable_content_region, len(self.rows) + self._header
        size = Size(total(self._layout) + GUTTER if self._wide else region.width, height)
        if not self._wide and not self.show_vertical_scrollbar:
            # As long as all rows can be seen, their number changes no size: a new one lays the whole screen out anew.
            size = Size(region.width, max(height, region.height))
        if size == self.virtual_size:
            return
        if self.show_vertical_scrollbar and height > region.height and size.width == self.virtual_size.width:
            # The scrollbar stays: it is told, and nothing else on the screen moves.
            self.set_reactive(GridLines.virtual_size, size)
            self.vertical_scrollbar.window_virtual_size = height
            self.scroll_y = self.validate_scroll_y(self.scroll_y)
        else:
            self.virtual_size = size

    def on_mount(self) -> None:
        # The scrollbar takes a column from the rows, and its coming and going is no resize.
        self.watch(self, "show_vertical_scrollbar", self._fit, init=False)

    def on_resize(self) -> None:
        if self.scrollable_content_region.width != self._fitted:
            self._fit()
        else:
            # Only the height changed, as it does for the filter line: the rows look as they did.
            self._drawn.clear()
            self._resize()
        self._follow()

    # Painting

    def _repaint(self) -> None:
        self._strips.clear()
        self._drawn.clear()
        self.refresh()

    def _repaint_changes(self) -> None:
        """Redraw, but send to the terminal only the lines that look different."""
        self._strips.clear()
        width = self.size.width
        changed = [y for y, strip in self._drawn.items() if self._line(y) != strip]
        if changed or not self._drawn:
            self.refresh(*(Region(0, y, width, 1) for y in changed))

    def on_focus(self) -> None:
        self._repaint()

    def on_blur(self) -> None:
        self._repaint()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()
        self._drawn.clear()

    def render_line(self, y: int) -> Strip:
        strip = self._drawn[y] = self._line(y)
        return strip

    def _line(self, y: int) -> Strip:
        """One visible line. A row is formatted only when it is first visible."""
        width = self.scrollable_content_region.width
        if y < self._header:
            strip = self._header_strip()
        elif not self.rows:
            return self._notice_strip(y - self._header, width)
        else:
            index = round(self.scroll_y) + y - self._header
            if index >= len(self.rows):
                return Strip.blank(width, self.base)
            strip = self._row_strip(index)
        left = round(self.scroll_x)
        if left == 0 and strip.cell_length == width:
            return strip
        return strip.crop_extend(left, left + width, self.base)

    def _notice_strip(self, y: int, width: int) -> Strip:
        state, text = self._state, self._said
        if state is PaneState.READY:
            state = PaneState.EMPTY
            text = self.nothing()
        lines: list[Cell] = ["", *wrapped(notice(state, text), width)]
        return line(lines[y] if y < len(lines) else "", "", width, self.base, self.style_of)

    def _header_strip(self) -> Strip:
        base = self.component("grid--header")
        picked = self.component("grid--picked")
        pieces = [Segment(" " * GUTTER, base)]
        for position, (column, width) in enumerate(self._layout):
            style = picked if position == self._picked else base
            pieces += fitted(self._title(column), width, style, self.style_of, column.align == "right")
            pieces.append(Segment(" " * GAP, base))
        return Strip(pieces)

    def _title(self, column: Column[T]) -> Cell:
        sorting = self._rows.sorting
        if sorting is None or sorting[0] is not column:
            return column.title
        return f"{column.title}{'↓' if sorting[1] else '↑'}"

    def _row_strip(self, index: int) -> Strip:
        row = self.rows[index]
        row_key = self._rows.key(row)
        here = index == self.cursor
        cache_key = (row_key, here, index % 2)
        strip = self._strips.get(cache_key)
        if strip is None:
            base = self._base(row_key, here, index)
            # Neighbours of one style become one piece: a style costs some forty bytes on the way to the terminal.
            strip = self._strips[cache_key] = Strip(self._pieces(row, row_key, here, base)).simplify()
        return strip

    def _base(self, row_key: str, here: bool, index: int) -> Style:
        if here:
            return self.component("grid--cursor" if self.has_focus else "grid--resting")
        if row_key in self._rows.marks:
            return self.component("grid--marked")
        return self.component("grid--odd" if index % 2 else "grid--row")

    def _pieces(self, row: T, row_key: str, here: bool, base: Style) -> list[Segment]:
        cursor = "▌" if here else " "
        pieces = [Segment(cursor + ("*" if row_key in self._rows.marks else " "), base)]
        for column, width in self._layout:
            pieces += fitted(column.cell(row), width, base, self.style_of, column.align == "right")
            pieces.append(Segment(" " * GAP, base))
        return pieces
