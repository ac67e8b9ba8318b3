"""Panes side by side; on a narrow screen only the focused one."""

from typing import ClassVar

from textual import events
from textual.containers import Horizontal
from textual.widget import Widget

WIDE = 110


class Panes(Horizontal):
    """Shows all its children, or only the current one. `tab` focuses the next one (see ConsoleScreen)."""

    DEFAULT_CLASSES: ClassVar[str] = "panes"

    def __init__(self, *children: Widget, wide: int = WIDE, id: str | None = None) -> None:
        """With `wide` cells or more all of them are shown."""
        super().__init__(*children, id=id)
        self._wide = wide
        self._panes = children
        self._current = 0

    @property
    def current(self) -> Widget:
        return self._panes[self._current]

    @property
    def narrow(self) -> bool:
        return self.size.width < self._wide

    def step(self, way: int) -> None:
        """Focus the next pane."""
        self.turn_to((self._current + way) % len(self._panes))

    def turn_to(self, index: int) -> None:
        """Make a pane the current one, and focus it."""
        self._current = index
        self._arrange()
        target = self.current if self.current.focusable else next(iter(self.current.query("*:can-focus")), None)
        if target is not None:
            self.screen.set_focus(target)

    def on_resize(self) -> None:
        self._arrange()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        focused = next((i for i, pane in enumerate(self._panes) if pane in event.widget.ancestors_with_self), None)
        if focused is not None and focused != self._current:
            self._current = focused
            self._arrange()

    def _arrange(self) -> None:
        self.set_class(self.narrow, "-narrow")
        for index, pane in enumerate(self._panes):
            pane.display = not self.narrow or index == self._current
            pane.set_class(index == self._current, "-current")
