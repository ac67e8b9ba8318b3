"""The shadow of a live cluster: passes its changes to the worker, which checks each decision of Kueue."""

import logging
import threading
from collections.abc import Sequence

from msgspec.structs import replace

from gpuconsole.backends.base import LiveBackend
from gpuconsole.errors import HistoryError, WorkerError
from gpuconsole.insight.data_gaps import missing_for_admission
from gpuconsole.insight.forecast.agreement import AgreementRecord, ShadowReport
from gpuconsole.model.clock import Time
from gpuconsole.model.events import Applied, Deleted, Event
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.store import queries
from gpuconsole.store.recorder import Recorder
from gpuconsole.store.schema import reading
from gpuconsole.workers.client import Worker
from gpuconsole.workers.protocol import FOLLOWED

LOG = logging.getLogger(__name__)
INTERVAL = 1.0
"""Seconds between two batches of changes."""
AT_ONCE = 200
"""Changes in one request, so that questions of the user come in between."""
MOST_WAITING = 100_000
"""Number of waiting changes above which the worker is too slow, and the shadow begins again."""


class ShadowService:
    """Checks the decisions of Kueue in a live cluster. Mutates; `observe` and `published` for the polling thread."""

    def __init__(self, live: LiveBackend, worker: Worker, recorder: Recorder | None = None) -> None:
        self._live = live
        self._recorder = recorder
        self._worker = worker
        self._lock = threading.Lock()
        """Held while the waiting changes are used; `_following` orders the requests to the worker."""
        self._following = threading.Lock()
        self._base: tuple[Snapshot, SimPolicy] | None = None
        """Where to begin, until the worker has begun there."""
        self._policy: SimPolicy | None = None
        """The settings that the shadow uses; None while it is not following."""
        self._waiting: list[Applied | Deleted] = []
        self._stopped = threading.Event()
        self.report: ShadowReport | None = None
        """What was found since the begin; None before that."""
        self.day = AgreementRecord()
        """The decisions of the last 24 hours, with those before the begin and of earlier sessions."""

    @property
    def shown(self) -> ShadowReport | None:
        """What was found since the begin, with the hours and disagreements of the whole last day."""
        report, day = self.report, self.day
        return replace(report, hours=day.hours, disagreements=day.disagreements) if report is not None else None

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
        with self._following:
            with self._lock:
                base, self._base = self._base, None
                changes, self._waiting = self._waiting, []
            try:
                if base is not None:
                    self._worker.begin_shadow(*base)
                    self._begun(base[0].time)
                for first in range(0, len(changes), AT_ONCE):
                    self._take(self._worker.follow(changes[first : first + AT_ONCE]))
            except WorkerError:
                # Changes are lost: the next Snapshot begins a new shadow, whoever asked for this one.
                self._policy = None
                raise

    def catch_up(self) -> bool:
        """Follow all changes until now; returns False if the shadow does not follow the cluster. Raises WorkerError."""
        self.follow()
        return self._policy is not None and self.report is not None

    def _begun(self, now: Time) -> None:
        """Note the begin of a shadow; the first one continues the record of earlier sessions."""
        if self.report is None and self._recorder is not None:
            try:
                with reading(self._recorder.path) as db:
                    self.day = queries.agreement(db, self._recorder.recording, now)
            except HistoryError:
                LOG.exception("The agreement of earlier sessions cannot be read")
        self.report = ShadowReport(since=now, until=now)

    def _take(self, report: ShadowReport) -> None:
        news = report.news(self.report) if self.report is not None else AgreementRecord()
        self.report, self.day = report, (self.day + news).day_before(report.until)
        if self._recorder is not None and news:
            self._recorder.add_agreement(news)

    def _run(self) -> None:
        while not self._stopped.wait(INTERVAL):
            try:
                self.follow()
            except WorkerError as error:
                LOG.warning("The shadow begins again: %s", error)
                self._policy = None
