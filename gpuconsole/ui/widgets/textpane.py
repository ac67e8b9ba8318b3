"""A scrollable pane of finished lines: YAML, descriptions, explanations. Only the visible lines are drawn."""

from collections.abc import Iterable
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.binding import BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from gpuconsole.model.text import clean

Span = tuple[str, str]
"""A piece of text and its role: the name of a component class without the `textpane--` in front; "" for plain."""
Line = tuple[Span, ...]

HEADING = "heading"
KEY = "key"
VALUE = "value"
DIM = "dim"
GOOD = "good"
WARN = "warn"
BAD = "bad"
ROLES = (HEADING, KEY, VALUE, DIM, GOOD, WARN, BAD)


def line(*pieces: Span | str) -> Line:
    """A line from plain texts and (text, role) pairs; every text is cleaned here."""
    return tuple((clean(p), "") if isinstance(p, str) else (clean(p[0]), p[1]) for p in pieces)


def field(name: str, value: object, role: str = VALUE, width: int = 16) -> Line:
    """A line `name   value` with the values in a column."""
    return line((f"{name:<{width}} ", KEY), (str(value), role))


def heading(text: str) -> Line:
    return line((text, HEADING))


BLANK: Line = ()


def wrapped(source: Line, width: int) -> list[Line]:
    """Break a line at spaces so that it fits; continued lines keep the indentation of the first."""
    if sum(cell_len(text) for text, _ in source) <= width or width < 8:
        return [source]
    text = "".join(piece for piece, _ in source)
    indent = min(len(text) - len(text.lstrip()), width // 2)
    out: list[list[Span]] = [[]]
    used = 0
    for piece, role in source:
        for word in _words(piece, width - indent):
            size = cell_len(word)
            if used + cell_len(word.rstrip()) > width and used > indent:
                out.append([(" " * indent, "")])
                used = indent
                word = word.lstrip()
                size = cell_len(word)
            out[-1].append((word, role))
            used += size
    return [tuple(row) for row in out]


def _words(text: str, longest: int) -> list[str]:
    """Words with the blanks that follow them, cut where they are too long; leading blanks are a word of their own."""
    words: list[str] = []
    start = 0
    for position in range(1, len(text)):
        if (text[position] != " " and text[position - 1] == " ") or position - start >= longest:
            words.append(text[start:position])
            start = position
    words.append(text[start:])
    return words


class TextPane(ScrollView, can_focus=True):
    """Shows lines; long ones are wrapped, or scrolled sideways where `wrap` is off."""

    BINDINGS: ClassVar[list[BindingType]] = []
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"textpane--{role}" for role in ROLES}
    DEFAULT_CSS = """
    TextPane {
        height: 1fr;
        &:focus { background-tint: $foreground 3%; }
        & > .textpane--heading { text-style: bold; color: $accent; }
        & > .textpane--key { color: $text-muted; }
        & > .textpane--dim { color: $text-muted; }
        & > .textpane--good { color: $text-success; }
        & > .textpane--warn { color: $text-warning; }
        & > .textpane--bad { color: $text-error; }
    }
    """

    def __init__(self, *, wrap: bool = True, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.wrap = wrap
        self._source: tuple[Line, ...] = ()
        self._lines: list[Line] = []

    @property
    def text(self) -> str:
        """What it shows, unwrapped, for copying and for tests."""
        return "\n".join("".join(text for text, _ in row) for row in self._source)

    def show(self, lines: Iterable[Line]) -> None:
        """Replace the lines; the place that was scrolled to stays."""
        source = tuple(lines)
        if source == self._source:
            return
        self._source = source
        self._layout_lines()

    def on_resize(self) -> None:
        self._layout_lines()

    def _layout_lines(self) -> None:
        width = self.scrollable_content_region.width
        if self.wrap and width > 0:
            self._lines = [row for source in self._source for row in wrapped(source, width)]
            self.virtual_size = Size(width, len(self._lines))
        else:
            self._lines = list(self._source)
            widest = max((sum(cell_len(text) for text, _ in row) for row in self._lines), default=0)
            self.virtual_size = Size(widest, len(self._lines))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        x, top = self.scroll_offset
        width = self.scrollable_content_region.width
        base = self.rich_style
        row = top + y
        if row >= len(self._lines):
            return Strip.blank(width, base)
        strip = Strip([Segment(text, self._style(role, base)) for text, role in self._lines[row]])
        return strip.crop_extend(x, x + width, base)

    def _style(self, role: str, base: Style) -> Style:
        return base + self.get_component_rich_style(f"textpane--{role}", partial=True) if role in ROLES else base


def yaml_lines(text: str) -> list[Line]:
    """Colour YAML line by line: keys, comments, the rest. It never fails on text that is no YAML."""
    return [_yaml_line(row) for row in text.splitlines()]


def _yaml_line(row: str) -> Line:
    stripped = row.lstrip()
    if stripped.startswith("#"):
        return line((row, DIM))
    if stripped == "---":
        return line((row, DIM))
    marker = row.find(": ") if ": " in row else (len(row) - 1 if row.endswith(":") else -1)
    if marker < 0 or stripped[:1] in "\"'":
        return line(row)
    return line((row[: marker + 1], KEY), row[marker + 1 :])
