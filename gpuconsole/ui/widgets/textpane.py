"""Panes of rendered lines (YAML, descriptions, explanations), paragraphs, and panes side by side."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from textual import events
from textual.containers import Horizontal
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from gpuconsole.ui.messages import RowOpened
from gpuconsole.ui.paint import Cell, Painted, Piece, line, painted, plain, segments, width_of
from gpuconsole.ui.widgets.painter import Lines, RoleStyles

BLANK: Painted = ()
MARK = "▌"
"""Mark before the line under the cursor, so that it is visible without colours too."""
_HANGING = re.compile(r" *(?:[^\w\s] )?(?:[^ ]+ {2,})?")
"""What continued lines keep free: the indentation, a glyph, and the name of a value that stands in a column."""


def text_line(*pieces: Piece | str) -> Painted:
    """Make a painted line from plain texts and (text, role) pairs."""
    return tuple((piece, "") if isinstance(piece, str) else piece for piece in pieces)


def field(name: str, value: object, role: str = "", width: int = 16) -> Painted:
    """Make a line `name   value`; `width` is that of the name, so that the values of several lines form a column."""
    return text_line((f"{name:<{width}} ", "dim"), (str(value), role))


def heading(text: str) -> Painted:
    return text_line((text, "title"))


def wrapped(source: Painted, width: int) -> list[Painted]:
    """Break a line at spaces into lines that fit, the later ones indented to the text of the first, or its value."""
    if width_of(source) <= width or width < 8:
        return [source]
    text = plain(source)
    hanging = _HANGING.match(text)
    indent = min(hanging.end() if hanging is not None else 0, width // 2)
    out: list[list[Piece]] = [[]]
    used = 0
    for piece, role in source:
        for word in _words(piece, width - indent):
            if used + cell_len(word.rstrip()) > width and used > indent:
                text, said = out[-1][-1]
                out[-1][-1] = (text.rstrip(), said)
                out.append([(" " * indent, "")] if indent else [])
                used = indent
                word = word.lstrip()
            out[-1].append((word, role))
            used += cell_len(word)
    return [tuple(row) for row in out]


def _words(text: str, longest: int) -> list[str]:
    """Words with the blanks that follow them, cut where they are too long; leading blanks are a word of their own.

    `$` and `%` stay with their number.
    """
    words: list[str] = []
    start = 0
    for position in range(1, len(text)):
        if (text[position] not in " $%" and text[position - 1] == " ") or position - start >= longest:
            words.append(text[start:position])
            start = position
    words.append(text[start:])
    return words


class Pick(tuple[Piece, ...]):
    """A line of a `TextPane` on which the cursor can be put, such as a suggestion."""

    key: str
    """Identifies the line, so that the cursor stays on it when the lines change."""

    def __new__(cls, pieces: Painted, key: str) -> "Pick":
        made = super().__new__(cls, pieces)
        made.key = key
        return made


class Target(NamedTuple):
    """The object that a name in a text stands for: a table as in `objects.TABLES`, and a key in it."""

    table: str
    key: str


class Link(tuple[Piece, ...]):
    """A line that names objects; the cursor can be put on each name, and Enter or a click opens the object."""

    names: Mapping[str, tuple[int, Target]]
    """Key for the cursor → the index of the piece that has the name, and its object."""

    def __new__(cls, pieces: Painted, names: Mapping[str, tuple[int, Target]]) -> "Link":
        made = super().__new__(cls, pieces)
        made.names = names
        return made


class TextPane(ScrollView, RoleStyles, can_focus=True):
    """A scrollable pane of lines; long ones are wrapped, or scrolled sideways if `wrap` is off.

    The cursor moves between the visible `Pick` lines and names of `Link` lines; where there are none, the text is
    scrolled.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {"textpane--cursor"}

    def __init__(self, *, wrap: bool = True, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.wrap = wrap
        self._source: tuple[Painted, ...] = ()
        self._lines: list[tuple[int, Painted]] = []
        """Each with the number of the line that it is a part of."""
        self._cursor = ""

    @property
    def line_count(self) -> int:
        """The number of lines at the current width."""
        return len(self._lines)

    @property
    def picked(self) -> str:
        """The key of the line under the cursor; empty if it is not visible."""
        return self._cursor if self._cursor in self._in_sight() else ""

    def step(self, way: int) -> None:
        """Put the cursor on the next visible `Pick` line, down (1) or up (-1); if there is none, scroll by a line."""
        keys = self._in_sight()
        if self._cursor in keys:
            place = keys.index(self._cursor) + way
        else:
            # Suggestions are what the page is for: they come before names.
            picks = [row.key for row in self._source if isinstance(row, Pick) and row.key in keys]
            place = keys.index(picks[0]) if picks and way > 0 else 0 if way > 0 else len(keys) - 1
        if 0 <= place < len(keys):
            self._cursor = keys[place]
            self.refresh()
        else:
            self.scroll_relative(y=way, animate=False)

    @property
    def target(self) -> Target | None:
        """The object that is named under the cursor; None if there is none, or it is not visible."""
        if not self.picked:
            return None
        links = (row for row in self._source if isinstance(row, Link))
        return next((row.names[self._cursor][1] for row in links if self._cursor in row.names), None)

    @property
    def has_picks(self) -> bool:
        """Whether there is a line on which the cursor can be put."""
        return any(isinstance(row, Pick | Link) for row in self._source)

    def _in_sight(self) -> list[str]:
        """The picks and names that are at least partly visible, from top to bottom."""
        top, height = round(self.scroll_y), self.scrollable_content_region.height
        numbers = dict.fromkeys(number for number, _ in self._lines[top : top + height])
        sources = (self._source[number] for number in numbers)
        return [key for source in sources for key in _cursor_keys(source)]

    @property
    def text(self) -> str:
        """The whole text, unwrapped, for copying and for tests."""
        return "\n".join(plain(row) for row in self._source)

    def show(self, lines: Iterable[Painted]) -> None:
        """Replace the lines; the scroll position is kept."""
        source = tuple(lines)
        if source == self._source:
            return
        self._source = source
        self._arrange()

    def on_click(self, event: events.Click) -> None:
        """Put the cursor on the clicked suggestion or name, and open the object of a name."""
        place = self.scroll_offset.y + event.y - self.gutter.top
        if not 0 <= place < len(self._lines):
            return
        number, row = self._lines[place]
        source, x = self._source[number], self.scroll_offset.x + event.x - self.gutter.left
        if isinstance(source, Pick):
            self._cursor = source.key
            self.refresh()
        elif isinstance(source, Link):
            for piece, _ in row:
                x -= cell_len(piece)
                if x < 0:
                    self._click_name(source, piece.rstrip())
                    break

    def _click_name(self, source: Link, text: str) -> None:
        clicked = next((key for key, (index, _) in source.names.items() if source[index][0] == text), "")
        if clicked:
            self._cursor = clicked
            self.refresh()
            self.post_message(RowOpened(self.target))

    def action_scroll_left(self) -> None:
        self.scroll_relative(x=-self._part, animate=False)

    def action_scroll_right(self) -> None:
        self.scroll_relative(x=self._part, animate=False)

    @property
    def _part(self) -> int:
        """Columns that one key scrolls sideways: Textual's single column is too slow for tables."""
        return max(1, self.size.width // 3)

    def on_resize(self) -> None:
        self._arrange()

    def _arrange(self) -> None:
        width, height = self.scrollable_content_region.size
        if self.wrap and width > 0:
            self._lines = self._wrapped(width)
            if len(self._lines) > height and not self.show_vertical_scrollbar:
                # The scroll bar that so many lines bring takes its column from them.
                width -= self.styles.scrollbar_size_vertical
                self._lines = self._wrapped(width)
            self.virtual_size = Size(width, len(self._lines))
        else:
            self._lines = list(enumerate(self._source))
            self.virtual_size = Size(max(map(width_of, self._source), default=0), len(self._lines))
        self.refresh()

    def _wrapped(self, width: int) -> list[tuple[int, Painted]]:
        return [(number, row) for number, source in enumerate(self._source) for row in wrapped(source, width)]

    def render_line(self, y: int) -> Strip:
        x, top = self.scroll_offset
        width = self.scrollable_content_region.width
        base = self.base
        if top + y >= len(self._lines):
            return Strip.blank(width, base)
        number, row = self._lines[top + y]
        source = self._source[number]
        if self._cursor and self._cursor in _cursor_keys(source):
            if isinstance(source, Link):
                row = _with_cursor(row, source[source.names[self._cursor][0]][0])
            else:
                base = self.component("textpane--cursor")
                row = _marked(row)
        strip = Strip(segments(row, base, self.style_of))
        if strip.cell_length <= x + width:
            return strip.crop_extend(x, x + width, base)
        # Half of a number must not look like a number.
        return Strip([*strip.crop(x, x + width - 1), Segment("…", base)], width)


def _cursor_keys(source: Painted) -> Sequence[str]:
    if isinstance(source, Link):
        return tuple(source.names)
    return (source.key,) if isinstance(source, Pick) else ()


def _with_cursor(row: Painted, name: str) -> Painted:
    """With the cursor on a name, and the mark in the place of the blank before it."""
    at = next((index for index, (text, _) in enumerate(row) if text.rstrip() == name), None)
    if at is None:
        return row
    pieces = list(row)
    pieces[at] = (pieces[at][0], "cursor")
    if at and pieces[at - 1][0].endswith(" "):
        pieces[at - 1] = (pieces[at - 1][0][:-1] + MARK, pieces[at - 1][1])
    return tuple(pieces)


def _marked(row: Painted) -> Painted:
    """With the mark of the cursor in the place of the space that it begins with."""
    (text, role), *rest = row
    return ((MARK, "key"), (text[1:], role), *rest)


def yaml_lines(text: str) -> list[Painted]:
    """Colour YAML line by line: keys, comments, the rest. Invalid YAML is no error."""
    return [_yaml_line(row) for row in text.splitlines()]


def _yaml_line(row: str) -> Painted:
    stripped = row.lstrip()
    if stripped.startswith("#") or stripped == "---":
        return text_line((row, "dim"))
    marker = row.find(": ") if ": " in row else (len(row) - 1 if row.endswith(":") else -1)
    if marker < 0 or stripped[:1] in "\"'":
        return text_line(row)
    return text_line((row[: marker + 1], "dim"), row[marker + 1 :])


class Paragraph(Lines):
    """Painted lines that are wrapped where they do not fit, for dialogs and the lines below a table."""

    def watch_lines(self, old: tuple[Cell, ...], new: tuple[Cell, ...]) -> None:
        width = self.size.width
        if len(_broken(old, width)) != len(_broken(new, width)):
            self.refresh(layout=True)

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        return len(_broken(self.lines, width))

    def render_line(self, y: int) -> Strip:
        base, width = self.base, self.size.width
        rows = _broken(self.lines, width)
        return line(rows[y], "", width, base, self.style_of) if y < len(rows) else Strip.blank(width, base)


def _broken(lines: tuple[Cell, ...], width: int) -> list[Cell]:
    """The lines as they are drawn; continued ones begin below the first one's text."""
    return [row for one in lines for row in wrapped(painted(one), width)]


WIDE = 110


class Panes(Horizontal):
    """Panes side by side; on a narrow screen only the current one. `tab` focuses the next one (see ConsoleScreen)."""

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
        """Focus the next (`way` 1) or previous (-1) pane."""
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
