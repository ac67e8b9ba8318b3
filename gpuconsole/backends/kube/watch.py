"""Lists and watches one kind: its existing objects, then every change, with recovery from all failures (`Watch`).

The rules are the API's (kubernetes.io/docs/reference/using-api/api-concepts, "Efficient detection of changes"): a list
ends at a resourceVersion; a watch continues from it, and every event and bookmark updates it; a watch that ends is
resumed from the last one; 410 means that this is too old, and everything is listed again. Objects that are missing in a
later list were deleted. If the server supports it, the list comes through the watch itself (sendInitialEvents), which
takes less of its memory. `ObjectVersions` keeps the resourceVersion of each object, so that only changes are reported.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from gpuconsole.backends.base import Missing
from gpuconsole.backends.kube.client import ApiServerConnection, ConnectivityProbe, ResponseStream
from gpuconsole.backends.kube.decode import (
    BOOKMARK,
    DELETED,
    ERROR,
    CoreEvent,
    Decoder,
    Item,
    ObjectChanged,
    ObjectGone,
    Tell,
    WatchEvent,
    WatchMessage,
)
from gpuconsole.backends.kube.errors import (
    Busy,
    Cut,
    Forbidden,
    Refused,
    ResourceExpired,
    Unauthorized,
    Unreachable,
    Unreadable,
    refused,
)
from gpuconsole.errors import ClusterError
from gpuconsole.model.clock import Time

LOG = logging.getLogger(__name__)


class ObjectVersions:
    """The objects that one watch knows, by name, with their resourceVersions, so that only changes are reported.

    Mutable; used by the watch's thread.
    """

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
        """Record an object; yields a message if it is new or changed. `listed`: it existed before the watch began."""
        if not item.name:
            self._nameless += item.unread
            return
        self._judge(item)
        known = self._names.get(item.name)
        if item.obj is None:
            yield from self._forgotten(item.name, item.document)
        elif known is None or known[2] != item.version:
            self._names[item.name] = (type(item.obj), item.key, item.version)
            yield ObjectChanged(self._wall(), item.obj, listed=listed, document=item.document)

    def _judge(self, item: Item) -> None:
        if not item.unread:
            self._unreadable.discard(item.name)
        elif item.name not in self._unreadable:
            LOG.warning("%s: %s cannot be read", self._label, item.name)
            self._unreadable.add(item.name)

    def gone(self, item: Item) -> Iterator[WatchMessage]:
        """Record that an object was deleted; yields a message if it was known."""
        self._unreadable.discard(item.name)
        yield from self._forgotten(item.name, item.document)

    def _forgotten(self, name: str, document: dict[str, Any] | None = None) -> Iterator[WatchMessage]:
        known = self._names.pop(name, None)
        if known is not None and known[0] is not CoreEvent:
            yield ObjectGone(self._wall(), known[0], known[1], document)

    def keep(self, names: Collection[str]) -> list[WatchMessage]:
        """After a new list with these names, report all other objects as deleted.

        Not if an object without a readable name may be one of them.
        """
        if self._nameless:
            return []
        self._unreadable.intersection_update(names)
        gone = [name for name in self._names if name not in names]
        known = [self._names.pop(name) for name in gone]
        return [ObjectGone(self._wall(), kind, key) for kind, key, _ in known if kind is not CoreEvent]


LATELY = 60.0
"""Seconds for which a watch retries often after an outage or an interruption: a big server that was just restarted has
not read its storage yet, and says so (429) for half a minute.
"""


class WatchTimings(Struct, frozen=True, kw_only=True):
    """Timeouts and retry intervals of watches, in seconds unless noted."""

    page: int = 500
    """Objects per page."""
    lasting: float = 600.0
    """Duration for which a watch is requested (`timeoutSeconds`), varied by up to 10%."""
    silence: float = 150.0
    """Timeout without any data, bookmarks included, if the server sends bookmarks."""
    shortest: float = 0.5
    longest: float = 6.0
    """Bounds of the time between retries after failures, which grows, with jitter."""
    proof: float = 2.0
    """Time for which a silent stream must stay open to count as established."""
    eager: float = 2.0
    """Longest time between retries just after an outage."""
    doubt: float = 60.0
    """Time for which a kind that was readable may be refused as forbidden before it counts as forbidden."""
    recheck: float = 7.0
    """Time between retries of what is forbidden, absent or unreadable, varied by up to 10%; its end is noticed
    within 10 s.
    """
    again: float = 600.0
    """Time between checks for kinds that the server did not serve at the start."""

    @property
    def until_recheck(self) -> float:
        """Return the seconds until what cannot be read is tried again: `recheck`, randomly varied."""
        return self.recheck * random.uniform(0.9, 1.1)


class WatchBackoff:
    """Waits between the retries of one watch, with exponential backoff. Mutable; any thread may end the wait."""

    def __init__(self, pace: WatchTimings) -> None:
        self._pace = pace
        self._failures = 0
        self._eager_until = 0.0
        self._ended = threading.Event()
        self._wake = threading.Event()

    @property
    def ended(self) -> bool:
        """True once the watch is stopped."""
        return self._ended.is_set()

    def end(self) -> None:
        """Stop the watch, and end any wait."""
        self._ended.set()
        self._wake.set()

    def short(self) -> None:
        """Keep waits short for the next minute (`LATELY`), because the watch was current a moment ago."""
        self._eager_until = time.monotonic() + LATELY

    def long(self) -> None:
        """Allow long waits again, without the minute of `short`."""
        self._eager_until = 0.0

    def begin_anew(self) -> None:
        """Reset the backoff after a success."""
        self._failures = 0

    def hurry(self) -> None:
        """End a wait and reset the backoff, because the server is back after an outage."""
        self.short()
        self.begin_anew()
        self._wake.set()

    def rest(self, asked: float = 0.0) -> None:
        """Wait before a retry, longer after each failure in a row; `asked` is the server's minimum in seconds."""
        most = self._pace.longest
        if time.monotonic() < self._eager_until:
            most = min(most, self._pace.eager)
        longest = min(most, self._pace.shortest * 2 ** min(self._failures, 16))
        self._failures += 1
        self._wake.clear()
        if not self.ended:
            self._wake.wait(asked + longest * random.uniform(0.5, 1.0))

    def give_up(self) -> None:
        """Wait, without a time limit, until `retry` is called."""
        self._wake.clear()
        if not self.ended:
            self._wake.wait()

    def retry(self) -> None:
        """End the wait of `give_up`."""
        self._wake.set()


NOT_OFFERED = (400, 404, 405, 415, 422)
"""HTTP statuses of servers that do not support sendInitialEvents, or not for this kind."""
_INITIAL = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
GRACE = 15.0
"""Seconds after its requested duration after which a silent stream counts as broken."""
BEGIN = 5.0
"""Timeout in seconds for the head of a watch's response, which the API server sends at once."""
MISTAKEN = 15.0
"""Most seconds for which a restarted server forbids everything, because it has not read its roles yet."""


class WatchPhase(StrEnum):
    """State of a watch."""

    WAITING = "waiting"
    READING = "reading"
    """The kind's first list is being read."""
    CURRENT = "current"
    CATCHING_UP = "catching up"
    """The kind was read completely, but its stream is interrupted."""
    FORBIDDEN = "forbidden"
    ABSENT = "absent"
    """The server no longer serves the kind."""


_SEEN = (WatchPhase.CURRENT, WatchPhase.CATCHING_UP)
LOST = (WatchPhase.FORBIDDEN, WatchPhase.ABSENT)
"""Phases of a kind that cannot be read now, and is only retried by `Watch.retry`."""


class _Doubtful(Exception):
    """A watch event has an unreadable object: a new list is needed."""


class Watch:
    """Keeps one kind up to date, in one namespace or in all. Mutable; `run` is a thread, `stop` ends it."""

    def __init__(
        self,
        connection: ApiServerConnection,
        decoder: Decoder,
        *,
        namespace: str,
        tell: Tell,
        gate: ConnectivityProbe,
        wall: Callable[[], Time],
        pace: WatchTimings,
        selector: str = "",
        streaming: bool = True,
    ) -> None:
        """`selector` is a field selector; `streaming` tries sendInitialEvents."""
        self.decoder = decoder
        self.namespace = namespace
        self.missing: Missing | None = None
        self.synced = threading.Event()
        """Set when everything was read once, or cannot be."""
        self._connection = connection
        self._tell = tell
        self._gate = gate
        self._wall = wall
        self._pace = pace
        self._selector = {"fieldSelector": selector} if selector else {}
        self._streaming = streaming
        self._path = decoder.served.path(namespace)
        self._version = ""
        self._roster = ObjectVersions(self.label, wall)
        self._bookmarks = False
        self._phase = WatchPhase.WAITING
        self._problem = ""
        self._unresponsive_since: float | None = None
        """Monotonic time at which the current stream was opened, until its first byte; else None."""
        self._silent_streams = 0
        """Number of consecutive streams that ended without a readable event."""
        self._lost_since: float | None = None
        """Monotonic time since which it has been forbidden or absent."""
        self._rests = WatchBackoff(pace)
        self._anew = False
        """List everything again, because an unreadable object is readable now."""
        self._timer = threading.Timer(0.0, _nothing)
        self._opened, self._said, self._stood = 0.0, False, False
        """Of the current or last stream: its start, whether it sent anything, and whether it stayed open."""
        self._close: Callable[[], None] = _nothing

    @property
    def label(self) -> str:
        """Name in messages and of threads: `pods in team-a`."""
        return f"{self.decoder.served.resource}{f' in {self.namespace}' if self.namespace else ''}"

    @property
    def unread(self) -> int:
        """Number of objects that exist but cannot be read."""
        return self._roster.unread

    @property
    def phase(self) -> WatchPhase:
        """Current state. A reconnected watch that stays open in silence counts as current (a quiet cluster)."""
        return WatchPhase.CURRENT if self._phase is WatchPhase.CATCHING_UP and self._is_established else self._phase

    @property
    def problem(self) -> str:
        """What persistently prevents reading, as a sentence that ends with the cause; empty without a problem."""
        return "" if self._is_established else self._problem

    @property
    def _is_established(self) -> bool:
        since = self._unresponsive_since
        return since is not None and time.monotonic() - since >= self._pace.proof

    def stop(self) -> None:
        """End the thread and close the stream."""
        self._rests.end()
        self._close()

    def reopen(self) -> None:
        """Close the current stream and end any wait, because the server is back. The watch resumes from its version."""
        self._rests.hurry()
        self._close()

    def retry(self) -> None:
        """Try again to read a kind that was forbidden or absent, as it may be available now."""
        self._rests.retry()

    def run(self) -> None:
        """List and watch until `stop`. Never raises."""
        while not self._rests.ended:
            try:
                self._turn()
            except Exception:
                LOG.exception("The watch of %s failed", self.label)
                self._behind(f"{self.label}: internal error of the console; see the log")
                self._rests.rest()

    # One turn: list if need be, then watch until the stream ends

    def _turn(self) -> None:
        self._gate.wait()
        if self._rests.ended:
            return
        try:
            if self._version or self._streaming:
                self._follow()
            else:
                self._list()
        except _Doubtful as error:
            LOG.info("%s: %s cannot be read, listing again", self.label, error)
            self._behind(f"{self.label}: {error} cannot be read")
            self._version = ""
            self._rests.rest()
        except ResourceExpired:
            LOG.info("%s: resourceVersion too old, listing again", self.label)
            self._behind()
            self._version = ""
            self._rests.rest()
        except Forbidden as error:
            self._denied(error)
        except Busy as error:
            self._behind(f"{self.label}: the server is busy: {error.said}")
            self._rests.rest(error.rest)
        except Cut as error:
            if not self._anew:
                LOG.info("%s: %s", self.label, error)
                self._behind(f"{self.label}: {error}")
                self._rests.rest()
        except (Unauthorized, Unreachable) as error:
            self._behind(f"{self.label}: {error}")
            self._gate.report(error)
            # The server may be up and refuse only this request; then the gate opens at once.
            self._rests.rest()
        except Refused as error:
            self._odd(error)
        if self._anew:
            self._anew = False
            self._version = ""

    def _denied(self, error: Forbidden) -> None:
        """Handle a 403. If the kind was readable before, it is believed only after a while.

        A restarted server forbids everything until it has read its roles.
        """
        if self._doubted(error):
            return
        verb = "watch" if self._version or self._streaming else "list"
        self.missing = Missing(verb, self.decoder.served.resource, self.namespace)
        self._give_up(WatchPhase.FORBIDDEN)

    def _doubted(self, error: Refused) -> bool:
        """True if the kind was readable a while ago, so that the request is retried."""
        now = time.monotonic()
        self._lost_since = now if self._lost_since is None else self._lost_since
        if self._phase not in _SEEN or now - self._lost_since >= self._pace.doubt:
            return False
        self._behind(f"{self.label}: {error.said}")
        if now - self._lost_since > MISTAKEN:
            self._rests.long()
        self._rests.rest()
        return True

    def _odd(self, error: Refused) -> None:
        if self._streaming and not self._version and error.code in NOT_OFFERED:
            self._streaming = False
        elif error.code == 404:
            if not self._doubted(error):
                self._give_up(WatchPhase.ABSENT)
        else:
            self._behind(f"{self.label}: {error.said}")
            # Such a response does not come from a server that is starting, so waits may be long.
            self._rests.long()
            self._rests.rest()

    def _behind(self, problem: str = "") -> None:
        current = self.phase is WatchPhase.CURRENT
        self._unresponsive_since = None
        self._problem = problem
        if current:
            self._phase = WatchPhase.CATCHING_UP
            self._rests.short()

    def _give_up(self, phase: WatchPhase) -> None:
        """Discard what was read, and wait for `retry`."""
        self._phase = phase
        self._problem = ""
        self._unresponsive_since = None
        self._version = ""
        self._roster.begin()
        self._tell(self._roster.keep(frozenset()))
        self.synced.set()
        self._rests.give_up()

    # Lists

    def _list(self) -> None:
        """Read all pages, then drop the objects that were not in them."""
        self._begin()
        seen: set[str] = set()
        token = ""
        while not self._rests.ended:
            query: dict[str, str | int] = {**self._selector, "limit": self._pace.page}
            if token:
                query["continue"] = token
            answer = self._connection.get(self._path, query)
            try:
                page = self.decoder.page(answer.body, self._wall())
            except msgspec.DecodeError as error:
                raise answer.unreadable(str(error)) from error
            if self._phase in LOST:
                self._found()
            self._tell([news for item in page.items for news in self._seen(item, seen)])
            token = page.more
            if not token:
                self._complete(seen, page.version)
                return

    def _begin(self) -> None:
        """Start a list; a forbidden or absent kind stays so until the server responds (`_found`)."""
        self._roster.begin()
        if self._phase not in LOST:
            self._found()

    def _found(self) -> None:
        self.missing = None
        self._phase = WatchPhase.CATCHING_UP if self.synced.is_set() else WatchPhase.READING

    def _complete(self, seen: Collection[str], version: str) -> None:
        self._tell(self._roster.keep(seen))
        self._version = version
        self._current()
        self.synced.set()

    def _current(self) -> None:
        self._phase = WatchPhase.CURRENT
        self._problem = ""
        self._lost_since = None

    # Watches

    def _follow(self) -> None:
        """Read a stream to its end, from the current version or with the initial events."""
        lasting = self._pace.lasting * random.uniform(0.9, 1.1)
        seen = None if self._version else set[str]()
        if seen is not None:
            self._begin()
        timeout = self._pace.silence if self._bookmarks else lasting + GRACE
        begin = min(BEGIN, timeout)
        with self._connection.stream(self._path, self._query(lasting), timeout=timeout, begin=begin) as stream:
            self._close = stream.close
            if self._phase in LOST:
                self._found()
            if seen is None and not self._silent_streams:
                self._current()
            try:
                seen = self._read(stream, seen)
            finally:
                self._ended()
        if self._anew or (seen is None and not self._silent_streams and self._stood):
            return
        if seen is not None or self._silent_streams:
            self._behind(f"{self.label}: the watch ended without an event")
            if self._silent_streams > 1:
                self._rests.long()
        # Do not reconnect without a pause to a server that ends every stream at once.
        self._rests.rest()

    def _read(self, stream: ResponseStream, seen: set[str] | None) -> set[str] | None:
        """Read a stream to its end; return the names of incomplete initial events, None if they are complete."""
        self._opened, self._said, self._stood = time.monotonic(), False, False
        self._unresponsive_since = self._opened if seen is None else None
        waiting: float | None = None
        self._look_again_later(seen)
        for lines in stream.lines():
            if lines:
                self._end_of_silence()
                seen = self._take(lines, seen)
                self._said, waiting = True, None
                self._connection.note_response()
                if seen is None:
                    self._current()
                self._look_again_later(seen)
                continue
            self._end_of_silence()
            waiting = time.monotonic() if waiting is None else waiting
            if time.monotonic() - waiting > 2 * self._pace.proof:
                self._said = False
                raise Unreadable(self.label, "the watch sends data, but no complete event")
        return seen

    def _end_of_silence(self) -> None:
        """Handle the first data or the end of a silent stream: if it stayed open long enough, the watch is current."""
        if self._is_established:
            self._said = True
            self._current()
        self._unresponsive_since = None

    def _ended(self) -> None:
        """Clean up after a stream ended."""
        self._close = _nothing
        self._end_of_silence()
        self._timer.cancel()
        self._silent_streams = 0 if self._said else self._silent_streams + 1
        self._stood = time.monotonic() - self._opened >= self._pace.proof
        if self._said and self._stood:
            self._rests.begin_anew()

    def _look_again_later(self, seen: set[str] | None) -> None:
        """Schedule a check of unreadable objects: they may become readable without an event."""
        if not self.unread or seen is not None or self._timer.is_alive():
            return
        # The first check is soon: a server that serves streams again may serve everything again.
        self._look_again_after(self._pace.shortest)

    def _look_again_after(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self._look_again)
        self._timer.daemon = True
        self._timer.start()

    def _look_again(self) -> None:
        """Request one unreadable object; if it is readable now, list everything again."""
        close = self._close
        if close is _nothing or not self.unread:
            return
        try:
            healed = self._is_readable(self._roster.any_unreadable)
        except ClusterError as error:
            LOG.info("%s: cannot check unreadable objects: %s", self.label, error)
            healed = False
        if close is not self._close:
            return  # Another stream was opened.
        if healed:
            self._anew = True
            close()
        else:
            self._look_again_after(self._pace.until_recheck)

    def _is_readable(self, name: str) -> bool:
        """Request one object (`namespace/name`) or, without a name, the first page of all."""
        namespace, _, own = name.rpartition("/")
        wanted = [f"metadata.name={own}"] if own else []
        wanted += [f"metadata.namespace={namespace}"] if namespace else []
        selector = ",".join([*self._selector.values(), *wanted])
        query: dict[str, str | int] = {"limit": self._pace.page}
        if selector:
            query["fieldSelector"] = selector
        answer = self._connection.get(self._path, query)
        try:
            page = self.decoder.page(answer.body, self._wall())
        except msgspec.DecodeError as error:
            raise answer.unreadable(str(error)) from error
        return not any(item.unread for item in page.items if item.name == name or not name)

    def _query(self, lasting: float) -> dict[str, str | int]:
        start = {"resourceVersion": self._version} if self._version else _INITIAL
        seconds = max(1, round(lasting))
        return {**self._selector, "watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": seconds, **start}

    def _take(self, lines: Sequence[bytes], seen: set[str] | None) -> set[str] | None:
        """Process lines; return the names seen so far while the initial events are incomplete."""
        news: list[WatchMessage] = []
        try:
            for text in lines:
                line = self._line(text)
                if line.type == BOOKMARK:
                    self._bookmarks = True
                    if seen is not None and line.end:
                        self._tell(news)
                        news = []
                        self._complete(seen, line.version)
                        seen = None
                elif line.item is not None:
                    self._check(line, line.item, seen)
                    news += self._seen(line.item, seen) if line.type != DELETED else self._roster.gone(line.item)
                if seen is None:
                    self._version = line.version or self._version
        finally:
            # Lines before an unreadable one are processed.
            if news:
                self._tell(news)
        return seen

    def _check(self, line: WatchEvent, item: Item, seen: set[str] | None) -> None:
        """Raise _Doubtful for an event whose object cannot be read, if a list may provide it."""
        known = bool(item.name) and (line.type == DELETED or self._roster.is_unreadable(item.name))
        if item.unread and seen is None and not known:
            raise _Doubtful(item.name or "object without a name")

    def _line(self, text: bytes) -> WatchEvent:
        """Decode a line. Raises Refused for an error event or an unreadable line."""
        try:
            line = self.decoder.line(text, self._wall())
        except msgspec.DecodeError as error:
            raise Unreadable(self.label, f"invalid watch event: {error}") from error
        if line.type == ERROR:
            raise refused(self._path, line.code, msgspec.json.encode({"message": line.message, "reason": line.reason}))
        return line

    def _seen(self, item: Item, seen: set[str] | None) -> Iterator[WatchMessage]:
        """Process an object, and record its name during a list."""
        if seen is not None and item.name:
            seen.add(item.name)
        return self._roster.seen(item, listed=not self.synced.is_set())


def _nothing() -> None:
    """Do nothing: there is no stream to close."""
