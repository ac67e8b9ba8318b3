"""Timeouts and retry intervals of watches."""

import random
import threading
import time

from msgspec import Struct

LATELY = 60.0
"""Seconds after an outage, or after it was current, in which a watch retries often: a big server that was just
restarted has not read its storage yet, and says so (429) for half a minute.
"""


class WatchTimings(Struct, frozen=True, kw_only=True):
    """Timeouts and retry intervals of watches, in seconds unless noted."""

    page: int = 500
    """Objects per page."""
    lasting: float = 600.0
    """Requested duration of a watch, varied by up to 10%."""
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
    """Time for which a kind that was readable may be forbidden before that is believed."""
    recheck: float = 7.0
    """Time between retries of what is forbidden, absent or unreadable, varied by up to 10%; its end is noticed
    within 10 s.
    """
    again: float = 600.0
    """Time between checks for kinds that the server did not serve at the start."""

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
        """Stop the watch, and end any wait."""
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
