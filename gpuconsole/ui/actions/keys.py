"""The keys of actions: which action a key runs, the keys after a prefix, and how keys are shown."""

from collections.abc import Iterable

from gpuconsole.ui.actions import Action

_SHOWN = {
    "escape": "Esc",
    "enter": "⏎",
    "space": "Space",
    "tab": "Tab",
    "shift+tab": "⇧Tab",
    "shift+left": "⇧←",
    "shift+right": "⇧→",
    "ctrl+left": "ctrl+←",
    "ctrl+right": "ctrl+→",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
    "home": "Home",
    "end": "End",
    "backspace": "Bksp",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "f1": "F1",
}


def find(key: str, offered: Iterable[Action]) -> Action | None:
    """Return the action among `offered` that a single key runs; None if there is none."""
    return next((action for action in offered if key in action.keys), None)


def continuations(prefix: str, offered: Iterable[Action]) -> dict[str, Action]:
    """Return the keys that can follow `prefix` in a sequence such as `m P`, each with the action that it completes."""
    return {
        second: action
        for action in offered
        for first, _, second in (key.partition(" ") for key in action.keys)
        if first == prefix and second
    }


def spell(key: str) -> str:
    """A key as shown to people: `⏎`, `ctrl+p`, `m P`."""
    return " ".join(_SHOWN.get(part, part) for part in key.split())


def spell_all(action: Action) -> str:
    """All keys of an action, `j ↓`."""
    return "  ".join(spell(key) for key in action.keys)
