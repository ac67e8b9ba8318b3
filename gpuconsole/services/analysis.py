"""Analyses in forks of the cluster, such as what-ifs and estimated starts, in the worker process or in this one.

`AnalysisService` has a method for each analysis. `EstimateService` records estimated starts, and compares them with
actual starts, which calibrates later estimates.
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

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
from gpuconsole.insight.pending.why import AdmissionView, Tried, rehearsal_of, rehearsal_on, trying, view_of, view_on
from gpuconsole.insight.preemption.risk import Risk, eviction_risk_steps
from gpuconsole.insight.whatif.plan import CapacityPlan, plan_steps
from gpuconsole.insight.whatif.whatif import WhatIf, what_if_steps
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


Answer = TypeVar("Answer")


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
        backend, live = self._forkable(), self._live

        def here() -> Iterator[Progress[WhatIf]]:
            found = live.snapshot() if live is not None else None
            return what_if_steps(backend.fork(), commands, horizon, against, places, found, clock=time.thread_time)

        return self._pieces(lambda worker, seen: worker.looks(commands, horizon, against, seen, places), here)

    def scores(self, pod: Pod) -> ScoreTable | None:
        """Return all filter and score results of every node for this pod now; None if the engine has no scores.

        Blocks, and raises, as `looks` does.
        """
        backend = self._forkable()
        answer = self._from_worker(lambda worker, seen: (worker.scores(pod, seen),))
        return backend.fork().placement.scores(pod) if answer is None else answer[0]

    def why(self, workload: str) -> Iterator[Progress[Tried]]:
        """Explain why a workload is pending, then try suggestions in forks; each step yields the answer so far.

        Each step blocks, as those of `looks` do. The Kueue configuration of a recording is unknown: Kueue's defaults
        are used.
        """
        return self._pieces(lambda worker, seen: worker.why(workload, seen), lambda: self._why_here(workload))

    def _why_here(self, workload: str) -> Iterator[Progress[Tried]]:
        backend, live = self._backend, self._live
        if live is not None or not isinstance(backend, Forkable):
            snapshot = self._newest() if live is None else live.snapshot()
            kueue = DEFAULT if live is None else live.policy.kueue
            simulating = backend.fork if isinstance(backend, Forkable) else None
            return trying(snapshot, rehearsal_on(snapshot, kueue), workload, simulating)
        fork = backend.fork()
        snapshot = fork.snapshot()
        return trying(snapshot, rehearsal_of(fork, snapshot), workload, lambda: fork)

    def plan(self, commands: Sequence[Command], wanted: Span) -> Iterator[Progress[CapacityPlan]]:
        """Search for quota, nodes or policy with which these workloads start within the wait `wanted`; as `looks`."""
        self._decide(*PLACES)
        backend = self._forkable()
        return self._pieces(
            lambda worker, seen: worker.plan(commands, wanted, seen),
            lambda: plan_steps(backend.fork(), commands, wanted),
        )

    def risk(self) -> Iterator[Progress[Risk]]:
        """Estimate the preemption risk of running workloads by many simulation runs; result by result, as `looks`."""
        self._decide(*PLACES)
        backend = self._forkable()
        return self._pieces(
            lambda worker, seen: worker.risk(seen),
            lambda: eviction_risk_steps(
                backend.fork(),
                found=self.standing() if self._live is not None else None,
                clock=time.monotonic,
            ),
        )

    def ahead(self, workload: str) -> Iterator[Progress[WorkloadOutlook]]:
        """Estimate the start of a pending workload, or the preemption risk of a running one, by many simulation runs.

        Starts are calibrated with earlier estimates, and recorded for later ones. Result by result, as `looks`; no
        results where no forecast is possible.
        """
        if missing_for_forecast(self._newest(), *PLACES):
            return
        for piece in self._pieces(lambda worker, seen: worker.ahead(workload, seen), lambda: iter(())):
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
        for piece in self._pieces(lambda worker, seen: worker.outlook(seen), lambda: iter(())):
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

    def _pieces(
        self, ask: Callable[[Worker, ObservedCluster | None], Iterator[Answer]], here: Callable[[], Iterator[Answer]]
    ) -> Iterator[Answer]:
        """The worker's results; if it returns none, those of this process."""

        def begin(worker: Worker, seen: ObservedCluster | None) -> tuple[Answer, Iterator[Answer]]:
            trial = ask(worker, seen)
            return next(trial), trial

        begun = self._from_worker(begin) if isinstance(self._backend, Forkable) else None
        if begun is None:
            yield from here()
        else:
            yield begun[0]
            yield from begun[1]

    def _from_worker(self, ask: Callable[[Worker, ObservedCluster | None], Answer]) -> Answer | None:
        """The worker's answer; None without a worker, or if it failed. Raises WorkerError after `close`."""
        if self.worker is None or self.worker.lost:
            return None
        try:
            live = self._live
            return ask(self.worker, ObservedCluster(live, live.snapshot(), live.policy) if live is not None else None)
        except WorkerError as error:
            if self._closed:
                raise
            LOG.warning("The worker failed; computing in this process: %s", error)
            return None
