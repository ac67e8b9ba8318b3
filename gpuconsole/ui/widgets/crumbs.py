"""The second line: the screens with their keys, or the way down to where one is."""

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


def tabs(view: str, width: int) -> Painted:
    """All screens with their keys, this one marked; without the labels of the others where it is narrow."""
    for labelled in (True, False):
        pieces: list[Piece] = [(" ", "")]
        for name, key, label in VIEWS:
            if name == view:
                pieces += [(f" {key} {label} ", "chip"), (" ", "")]
            elif labelled:
                pieces += [(key, "key"), (f" {label}  ", "dim")]
            else:
                pieces += [(f"{key} ", "key")]
        if width_of(tuple(pieces)) <= width:
            break
    return tuple(pieces)


def trail(names: Sequence[str]) -> Painted:
    """The way down: `workloads › research/rlhf-2`."""
    pieces: list[Piece] = [(" ", "")]
    for index, name in enumerate(names):
        if index:
            pieces.append((" › ", "dim"))
        pieces.append((name, "strong" if index == len(names) - 1 else "dim"))
    return tuple(pieces)


class Crumbs(StatusLine):
    """Where one is."""

    def show(self, view: str, names: Sequence[str]) -> None:
        """Show the screens, or the trail; what stands on the right stays."""
        self.left = trail(names) if len(names) > 1 else tabs(view, self.size.width)
