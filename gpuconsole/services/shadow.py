"""The shadow of a live cluster: passes its changes to the worker, which checks each decision of Kueue."""

import logging
import threading
from collections.abc import Sequence

from gpuconsole.backends.base import LiveBackend
from gpuconsole.errors import WorkerError
from gpuconsole.insight.data_gaps import missing_for_admission
from gpuconsole.insight.forecast.agreement import NO_COMPARISON, AgreementCounts, ShadowReport
from gpuconsole.model.events import Applied, Deleted, Event
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.workers.client import FOLLOWED, Worker

LOG = logging.getLogger(__name__)
INTERVAL = 1.0
"""Seconds between two batches of changes."""
AT_ONCE = 200
"""Changes in one request, so that questions of the user come in between."""
MOST_WAITING = 100_000
"""Number of waiting changes above which the worker is too slow, and the shadow begins again."""


class ShadowService:
    """Checks the decisions of Kueue in a live cluster. Mutates; `observe` and `published` for the polling thread."""

    def __init__(self, live: LiveBackend, worker: Worker) -> None:
        self._live = live
        self._worker = worker
        self._lock = threading.Lock()
        self._base: tuple[Snapshot, SimPolicy] | None = None
        """Where to begin, until the worker has begun there."""
        self._policy: SimPolicy | None = None
        """The settings that the shadow uses; None while it is not following."""
        self._waiting: list[Applied | Deleted] = []
        self._stopped = threading.Event()
        self.report: ShadowReport | None = None
        """What was found since the begin; None before that."""

    @property
    def last_day(self) -> AgreementCounts:
        """The decisions of the last 24 hours."""
        return self.report.last_day if self.report is not None else NO_COMPARISON

    def start(self) -> None:
        """Follow the cluster in a separate thread, until `stop`."""
        threading.Thread(target=self._run, name="shadow", daemon=True).start()

    def stop(self) -> None:
        """Stop, without waiting for a running request."""
        self._stopped.set()

    def observe(self, events: Sequence[Event]) -> None:
        """Note changes of the cluster before they are published. Never blocks for long."""
        if self._policy is not None:
            changes = [one for one in events if isinstance(one, Applied | Deleted) and one.table in FOLLOWED]
            with self._lock:
                self._waiting += changes

    def published(self, snapshot: Snapshot) -> None:
        """Begin at this Snapshot, if the shadow is not following the cluster or its state was lost."""
        policy = self._live.policy
        if self._live.health.lost or len(self._waiting) > MOST_WAITING or self._policy not in (None, policy):
            # Changes were missed, or are decided on by other rules: what follows is another past.
            self._policy = None
        if self._policy is None and self._can_follow(snapshot):
            with self._lock:
                self._base, self._policy = (snapshot, policy), policy
                self._waiting.clear()

    def _can_follow(self, snapshot: Snapshot) -> bool:
        health = self._live.health
        is_complete = not (health.loading or health.lost or missing_for_admission(snapshot))
        return is_complete and self._live.policy.kueue is not None and not self._worker.lost

    def follow(self) -> None:
        """Send the waiting changes to the worker, and take over what it found. Raises WorkerError."""
        with self._lock:
            base, self._base = self._base, None
            changes, self._waiting = self._waiting, []
        if base is not None:
            self._worker.begin_shadow(*base)
            self.report = ShadowReport(since=base[0].time, until=base[0].time)
        for first in range(0, len(changes), AT_ONCE):
            self.report = self._worker.follow(changes[first : first + AT_ONCE])

    def _run(self) -> None:
        while not self._stopped.wait(INTERVAL):
            try:
                self.follow()
            except WorkerError as error:
                LOG.warning("The shadow begins again: %s", error)
                self._policy = None
