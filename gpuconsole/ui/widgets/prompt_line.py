"""What the lines at the foot of a screen have in common: a prompt and an input, made when it comes to it."""

from collections.abc import Sequence

from textual.containers import Horizontal
from textual.widgets import Input, Static


class PromptLine(Horizontal):
    """A line that is out of sight until it is opened, and empty before the first time: most never are.

    An input and its prompt cost as much to mount as all the rest of a screen.
    """

    def fields(self) -> Sequence[Static | Input]:
        """The prompt, the input and what stands beside it."""
        raise NotImplementedError

    @property
    def opened(self) -> bool:
        """It was opened once, and has its fields."""
        return bool(self.children)

    @property
    def field(self) -> Input:
        """The input."""
        if not self.opened:
            self.mount_all(self.fields())
        return self.query_one(Input)

    def take_keyboard(self) -> None:
        """Show the line and have the next key go into it."""
        self.display = True
        # At once, not with the next idle moment: fast fingers have typed the first letter by then.
        self.screen.set_focus(self.field)
