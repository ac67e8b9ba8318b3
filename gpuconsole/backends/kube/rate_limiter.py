"""Rate limit of requests to an API server: a token bucket."""

import threading
import time
from collections import deque
from collections.abc import Callable

RATE = 20.0
BURST = 40
MINUTE = 60.0


class RateLimiter:
    """Token bucket: requests per second on average, and the burst. Mutable; thread-safe."""

    def __init__(
        self,
        rate: float = RATE,
        burst: int = BURST,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.rate = rate
        self.burst = burst
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._tokens = float(burst)
        self._filled = clock()
        self._silent_until = 0.0
        self._sent: deque[float] = deque()

    def take(self) -> None:
        """Wait until the next request may be sent."""
        while (wait := self._try()) > 0:
            self._sleep(wait)

    def pause(self, seconds: float) -> None:
        """Send nothing for some seconds, as the server requested (Retry-After)."""
        with self._lock:
            self._silent_until = max(self._silent_until, self._clock() + seconds)

    @property
    def last_minute(self) -> int:
        """Number of requests in the last 60 seconds."""
        with self._lock:
            self._forget(self._clock())
            return len(self._sent)

    def _try(self) -> float:
        """Take a token if there is one (0); else return the seconds to wait."""
        with self._lock:
            now = self._clock()
            if now < self._silent_until:
                return self._silent_until - now
            self._tokens = min(self.burst, self._tokens + (now - self._filled) * self.rate)
            self._filled = now
            if self._tokens < 1:
                return (1 - self._tokens) / self.rate
            self._tokens -= 1
            self._sent.append(now)
            self._forget(now)
            return 0.0

    def _forget(self, now: float) -> None:
        while self._sent and self._sent[0] <= now - MINUTE:
            self._sent.popleft()
