"""How patient and how eager watches are, and how long they rest between tries."""

import random
import threading
import time

from msgspec import Struct

LATELY = 60.0
"""Seconds after an outage, or since it was current, in which a watch is eager: a big server that was just restarted has
not read its storage yet, and says so (429) for half a minute."""


class WatchTimings(Struct, frozen=True, kw_only=True):
    """How patient and how eager watches are. Seconds, except where it says so."""

    page: int = 500
    """Objects a page."""
    lasting: float = 600.0
    """How long a watch is asked to last; chance takes or adds a tenth."""
    silence: float = 150.0
    """Without a byte, bookmarks included, where the server sends bookmarks at all."""
    shortest: float = 0.5
    longest: float = 6.0
    """Between tries after failures, growing, with a jitter."""
    proof: float = 2.0
    """A stream after one that said nothing has to stay open so long, or to say something, to be believed."""
    eager: float = 2.0
    """The longest between tries just after an outage."""
    doubt: float = 60.0
    """How long what was allowed may be forbidden before that is believed."""
    recheck: float = 7.0
    """Between tries of what is forbidden, absent or unreadable, however long it lasts: its end is noticed within 10 s.
    Chance takes or adds a tenth."""
    again: float = 600.0
    """Between looks for kinds that the server did not serve at the start."""

    @property
    def until_recheck(self) -> float:
        """Seconds until the next try."""
        return self.recheck * random.uniform(0.9, 1.1)


class WatchBackoff:
    """The rests of one watch: longer each time in a row. Mutates; the watch's thread rests, any thread ends it."""

    def __init__(self, pace: WatchTimings) -> None:
        self._pace = pace
        self._failures = 0
        self._eager_until = 0.0
        self._ended = threading.Event()
        self._wake = threading.Event()

    @property
    def ended(self) -> bool:
        """True once there is nothing to rest for any more."""
        return self._ended.is_set()

    def end(self) -> None:
        self._ended.set()
        self._wake.set()

    def short(self) -> None:
        """It was current a moment ago: keep the rests short for a while."""
        self._eager_until = time.monotonic() + LATELY

    def long(self) -> None:
        """There is nothing to hurry for."""
        self._eager_until = 0.0

    def begin_anew(self) -> None:
        """It went well, so that the next rest is the shortest."""
        self._failures = 0

    def hurry(self) -> None:
        """The server is back after an outage: end a rest."""
        self.short()
        self.begin_anew()
        self._wake.set()

    def rest(self, asked: float = 0.0) -> None:
        """Wait a little, longer each time in a row; `asked` is how long the server wants at least."""
        most = self._pace.longest
        if time.monotonic() < self._eager_until:
            most = min(most, self._pace.eager)
        longest = min(most, self._pace.shortest * 2 ** min(self._failures, 16))
        self._failures += 1
        self._wake.clear()
        if not self.ended:
            self._wake.wait(asked + longest * random.uniform(0.5, 1.0))

    def give_up(self) -> None:
        """Wait until somebody finds a reason to try again (`retry`)."""
        self._wake.clear()
        if not self.ended:
            self._wake.wait()

    def retry(self) -> None:
        """End a rest."""
        self._wake.set()
