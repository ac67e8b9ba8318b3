"""Known objects and resourceVersions of one kind, so that only changes are reported."""

import logging
import random
from collections.abc import Callable, Collection, Iterator

from gpuconsole.backends.kube.decode import CoreEvent, Item
from gpuconsole.backends.kube.watch_messages import ObjectChanged, ObjectGone, WatchMessage
from gpuconsole.model.clock import Time

LOG = logging.getLogger(__name__)


class ObjectVersions:
    """Objects of one watch, by name. Mutable; used by the watch's thread."""

    def __init__(self, label: str, wall: Callable[[], Time]) -> None:
        self._label = label
        self._wall = wall
        self._names: dict[str, tuple[type, str, str]] = {}
        """Name → struct, key and resourceVersion of the reported object."""
        self._unreadable: set[str] = set()
        """Names of objects whose current versions could not be read."""
        self._nameless = 0
        """Number of objects without a readable name in the last list."""

    @property
    def unread(self) -> int:
        """Number of objects that exist but cannot be read."""
        return len(self._unreadable) + self._nameless

    def is_unreadable(self, name: str) -> bool:
        """True for an object known to be unreadable."""
        return name in self._unreadable

    @property
    def any_unreadable(self) -> str:
        """Return the name of one unreadable object; empty if none has a readable name."""
        names = tuple(self._unreadable)
        return random.choice(names) if names else ""

    def begin(self) -> None:
        """Start a list: reset the count of objects without a name."""
        self._nameless = 0

    def seen(self, item: Item, *, listed: bool) -> Iterator[WatchMessage]:
        """Record an object; `listed` if it existed before the watch began."""
        if not item.name:
            self._nameless += item.unread
            return
        self._judge(item)
        known = self._names.get(item.name)
        if item.obj is None:
            yield from self._forgotten(item.name)
        elif known is None or known[2] != item.version:
            self._names[item.name] = (type(item.obj), item.key, item.version)
            yield ObjectChanged(self._wall(), item.obj, listed=listed)

    def _judge(self, item: Item) -> None:
        if not item.unread:
            self._unreadable.discard(item.name)
        elif item.name not in self._unreadable:
            LOG.warning("%s: %s cannot be read", self._label, item.name)
            self._unreadable.add(item.name)

    def gone(self, item: Item) -> Iterator[WatchMessage]:
        """Record that an object was deleted."""
        self._unreadable.discard(item.name)
        yield from self._forgotten(item.name)

    def _forgotten(self, name: str) -> Iterator[WatchMessage]:
        known = self._names.pop(name, None)
        if known is not None and known[0] is not CoreEvent:
            yield ObjectGone(self._wall(), known[0], known[1])

    def keep(self, names: Collection[str]) -> list[WatchMessage]:
        """Drop all objects but these, as deleted, unless an object without a readable name may be one of them."""
        if self._nameless:
            return []
        self._unreadable.intersection_update(names)
        gone = [name for name in self._names if name not in names]
        known = [self._names.pop(name) for name in gone]
        return [ObjectGone(self._wall(), kind, key) for kind, key, _ in known if kind is not CoreEvent]
