"""One-shot timers that run even when they are late."""

from textual.message_pump import MessagePump
from textual.timer import Timer, TimerCallback


class ReliableTimers(MessagePump):
    """A part of the app, and of screens and widgets with timers: what is to be done once after a while is always done.

    Textual 8.2 leaves out the rings for which a timer comes too late. One that rings once then never does: it is
    enough that the process is held up as the timer starts, by the system or by a thread that computes, for as long as
    the timer lasts. A console that waits for such a ring to draw again is frozen.
    """

    def set_timer(
        self, delay: float, callback: TimerCallback | None = None, *, name: str | None = None, pause: bool = False
    ) -> Timer:
        timer = super().set_timer(delay, callback, name=name, pause=pause)
        # The timer's own task looks at it, and has not begun.
        timer._skip = False
        return timer
