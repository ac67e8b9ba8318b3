"""The rows of a table: filter, order, cursor and marks, without drawing.

Cursor and marks belong to rows, not to positions: they stay on their rows after a refresh, sort or filter, and
disappear with them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from gpuconsole.ui.columns import Column
from gpuconsole.ui.filters import Filter
from gpuconsole.ui.paint import plain

T = TypeVar("T")

NO_LABELS: Mapping[str, str] = {}


class Rows(Generic[T]):
    """All rows of a table and the view of them. Mutates; after a change of `filter` or the like, call `arrange`."""

    def __init__(
        self,
        key: Callable[[T], str],
        *,
        labels: Callable[[T], Mapping[str, str]],
        fault: Callable[[T], bool],
        follow: bool,
    ) -> None:
        self.key = key
        self._labels = labels
        self._fault = fault
        self._follow = follow
        self.columns: tuple[Column[T], ...] = ()
        self.all: Sequence[T] = ()
        self.order: Sequence[T] = ()
        """The filtered and sorted rows."""
        self.cursor = 0
        self.cursor_key: str | None = None
        self.chosen = False
        """Whether the operator moved the cursor; until then it stays on the first row."""
        self.marks: set[str] = set()
        self._last_mark: str | None = None
        self.sorting: tuple[Column[T], bool] | None = None
        """The sort column, and whether the order is descending."""
        self.filter: Filter | None = None
        self.faults_only = False
        self._texts: dict[int, tuple[T, str]] = {}
        """id() of a row → the row and the text of all its cells, kept while the row is the same object."""

    @property
    def current(self) -> T | None:
        """The row under the cursor."""
        return self.order[self.cursor] if self.cursor < len(self.order) else None

    @property
    def marked(self) -> list[T]:
        """The marked rows, in the order of the table."""
        return [row for row in self.all if self.key(row) in self.marks] if self.marks else []

    def place(self, index: int) -> None:
        """Put the cursor on the row with this number, or the nearest one."""
        self.cursor = max(0, min(index, len(self.order) - 1))
        self.cursor_key = None if self.current is None else self.key(self.current)

    def find(self, key: str) -> int | None:
        """The number of the row with this key. Rows seldom move far, so it is looked for around the cursor first."""
        order, cursor = self.order, self.cursor
        for away in range(max(cursor + 1, len(order) - cursor)):
            for index in (cursor - away, cursor + away):
                if 0 <= index < len(order) and self.key(order[index]) == key:
                    return index
        return None

    def arrange(self) -> bool:
        """Filter and sort again, and put the cursor back on its row, or on its neighbour if the row is gone.

        True if the position of the row under the cursor changed, so that the table may have to scroll.
        """
        if self.marks:
            self.marks &= {self.key(row) for row in self.all}
        self.order = self._sorted(self._filtered(self.all))
        rests = self.cursor == 0 and (self._follow or not self.chosen)
        index = self.find(self.cursor_key) if self.cursor_key is not None and not rests else None
        moved = index is not None and index != self.cursor
        self.place(self.cursor if index is None else index)
        return moved

    def _filtered(self, rows: Sequence[T]) -> Sequence[T]:
        if self.faults_only:
            rows = [row for row in rows if self._fault(row)]
        if self.filter is None:
            return rows
        passes = self.filter.passes
        if self.filter.by_labels:
            return [row for row in rows if passes("", self._labels(row))]
        return [row for row, text in zip(rows, self.texts(rows), strict=True) if passes(text, NO_LABELS)]

    def _sorted(self, rows: Sequence[T]) -> Sequence[T]:
        if self.sorting is None or self.sorting[0].sort is None:
            return rows
        return sorted(rows, key=self.sorting[0].sort, reverse=self.sorting[1])

    def texts(self, rows: Iterable[T]) -> Iterator[str]:
        """All cells of each row as one text to search in. The first time it is slow: some 10 µs a row."""
        known = self._texts
        if len(known) > 2 * len(self.all) + 1000:
            known.clear()
        for row in rows:
            entry = known.get(id(row))
            if entry is None or entry[0] is not row:
                entry = known[id(row)] = (row, " ".join(plain(column.cell(row)) for column in self.columns))
            yield entry[1]

    def forget_texts(self) -> None:
        """Drop the cached texts after a change of columns."""
        self._texts.clear()

    def sort_by(self, column: Column[T]) -> None:
        """Sort by a column; a second time reverses the order, a third time drops it."""
        if self.sorting is None or self.sorting[0] is not column:
            self.sorting = (column, column.down)
        elif self.sorting[1] is column.down:
            self.sorting = (column, not column.down)
        else:
            self.sorting = None

    def toggle_mark(self) -> None:
        """Mark or unmark the row under the cursor."""
        if self.cursor_key is not None:
            self.marks ^= {self.cursor_key}
            self._last_mark = self.cursor_key

    def mark_range(self) -> None:
        """Mark everything between the last mark and the cursor."""
        if self.cursor_key is None:
            return
        start = self.find(self._last_mark) if self._last_mark is not None else None
        first, last = sorted((self.cursor if start is None else start, self.cursor))
        self.marks |= {self.key(row) for row in self.order[first : last + 1]}
        self._last_mark = self.cursor_key
