"""Base of all dialogs: each is answered once."""

from typing import TypeVar

from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen

from gpuconsole.ui.pruning_guard import IgnoreEventsWhilePruning

Answer = TypeVar("Answer")


class Dialog(IgnoreEventsWhilePruning, ModalScreen[Answer]):
    """A modal screen that returns an answer. Keys that arrive after the answer are dropped."""

    def on_mount(self) -> None:
        self.fill()

    def fill(self) -> None:
        """Fill the widgets made by `compose`, and set the focus."""

    def dismiss(self, result: Answer | None = None) -> AwaitComplete:
        return super().dismiss(result) if self.is_active else AwaitComplete()
