"""Base of the input lines at the bottom of a screen; their widgets are made when they are first opened."""

from collections.abc import Sequence

from textual.containers import Horizontal
from textual.widgets import Input, Static


class PromptLine(Horizontal):
    """An input line whose widgets are created when it is first opened: most lines never are.

    An input and its prompt cost as much to mount as all the rest of a screen.
    """

    def fields(self) -> Sequence[Static | Input]:
        """The prompt, the input and other widgets of the line."""
        raise NotImplementedError

    @property
    def opened(self) -> bool:
        """Whether it was opened before, and has its widgets."""
        return bool(self.children)

    @property
    def field(self) -> Input:
        """The input."""
        if not self.opened:
            self.mount_all(self.fields())
        return self.query_one(Input)

    def take_keyboard(self) -> None:
        """Show the line and focus its input."""
        self.display = True
        # At once, not when idle: a fast typist has typed the first letter by then.
        self.screen.set_focus(self.field)
