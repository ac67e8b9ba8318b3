"""The console's facade: all that the screens know of the world behind them."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from gpuconsole.backends.base import Backend, Clocked, Forkable, Live
from gpuconsole.backends.desk import Attended, Desk
from gpuconsole.backends.guard import Entry, Guard
from gpuconsole.errors import NotSupportedError, WorkerError
from gpuconsole.insight import positions
from gpuconsole.insight.ahead import Ahead
from gpuconsole.insight.engines import Engines, sharing
from gpuconsole.insight.expected_start import corrected
from gpuconsole.insight.forecast import Forecast
from gpuconsole.insight.forecast_check import Differences
from gpuconsole.insight.losses import Losses, lost_by
from gpuconsole.insight.outlook import Outlook, calibrated
from gpuconsole.insight.plan import Planning, planning
from gpuconsole.insight.queue_metrics import QueueMetrics
from gpuconsole.insight.risk import Foreboding, foreboding
from gpuconsole.insight.standing import Standing, standing_of, standing_on
from gpuconsole.insight.standings import Standings
from gpuconsole.insight.trends import Trends
from gpuconsole.insight.whatif import Look, looks
from gpuconsole.insight.why import Tried, rehearsal_of, rehearsal_on, trying
from gpuconsole.model.clock import Span
from gpuconsole.model.cluster import Pod
from gpuconsole.model.commands import Command
from gpuconsole.model.decisions import Pending
from gpuconsole.model.events import Happened
from gpuconsole.model.manifests import Loaded, load_text
from gpuconsole.model.prices import Prices
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.scheduling.kueue.config import DEFAULT
from gpuconsole.scheduling.score_table import ScoreTable
from gpuconsole.services.estimates import Estimates
from gpuconsole.services.forecasting import Forecaster
from gpuconsole.services.forwards import Forwards
from gpuconsole.services.loop import Loop
from gpuconsole.services.measurements import Measurements
from gpuconsole.services.status import Status
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.store import history
from gpuconsole.store.recorder import Recorder
from gpuconsole.workers.worker import Seen, Worker

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation

LOG = logging.getLogger(__name__)
Answer = TypeVar("Answer")
UNKNOWN = Status()
USUAL = Prices()
NO_FORECAST = Forecast()
NO_DIFFERENCES = Differences()


class Console:
    """One cluster, watched and operated. Mutates; methods may be called from any thread unless they say otherwise."""

    def __init__(
        self,
        backend: Backend,
        *,
        about: Status = UNKNOWN,
        read_only: bool = False,
        protected: str = "",
        recorder: Recorder | None = None,
        worker: Worker | None = None,
        notices: Sequence[str] = (),
        prices: Prices = USUAL,
    ) -> None:
        """`about` carries what does not change: mode, source, engine, policy. The console closes what it is given.

        `protected` says why nothing may be changed, where the cluster forbids it rather than the user.
        """
        self._backend = backend
        self._clocked = backend if isinstance(backend, Clocked) else None
        self._live = backend if isinstance(backend, Live) else None
        self._about = about
        self._recorder = recorder
        self._worker = worker
        self.forecaster = Forecaster(self._live, worker, recorder) if self._live is not None else None
        """Looks ahead on a live cluster; elsewhere nobody has to guess."""
        self._estimates = Estimates(recorder, about.source if self._live is not None else "")
        self._stopped = False
        self._measurements = Measurements(recorder, about.source if self._live is not None else "")
        self.forwards = Forwards()
        self._guard = Guard(backend, read_only=read_only, protected=protected, audit=self._audited)
        self._subscribers: list[Callable[[Snapshot], None]] = []
        self._subscribing = threading.Lock()
        self._failing: list[Callable[[Snapshot], None]] = []
        self._loop = Loop(backend, publish=self._published, record=self._recorded)
        self.notices: tuple[str, ...] = tuple(notices)
        """What the start has to say to people, such as what was recovered."""
        self.prices = prices
        """What machines cost that do not say it themselves."""
        backend.open()

    @property
    def snapshot(self) -> Snapshot:
        """The newest Snapshot; an empty one before the first tick."""
        return self._loop.snapshot

    @property
    def trends(self) -> Trends:
        """How busy GPUs were lately; only the loop adds to it."""
        return self._measurements.trends

    @property
    def status(self) -> Status:
        renewed, clocked = self._loop.renewed, self._clocked
        sight = self._live.health if self._live is not None else None
        age = time.monotonic() - renewed if renewed is not None else 0.0
        return replace(
            self._about,
            speed=clocked.speed if clocked else None,
            reached=clocked.reached if clocked else None,
            paused=clocked.paused if clocked else False,
            read_only=bool(self._guard.refusal),
            engines=replace(self._engines(), sharing=sharing(self.snapshot)),
            time=self.snapshot.time,
            age=age if sight is None else max(age, sight.age),
            loading=renewed is None or (sight is not None and sight.loading),
            sight=sight,
            stalled=self._loop.stalled,
            worker=self._worker_status(),
            history=self._history_status(),
        )

    def start(self) -> None:
        """Let the time run, by a timer in another thread."""
        if self.forecaster is not None:
            self.forecaster.start()
        self._loop.start()

    def stop(self) -> None:
        """Stop the time and let go of everything, once; whoever waits for a what-if gets a WorkerError."""
        if self._stopped:
            return
        self._stopped = True
        self.forwards.close()
        if self.forecaster is not None:
            self.forecaster.stop()
        self._loop.stop()
        self._backend.close()
        if self._worker is not None:
            self._worker.close()
        if self._recorder is not None:
            self._recorder.close()

    def tick(self, elapsed: float) -> None:
        """Let `elapsed` wall-clock seconds pass now; for tests, which start no timer."""
        self._loop.tick(elapsed)

    @property
    def worker(self) -> Worker | None:
        """The process that computes what-ifs, while this console has one."""
        return self._worker

    def hand_over(self) -> None:
        """Leave the worker process to another console."""
        self._worker = None

    def subscribe(self, callback: Callable[[Snapshot], None]) -> Callable[[], None]:
        """Have every new Snapshot told, from the loop's thread; returns what ends that."""
        with self._subscribing:
            self._subscribers.append(callback)

        def unsubscribe() -> None:
            with self._subscribing:
                if callback in self._subscribers:
                    self._subscribers.remove(callback)

        return unsubscribe

    def submit(self, command: Command) -> None:
        """Ask for a change; its effect comes with a later Snapshot. Raises ReadOnlyError."""
        self._guard.submit(command, self.snapshot.time)

    @property
    def desk(self) -> Desk | None:
        """What can be asked of a live cluster beside commands; None where there is none to ask."""
        return self._backend.desk() if isinstance(self._backend, Attended) else None

    def permit(self, words: str) -> None:
        """Note something that may change the cluster, and is no command: a shell. Raises ReadOnlyError."""
        self._guard.permit(words, self.snapshot.time)

    def note(self, words: str, detail: str, *, failed: bool = False) -> None:
        """Note what became of something that was permitted."""
        self._guard.note(words, self.snapshot.time, detail, failed=failed)

    def pause(self) -> None:
        """Stop the virtual time; a running tick notices within milliseconds."""
        self._clockwork().pause()

    def resume(self) -> None:
        self._clockwork().resume()

    def step(self) -> None:
        """Run the next moment at which something happens, with the next tick."""
        self._clockwork().step()

    def set_speed(self, speed: float) -> None:
        """Virtual seconds a second, clipped to ×1 … ×10,000."""
        self._clockwork().set_speed(speed)

    def preemptions(self, limit: int = 500) -> tuple[Happened, ...]:
        """The newest `limit` preemptions and what became of them, oldest line first, for `insight.preemptions.rows`.

        Where no history is kept there are only those of late. Raises HistoryError.
        """
        if self._recorder is not None:
            return history.preemptions(self._recorder, limit)
        return history.newest_preemptions(self.snapshot.recent, limit)

    def losses(self) -> Losses:
        """The work that evictions took, by queue and workload; of late only, where no history is kept.

        Raises HistoryError.
        """
        return history.losses(self._recorder) if self._recorder is not None else lost_by(self.snapshot.recent)

    def history(self, workload: str) -> tuple[Happened, ...]:
        """All that happened to a workload (`ns/name`), and what it did to others, oldest first. Raises HistoryError."""
        if self._recorder is not None:
            return history.of_workload(self._recorder, workload)
        return tuple(line for line in self.snapshot.recent if workload in (line.workload, line.by))

    def pending(
        self, cluster_queue: str, *, local_queue: str = "", offset: int = 0, limit: int | None = None
    ) -> list[Pending]:
        """Who waits for a ClusterQueue (or at one of its LocalQueues), in the order in which it would be tried."""
        return positions.pending(self.snapshot, cluster_queue, local_queue=local_queue, offset=offset, limit=limit)

    @property
    def foresees(self) -> bool:
        """True on a live cluster, where what comes next is not what we decide."""
        return self.forecaster is not None

    @property
    def forecast(self) -> Forecast:
        """What the next cycles would do, as it was foreseen last; an empty one where nothing is foreseen."""
        return self.forecaster.forecast if self.forecaster is not None else NO_FORECAST

    @property
    def compared(self) -> Differences:
        """How the forecasts of this session compared with what Kueue did."""
        return self.forecaster.said if self.forecaster is not None else NO_DIFFERENCES

    def standings(self, cluster_queue: str, local_queue: str) -> Standings:
        """Who waits for a queue by Kueue's own word, on a live cluster. Waits for its answer; call it in a thread."""
        if self._live is None:
            return Standings(queue=cluster_queue)
        return self._live.standings(cluster_queue, local_queue)

    def queue_metrics(self, cluster_queue: str) -> QueueMetrics:
        """What Kueue's own metrics say of a queue, on a live cluster with a Prometheus. Waits for it, too."""
        if self._live is None:
            return QueueMetrics(queue=cluster_queue)
        return self._live.queue_metrics(cluster_queue)

    def looks(
        self, commands: Sequence[Command], horizon: Span, against: Sequence[Command] = (), places: Sequence[str] = ()
    ) -> Iterator[Look]:
        """Try commands in a fork and compare its future with what comes anyway (or of other commands), look by look.

        `places` name each of them, for refusals. Each look blocks while it is computed, in the worker process where
        there is one: ask in a thread. Who stops asking gives up. Raises NotSupportedError where no future can be
        computed, WorkerError if the console is stopped meanwhile.
        """
        backend, live = self._forkable(), self._live

        def here() -> Iterator[Look]:
            found = live.snapshot() if live is not None else None
            return looks(backend.fork(), commands, horizon, against, places, found)

        return self._pieces(lambda worker, seen: worker.looks(commands, horizon, against, seen, places), here)

    def scores(self, pod: Pod) -> ScoreTable | None:
        """What every filter and score says of every node if this pod came now; None where the engine has no such table.

        Blocks while it computes, and raises, as `looks` does.
        """
        backend = self._forkable()
        answer = self._from_worker(lambda worker, seen: (worker.scores(pod, seen),))
        return backend.fork().placement.scores(pod) if answer is None else answer[0]

    def why(self, workload: str) -> Iterator[Tried]:
        """Why a workload waits, and what would let it in: changes that are tried in forks, piece by piece.

        Each piece blocks, as those of `looks` do. Of a recording nobody knows how its Kueue was set up: there it is
        asked by Kueue's defaults.
        """
        return self._pieces(lambda worker, seen: worker.why(workload, seen), lambda: self._why_here(workload))

    def _why_here(self, workload: str) -> Iterator[Tried]:
        backend, live = self._backend, self._live
        if live is not None or not isinstance(backend, Forkable):
            snapshot = self.snapshot if live is None else live.snapshot()
            kueue = DEFAULT if live is None else live.policy.kueue
            simulating = backend.fork if isinstance(backend, Forkable) else None
            return trying(snapshot, rehearsal_on(snapshot, kueue), workload, simulating)
        fork = backend.fork()
        snapshot = fork.snapshot()
        return trying(snapshot, rehearsal_of(fork, snapshot), workload, lambda: fork)

    def plan(self, commands: Sequence[Command], wanted: Span) -> Iterator[Planning]:
        """What quota, nodes or policy would let these run within a wait, piece by piece, as `looks` does."""
        backend = self._forkable()
        return self._pieces(
            lambda worker, seen: worker.plan(commands, wanted, seen),
            lambda: planning(backend.fork(), commands, wanted),
        )

    def risk(self) -> Iterator[Foreboding]:
        """What may evict running work, run by run, as `looks` does."""
        backend = self._forkable()
        return self._pieces(
            lambda worker, seen: worker.risk(seen),
            lambda: foreboding(backend.fork(), found=self.standing() if self._live is not None else None),
        )

    @property
    def foretells(self) -> bool:
        """True where there is a process to run the cluster forward: this one has keys to answer."""
        return self._worker is not None and isinstance(self._backend, Forkable)

    def ahead(self, workload: str) -> Iterator[Ahead]:
        """When a waiting workload starts, or what may evict a running one, by many runs of the cluster.

        A start is corrected by what became of earlier estimates of this console, and remembered for later ones.
        Piece by piece, as `looks`; nothing at all where nothing is foretold.
        """
        for piece in self._pieces(lambda worker, seen: worker.ahead(workload, seen), lambda: iter(())):
            start = piece.eta.start if piece.eta is not None else None
            if piece.eta is None or start is None:
                yield piece
            else:
                learned = self._estimates.take((start.told,), piece.time)
                yield replace(piece, eta=corrected(piece.eta, learned, self._estimates.record(piece.time)))

    def outlook(self) -> Iterator[Outlook]:
        """When all that waits starts, corrected and remembered as by `ahead`."""
        for piece in self._pieces(lambda worker, seen: worker.outlook(seen), lambda: iter(())):
            told = [one.told for one in piece.estimates.values()]
            yield calibrated(piece, self._estimates.take(told, piece.time)) if piece.whole else piece

    def fork(self) -> "Simulation":
        """A simulation of the cluster as it is now, for answers that ask the engines or try something.

        Takes as long as there is much to copy: call it in a thread. Raises NotSupportedError for a recording.
        """
        return self._forkable().fork()

    def standing(self) -> Standing:
        """The cluster as it is now, for answers about that. Call it in a thread, as `fork`.

        Of a recording nobody knows how its Kueue was set up: it is taken to be by Kueue's defaults.
        """
        if self._live is not None:
            return standing_on(self._live.snapshot(), self._live.policy)
        if isinstance(self._backend, Forkable):
            return standing_of(self._backend.fork())
        return standing_on(self.snapshot, SimPolicy())

    def _forkable(self) -> Forkable:
        if not isinstance(self._backend, Forkable):
            raise NotSupportedError("A recording has no other future; open its snapshot with --snapshot FILE")
        return self._backend

    def _pieces(
        self, ask: Callable[[Worker, Seen | None], Iterator[Answer]], here: Callable[[], Iterator[Answer]]
    ) -> Iterator[Answer]:
        """The worker's answer piece by piece; where it does not begin one, this process answers."""

        def begin(worker: Worker, seen: Seen | None) -> tuple[Answer, Iterator[Answer]]:
            trial = ask(worker, seen)
            return next(trial), trial

        begun = self._from_worker(begin) if isinstance(self._backend, Forkable) else None
        if begun is None:
            yield from here()
        else:
            yield begun[0]
            yield from begun[1]

    def _from_worker(self, ask: Callable[[Worker, Seen | None], Answer]) -> Answer | None:
        """What the worker process says; None where there is none, or it did not answer."""
        if self._worker is None or self._worker.lost:
            return None
        try:
            live = self._live
            return ask(self._worker, Seen(live, live.snapshot(), live.policy) if live is not None else None)
        except WorkerError as error:
            if self._stopped:
                raise
            LOG.warning("The worker did not answer, so this process does: %s", error)
            return None

    def check(self, text: str) -> Loaded:
        """Read manifests from a text and say what is wrong with them; changes nothing."""
        return load_text(text, now=self.snapshot.time)

    def _engines(self) -> Engines:
        return self._about.engines if self._live is None else self._live.engines

    def _clockwork(self) -> Clocked:
        if self._clocked is None:
            raise NotSupportedError("The time of a live cluster cannot be stopped or hurried")
        return self._clocked

    def _worker_status(self) -> str:
        if self._worker is None:
            return "off"
        return self._worker.lost or "on"

    def _history_status(self) -> str:
        recorder = self._recorder
        if recorder is None:
            return self._about.history
        return recorder.failed or (
            f"history: {recorder.lost:,} events lost, the disk is too slow" if recorder.lost else ""
        )

    def _published(self, snapshot: Snapshot) -> None:
        with self._subscribing:
            subscribers = tuple(self._subscribers)
        self._measurements.take(snapshot)
        self._estimates.see(snapshot)
        if self.forecaster is not None:
            self.forecaster.changed(snapshot)
        for callback in subscribers:
            try:
                callback(snapshot)
            except Exception:
                # Once each: there are 25 Snapshots a second.
                if callback not in self._failing:
                    LOG.exception("A subscriber failed")
                    self._failing.append(callback)

    def _recorded(self, lines: Sequence[Happened]) -> None:
        if self._recorder is not None:
            self._recorder.record(lines)
        for line in lines:
            self._guard.came_back(line)

    def _audited(self, entry: Entry) -> None:
        if self._recorder is not None:
            self._recorder.audit(entry.time, entry.command, entry.outcome, entry.detail)
