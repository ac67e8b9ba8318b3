"""Polls a telemetry source in a thread, and queues the changes for the backend.

A `TelemetrySource` is a Prometheus (`prometheus`) or the DCGM exporters themselves (`dcgm`).
"""

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.errors import ConsoleError
from gpuconsole.model.clock import MINUTE, SECOND, Span, Time
from gpuconsole.model.events import Applied, Deleted, Event
from gpuconsole.model.objects import TABLES
from gpuconsole.model.telemetry import NodeTelemetry, follow
from gpuconsole.model.text import clean

NO_IDLE_TIMES: Mapping[tuple[str, int, int], Time] = {}


class Scrape(Struct, frozen=True):
    """The telemetry that one poll of a source returned, and what it could not read."""

    nodes: tuple[NodeTelemetry, ...] = ()
    troubles: tuple[str, ...] = ()
    """Failed requests, as sentences that name the address."""
    unusable: int = 0
    """Number of series without a node or a GPU."""
    idle: Mapping[tuple[str, int, int], Time] = NO_IDLE_TIMES
    """(node, GPU, MIG instance or -1) → time since which it has been idle, if the source knows."""


class TelemetrySource(Protocol):
    """A Prometheus, or the exporters. Its methods are called by one thread."""

    @property
    def address(self) -> str:
        """The source's address, for messages."""

    def read(self, known: Callable[[str], bool], now: Time, lasts: Span) -> Scrape:
        """Query all metrics now. Raises TelemetryError if no metrics can be read.

        `known` tells if a name is a node of the cluster; `lasts` is the time after which the values are stale.
        """

    def close(self) -> None:
        """Close the connections."""


LOG = logging.getLogger(__name__)
INTERVAL = 30.0
"""Seconds between two polls; exporters measure no more often."""
SOON = 7.0
"""Seconds until a source that failed is polled again, so that its return is noticed within 10 s."""
FRESH = 3
"""Number of intervals after which a value becomes stale."""
FORGOTTEN: Span = 60 * MINUTE
"""Time without new values after which a node is removed."""
MOST = 400
"""Maximum nodes whose changes one call of `take` returns."""


class TelemetryHealth(Struct, frozen=True, kw_only=True):
    """Status of the GPU telemetry."""

    address: str = ""
    nodes: int = 0
    """Number of nodes in the last poll."""
    trouble: str = ""
    """Problem as a sentence; empty if there is none."""


class Feed:
    """Polls a telemetry source in its own thread, and queues the changes until `take`, which one other thread calls."""

    def __init__(
        self,
        source: TelemetrySource,
        *,
        interval: float = INTERVAL,
        wall: Callable[[], Time] = lambda: time.time_ns() // 1_000,
        known: Callable[[str], bool] = lambda name: False,
    ) -> None:
        """Sends nothing before `start`. `known` tells if a name is a node of the cluster."""
        self._source = source
        self._interval = interval
        self._wall = wall
        self._known = known
        self._latest: dict[str, NodeTelemetry] = {}
        self._news: deque[Event] = deque()
        self._stopped = threading.Event()
        self._failed = False
        self.sight = TelemetryHealth(address=source.address)

    def start(self) -> None:
        """Start polling in a thread."""
        threading.Thread(target=self._run, name="telemetry", daemon=True).start()

    def stop(self) -> None:
        """Stop polling; does not wait for a request in progress."""
        self._stopped.set()

    def take(self) -> Iterable[Event]:
        """Return the next changes of the telemetry as events, of `MOST` nodes at most."""
        return [self._news.popleft() for _ in range(min(MOST, len(self._news)))]

    def look(self) -> None:
        """Poll the source once. Never raises: errors are in `sight`."""
        now = self._wall()
        try:
            found = self._source.read(self._known, now, int(FRESH * self._interval * SECOND))
        except ConsoleError as error:
            self._fail(str(error))
        except Exception as error:
            LOG.exception("Telemetry could not be read")
            self._fail(f"{self._source.address}: {clean(f'{type(error).__name__}: {error}', 200)}")
        else:
            self._learn(found, now)

    @property
    def until_next(self) -> float:
        """Seconds until the next poll."""
        seconds = min(SOON, self._interval) if self._failed else self._interval
        return seconds * random.uniform(0.9, 1.1)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.look()
            self._stopped.wait(self.until_next)
        self._source.close()

    def _fail(self, trouble: str) -> None:
        if trouble != self.sight.trouble:
            LOG.warning("No telemetry: %s", trouble)
        self._failed = True
        self.sight = replace(self.sight, trouble=f"No telemetry from {trouble}")

    def _learn(self, look: Scrape, now: Time) -> None:
        self._failed = False
        for node_telemetry in look.nodes:
            old = self._latest.get(node_telemetry.name)
            if old is not None and old.time >= node_telemetry.time:
                continue
            if look.idle:
                said = tuple(look.idle.get((node_telemetry.name, *device.place)) for device in node_telemetry.devices)
                node_telemetry = replace(node_telemetry, idle=said)
            new = self._latest[node_telemetry.name] = follow(old, node_telemetry)
            self._news.append(Applied(now, new))
        for name in [name for name, old in self._latest.items() if now - old.time > FORGOTTEN]:
            del self._latest[name]
            self._news.append(Deleted(now, TABLES[NodeTelemetry], name))
        self.sight = replace(self.sight, nodes=len(look.nodes), trouble=_troubles(look, self._source.address))


def _troubles(look: Scrape, address: str) -> str:
    parts = list(look.troubles[:1])
    if len(look.troubles) > 1:
        parts.append(f"{len(look.troubles) - 1} more")
    if look.unusable:
        parts.append(f"{address}: {look.unusable} series have no node or GPU label")
    return "; ".join(parts)
