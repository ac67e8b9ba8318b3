"""Analyses in forks of the cluster, such as what-ifs and estimated starts, in the worker process or in this one.

`AnalysisService` has a method for each analysis. `EstimateService` records estimated starts, and compares them with
actual starts, which calibrates later estimates.
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

from msgspec.structs import replace

from gpuconsole.backends.base import Backend, Forkable, LiveBackend
from gpuconsole.errors import HistoryError, NotSupportedError, UnseenError, WorkerError
from gpuconsole.insight.data_gaps import PLACES, missing_for_forecast
from gpuconsole.insight.forecast.estimates import (
    Calibration,
    CoverageRecord,
    EstimateHistory,
    PastEstimate,
    StartEstimates,
    calibrate,
    calibrated,
    coverage,
)
from gpuconsole.insight.forecast.expected_start import corrected
from gpuconsole.insight.forecast.forecast import WorkloadOutlook
from gpuconsole.insight.pending.why import AdmissionView, Tried, rehearsal_on, trying, view_of, view_on
from gpuconsole.insight.preemption.risk import Risk
from gpuconsole.insight.whatif.plan import CapacityPlan
from gpuconsole.insight.whatif.whatif import WhatIf
from gpuconsole.model.clock import Span, Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.commands import Command
from gpuconsole.model.cooperative import Progress
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.scheduling.kueue.config import DEFAULT
from gpuconsole.scheduling.placement import ScoreTable
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.store.recorder import Recorder
from gpuconsole.store.recorder import estimates as recorded_estimates
from gpuconsole.workers.client import ObservedCluster, Worker
from gpuconsole.workers.protocol import (
    AnalysedCluster,
    Analysis,
    Arguments,
    T,
    estimate_outlook,
    estimate_risk,
    estimate_starts,
    explain_pending,
    find_plan,
    score_nodes,
    simulated_cluster,
    try_commands,
)

LOG = logging.getLogger(__name__)
INTERVAL = 1.0
"""Minimum seconds between two checks for started workloads."""


class EstimateService:
    """Records the estimated starts of one cluster and compares them with actual starts. Mutates; thread-safe."""

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
        """Return how accurate earlier estimates were, as far as their workloads have started."""
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
            return recorded_estimates(self._recorder, self._source)
        except (HistoryError, sqlite3.Error):
            LOG.exception("Earlier estimates cannot be read")
            return []

    def _record(self, estimates: list[PastEstimate]) -> None:
        if self._recorder is not None and estimates:
            self._recorder.add_estimates(estimates)


class AnalysisService:
    """Computes analyses in forks of one cluster. Thread-safe; only `worker` changes, at a hand-over."""

    def __init__(
        self, backend: Backend, newest: Callable[[], Snapshot], worker: Worker | None, estimates: EstimateService
    ) -> None:
        """`newest` returns the displayed Snapshot; `estimates` learns from each observed start."""
        self._backend = backend
        self._live = backend if isinstance(backend, LiveBackend) else None
        self._newest = newest
        self.worker = worker
        """The worker process; None without one, or after a hand-over."""
        self._estimates = estimates
        self._closed = False

    def close(self) -> None:
        """End the worker process; pending questions raise WorkerError."""
        self._closed = True
        if self.worker is not None:
            self.worker.close()

    @property
    def foretells(self) -> bool:
        """True if estimated starts and risks can be computed: in a worker process, as this one must stay responsive."""
        return self.worker is not None and isinstance(self._backend, Forkable)

    def expect(self) -> None:
        """Send the worker the newest state of a live cluster, because a question about it is likely to follow.

        Blocks until the worker has it: call it in a thread.
        """
        live, worker = self._live, self.worker
        if live is None or worker is None or worker.lost or missing_for_forecast(self._newest()):
            return
        try:
            worker.expect(ObservedCluster(live, live.snapshot(), live.policy))
        except WorkerError as error:
            LOG.warning("The worker could not prepare: %s", error)

    def looks(
        self, commands: Sequence[Command], horizon: Span, against: Sequence[Command] = (), places: Sequence[str] = ()
    ) -> Iterator[Progress[WhatIf]]:
        """Try commands in a fork and compare the outcome with the baseline, or with that of other commands.

        `places` name each of them, for refusals. Each result blocks while it is computed, in the worker process if
        there is one: call it in a thread. Not asking for the next result cancels it. Raises NotSupportedError where no
        future can be computed, UnseenError where required objects are not visible, WorkerError if the console is
        stopped meanwhile.
        """
        self._decide()
        return self._run(try_commands, tuple(commands), horizon, tuple(against), tuple(places))

    def scores(self, pod: Pod) -> ScoreTable | None:
        """Return all filter and score results of every node for this pod now; None if the engine has no scores.

        Blocks, and raises, as `looks` does.
        """
        *_, last = self._run(score_nodes, pod)
        return last.answer

    def why(self, workload: str) -> Iterator[Progress[Tried]]:
        """Explain why a workload is pending, then try suggestions in forks; each step yields the answer so far.

        Each step blocks, as those of `looks` do. The Kueue configuration of a recording is unknown: Kueue's defaults
        are used.
        """
        if not isinstance(self._backend, Forkable):
            snapshot = self._newest()
            return trying(snapshot, rehearsal_on(snapshot, DEFAULT), workload)
        return self._run(explain_pending, workload)

    def plan(self, commands: Sequence[Command], wanted: Span) -> Iterator[Progress[CapacityPlan]]:
        """Search for quota, nodes or policy with which these workloads start within the wait `wanted`; as `looks`."""
        self._decide(*PLACES)
        return self._run(find_plan, tuple(commands), wanted)

    def risk(self) -> Iterator[Progress[Risk]]:
        """Estimate the preemption risk of running workloads by many simulation runs; result by result, as `looks`."""
        self._decide(*PLACES)
        return self._run(estimate_risk)

    def ahead(self, workload: str) -> Iterator[Progress[WorkloadOutlook]]:
        """Estimate the start of a pending workload, or the preemption risk of a running one, by many simulation runs.

        Starts are calibrated with earlier estimates, and recorded for later ones. Result by result, as `looks`; no
        results where no forecast is possible.
        """
        if missing_for_forecast(self._newest(), *PLACES):
            return
        for piece in self._from_worker(estimate_outlook, workload):
            found = piece.answer
            if found is None or found.eta is None or found.eta.start is None:
                yield piece
            else:
                learned = self._estimates.take((found.eta.start.as_past_estimate,), found.time)
                eta = corrected(found.eta, learned, self._estimates.record(found.time))
                yield replace(piece, answer=replace(found, eta=eta))

    def outlook(self) -> Iterator[Progress[StartEstimates]]:
        """Estimate the starts of all pending workloads, calibrated and recorded as by `ahead`; result by result."""
        if missing_for_forecast(self._newest(), *PLACES):
            return
        for piece in self._from_worker(estimate_starts):
            found = piece.answer
            if found is None:
                yield piece
            else:
                past_estimates = [one.as_past_estimate for one in found.estimates.values()]
                learned = self._estimates.take(past_estimates, found.time)
                yield replace(piece, answer=calibrated(found, learned))

    def standing(self) -> AdmissionView:
        """Return the cluster as it is now: Snapshot, Kueue's queues and settings. May take long: call it in a thread.

        The Kueue configuration of a recording is unknown: Kueue's defaults are used.
        """
        if self._live is not None:
            return view_on(self._live.snapshot(), self._live.policy)
        if isinstance(self._backend, Forkable):
            return view_of(self._backend.fork())
        return view_on(self._newest(), SimPolicy())

    def _decide(self, *besides: type) -> None:
        """Raise UnseenError if objects on which the future depends are not visible."""
        if lacking := missing_for_forecast(self._newest(), *besides):
            raise UnseenError(f"not enough data for an answer: {'; '.join(lacking)}")

    def _forkable(self) -> Forkable:
        if not isinstance(self._backend, Forkable):
            raise NotSupportedError("A recording has no what-ifs; open its snapshot with --snapshot FILE")
        return self._backend

    def _run(self, analysis: Analysis[*Arguments, T], *arguments: *Arguments) -> Iterator[Progress[T]]:
        """The worker's results; if it returns none, those of this process. Raises NotSupportedError at once."""
        self._forkable()

        def results() -> Iterator[Progress[T]]:
            begun = False
            for progress in self._from_worker(analysis, *arguments):
                begun = True
                yield progress
            if not begun:
                yield from analysis(self._cluster(), *arguments)

        return results()

    def _from_worker(self, analysis: Analysis[*Arguments, T], *arguments: *Arguments) -> Iterator[Progress[T]]:
        """The worker's results; none without a worker, or if it fails at once. Raises WorkerError after `close`."""
        live, worker = self._live, self.worker
        if worker is None or worker.lost or not isinstance(self._backend, Forkable):
            return
        seen = ObservedCluster(live, live.snapshot(), live.policy) if live is not None else None
        results = worker.ask(analysis, seen, *arguments)
        try:
            first = next(results)
        except WorkerError as error:
            if self._closed:
                raise
            LOG.warning("The worker failed; computing in this process: %s", error)
            return
        yield first
        yield from results

    def _cluster(self) -> AnalysedCluster:
        """The cluster as the subject of an analysis in this process."""
        fork, live = self._forkable().fork, self._live
        if live is None:
            return simulated_cluster(fork())
        snapshot = live.snapshot()
        kueue = live.policy.kueue
        return AnalysedCluster(cache(fork), lambda: (snapshot, rehearsal_on(snapshot, kueue)), lambda: snapshot)
