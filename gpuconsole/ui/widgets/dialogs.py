"""Dialogs of all screens: a confirmation, a choice from a list, a prompt for one value, the command palette; toasts.

A confirmation focuses Cancel: Enter alone never destroys. For the most dangerous actions a word has to be typed, and
Enter confirms it. The palette finds an action of the screen by letters of its name, alias or help. Each screen opens
its dialogs with its `Dialogs`; menus are made from the action registry.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.containers import Horizontal, Vertical
from textual.fuzzy import Matcher
from textual.notifications import SeverityLevel
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from gpuconsole.model.text import clean
from gpuconsole.ui.actions import Action, Handler, Scope
from gpuconsole.ui.actions.keys import continuations, spell_all
from gpuconsole.ui.messages import RowOpened
from gpuconsole.ui.paint import Cell, painted
from gpuconsole.ui.table_model import Column
from gpuconsole.ui.textual_patches import TunedScreen, ignore_events_while_pruning
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.painter import Lines, StatusLine
from gpuconsole.ui.widgets.textpane import Paragraph

Answer = TypeVar("Answer")


class Dialog(ModalScreen[Answer]):
    """A modal screen that returns an answer. Keys that arrive after the answer are dropped."""

    on_event = ignore_events_while_pruning

    def on_mount(self) -> None:
        self.fill()

    def fill(self) -> None:
        """Fill the widgets made by `compose`, and set the focus."""

    def dismiss(self, result: Answer | None = None) -> AwaitComplete:
        return super().dismiss(result) if self.is_active else AwaitComplete()


AROUND = 9
"""Screen height that is not available to a list of choices: title, error, border and the screen behind, in lines."""


@dataclass(frozen=True)
class Question:
    """The texts of a confirmation dialog for a dangerous action."""

    title: str
    lines: tuple[Cell, ...] = ()
    """What will happen, and to which objects."""
    yes: str = "Confirm"
    word: str = ""
    """Word that must be typed before `yes` is enabled; empty for less dangerous actions."""


LISTED = 12
"""Number of objects that a preview names."""


@dataclass(frozen=True)
class Effect:
    """What an action does to one of the marked objects."""

    name: str
    text: str
    refused: bool = False
    """Whether it does nothing; the text says why."""


def preview(effects: Sequence[Effect]) -> tuple[Cell, ...]:
    """Format what an action does to each object, and to which it does nothing: those last."""
    done = [one for one in effects if not one.refused]
    left = [one for one in effects if one.refused]
    head = f"Changes {len(done):,} of {len(effects):,} objects" + (f"; {len(left):,} stay as they are" if left else "")
    lines: list[Cell] = [
        ((("⊘ " if one.refused else "▸ "), "dim"), (f"{one.name} ", "strong"), (one.text, "dim" if one.refused else ""))
        for one in (*done, *left)[:LISTED]
    ]
    more = len(effects) - LISTED
    return (head, *lines, *((f"… and {more:,} more",) if more > 0 else ()))


class Confirm(Dialog[bool]):
    """Asks the operator to confirm an action; returns whether it was confirmed explicitly."""

    def __init__(self, question: Question) -> None:
        super().__init__()
        self._question = question
        self._word = clean(question.word)
        """The word as it is shown."""

    def compose(self) -> ComposeResult:
        question = self._question
        with Vertical(classes="dialog danger"):
            yield Lines(classes="dialog-title")
            yield Paragraph(classes="dialog-text")
            if question.word:
                yield Static(f"Type {self._word} and press Enter to confirm:", markup=False)
                yield Input(compact=True, id="word")
            with Horizontal(classes="buttons"):
                hints = ("", "") if question.word else (" (n)", " (y)")
                yield Button(f"Cancel{hints[0]}", id="no")
                yield Button(
                    f"{clean(question.yes)}{hints[1]}", id="yes", variant="error", disabled=bool(question.word)
                )

    def fill(self) -> None:
        title, text = self.query(Lines)
        title.lines = (((self._question.title, "title"),),)
        text.lines = self._question.lines
        self.query_one("#word" if self._question.word else "#no").focus()

    def on_key(self, event: events.Key) -> None:
        if event.key in ("escape", "q", "n"):
            event.stop()
            self.dismiss(False)
        elif event.key == "y" and not self._question.word:
            event.stop()
            self.dismiss(True)
        elif event.key in ("left", "right", "up", "down", "h", "l"):
            event.stop()
            self.focus_next()

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self.query_one("#yes", Button).disabled = not self._matches(event.value)

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        event.stop()
        if self._matches(event.value):
            self.dismiss(True)

    def _matches(self, typed: str) -> bool:
        return bool(self._word) and typed.strip() == self._word.strip()

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        event.stop()
        self.dismiss(event.button.id == "yes")


@dataclass(frozen=True)
class ChoiceOption:
    """One option of a choice dialog."""

    id: str
    label: Cell
    key: str = ""
    """Key that picks the option at once."""
    detail: Cell = ""
    refused: str = ""
    """Why the option cannot be picked now, shown in the list; empty if it can."""


def _option_cell(option: ChoiceOption) -> Cell:
    return tuple((text, "dim") for text, _ in painted(option.label)) if option.refused else option.label


OPTION_COLUMNS: tuple[Column[ChoiceOption], ...] = (
    Column("", lambda option: ((option.key, "key"),), width=5),
    Column("", _option_cell, width=14, flex=1),
    Column("", lambda option: ((option.refused, "dim"),) if option.refused else option.detail, width=20, flex=2),
)


class ChoiceDialog(Dialog[str | None]):
    """Lets the operator pick an option of a list, by key or cursor; returns the option's id, or None if cancelled."""

    def __init__(self, title: str, options: Sequence[ChoiceOption], chosen: str = "") -> None:
        super().__init__()
        self._title = title
        self._options = tuple(options)
        self._chosen = chosen

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Lines(classes="dialog-title")
            yield Grid(OPTION_COLUMNS, key=lambda option: option.id, header=False, empty="No options.")
            yield StatusLine(classes="complaint")

    def fill(self) -> None:
        self.query_one(Lines).lines = (((self._title, "title"),),)
        grid = self._grid
        grid.styles.height = max(1, min(len(self._options), 20, self.app.size.height - AROUND))
        grid.show(self._options)
        grid.move_to_key(self._chosen)
        grid.focus()

    @property
    def _grid(self) -> Grid[ChoiceOption]:
        return self.query_one(Grid)

    def on_key(self, event: events.Key) -> None:
        pressed = event.character if event.is_printable and event.character else event.key
        hot = next((option for option in self._options if option.key == pressed and option.key), None)
        moves: dict[str, Callable[[], None]] = {
            "up": lambda: self._grid.move(-1),
            "down": lambda: self._grid.move(1),
            "k": lambda: self._grid.move(-1),
            "j": lambda: self._grid.move(1),
            "home": self._grid.top,
            "end": self._grid.bottom,
            "pageup": lambda: self._grid.page(-1),
            "pagedown": lambda: self._grid.page(1),
            "enter": lambda: self._pick(self._grid.current),
            "escape": lambda: self._close(None),
        }
        if hot is not None:
            event.stop()
            self._pick(hot)
        elif event.key in moves:
            event.stop()
            moves[event.key]()
        elif event.is_printable:
            # An unknown second key closes the menu, as in editors, and does nothing else.
            event.stop()
            self._close(None)

    @on(RowOpened)
    def _opened(self, message: RowOpened) -> None:
        message.stop()
        self._pick(message.row)

    def _pick(self, option: ChoiceOption | None) -> None:
        if option is None:
            return
        if option.refused:
            self.query_one(StatusLine).left = ((f"⚠ {option.refused}", "pending"),)
        else:
            self._close(option.id)

    def _close(self, answer: str | None) -> None:
        self.dismiss(answer)


def _accept(text: str) -> str:
    return ""


@dataclass(frozen=True)
class PromptField:
    """A value to ask for; `check` returns the error in a typed text, or an empty text."""

    title: str
    value: str = ""
    lines: tuple[Cell, ...] = ()
    check: Callable[[str], str] = field(default=_accept)
    preview: Callable[[str], Cell] | None = None
    """The effect of a valid text, shown while it is typed."""


def whole_number(lowest: int, highest: int) -> Callable[[str], str]:
    """Return a `check` for whole numbers from `lowest` to `highest`."""

    def check(text: str) -> str:
        try:
            value = int(text.replace(",", "").replace("_", ""))
        except ValueError:
            return "must be a whole number"
        return "" if lowest <= value <= highest else f"must be between {lowest:,} and {highest:,}"

    return check


class Prompt(Dialog[str | None]):
    """Asks for one value; returns the valid text, or None if cancelled."""

    def __init__(self, wanted: PromptField) -> None:
        super().__init__()
        self._wanted = wanted

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Lines(classes="dialog-title")
            yield Paragraph(classes="dialog-text")
            yield Input(self._wanted.value, compact=True)
            yield StatusLine(classes="complaint")

    def fill(self) -> None:
        title, text = self.query(Lines)
        title.lines = (((self._wanted.title, "title"),),)
        text.lines = self._wanted.lines
        self.query_one(Input).focus()

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape":
            event.stop()
            self.dismiss(None)
        elif event.is_printable and event.character:
            # Typed before the input had the focus.
            self.query_one(Input).insert_text_at_cursor(event.character)

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        wrong = self._wanted.check(event.value.strip())
        line = self.query_one(StatusLine)
        if wrong:
            line.left = ((f"⚠ {wrong}", "pending"),)
        else:
            line.left = self._wanted.preview(event.value.strip()) if self._wanted.preview is not None else ""

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        if not self._wanted.check(event.value.strip()):
            self.dismiss(event.value.strip())


@dataclass(frozen=True)
class PaletteEntry:
    """An action in the command palette; `refused` is why it is unavailable, if so."""

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
    """Return the entries that match the typed text, best first; for an empty text all of them, in registry order."""
    if not wanted.strip():
        return list(entries)
    matcher = Matcher(wanted.strip())
    scored = [(score(matcher, entry.action), index, entry) for index, entry in enumerate(entries)]
    return [entry for points, _, entry in sorted(scored, key=lambda row: (-row[0], row[1])) if points > 0]


def score(matcher: Matcher, action: Action) -> float:
    """Return how well an action matches the palette's text, 0 for not at all: its label counts most, its help least."""
    names = max((matcher.match(name) for name in (action.label, *action.aliases)), default=0.0)
    return max(2.0 * names, matcher.match(action.id), 0.3 * matcher.match(action.help))


class Palette(Dialog[str | None]):
    """The command palette; returns the id of the picked action, or None if cancelled."""

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


SECONDS = 4
"""Seconds for which a message is shown; an error stays until a key is pressed after them."""
UNTIL_READ = 24 * 3600


class Dialogs:
    """Opens the dialogs and shows the toasts of one screen; each dialog calls a function with its answer."""

    def __init__(self, screen: TunedScreen) -> None:
        self._screen = screen

    def flash(self, text: str, severity: SeverityLevel = "information") -> None:
        """Show a message in the line above the footer; `:messages` lists all."""
        lasts = UNTIL_READ if severity == "error" else SECONDS
        self._screen.notify(clean(text), severity=severity, timeout=lasts, markup=False)

    def left_for(self, what: str) -> bool:
        """Return whether another screen is active, so that the dialog `what` must not open; a toast says so.

        Results of the cluster or of a file arrive late, and must not take the keys from another screen.
        """
        if self._screen.is_active:
            return False
        self.flash(f"{what} · not opened: another screen is active", "warning")
        return True

    def ask(self, question: Question, then: Handler) -> None:
        """Ask for confirmation, and call `then` if the operator confirms."""

        def answered(yes: bool | None) -> None:
            if yes:
                then()

        self._push(question.title, Confirm(question), answered)

    def choose(
        self, title: str, options: Iterable[ChoiceOption], then: Callable[[str], object], chosen: str = ""
    ) -> None:
        """Let the operator pick one of `options`, `chosen` at first, and call `then` with the id of the pick."""
        self._push(title, ChoiceDialog(title, tuple(options), chosen), _unless_cancelled(then))

    def prompt(self, wanted: PromptField, then: Callable[[str], object]) -> None:
        """Ask for one value, and call `then` with it."""
        self._push(wanted.title, Prompt(wanted), _unless_cancelled(then))

    def _push(self, title: str, dialog: Dialog[Answer], answered: Callable[[Answer | None], None]) -> None:
        if self.left_for(title):
            return
        # The answer is handled by the app, before the next key, which may leave this screen.
        with self._screen.app_context():
            self._screen.app.push_screen(dialog, answered)


def _unless_cancelled(then: Callable[[str], object]) -> Callable[[str | None], None]:
    def answered(answer: str | None) -> None:
        if answer is not None:
            then(answer)

    return answered


Refusal = Callable[[Action], str]

OBJECT_SCOPES = (Scope.OBJECT, Scope.WORKLOAD, Scope.QUEUE, Scope.NODE)
MOVES = ("object.menu", "object.open", "queue.fold", "queue.unfold")
"""Navigation actions, which the menu of an object leaves out."""


def hints(following: Mapping[str, Action], refusal: Refusal) -> list[ChoiceOption]:
    """Return the menu of the keys that can follow a prefix key: `following` maps them to their actions."""
    return [_option(action, key, refusal) for key, action in following.items()]


def menu(offered: Iterable[Action], refusal: Refusal) -> list[ChoiceOption]:
    """Return the menu of all actions for the object under the cursor.

    An action's key in the menu is the one that follows `m`, or else its own key if that is free.
    """
    actions = [action for action in offered if action.scope in OBJECT_SCOPES and action.id not in MOVES]
    keys = {action.id: key for key, action in continuations("m", actions).items()}
    used = set(keys.values())
    for action in actions:
        own = next((key for key in action.keys if len(key) == 1 and key not in used), "")
        if action.id not in keys and own:
            keys[action.id] = own
            used.add(own)
    return [_option(action, keys.get(action.id, ""), refusal) for action in actions]


def _option(action: Action, key: str, refusal: Refusal) -> ChoiceOption:
    """A menu entry; a refused action stays in the menu with the reason."""
    return ChoiceOption(action.id, action.label, key, ((action.help, "dim"),), refusal(action))
