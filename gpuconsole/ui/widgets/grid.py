"""The table of this console: draws its visible rows only, and keeps the cursor on its row, whatever happens around it.

Rows are any objects; what is shown are `Column`s. Each `show()` hands over all rows; sorting and filtering make an
order, `render_line` draws the few rows that can be seen. The widget binds no keys: the screen calls its methods.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar, Generic, TypeVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.cache import LRUCache
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from gpuconsole.ui.columns import GAP, Column, Layout, fit, total
from gpuconsole.ui.filters import Filter
from gpuconsole.ui.messages import RowOpened, RowPicked
from gpuconsole.ui.paint import Cell, fitted, line
from gpuconsole.ui.rows import Rows
from gpuconsole.ui.widgets.notice import State, notice
from gpuconsole.ui.widgets.painter import RoleStyles

T = TypeVar("T")

READ = 300
"""Rows that are read at once for a filter: some 3 ms."""
PAUSE = 0.002
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
        self._rows: Rows[T] = Rows(key, labels=labels, fault=fault, follow=follow)
        self._rows.columns = tuple(columns)
        self._empty = empty
        self._header = int(header)
        self._state = State.LOADING
        self._said = ""
        self._picked: int | None = None
        self._wide = False
        self._layout: Layout[T] = ()
        self._fitted = -1
        """The width that the layout was made for."""
        self._reading = False
        self._wanted: Filter | None = None
        """The filter that was asked for last."""
        self._strips: LRUCache[Any, Strip] = LRUCache(1024)
        self._drawn: dict[int, Strip] = {}
        """What stands on each line of the screen, so that new data repaint only what they change."""

    # What it shows

    def show(self, rows: Sequence[T]) -> None:
        """Show these rows; cursor, marks, sort and filter stay. The sequence must not change afterwards."""
        self._rows.all = rows
        self._state = State.READY
        self._arrange()

    def say(self, state: State, text: str = "") -> None:
        """Show no rows but a state: loading, forbidden or failed."""
        self._rows.all = ()
        self._state, self._said = state, text
        self._arrange()

    @property
    def bare(self) -> bool:
        """It was given data, and there was not one row."""
        return self._state is State.READY and not self._rows.all

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
        """What can be seen by scrolling: filtered and sorted."""
        return self._rows.order

    @property
    def state(self) -> State:
        return self._state

    @property
    def current(self) -> T | None:
        """The row under the cursor."""
        return self._rows.current

    @property
    def cursor(self) -> int:
        return self._rows.cursor

    @property
    def marked(self) -> list[T]:
        """The marked rows, in the order of the table."""
        return self._rows.marked

    @property
    def targets(self) -> list[T]:
        """What an action is meant for: the marked rows, else the one under the cursor."""
        return self.marked or ([self.current] if self.current is not None else [])

    # Moving

    def move(self, rows: int) -> None:
        self.move_to(self.cursor + rows)

    def move_to(self, index: int) -> None:
        """Put the cursor on the row with this number, as near as there are rows."""
        old = self.cursor
        self._rows.chosen = True
        self._rows.place(index)
        self._follow()
        if self.cursor != old:
            self.refresh_line(old + self._header)
            self.refresh_line(self.cursor + self._header)
            self.post_message(RowPicked(self.current))

    def move_to_key(self, key: str) -> bool:
        """Put the cursor on the row with this key; False if there is none."""
        index = self._rows.find(key)
        if index is not None:
            self.move_to(index)
        return index is not None

    def page(self, pages: int) -> None:
        self.move(pages * max(1, self._height - 1))

    def top(self) -> None:
        self.move_to(0)

    def bottom(self) -> None:
        self.move_to(len(self.rows) - 1)

    # Order and choice

    def sort(self, column_id: str) -> None:
        """Sort by the column with this id; again turns the order round, a third time drops it."""
        column = next((column for column in self.columns if column.id == column_id), None)
        if column is not None:
            self._sort_by(column)

    def sort_picked(self) -> None:
        """Sort by the picked column, as `sort` does."""
        if self._picked is not None and self._picked < len(self._layout):
            self._sort_by(self._layout[self._picked][0])

    def _sort_by(self, column: Column[T]) -> None:
        if column.sort is not None:
            self._rows.sort_by(column)
            self._arrange()

    def pick_column(self, step: int) -> None:
        """Move the pick to the next column on one side."""
        if not self._layout:
            return
        start = -1 if self._picked is None and step > 0 else (self._picked or 0)
        self._picked = (start + step) % len(self._layout)
        self._repaint()

    def expect_filter(self) -> None:
        """Read all rows, a few at a time, so that the first letter of a filter need not wait for it."""
        self._reading = True
        self._read_some(iter(self._rows.all))

    def _read_some(self, rows: Iterator[T]) -> None:
        some = list(islice(rows, READ))
        for _ in self._rows.texts(some):
            pass
        if len(some) == READ:
            self.set_timer(PAUSE, lambda: self._read_some(rows))
        else:
            self._reading = False
            if self._wanted is not self._rows.filter:
                self.set_filter(self._wanted)

    def set_filter(self, wanted: Filter | None) -> None:
        """Show what passes; as soon as all rows are read, while they are being read."""
        self._wanted = wanted
        if wanted is None or not self._reading:
            self._rows.filter = wanted
            self._arrange()

    @property
    def filter(self) -> Filter | None:
        return self._wanted

    def toggle_faults(self) -> None:
        self._rows.faults_only = not self._rows.faults_only
        self._arrange()

    def toggle_wide(self) -> None:
        self._wide = not self._wide
        self.set_class(self._wide, "-wide")
        self._fit()

    def toggle_mark(self) -> None:
        """Mark or unmark the row under the cursor, and go on to the next."""
        self._rows.toggle_mark()
        self._strips.clear()
        self.refresh_line(self.cursor + self._header)
        self.move(1)

    def mark_range(self) -> None:
        """Mark everything between the last mark and the cursor."""
        self._rows.mark_range()
        self._repaint()

    def unmark(self) -> None:
        self._rows.marks.clear()
        self._repaint()

    # Inside

    @property
    def _height(self) -> int:
        """How many rows can be seen."""
        return max(0, self.scrollable_content_region.height - self._header)

    def _arrange(self) -> None:
        had = self._rows.cursor_key
        moved = self._rows.arrange()
        self._resize()
        if moved:
            self._follow()
        self._repaint_changes()
        if self._rows.cursor_key != had:
            self.post_message(RowPicked(self.current))

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
        elif index < len(self.rows):
            self.move_to(index)
            if event.chain == 2:
                self.post_message(RowOpened(self.current))

    def _click_header(self, x: int) -> None:
        start = GUTTER
        for column, width in self._layout:
            if start <= x < start + width:
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
        if state is State.READY:
            state = State.EMPTY
            text = self._nothing_passes() or self._empty
        cell = notice(state, text) if y == 1 else ""
        return line(cell, "", width, self.base, self.style_of)

    def _nothing_passes(self) -> str:
        if not self._rows.all:
            return ""
        if self.filter is not None:
            return f"None of {len(self._rows.all):,} rows passes /{self.filter.text} (Esc clears the filter)."
        return f"None of {len(self._rows.all):,} rows has a fault (! shows them all)."

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
