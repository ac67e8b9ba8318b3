"""A console that only looks changes nothing, whatever keys are pressed: the audit log of the API server says so."""

import os
import re
import sys
from pathlib import Path
from random import Random
from string import ascii_letters, digits

import pytest

from gpuconsole.ui.actions import ACTIONS
from gpuconsole.ui.widgets.dialogs import ChoiceDialog, Confirm, Palette, Prompt
from tests.live.api import Api
from tests.live.controlplane import ControlPlane
from tests.live.identities import ADMIN
from tests.tools.pty_console import PtyConsole

pytestmark = pytest.mark.live
COMMAND = Path(sys.executable).with_name("gpuconsole")
KEYS = int(os.environ.get("GPUCONSOLE_LIVE_KEYS", "10000"))
"""How many keys are pressed: about a minute and a half for the usual number."""
AT_ONCE = 25
ESCAPES = 20
"""Milliseconds after which Esc is Esc, and not the beginning of another key: most keys would end in fields."""
LAST = 5.0
"""Seconds for the keys that wait yet when the last one was pressed."""
NAMED = {
    "enter": "\r",
    "tab": "\t",
    "space": " ",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "pageup": "\x1b[5~",
    "pagedown": "\x1b[6~",
    "home": "\x1b[H",
    "end": "\x1b[F",
    "delete": "\x1b[3~",
    "backspace": "\x7f",
    "f1": "\x1bOP",
    "f2": "\x1bOQ",
    "f5": "\x1b[15~",
}
CRASH = re.compile(r"(.*\n){0,9}Traceback (.*\n)+?(?=\d{4}-|\Z)")
"""A traceback in the log, with the lines before it: they say which keys were pressed."""
DEEPEST = 12
"""Screens on each other at most: a view, an object with its description or events, a list of drills and a drill, and of
answers, rights and port-forwards each once."""
WAY = re.compile(r": action \S+ in (.*)")
DIALOGS = {kind.__name__ for kind in (ChoiceDialog, Confirm, Palette, Prompt)}
LEAVING = ("ctrl+c", "ctrl+q", "ctrl+z")
"""Keys that end or stop the console. What else may end it (q, a command line) is met by starting it anew."""


def sent(key: str) -> str:
    """What a terminal sends for a key, or nothing for one that it does not know."""
    if len(key) == 1:
        return key
    if key.startswith("ctrl+") and len(key) == 6 and key not in LEAVING:
        return chr(ord(key[5]) & 0x1F)
    return NAMED.get(key, "")


def alphabet() -> list[str]:
    """All keys of the console, each as often as the others, and what people type into fields."""
    keys = [sent(part) for action in ACTIONS for key in action.keys for part in key.split(" ")]
    return [*filter(None, keys), *NAMED.values(), *ascii_letters, *digits, *":/?-_."]


class Typist:
    """Presses keys at random in a console that may end at any of them. Mutates."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self._command = command
        self._environment = {
            "GPUCONSOLE_STATE_DIR": str(folder),
            "EDITOR": "true",
            "SHELL": "true",
            "CI": "1",
            "ESCDELAY": str(ESCAPES),
        }
        self._random = Random(7)
        self.starts = 0
        self.pressed = 0

    def press(self, count: int) -> None:
        """Press so many keys, in as many consoles as that takes."""
        keys = alphabet()
        while self.pressed < count:
            self.starts += 1
            with PtyConsole(self._command, 120, 36, self._environment) as console:
                console.wait("team-a|QUEUE|lq-a")
                try:
                    while self.pressed < count:
                        for _ in range(self._random.choice((0, 1, 3))):
                            # Alone, as a hand presses it: with what follows it would be one key of another name.
                            console.write("\x1b")
                            console.settle(2 * ESCAPES / 1000)
                        console.write("".join(self._random.choices(keys, k=AT_ONCE)))
                        self.pressed += AT_ONCE
                        console.settle(0.1)
                    console.settle(LAST)
                except OSError:
                    continue


def test_random_keys_of_an_admin_change_nothing(plane: ControlPlane, busy: Api, tmp_path: Path) -> None:
    log = plane.audit.skip()
    arguments = ["run", "--live", "--read-only", "--kubeconfig", str(plane.kubeconfig(ADMIN)), "--context", "admin"]
    typist = Typist([str(COMMAND), *arguments], tmp_path)
    typist.press(KEYS)
    assert [(request.verb, request.resource) for request in log.writes(ADMIN.user)] == []
    assert any(request.verb in ("list", "watch") for request in log.requests(ADMIN.user)), "it did look"
    said = (tmp_path / "gpuconsole.log").read_text()
    if (failed := CRASH.search(said)) is not None:
        pytest.fail(f"A key ended the console:\n{failed[0]}")
    ways = [way.split(" › ") for way in WAY.findall(said)]
    assert len(ways) > KEYS / 20, "the keys did something"
    assert max(ways, key=len)[DEEPEST:] == [], "screens pile up"
    assert [way for way in ways if not DIALOGS.isdisjoint(way)] == [], "a screen was opened over a dialog"
