"""List and watch one kind: what is there, then every change, whatever happens on the way.

The rules are the API's (kubernetes.io/docs/reference/using-api/api-concepts, "Efficient detection of changes"): a list
ends at a resourceVersion; a watch goes on from there and moves it with every event and bookmark; a watch that ends is
taken up where it was; 410 means that it is too late for that, and all is listed anew. What a second list does not have
any more was deleted meanwhile. Where the server offers it, the list comes through the watch itself
(sendInitialEvents), which costs it less memory.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import StrEnum

import msgspec

from gpuconsole.backends.base import Missing
from gpuconsole.backends.kube.answers import Busy, Cut, Forbidden, Gone, Refused, Unauthorized, Unreachable, refused
from gpuconsole.backends.kube.client import Connection
from gpuconsole.backends.kube.decode import BOOKMARK, DELETED, ERROR, Decoder, Item, Line
from gpuconsole.backends.kube.gate import Gate
from gpuconsole.backends.kube.news import News, Tell
from gpuconsole.backends.kube.pace import Pace, Rests
from gpuconsole.backends.kube.roster import Roster
from gpuconsole.model.clock import Time

LOG = logging.getLogger(__name__)
NOT_OFFERED = (400, 404, 405, 415, 422)
"""How servers refuse sendInitialEvents that do not know it, or not for this kind."""
_INITIAL = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
GRACE = 15.0
"""Seconds by which a stream may outlast what was asked for."""
MISTAKEN = 15.0
"""Seconds in which it forbids everything at most, as it has not read its own roles yet."""


class Phase(StrEnum):
    WAITING = "waiting"
    READING = "reading"
    """The first list is on its way."""
    CURRENT = "current"
    CATCHING_UP = "catching up"
    """It was current, and the stream is down."""
    FORBIDDEN = "forbidden"
    ABSENT = "absent"
    """The server does not serve it any more."""


_SEEN = (Phase.CURRENT, Phase.CATCHING_UP)


class Watch:
    """Keeps one kind up to date, in one namespace or in all. Mutates; `run` is a thread, `stop` ends it."""

    def __init__(
        self,
        connection: Connection,
        decoder: Decoder,
        *,
        namespace: str,
        tell: Tell,
        gate: Gate,
        wall: Callable[[], Time],
        pace: Pace,
        selector: str = "",
        streaming: bool = True,
    ) -> None:
        """`selector` is a field selector; `streaming` tries sendInitialEvents."""
        self.decoder = decoder
        self.namespace = namespace
        self.phase = Phase.WAITING
        self.missing: Missing | None = None
        self.problem = ""
        """What goes wrong time and again, in a sentence."""
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
        self._roster = Roster(self.label, wall)
        self._bookmarks = False
        self._denied_since: float | None = None
        self._rests = Rests(pace)
        self._close: Callable[[], None] = _nothing

    @property
    def label(self) -> str:
        """For people and threads: `pods in team-a`."""
        return f"{self.decoder.served.resource}{f' in {self.namespace}' if self.namespace else ''}"

    @property
    def unread(self) -> int:
        """Objects that are there, and cannot be read."""
        return self._roster.unread

    def stop(self) -> None:
        self._rests.end()
        self._close()

    def reopen(self) -> None:
        """The server is back after an outage: end the stream that stands, and any rest. It goes on where it was."""
        self._rests.hurry()
        self._close()

    def run(self) -> None:
        """List and watch until `stop`. Never raises."""
        while not self._rests.ended:
            try:
                self._turn()
            except Exception:
                LOG.exception("The watch of %s failed", self.label)
                self.problem = f"{self.label}: an error of the console itself; the log has it"
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
            self.problem = ""
        except Gone:
            LOG.info("%s: what is known of it is too old, listing again", self.label)
            self._behind()
            self._version = ""
            self._rests.rest()
        except Forbidden as error:
            self._denied(error)
        except Busy as error:
            self._behind()
            self.problem = f"{self.label}: the server is busy: {error.message}"
            self._rests.rest(error.retry_after)
        except Cut as error:
            LOG.info("%s: %s", self.label, error)
            self._behind()
            self._rests.rest()
        except (Unauthorized, Unreachable) as error:
            self._behind()
            self._gate.report(error)
        except Refused as error:
            self._odd(error)

    def _denied(self, error: Forbidden) -> None:
        """It is forbidden. Of what was allowed before that is believed only after a while.

        A server that was just restarted says it of everything until it has read its own roles.
        """
        now = time.monotonic()
        self._denied_since = now if self._denied_since is None else self._denied_since
        if self.phase in _SEEN and now - self._denied_since < self._pace.doubt:
            self._behind()
            self.problem = f"{self.label}: {error.message}"
            if now - self._denied_since > MISTAKEN:
                self._rests.long()
            self._rests.rest()
            return
        verb = "watch" if self._version or self._streaming else "list"
        self.missing = Missing(verb, self.decoder.served.resource, self.namespace)
        self.problem = ""
        self._give_up(Phase.FORBIDDEN)

    def _odd(self, error: Refused) -> None:
        if self._streaming and not self._version and error.code in NOT_OFFERED:
            self._streaming = False
        elif error.code == 404:
            self._give_up(Phase.ABSENT)
        else:
            self._behind()
            self.problem = f"{self.label}: {error.message or error.reason}"
            self._rests.rest()

    def _behind(self) -> None:
        if self.phase is Phase.CURRENT:
            self.phase = Phase.CATCHING_UP
            self._rests.short()

    def _give_up(self, phase: Phase) -> None:
        """Forget what was read, and try again much later."""
        self.phase = phase
        self._version = ""
        self._tell(self._roster.keep(frozenset()))
        self.synced.set()
        self._rests.give_up()

    # Lists

    def _list(self) -> None:
        """Read all pages, then drop what was not in them."""
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
                raise Refused(self._path, 200, "Unreadable", f"its list cannot be read: {error}") from error
            self._tell([news for item in page.items for news in self._seen(item, seen)])
            token = page.more
            if not token:
                self._complete(seen, page.version)
                return

    def _begin(self) -> None:
        self.missing = None
        self._roster.begin()
        self.phase = Phase.CATCHING_UP if self.synced.is_set() else Phase.READING

    def _complete(self, seen: Collection[str], version: str) -> None:
        self._tell(self._roster.keep(seen))
        self._version = version
        self._rests.begin_anew()
        self._current()
        self.synced.set()

    def _current(self) -> None:
        self.phase = Phase.CURRENT
        self._denied_since = None

    # Watches

    def _follow(self) -> None:
        """Read a stream to its end: from where we stand, or with all that is there at its beginning."""
        lasting = self._pace.lasting * random.uniform(0.9, 1.1)
        seen = None if self._version else set[str]()
        if seen is not None:
            self._begin()
        patience = self._pace.silence if self._bookmarks else lasting + GRACE
        heard = False
        with self._connection.stream(self._path, self._query(lasting), patience=patience) as stream:
            self._close = stream.close
            if seen is None:
                self._current()
            for lines in stream.lines():
                seen = self._take(lines, seen)
                self._rests.begin_anew()
                heard = True
        self._close = _nothing
        if seen is not None or not heard:
            # It ended too early; a server that ends every stream at once is not to be asked all the time.
            self._rests.rest()

    def _query(self, lasting: float) -> dict[str, str | int]:
        start = {"resourceVersion": self._version} if self._version else _INITIAL
        seconds = max(1, round(lasting))
        return {**self._selector, "watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": seconds, **start}

    def _take(self, lines: Sequence[bytes], seen: set[str] | None) -> set[str] | None:
        """Take in lines; returns the names seen so far while the initial events are not over."""
        news: list[News] = []
        for text in lines:
            line = self._line(text)
            if line.type == BOOKMARK:
                self._bookmarks = True
                if seen is not None and line.end:
                    self._tell(news)
                    self._complete(seen, line.version)
                    news, seen = [], None
            elif line.item is not None:
                news += self._seen(line.item, seen) if line.type != DELETED else self._roster.gone(line.item)
            if seen is None:
                self._version = line.version or self._version
        if news:
            self._tell(news)
        return seen

    def _line(self, text: bytes) -> Line:
        """Read a line. Raises Refused for one that says that the watch failed, Cut for one that says nothing."""
        try:
            line = self.decoder.line(text, self._wall())
        except msgspec.DecodeError as error:
            raise Cut(f"{self.label}: a line of the watch cannot be read: {error}") from error
        if line.type == ERROR:
            raise refused(self._path, line.code, msgspec.json.encode({"message": line.message, "reason": line.reason}))
        return line

    def _seen(self, item: Item, seen: set[str] | None) -> Iterator[News]:
        """Take in an object, and note its name where a list is being read."""
        if seen is not None and item.name:
            seen.add(item.name)
        return self._roster.seen(item, listed=not self.synced.is_set())


def _nothing() -> None:
    """There is no stream to close."""
