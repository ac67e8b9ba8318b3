"""Everything that depends on Textual's private methods and attributes: faster drawing, and workarounds for its faults.

No other module of `gpuconsole.ui` uses them, so that a new version of Textual is checked here.
"""

import io
import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from typing import IO, Any, Literal

from textual import events
from textual.app import App
from textual.binding import Binding
from textual.driver import Driver
from textual.filter import LineFilter
from textual.message_pump import MessagePump
from textual.notifications import Notification, Notify
from textual.screen import Screen
from textual.timer import Timer, TimerCallback
from textual.widgets._select import SelectCurrent as SelectCurrent
from textual.widgets._select import SelectOverlay

LOG = logging.getLogger(__name__)


class LastingOutput:
    """The terminal's output file; it drops output once the terminal is closed, instead of failing.

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


AT_ONCE = 3
"""Maximum number of notifications kept at the same time."""


def replaced_by(new: Notification, said: Sequence[Notification]) -> list[Notification]:
    """Return the notifications that a new one replaces: those with the same text, and the oldest of too many."""
    again = [one for one in said if (one.title, one.message) == (new.title, new.message)]
    others = [one for one in said if one not in again]
    return again + others[: max(0, len(others) - AT_ONCE + 1)]


def set_reliable_timer(
    self: MessagePump,
    delay: float,
    callback: TimerCallback | None = None,
    *,
    name: str | None = None,
    pause: bool = False,
) -> Timer:
    """`set_timer` of the app, screens and widgets whose one-shot timers always fire.

    Textual 8.2 skips timer events that are late. A one-shot timer that is skipped never fires: it is enough that the
    system or a computing thread delays the process for as long as the timer lasts. A console that waits for such a
    timer before it draws again is frozen.
    """
    timer = MessagePump.set_timer(self, delay, callback, name=name, pause=pause)
    # The timer's own task looks at it, and has not begun.
    timer._skip = False
    return timer


async def ignore_events_while_pruning(self: Screen[Any], event: events.Event) -> None:
    """`on_event` of all screens: a screen that is closed before it is mounted gets no mount or resume event.

    Textual mounts none of the widgets of such a screen, but sends it the events; a handler that queries a widget then
    crashes the console.
    """
    left = self._pruning or not self.is_attached
    if not (left and isinstance(event, (events.Mount, events.ScreenResume))):
        await MessagePump.on_event(self, event)


FRAME = 0.001
"""Maximum seconds without drawing after a change of mode."""


class TunedApp(App[None]):
    """A Textual app that paints a changed screen as soon as it is complete, and only once."""

    set_timer = set_reliable_timer
    _notification_timer: Timer | None = None
    """Ends the time of the next notification; an unread error would let one for each later notification wait."""

    def _build_driver(self, headless: bool, inline: bool, mouse: bool, size: tuple[int, int] | None) -> Driver:
        """A driver whose output survives errors of the terminal, which would block Textual's writer."""
        driver = super()._build_driver(headless, inline, mouse, size)
        if isinstance(file := vars(driver).get("_file"), io.TextIOWrapper):
            vars(driver)["_file"] = LastingOutput(file)
        return driver

    def bind_key(self, key: str, action: str, *, priority: bool = False) -> None:
        """Bind a key to an action of the app; with `priority` before the bindings of the focused widget."""
        for binding in Binding.make_bindings([Binding(key, action, show=False, priority=priority)]):
            self._bindings.key_to_bindings.setdefault(binding.key, []).append(binding)

    def filter_output(self, filter: LineFilter) -> None:
        """Pass every line through `filter` before it goes to the terminal."""
        self._filters.append(filter)

    @property
    def is_exiting(self) -> bool:
        """Whether the app is shutting down."""
        return self._exit

    async def wait_for_screen(self) -> None:
        """Wait until the front screen is mounted and any change of screens is complete."""
        await self._flush_next_callbacks()
        await self.screen._mounted_event.wait()

    def has_screen_of(self, mode: str) -> bool:
        """Return whether the screen of a mode exists."""
        return mode in self._screen_stacks

    def create_hidden_screen(self, mode: str) -> None:
        """Create the screen of a mode without switching to it."""
        self._init_mode(mode)
        self._screen_stacks[mode][0].post_message(events.ScreenSuspend())

    def hold_painting(self) -> None:
        """Delay painting until all pending widget updates are done."""
        self._begin_batch()
        self.call_later(self._paint_on)

    def _paint_on(self) -> None:
        self._end_batch()
        self.screen.refresh()

    def delay_update(self, delay: float = FRAME) -> None:
        """Shorten the 50 ms for which Textual draws nothing after a change of mode, to avoid flicker."""
        super().delay_update(min(delay, FRAME))

    def on_notify(self, event: Notify) -> None:
        # Textual takes the new one in after this.
        for one in replaced_by(event.notification, list(self._notifications)):
            self._unnotify(one, refresh=False)

    def _refresh_notifications(self) -> None:
        """Show the newest notification; Textual would mount toasts over what is being read."""
        if self._disable_notifications:
            return
        said = list(self._notifications)
        self.show_notification(said[-1] if said else None)
        if self._notification_timer is not None:
            self._notification_timer.stop()
            self._notification_timer = None
        if said:
            self._notification_timer = self.set_timer(
                max(0.1, min(one.time_left for one in said)), self._refresh_notifications
            )

    def show_notification(self, newest: Notification | None) -> None:
        """Show the newest notification whose time is not over; None for none."""

    def drop_read_errors(self, seconds: float) -> None:
        """Drop the errors that stood for at least `seconds`, as somebody is at the keyboard."""
        shown = [(one, one.timeout - one.time_left) for one in self._notifications if one.severity == "error"]
        read = [one for one, age in shown if age >= seconds]
        for one in read:
            self._unnotify(one)

    def clear_selection(self) -> None:
        # A field of a screen that is just made may be filled on the way out, when there is no screen any more.
        if self.screen_stack:
            super().clear_selection()

    def _handle_exception(self, error: Exception) -> None:
        # Textual shows it after leaving the screen; the log keeps it with its traceback.
        LOG.error("The console failed", exc_info=error)
        super()._handle_exception(error)


class TunedScreen(Screen[None]):
    """A screen of a `TunedApp` that is styled and laid out once when it opens."""

    set_timer = set_reliable_timer
    on_event = ignore_events_while_pruning

    @property
    def is_pruning(self) -> bool:
        """Whether the screen is being closed."""
        return self._pruning

    @property
    def has_layout(self) -> bool:
        """Whether the screen was ever laid out."""
        return bool(self._size)

    def lay_out(self, event: events.ScreenResume) -> None:
        """Lay the screen out and set the focus now, not only after the screen's own handler of the event."""
        event.prevent_default()
        self._on_screen_resume(event)

    def app_context(self) -> AbstractContextManager[None]:
        """Return a context in which the result of a pushed screen is handled by the app, not by this screen."""
        return self.app._context()

    def _post_register(self, app: App[object]) -> None:
        super()._post_register(app)
        # Its widgets are styled by the stylesheet as it is now. Textual counts a new screen as one that saw none, and
        # would parse all styles anew, twice, which took longer than making and drawing the screen.
        self._css_update_count = app._css_update_count

    def _compositor_refresh(self) -> None:
        # Textual would draw everything and discard it.
        if not self.app._batch_count:
            super()._compositor_refresh()


class ChoiceOverlay(SelectOverlay):
    """The list of a Select; also handles keys before it is drawn, where Textual 8.2 fails on page keys."""

    def _move_page(self, direction: Literal[-1, 1]) -> None:
        with suppress(KeyError):
            super()._move_page(direction)
