"""Forecasts of Kueue's next decisions on a live cluster: when to compute them, and the record of differences."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from operator import is_

from msgspec.structs import replace

from gpuconsole.backends.base import LiveBackend
from gpuconsole.errors import WorkerError
from gpuconsole.insight.data_gaps import missing_for_admission
from gpuconsole.insight.forecast.backtest import ForecastChecker, ForecastDifferences
from gpuconsole.insight.forecast.forecast import Forecast, ForecastAction
from gpuconsole.insight.health.engines import KueueProblem, KueueWatch
from gpuconsole.model.objects import TABLES
from gpuconsole.model.snapshot import EMPTY, Snapshot, Visibility
from gpuconsole.services.shadow import ShadowService
from gpuconsole.store.recorder import Recorder
from gpuconsole.workers.client import UNDECIDED, ObservedCluster, Worker

LOG = logging.getLogger(__name__)
INTERVAL = 2.0
"""Minimum seconds between two forecasts."""
SHARE = 4.0
"""Minimum pause after a forecast, as a multiple of the time that it took."""
LATEST = 10.0
"""Seconds after which an unchanged cluster is forecast again, while forecast decisions have not been made."""


def _same(tables: Sequence[object], seen: Sequence[object]) -> bool:
    """True if no table changed."""
    return len(tables) == len(seen) and all(map(is_, tables, seen))


class ForecastService:
    """Forecasts Kueue's next decisions in a live cluster. Mutates; `changed` is thread-safe, `look` for one thread."""

    def __init__(
        self,
        live: LiveBackend,
        worker: Worker | None = None,
        recorder: Recorder | None = None,
        shadow: ShadowService | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`shadow` knows Kueue's queues better than looks at the cluster do, as it follows each change."""
        self._live = live
        self._worker = worker
        self._shadow = shadow
        self._recorder = recorder
        self._clock = clock
        self._observer = ForecastChecker()
        """Computes forecasts when there is no worker."""
        self._newest = EMPTY
        self._seen: tuple[object, ...] = ()
        self._looked = 0.0
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.forecast = Forecast()
        self.said = ForecastDifferences()
        """Comparison of this session's forecasts with Kueue's decisions; only recent differences are listed."""
        self.problem = ""
        """Why there is no forecast; empty if there is one."""
        self._admission = KueueWatch()

    def start(self) -> None:
        """Compute a forecast after each change, in a separate thread, until `stop`."""
        self._thread = threading.Thread(target=self._run, name="forecast", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, without waiting for a running computation."""
        self._stopped.set()
        self._wake.set()

    def changed(self, snapshot: Snapshot) -> None:
        """Note that there is a new Snapshot. Never blocks."""
        self._newest = snapshot
        self._wake.set()

    def look(self) -> bool:
        """Compute a forecast now; False if nothing changed that decisions depend on."""
        foresees = self._foresees()
        looked = foresees and self._look()
        expected = self.forecast.expected.values()
        admissible = {one.workload for one in expected if one.fate is ForecastAction.ADMITTED} if foresees else None
        self._admission.observe(self._newest, admissible, self._clock())
        return looked

    @property
    def kueue_problem(self) -> KueueProblem | None:
        """The problem that Kueue does not admit what forecasts admit; None without one, or without forecasts."""
        return self._admission.problem

    def _foresees(self) -> bool:
        """True if forecasts are possible."""
        sight = self._live.health
        if sight.loading or sight.lost or self._live.policy.kueue is None:
            return False
        if lacking := missing_for_admission(self._newest):
            self.problem = f"no forecast: {'; '.join(lacking)}"
            return False
        return True

    def _look(self) -> bool:
        now, tables = self._clock(), tuple(getattr(self._newest, name) for name in TABLES.values() if name != UNDECIDED)
        if _same(tables, self._seen) and (not self.forecast.expected or now - self._looked < LATEST):
            return False
        self._seen, self._looked = tables, now
        self.forecast, said = self._answer(self._live.health.seen)
        self.problem = ""
        self._take(said)
        return True

    def _answer(self, known: Visibility) -> tuple[Forecast, ForecastDifferences]:
        snapshot, policy = self._live.snapshot(), self._live.policy
        assumed, missing = known.warnings, known.decisive_gaps
        if self._worker is not None and not self._worker.lost:
            try:
                followed = self._shadow is not None and self._shadow.catch_up()
                seen = ObservedCluster(self._live, snapshot, policy)
                return self._worker.forecast(seen, assumed, missing, followed=followed)
            except WorkerError as error:
                LOG.warning("The worker failed; forecasting in this process: %s", error)
        return self._observer.look(snapshot, policy, assumed, missing)

    def _take(self, said: ForecastDifferences) -> None:
        if self._recorder is not None and said.trace_lines:
            self._recorder.record(said.trace_lines)
        said = replace(said, trace_lines=())
        self.said = (self.said + said).recent()
        if self._recorder is not None and said.decisions:
            self._recorder.compared(said)

    def _run(self) -> None:
        rest = INTERVAL
        while not self._stopped.wait(rest):
            self._wake.wait(LATEST)
            self._wake.clear()
            begun, rest = self._clock(), INTERVAL
            try:
                if not self._stopped.is_set() and self.look():
                    rest = max(INTERVAL, SHARE * (self._clock() - begun))
            except Exception as error:
                # A forecast is an extra: without it the console goes on.
                LOG.exception("No forecast")
                self._admission.observe(EMPTY, None, self._clock())
                self.problem, rest = f"no forecast: {type(error).__name__}: {error}", LATEST
