"""Toast notifications: few at once, and safe when they expire before they are shown."""

from collections.abc import Sequence

from textual.notifications import Notification

LEAST = 0.001
AT_ONCE = 3
"""Notifications shown at the same time."""


class LastingNotification(Notification):
    """A notification whose time left is never negative.

    Textual 8.2 checks that a notification has not expired, makes its toasts, and starts a timer with the time that is
    left by then; with a negative time the timer never stops and the console hangs.
    """

    @property
    def time_left(self) -> float:
        return max(super().time_left, LEAST)

    @property
    def has_expired(self) -> bool:
        return super().time_left <= 0


def replaced_by(new: Notification, said: Sequence[Notification]) -> list[Notification]:
    """The notifications that a new one replaces: those with the same words, and the oldest."""
    again = [one for one in said if (one.title, one.message) == (new.title, new.message)]
    others = [one for one in said if one not in again]
    return again + others[: max(0, len(others) - AT_ONCE + 1)]
