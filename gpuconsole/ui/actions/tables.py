"""Actions on tables."""

from gpuconsole.ui.actions.action import Action, Scope

TABLES: tuple[Action, ...] = (
    Action(id="table.down", keys=("j", "down"), label="down", help="Move down a row.", scope=Scope.TABLE),
    Action(id="table.up", keys=("k", "up"), label="up", help="Move up a row.", scope=Scope.TABLE),
    Action(id="table.top", keys=("g", "home"), label="top", help="Move to the first row.", scope=Scope.TABLE),
    Action(id="table.bottom", keys=("G", "end"), label="bottom", help="Move to the last row.", scope=Scope.TABLE),
    Action(id="table.page-down", keys=("pagedown",), label="page down", help="Move down a page.", scope=Scope.TABLE),
    Action(id="table.page-up", keys=("pageup",), label="page up", help="Move up a page.", scope=Scope.TABLE),
    Action(
        id="table.filter",
        keys=("/",),
        label="filter",
        help="Filter rows: regex, !regex, -l key=value, -f fuzzy, -w whole word.",
        scope=Scope.TABLE,
        footer=True,
    ),
    Action(
        id="table.faults",
        keys=("!",),
        label="problems only",
        help="Show only rows with problems, or all rows.",
        scope=Scope.TABLE,
    ),
    Action(id="table.mark", keys=("space",), label="mark", help="Mark the row, or unmark it.", scope=Scope.TABLE),
    Action(
        id="table.mark-range",
        keys=("v",),
        label="mark range",
        help="Mark all rows between the last marked row and this one.",
        scope=Scope.TABLE,
    ),
    Action(id="table.unmark", keys=("\\",), label="clear marks", help="Unmark all rows.", scope=Scope.TABLE),
    Action(
        id="table.column-left",
        keys=("shift+left",),
        label="column left",
        help="Select the column to the left.",
        scope=Scope.TABLE,
    ),
    Action(
        id="table.column-right",
        keys=("shift+right",),
        label="column right",
        help="Select the column to the right.",
        scope=Scope.TABLE,
    ),
    Action(
        id="table.sort",
        keys=("O",),
        label="sort",
        help="Sort by the selected column: ascending, descending, off.",
        scope=Scope.TABLE,
    ),
    Action(id="table.sort-name", keys=("N",), label="by name", help="Sort by name.", scope=Scope.TABLE),
    Action(id="table.sort-age", keys=("A",), label="by age", help="Sort by age.", scope=Scope.TABLE),
    Action(id="table.sort-priority", keys=("P",), label="by priority", help="Sort by priority.", scope=Scope.TABLE),
    Action(id="table.sort-status", keys=("S",), label="by status", help="Sort by status.", scope=Scope.TABLE),
    Action(id="table.sort-usage", keys=("U",), label="by usage", help="Sort by usage.", scope=Scope.TABLE),
    Action(
        id="table.wide",
        keys=("ctrl+w",),
        label="wide",
        help="Show all columns; scroll sideways where they do not fit.",
        scope=Scope.TABLE,
    ),
)
