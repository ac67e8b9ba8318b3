"""Parts of a report: lines of text, and tables whose rows name the object that they describe.

The command line prints them one below the other; the console shows the tables with a cursor.

Messages about data that a report lacks, such as objects whose reading is forbidden.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from gpuconsole.insight.tables import table


class About(NamedTuple):
    """The object that a row describes: a table as in `objects.TABLES`, and a key in it."""

    table: str
    key: str


class Valued(NamedTuple):
    """Text of a cell, and the number by which it is sorted."""

    text: str
    value: float

    def __str__(self) -> str:
        return self.text


class Row(Struct, frozen=True, kw_only=True):
    """A row of a table."""

    key: str
    """Identifies the row for the cursor."""
    cells: tuple[object, ...]
    about: About | None = None
    note: str = ""
    """Text shown below the row; it is too long for a column."""


class AnswerTable(Struct, frozen=True):
    """A table of a report."""

    head: tuple[str, ...]
    rows: tuple[Row, ...]


Part: TypeAlias = "str | AnswerTable"


def lines_of(parts: Iterable[Part]) -> list[str]:
    """The parts one below the other, as text."""
    return [line for part in parts for line in ([part] if isinstance(part, str) else _lines(part))]


def _lines(part: AnswerTable) -> Iterator[str]:
    head, *rows = table(part.head, [row.cells for row in part.rows])
    yield head
    for row, text in zip(part.rows, rows, strict=True):
        yield text
        if row.note:
            yield f"  {row.note}"


def apart(parts: Sequence[Part]) -> tuple[list[str], list[AnswerTable], list[str]]:
    """The lines above the tables, the tables, and all other lines."""
    tables = [part for part in parts if isinstance(part, AnswerTable)]
    first = next((place for place, part in enumerate(parts) if isinstance(part, AnswerTable)), len(parts))
    lines = [part for part in parts[first:] if isinstance(part, str)]
    return _trimmed(part for part in parts[:first] if isinstance(part, str)), tables, _trimmed(lines)


def _trimmed(lines: Iterable[str]) -> list[str]:
    """Without empty lines at both ends, and without more than one between others."""
    found: list[str] = []
    for text in lines:
        if text or (found and found[-1]):
            found.append(text)
    return found[:-1] if found and not found[-1] else found


NOTHING = "not enough data for an answer"


def no_data_lines(lacking: Iterable[str]) -> list[str]:
    """The whole report where required objects are not visible."""
    return [NOTHING, *missing_data_lines(lacking)]


def missing_data_lines(unknown: Iterable[str]) -> list[str]:
    """Lines below a report that name what is unknown."""
    return [f"unknown: {text}" for text in unknown]
