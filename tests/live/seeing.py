"""Somebody who looks at the cluster through the console's own backend, as `gpuconsole --live` does."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

from gpuconsole.backends.base import ClusterHealth
from gpuconsole.backends.guard import Guard
from gpuconsole.backends.kube.backend import KubeBackend
from gpuconsole.backends.kube.target import RequestedCluster
from gpuconsole.backends.kube.watch import WatchTimings
from gpuconsole.model.commands import Command
from gpuconsole.model.events import Event, HistoryEvent
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.state import ClusterState
from tests.live.api import PATIENCE, until

BEAT = 0.04
"""Seconds between polls, about as the loop has it."""
BRISK = WatchTimings(shortest=0.1, longest=1.0, proof=0.5, silence=2.0)
"""Patience for tests, which pause servers for seconds where a network would be away for minutes."""


class Seeing:
    """Polls a backend and applies what it tells. Mutates; use it as a context manager."""

    def __init__(
        self,
        kubeconfig: Path,
        *,
        namespaces: tuple[str, ...] = (),
        pace: WatchTimings | None = None,
        quiet: float = 20.0,
    ) -> None:
        target = RequestedCluster(kubeconfig=str(kubeconfig), namespaces=namespaces)
        self.backend = KubeBackend(target, pace=pace, probe_after=quiet)
        self.history: list[HistoryEvent] = []
        self.began = 0.0
        self.events = 0
        self._state = ClusterState()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)

    def __enter__(self) -> "Seeing":
        self.began = time.monotonic()
        self.backend.open()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(5)
        self.backend.close()

    @property
    def health(self) -> ClusterHealth:
        return self.backend.health

    def submit(self, command: Command) -> None:
        """Ask for a change as the console does."""
        Guard(self.backend).submit(command, self.backend.now)

    def snapshot(self) -> Snapshot:
        """What a screen would show now."""
        with self._lock:
            return self._state.freeze()

    def until(self, what: Callable[[Snapshot], object], limit: float = PATIENCE) -> Snapshot:
        """Wait until what is shown is so; gives back the Snapshot."""
        found: Snapshot = until(lambda: (snapshot := self.snapshot()) and what(snapshot) and snapshot, limit)
        return found

    def complete(self, limit: float = PATIENCE) -> Snapshot:
        """Wait until everything was read once."""
        until(lambda: not self.health.loading, limit)
        return self.snapshot()

    def healthy(self, limit: float = PATIENCE) -> None:
        """Wait until nothing that is shown is out of date."""
        until(lambda: not self.health.lost and not self.health.loading, limit)

    def _poll(self) -> None:
        while not self._stopped.is_set():
            events: list[Event] = list(self.backend.poll(BEAT))
            with self._lock:
                for event in events:
                    self._state.apply(event)
            self.events += len(events)
            self.history += [event for event in events if isinstance(event, HistoryEvent)]
            if not events:
                time.sleep(BEAT)
