"""A real terminal for tests: tmux draws the console, keys are sent as a person would press them."""

import re
import shlex
import subprocess
import time
import uuid
from collections.abc import Mapping
from typing import Self

_TMUX_KEYS = {
    "escape": "Escape",
    "enter": "Enter",
    "space": "Space",
    "tab": "Tab",
    "shift+tab": "BTab",
    "up": "Up",
    "down": "Down",
    "left": "Left",
    "right": "Right",
    "home": "Home",
    "end": "End",
    "pageup": "PPage",
    "pagedown": "NPage",
    "backspace": "BSpace",
    "f1": "F1",
}
_PREFIXES = {"ctrl+": "C-", "alt+": "M-", "shift+": "S-"}


def tmux_key(key: str) -> str | None:
    """The name that tmux has for a key, or None where the key is its own character."""
    if key in _TMUX_KEYS:
        return _TMUX_KEYS[key]
    for prefix, short in _PREFIXES.items():
        if key.startswith(prefix):
            rest = key.removeprefix(prefix)
            return short + _TMUX_KEYS.get(rest, rest)
    return None


class Terminal:
    """A tmux session of its own server, with one command in a shell in it."""

    def __init__(self, columns: int, lines: int, environment: Mapping[str, str]) -> None:
        self._server = f"gpuconsole-{uuid.uuid4().hex[:8]}"
        settings = [part for name, value in environment.items() for part in ("-e", f"{name}={value}")]
        # A plain shell, so that the console can be suspended and brought back.
        shell = "env PS1='$ ' bash --norc --noprofile -i"
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(lines), *settings, shell)
        self._tmux("set-option", "-g", "default-terminal", "tmux-256color")

    def _tmux(self, *arguments: str) -> str:
        done = subprocess.run(["tmux", "-L", self._server, *arguments], capture_output=True, text=True, timeout=30)
        if done.returncode:
            raise RuntimeError(f"tmux {shlex.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def run(self, command: str) -> None:
        """Type a command line into the shell."""
        self._tmux("send-keys", "-l", command)
        self._tmux("send-keys", "Enter")

    def press(self, *keys: str) -> None:
        """Press keys, named as the action registry names them."""
        for key in keys:
            name = tmux_key(key)
            if name is None:
                # A bare semicolon would separate two tmux commands.
                self._tmux("send-keys", "-l", "\\;" if key == ";" else key)
            else:
                self._tmux("send-keys", name)

    def text(self) -> str:
        """What stands on the screen."""
        return self._tmux("capture-pane", "-p")

    def wait(self, pattern: str, seconds: float = 20) -> str:
        """Wait until the screen matches; raises TimeoutError with the screen otherwise."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            screen = self.text()
            if re.search(pattern, screen, flags=re.MULTILINE):
                return screen
            time.sleep(0.05)
        raise TimeoutError(f"{pattern!r} did not appear within {seconds} s:\n{self.text()}")

    def close(self) -> None:
        subprocess.run(["tmux", "-L", self._server, "kill-server"], capture_output=True, timeout=30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
