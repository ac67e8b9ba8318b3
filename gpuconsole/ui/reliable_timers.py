"""One-shot timers that run even when they are late."""

from textual.message_pump import MessagePump
from textual.timer import Timer, TimerCallback


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
