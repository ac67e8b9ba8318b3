"""What watches tell the thread that polls: objects that came or changed, and objects that are gone."""

from collections.abc import Callable

from msgspec import Struct

from gpuconsole.backends.kube.decode import CoreEvent
from gpuconsole.model.clock import Time
from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.objects import Object


class ObjectChanged(Struct, frozen=True):
    """An object is like this now. `listed` is one that was there before anybody watched."""

    time: Time
    obj: Object | CoreEvent
    listed: bool = False


class ObjectGone(Struct, frozen=True):
    """An object is gone. `kind` is its struct."""

    time: Time
    kind: type
    key: str


class CommandOutcome(Struct, frozen=True):
    """What became of a command of ours."""

    line: HistoryEvent


WatchMessage = ObjectChanged | ObjectGone | CommandOutcome
Tell = Callable[[list[WatchMessage]], None]
