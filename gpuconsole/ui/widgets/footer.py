"""The footer: the keys that work now, from the action registry; refused actions are dimmed."""

from collections.abc import Sequence

from gpuconsole.ui.actions import Action
from gpuconsole.ui.keymap import spell
from gpuconsole.ui.paint import Painted, Piece, width_of
from gpuconsole.ui.widgets.painter import StatusLine


def keys_line(actions: Sequence[tuple[Action, bool]], width: int) -> Painted:
    """`⏎ open  x explain …`, as many as fit; the flag tells whether the action would be refused."""
    pieces: list[Piece] = [(" ", "")]
    used = 1
    for action, refused in actions:
        key, label = spell(action.keys[0]), f" {action.label}  "
        used += width_of(key) + len(label)
        if used > width:
            break
        pieces += [(key, "dim" if refused else "key"), (label, "dim" if refused else "")]
    return tuple(pieces)


class Footer(StatusLine):
    """The last line of every screen."""

    def show(self, actions: Sequence[tuple[Action, bool]]) -> None:
        tail = [pair for pair in actions if pair[0].id in ("app.help", "app.palette")]
        right = keys_line(tail, 40)
        self.right = right
        rest = [pair for pair in actions if pair not in tail]
        self.left = keys_line(rest, self.size.width - width_of(right))
