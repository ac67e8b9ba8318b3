"""A screen of text about one object: description, YAML, events, explanation. It follows the data."""

from collections.abc import Callable, Iterable

from textual.app import ComposeResult
from textual.widget import Widget

from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui.paint import Painted
from gpuconsole.ui.screens.actions_mixin import Handlers
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.screens.dialogs_mixin import Handler
from gpuconsole.ui.widgets.notice import PaneState, notice
from gpuconsole.ui.widgets.textpane import TextPane

Source = Callable[[Snapshot], Iterable[Painted] | None]
"""Snapshot → lines; None where the object is gone."""


def scrolling(pane: Widget) -> dict[str, Handler]:
    """The scrolling keys of tables, for a pane without a cursor."""
    return {
        "table.down": pane.scroll_down,
        "table.up": pane.scroll_up,
        "table.top": pane.scroll_home,
        "table.bottom": pane.scroll_end,
        "table.page-down": pane.scroll_page_down,
        "table.page-up": pane.scroll_page_up,
    }


class TextScreen(ConsoleScreen):
    """Shows the lines that `source` makes of each Snapshot; of a deleted object the last lines stay."""

    AUTO_FOCUS = "TextPane"

    def __init__(self, name: str, source: Source, *, wrap: bool = True, copied: str = "") -> None:
        """`name` is shown in the breadcrumbs, `y y` copies `copied`."""
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
            pane.show([notice(PaneState.EMPTY, "Deleted. Last known state:"), (), *self._last])

    def handlers(self) -> Handlers:
        offered = {**super().handlers(), **scrolling(self.query_one(TextPane))}
        return {**offered, "object.copy-name": self._copy} if self._copied else offered

    def _copy(self) -> None:
        self.app.copy_to_clipboard(self._copied)
        self.flash(f"Copied {self._copied}")
