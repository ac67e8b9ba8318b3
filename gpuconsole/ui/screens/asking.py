"""What screens say and ask: a flash in passing, a question, a choice, a prompt."""

from collections.abc import Callable, Iterable
from typing import Literal, TypeVar

from textual.screen import Screen

from gpuconsole.model.text import clean
from gpuconsole.ui.ringing import Ringing
from gpuconsole.ui.widgets.confirm import Choice, Confirm, Field, Option, Prompt, Question
from gpuconsole.ui.widgets.dialog import Dialog

Answer = TypeVar("Answer")
Handler = Callable[[], object]
SECONDS = 4
"""How long something that was said in passing stays."""

Severity = Literal["information", "warning", "error"]


class AskingScreen(Ringing, Screen[None]):
    """A screen with words for its user; each dialog goes on with a function once it is answered."""

    def flash(self, text: str, severity: Severity = "information") -> None:
        """Say something in passing, in a corner."""
        self.notify(clean(text), severity=severity, timeout=SECONDS, markup=False)

    def left_for(self, what: str) -> bool:
        """Whether its user went elsewhere, or opened something over it, before this could be opened; says so.

        What a cluster or a file had to be asked for comes when it comes, and never takes the keys of something else.
        """
        if self.is_active:
            return False
        self.flash(f"{what} · not opened: another screen is active", "warning")
        return True

    def ask(self, question: Question, then: Handler) -> None:
        """Ask, and go on only after a yes."""

        def answered(yes: bool | None) -> None:
            if yes:
                then()

        self._push(question.title, Confirm(question), answered)

    def choose(self, title: str, options: Iterable[Option], then: Callable[[str], object], chosen: str = "") -> None:
        """Offer a list, and go on with the id of what was picked."""
        self._push(title, Choice(title, tuple(options), chosen), _unless_cancelled(then))

    def prompt(self, wanted: Field, then: Callable[[str], object]) -> None:
        """Ask for one value, and go on with it."""
        self._push(wanted.title, Prompt(wanted), _unless_cancelled(then))

    def _push(self, title: str, dialog: Dialog[Answer], answered: Callable[[Answer | None], None]) -> None:
        if self.left_for(title):
            return
        # The app goes on with the answer, whoever asked: it does so before the next key, which may leave this screen.
        with self.app._context():
            self.app.push_screen(dialog, answered)


def _unless_cancelled(then: Callable[[str], object]) -> Callable[[str | None], None]:
    def answered(answer: str | None) -> None:
        if answer is not None:
            then(answer)

    return answered
