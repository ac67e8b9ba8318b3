"""The command palette: finds an action of the screen by letters of its name, alias or help."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.fuzzy import Matcher
from textual.widgets import Input

from gpuconsole.ui.actions import Action
from gpuconsole.ui.columns import Column
from gpuconsole.ui.keymap import spell_all
from gpuconsole.ui.messages import RowOpened
from gpuconsole.ui.paint import Cell
from gpuconsole.ui.widgets.dialog import Dialog
from gpuconsole.ui.widgets.grid import Grid


@dataclass(frozen=True)
class PaletteEntry:
    """An action in the palette."""

    action: Action
    refused: str = ""


def _help(entry: PaletteEntry) -> Cell:
    return ((f"not now: {entry.refused}", "held"),) if entry.refused else ((entry.action.help, "dim"),)


COLUMNS: tuple[Column[PaletteEntry], ...] = (
    Column("ACTION", lambda entry: ((entry.action.label, "" if not entry.refused else "dim"),), width=16),
    Column("KEYS", lambda entry: ((spell_all(entry.action), "key"),), width=11),
    Column("", _help, width=20, flex=1),
)


def ranked(entries: Sequence[PaletteEntry], wanted: str) -> list[PaletteEntry]:
    """The entries that match, best first; all of them in the registry's order for an empty text."""
    if not wanted.strip():
        return list(entries)
    matcher = Matcher(wanted.strip())
    scored = [(score(matcher, entry.action), index, entry) for index, entry in enumerate(entries)]
    return [entry for points, _, entry in sorted(scored, key=lambda row: (-row[0], row[1])) if points > 0]


def score(matcher: Matcher, action: Action) -> float:
    """The match of an action: its label counts most, its help least."""
    names = max((matcher.match(name) for name in (action.label, *action.aliases)), default=0.0)
    return max(2.0 * names, matcher.match(action.id), 0.3 * matcher.match(action.help))


class Palette(Dialog[str | None]):
    """Returns the id of the picked action, or None."""

    def __init__(self, entries: Sequence[PaletteEntry]) -> None:
        super().__init__()
        self._entries = tuple(entries)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog palette"):
            yield Input(compact=True, placeholder="Search actions")
            yield Grid(COLUMNS, key=lambda entry: entry.action.id, empty="No matching action.")

    def fill(self) -> None:
        self._grid.show(self._entries)
        self.query_one(Input).focus()

    @property
    def _grid(self) -> Grid[PaletteEntry]:
        return self.query_one(Grid)

    def on_key(self, event: events.Key) -> None:
        moves: dict[str, Callable[[], None]] = {
            "up": lambda: self._grid.move(-1),
            "down": lambda: self._grid.move(1),
            "pageup": lambda: self._grid.page(-1),
            "pagedown": lambda: self._grid.page(1),
            "escape": lambda: self._close(None),
            "ctrl+p": lambda: self._close(None),
        }
        if event.key in moves:
            event.stop()
            moves[event.key]()
        elif event.is_printable and event.character:
            # Typed before the input had the focus.
            self.query_one(Input).insert_text_at_cursor(event.character)

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        self._grid.show(ranked(self._entries, event.value))
        self._grid.top()

    @on(Input.Submitted)
    def _submitted(self) -> None:
        entry = self._grid.current
        self._close(entry.action.id if entry is not None else None)

    @on(RowOpened)
    def _opened(self, message: RowOpened) -> None:
        message.stop()
        self._close(message.row.action.id)

    def _close(self, answer: str | None) -> None:
        self.dismiss(answer)
