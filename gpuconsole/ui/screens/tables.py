"""Handlers of table actions, and the position shown in the crumbs."""

from typing import Any

from gpuconsole.ui.paint import Painted
from gpuconsole.ui.screens.dialogs_mixin import Handler
from gpuconsole.ui.widgets.grid import Grid


def table_handlers(grid: Grid[Any]) -> dict[str, Handler]:
    """Action id → handler for this table."""
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
    """Position of the cursor, number of rows and of marked rows: `2/128 · *3`."""
    if not grid.rows:
        return ()
    marked = f" · *{len(grid.marked)}" if grid.marked else ""
    return ((f" {grid.cursor + 1}/{len(grid.rows)}{marked} ", "dim"),)
