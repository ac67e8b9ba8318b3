"""The console's facade: everything that the screens use. Analyses in forks of the cluster are in `Console.answers`.

`Loop` polls the backend on a timer, applies the events and publishes a Snapshot. A tick takes at most about 20 ms, and
the timer leaves at least as much between two, so that the screens stay responsive and the process uses about half a
core. The results of a simulation depend on virtual time only, not on when ticks come.

`Measurements` keeps GPU utilization trends, which continue the stored samples of earlier sessions.
"""

import logging
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from gpuconsole.backends.base import (
    Backend,
    Clocked,
    ClusterHealth,
    Forkable,
    HasObjectAccess,
    LiveBackend,
    ObjectAccess,
    Partial,
)
from gpuconsole.backends.guard import AuditEntry, Guard
from gpuconsole.errors import HistoryError, NotSupportedError
from gpuconsole.insight.cost.allocation import DEFAULT_LABELS, CostHour, CostLabels
from gpuconsole.insight.forecast.agreement import NO_COMPARISON, ShadowReport, agreement_sentence
from gpuconsole.insight.forecast.backtest import ForecastDifferences
from gpuconsole.insight.forecast.forecast import Forecast
from gpuconsole.insight.health.engines import EnginesInForce, KueueProblem, sharing
from gpuconsole.insight.health.telemetry import Trends, UtilizationSample
from gpuconsole.insight.index.queues import QueueMetrics, VisibilityPositions, pending
from gpuconsole.insight.overview import LastHour, last_hour
from gpuconsole.insight.preemption.history import Losses, lost_by
from gpuconsole.insight.series import Samples, SeriesKind
from gpuconsole.model.clock import HOUR, Span, Time
from gpuconsole.model.commands import Command
from gpuconsole.model.documents.metadata import GeneratedNames
from gpuconsole.model.events import Event, HistoryEvent, HistoryEventKind, Pending
from gpuconsole.model.manifests import LoadedManifests, load_text
from gpuconsole.model.manifests.kinds import is_name_taken
from gpuconsole.model.prices import Prices
from gpuconsole.model.snapshot import EMPTY, KEPT, Snapshot, Visibility
from gpuconsole.model.state import ClusterState
from gpuconsole.model.text import clean
from gpuconsole.services.analysis import AnalysisService, EstimateService
from gpuconsole.services.forecasting import ForecastService
from gpuconsole.services.forwards import Forwards
from gpuconsole.services.recording import HistoryPipeline
from gpuconsole.services.shadow import ShadowService
from gpuconsole.services.status import ConsoleMode, ConsoleStatus
from gpuconsole.services.time_travel import TRAVELLING, PastBackend, RecordedCluster, TimeTravel
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.store import queries
from gpuconsole.store import recorder as history
from gpuconsole.store.recorder import Recorder
from gpuconsole.store.schema import reading
from gpuconsole.workers.client import Worker

if TYPE_CHECKING:
    from apscheduler.schedulers.background import BackgroundScheduler

    from gpuconsole.services.alerting import AlertService

LOG = logging.getLogger(__name__)
INTERVAL = 0.04
"""Seconds from tick to tick: 20 ms of work, then as much rest."""
REST = 0.005
"""Seconds left to other threads after a tick, however long it took."""
MAINTENANCE = 30.0
"""Seconds from the start until old parts of the history are deleted for the first time."""
LONGEST = 0.25
"""Maximum seconds that a tick advances the time, so that it does not jump by hours when a laptop wakes up."""


def _ignore(events: Sequence[Event], now: Time, seen: Visibility) -> None:
    """Observe nothing."""


class Loop:
    """Polls the backend, applies its events to the ClusterState and publishes Snapshots. Mutates.

    `tick` is called by one thread.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        publish: Callable[[Snapshot], None],
        record: Callable[[Sequence[HistoryEvent]], None],
        observe: Callable[[Sequence[Event], Time, Visibility], None] = _ignore,
        clock: Callable[[], float] = time.monotonic,
        interval: float = INTERVAL,
    ) -> None:
        """`record` gets the history events of a tick, `observe` all events, the time reached and what is visible.

        `interval` is the number of seconds from tick to tick.
        """
        self._backend = backend
        self._interval = interval
        self._timekeeper = backend if isinstance(backend, (Clocked, LiveBackend)) else None
        self._partial = backend if isinstance(backend, Partial) else None
        self._publish = publish
        self._record = record
        self._observe = observe
        self._clock = clock
        self._state = ClusterState()
        self._scheduler: BackgroundScheduler | None = None
        self._last = clock()
        self.snapshot: Snapshot = EMPTY
        self.renewed: float | None = None
        """When the data were last renewed, by `clock`; None before the first tick."""
        self.stalled = ""
        """The error of the last tick; empty without one."""

    def tick(self, elapsed: float) -> None:
        """Let `elapsed` wall-clock seconds pass. Never raises: errors are logged and set in `stalled`."""
        try:
            self._work(elapsed)
        except Exception as error:
            self._stall(clean(f"{type(error).__name__}: {error}"))
        else:
            self.stalled = ""

    def start(self, hourly: Callable[[], None] | None = None) -> None:
        """Call `tick` by a timer, in a separate thread, until `stop`; `hourly` soon and then each hour, in another."""
        from apscheduler.schedulers.background import BackgroundScheduler

        # A tick that comes too late is skipped, and its time counts in the next one, which needs no warning.
        logging.getLogger("apscheduler").setLevel(logging.ERROR)
        self._scheduler = BackgroundScheduler(timezone="UTC")
        self._last = self._clock()
        self._scheduler.add_job(self._timed, "interval", seconds=self._interval, max_instances=1, coalesce=True)
        if hourly is not None:
            soon = datetime.fromtimestamp(time.time_ns() / 1e9 + MAINTENANCE, UTC)
            self._scheduler.add_job(hourly, "interval", hours=1, next_run_time=soon, max_instances=1, coalesce=True)
        self._scheduler.start()

    def stop(self) -> None:
        """Stop the timer, after a running tick."""
        if self._scheduler is not None:
            self._scheduler.shutdown(wait=True)
            self._scheduler = None

    def _timed(self) -> None:
        now = self._clock()
        elapsed, self._last = min(max(LONGEST, 2 * self._interval), now - self._last), now
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
            self._observe(events, self._state.time, self._state.seen)
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


class Measurements:
    """Keeps the recent GPU utilization of one cluster, for trends. Mutates; only the loop calls `take`.

    Others may read `trends`.
    """

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
            with reading(self._recorder.path) as db:
                return history.kept(db, self._source, nodes, self._now - HOUR)
        except (HistoryError, sqlite3.Error):
            LOG.exception("Earlier GPU metrics cannot be read")
            return ()


UNKNOWN = ConsoleStatus()
USUAL = Prices()
"""Default prices of GPUs, for clusters without prices of their own."""
UNAUDITED = "Read-only: the audit of changes cannot be written ({}); repair the history, or start with --no-audit"
UNAUDITED_HERE = "Read-only: {} writes the history, and so the audit of changes; end it, or start with --no-audit"
COUNTED = (HistoryEventKind.ADMITTED, HistoryEventKind.PREEMPTED, HistoryEventKind.EVICTED)
"""Kinds of history events that are counted for metrics."""
UNKNOWN_POLICY = SimPolicy()
NO_FORECAST = Forecast()
NO_DIFFERENCES = ForecastDifferences()


class ShownPast(NamedTuple):
    """A recorded cluster at an earlier time that is shown, and its analyses."""

    cluster: RecordedCluster
    answers: AnalysisService


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
        interval: float = INTERVAL,
        forecasts: bool = True,
        cost_labels: CostLabels = DEFAULT_LABELS,
    ) -> None:
        """`about` has the constants: mode, source, engine, policy. The console closes its arguments.

        `protected` says why the cluster is read-only, if the cluster rather than the user forbids changes. `no_audit`
        allows changes of a live cluster even while the audit, which is part of the history, cannot be written.
        `interval` is the number of seconds from tick to tick. Without `forecasts`, Kueue's next decisions are not
        forecast, which saves processor time where nobody looks at them.
        """
        self._backend = backend
        self._clocked = backend if isinstance(backend, Clocked) else None
        self._live = backend if isinstance(backend, LiveBackend) else None
        self._about = about
        self._recorder = recorder
        self.shadow = (
            ShadowService(self._live, worker, recorder) if self._live is not None and worker and forecasts else None
        )
        """Checks Kueue's decisions in a live cluster; None for simulations, and without a worker or forecasts."""
        self.forecaster = (
            ForecastService(self._live, worker, recorder, self.shadow) if self._live is not None and forecasts else None
        )
        """Forecasts of a live cluster; None for simulations, which need none, and without `forecasts`."""
        self.alerting: AlertService | None = None
        """Evaluates the user's alerting rules on this console's metrics; set before `start`, None without rules."""
        self._estimates = EstimateService(recorder, about.source if self._live is not None else "")
        self._stopped = False
        self._began_recording = False
        self.event_counts: Counter[tuple[HistoryEventKind, str, str]] = Counter()
        """Number of admissions, preemptions and evictions since the start, by queue and reason."""
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
        self._pipeline = (
            HistoryPipeline(recorder, prices, cost_labels, self._policy)
            if recorder is not None and recorder.records
            else None
        )
        self._loop = Loop(
            backend, publish=self._published, record=self._recorded, observe=self._observed, interval=interval
        )
        self._answers = AnalysisService(backend, lambda: self.snapshot, worker, self._estimates)
        self._past: ShownPast | None = None
        """What is shown in place of the newest data."""
        self.time_travel = TimeTravel(recorder.path, recorder.recording) if recorder is not None else None
        """Earlier states of the cluster; None without a stored history."""
        self.notices: tuple[str, ...] = tuple(notices)
        """Messages of the start for the user, such as recovered sessions."""
        self.generated_names = GeneratedNames("submitted", lambda *name: is_name_taken(self.snapshot, *name))
        """Generates names of objects with a generateName: each object that is checked gets a new one."""
        self.cost_labels = cost_labels
        """Labels that name the team, project and user of a cost."""
        self.prices = prices
        """Prices of nodes that do not state their own."""
        backend.open()

    @property
    def snapshot(self) -> Snapshot:
        """The newest Snapshot, or that of the time that `travel_to` shows; an empty one before the first tick."""
        past = self._past
        return self._loop.snapshot if past is None else past.cluster.snapshot

    @property
    def answers(self) -> AnalysisService:
        """Analyses in forks of the shown cluster; another object for each time that `travel_to` shows."""
        past = self._past
        return self._answers if past is None else past.answers

    @property
    def is_travelling(self) -> bool:
        """True while an earlier time is shown."""
        return self._past is not None

    @property
    def newest(self) -> Snapshot:
        """The newest Snapshot, also while an earlier time is shown."""
        return self._loop.snapshot

    def travel_to(self, cluster: RecordedCluster | None) -> None:
        """Show a recorded cluster in place of the newest data, and refuse changes; None shows the newest data again."""
        if cluster is None:
            self._past, self._guard.suspended = None, ""
        else:
            # Estimates about the past are not recorded, and starts that are known by now do not calibrate them.
            backend, worker = PastBackend(cluster), self._answers.worker
            answers = AnalysisService(backend, backend.snapshot, worker, EstimateService())
            self._guard.suspended = TRAVELLING
            self._past = ShownPast(cluster, answers)
        self._show(self.snapshot)

    @property
    def trends(self) -> Trends:
        """Recent GPU utilization; only the loop adds to it."""
        return self._measurements.trends

    @property
    def status(self) -> ConsoleStatus:
        """The current status, for the header."""
        renewed, clocked, past = self._loop.renewed, self._clocked, self._past
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
            behind=None if past is None else max(0, self.newest.time - past.cluster.snapshot.time),
            age=age if sight is None else max(age, sight.age),
            loading=renewed is None or (sight is not None and sight.loading),
            sight=sight,
            kueue=self._kueue_problems(sight) if past is None else (),
            alerts=len(self.alerting.firing) if self.alerting is not None and past is None else 0,
            agreement=report.last_day if (report := self.shadow_report) is not None else NO_COMPARISON,
            stalled=self._loop.stalled,
            worker=self._worker_status(),
            history=self._unsaved(),
            lost_events=self._recorder.lost if self._recorder is not None else 0,
            failed_writes=self._recorder.failed_writes if self._recorder is not None else 0,
        )

    @property
    def shadow_report(self) -> ShadowReport | None:
        """How Kueue's decisions compare with the engine's, until the shown time; None where nothing compares them."""
        past = self._past
        if past is None:
            return self.shadow.shown if self.shadow is not None else None
        cluster = past.cluster
        return cluster.agreement.as_report(cluster.snapshot.time) if not cluster.staged else None

    @property
    def agreement(self) -> str:
        """How often the engine decided as Kueue did, as a sentence; empty where nothing compares them."""
        report = self.shadow_report
        return agreement_sentence(report.last_day, report.known_since) if report is not None else ""

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
        if self.shadow is not None:
            self.shadow.start()
        if self.alerting is not None:
            self.alerting.start()
        self._loop.start(self._recorder.prune if self._recorder is not None else None)

    def stop(self) -> None:
        """Stop the clock and release all resources, once; pending what-ifs raise WorkerError."""
        if self._stopped:
            return
        self._stopped = True
        self.forwards.close()
        if self.forecaster is not None:
            self.forecaster.stop()
        if self.shadow is not None:
            self.shadow.stop()
        if self.alerting is not None:
            self.alerting.stop()
        if self._recorder is not None:
            self._recorder.stop_pruning()
        self._loop.stop()
        self._backend.close()
        self._answers.close()
        if self._pipeline is not None:
            self._pipeline.finish()
        if self._recorder is not None:
            self._recorder.close()

    def tick(self, elapsed: float) -> None:
        """Let `elapsed` wall-clock seconds pass now; for tests, which start no timer."""
        self._loop.tick(elapsed)

    def hand_over(self) -> None:
        """Give up the worker process, because another console of this program takes it over."""
        self._answers.worker = None

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
        """Allow and audit an action beside commands that may change the cluster (a shell). Raises ReadOnlyError."""
        self._guard.permit(words, self.snapshot.time)

    def note(self, words: str, detail: str, *, failed: bool = False) -> None:
        """Audit the outcome of an action that `permit` allowed, with the same `words`."""
        self._guard.note(words, self.snapshot.time, detail, failed=failed)

    def pause(self) -> None:
        """Pause the virtual time; a running tick stops within milliseconds."""
        self._clockwork().pause()

    def resume(self) -> None:
        self._clockwork().resume()

    def step(self) -> None:
        """Let the next tick advance virtual time to the next moment at which something happens."""
        self._clockwork().step()

    def set_speed(self, speed: float) -> None:
        """Set the virtual seconds per wall-clock second, clipped to ×1 … ×10,000."""
        self._clockwork().set_speed(speed)

    def preemptions(self, limit: int = 500) -> tuple[HistoryEvent, ...]:
        """The newest `limit` preemptions and their outcomes, oldest first, for `insight.preemption.history.rows`.

        Without a stored history, only recent ones. Raises HistoryError.
        """
        if self._past is not None:
            return history.newest_preemptions(self._past.cluster.events, limit)
        if self._recorder is not None:
            return history.preemptions(self._recorder, limit)
        return history.newest_preemptions(self.snapshot.recent, limit)

    def preemption_count(self) -> int | None:
        """Number of preemptions recorded in this session; None without a stored history. Raises HistoryError.

        None also while an earlier time is shown.
        """
        if self._recorder is None or self._past is not None:
            return None
        return history.preemption_count(self._recorder)

    @property
    def keeps_history(self) -> bool:
        """True if the history is stored on disk."""
        return self._recorder is not None

    @property
    def history_path(self) -> Path | None:
        """The file of the history; None if no history is stored."""
        return self._recorder.path if self._recorder is not None else None

    def last_hour(self) -> LastHour:
        """Totals of the last hour from the history; without a stored history, from the events in memory.

        Raises HistoryError.
        """
        past, snapshot = self._past, self.snapshot
        if past is not None:
            return last_hour(past.cluster.events, snapshot.time)
        if self._recorder is not None:
            found = history.last_hour(self._recorder, snapshot.time)
            return found if self._known_since is None else replace(found, since=max(found.since, self._known_since))
        return last_hour(snapshot.recent, snapshot.time)

    def losses(self) -> Losses:
        """Work lost by evictions, by queue and workload; only recent ones without a stored history.

        Raises HistoryError.
        """
        if self._past is not None:
            return lost_by(self._past.cluster.events)
        return history.losses(self._recorder) if self._recorder is not None else lost_by(self.snapshot.recent)

    def history(self, workload: str) -> tuple[HistoryEvent, ...]:
        """All events of a workload (`ns/name`), and its effects on others, oldest first. Raises HistoryError."""
        if self._recorder is not None:
            found = history.of_workload(self._recorder, workload)
            return found if self._past is None else tuple(line for line in found if line.time <= self.snapshot.time)
        return tuple(line for line in self.snapshot.recent if workload in (line.workload, line.by))

    def events(self, since: Time, until: Time, kinds: Sequence[HistoryEventKind]) -> list[HistoryEvent]:
        """History events of these kinds in [since, until), oldest first; only recent ones without a stored history.

        Raises HistoryError.
        """
        lines: Iterable[HistoryEvent] = self.snapshot.recent
        until = min(until, self.snapshot.time + 1)
        stored: list[HistoryEvent] = []
        if self._recorder is not None:
            # Lines that are written meanwhile are in both.
            lines = self._recorder.unflushed().values()
            with reading(self._recorder.path) as db:
                stored = list(queries.events(db, self._recorder.recording, since, until, kinds))
        known = {(line.time, line.what, line.workload, line.by) for line in stored}
        fresh = [line for line in lines if line.what in kinds and since <= line.time < until]
        return stored + [line for line in fresh if (line.time, line.what, line.workload, line.by) not in known]

    def cost_hours(self, since: Time, until: Time) -> list[CostHour]:
        """Recorded costs of the hours that overlap a window; empty without a stored history. Raises HistoryError."""
        return self._recorded_costs(queries.cost_hours, since, until)

    def cost_sums(self, since: Time, until: Time) -> list[CostHour]:
        """The same costs as `cost_hours`, summed by owner, which is faster; `hour` is the owner's first hour."""
        return self._recorded_costs(queries.cost_sums, since, until)

    def _recorded_costs(
        self, read: Callable[[sqlite3.Connection, int, Time, Time], list[CostHour]], since: Time, until: Time
    ) -> list[CostHour]:
        if self._recorder is None:
            return []
        with reading(self._recorder.path) as db:
            return read(db, self._recorder.recording, since, until)

    def samples(
        self, since: Time, until: Time, span: Span, *, kind: SeriesKind | None = None, name: str | None = None
    ) -> list[Samples]:
        """Recorded time series of a window, a sample per minute or per hour (`span`), oldest first.

        With `kind` and `name` only those of one queue, cohort or flavor; empty without a stored history. Raises
        HistoryError.
        """
        if self._recorder is None:
            return []
        with reading(self._recorder.path) as db:
            return queries.samples(db, self._recorder.recording, since, until, span=span, kind=kind, name=name)

    def pending(
        self, cluster_queue: str, *, local_queue: str = "", offset: int = 0, limit: int | None = None
    ) -> list[Pending]:
        """Pending workloads of a ClusterQueue (or of one of its LocalQueues), in the order in which they are tried."""
        return pending(self.snapshot, cluster_queue, local_queue=local_queue, offset=offset, limit=limit)

    @property
    def foresees(self) -> bool:
        """True if Kueue's next decisions are forecast: on a live cluster only."""
        return self.forecaster is not None

    @property
    def forecast(self) -> Forecast:
        """The newest forecast of the next scheduling cycles; an empty one without forecasts."""
        return self.forecaster.forecast if self.forecaster is not None and self._past is None else NO_FORECAST

    @property
    def compared(self) -> ForecastDifferences:
        """Return how this session's forecasts differed from Kueue's decisions."""
        return self.forecaster.said if self.forecaster is not None else NO_DIFFERENCES

    def standings(self, cluster_queue: str, local_queue: str) -> VisibilityPositions:
        """Pending workloads of a queue from Kueue's visibility API, on a live cluster. Blocks; call it in a thread."""
        if self._live is None or self._past is not None:
            return VisibilityPositions(queue=cluster_queue)
        return self._live.standings(cluster_queue, local_queue)

    def queue_metrics(self, cluster_queue: str) -> QueueMetrics:
        """Kueue's own metrics of a queue, on a live cluster with a source of them. Blocks; call it in a thread."""
        if self._live is None or self._past is not None:
            return QueueMetrics(queue=cluster_queue)
        return self._live.queue_metrics(cluster_queue)

    def check(self, text: str) -> LoadedManifests:
        """Read and validate manifests in a text; changes nothing. The objects are created when they are submitted."""
        return load_text(text, now=0, names=self.generated_names)

    def _engines(self) -> EnginesInForce:
        return self._about.engines if self._live is None else self._live.engines

    def _clockwork(self) -> Clocked:
        if self._clocked is None:
            raise NotSupportedError("Pause and speed apply to simulations only")
        return self._clocked

    def _worker_status(self) -> str:
        worker = self._answers.worker
        return "off" if worker is None else worker.lost or "on"

    def _unsaved(self) -> str:
        """Why the history is not being written; empty if it is."""
        if self._recorder is None:
            return self._about.history
        return self._recorder.failed or (self._pipeline.failed if self._pipeline is not None else "")

    def _unaudited(self) -> str:
        unsaved = self._unsaved() if self._audit_needed else ""
        writer = self._about.history_writer
        return (UNAUDITED_HERE.format(writer) if writer else UNAUDITED.format(unsaved)) if unsaved else ""

    def _published(self, snapshot: Snapshot) -> None:
        if self._recorder is not None:
            self._recorder.saw(snapshot.seen)
        self._measurements.take(snapshot)
        self._estimates.see(snapshot)
        if self.forecaster is not None:
            self.forecaster.changed(snapshot)
        if self.shadow is not None:
            self.shadow.published(snapshot)
        if self._past is None:
            self._show(snapshot)

    def _show(self, snapshot: Snapshot) -> None:
        """Pass a Snapshot to the subscribers."""
        with self._subscribing:
            subscribers = tuple(self._subscribers)
        for callback in subscribers:
            try:
                callback(snapshot)
            except Exception:
                # Log once for each subscriber: there are 25 Snapshots a second.
                if callback not in self._failing:
                    LOG.exception("A subscriber failed")
                    self._failing.append(callback)

    def _policy(self) -> SimPolicy:
        """The settings of the schedulers, as far as known."""
        return self._backend.policy if isinstance(self._backend, Forkable | LiveBackend) else UNKNOWN_POLICY

    def _observed(self, events: Sequence[Event], now: Time, seen: Visibility) -> None:
        if self._pipeline is not None:
            self._pipeline.add(events, now, seen)
        if self.shadow is not None:
            self.shadow.observe(events)

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
            if line.what in COUNTED:
                self.event_counts[line.what, line.queue, line.reason] += 1

    def _audited(self, entry: AuditEntry) -> None:
        if self._recorder is not None:
            self._recorder.audit(entry.time, entry.command, entry.outcome, entry.detail)
