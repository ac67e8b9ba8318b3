"""Screens that are left before they are made: by another thread than keys, or because the console ends."""

from textual import events
from textual.message_pump import MessagePump


class Leaving(MessagePump):
    """A part of all screens: one that is on its way out before it was made is not told that it is made, or shown.

    Textual mounts none of the widgets of such a screen, and tells it all the same; whoever then looks for a widget
    ends the console.

    It is no Widget, though only screens have it: a class has the styles of its first base that is one, and no other's.
    """

    _pruning: bool

    async def on_event(self, event: events.Event) -> None:
        left = self._pruning or not self.is_attached
        if not (left and isinstance(event, (events.Mount, events.ScreenResume))):
            await super().on_event(event)
