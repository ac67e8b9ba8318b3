"""What is said in passing: little at once, and its time may be over before it is seen."""

from collections.abc import Sequence

from textual.notifications import Notification

LEAST = 0.001
AT_ONCE = 3
"""Notifications that may cover a screen."""


class Brief(Notification):
    """A notification that always has some time left for whoever shows it, even when it has expired.

    Textual 8.2 looks whether a notification has expired, makes its toasts, and starts a timer with the time that is
    left by then; where that is below 0, the timer runs in circles and the console hangs for good.
    """

    @property
    def time_left(self) -> float:
        return max(super().time_left, LEAST)

    @property
    def has_expired(self) -> bool:
        return super().time_left <= 0


def gone_for(new: Notification, said: Sequence[Notification]) -> list[Notification]:
    """Of what was said, oldest first, that which goes when something new is said: the same words, and the oldest."""
    again = [one for one in said if (one.title, one.message) == (new.title, new.message)]
    others = [one for one in said if one not in again]
    return again + others[: max(0, len(others) - AT_ONCE + 1)]
