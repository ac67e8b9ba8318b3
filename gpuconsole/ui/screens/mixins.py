"""Mixins of screens: dispatch of keys to actions, menus, toasts and dialogs.

Dispatch of keys to actions: the actions that a screen offers, and how one is run.

A screen lists its actions in `handlers()`. An unavailable action is refused with a reason; a dangerous one asks for
confirmation.

Toasts and dialogs of screens: message, confirmation, choice, prompt.

Menus made from the action registry: the keys after a prefix key, and the actions for the object under the cursor.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar, cast

from textual.notifications import SeverityLevel

from gpuconsole.model.text import clean
from gpuconsole.ui.action_keys import continuations, find, spell
from gpuconsole.ui.actions import ACTIONS, BY_ID, Action, Scope
from gpuconsole.ui.textual_patches import TunedScreen
from gpuconsole.ui.widgets.dialogs import (
    ChoiceDialog,
    ChoiceOption,
    Confirm,
    Dialog,
    PaletteEntry,
    Prompt,
    PromptField,
    Question,
)

if TYPE_CHECKING:
    from gpuconsole.services.console import Console
    from gpuconsole.ui.app import ConsoleApp


Answer = TypeVar("Answer")
Handler = Callable[[], object]
SECONDS = 4
"""Duration of a toast in seconds."""


class AskingScreen(TunedScreen):
    """A screen with toasts and dialogs; each dialog calls a function with its answer."""

    def flash(self, text: str, severity: SeverityLevel = "information") -> None:
        """Show a toast."""
        self.notify(clean(text), severity=severity, timeout=SECONDS, markup=False)

    def left_for(self, what: str) -> bool:
        """Whether another screen is active, so that `what` must not be opened; shows that.

        Answers of the cluster or of a file arrive late, and must not take the keys from another screen.
        """
        if self.is_active:
            return False
        self.flash(f"{what} · not opened: another screen is active", "warning")
        return True

    def ask(self, question: Question, then: Handler) -> None:
        """Ask for confirmation, and call `then` only after a yes."""

        def answered(yes: bool | None) -> None:
            if yes:
                then()

        self._push(question.title, Confirm(question), answered)

    def choose(
        self, title: str, options: Iterable[ChoiceOption], then: Callable[[str], object], chosen: str = ""
    ) -> None:
        """Offer a list, and call `then` with the id of the picked option."""
        self._push(title, ChoiceDialog(title, tuple(options), chosen), _unless_cancelled(then))

    def prompt(self, wanted: PromptField, then: Callable[[str], object]) -> None:
        """Ask for one value, and call `then` with it."""
        self._push(wanted.title, Prompt(wanted), _unless_cancelled(then))

    def _push(self, title: str, dialog: Dialog[Answer], answered: Callable[[Answer | None], None]) -> None:
        if self.left_for(title):
            return
        # The answer is handled by the app, before the next key, which may leave this screen.
        with self.app_context():
            self.app.push_screen(dialog, answered)


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
    """The keys after a prefix: second key → action."""
    return [_option(action, key, refusal) for key, action in following.items()]


def menu(offered: Iterable[Action], refusal: Refusal) -> list[ChoiceOption]:
    """All actions for the object, by the key that follows `m`, else by their own key if it is free."""
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


LOG = logging.getLogger("gpuconsole.ui.actions")

Handlers = Mapping[str, Handler]


class ActingScreen(AskingScreen):
    """A screen that runs the action bound to a pressed key."""

    # Overridden by screens

    def handlers(self) -> Handlers:
        """Action id → handler."""
        return {}

    def refusal(self, action: Action) -> str:
        """Reason why the action is unavailable, shown to the user; empty if it is available."""
        if not action.changes:
            return ""
        status = self.console.status
        if not status.read_only:
            return ""
        return status.refusal if status.history else "this session is read-only"

    def question(self, action: Action) -> Question | None:
        """Confirmation before a dangerous action; None if nothing would be lost."""
        return Question(f"{action.label.capitalize()}?", (action.help,), yes=action.label.capitalize())

    def acted(self, action: Action) -> None:
        """Called after an action that needed no confirmation."""

    # Used by screens

    @property
    def console(self) -> "Console":
        return self.console_app.cluster

    @property
    def console_app(self) -> "ConsoleApp":
        return cast("ConsoleApp", self.app)

    # Keys

    def offered(self) -> list[Action]:
        """All actions of this screen, in the order of the registry."""
        here = {**self.console_app.handlers(), **self.handlers()}
        found = [action for action in ACTIONS if action.id in here and not self._has_nothing_to_say(action)]
        # A report keeps its key unless the screen uses that key itself; `:` opens it everywhere.
        own = {key for action in found if action.scope is not Scope.ANSWERS for key in action.keys}
        return [action for action in found if action.scope is not Scope.ANSWERS or own.isdisjoint(action.keys)]

    def _has_nothing_to_say(self, action: Action) -> bool:
        """Whether `explain` has nothing to explain, so that it is not offered."""
        return action.id == "object.explain" and bool(self.refusal(action))

    def entries(self) -> list[PaletteEntry]:
        """Entries of the palette."""
        return [PaletteEntry(action, self.refusal(action)) for action in self.offered() if action.id != "app.palette"]

    def means(self, key: str, before: str = "") -> bool:
        """Whether the key has an action on this screen."""
        offered = self.offered()
        return self._action(key, before, offered) is not None or bool(continuations(key, offered))

    def press(self, key: str, before: str = "") -> None:
        """Run the action of a key. `before` is the preceding key, for sequences such as `y y`."""
        offered = self.offered()
        action = self._action(key, before, offered)
        if action is not None:
            self.run(action)
        elif following := continuations(key, offered):
            self._hint(key, following)

    def _action(self, key: str, before: str, offered: list[Action]) -> Action | None:
        return find(f"{before} {key}", offered) or find(key, offered)

    def run(self, action: Action) -> None:
        """Run an action: refuse it with a reason, or ask for confirmation if it is dangerous."""
        LOG.info("action %s in %s", action.id, " › ".join(self.console_app.way))
        handler = {**self.console_app.handlers(), **self.handlers()}.get(action.id)
        if handler is None:
            self.flash(f"{action.label}: not available on this screen", "warning")
        elif reason := self.refusal(action):
            self.flash(f"{action.label}: {reason}", "warning")
        elif action.dangerous and (question := self.question(action)) is not None:
            self.ask(question, handler)
        else:
            handler()
            self.acted(action)

    def run_id(self, id: str) -> None:
        self.run(BY_ID[id])

    def _hint(self, prefix: str, following: Mapping[str, Action]) -> None:
        self.choose(f"{spell(prefix)} …", hints(following, self.refusal), self.run_id)

    def open_menu(self) -> None:
        """List the actions for the selected object; a second key picks one."""
        self.choose("Actions", menu(self.offered(), self.refusal), self.run_id)
