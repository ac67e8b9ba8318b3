"""A screen of text about one thing: its description, its YAML, its events, why it waits. It follows the data."""

from collections.abc import Callable, Iterable

from textual.app import ComposeResult
from textual.widget import Widget

from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui.paint import Painted
from gpuconsole.ui.screens.acting import Handlers
from gpuconsole.ui.screens.asking import Handler
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.widgets.notice import State, notice
from gpuconsole.ui.widgets.textpane import TextPane

Source = Callable[[Snapshot], Iterable[Painted] | None]
"""Snapshot → lines; None where the thing is gone."""


def scrolling(pane: Widget) -> dict[str, Handler]:
    """The keys of tables, for a pane that has no cursor."""
    return {
        "table.down": pane.scroll_down,
        "table.up": pane.scroll_up,
        "table.top": pane.scroll_home,
        "table.bottom": pane.scroll_end,
        "table.page-down": pane.scroll_page_down,
        "table.page-up": pane.scroll_page_up,
    }


class TextScreen(ConsoleScreen):
    """Shows what `source` makes of each Snapshot; when the thing is gone, the last text stays and says so."""

    AUTO_FOCUS = "TextPane"

    def __init__(self, name: str, source: Source, *, wrap: bool = True, copied: str = "") -> None:
        """`name` stands in the trail, `copied` is what `y y` copies."""
        super().__init__()
        self._trail = name
        self._source = source
        self._wrap = wrap
        self._copied = copied
        self._last: list[Painted] = []

    def body(self) -> ComposeResult:
        yield TextPane(wrap=self._wrap)

    def crumb(self) -> str:
        return self._trail

    def show(self, snapshot: Snapshot) -> None:
        found = self._source(snapshot)
        pane = self.query_one(TextPane)
        if found is not None:
            self._last = list(found)
            pane.show(self._last)
        else:
            pane.show([notice(State.EMPTY, "It is gone. What was last known of it:"), (), *self._last])

    def handlers(self) -> Handlers:
        offered = {**super().handlers(), **scrolling(self.query_one(TextPane))}
        return {**offered, "object.copy-name": self._copy} if self._copied else offered

    def _copy(self) -> None:
        self.app.copy_to_clipboard(self._copied)
        self.flash(f"Copied {self._copied}")
