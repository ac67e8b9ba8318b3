"""Toasts and dialogs of screens, and menus of actions made from the action registry."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from textual.notifications import SeverityLevel

from gpuconsole.model.text import clean
from gpuconsole.ui.actions import Action, Handler, Scope
from gpuconsole.ui.actions.keys import continuations
from gpuconsole.ui.textual_patches import TunedScreen
from gpuconsole.ui.widgets.dialogs import (
    ChoiceDialog,
    ChoiceOption,
    Confirm,
    Dialog,
    Prompt,
    PromptField,
    Question,
)

Answer = TypeVar("Answer")
SECONDS = 4
"""Duration of a toast in seconds."""


class AskingScreen(TunedScreen):
    """A screen with toasts and dialogs; each dialog calls a function with its answer."""

    def flash(self, text: str, severity: SeverityLevel = "information") -> None:
        """Show a toast."""
        self.notify(clean(text), severity=severity, timeout=SECONDS, markup=False)

    def left_for(self, what: str) -> bool:
        """Return whether another screen is active, so that the dialog `what` must not open; a toast says so.

        Results of the cluster or of a file arrive late, and must not take the keys from another screen.
        """
        if self.is_active:
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
