"""An answer as parts: lines of text, and tables of which each row says what it is about.

The command line prints them one below the other; the console makes tables of them that have a cursor.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from gpuconsole.insight.tables import table
from gpuconsole.ui.columns import Column

UNCOUNTED = ("–", "unknown")
"""What stands among numbers where there is none."""
WIDEST = 44
"""Cells that a column takes at most; the last one takes what is left."""
IDS = {"PRIORITY": "priority", "GPUS": "usage", "SINCE": "age", "WAITS": "age", "OUTCOME": "status", "RISK": "status"}
"""Head of a column → its id for the keys that sort."""


class About(NamedTuple):
    """What a row is about: a table as in `objects.TABLES`, and a key in it."""

    table: str
    key: str


class Valued(NamedTuple):
    """A cell in words, and the number that it is sorted by."""

    text: str
    value: float

    def __str__(self) -> str:
        return self.text


class Row(Struct, frozen=True, kw_only=True):
    """A row of a table."""

    key: str
    """What the cursor knows it by."""
    cells: tuple[object, ...]
    about: About | None = None
    note: str = ""
    """What stands below it: it would be cut in a column of its own."""


class Table(Struct, frozen=True):
    """A table of an answer."""

    head: tuple[str, ...]
    rows: tuple[Row, ...]


Part: TypeAlias = "str | Table"


def lines_of(parts: Iterable[Part]) -> list[str]:
    """The parts one below the other, as text."""
    return [line for part in parts for line in ([part] if isinstance(part, str) else _lines(part))]


def _lines(part: Table) -> Iterator[str]:
    head, *rows = table(part.head, [row.cells for row in part.rows])
    yield head
    for row, text in zip(part.rows, rows, strict=True):
        yield text
        if row.note:
            yield f"  {row.note}"


def columns(part: Table) -> tuple[Column[Row], ...]:
    """The columns of its table in the console: as wide as what stands in them; the last ones are left out first."""
    return tuple(_column(part, place, name) for place, name in enumerate(part.head))


def _column(part: Table, place: int, name: str) -> Column[Row]:
    cells = [row.cells[place] for row in part.rows]
    numbers = any(map(_counts, cells)) and all(_counts(cell) or cell in UNCOUNTED for cell in cells)
    widest = max([len(name), *(len(str(cell)) for cell in cells)])
    return Column(
        name,
        lambda row: str(row.cells[place]),
        id="name" if not place else IDS.get(name, ""),
        width=min(widest, WIDEST),
        flex=int(place == len(part.head) - 1 and not numbers),
        align="right" if numbers else "left",
        sort=lambda row: _order(row.cells[place]),
        down=numbers,
        rank=place,
    )


def _counts(cell: object) -> bool:
    return isinstance(cell, (int, float, Valued))


def _order(cell: object) -> tuple[bool, float, str]:
    """Numbers first, by their size; then words."""
    match cell:
        case Valued():
            return False, cell.value, ""
        case int() | float():
            return False, cell, ""
        case _:
            return True, 0.0, str(cell)


def apart(parts: Sequence[Part]) -> tuple[list[str], list[Table], list[str]]:
    """The lines above the tables, the tables, and all other lines."""
    tables = [part for part in parts if isinstance(part, Table)]
    first = next((place for place, part in enumerate(parts) if isinstance(part, Table)), len(parts))
    lines = [part for part in parts[first:] if isinstance(part, str)]
    return _trimmed(part for part in parts[:first] if isinstance(part, str)), tables, _trimmed(lines)


def _trimmed(lines: Iterable[str]) -> list[str]:
    """Without empty lines at both ends, and without more than one between others."""
    found: list[str] = []
    for text in lines:
        if text or (found and found[-1]):
            found.append(text)
    return found[:-1] if found and not found[-1] else found
