"""The help screen: the keys that work on the screen below, from the action registry."""

from collections.abc import Iterable

from textual.app import ComposeResult
from textual.widgets import Static

from gpuconsole.ui.actions import Action, Scope
from gpuconsole.ui.columns import Column
from gpuconsole.ui.keymap import spell_all
from gpuconsole.ui.paint import Cell, plain
from gpuconsole.ui.screens.actions_mixin import Handlers
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.screens.glossary import GlossaryScreen
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.palette import PaletteEntry


def _keys(entry: PaletteEntry) -> Cell:
    action = entry.action
    return ((spell_all(action) or f":{action.aliases[0]}", "key"),)


def _aliases(entry: PaletteEntry) -> Cell:
    names = " ".join(f":{alias}" for alias in entry.action.aliases[:3])
    return ((f"{names} {entry.action.argument}".strip(), "dim"),)


def _does(entry: PaletteEntry) -> Cell:
    text = entry.action.help + (" Asks for confirmation." if entry.action.dangerous else "")
    return ((text, ""), (f"  (unavailable: {entry.refused})", "held")) if entry.refused else text


COLUMNS: tuple[Column[PaletteEntry], ...] = (
    Column("KEYS", _keys, width=13),
    Column("ACTION", lambda entry: entry.action.label, id="name", width=15, sort=lambda entry: entry.action.label),
    Column("SCOPE", lambda entry: ((entry.action.scope, "dim"),), width=16, rank=2),
    Column("DESCRIPTION", _does, width=30, flex=1),
    Column("COMMAND", _aliases, width=20, rank=1),
)


def by_scope(entries: Iterable[PaletteEntry]) -> list[PaletteEntry]:
    """In the order of scopes, those of the screen first."""
    order = {scope: index for index, scope in enumerate((*list(Scope)[4:], *list(Scope)[:4]))}
    return sorted(entries, key=lambda entry: order[entry.action.scope])


class HelpScreen(ConsoleScreen):
    """Lists the actions of the screen below; Enter runs one there."""

    passing = True

    def body(self) -> ComposeResult:
        yield Grid(COLUMNS, key=lambda entry: entry.action.id)
        yield Static("", id="told", markup=False)

    def on_mount(self) -> None:
        super().on_mount()
        below = self._below()
        if below is not None and self.grid is not None:
            self.grid.show(by_scope(below.entries()))

    def picked(self, row: object) -> None:
        # A narrow table cuts the sentence; this line shows all of it.
        entry = row if isinstance(row, PaletteEntry) else None
        self.query_one("#told", Static).update(plain(_does(entry)) if entry is not None else "")

    def crumb(self) -> str:
        return "help"

    def handlers(self) -> Handlers:
        return {
            **super().handlers(),
            "object.open": self._do,
            "app.help": self.console_app.up,
            "app.glossary": self._define,
        }

    def refusal(self, action: Action) -> str:
        return ""

    def _below(self) -> ConsoleScreen | None:
        screens = [screen for screen in self.app.screen_stack if isinstance(screen, ConsoleScreen)]
        return screens[-2] if len(screens) > 1 else None

    def _define(self) -> None:
        """Open the glossary at the picked column head of the screen below, else at a term of the action in front."""
        below = self._below()
        grid, entry = below.grid if below is not None else None, self.grid.current if self.grid is not None else None
        sentence = f"{entry.action.label}. {entry.action.help}" if isinstance(entry, PaletteEntry) else ""
        self.open(GlossaryScreen(grid.picked_head if grid is not None else "", sentence))

    def _do(self) -> None:
        below, entry = self._below(), self.grid.current if self.grid is not None else None
        if below is not None and isinstance(entry, PaletteEntry):
            self.console_app.up()
            below.call_after_refresh(_go_on, below, entry.action)


def _go_on(below: ConsoleScreen, action: Action) -> None:
    """Run the picked action, unless a key opened another screen in the meantime."""
    if not below.left_for(action.label):
        below.run(action)
