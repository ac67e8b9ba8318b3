"""Columns for the tables of an answer, made from the tables themselves."""

from gpuconsole.ui.answers.parts import AnswerTable, Row, Valued
from gpuconsole.ui.columns import Column

UNCOUNTED = ("–", "unknown")
"""Cells of a numeric column that have no number."""
WIDEST = 44
"""Widest column; the last one takes the remaining width."""
IDS = {"PRIORITY": "priority", "GPUS": "usage", "SINCE": "age", "WAITS": "age", "OUTCOME": "status", "RISK": "status"}
"""Column head → its id for the sort keys."""


def columns(part: AnswerTable) -> tuple[Column[Row], ...]:
    """The columns of a table, as wide as their contents; a narrow screen drops the last ones first."""
    return tuple(_column(part, place, name) for place, name in enumerate(part.head))


def _column(part: AnswerTable, place: int, name: str) -> Column[Row]:
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
