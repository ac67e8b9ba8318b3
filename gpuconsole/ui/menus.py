"""Menus made from the action registry: the keys after a prefix key, and the actions for the object under the cursor."""

from collections.abc import Callable, Iterable, Mapping

from gpuconsole.ui.actions import Action, Scope
from gpuconsole.ui.keymap import continuations
from gpuconsole.ui.widgets.confirm import ChoiceOption

Refusal = Callable[[Action], str]

OBJECT_SCOPES = (Scope.OBJECT, Scope.WORKLOAD, Scope.QUEUE, Scope.NODE)
MOVES = ("object.menu", "object.open", "queue.fold", "queue.unfold")
"""Navigation actions, which the menu of an object leaves out."""


def hints(following: Mapping[str, Action], refusal: Refusal) -> list[ChoiceOption]:
    """The keys after a prefix: second key → action."""
    return [_option(action, key, refusal) for key, action in following.items()]


def menu(offered: Iterable[Action], refusal: Refusal) -> list[ChoiceOption]:
    """All actions for the object, by the key that follows `m`, else by their own key if it is free."""
    actions = [action for action in offered if action.scope in OBJECT_SCOPES and action.id not in MOVES]
    keys = {action.id: key for key, action in continuations("m", actions).items()}
    used = set(keys.values())
    for action in actions:
        own = next((key for key in action.keys if len(key) == 1 and key not in used), "")
        if action.id not in keys and own:
            keys[action.id] = own
            used.add(own)
    return [_option(action, keys.get(action.id, ""), refusal) for action in actions]


def _option(action: Action, key: str, refusal: Refusal) -> ChoiceOption:
    """A menu entry; a refused action stays in the menu with the reason."""
    return ChoiceOption(action.id, action.label, key, ((action.help, "dim"),), refusal(action))
