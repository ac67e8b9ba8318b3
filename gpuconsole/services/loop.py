"""The polling loop: on a timer, polls the backend, applies the events and publishes a Snapshot.

A tick takes at most about 20 ms, and the timer leaves at least as much between two, so that the screens stay
responsive and the process uses about half a core. The results of a simulation depend on virtual time
only, not on when ticks come.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gpuconsole.backends.base import Backend, Clocked, LiveBackend, Partial
from gpuconsole.model.events import Event, HistoryEvent
from gpuconsole.model.snapshot import EMPTY, Snapshot
from gpuconsole.model.state import ClusterState
from gpuconsole.model.text import clean

if TYPE_CHECKING:
    from apscheduler.schedulers.background import BackgroundScheduler

LOG = logging.getLogger(__name__)
INTERVAL = 0.04
"""Seconds from tick to tick: 20 ms of work, then as much rest."""
REST = 0.005
"""Seconds left to other threads after a tick, however long it took."""
LONGEST = 0.25
"""Maximum seconds that a tick advances the time, so that it does not jump by hours when a laptop wakes up."""


class Loop:
    """Keeps the ClusterState up to date with a backend. Mutates; `tick` is called by one thread."""

    def __init__(
        self,
        backend: Backend,
        *,
        publish: Callable[[Snapshot], None],
        record: Callable[[Sequence[HistoryEvent]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backend = backend
        self._timekeeper = backend if isinstance(backend, (Clocked, LiveBackend)) else None
        self._partial = backend if isinstance(backend, Partial) else None
        self._publish = publish
        self._record = record
        self._clock = clock
        self._state = ClusterState()
        self._scheduler: BackgroundScheduler | None = None
        self._last = clock()
        self.snapshot: Snapshot = EMPTY
        self.renewed: float | None = None
        """When the data were last renewed, by `clock`; None before the first tick."""
        self.stalled = ""

    def tick(self, elapsed: float) -> None:
        """Let `elapsed` wall-clock seconds pass. Never raises: errors are logged and set in `stalled`."""
        try:
            self._work(elapsed)
        except Exception as error:
            self._stall(clean(f"{type(error).__name__}: {error}"))
        else:
            self.stalled = ""

    def start(self) -> None:
        """Call `tick` by a timer, in a separate thread, until `stop`."""
        from apscheduler.schedulers.background import BackgroundScheduler

        # A tick that comes too late is skipped, and its time counts in the next one, which needs no warning.
        logging.getLogger("apscheduler").setLevel(logging.ERROR)
        self._scheduler = BackgroundScheduler(timezone="UTC")
        self._last = self._clock()
        self._scheduler.add_job(self._timed, "interval", seconds=INTERVAL, max_instances=1, coalesce=True)
        self._scheduler.start()

    def stop(self) -> None:
        """Stop the timer, after a running tick."""
        if self._scheduler is not None:
            self._scheduler.shutdown(wait=True)
            self._scheduler = None

    def _timed(self) -> None:
        now = self._clock()
        elapsed, self._last = min(LONGEST, now - self._last), now
        self.tick(elapsed)
        time.sleep(REST)

    def _work(self, elapsed: float) -> None:
        events = list(self._backend.poll(elapsed))
        moved = self._apply(events)
        lines = [event for event in events if isinstance(event, HistoryEvent)]
        if lines:
            self._record(lines)
        self.renewed = self._clock()
        if moved or self.snapshot is EMPTY:
            if self._partial is not None:
                self._state.seen = self._partial.seen
            self.snapshot = self._state.freeze()
            self._publish(self.snapshot)

    def _apply(self, events: Sequence[Event]) -> bool:
        """Apply events; True if anything changed, including the time."""
        before = self._state.time
        for event in events:
            self._state.apply(event)
        if self._timekeeper is not None:
            self._state.time = max(self._state.time, self._timekeeper.now)
        return bool(events) or self._state.time != before

    def _stall(self, text: str) -> None:
        if text != self.stalled:
            LOG.exception("The loop is stalled")
        self.stalled = text
