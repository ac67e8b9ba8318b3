"""Timeouts and retry intervals of watches."""

import random
import threading
import time

from msgspec import Struct

LATELY = 60.0
"""Seconds after an outage, or since it was current, in which a watch is eager: a big server that was just restarted has
not read its storage yet, and says so (429) for half a minute."""


class WatchTimings(Struct, frozen=True, kw_only=True):
    """Timeouts and retry intervals of watches, in seconds unless noted."""

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
        """Seconds until the next retry."""
        return self.recheck * random.uniform(0.9, 1.1)


class WatchBackoff:
    """Exponential backoff of one watch. Mutable; the watch's thread waits, any thread ends the wait."""

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
        self._ended.set()
        self._wake.set()

    def short(self) -> None:
        """Keep waits short for a while, because the watch was current a moment ago."""
        self._eager_until = time.monotonic() + LATELY

    def long(self) -> None:
        """Allow long waits again."""
        self._eager_until = 0.0

    def begin_anew(self) -> None:
        """Reset the backoff after a success."""
        self._failures = 0

    def hurry(self) -> None:
        """End a wait, because the server is back after an outage."""
        self.short()
        self.begin_anew()
        self._wake.set()

    def rest(self, asked: float = 0.0) -> None:
        """Wait, longer after each failure in a row; `asked` is the server's minimum in seconds."""
        most = self._pace.longest
        if time.monotonic() < self._eager_until:
            most = min(most, self._pace.eager)
        longest = min(most, self._pace.shortest * 2 ** min(self._failures, 16))
        self._failures += 1
        self._wake.clear()
        if not self.ended:
            self._wake.wait(asked + longest * random.uniform(0.5, 1.0))

    def give_up(self) -> None:
        """Wait until `retry`."""
        self._wake.clear()
        if not self.ended:
            self._wake.wait()

    def retry(self) -> None:
        """End a wait."""
        self._wake.set()
