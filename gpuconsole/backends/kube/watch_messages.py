"""Messages from the watches' threads to the polling thread."""

from collections.abc import Callable

from msgspec import Struct

from gpuconsole.backends.kube.decode import CoreEvent
from gpuconsole.model.clock import Time
from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.objects import Object


class ObjectChanged(Struct, frozen=True):
    """An object was added or changed. `listed` marks one that existed before the watch."""

    time: Time
    obj: Object | CoreEvent
    listed: bool = False


class ObjectGone(Struct, frozen=True):
    """An object was deleted. `kind` is its struct."""

    time: Time
    kind: type
    key: str


class CommandOutcome(Struct, frozen=True):
    """Outcome of a command that the console sent."""

    line: HistoryEvent


WatchMessage = ObjectChanged | ObjectGone | CommandOutcome
Tell = Callable[[list[WatchMessage]], None]
