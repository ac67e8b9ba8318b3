"""The table of this console: rows, cursor, marks, order and filter, as keys and the mouse change them.

Rows are any objects; what is shown are `Column`s. Each `show()` hands over all rows; sorting and filtering make an
order, and the cursor stays on its row, whatever happens around it. The widget binds no keys: the screen calls its
methods.

Only visible rows are drawn: a row is rendered when it is first visible, and new data repaints only the lines that it
changes.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.cache import LRUCache
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from gpuconsole.model.text import clean
from gpuconsole.ui.actions import Handler
from gpuconsole.ui.field_filter import Field, complete_expression
from gpuconsole.ui.messages import RowOpened, RowPicked
from gpuconsole.ui.paint import Cell, Painted, fitted, line, painted, plain
from gpuconsole.ui.table_model import (
    GAP,
    Column,
    ColumnChoice,
    Filter,
    Layout,
    Rows,
    choices_of,
    chosen_columns,
    fields_of,
    fit,
    text_of,
    total,
)
from gpuconsole.ui.textual_patches import set_reliable_timer
from gpuconsole.ui.widgets.painter import PaneState, RoleStyles, notice
from gpuconsole.ui.widgets.textpane import wrapped

T = TypeVar("T")

GUTTER = 2
"""Width in terminal cells of cursor and mark, which stand before the first column and need no colours."""


class GridLines(ScrollView, RoleStyles, Generic[T]):
    """Draws the header and the rows of type T of a table, or a text that tells why there are no rows."""

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
        self._extra: tuple[Column[T], ...] = ()
        self._choices: Sequence[ColumnChoice] = ()
        self._layout: Layout[T] = ()
        self._fitted = -1
        """The width that the layout was made for."""
        self._strips: LRUCache[Any, Strip] = LRUCache(1024)
        self._drawn: dict[int, Strip] = {}
        """The contents of each line, so that new data repaint only lines that changed."""

    def nothing(self) -> str:
        """Return the text that is shown in place of rows."""
        return ""

    @property
    def columns(self) -> tuple[Column[T], ...]:
        """All columns, also those that are not shown."""
        return self._rows.columns

    @columns.setter
    def columns(self, columns: Sequence[Column[T]]) -> None:
        self._rows.columns = (*columns, *self._extra)
        sorting = self._rows.sorting
        if sorting is not None:
            same = next((one for one in self._rows.columns if one.identity == sorting[0].identity), None)
            self._rows.sorting = (same, sorting[1]) if same is not None else None
        self._rows.forget_texts()
        self._fit()

    def add_columns(self, extra: Sequence[Column[T]]) -> None:
        """Show these columns behind those of the screen, from now on."""
        own = self.columns[: len(self.columns) - len(self._extra)]
        self._extra = tuple(extra)
        self.columns = own

    @property
    def choices(self) -> list[ColumnChoice]:
        """What is chosen about each column, in the order shown."""
        return choices_of(self.columns, self._choices)

    @property
    def chosen(self) -> tuple[ColumnChoice, ...]:
        """What the operator chose; empty for the columns of the screen."""
        return tuple(self._choices)

    def width_of(self, identity: str) -> int:
        """Return the width that a column has now, in terminal cells; its least width where it is not visible."""
        widths = {column.identity: width for column, width in self._layout}
        return widths.get(identity) or next(one.width for one in self.columns if one.identity == identity)

    def choose_columns(self, choices: Sequence[ColumnChoice]) -> None:
        """Show the chosen columns in their order; without choices those of the screen."""
        self._choices = tuple(choices)
        self._fit()

    @property
    def visible_columns(self) -> list[Column[T]]:
        """The columns that fit, from left to right."""
        return [column for column, _ in self._layout]

    @property
    def rows(self) -> Sequence[T]:
        """The filtered and sorted rows."""
        return self._rows.order

    @property
    def cursor(self) -> int:
        return self._rows.cursor

    def unseen_of(self, row: T) -> list[tuple[str, str]]:
        """Return (head, text) of each cell of a row that is not visible in full: its column is hidden, or it is cut."""
        if self._fitted <= GUTTER:
            return []
        widths = {column.title: width for column, width in self._layout}
        texts = ((column.title, plain(painted(column.cell(row)))) for column in self.columns if not column.hidden)
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
        shown = chosen_columns(self.columns, self._choices)
        self._layout = fit(shown, max(0, self._fitted - GUTTER), self._wide)
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
        if sorting is None or sorting[0].identity != column.identity:
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


MANY = 10_000
"""From this number of rows on, a filter is applied after the typed key is drawn: 100,000 rows take 0.1 s."""
READ = 0.003
"""Seconds of each step in which the texts of rows are read for a filter."""
PAUSE = 0.003
"""Seconds between two such steps, in which keys are handled and other threads run."""
SAMPLED = 2_000
"""Number of rows whose cells are offered as values when a filter is typed."""
HOLD = 0.06
"""Seconds without such steps after a key of a filter, so that the key is drawn first."""


class Grid(GridLines[T], can_focus=True, inherit_bindings=False):
    """A table of rows of type T, each identified by its key."""

    DEFAULT_CSS = """
    Grid {
        height: 1fr;
        overflow-x: hidden;
        scrollbar-size: 1 1;
        &.-wide { overflow-x: auto; }
    }
    """
    set_timer = set_reliable_timer

    def __init__(
        self,
        columns: Sequence[Column[T]],
        key: Callable[[T], str],
        *,
        labels: Callable[[T], Mapping[str, str]] = lambda row: {},
        fault: Callable[[T], bool] = lambda row: False,
        object_of: Callable[[T], object] | None = None,
        empty: str = "No rows.",
        absent: str = "not found",
        header: bool = True,
        follow: bool = False,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        """`empty` is shown without rows, `absent` if no row has the name of the filter.

        `object_of` returns the object of a row, whose fields the operator may add as columns.

        `follow` is for lists that grow at the top: a cursor on the first row stays there, on the newest.
        """
        rows: Rows[T] = Rows(key, labels=labels, fault=fault, follow=follow)
        rows.columns = tuple(columns)
        super().__init__(rows, header=header, id=id, classes=classes)
        self.object_of = object_of
        self._empty = empty
        self._absent = absent
        self._reading = False
        self._reads_from = 0.0
        """When it may read on, by `time.monotonic`."""
        self._wanted: Filter | None = None
        """The filter that was asked for last."""

    # What it shows

    def show(self, rows: Sequence[T]) -> None:
        """Show these rows; cursor, marks, sort and filter stay. The sequence must not change afterwards."""
        self._rows.all = rows
        self._state = PaneState.READY
        self._arrange()

    def say(self, state: PaneState, text: str = "") -> None:
        """Show a state in place of rows, such as loading, forbidden or failed, with a text."""
        self._rows.all = ()
        self._state, self._said = state, text
        self._arrange()

    @property
    def bare(self) -> bool:
        """Whether data has arrived but has no rows."""
        return self._state is PaneState.READY and not self._rows.all

    @property
    def state(self) -> PaneState:
        return self._state

    @property
    def current(self) -> T | None:
        """The row under the cursor."""
        return self._rows.current

    @property
    def picked_head(self) -> str:
        """The head of the column picked with the column keys; empty if none is picked."""
        if self._picked is None or self._picked >= len(self._layout):
            return ""
        return self._layout[self._picked][0].title

    @property
    def picked_text(self) -> str:
        """The text of the cell under the cursor, in the picked column, else in the first; empty without rows."""
        if self.current is None or not self._layout:
            return ""
        return clean(text_of(self._layout[min(self._picked or 0, len(self._layout) - 1)][0].cell(self.current)))

    @property
    def marked(self) -> list[T]:
        """The marked rows, in the order of the table."""
        return self._rows.marked

    @property
    def targets(self) -> list[T]:
        """The targets of an action: the marked rows, else the one under the cursor."""
        return self.marked or ([self.current] if self.current is not None else [])

    # Moving

    def move(self, rows: int) -> None:
        self.move_to(self.cursor + rows)

    def move_to(self, index: int) -> None:
        """Put the cursor on the row with this index, or on the nearest one."""
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

    @property
    def sorting(self) -> tuple[Column[T], bool] | None:
        """The column by which it is sorted, and whether descending."""
        return self._rows.sorting

    def sort_as(self, identity: str, descending: bool) -> None:
        """Sort by the column with this identity, or not at all if there is none."""
        column = next((one for one in self.columns if one.identity == identity), None)
        self._rows.sorting = (column, descending) if column is not None and column.sort is not None else None
        self._arrange()

    def sort(self, column_id: str) -> None:
        """Sort by the column with this id; a second time reverses the order, a third time drops it."""
        column = next((column for column in self.columns if column.id == column_id), None)
        if column is not None:
            self._sort_by(column)

    def sort_picked(self) -> None:
        """Sort by the column picked with the column keys, as `sort` does."""
        if self._picked is not None and self._picked < len(self._layout):
            self._sort_by(self._layout[self._picked][0])

    def _sort_by(self, column: Column[T]) -> None:
        if column.sort is not None:
            self._rows.sort_by(column)
            self._arrange()

    def pick_column(self, step: int) -> None:
        """Pick the next (`step` 1) or previous (-1) column, for sorting."""
        if not self._layout:
            return
        start = -1 if self._picked is None and step > 0 else (self._picked or 0)
        self._picked = (start + step) % len(self._layout)
        self._repaint()

    def expect_filter(self) -> None:
        """Read the texts of all rows ahead in small steps, so that the first letter of a filter is handled fast."""
        if not self._reading:
            self._reading = True
            self._read_some(iter(self._rows.all))
        self._reads_from = time.monotonic() + HOLD

    def _read_some(self, rows: Iterator[T]) -> None:
        if self._wanted is None and not self.screen.is_active:
            # The operator left without a filter; texts already read are kept for the next time.
            self._reading = False
            return
        now = time.monotonic()
        if now < self._reads_from:
            self.set_timer(self._reads_from - now, lambda: self._read_some(rows))
            return
        until = now + READ
        for _ in self._rows.texts(rows):
            if time.monotonic() >= until:
                self.set_timer(PAUSE, lambda: self._read_some(rows))
                return
        self._reading = False
        if self._wanted is not self._rows.filter:
            self._apply_filter()

    def set_filter(self, wanted: Filter | None) -> None:
        """Show only the rows that pass; with many rows, once all their texts are read. None removes the filter."""
        self._wanted = wanted
        self._reads_from = time.monotonic() + HOLD
        many = len(self._rows.all) >= MANY
        if wanted is not None and wanted.expression is not None and many:
            # It needs no texts, but takes longer than a key should wait.
            self.call_after_refresh(self._apply_filter)
        elif wanted is None or wanted.expression is not None or not (self._reading or many):
            self._apply_filter()
        elif not self._reading:
            self._reading = True
            self._read_some(iter(self._rows.all))

    def complete_filter(self, text: str) -> list[str]:
        """Return what the text of a filter on fields may be continued to, with values that some rows have."""
        return complete_expression(text, fields_of(self.columns), self._values_of)

    def _values_of(self, field: Field[T]) -> list[str]:
        return sorted({field.words(field.cell(row)) for row in self._rows.all[:SAMPLED]})

    def _apply_filter(self) -> None:
        self._rows.filter = self._wanted
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
        """Mark all rows from the one marked last to the cursor."""
        self._rows.mark_range()
        self._repaint()

    def unmark(self) -> None:
        self._rows.marks.clear()
        self._repaint()

    def nothing(self) -> str:
        if not self._rows.all:
            return self._empty
        rows = f"{len(self._rows.all):,} rows"
        if self.filter is not None and self.filter.word:
            return f"{self.filter.word} {self._absent}: none of {rows} matches (Esc shows all)."
        if self.filter is not None:
            return f"None of {rows} matches /{self.filter.text} (Esc clears the filter)."
        return f"None of {rows} has a fault (! shows all)."

    # Inside

    def _arrange(self) -> None:
        had = self._rows.cursor_key
        moved = self._rows.arrange()
        self._resize()
        if moved:
            self._follow()
        self._repaint_changes()
        if self._rows.cursor_key != had:
            self.post_message(RowPicked(self.current))

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


def table_handlers(grid: Grid[Any]) -> dict[str, Handler]:
    """Return the handlers of the table actions for this table: action id → handler."""
    return {
        "table.down": lambda: grid.move(1),
        "table.up": lambda: grid.move(-1),
        "table.top": grid.top,
        "table.bottom": grid.bottom,
        "table.page-down": lambda: grid.page(1),
        "table.page-up": lambda: grid.page(-1),
        "table.faults": grid.toggle_faults,
        "table.mark": grid.toggle_mark,
        "table.mark-range": grid.mark_range,
        "table.unmark": grid.unmark,
        "table.column-left": lambda: grid.pick_column(-1),
        "table.column-right": lambda: grid.pick_column(1),
        "table.sort": grid.sort_picked,
        "table.sort-name": lambda: grid.sort("name"),
        "table.sort-age": lambda: grid.sort("age"),
        "table.sort-priority": lambda: grid.sort("priority"),
        "table.sort-status": lambda: grid.sort("status"),
        "table.sort-usage": lambda: grid.sort("usage"),
        "table.wide": grid.toggle_wide,
    }


def place(grid: Grid[Any]) -> Painted:
    """Format the cursor position, the number of rows and that of marked rows: `2/128 · *3`; empty without rows."""
    if not grid.rows:
        return ()
    marked = f" · *{len(grid.marked)}" if grid.marked else ""
    return ((f" {grid.cursor + 1}/{len(grid.rows)}{marked} ", "dim"),)
