"""The console's facade: everything that the screens use. Analyses in forks are in `answers`."""

import logging
import threading
import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from gpuconsole.backends.base import Backend, Clocked, ClusterHealth, LiveBackend
from gpuconsole.backends.guard import AuditEntry, Guard
from gpuconsole.backends.object_access import HasObjectAccess, ObjectAccess
from gpuconsole.errors import NotSupportedError
from gpuconsole.insight.forecast.backtest import ForecastDifferences
from gpuconsole.insight.forecast.forecast import Forecast
from gpuconsole.insight.health.engines import EnginesInForce, sharing
from gpuconsole.insight.health.kueue_liveness import KueueProblem
from gpuconsole.insight.health.trends import Trends
from gpuconsole.insight.index import positions
from gpuconsole.insight.index.positions import VisibilityPositions
from gpuconsole.insight.index.queues import QueueMetrics
from gpuconsole.insight.overview import LastHour, last_hour
from gpuconsole.insight.preemption.history import Losses, lost_by
from gpuconsole.model.clock import Time
from gpuconsole.model.commands import Command
from gpuconsole.model.decisions import Pending
from gpuconsole.model.documents.metadata import GeneratedNames
from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.manifests import LoadedManifests, load_text
from gpuconsole.model.manifests.kinds import is_name_taken
from gpuconsole.model.prices import Prices
from gpuconsole.model.snapshot import KEPT, Snapshot
from gpuconsole.services.answers import AnalysisService
from gpuconsole.services.estimates import EstimateService
from gpuconsole.services.forecasting import ForecastService
from gpuconsole.services.forwards import Forwards
from gpuconsole.services.loop import Loop
from gpuconsole.services.measurements import Measurements
from gpuconsole.services.status import ConsoleMode, ConsoleStatus
from gpuconsole.store import history
from gpuconsole.store.recorder import Recorder
from gpuconsole.workers.worker import Worker

LOG = logging.getLogger(__name__)
UNKNOWN = ConsoleStatus()
USUAL = Prices()
UNAUDITED = "Read-only: the audit of changes cannot be written ({}); repair the history, or start with --no-audit"
NO_FORECAST = Forecast()
NO_DIFFERENCES = ForecastDifferences()


class Console:
    """One observed and operated cluster. Mutates; methods are thread-safe unless they say otherwise."""

    def __init__(
        self,
        backend: Backend,
        *,
        about: ConsoleStatus = UNKNOWN,
        read_only: bool = False,
        protected: str = "",
        no_audit: bool = False,
        recorder: Recorder | None = None,
        worker: Worker | None = None,
        notices: Sequence[str] = (),
        prices: Prices = USUAL,
    ) -> None:
        """`about` has the constants: mode, source, engine, policy. The console closes its arguments.

        `protected` says why the cluster is read-only, if the cluster rather than the user forbids changes. `no_audit`
        allows changes of a live cluster even while the audit, which is part of the history, cannot be written.
        """
        self._backend = backend
        self._clocked = backend if isinstance(backend, Clocked) else None
        self._live = backend if isinstance(backend, LiveBackend) else None
        self._about = about
        self._recorder = recorder
        self.forecaster = ForecastService(self._live, worker, recorder) if self._live is not None else None
        """Forecasts of a live cluster; not needed for simulations."""
        self._estimates = EstimateService(recorder, about.source if self._live is not None else "")
        self._stopped = False
        self._began_recording = False
        self._known_since: Time | None = None
        """Time of the first history event, if earlier ones are unknown; None if all are known."""
        self._measurements = Measurements(recorder, about.source if self._live is not None else "")
        self.forwards = Forwards()
        self._audit_needed = about.mode is ConsoleMode.LIVE and not no_audit
        self._guard = Guard(
            backend, read_only=read_only, protected=protected, audit=self._audited, unaudited=self._unaudited
        )
        self._subscribers: list[Callable[[Snapshot], None]] = []
        self._subscribing = threading.Lock()
        self._failing: list[Callable[[Snapshot], None]] = []
        self._loop = Loop(backend, publish=self._published, record=self._recorded)
        self.answers = AnalysisService(backend, lambda: self.snapshot, worker, self._estimates)
        """Analyses in forks of the cluster."""
        self.notices: tuple[str, ...] = tuple(notices)
        """Messages of the start for the user, such as recovered sessions."""
        self.generated_names = GeneratedNames("submitted", lambda *name: is_name_taken(self.snapshot, *name))
        """Generates names of objects with a generateName: each object that is checked gets a new one."""
        self.prices = prices
        """Prices of nodes that do not state their own."""
        backend.open()

    @property
    def snapshot(self) -> Snapshot:
        """The newest Snapshot; an empty one before the first tick."""
        return self._loop.snapshot

    @property
    def trends(self) -> Trends:
        """Recent GPU utilization; only the loop adds to it."""
        return self._measurements.trends

    @property
    def status(self) -> ConsoleStatus:
        """The current status, for the header."""
        renewed, clocked = self._loop.renewed, self._clocked
        sight = self._live.health if self._live is not None else None
        age = time.monotonic() - renewed if renewed is not None else 0.0
        return replace(
            self._about,
            speed=clocked.speed if clocked else None,
            reached=clocked.reached if clocked else None,
            paused=clocked.paused if clocked else False,
            read_only=bool(self._guard.refusal),
            refusal=self._guard.refusal,
            engines=replace(self._engines(), sharing=sharing(self.snapshot)),
            time=self.snapshot.time,
            age=age if sight is None else max(age, sight.age),
            loading=renewed is None or (sight is not None and sight.loading),
            sight=sight,
            kueue=self._kueue_problems(sight),
            stalled=self._loop.stalled,
            worker=self._worker_status(),
            history=self._unsaved(),
            lost_events=self._recorder.lost if self._recorder is not None else 0,
        )

    def _kueue_problems(self, sight: ClusterHealth | None) -> tuple[KueueProblem, ...]:
        """Problems of Kueue; none while the cluster is not observed completely."""
        if sight is None or sight.lost or sight.loading:
            return ()
        stuck = self.forecaster.kueue_problem if self.forecaster is not None else None
        return (*sight.kueue, stuck) if stuck is not None else sight.kueue

    def start(self) -> None:
        """Start the clock, by a timer in another thread."""
        if self.forecaster is not None:
            self.forecaster.start()
        self._loop.start()

    def stop(self) -> None:
        """Stop the clock and release all resources, once; pending what-ifs raise WorkerError."""
        if self._stopped:
            return
        self._stopped = True
        self.forwards.close()
        if self.forecaster is not None:
            self.forecaster.stop()
        self._loop.stop()
        self._backend.close()
        self.answers.close()
        if self._recorder is not None:
            self._recorder.close()

    def tick(self, elapsed: float) -> None:
        """Let `elapsed` wall-clock seconds pass now; for tests, which start no timer."""
        self._loop.tick(elapsed)

    def hand_over(self) -> None:
        """Release the worker process for another console."""
        self.answers.worker = None

    def subscribe(self, callback: Callable[[Snapshot], None]) -> Callable[[], None]:
        """Call a function with every new Snapshot, in the loop's thread; returns a function that ends that."""
        with self._subscribing:
            self._subscribers.append(callback)

        def unsubscribe() -> None:
            with self._subscribing:
                if callback in self._subscribers:
                    self._subscribers.remove(callback)

        return unsubscribe

    def submit(self, command: Command) -> None:
        """Send a command; later Snapshots show its effect. Raises ReadOnlyError."""
        self._guard.submit(command, self.snapshot.time)

    @property
    def object_access(self) -> ObjectAccess | None:
        """Access to objects of a live cluster beyond commands; None elsewhere."""
        return self._backend.object_access() if isinstance(self._backend, HasObjectAccess) else None

    def permit(self, words: str) -> None:
        """Audit an action that may change the cluster and is not a command, such as a shell. Raises ReadOnlyError."""
        self._guard.permit(words, self.snapshot.time)

    def note(self, words: str, detail: str, *, failed: bool = False) -> None:
        """Record the outcome of a permitted action."""
        self._guard.note(words, self.snapshot.time, detail, failed=failed)

    def pause(self) -> None:
        """Pause the virtual time; a running tick stops within milliseconds."""
        self._clockwork().pause()

    def resume(self) -> None:
        self._clockwork().resume()

    def step(self) -> None:
        """Run the next moment at which something happens, with the next tick."""
        self._clockwork().step()

    def set_speed(self, speed: float) -> None:
        """Virtual seconds per second, clipped to ×1 … ×10,000."""
        self._clockwork().set_speed(speed)

    def preemptions(self, limit: int = 500) -> tuple[HistoryEvent, ...]:
        """The newest `limit` preemptions and their outcomes, oldest line first, for `insight.preemptions.rows`.

        Without a stored history, only recent ones. Raises HistoryError.
        """
        if self._recorder is not None:
            return history.preemptions(self._recorder, limit)
        return history.newest_preemptions(self.snapshot.recent, limit)

    def preemption_count(self) -> int | None:
        """Number of preemptions recorded in this session; None without a stored history. Raises HistoryError."""
        return history.preemption_count(self._recorder) if self._recorder is not None else None

    @property
    def keeps_history(self) -> bool:
        """True if the history is stored on disk."""
        return self._recorder is not None

    def last_hour(self) -> LastHour:
        """Totals of the last hour from the history; without a stored history, from the lines in memory.

        Raises HistoryError.
        """
        snapshot = self.snapshot
        if self._recorder is not None:
            found = history.last_hour(self._recorder, snapshot.time)
            return found if self._known_since is None else replace(found, since=max(found.since, self._known_since))
        return last_hour(snapshot.recent, snapshot.time)

    def losses(self) -> Losses:
        """Work lost by evictions, by queue and workload; only recent ones without a stored history.

        Raises HistoryError.
        """
        return history.losses(self._recorder) if self._recorder is not None else lost_by(self.snapshot.recent)

    def history(self, workload: str) -> tuple[HistoryEvent, ...]:
        """All events of a workload (`ns/name`), and its effects on others, oldest first. Raises HistoryError."""
        if self._recorder is not None:
            return history.of_workload(self._recorder, workload)
        return tuple(line for line in self.snapshot.recent if workload in (line.workload, line.by))

    def pending(
        self, cluster_queue: str, *, local_queue: str = "", offset: int = 0, limit: int | None = None
    ) -> list[Pending]:
        """Pending workloads of a ClusterQueue (or of one of its LocalQueues), in the order in which they are tried."""
        return positions.pending(self.snapshot, cluster_queue, local_queue=local_queue, offset=offset, limit=limit)

    @property
    def foresees(self) -> bool:
        """True on a live cluster, where Kueue's next decisions are forecast."""
        return self.forecaster is not None

    @property
    def forecast(self) -> Forecast:
        """The newest forecast of the next scheduling cycles; an empty one without forecasts."""
        return self.forecaster.forecast if self.forecaster is not None else NO_FORECAST

    @property
    def compared(self) -> ForecastDifferences:
        """The comparison of this session's forecasts with Kueue's decisions."""
        return self.forecaster.said if self.forecaster is not None else NO_DIFFERENCES

    def standings(self, cluster_queue: str, local_queue: str) -> VisibilityPositions:
        """Pending workloads of a queue from Kueue's visibility API, on a live cluster. Blocks; call it in a thread."""
        if self._live is None:
            return VisibilityPositions(queue=cluster_queue)
        return self._live.standings(cluster_queue, local_queue)

    def queue_metrics(self, cluster_queue: str) -> QueueMetrics:
        """Kueue's own metrics of a queue, on a live cluster with Prometheus. Blocks; call it in a thread."""
        if self._live is None:
            return QueueMetrics(queue=cluster_queue)
        return self._live.queue_metrics(cluster_queue)

    def check(self, text: str) -> LoadedManifests:
        """Validate manifests in a text; changes nothing."""
        return load_text(text, now=self.snapshot.time, names=self.generated_names)

    def _engines(self) -> EnginesInForce:
        return self._about.engines if self._live is None else self._live.engines

    def _clockwork(self) -> Clocked:
        if self._clocked is None:
            raise NotSupportedError("Pause and speed apply to simulations only")
        return self._clocked

    def _worker_status(self) -> str:
        worker = self.answers.worker
        return "off" if worker is None else worker.lost or "on"

    def _unsaved(self) -> str:
        """Why the history is not being written; empty if it is."""
        return self._about.history if self._recorder is None else self._recorder.failed

    def _unaudited(self) -> str:
        unsaved = self._unsaved() if self._audit_needed else ""
        return UNAUDITED.format(unsaved) if unsaved else ""

    def _published(self, snapshot: Snapshot) -> None:
        with self._subscribing:
            subscribers = tuple(self._subscribers)
        if self._recorder is not None:
            self._recorder.saw(snapshot.seen)
        self._measurements.take(snapshot)
        self._estimates.see(snapshot)
        if self.forecaster is not None:
            self.forecaster.changed(snapshot)
        for callback in subscribers:
            try:
                callback(snapshot)
            except Exception:
                # Log once for each subscriber: there are 25 Snapshots a second.
                if callback not in self._failing:
                    LOG.exception("A subscriber failed")
                    self._failing.append(callback)

    def _recorded(self, lines: Sequence[HistoryEvent]) -> None:
        if not self._began_recording:
            self._began_recording = True
            # A simulation that continues from a saved state knows only the end of its history.
            if self._live is None and len(lines) >= KEPT:
                self._known_since = min(line.time for line in lines)
        if self._recorder is not None:
            self._recorder.record(lines)
        for line in lines:
            self._guard.came_back(line)

    def _audited(self, entry: AuditEntry) -> None:
        if self._recorder is not None:
            self._recorder.audit(entry.time, entry.command, entry.outcome, entry.detail)
