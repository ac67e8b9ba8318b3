"""Changes to Textual's app: painting, duration of notifications, logging of errors."""

import io
import logging

from textual.app import App
from textual.driver import Driver
from textual.notifications import Notify
from textual.widgets._toast import Toast

from gpuconsole.ui.screens.mixins import Severity
from gpuconsole.ui.textual_workarounds import LastingNotification, LastingOutput, ReliableTimers, replaced_by

LOG = logging.getLogger(__name__)

FRAME = 0.001
"""Most seconds without drawing after a change of mode."""


class TunedApp(ReliableTimers, App[None]):
    """An app that paints as soon as possible, and only once."""

    def _build_driver(self, headless: bool, inline: bool, mouse: bool, size: tuple[int, int] | None) -> Driver:
        """A driver whose output survives errors of the terminal, which would block Textual's writer."""
        driver = super()._build_driver(headless, inline, mouse, size)
        if isinstance(file := vars(driver).get("_file"), io.TextIOWrapper):
            vars(driver)["_file"] = LastingOutput(file)
        return driver

    def hold_painting(self) -> None:
        """Paint nothing until all pending widget updates are done."""
        self._begin_batch()
        self.call_later(self._paint_on)

    def _paint_on(self) -> None:
        self._end_batch()
        self.screen.refresh()

    def delay_update(self, delay: float = FRAME) -> None:
        """Shorten the 50 ms for which Textual draws nothing after a change of mode, to avoid flicker."""
        super().delay_update(min(delay, FRAME))

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: Severity = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        lasts = self.NOTIFICATION_TIMEOUT if timeout is None else timeout
        self.post_message(Notify(LastingNotification(message, title, severity, lasts, markup)))

    def on_notify(self, event: Notify) -> None:
        # Textual takes the new one in after this.
        gone = replaced_by(event.notification, list(self._notifications))
        for one in gone:
            self._unnotify(one, refresh=False)
        for toast in self.screen.query(Toast) if self.screen_stack else ():
            if toast._notification in gone:
                toast._expire()

    def clear_selection(self) -> None:
        # A field of a screen that is just made may be filled on the way out, when there is no screen any more.
        if self.screen_stack:
            super().clear_selection()

    def _handle_exception(self, error: Exception) -> None:
        # Textual shows it after leaving the screen; the log keeps it with its traceback.
        LOG.error("The console failed", exc_info=error)
        super()._handle_exception(error)
