"""Delays work that can wait until the operator pauses typing, up to a limit."""

import time

PAUSE = 0.25
"""Seconds without a key that count as a pause."""
LONGEST = 1.0
"""Seconds that new data wait for a pause, at most."""


class KeyIdleTimer:
    """The time of the last key press. Mutates by `key`."""

    def __init__(self) -> None:
        self.pressed = 0.0
        """By `time.monotonic`."""

    def key(self) -> None:
        """A key was pressed, whether it is a command or a letter of a text."""
        self.pressed = time.monotonic()

    def wait(self, since: float = float("inf")) -> float:
        """Seconds to wait for a pause; what is due `since` a time waits for `LONGEST` of them at most."""
        return min(self.pressed + PAUSE, since + LONGEST) - time.monotonic()
