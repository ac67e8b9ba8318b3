"""What is said in passing: a notification whose time may be over before it is seen."""

from textual.notifications import Notification

LEAST = 0.001


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
