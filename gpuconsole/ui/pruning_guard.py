"""Guards screens that are closed before they are mounted, by another thread or because the console ends."""

from textual import events
from textual.message_pump import MessagePump


class IgnoreEventsWhilePruning(MessagePump):
    """Mix-in for all screens: a screen that is closed before it is mounted gets no mount or show event.

    Textual mounts none of the widgets of such a screen, and tells it all the same; whoever then looks for a widget
    ends the console.

    It is no Widget, though only screens have it: a class has the styles of its first base that is one, and no other's.
    """

    _pruning: bool

    async def on_event(self, event: events.Event) -> None:
        left = self._pruning or not self.is_attached
        if not (left and isinstance(event, (events.Mount, events.ScreenResume))):
            await super().on_event(event)
