"""What all dialogs have in common: each is answered once."""

from typing import TypeVar

from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen

from gpuconsole.ui.leaving import Leaving

Answer = TypeVar("Answer")


class Dialog(Leaving, ModalScreen[Answer]):
    """A screen that asks. Keys that were typed before it was gone, but come after its answer, are for nobody."""

    def on_mount(self) -> None:
        self.fill()

    def fill(self) -> None:
        """Write on what `compose` made, and give the keyboard to where it belongs."""

    def dismiss(self, result: Answer | None = None) -> AwaitComplete:
        return super().dismiss(result) if self.is_active else AwaitComplete()
