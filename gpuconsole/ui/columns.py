"""Columns as data: content, width and sort order of a table's columns, and the choice of those that fit a screen."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

from gpuconsole.model.device_units import WHOLE_GPU
from gpuconsole.ui.paint import Cell

T = TypeVar("T")

GAP = 1
"""Cells between two columns."""


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


WITH_UNITS = 7
"""Width of `128 MIG`."""


def with_room_for_units(columns: Sequence[Column[T]], units: Iterable[str]) -> tuple[Column[T], ...]:
    """The same columns, with a wider GPU column where some amounts show another unit."""
    if all(unit == WHOLE_GPU.noun for unit in units):
        return tuple(columns)
    return tuple(replace(one, width=max(WITH_UNITS, one.width)) if one.id == "usage" else one for one in columns)


Layout = tuple[tuple[Column[T], int], ...]
"""Columns with their widths, from left to right."""


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
    """The width of a row."""
    return sum(width for _, width in layout) + GAP * max(0, len(layout) - 1)
