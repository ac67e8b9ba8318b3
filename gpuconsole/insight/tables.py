"""Tables as data, rendered as text, Markdown, HTML, CSV and JSON; also how texts show counts and times.

A `Table` has columns and typed cells; commands, reports and exported screens make one and choose a renderer. Texts from
a cluster come from its users: every renderer cleans them, and escapes what its format would interpret.
"""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from html import escape
from math import isfinite
from typing import NamedTuple, Protocol, TypeAlias, assert_never

from msgspec import Struct

from gpuconsole.model.clock import SECOND, Time, format_time
from gpuconsole.model.text import clean


class Valued(NamedTuple):
    """Text of a cell, and the number by which it is sorted, in the unit of its column if that has one."""

    text: str
    value: float

    def __str__(self) -> str:
        return self.text


Value: TypeAlias = str | int | float | None
"""A cell in a file; bool is a kind of int."""
Cell: TypeAlias = Value | Valued
"""A cell of a table; None is shown as a dash."""
MISSING = "–"
UNCOUNTED = (None, MISSING, "unknown", "")
"""Cells that stand for a missing number: a column of numbers and these is numeric."""


class TableColumn(Struct, frozen=True, kw_only=True):
    """A column of a `Table`."""

    heading: str
    name: str = ""
    """Field name in CSV and JSON; if empty, it is made from the heading and the unit."""
    unit: str = ""
    """Unit of the numbers in CSV and JSON where texts show another, such as `seconds` for `3m53s`."""
    numeric: bool | None = None
    """Whether it is right-aligned; None if its cells tell."""


class Table(Struct, frozen=True):
    """Columns and rows of cells; each row has a cell for each column."""

    columns: tuple[TableColumn, ...]
    rows: Sequence[Sequence[Cell]]

    @property
    def headings(self) -> list[str]:
        return [column.heading for column in self.columns]

    @property
    def numeric(self) -> list[bool]:
        """For each column whether it is right-aligned."""
        return [
            is_numeric(row[place] for row in self.rows) if column.numeric is None else column.numeric
            for place, column in enumerate(self.columns)
        ]

    @property
    def names(self) -> list[str]:
        """The field names of the columns, all different."""
        found: list[str] = []
        for place, column in enumerate(self.columns, 1):
            name = column.name or field_name(f"{column.heading} {column.unit}") or f"column_{place}"
            found.append(name if name not in found else f"{name}_{place}")
        return found

    def values(self) -> Iterator[list[Value]]:
        """Yield the cells of each row as values of CSV and JSON: numbers, texts, True, False and None."""
        for row in self.rows:
            yield [
                _value(cell.value if isinstance(cell, Valued) and column.unit else cell)
                for column, cell in zip(self.columns, row, strict=True)
            ]


def table_of(
    head: Iterable[str | TableColumn], rows: Sequence[Sequence[Cell]], *, numeric: bool | None = None
) -> Table:
    """Make a table; `numeric` is that of all columns but the first that have only a heading."""
    columns = (
        TableColumn(heading=one, numeric=numeric if place else None) if isinstance(one, str) else one
        for place, one in enumerate(head)
    )
    return Table(tuple(columns), rows)


def is_numeric(cells: Iterable[Cell]) -> bool:
    """Return whether all cells that are not missing are numbers, and at least one is."""
    known = [cell for cell in cells if isinstance(cell, Valued) or cell not in UNCOUNTED]
    return bool(known) and all(isinstance(cell, (int, float, Valued)) and not isinstance(cell, bool) for cell in known)


_UNITS = {"$": " usd ", "%": " percent ", "‰": " permille ", r"gpu-h\b": " gpu hours ", r"/h\b": " per hour "}


def field_name(heading: str) -> str:
    """Return a heading as a field name: `LOST GPU-H` is `lost_gpu_hours`, `COST $` is `cost_usd`."""
    name = heading.lower()
    for sign, words in _UNITS.items():
        name = re.sub(re.escape(sign) if len(sign) == 1 else sign, words, name)
    return "_".join(re.findall("[a-z0-9]+", name))


_NUMBER = re.compile(r"-?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?")


def number_in(text: str) -> int | float | None:
    """Return the number that a text is, such as `1,234` or `-0.5`; None if there is more or less in it."""
    if not text.isascii() or not _NUMBER.fullmatch(text):
        return None
    digits = text.replace(",", "")
    return float(digits) if "." in digits else int(digits)


def _value(cell: Cell) -> Value:
    match cell:
        case Valued():
            number = number_in(cell.text)
            return clean(cell.text) if number is None else number
        case str():
            return clean(cell)
        case float() if not isfinite(cell):
            return None
        case _:
            return cell


def shown(cell: Cell) -> str:
    """Return a cell as people read it."""
    match cell:
        case None:
            return MISSING
        case bool():
            return "yes" if cell else "no"
        case _:
            return clean(str(cell))


def _texts(table: Table) -> list[list[str]]:
    """The headings, then the rows, as people read them."""
    return [[shown(cell) for cell in row] for row in (table.headings, *table.rows)]


def text_lines(table: Table) -> list[str]:
    """Format a table as lines for a terminal."""
    rows = _texts(table)
    sides = [">" if numeric else "<" for numeric in table.numeric]
    forms = [f"{side}{max(map(len, column))}" for side, column in zip(sides, zip(*rows, strict=True), strict=True)]
    return ["  ".join(map(format, row, forms)).rstrip() for row in rows]


def text_table(headings: Iterable[str], rows: Sequence[Sequence[Cell]]) -> list[str]:
    """Format rows under headings as lines for a terminal."""
    return text_lines(table_of(headings, rows))


def markdown_lines(table: Table) -> list[str]:
    """Format a table as lines of Markdown."""
    head, *rows = ([in_markdown(text) for text in row] for row in _texts(table))
    sides = ["---:" if numeric else "---" for numeric in table.numeric]
    return [f"| {' | '.join(row)} |" for row in (head, sides, *rows)]


def in_markdown(text: str) -> str:
    """Escape what Markdown or the HTML in it would interpret."""
    escaped = "".join(f"\\{one}" if one in "\\`*_[]|~" else one for one in clean(text))
    return escape(escaped, quote=False)


def html_lines(table: Table) -> list[str]:
    """Format a table as lines of HTML."""
    head, *rows = _texts(table)
    body = [_html_row("td", row) for row in rows]
    return ["<table>", f"<thead>{_html_row('th', head)}</thead>", "<tbody>", *body, "</tbody>", "</table>"]


def _html_row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{in_html(cell)}</{tag}>' for cell in cells)}</tr>"


def in_html(text: str) -> str:
    """Escape a text for HTML."""
    return escape(clean(text))


class SupportsWrite(Protocol):
    """A file of text, or what stands for one."""

    def write(self, text: str, /) -> object: ...


def write_csv(names: Iterable[str], rows: Iterable[Iterable[Cell]], file: SupportsWrite) -> None:
    """Write a CSV file (RFC 4180, with Unix line ends): `names`, then the rows. Texts cannot be formulas.

    The text of a `Valued` is written as it is; None is an empty field.
    """
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow(spreadsheet_text(cell) if isinstance(cell, str) else cell for cell in row)


_FORMULA = ("=", "+", "-", "@")


def spreadsheet_text(text: str) -> str:
    """Return a text as a cell of a CSV file: cleaned, and with an apostrophe before what is a formula in a spreadsheet.

    Names in a cluster come from its users: `=HYPERLINK(…)` must stay a text.
    """
    text = clean(text)
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text


def csv_text(table: Table) -> str:
    """Format a table as a CSV file whose header has the field names."""
    text = io.StringIO()
    write_csv(table.names, table.values(), text)
    return text.getvalue()


def json_objects(table: Table) -> list[dict[str, Value]]:
    """Return a table as a list of JSON objects, one for each row, by field name."""
    names = table.names
    return [dict(zip(names, row, strict=True)) for row in table.values()]


class TableFormat(StrEnum):
    """File formats of tables; each is the suffix of its files."""

    CSV = ".csv"
    JSON = ".json"
    MARKDOWN = ".md"


def table_file(table: Table, form: TableFormat) -> str:
    """Return the contents of a file with a table."""
    match form:
        case TableFormat.CSV:
            return csv_text(table)
        case TableFormat.JSON:
            return json.dumps(json_objects(table), ensure_ascii=False, indent=2) + "\n"
        case TableFormat.MARKDOWN:
            return "\n".join(markdown_lines(table)) + "\n"
        case _:
            assert_never(form)


def counted(number: int, word: str) -> str:
    """Format a number with its noun: `1 error`, `2 errors`."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def seconds(time: Time) -> str:
    """Format a time in whole seconds, the precision of all text output."""
    return format_time(time - time % SECOND)


def time_range(first: Time, last: Time) -> str:
    """Format a range of times in whole seconds that are within it: `2026-01-05T08:00:00Z to 2026-01-05T14:00:00Z`."""
    return f"{seconds(first + SECOND - 1)} to {seconds(last)}"
