"""Guards screens that are closed before they are mounted, by another thread or because the console ends."""

from textual import events
from textual.message_pump import MessagePump


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
