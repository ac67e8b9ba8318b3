"""Answers that take long, as screens: they come piece by piece, say how far they are, and can be left."""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from textual.worker import get_current_worker

from gpuconsole.errors import ConsoleError
from gpuconsole.services.answers import Answers
from gpuconsole.ui.answers.parts import Part
from gpuconsole.ui.screens.acting import Handlers
from gpuconsole.ui.screens.answers_text import AnswerPage

Piece = TypeVar("Piece")


class Told(NamedTuple):
    """A piece of an answer, as it is shown."""

    progress: str
    """How far it is; once it is whole, of when."""
    parts: Sequence[Part] | None = None
    """None where there is nothing new to show."""
    whole: bool = False


class LongAnswerScreen(AnswerPage, Generic[Piece]):
    """Asked once when it is opened, and again on request: what took long is not asked again by itself."""

    def __init__(
        self, name: str, title: str, ask: Callable[[Answers], Iterator[Piece]], tell: Callable[[Piece], Told]
    ) -> None:
        """`name` stands in the trail, `title` above the text."""
        super().__init__(name, title)
        self._ask, self._words = ask, tell

    def on_mount(self) -> None:
        # Textual calls the method of the parent, too.
        self._begin()

    def handlers(self) -> Handlers:
        return {**super().handlers(), "app.refresh": self._begin}

    def _begin(self) -> None:
        self.remark("starting …", "pending")
        self.run_worker(self._work, thread=True, exclusive=True, group="long-answer")

    def _work(self) -> None:
        worker = get_current_worker()
        try:
            for piece in self._ask(self.console.answers):
                # Who does not ask for the next piece has given up.
                if worker.is_cancelled:
                    return
                self.call_later(self._came, piece)
        except ConsoleError as error:
            if not worker.is_cancelled:
                self.call_later(self._failed, error)

    def _came(self, piece: Piece) -> None:
        told = self._words(piece)
        self.remark(told.progress, "dim" if told.whole else "pending")
        if told.parts is not None:
            self.write(told.parts)

    def _failed(self, error: ConsoleError) -> None:
        self.remark("", "")
        self.fail(error)
