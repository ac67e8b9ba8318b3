"""Base of widgets that draw text in roles, the quota bar, and placeholders for missing data.

A queue's bar `████░░▼▼│▓▓··` is as long as its potential capacity. Before the tick is its nominal quota: used █, idle
░, lent to others ▼; after it borrowed ▓ and still borrowable ·. In a large cohort the borrowable part ends in › at 1.5
times the nominal quota, which stays readable. A cohort's bar `████▓▓░░` is its members' usage, within nominal quota and
borrowed, and idle quota.
"""

from enum import StrEnum

from rich.style import Style
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from gpuconsole.insight.index.quota_tree import QuotaUse
from gpuconsole.ui.paint import Cell, Painted, Piece, line


class RoleStyles(Widget):
    """Base of widgets that draw text in roles such as `good`, `fault` or `dim`; caches the style of each role.

    Only the app has component classes for the roles. If each widget had them, Textual would compute some thirty styles
    per widget whenever a screen is activated, which took longer than drawing the screen.
    """

    def style_of(self, role: str) -> Style:
        """Return the style that a role adds to the text's base style; empty in an app that does not define the role."""
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
    """A widget of one line, with a text at the left and one at the right."""

    left: reactive[Cell] = reactive("")
    right: reactive[Cell] = reactive("")

    def render_line(self, y: int) -> Strip:
        base = self.base
        width = self.size.width
        if y > 0:
            return Strip.blank(width, base)
        return line(self.left, self.right, width, base, self.style_of)


class Lines(RoleStyles):
    """A widget of a few painted lines, as high as they are many; for panels that never scroll."""

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


class DrawnLines(RoleStyles):
    """Base of widgets that draw all their lines together, once for each content and size."""

    _drawn: tuple[object, int, int, tuple[Cell, ...]] | None = None

    @property
    def content(self) -> object:
        """What is drawn, an immutable object."""
        raise NotImplementedError

    def draw(self, width: int, height: int) -> tuple[Cell, ...]:
        """Draw the content."""
        raise NotImplementedError

    @property
    def lines(self) -> tuple[Cell, ...]:
        """The lines of the content at the current size."""
        content, (width, height) = self.content, self.content_size
        drawn = self._drawn
        if drawn is None or drawn[0] is not content or drawn[1:3] != (width, height):
            drawn = self._drawn = content, width, height, self.draw(width, height)
        return drawn[3]

    def render_line(self, y: int) -> Strip:
        base, width, lines = self.base, self.content_size.width, self.lines
        return line(lines[y], "", width, base, self.style_of) if y < len(lines) else Strip.blank(width, base)


class PaneState(StrEnum):
    """State of a pane's data."""

    LOADING = "loading"
    READY = "ready"
    EMPTY = "empty"
    FORBIDDEN = "forbidden"
    FAILED = "failed"


_LOOK = {
    PaneState.LOADING: ("…", "dim", "Loading"),
    PaneState.READY: ("", "", ""),
    PaneState.EMPTY: ("○", "dim", "Empty"),
    PaneState.FORBIDDEN: ("⊘", "held", "Forbidden"),
    PaneState.FAILED: ("✖", "fault", "Failed"),
}


def notice(state: PaneState, text: str = "") -> Painted:
    """Format a placeholder: the glyph and word of the state, and a text with details."""
    glyph, role, word = _LOOK[state]
    if not text:
        return ((f"  {glyph} {word}", role),)
    if state is PaneState.EMPTY:
        return ((f"  {glyph} ", role), (text, ""))
    return ((f"  {glyph} {word}: ", role), (text, ""))


USED, IDLE, LENT, TICK, BORROWED, BORROWABLE, MORE = "█", "░", "▼", "│", "▓", "·", "›"


def bar(use: QuotaUse, width: int) -> Painted:
    """Draw a queue's quota in `width` cells; amounts above zero take at least one cell if there is room."""
    own = max(0, use.used - use.borrowed)
    lent = min(use.lent, max(0, use.nominal - own))
    idle = max(0, use.nominal - own - lent)
    beyond = max(0, use.potential - own - idle - lent - use.borrowed)
    if width <= 1 or not own + idle + lent + use.borrowed + beyond:
        return _nothing(width)
    nominal = own + idle + lent
    room = max(0, nominal * 3 // 2 - use.borrowed) if nominal else beyond
    is_cut, beyond = beyond > room, min(beyond, max(1, room))
    cells = share(width - 1, (own, idle, lent, use.borrowed, beyond))
    return _drawn(
        (USED * cells[0], "own"),
        (IDLE * cells[1], "idle"),
        (LENT * cells[2], "lent"),
        (TICK, "strong"),
        (BORROWED * cells[3], "borrowed"),
        (BORROWABLE * (cells[4] - is_cut) + MORE * (is_cut and cells[4] > 0), "dim"),
    )


def pool(use: QuotaUse, width: int) -> Painted:
    """Draw a cohort's quota in `width` cells."""
    own = max(0, use.used - use.borrowed)
    idle = max(0, max(use.potential, use.nominal) - use.used)
    if not own + use.borrowed + idle:
        return _nothing(width)
    cells = share(width, (own, use.borrowed, idle))
    return _drawn((USED * cells[0], "own"), (BORROWED * cells[1], "borrowed"), (IDLE * cells[2], "idle"))


def _nothing(width: int) -> Painted:
    return ((BORROWABLE * max(0, width), "dim"),)


def _drawn(*pieces: Piece) -> Painted:
    return tuple(piece for piece in pieces if piece[0])


def gauge(used: int, whole: int, width: int, role: str = "own") -> Painted:
    """Draw which part of `whole` is used, as a bar of `width` cells: `████████░░░░`."""
    cells = share(width, (min(used, whole), max(0, whole - used))) if whole > 0 else (0, width)
    return _drawn((USED * cells[0], role), (IDLE * cells[1], "idle"))


def share(cells: int, amounts: tuple[int, ...]) -> tuple[int, ...]:
    """Divide cells among amounts in proportion, by largest remainder, with at least one for amounts above zero.

    The sum is exactly `cells`. With fewer cells than amounts above zero, the first ones get one.
    """
    whole = sum(amounts)
    if whole <= 0 or cells <= 0:
        return (0,) * (len(amounts) - 1) + (max(0, cells),) if amounts else ()
    exact = [amount * cells / whole for amount in amounts]
    given = [max(int(part), 1 if amount else 0) for part, amount in zip(exact, amounts, strict=True)]
    order = sorted(range(len(amounts)), key=lambda index: exact[index] - given[index], reverse=True)
    while sum(given) < cells:
        for index in order[: cells - sum(given)]:
            given[index] += 1
    while sum(given) > cells:
        largest = max(range(len(given)), key=lambda index: (given[index], index))
        given[largest] -= 1
    return tuple(given)


def spark(values: tuple[int, ...] | list[int]) -> str:
    """Draw a sparkline, `▁▂▂▅▇`; the highest value fills its cell."""
    top = max(values, default=0)
    return "".join("▁▂▃▄▅▆▇█"[min(7, value * 8 // (top + 1))] if top else "▁" for value in values)
