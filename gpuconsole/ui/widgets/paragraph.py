"""A few painted lines that continue on the next line where they do not fit, for dialogs and the lines below a table."""

from textual.strip import Strip

from gpuconsole.ui.paint import Cell, line, painted
from gpuconsole.ui.widgets.painter import Lines
from gpuconsole.ui.widgets.textpane import wrapped


class Paragraph(Lines):
    """As `Lines`, but no line is cut: it is as high as its lines need at its width."""

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
