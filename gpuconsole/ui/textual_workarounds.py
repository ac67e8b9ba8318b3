"""Workarounds for Textual's timers, toasts, output and closed screens.

Output that survives the loss of its terminal, so that the console can shut down cleanly.

Toast notifications: few at once, and safe when they expire before they are shown.

One-shot timers that run even when they are late.

Guards screens that are closed before they are mounted, by another thread or because the console ends.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Any

from textual import events
from textual.message_pump import MessagePump
from textual.notifications import Notification
from textual.timer import Timer, TimerCallback


class LastingOutput:
    """Writes to a file, and drops output after the terminal was closed.

    Textual's writer is a thread that ends with the first error; writers to its full queue then block forever.
    """

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, text: str) -> int:
        """Write a text, unless the terminal is gone."""
        with suppress(OSError, ValueError):
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush to the terminal, unless it is gone."""
        with suppress(OSError, ValueError):
            self._file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


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


class ReliableTimers(MessagePump):
    """Mix-in for the app, screens and widgets: one-shot timers always fire.

    Textual 8.2 skips timer events that are late. A one-shot timer that is skipped never fires: it is enough that the
    system or a computing thread delays the process for as long as the timer lasts. A console that waits for such a
    timer before it draws again is frozen.
    """

    def set_timer(
        self, delay: float, callback: TimerCallback | None = None, *, name: str | None = None, pause: bool = False
    ) -> Timer:
        timer = super().set_timer(delay, callback, name=name, pause=pause)
        # The timer's own task looks at it, and has not begun.
        timer._skip = False
        return timer


class IgnoreEventsWhilePruning(MessagePump):
    """Mix-in for all screens: a screen that is closed before it is mounted gets no mount or show event.

    Textual mounts none of the widgets of such a screen, but sends it the events; a handler that queries a widget then
    crashes the console.

    It is not a Widget, although only screens use it: a class has the styles of its first base that is a Widget only.
    """

    _pruning: bool

    async def on_event(self, event: events.Event) -> None:
        left = self._pruning or not self.is_attached
        if not (left and isinstance(event, (events.Mount, events.ScreenResume))):
            await super().on_event(event)
