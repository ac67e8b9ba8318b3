"""The keymap: which keys run each action, from a preset and from the bindings in the user's configuration.

Keys are written as in the registry; several are separated by commas, and two keys with a blank between are a chord.
"""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cached_property
from typing import NamedTuple

from msgspec.structs import replace

from gpuconsole.ui.actions import ACTIONS, BY_ID, Action, Scope

PRESETS: dict[str, dict[str, str]] = {
    "default": {},
    # No ctrl+letter that is pressed by habit in vim or tmux changes anything.
    "vim": {
        "table.top": "g g, home",
        "table.page-down": "ctrl+f, ctrl+d, pagedown",
        "table.page-up": "ctrl+b, ctrl+u, pageup",
        "app.zoom": "z z",
        "app.previous": "ctrl+o, [",
        "app.next": "ctrl+n, ]",
        "object.delete": "m x",
        "edit.apply": "Z Z, f10",
        "submit.send": "f10",
        "submit.file": "f9",
        "submit.preview": "f6",
        "submit.template": "f7",
        "submit.what-if": "f8",
    },
    "emacs": {
        "app.palette": "alt+x",
        "app.escape": "escape, ctrl+g",
        "app.next-pane": "tab, ctrl+x o",
        "app.zoom": "z, ctrl+x 1",
        "table.down": "j, down, ctrl+n",
        "table.up": "k, up, ctrl+p",
        "table.page-down": "pagedown, ctrl+v",
        "table.page-up": "pageup, alt+v",
        "table.filter": "/, ctrl+s",
        "queue.fold": "left, h, ctrl+b",
        "queue.unfold": "right, l, ctrl+f",
        "topology.fold": "left, h, ctrl+b",
        "topology.unfold": "right, l, ctrl+f",
        "node.left": "left, h, ctrl+b",
        "node.right": "right, l, ctrl+f",
        "object.delete": "ctrl+x k",
        "edit.apply": "ctrl+x ctrl+s",
        "submit.send": "f10, ctrl+x ctrl+s",
        "submit.file": "f9, ctrl+x ctrl+f",
    },
}
"""Name of a preset → the actions whose keys differ from the registry's: action id → keys."""

_NAMED = frozenset(
    {
        *("escape", "enter", "space", "tab", "up", "down", "left", "right", "home", "end", "pageup", "pagedown"),
        *("backspace", "delete", "insert", *(f"f{number}" for number in range(1, 25))),
    }
)
_KEY = re.compile(r"((?:ctrl\+|alt\+|shift\+)*)(.+)")
RESERVED = {"ctrl+c": "quits when pressed twice", "ctrl+q": "goes back or quits"}
"""Keys that no action can have."""
_EVERYWHERE = frozenset(
    {Scope.GLOBAL, Scope.VIEWS, Scope.LISTS, Scope.SIMULATION, Scope.TABLE, Scope.WINDOW, Scope.ANSWERS}
)
_KINDS = frozenset({Scope.WORKLOAD, Scope.QUEUE, Scope.NODE, Scope.TOPOLOGY, Scope.COST, Scope.WHAT_IF, Scope.DRILLS})
"""Scopes that a screen can offer together with those of all objects."""


class KeyProblem(NamedTuple):
    """A binding that cannot be used."""

    id: str
    """The action id in the configuration."""
    problem: str


class Keymap:
    """The actions of the registry with the keys that run them in this session."""

    def __init__(self, changed: Mapping[str, tuple[str, ...]]) -> None:
        """`changed` has the keys of the actions whose keys differ from the registry's: action id → keys."""
        self._changed = dict(changed)

    @cached_property
    def actions(self) -> tuple[Action, ...]:
        """All actions in the order of the registry."""
        return tuple(replace(one, keys=self._changed.get(one.id, one.keys)) for one in ACTIONS)

    @property
    def single_keys(self) -> list[str]:
        """All keys that start an action or a sequence."""
        return list(dict.fromkeys(key.split()[0] for action in self.actions for key in action.keys))


DEFAULT = Keymap({})


def parse_keys(text: str) -> tuple[str, ...]:
    """Read `g g, ctrl+g` as the registry writes keys; nothing for an empty text. Raises ValueError with the reason."""
    chords = [part.split() for part in text.split(",") if part.strip()]
    if any(len(chord) > 2 for chord in chords):
        raise ValueError(f"{text!r}: a chord has at most two keys; separate keys that do the same by a comma")
    return tuple(" ".join(map(_parse_key, chord)) for chord in chords)


def _parse_key(text: str) -> str:
    if len(text) == 1 and text.isprintable():
        return text
    found = _KEY.fullmatch(text if len(text.rpartition("+")[2]) == 1 else text.lower())
    modifiers, name = (found[1], found[2]) if found is not None else ("", text)
    if name == "comma" and not modifiers:
        return ","
    if modifiers == "shift+" and len(name) == 1 and name.isalpha():
        return name.upper()
    if name in _NAMED or (len(name) == 1 and modifiers and name.isalnum()):
        key = f"{modifiers}{name if len(name) > 1 else name.lower()}"
        if key in RESERVED:
            raise ValueError(f"{text!r}: this key {RESERVED[key]}")
        return key
    raise ValueError(f"{text!r} is not a key; write a character, a name such as pageup or f5, or ctrl+x, alt+x")


def build_keymap(preset: str, bindings: Mapping[str, str]) -> tuple[Keymap, list[KeyProblem]]:
    """Build the keymap of a preset with the user's bindings, which replace an action's keys; also return what is wrong.

    An action without keys stays in the palette and in menus.
    """
    problems: list[KeyProblem] = []
    changed = {id: parse_keys(text) for id, text in PRESETS[preset].items()}
    bound: list[str] = []
    for id, text in bindings.items():
        if id not in BY_ID:
            near = get_close_matches(id, BY_ID, n=1)
            hint = f"did you mean {near[0]}?" if near else "`gpuconsole keys -o json` lists them"
            problems.append(KeyProblem(id, f"unknown action; {hint}"))
            continue
        try:
            changed[id] = parse_keys(text)
        except ValueError as error:
            problems.append(KeyProblem(id, str(error)))
        else:
            bound.append(id)
    keymap = Keymap(changed)
    return keymap, [*problems, *find_conflicts(keymap, bound)]


def find_conflicts(keymap: Keymap, bound: Iterable[str]) -> list[KeyProblem]:
    """Return the keys of the actions `bound` that another action of a screen has, too, unless the registry says so."""
    found = []
    named = {action.id: action for action in keymap.actions}
    for id in bound:
        for key in named[id].keys:
            other = next((one for one in keymap.actions if one.id != id and _clash(named[id], key, one)), None)
            if other is not None:
                taken = next(taken for taken in other.keys if _same(key, taken))
                problem = f"{key!r} conflicts with {taken!r} of {other.id} ({other.label}); bind that to another key"
                found.append(KeyProblem(id, f'{problem}, or to "" for none'))
    return found


def _clash(action: Action, key: str, other: Action) -> bool:
    if not any(_same(key, taken) for taken in other.keys) or not _meet(action.scope, other.scope):
        return False
    if other.id == "object.menu" and action.scope in (Scope.OBJECT, *_KINDS):
        # The menu itself takes the second key.
        return False
    before = BY_ID[action.id].keys, BY_ID[other.id].keys
    return not any(_same(one, taken) for one in before[0] for taken in before[1])


def _same(key: str, other: str) -> bool:
    """Whether two keys are equal, or one is the beginning of a chord."""
    first, second = sorted((key.split(), other.split()), key=len)
    return second[: len(first)] == first


def _meet(one: Scope, other: Scope) -> bool:
    """Whether a screen can offer actions of both scopes. The open time line has precedence over everything."""
    if one is other:
        return True
    if Scope.TIME in (one, other):
        return False
    return bool({one, other} & _EVERYWHERE) or (Scope.OBJECT in (one, other) and bool({one, other} & _KINDS))
