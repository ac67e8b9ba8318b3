"""The table of this console: its cursor, marks, order and filter, as keys and the mouse change them.

Rows are any objects; what is shown are `Column`s. Each `show()` hands over all rows; sorting and filtering make an
order, and the cursor stays on its row, whatever happens around it. The widget binds no keys: the screen calls its
methods. How it is drawn is in `grid_lines`.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from textual import events

from gpuconsole.ui.columns import GAP, Column
from gpuconsole.ui.filters import Filter
from gpuconsole.ui.messages import RowOpened, RowPicked
from gpuconsole.ui.reliable_timers import ReliableTimers
from gpuconsole.ui.rows import Rows
from gpuconsole.ui.widgets.grid_lines import GUTTER, GridLines
from gpuconsole.ui.widgets.notice import PaneState

T = TypeVar("T")

MANY = 10_000
"""So many rows are filtered only after the key was drawn: of 100,000 it takes a tenth of a second."""
READ = 0.003
"""Seconds for which rows are read at once for a filter."""
PAUSE = 0.003
"""Seconds between two such times: keys get their turn, and other threads."""
HOLD = 0.06
"""Seconds after a key of a filter within which it should be seen: no more rows are read then."""


class Grid(ReliableTimers, GridLines[T], can_focus=True, inherit_bindings=False):
    """A table of rows of type T, each identified by its key."""

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
        empty: str = "No rows.",
        absent: str = "not found",
        header: bool = True,
        follow: bool = False,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        """`empty` is shown without rows, `absent` if no row has the name of the filter.

        `follow` is for lists that grow at the top: a cursor on the first row stays there, on the newest.
        """
        rows: Rows[T] = Rows(key, labels=labels, fault=fault, follow=follow)
        rows.columns = tuple(columns)
        super().__init__(rows, header=header, id=id, classes=classes)
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
        """Show a state in place of rows: loading, forbidden or failed."""
        self._rows.all = ()
        self._state, self._said = state, text
        self._arrange()

    @property
    def bare(self) -> bool:
        """Whether it has data, but no rows."""
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
        """The head of the picked column; empty where none is picked."""
        if self._picked is None or self._picked >= len(self._layout):
            return ""
        return self._layout[self._picked][0].title

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
        """Put the cursor on the row with this number, or the nearest one."""
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
        """Sort by the column with this id; a second time reverses the order, a third time drops it."""
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
        """Read the texts of all rows in small steps, so that the first letter of a filter is fast."""
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
        """Show the rows that pass; with many rows, as soon as all texts are read."""
        self._wanted = wanted
        self._reads_from = time.monotonic() + HOLD
        if wanted is None or not (self._reading or len(self._rows.all) >= MANY):
            self._apply_filter()
        elif not self._reading:
            self._reading = True
            self._read_some(iter(self._rows.all))

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
        """Mark everything between the last mark and the cursor."""
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
