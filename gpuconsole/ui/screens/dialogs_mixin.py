"""Toasts and dialogs of screens: message, confirmation, choice, prompt."""

from collections.abc import Callable, Iterable
from typing import Literal, TypeVar

from textual.screen import Screen

from gpuconsole.model.text import clean
from gpuconsole.ui.reliable_timers import ReliableTimers
from gpuconsole.ui.widgets.confirm import ChoiceDialog, ChoiceOption, Confirm, Prompt, PromptField, Question
from gpuconsole.ui.widgets.dialog import Dialog

Answer = TypeVar("Answer")
Handler = Callable[[], object]
SECONDS = 4
"""Duration of a toast in seconds."""

Severity = Literal["information", "warning", "error"]


class AskingScreen(ReliableTimers, Screen[None]):
    """A screen with toasts and dialogs; each dialog calls a function with its answer."""

    def flash(self, text: str, severity: Severity = "information") -> None:
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
        with self.app._context():
            self.app.push_screen(dialog, answered)


def _unless_cancelled(then: Callable[[str], object]) -> Callable[[str | None], None]:
    def answered(answer: str | None) -> None:
        if answer is not None:
            then(answer)

    return answered
