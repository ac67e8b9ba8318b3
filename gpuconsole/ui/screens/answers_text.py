"""Lines of answers as they are painted: heads of tables stand out, and tables are never wrapped."""

from collections.abc import Sequence

from gpuconsole.ui.paint import Painted
from gpuconsole.ui.widgets.textpane import line


def painted(text: str) -> Painted:
    """The heads of tables are the only lines without a small letter."""
    return line((text, "title" if text.isupper() else ""))


def tables(lines: Sequence[str]) -> frozenset[int]:
    """The numbers of the lines of tables: from a head to the next empty line. They are scrolled sideways."""
    found, inside = set(), False
    for number, text in enumerate(lines):
        inside = text.isupper() or (inside and bool(text))
        if inside:
            found.add(number)
    return frozenset(found)
