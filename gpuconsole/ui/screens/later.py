"""A view that this version does not have yet says so, and what to use instead."""

from collections.abc import Callable

from textual.app import ComposeResult

from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.widgets.painter import Lines


class LaterScreen(ConsoleScreen):
    """Says that there is nothing here."""

    def __init__(self, view: str, title: str, instead: str) -> None:
        super().__init__()
        self._view = view
        self._title_text = title
        self._instead = instead

    def crumb(self) -> str:
        return self._view

    def body(self) -> ComposeResult:
        yield Lines(id="later")

    def on_mount(self) -> None:
        super().on_mount()
        said: tuple[tuple[str, str], ...] = (("○ ", "dim"), (f"{self._title_text} is not in this version. ", ""))
        self.query_one(Lines).lines = ("", (("  ", ""), *said, (self._instead, "dim")))


def later(view: str, title: str, instead: str = "") -> Callable[[], LaterScreen]:
    """A maker of the screen for one view."""
    return lambda: LaterScreen(view, title, instead)
