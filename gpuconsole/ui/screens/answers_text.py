"""Screens of answers in words: heads of tables stand out, and tables are never wrapped."""

from collections.abc import Sequence

from textual.app import ComposeResult

from gpuconsole.errors import ConsoleError
from gpuconsole.ui.paint import Painted
from gpuconsole.ui.screens.acting import Handlers
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.screens.text import scrolling
from gpuconsole.ui.widgets.notice import State, notice
from gpuconsole.ui.widgets.painter import StatusLine
from gpuconsole.ui.widgets.textpane import TextPane, line


class AnswerPage(ConsoleScreen):
    """A title with a remark at its right, and the lines of an answer; when it asks is up to those that extend it."""

    AUTO_FOCUS = "TextPane"

    def __init__(self, name: str, title: str) -> None:
        """`name` stands in the trail, `title` above the text."""
        super().__init__()
        self._trail, self._title = name, title

    def crumb(self) -> str:
        return self._trail

    def body(self) -> ComposeResult:
        yield StatusLine(id="summary")
        yield TextPane()

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one("#summary", StatusLine).left = ((f" {self._title} ", "title"),)

    def handlers(self) -> Handlers:
        return {**super().handlers(), **scrolling(self.query_one(TextPane))}

    def remark(self, text: str, role: str) -> None:
        """Say something beside the title: how old the answer is, or how far."""
        self.query_one("#summary", StatusLine).right = ((f" {text} ", role),) if text else ""

    def write(self, lines: Sequence[str]) -> None:
        """Show the answer, and before it what may not be seen though it depends on that."""
        unseen = self.console.status.undecided
        lines = [*((f"⊘ {unseen}", "") if unseen else ()), *lines]
        self.query_one(TextPane).show(map(painted, lines), tables(lines))

    def fail(self, error: ConsoleError) -> None:
        """Say why there is no answer."""
        self.query_one(TextPane).show([notice(State.FAILED, str(error))])


def painted(text: str) -> Painted:
    """The heads of tables are the only lines without a small letter."""
    return line((text, "title" if text.isupper() else ""))


def tables(lines: Sequence[str]) -> frozenset[int]:
    """The numbers of the lines of tables: from a head to the next empty line. They are scrolled sideways."""
    found, inside = set(), False
    for number, text in enumerate(lines):
        inside = text.isupper() or (inside and bool(text))
        if inside:
            found.add(number)
    return frozenset(found)
