"""The second line: all screens with their keys, or the navigation path."""

from collections.abc import Sequence

from gpuconsole.ui.actions import ACTIONS, Scope
from gpuconsole.ui.keymap import spell
from gpuconsole.ui.paint import Painted, Piece, width_of
from gpuconsole.ui.widgets.painter import StatusLine

VIEWS = tuple(
    (action.id.removeprefix("view."), spell(action.keys[-1]), action.label)
    for action in ACTIONS
    if action.scope is Scope.VIEWS
)


ROOM = 14
"""Columns kept free for the place of the cursor, so that no label is cut and nothing moves as numbers grow."""


def tabs(view: str, width: int) -> Painted:
    """All screens with their keys, the active one marked; on narrow screens closer together, or only the active one."""
    for gap in ("  ", " ", None):
        pieces: list[Piece] = [(" ", "")]
        for name, key, label in VIEWS:
            if name == view:
                pieces += [(f" {key} {label} ", "chip"), (" ", "")]
            elif gap:
                pieces += [(key, "key"), (f" {label}{gap}", "dim")]
            else:
                pieces += [(f"{key} ", "key")]
        if width_of(tuple(pieces)) <= width - ROOM:
            break
    return tuple(pieces)


def trail(names: Sequence[str]) -> Painted:
    """The navigation path: `workloads › research/rlhf-2`."""
    pieces: list[Piece] = [(" ", "")]
    for index, name in enumerate(names):
        if index:
            pieces.append((" › ", "dim"))
        pieces.append((name, "strong" if index == len(names) - 1 else "dim"))
    return tuple(pieces)


class Crumbs(StatusLine):
    """Shows the navigation path."""

    def show(self, view: str, names: Sequence[str]) -> None:
        """Show the screens, or the path; the text on the right stays."""
        self.left = trail(names) if len(names) > 1 else tabs(view, self.size.width)
