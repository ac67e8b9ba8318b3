"""Painted text: what all widgets draw, and the only place where text becomes terminal cells.

`Painted` is text in pieces, each with a role (`own`, `pending`, `fault` …). The theme maps roles to colours, so no
colour is in Python; every role that carries meaning also has a glyph. Each piece is cleaned here once more, so that
nothing from a cluster reaches the terminal as a control sequence or is read as markup.
"""

from collections.abc import Callable, Iterable

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter
from textual.strip import Strip

from gpuconsole.model.text import clean

Piece = tuple[str, str]
Painted = tuple[Piece, ...]
Cell = str | Painted

ROLES = (
    "own",
    "borrowed",
    "lent",
    "running",
    "pending",
    "victim",
    "idle",
    "fault",
    "held",
    "unknown",
    "dim",
    "strong",
    "title",
    "key",
    "chip",
    "good",
    "cursor",
    "marked",
    *(f"series-{number}" for number in range(1, 9)),
)
"""All roles of text. Each has a theme colour and the component class `role--NAME` of the app."""

ROLE_CLASSES = {f"role--{role}" for role in ROLES}

GLYPHS = {
    "running": "●",
    "pending": "◐",
    "borrowed": "▲",
    "lent": "▼",
    "victim": "✖",
    "idle": "○",
    "fault": "⚠",
    "held": "⏸",
    "unknown": "?",
    "good": "✓",
}


_ASCII_PAIRS = (
    "●* ◐o ▲^ ▼v ✖x ○. ⚠! ⏸= ✓+ ⊘0 ▣# ◑c ◒d ✗X ⟲@ ▸> ▾- ★* ⏎< ↻@ ⇧^ ←< →> ↑^ ↓v ↔- ‹< ›> "
    "─- ━- ═= │| ┃| ║| ├+ ┤+ ┬+ ┴+ ┼+ └+ ┘+ ┌+ ┐+ ╭+ ╮+ ╰+ ╯+ ▔- ▕| ▏| "
    "…~ ·. •* ×x ÷/ −- –- —- ≤< ≥> ≈~ ½h °' ²2 ∞* Σs μu µu §S ‰% ºo ˙' ⎺' ⎻- ⎼_ ⎽_ "
    '█# ▓% ▒: ░. ▌| ▐| ▙# ▟# ▀" ▄_ ▁_ ▂. ▃- ▅= ▆+ ▇* ⌈[ ⌉] ⌊[ ⌋]'
)
_ASCII = {pair[0]: pair[1] for pair in _ASCII_PAIRS.split()}
"""Glyph → the ASCII character that is drawn for it; those of `GLYPHS` differ from each other."""


class AsciiTranslation(dict[int, str]):
    """A table for `str.translate` to ASCII text that is as wide; characters without a likeness become `?`."""

    def __missing__(self, code: int) -> str:
        if code < 128:
            return chr(code)
        if 0x2800 <= code < 0x2900:
            # Braille dots of a plot: how many are set.
            return " .:*#"[((code - 0x2800).bit_count() + 1) // 2]
        return _ASCII.get(chr(code)) or "?" * cell_len(chr(code))


class AsciiGlyphs(LineFilter):
    """Draws all glyphs and borders with ASCII characters, for terminals and fonts that have no others."""

    def __init__(self) -> None:
        super().__init__()
        self._table = AsciiTranslation()

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Translate the text of a line."""
        return [
            segment
            if segment.text.isascii()
            else Segment(segment.text.translate(self._table), segment.style, segment.control)
            for segment in segments
        ]


def painted(cell: Cell) -> Painted:
    """A cell as pieces; a plain string is one piece without a role."""
    return ((cell, ""),) if isinstance(cell, str) else cell


def plain(cell: Cell) -> str:
    """The text of a cell alone."""
    return cell if isinstance(cell, str) else "".join(text for text, _ in cell)


def width_of(cell: Cell) -> int:
    """The width of a text in terminal cells."""
    return sum(cell_len(clean(text)) for text, _ in painted(cell))


def join(cells: Iterable[Cell], between: str = "  ") -> Painted:
    """Join cells to one, with `between` them; empty cells are omitted."""
    pieces: list[Piece] = []
    for cell in cells:
        if plain(cell):
            if pieces:
                pieces.append((between, ""))
            pieces.extend(painted(cell))
    return tuple(pieces)


StyleOf = Callable[[str], Style]


def segments(cell: Cell, base: Style, style_of: StyleOf) -> list[Segment]:
    """Convert a cell to Rich segments without control characters, each in the style of its role over `base`."""
    return [Segment(clean(text), base + style_of(role) if role else base) for text, role in painted(cell) if text]


def fitted(cell: Cell, width: int, base: Style, style_of: StyleOf, right: bool = False) -> list[Segment]:
    """Cut or pad a cell to exactly `width` terminal cells; `right` aligns it to the right."""
    pieces = segments(cell, base, style_of)
    length = sum(cell_len(piece.text) for piece in pieces)
    if length > width:
        return _cut(pieces, width)
    if length == width:
        return pieces
    padding = Segment(" " * (width - length), base)
    return [padding, *pieces] if right else [*pieces, padding]


def _cut(pieces: list[Segment], width: int) -> list[Segment]:
    kept: list[Segment] = []
    left = width
    for piece in pieces:
        length = cell_len(piece.text)
        if length < left:
            kept.append(piece)
            left -= length
            continue
        # The ellipsis is needed here: this piece fills the rest, and more text follows it or in it.
        text = set_cell_size(piece.text, left - 1) + "…" if left > 0 else ""
        kept.append(Segment(text, piece.style))
        break
    return kept


def line(left: Cell, right: Cell, width: int, base: Style, style_of: StyleOf) -> Strip:
    """One line of a screen: the left part, a gap, the right part. The left part is cut first."""
    tail = segments(right, base, style_of)
    tail_width = min(width, sum(cell_len(piece.text) for piece in tail))
    head = fitted(left, width - tail_width, base, style_of)
    if 0 < tail_width < width and not "".join(piece.text for piece in head).endswith(" "):
        head = [*fitted(left, width - tail_width - 1, base, style_of), Segment(" ", base)]
    return Strip([*head, *_cut(tail, tail_width)] if tail_width == width else [*head, *tail], width)
