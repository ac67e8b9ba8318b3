"""What watches tell the thread that polls: objects that came or changed, and objects that are gone."""

from collections.abc import Callable

from msgspec import Struct

from gpuconsole.backends.kube.decode import Told
from gpuconsole.model.clock import Time
from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.objects import Object


class Put(Struct, frozen=True):
    """An object is like this now. `listed` is one that was there before anybody watched."""

    time: Time
    thing: Object | Told
    listed: bool = False


class Drop(Struct, frozen=True):
    """An object is gone. `kind` is its struct."""

    time: Time
    kind: type
    key: str


class Outcome(Struct, frozen=True):
    """What became of a command of ours."""

    line: HistoryEvent


News = Put | Drop | Outcome
Tell = Callable[[list[News]], None]
