"""Columns and rows of a table as data: widths, filter, order, cursor and marks, without drawing.

Cursor and marks belong to rows, not to positions: they stay on their rows after a refresh, sort or filter, and
disappear with them. The filter syntax is `regex`, `!regex`, `-l key=value,!key`, `-f fuzzy`, `-w word`, or a filter on
fields as in `field_filter`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct

from gpuconsole.insight.tables import MISSING, Table, TableColumn, Valued, field_name, number_in
from gpuconsole.insight.tables import Cell as TableCell
from gpuconsole.model.devices import WHOLE_GPU
from gpuconsole.ui.field_filter import (
    Expression,
    Field,
    FilterError,
    bind_expression,
    check_expression,
    is_expression,
    parse_expression,
    pattern,
)
from gpuconsole.ui.paint import GLYPHS, Cell, plain

T = TypeVar("T")

GAP = 1
"""Width of the gap between two columns, in terminal cells."""


@dataclass(frozen=True)
class Column(Generic[T]):
    """A column of a table of rows of type T."""

    title: str
    cell: Callable[[T], Cell]
    id: str = ""
    """`name`, `age`, `priority`, `status` and `usage` have a sort key of their own (N, A, P, S, U)."""
    width: int = 8
    """Width in cells; for a flexible column the least width."""
    flex: int = 0
    """Share of the remaining width; 0 keeps `width`."""
    align: Literal["left", "right"] = "left"
    sort: Callable[[T], Any] | None = None
    """Sort key; without it the column cannot be sorted."""
    down: bool = False
    """Sorts descending first, as usual for numbers."""
    rank: int = 0
    """0 always stays; a narrow screen drops the columns of the highest rank first."""
    name: str = ""
    """Field name in CSV and JSON; if empty, it is made from the title and the unit."""
    number: Callable[[T], float | None] | None = None
    """The number behind the text, in `unit`, for CSV and JSON; None where the text stays."""
    unit: str = ""
    """Unit of `number` where the text shows another, such as `seconds`."""
    aliases: tuple[str, ...] = ()
    """Other names of the field in filters."""
    hidden: bool = False
    """Shown only where the operator chose it; filters know it anyway."""

    @property
    def field(self) -> str:
        """Its name in filters: short words of its head."""
        name = self.name or field_name(self.title)
        return name if len(name) > 1 else self.id.replace("-", "_")

    @property
    def identity(self) -> str:
        """What distinguishes it from the other columns of its table, whose objects may be made anew."""
        return self.field or self.title


WITH_UNITS = 7
"""Width of a GPU column that also shows other units, such as `128 MIG`."""


def with_room_for_units(columns: Sequence[Column[T]], units: Iterable[str]) -> tuple[Column[T], ...]:
    """Return the columns, with a wider GPU column if some of the `units` are not whole GPUs."""
    if all(unit == WHOLE_GPU.noun for unit in units):
        return tuple(columns)
    return tuple(replace(one, width=max(WITH_UNITS, one.width)) if one.id == "usage" else one for one in columns)


class ColumnChoice(Struct, frozen=True, omit_defaults=True):
    """What the operator chose about a column."""

    column: str
    """Its identity."""
    width: int = 0
    """In terminal cells; 0 for the width that the console gives it."""
    hidden: bool = False


NARROWEST, WIDEST = 3, 80
"""Widths that the operator may give a column."""


def chosen_columns(columns: Sequence[Column[T]], choices: Sequence[ColumnChoice]) -> tuple[Column[T], ...]:
    """Return the columns to show, in their order and with their widths; those of no choice come last.

    A narrow screen drops the last of the chosen ones first.
    """
    if not choices:
        return tuple(column for column in columns if not column.hidden)
    known = {column.identity: column for column in columns}
    shown: list[Column[T]] = []
    for choice in choices:
        column = known.pop(choice.column, None)
        if column is None or choice.hidden:
            continue
        if choice.width:
            width = max(NARROWEST, min(WIDEST, choice.width))
            column = replace(column, width=width, flex=0)
        shown.append(replace(column, rank=len(shown)))
    shown += (column for column in known.values() if not column.hidden)
    return tuple(shown)


def choices_of(columns: Sequence[Column[T]], choices: Sequence[ColumnChoice]) -> list[ColumnChoice]:
    """Return a choice for each column, in the order shown: those made, and what the console chooses for the others."""
    known = {column.identity: column for column in columns}
    made = [choice for choice in choices if choice.column in known]
    named = {choice.column for choice in made}
    return [*made, *(ColumnChoice(id, hidden=one.hidden) for id, one in known.items() if id not in named)]


Layout = tuple[tuple[Column[T], int], ...]
"""The columns that fit a screen, from left to right, each with its width in terminal cells."""


def fit(columns: Sequence[Column[T]], width: int, wide: bool = False) -> Layout[T]:
    """Choose the columns that fit into `width` and give each its width; `wide` keeps all of them."""
    chosen = list(columns)
    while not wide and len(chosen) > 1 and _least(chosen) > width:
        last = max(range(len(chosen)), key=lambda index: (chosen[index].rank, index))
        if chosen[last].rank == 0:
            break
        del chosen[last]
    spare = max(0, width - _least(chosen))
    shares = sum(column.flex for column in chosen)
    widths = [column.width + (spare * column.flex // shares if shares else 0) for column in chosen]
    return tuple(zip(chosen, widths, strict=True))


def _least(columns: Sequence[Column[T]]) -> int:
    return sum(column.width for column in columns) + GAP * (len(columns) - 1)


def total(layout: Layout[T]) -> int:
    """Return the width of a row in terminal cells, gaps included."""
    return sum(width for _, width in layout) + GAP * max(0, len(layout) - 1)


def table_of_rows(columns: Iterable[Column[T]], rows: Iterable[T]) -> Table:
    """Return the cells of rows as a table; without columns that only draw, which have neither a title nor a name."""
    kept = [column for column in columns if column.title or column.name]
    heads = (
        TableColumn(heading=column.title, name=column.name, unit=column.unit, numeric=column.align == "right")
        for column in kept
    )
    return Table(tuple(heads), [[_cell_of(column, row) for column in kept] for row in rows])


_MARK = re.compile(f"^[{re.escape(''.join(GLYPHS.values()))}▸▾←] +")
"""A glyph before a text, which repeats what the text says."""


def text_of(cell: Cell) -> str:
    """Return the text of a cell without the glyph before it."""
    text = plain(cell).strip()
    return text if text[:1].isalnum() else _MARK.sub("", text)


def _words(cell: Cell) -> str:
    text = text_of(cell)
    return text if text != MISSING else ""


def fields_of(columns: Iterable[Column[T]]) -> list[Field[T]]:
    """Return the fields that filters can compare, one for each column that has a name."""
    return [_field_of(column) for column in columns if column.field]


def _field_of(column: Column[T]) -> Field[T]:
    return Field(
        column.field,
        column.cell,
        _words,
        column.number,
        column.unit,
        numeric=column.align == "right" or column.number is not None,
        names=column.id == "name",
        aliases=(*((column.id.replace("-", "_"),) if column.id else ()), *column.aliases),
    )


def _cell_of(column: Column[T], row: T) -> TableCell:
    text = text_of(column.cell(row))
    if column.number is not None and (number := column.number(row)) is not None:
        return Valued(text, number) if column.unit else number
    if column.align == "right" and (number := number_in(text)) is not None:
        return Valued(text, number)
    return text if text != MISSING else None


Labels = Mapping[str, str]
Test = Callable[[str, Labels], bool]


def _passes_all(row: str, labels: Labels) -> bool:
    return True


@dataclass(frozen=True)
class Filter:
    """A parsed filter of a table: `passes` tells whether a row passes."""

    text: str
    passes: Test = _passes_all
    by_labels: bool = False
    """Whether it tests only the row's labels; otherwise it tests only the row's text."""
    word: str = ""
    """The word that a `-w` filter looks for; empty for other filters."""
    expression: Expression | None = None
    """The filter on fields, if it is one; it tests the row itself, and not its text."""


def parse_filter(text: str, columns: Iterable[Column[Any]] = ()) -> Filter | None:
    """Parse `regex`, `!regex`, `-l key=value,key!=value,key,!key`, `-f fuzzy`, `-w word` or a filter on fields.

    Returns None for an empty text. A filter on fields may compare those of `columns`. Raises FilterError.
    """
    stripped = text.strip()
    if not stripped or stripped in ("!", "-l", "-f", "-w"):
        return None
    if is_expression(stripped):
        expression = parse_expression(text)
        check_expression(expression, fields_of(columns))
        return Filter(stripped, expression=expression)
    if stripped.startswith("-l "):
        return Filter(stripped, _labels(stripped[3:]), by_labels=True)
    if stripped.startswith("-f "):
        return Filter(stripped, _fuzzy(stripped[3:]))
    if stripped.startswith("-w "):
        word = stripped[3:].strip()
        return Filter(stripped, _regex(rf"(?<!\S){re.escape(word)}(?!\S)"), word=word)
    begin = text.index(stripped)
    if stripped.startswith("!"):
        inner = _regex(stripped[1:], begin + 1)
        return Filter(stripped, lambda row, labels: not inner(row, labels))
    return Filter(stripped, _regex(stripped, begin))


def _regex(text: str, begin: int = 0) -> Test:
    """A search; the regular expression begins at the index `begin` of the filter's text."""
    try:
        search = pattern(text).search
    except (re.error, RecursionError, OverflowError) as error:
        pos = getattr(error, "pos", None)
        place = f" at column {pos + 1}" if pos is not None else ""
        problem = getattr(error, "msg", str(error))
        raise FilterError(
            f"invalid regular expression: {problem}{place}", begin + pos if pos is not None else None
        ) from error
    return lambda row, labels: search(row) is not None


def _fuzzy(text: str) -> Test:
    """The letters in order, with anything between them: the rows that textual.fuzzy rates above 0, found much faster.

    Each letter is matched at its first occurrence for good, so the time is linear in the row.
    """
    letters = map(re.escape, text.replace(" ", ""))
    match = re.compile("".join(f"[^{letter}]*+{letter}" for letter in letters), re.IGNORECASE).match
    return lambda row, labels: match(row) is not None


def _labels(text: str) -> Test:
    """A Kubernetes label selector (equality and existence); all terms must match."""
    terms = [_label(term.strip()) for term in text.split(",") if term.strip()]
    return lambda row, labels: all(term(row, labels) for term in terms)


def _label(term: str) -> Test:
    if "!=" in term:
        key, _, value = (part.strip() for part in term.partition("!="))
        return lambda row, labels: labels.get(key) != value
    if "=" in term:
        key, _, value = (part.strip() for part in term.replace("==", "=").partition("="))
        return lambda row, labels: labels.get(key) == value
    if term.startswith("!"):
        return lambda row, labels: term[1:].strip() not in labels
    return lambda row, labels: term in labels


NO_LABELS: Mapping[str, str] = {}


class Rows(Generic[T]):
    """The rows of a table, with filter, order, cursor and marks. Mutable; call `arrange` after changing the filter."""

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
        """Put the cursor on the row with this index, or on the nearest one."""
        self.cursor = max(0, min(index, len(self.order) - 1))
        self.cursor_key = None if self.current is None else self.key(self.current)

    def find(self, key: str) -> int | None:
        """Return the index of the row with this key; None if it is not shown. Searches around the cursor first."""
        order, cursor = self.order, self.cursor
        for away in range(max(cursor + 1, len(order) - cursor)):
            for index in (cursor - away, cursor + away):
                if 0 <= index < len(order) and self.key(order[index]) == key:
                    return index
        return None

    def arrange(self) -> bool:
        """Filter and sort again; the cursor stays on its row, or moves to a neighbour if the row is gone.

        Returns whether the position of the cursor's row changed, so that the table may have to scroll.
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
        if self.filter.expression is not None:
            select = bind_expression(self.filter.expression, fields_of(self.columns), self._labels)
            return list(compress(rows, select(rows)))
        passes = self.filter.passes
        if self.filter.by_labels:
            return [row for row in rows if passes("", self._labels(row))]
        return [row for row, text in zip(rows, self.texts(rows), strict=True) if passes(text, NO_LABELS)]

    def _sorted(self, rows: Sequence[T]) -> Sequence[T]:
        if self.sorting is None or self.sorting[0].sort is None:
            return rows
        return sorted(rows, key=self.sorting[0].sort, reverse=self.sorting[1])

    def texts(self, rows: Iterable[T]) -> Iterator[str]:
        """Yield the text of all cells of each row, which filters search. Cached; uncached rows take some 10 µs each."""
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
        """Sort by a column; a second call reverses the order, a third one drops it."""
        if self.sorting is None or self.sorting[0].identity != column.identity:
            self.sorting = (column, column.down)
        elif self.sorting[1] == column.down:
            self.sorting = (column, not column.down)
        else:
            self.sorting = None

    def toggle_mark(self) -> None:
        """Mark or unmark the row under the cursor."""
        if self.cursor_key is not None:
            self.marks ^= {self.cursor_key}
            self._last_mark = self.cursor_key

    def mark_range(self) -> None:
        """Mark all rows from the one marked last to the cursor."""
        if self.cursor_key is None:
            return
        start = self.find(self._last_mark) if self._last_mark is not None else None
        first, last = sorted((self.cursor if start is None else start, self.cursor))
        self.marks |= {self.key(row) for row in self.order[first : last + 1]}
        self._last_mark = self.cursor_key
