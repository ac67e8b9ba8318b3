"""What all tables offer: columns chosen in a dialog, saved views, and copies to the clipboard of the terminal.

A saved view is a screen with its filter, sort and columns. The clipboard is set by OSC 52, which also works over SSH.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical

from gpuconsole.insight.tables import counted
from gpuconsole.model.text import clean
from gpuconsole.ui.paint import Cell
from gpuconsole.ui.screens.base import AppServices, ConsoleScreen
from gpuconsole.ui.screens.objects import find
from gpuconsole.ui.table_layouts import SavedView, TableLayout
from gpuconsole.ui.table_model import NARROWEST, WIDEST, Column, ColumnChoice, text_of
from gpuconsole.ui.widgets.dialogs import AROUND, ChoiceOption, Dialog, Question
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.painter import Lines, StatusLine
from gpuconsole.ui.yaml_view import as_yaml

KEYS = "space show/hide · J/K move · ←/→ width · r reset · ⏎ keep · esc cancel"
NO_TABLE = "This screen has no table"


class ColumnsDialog(Dialog[bool]):
    """Lets the operator show, order and resize the columns of a table, which follows at once; Escape undoes it."""

    def __init__(self, table: Grid[Any]) -> None:
        super().__init__()
        self._table = table
        self._before = table.choices
        self._choices = table.choices

    def compose(self) -> ComposeResult:
        titles = {column.identity: column.title or column.identity for column in self._table.columns}
        columns: tuple[Column[ColumnChoice], ...] = (
            Column("", lambda one: "[ ]" if one.hidden else "[x]", width=3),
            Column("COLUMN", lambda one: titles[one.column], width=18, flex=2),
            Column("FIELD", lambda one: ((one.column, "dim"),), width=14, flex=1),
            Column("WIDTH", self._width, width=7, align="right"),
        )
        with Vertical(classes="dialog"):
            yield Lines(classes="dialog-title")
            yield Grid(columns, key=lambda one: one.column, empty="No columns.")
            yield StatusLine(classes="complaint")

    def _width(self, choice: ColumnChoice) -> Cell:
        visible = any(column.identity == choice.column for column in self._table.visible_columns)
        return str(choice.width or "auto") if visible or choice.hidden else (("no room", "pending"),)

    def fill(self) -> None:
        self.query_one(Lines).lines = ((("Columns", "title"),),)
        self.query_one(StatusLine).left = ((KEYS, "dim"),)
        grid = self._grid
        grid.styles.height = max(2, min(len(self._choices) + 1, 24, self.app.size.height - AROUND))
        grid.show(tuple(self._choices))
        grid.focus()

    @property
    def _grid(self) -> Grid[ColumnChoice]:
        return self.query_one(Grid)

    def on_key(self, event: events.Key) -> None:
        does: dict[str, Callable[[], object]] = {
            "up": lambda: self._grid.move(-1),
            "down": lambda: self._grid.move(1),
            "k": lambda: self._grid.move(-1),
            "j": lambda: self._grid.move(1),
            "home": self._grid.top,
            "end": self._grid.bottom,
            "space": self._toggle,
            "J": lambda: self._move(1),
            "K": lambda: self._move(-1),
            "shift+down": lambda: self._move(1),
            "shift+up": lambda: self._move(-1),
            "left": lambda: self._resize(-1),
            "right": lambda: self._resize(1),
            "r": self._reset,
            "enter": lambda: self.dismiss(True),
            "escape": self._cancel,
        }
        pressed = event.character if event.is_printable and event.character not in (None, " ") else event.key
        event.stop()
        if (do := does.get(str(pressed))) is not None:
            do()

    def _change(self, choices: Sequence[ColumnChoice]) -> None:
        self._choices = list(choices)
        self._table.choose_columns(self._choices)
        self._grid.show(tuple(self._choices))

    def _edit(self, **fields: int | bool) -> None:
        here = self._grid.cursor
        self._change([replace(one, **fields) if at == here else one for at, one in enumerate(self._choices)])

    def _toggle(self) -> None:
        picked = self._grid.current
        shown = sum(not one.hidden for one in self._choices)
        if picked is not None and (picked.hidden or shown > 1):
            self._edit(hidden=not picked.hidden)

    def _move(self, step: int) -> None:
        here = self._grid.cursor
        there = here + step
        if 0 <= there < len(self._choices):
            moved = list(self._choices)
            moved.insert(there, moved.pop(here))
            self._grid.move_to(here)
            self._change(moved)

    def _resize(self, step: int) -> None:
        picked = self._grid.current
        if picked is not None:
            width = picked.width or self._table.width_of(picked.column)
            self._edit(width=max(NARROWEST, min(WIDEST, width + step)))

    def _reset(self) -> None:
        self._table.choose_columns(())
        self._change(self._table.choices)
        self._table.choose_columns(())

    def _cancel(self) -> None:
        self._table.choose_columns(self._before)
        self.dismiss(False)


def ask_columns(screen: ConsoleScreen) -> None:
    """Choose the columns of the table in front, and remember them."""
    grid = screen.grid
    if grid is None or not grid.columns:
        screen.flash(NO_TABLE, "warning")
        return

    def chosen(kept: bool | None) -> None:
        if kept:
            layout = TableLayout(columns=grid.chosen)
            if problem := screen.console_app.tables.remember(screen.table_name(grid), layout):
                screen.flash(f"Columns: {problem}", "warning")

    if not screen.dialogs.left_for("Columns"):
        screen.console_app.push_screen(ColumnsDialog(grid), chosen)


VIEW_USAGE = ":view NAME opens a saved view, :view save NAME saves this one, :view delete NAME deletes it"


def run_view(app: AppServices, argument: str) -> None:
    """Run `:view`, `:view NAME`, `:view save NAME` or `:view delete NAME`."""
    screen = app.front
    if screen is None:
        return
    verb, _, name = argument.partition(" ")
    name = name.strip()
    if verb in ("save", "delete") and not name:
        screen.flash(VIEW_USAGE, "warning")
    elif verb == "save":
        _save_view(screen, name)
    elif verb == "delete" and name in app.tables.views:
        _say(screen, app.tables.delete_view(name), f"Deleted the view {name}")
    elif argument and verb != "delete":
        open_view(app, argument)
    elif verb == "delete":
        screen.flash(_unknown(app, name), "error")
    else:
        _choose_view(app, screen)


def _save_view(screen: ConsoleScreen, name: str) -> None:
    app, grid = screen.console_app, screen.grid
    if not screen.view or grid is None:
        screen.flash("This screen cannot be saved as a view; open a numbered screen, such as workloads (3)", "warning")
        return
    sorting = grid.sorting
    layout = TableLayout(
        columns=grid.chosen,
        sort=sorting[0].identity if sorting is not None else "",
        descending=sorting is not None and sorting[1],
    )
    filtered = grid.filter.text if grid.filter is not None else ""
    view = SavedView(screen.view, filtered, layout, tuple(sorted(app.namespaces)))

    def save() -> None:
        _say(screen, app.tables.save_view(name, view), f"Saved the view {name}; :view {name} opens it")

    if name in app.tables.views:
        screen.dialogs.ask(Question(f"Replace the view {clean(name, 60)}?", yes="Replace"), save)
    else:
        save()


def _say(screen: ConsoleScreen, problem: str, done: str) -> None:
    screen.flash(f"Views: {problem}" if problem else done, "warning" if problem else "information")


def _unknown(app: AppServices, name: str) -> str:
    known = ", ".join(sorted(app.tables.views)) or "none yet"
    return f"Unknown view {name}; saved views: {known}"


def open_view(app: AppServices, name: str) -> None:
    """Open a saved view: its screen, namespaces, filter, sort and columns."""
    saved = app.tables.views.get(name)
    if saved is None:
        app.flash(_unknown(app, name), "error")
        return
    app.namespaces = frozenset(saved.namespaces)
    app.go(saved.view)

    def apply() -> None:
        screen = app.front
        grid = screen.grid if screen is not None else None
        if screen is None or grid is None:
            return
        grid.choose_columns(saved.layout.columns)
        grid.sort_as(saved.layout.sort, saved.layout.descending)
        screen.set_filter(saved.filter)
        screen.redraw()

    app.call_later(apply)


def _choose_view(app: AppServices, screen: ConsoleScreen) -> None:
    options = [ChoiceOption(name, name, detail=f"{one.view} {one.filter}") for name, one in app.tables.views.items()]
    if options:
        screen.dialogs.choose("Saved views", options, lambda name: open_view(app, name))
    else:
        screen.flash(VIEW_USAGE)


COPIES = {
    "cell": ("c", "the cell under the picked column, else the first"),
    "row": ("r", "the visible cells, separated by tabs; all marked rows"),
    "name": ("n", "namespace and name of the object"),
    "yaml": ("y", "the object as YAML"),
    "json": ("j", "the object as JSON"),
}
"""What can be copied → its key, and what it is."""


def ask_copy(app: AppServices) -> None:
    """Choose what to copy."""
    screen = app.front
    if screen is not None:
        options = [ChoiceOption(what, what, key, ((text, "dim"),)) for what, (key, text) in COPIES.items()]
        screen.dialogs.choose("Copy", options, lambda what: copy(app, what))


def copy(app: AppServices, what: str) -> None:
    """Copy a cell, a row, or the selected objects."""
    screen = app.front
    if screen is None:
        return
    if what not in COPIES:
        screen.flash(f"Unknown copy target {what}; use one of {', '.join(COPIES)}", "error")
        return
    text = _copied(screen, what)
    if text:
        screen.app.copy_to_clipboard(text)
        screen.flash(f"Copied {text if len(text) <= SHOWN else counted(len(text), 'character')}")
    else:
        screen.flash(f"No {what} to copy: nothing is selected", "warning")


SHOWN = 60
"""Length of a text that a toast repeats."""


def _copied(screen: ConsoleScreen, what: str) -> str:
    grid, snapshot = screen.grid, screen.snapshot
    objects = [one for one in (find(snapshot, *subject) for subject in screen.subjects()) if one is not None]
    match what:
        case "cell":
            return grid.picked_text if grid is not None else ""
        case "row":
            rows = grid.targets if grid is not None else []
            columns = grid.visible_columns if grid is not None else []
            return "\n".join("\t".join(clean(text_of(column.cell(row))) for column in columns) for row in rows)
        case "name":
            return "\n".join(subject.key for subject in screen.subjects())
        case "yaml":
            return "---\n".join(map(as_yaml, objects))
        case _:
            return "\n".join(msgspec.json.encode(one).decode() for one in objects)
