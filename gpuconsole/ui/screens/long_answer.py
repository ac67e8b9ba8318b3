"""Screens of slow reports: partial results, progress, cancellation."""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from textual.worker import get_current_worker

from gpuconsole.errors import ConsoleError
from gpuconsole.services.analysis import AnalysisService
from gpuconsole.ui.answers.parts import Part
from gpuconsole.ui.screens.actions_mixin import Handlers
from gpuconsole.ui.screens.answers_text import TablesScreen

Piece = TypeVar("Piece")


class AnswerChunk(NamedTuple):
    """A partial result, as it is shown."""

    progress: str
    """Progress; for the complete result, its time."""
    parts: Sequence[Part] | None = None
    """None if there is nothing new to show."""
    whole: bool = False


class LongAnswerScreen(TablesScreen, Generic[Piece]):
    """Computed once when opened, and again on request only."""

    def __init__(
        self,
        name: str,
        title: str,
        ask: Callable[[AnalysisService], Iterator[Piece]],
        tell: Callable[[Piece], AnswerChunk],
    ) -> None:
        """`name` is the crumb, `title` is shown above the text."""
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
                # Not requesting the next piece cancels the rest.
                if worker.is_cancelled:
                    return
                self.call_later(self._came, piece)
        except ConsoleError as error:
            if not worker.is_cancelled:
                self.call_later(self._failed, error)

    def _came(self, piece: Piece) -> None:
        chunk = self._words(piece)
        self.remark(chunk.progress, "dim" if chunk.whole else "pending")
        if chunk.parts is not None:
            self.write(chunk.parts)

    def _failed(self, error: ConsoleError) -> None:
        self.remark("", "")
        self.fail(error)
