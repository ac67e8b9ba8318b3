"""Screens that are left before they are made: by another thread than keys, or because the console ends."""

from textual import events
from textual.widget import Widget


class Leaving(Widget):
    """A part of all screens: one that is on its way out before it was made is not told that it is made, or shown.

    Textual mounts none of the widgets of such a screen, and tells it all the same; whoever then looks for a widget
    ends the console.
    """

    async def on_event(self, event: events.Event) -> None:
        if not (self._pruning and isinstance(event, (events.Mount, events.ScreenResume))):
            await super().on_event(event)
