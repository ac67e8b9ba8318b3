"""GPU utilization trends, continued from the stored samples of earlier sessions."""

import logging
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing

from gpuconsole.errors import HistoryError
from gpuconsole.insight.health.trends import Trends, UtilizationSample
from gpuconsole.model.clock import HOUR, Time
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.store import gpus
from gpuconsole.store.recorder import Recorder
from gpuconsole.store.schema import history_errors, open_for_reading

LOG = logging.getLogger(__name__)


class Measurements:
    """Utilization trends of one cluster. Mutates; only the loop calls `take`, others may read `trends`."""

    def __init__(self, recorder: Recorder | None = None, source: str = "") -> None:
        """Samples are stored only for live clusters, which have a `source`: simulations have another clock."""
        self._recorder = recorder if source else None
        self._source = source
        self._now: Time = 0
        self.trends = Trends(self._past)

    def take(self, snapshot: Snapshot) -> None:
        """Add the new samples of a Snapshot."""
        self._now = snapshot.time
        samples = self.trends.take(snapshot)
        if samples and self._recorder is not None:
            self._recorder.measured(self._source, samples)

    def _past(self, nodes: Sequence[str]) -> Iterable[UtilizationSample]:
        if self._recorder is None:
            return ()
        try:
            path = self._recorder.path
            with history_errors(path), closing(open_for_reading(path)) as db:
                return gpus.kept(db, self._source, nodes, self._now - HOUR)
        except (HistoryError, sqlite3.Error):
            LOG.exception("Earlier GPU metrics cannot be read")
            return ()
