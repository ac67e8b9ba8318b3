"""What widgets that draw roles have in common: the component classes, and lines made from painted text."""

from typing import ClassVar

from rich.style import Style
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from gpuconsole.ui.paint import ROLE_CLASSES, Cell, line


class RoleStyles(Widget):
    """A widget that has the style of each role (`role--own` …) from the theme."""

    COMPONENT_CLASSES: ClassVar[set[str]] = ROLE_CLASSES

    def style_of(self, role: str) -> Style:
        """What a role adds to the style under it."""
        return self.get_component_rich_style(f"role--{role}", partial=True)


class StatusLine(RoleStyles):
    """One line of the screen: something on the left, something on the right."""

    left: reactive[Cell] = reactive("")
    right: reactive[Cell] = reactive("")

    def render_line(self, y: int) -> Strip:
        base = self.rich_style
        width = self.size.width
        if y > 0:
            return Strip.blank(width, base)
        return line(self.left, self.right, width, base, self.style_of)


class Lines(RoleStyles):
    """A few painted lines, as high as there are lines; for panels that never scroll."""

    lines: reactive[tuple[Cell, ...]] = reactive((), layout=True)

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        return len(self.lines)

    def render_line(self, y: int) -> Strip:
        base = self.rich_style
        width = self.size.width
        if y >= len(self.lines):
            return Strip.blank(width, base)
        return line(self.lines[y], "", width, base, self.style_of)
