"""What widgets that draw roles have in common: the component classes, and lines made from painted text."""

from typing import ClassVar

from rich.style import Style
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from gpuconsole.ui.paint import ROLE_CLASSES, Cell, line


class RoleStyles(Widget):
    """A widget that has the style of each role (`role--own` …) from the theme, and keeps them while they hold."""

    COMPONENT_CLASSES: ClassVar[set[str]] = ROLE_CLASSES

    def style_of(self, role: str) -> Style:
        """What a role adds to the style under it."""
        return self._keep(f"role--{role}", partial=True)

    def component(self, name: str) -> Style:
        """The whole style of a component class."""
        return self._keep(name)

    @property
    def base(self) -> Style:
        """The style of the widget itself."""
        kept = self.__dict__.setdefault("_kept", {})
        if "" not in kept:
            kept[""] = self.rich_style
        style: Style = kept[""]
        return style

    def _keep(self, name: str, partial: bool = False) -> Style:
        # Asking Textual costs some 20 µs each time, and a screen has thousands of pieces.
        kept = self.__dict__.setdefault("_kept", {})
        style: Style | None = kept.get(name)
        if style is None:
            style = kept[name] = self.get_component_rich_style(name, partial=partial)
        return style

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self.__dict__.pop("_kept", None)


class StatusLine(RoleStyles):
    """One line of the screen: something on the left, something on the right."""

    left: reactive[Cell] = reactive("")
    right: reactive[Cell] = reactive("")

    def render_line(self, y: int) -> Strip:
        base = self.base
        width = self.size.width
        if y > 0:
            return Strip.blank(width, base)
        return line(self.left, self.right, width, base, self.style_of)


class Lines(RoleStyles):
    """A few painted lines, as high as there are lines; for panels that never scroll."""

    lines: reactive[tuple[Cell, ...]] = reactive(())

    def watch_lines(self, old: tuple[Cell, ...], new: tuple[Cell, ...]) -> None:
        if len(old) != len(new):
            self.refresh(layout=True)

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        return len(self.lines)

    def render_line(self, y: int) -> Strip:
        base = self.base
        width = self.size.width
        if y >= len(self.lines):
            return Strip.blank(width, base)
        return line(self.lines[y], "", width, base, self.style_of)
