"""Plain text tables for terminals and files."""

from collections.abc import Sequence

from gpuconsole.model.clock import SECOND, Time, format_time
from gpuconsole.model.text import clean


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Format a table as lines; columns with only numbers are right-aligned."""
    cells = [[clean(str(cell)) for cell in row] for row in rows]
    widths = [max([len(name), *(len(row[place]) for row in cells)]) for place, name in enumerate(head)]
    right = [all(isinstance(row[place], (int, float)) for row in rows) for place in range(len(head))]
    return [_line(row, widths, right) for row in [head, *cells]]


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = [
        cell.rjust(width) if number else cell.ljust(width)
        for cell, width, number in zip(cells, widths, right, strict=True)
    ]
    return "  ".join(padded).rstrip()


def counted(number: int, word: str) -> str:
    """Format a number with its noun: `1 error`, `2 errors`."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def seconds(time: Time) -> str:
    """Format a time in whole seconds, the precision of all text output."""
    return format_time(time - time % SECOND)


def time_range(first: Time, last: Time) -> str:
    """Format a range of times in whole seconds that are within it: `2026-01-05T08:00:00Z to 2026-01-05T14:00:00Z`."""
    return f"{seconds(first + SECOND - 1)} to {seconds(last)}"
