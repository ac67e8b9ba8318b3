"""Base of widgets that draw text in roles: styles of the roles, and lines of painted text."""

from rich.style import Style
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from gpuconsole.ui.paint import Cell, line


class RoleStyles(Widget):
    """Base of widgets that style text by its role (`good`, `fault`, `dim`). Caches the styles of the roles.

    Only the app has component classes for the roles. If each widget had them, Textual would compute some thirty styles
    per widget whenever a screen is activated, which took longer than drawing the screen.
    """

    def style_of(self, role: str) -> Style:
        """The style that a role adds to the one below it; empty in an app that does not define it."""
        kept = self._kept_styles
        style = kept.get(role)
        if style is None:
            style = kept[role] = self._ask(f"role--{role}")
        return style

    def component(self, name: str) -> Style:
        """The complete style of a component class of this widget."""
        kept = self._kept_styles
        style = kept.get(name)
        if style is None:
            style = kept[name] = self.get_component_rich_style(name)
        return style

    @property
    def base(self) -> Style:
        """The style of the widget itself."""
        kept = self._kept_styles
        style = kept.get("")
        if style is None:
            style = kept[""] = self.rich_style
        return style

    @property
    def _kept_styles(self) -> dict[str, Style]:
        kept: dict[str, Style] = self.__dict__.setdefault("_styles_kept", {})
        return kept

    def _ask(self, name: str) -> Style:
        try:
            return self.app.get_component_styles(name).partial_rich_style
        except KeyError:
            return Style.null()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._kept_styles.clear()


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
