"""The table of this console: draws its visible rows only, and keeps the cursor on its row, whatever happens around it.

Rows are any objects; what is shown are `Column`s. Each `show()` hands over all rows; sorting and filtering make an
order, `render_line` draws the few rows that can be seen. The widget binds no keys: the screen calls its methods.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.cache import LRUCache
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from gpuconsole.ui.columns import GAP, Column, Layout, fit, total
from gpuconsole.ui.messages import RowOpened, RowPicked
from gpuconsole.ui.paint import Cell, fitted, line, plain
from gpuconsole.ui.widgets.filter import Filter
from gpuconsole.ui.widgets.notice import State, notice
from gpuconsole.ui.widgets.painter import RoleStyles

T = TypeVar("T")

GUTTER = 2
"""Cells before the first column: the cursor and the mark, which must be seen without colours too."""


class Grid(ScrollView, RoleStyles, Generic[T], can_focus=True, inherit_bindings=False):
    """A table of rows of type T, each known by its key."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "grid--header",
        "grid--picked",
        "grid--row",
        "grid--odd",
        "grid--cursor",
        "grid--resting",
        "grid--marked",
    }

    DEFAULT_CSS = """
    Grid {
        height: 1fr;
        overflow-x: hidden;
        scrollbar-size: 1 1;
        &.-wide { overflow-x: auto; }
    }
    """

    def __init__(
        self,
        columns: Sequence[Column[T]],
        key: Callable[[T], str],
        *,
        labels: Callable[[T], Mapping[str, str]] = lambda row: {},
        fault: Callable[[T], bool] = lambda row: False,
        empty: str = "Nothing here.",
        header: bool = True,
        follow: bool = False,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        """`follow` is for lists that grow at the top: a cursor on the first row stays there, on the newest."""
        super().__init__(id=id, classes=classes)
        self._columns = tuple(columns)
        self._key = key
        self._labels = labels
        self._fault = fault
        self._empty = empty
        self._header = int(header)
        self._follow_top = follow
        self._moved = False
        """Has anybody chosen a row? Until then the cursor rests on the first one, whichever that is."""
        self._rows: Sequence[T] = ()
        self._order: Sequence[T] = ()
        self._cursor = 0
        self._cursor_key: str | None = None
        self._marks: set[str] = set()
        self._last_mark: str | None = None
        self._state = State.LOADING
        self._said = ""
        self._sorted: tuple[Column[T], bool] | None = None
        self._picked: int | None = None
        self._filter: Filter | None = None
        self._faults_only = False
        self._wide = False
        self._layout: Layout[T] = ()
        self._fitted = -1
        """The width that the layout was made for."""
        self._texts: dict[str, tuple[T, str]] = {}
        self._strips: LRUCache[Any, Strip] = LRUCache(1024)
        self._drawn: dict[int, Strip] = {}
        """What stands on each line of the screen, so that new data repaint only what they change."""

    # What it shows

    def show(self, rows: Sequence[T]) -> None:
        """Show these rows; cursor, marks, sort and filter stay. The sequence must not change afterwards."""
        self._rows = rows
        self._state = State.READY
        self._arrange()

    def say(self, state: State, text: str = "") -> None:
        """Show no rows but a state: loading, forbidden or failed."""
        self._rows = ()
        self._state, self._said = state, text
        self._arrange()

    @property
    def columns(self) -> tuple[Column[T], ...]:
        return self._columns

    @columns.setter
    def columns(self, columns: Sequence[Column[T]]) -> None:
        self._columns = tuple(columns)
        self._fit()

    @property
    def rows(self) -> Sequence[T]:
        """What can be seen by scrolling: filtered and sorted."""
        return self._order

    @property
    def state(self) -> State:
        return self._state

    @property
    def current(self) -> T | None:
        """The row under the cursor."""
        return self._order[self._cursor] if self._cursor < len(self._order) else None

    @property
    def cursor(self) -> int:
        return self._cursor

    @property
    def marked(self) -> list[T]:
        """The marked rows, in the order of the table."""
        return [row for row in self._rows if self._key(row) in self._marks] if self._marks else []

    @property
    def targets(self) -> list[T]:
        """What an action is meant for: the marked rows, else the one under the cursor."""
        return self.marked or ([self.current] if self.current is not None else [])

    # Moving

    def move(self, rows: int) -> None:
        self.move_to(self._cursor + rows)

    def move_to(self, index: int) -> None:
        """Put the cursor on the row with this number, as near as there are rows."""
        old = self._cursor
        self._moved = True
        self._place(index)
        self._follow()
        if self._cursor != old:
            self.refresh_line(old + self._header)
            self.refresh_line(self._cursor + self._header)
            self.post_message(RowPicked(self.current))

    def move_to_key(self, key: str) -> bool:
        """Put the cursor on the row with this key; False if there is none."""
        index = self._find(key)
        if index is not None:
            self.move_to(index)
        return index is not None

    def page(self, pages: int) -> None:
        self.move(pages * max(1, self._height - 1))

    def top(self) -> None:
        self.move_to(0)

    def bottom(self) -> None:
        self.move_to(len(self._order) - 1)

    # Order and choice

    def sort(self, column_id: str) -> None:
        """Sort by the column with this id; again turns the order round, a third time drops it."""
        column = next((c for c in self._columns if c.id == column_id and c.sort is not None), None)
        if column is not None:
            self._sort_by(column)

    def sort_picked(self) -> None:
        """Sort by the picked column, as `sort` does."""
        if self._picked is not None and self._picked < len(self._layout):
            column = self._layout[self._picked][0]
            if column.sort is not None:
                self._sort_by(column)

    def pick_column(self, step: int) -> None:
        """Move the pick to the next column on one side."""
        if not self._layout:
            return
        start = -1 if self._picked is None and step > 0 else (self._picked or 0)
        self._picked = (start + step) % len(self._layout)
        self._repaint()

    def set_filter(self, wanted: Filter | None) -> None:
        self._filter = wanted
        self._arrange()

    @property
    def filter(self) -> Filter | None:
        return self._filter

    def toggle_faults(self) -> None:
        self._faults_only = not self._faults_only
        self._arrange()

    def toggle_wide(self) -> None:
        self._wide = not self._wide
        self.set_class(self._wide, "-wide")
        self._fit()

    def toggle_mark(self) -> None:
        """Mark or unmark the row under the cursor, and go on to the next."""
        if self.current is None:
            return
        key = self._key(self.current)
        self._marks ^= {key}
        self._last_mark = key
        self._strips.clear()
        self.refresh_line(self._cursor + self._header)
        self.move(1)

    def mark_range(self) -> None:
        """Mark everything between the last mark and the cursor."""
        start = self._find(self._last_mark) if self._last_mark is not None else None
        if self.current is None:
            return
        first, last = sorted((self._cursor if start is None else start, self._cursor))
        self._marks |= {self._key(row) for row in self._order[first : last + 1]}
        self._last_mark = self._key(self.current)
        self._repaint()

    def unmark(self) -> None:
        self._marks.clear()
        self._repaint()

    # Inside

    @property
    def _height(self) -> int:
        """How many rows can be seen."""
        return max(0, self.scrollable_content_region.height - self._header)

    def _sort_by(self, column: Column[T]) -> None:
        if self._sorted is None or self._sorted[0] is not column:
            self._sorted = (column, column.down)
        elif self._sorted[1] is column.down:
            self._sorted = (column, not column.down)
        else:
            self._sorted = None
        self._arrange()

    def _arrange(self) -> None:
        """Filter and sort anew, and put the cursor back on its row (or its neighbour, if the row is gone)."""
        if self._marks:
            self._marks &= {self._key(row) for row in self._rows}
        order: Sequence[T] = self._rows
        if self._faults_only:
            order = [row for row in order if self._fault(row)]
        if self._filter is not None:
            passes = self._filter.passes
            order = [row for row in order if passes(self._text(row), self._labels(row))]
        if self._sorted is not None and self._sorted[0].sort is not None:
            order = sorted(order, key=self._sorted[0].sort, reverse=self._sorted[1])
        had = self._cursor_key
        self._order = order
        stays = self._cursor == 0 and (self._follow_top or not self._moved)
        index = self._find(had) if had is not None and not stays else None
        moved = index is not None and index != self._cursor
        self._place(self._cursor if index is None else index)
        self._resize()
        if moved:
            self._follow()
        self._repaint_changes()
        if self._cursor_key != had:
            self.post_message(RowPicked(self.current))

    def _place(self, index: int) -> None:
        self._cursor = max(0, min(index, len(self._order) - 1))
        self._cursor_key = None if self.current is None else self._key(self.current)

    def _find(self, key: str) -> int | None:
        if self._cursor < len(self._order) and self._key(self._order[self._cursor]) == key:
            return self._cursor
        return next((index for index, row in enumerate(self._order) if self._key(row) == key), None)

    def _follow(self) -> None:
        """Scroll so that the cursor can be seen."""
        top = round(self.scroll_y)
        if self._cursor < top:
            self.scroll_to(y=self._cursor, animate=False)
        elif self._height and self._cursor >= top + self._height:
            self.scroll_to(y=self._cursor - self._height + 1, animate=False)

    def _text(self, row: T) -> str:
        """All cells of a row as one text to search in; kept while the row is the same object."""
        key = self._key(row)
        known = self._texts.get(key)
        if known is None or known[0] is not row:
            known = self._texts[key] = (row, " ".join(plain(column.cell(row)) for column in self._columns))
        return known[1]

    def _fit(self) -> None:
        self._fitted = self.scrollable_content_region.width
        self._layout = fit(self._columns, max(0, self._fitted - GUTTER), self._wide)
        if self._picked is not None:
            self._picked = min(self._picked, len(self._layout) - 1)
        self._texts.clear()
        self._resize()
        self._repaint()

    def _resize(self) -> None:
        region, height = self.scrollable_content_region, len(self._order) + self._header
        size = Size(total(self._layout) + GUTTER if self._wide else region.width, height)
        if not self._wide and not self.show_vertical_scrollbar:
            # As long as all rows can be seen, their number changes no size: a new one lays the whole screen out anew.
            size = Size(region.width, max(height, region.height))
        if size == self.virtual_size:
            return
        if self.show_vertical_scrollbar and height > region.height and size.width == self.virtual_size.width:
            # The scrollbar stays: it is told, and nothing else on the screen moves.
            self.set_reactive(Grid.virtual_size, size)
            self.vertical_scrollbar.window_virtual_size = height
            self.scroll_y = self.validate_scroll_y(self.scroll_y)
        else:
            self.virtual_size = size

    def _repaint(self) -> None:
        self._strips.clear()
        self._drawn.clear()
        self.refresh()

    def _repaint_changes(self) -> None:
        """Draw anew, but send to the terminal only the lines that look different."""
        self._strips.clear()
        width = self.size.width
        changed = [y for y, strip in self._drawn.items() if self._line(y) != strip]
        if changed or not self._drawn:
            self.refresh(*(Region(0, y, width, 1) for y in changed))

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

    def on_focus(self) -> None:
        self._repaint()

    def on_blur(self) -> None:
        self._repaint()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()
        self._drawn.clear()

    def on_click(self, event: events.Click) -> None:
        index = round(self.scroll_y) + event.y - self._header
        if event.y < self._header:
            self._click_header(event.x + round(self.scroll_x))
        elif index < len(self._order):
            self.move_to(index)
            if event.chain == 2:
                self.post_message(RowOpened(self.current))

    def _click_header(self, x: int) -> None:
        start = GUTTER
        for column, width in self._layout:
            if start <= x < start + width and column.sort is not None:
                self._sort_by(column)
            start += width + GAP

    # Drawing

    def render_line(self, y: int) -> Strip:
        strip = self._drawn[y] = self._line(y)
        return strip

    def _line(self, y: int) -> Strip:
        """One line of what can be seen. Formats a row only the first time that it is seen."""
        width = self.scrollable_content_region.width
        if y < self._header:
            strip = self._header_strip()
        elif not self._order:
            return self._notice_strip(y - self._header, width)
        else:
            index = round(self.scroll_y) + y - self._header
            if index >= len(self._order):
                return Strip.blank(width, self.base)
            strip = self._row_strip(index)
        left = round(self.scroll_x)
        if left == 0 and strip.cell_length == width:
            return strip
        return strip.crop_extend(left, left + width, self.base)

    def _notice_strip(self, y: int, width: int) -> Strip:
        state, text = self._state, self._said
        if state is State.READY:
            state = State.EMPTY
            text = self._nothing_passes() or self._empty
        cell = notice(state, text) if y == 1 else ""
        return line(cell, "", width, self.base, self.style_of)

    def _nothing_passes(self) -> str:
        if not self._rows:
            return ""
        if self._filter is not None:
            return f"None of {len(self._rows):,} rows passes /{self._filter.text} (Esc clears the filter)."
        return f"None of {len(self._rows):,} rows has a fault (! shows them all)."

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
        if self._sorted is None or self._sorted[0] is not column:
            return column.title
        return f"{column.title}{'↓' if self._sorted[1] else '↑'}"

    def _row_strip(self, index: int) -> Strip:
        row = self._order[index]
        row_key = self._key(row)
        here = index == self._cursor
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
        if row_key in self._marks:
            return self.component("grid--marked")
        return self.component("grid--odd" if index % 2 else "grid--row")

    def _pieces(self, row: T, row_key: str, here: bool, base: Style) -> list[Segment]:
        cursor = "▌" if here else " "
        pieces = [Segment(cursor + ("*" if row_key in self._marks else " "), base)]
        for column, width in self._layout:
            pieces += fitted(column.cell(row), width, base, self.style_of, column.align == "right")
            pieces.append(Segment(" " * GAP, base))
        return pieces
