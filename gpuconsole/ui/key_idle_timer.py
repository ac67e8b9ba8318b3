"""Delays work that can wait until the operator pauses typing, up to a limit."""

import time

PAUSE = 0.25
"""Seconds without a key that count as a pause."""
LONGEST = 1.0
"""Maximum seconds that work waits for a pause."""


class KeyIdleTimer:
    """Tells how long to delay work so that it does not slow down key presses. Mutable."""

    def __init__(self) -> None:
        self.pressed = 0.0
        """By `time.monotonic`."""

    def key(self) -> None:
        """Record that a key was pressed, be it a command or a letter of a text."""
        self.pressed = time.monotonic()

    def wait(self, since: float = float("inf")) -> float:
        """Return the seconds until work may start: until a pause, at most `LONGEST` after `since`; 0 or less is now.

        `since` is a time of `time.monotonic`; without it, the wait has no limit.
        """
        return min(self.pressed + PAUSE, since + LONGEST) - time.monotonic()
