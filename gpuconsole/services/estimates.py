"""Recorded estimates of starts, and their comparison with actual starts, for calibration."""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable

from gpuconsole.errors import HistoryError
from gpuconsole.insight.forecast.calibration import Calibration, CoverageRecord, PastEstimate, calibrate, coverage
from gpuconsole.insight.forecast.estimates import EstimateHistory
from gpuconsole.model.clock import Time
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.store import history
from gpuconsole.store.recorder import Recorder

LOG = logging.getLogger(__name__)
INTERVAL = 1.0
"""Minimum seconds between two checks for started workloads."""


class EstimateService:
    """Estimates of one cluster. Mutates; thread-safe."""

    def __init__(
        self, recorder: Recorder | None = None, source: str = "", *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """With a `source`, estimates of earlier sessions on this live cluster count as well."""
        self._recorder = recorder
        self._source = source
        self._clock = clock
        self._memory: EstimateHistory | None = None
        """Read from the history at the first `take`, which is called in a thread that may block."""
        self._guard = threading.Lock()
        self._seen = 0.0

    def take(self, estimates: Iterable[PastEstimate], now: Time) -> Calibration:
        """Record current estimates; returns the calibration by earlier ones."""
        with self._guard:
            if self._memory is None:
                self._memory = EstimateHistory(self._earlier())
            learned = calibrate(self._memory.earlier, now)
            self._record(self._memory.note(estimates))
            return learned

    def record(self, now: Time) -> CoverageRecord:
        """The accuracy of earlier estimates, as far as it is known."""
        with self._guard:
            return coverage(self._memory.earlier, now) if self._memory is not None else CoverageRecord()

    def see(self, snapshot: Snapshot) -> None:
        """Compare estimates with the workloads that have started; once a second at most."""
        now = self._clock()
        if self._memory is None or now - self._seen < INTERVAL:
            return
        with self._guard:
            self._seen = now
            self._record(self._memory.record_starts(snapshot))

    def _earlier(self) -> list[PastEstimate]:
        if self._recorder is None or not self._source:
            return []
        try:
            return history.estimates(self._recorder, self._source)
        except (HistoryError, sqlite3.Error):
            LOG.exception("Earlier estimates cannot be read")
            return []

    def _record(self, estimates: list[PastEstimate]) -> None:
        if self._recorder is not None and estimates:
            self._recorder.add_estimates(estimates)
