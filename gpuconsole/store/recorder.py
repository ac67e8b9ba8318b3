"""The recorder: queues events, and writes them every second in its own thread.

Written data is durable: a kill loses at most the events since the last write.
"""

import logging
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from gpuconsole.errors import HistoryError
from gpuconsole.insight.forecast.backtest import ForecastDifferences
from gpuconsole.insight.forecast.calibration import PastEstimate
from gpuconsole.insight.health.trends import UtilizationSample
from gpuconsole.model.clock import Time
from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.snapshot import EVERYTHING, Visibility
from gpuconsole.model.workloads import Workload
from gpuconsole.store import gpus, sessions
from gpuconsole.store.queries import COLUMNS, Lines
from gpuconsole.store.schema import history_errors, open_for_writing
from gpuconsole.store.sessions import Opening, Recovered

LOG = logging.getLogger(__name__)
INTERVAL = 1.0
"""Seconds between two writes: what a kill -9 loses at most."""
CAPACITY = 200_000
"""Maximum lines that wait to be written."""
PATIENCE = 1.0
"""Seconds that a producer waits for room before lines are lost (and counted)."""

_INSERT = f"insert into events (session, n, {', '.join(COLUMNS)}) values (?, ?{', ?' * len(COLUMNS)})"
_DIFFERENCE = "insert into differences values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_AGREEMENT = (
    "insert into agreement values (?, ?, ?) on conflict (session) do update"
    " set decisions = decisions + excluded.decisions, agreed = agreed + excluded.agreed"
)
_ESTIMATE = "insert or replace into foretold values (?, ?, ?, ?, ?, ?, ?)"
_AUDIT = "insert into audit (session, n, wall, time, command, outcome, detail) values (?, ?, ?, ?, ?, ?, ?)"


class Recorder:
    """Writes one session's history. Mutates; thread-safe."""

    def __init__(
        self,
        path: Path,
        opening: Opening,
        *,
        wall: Callable[[], Time],
        interval: float = INTERVAL,
        capacity: int = CAPACITY,
    ) -> None:
        """Open and migrate the history, close sessions that others left open, and begin one. Raises HistoryError."""
        self.path = path
        self._wall = wall
        self._interval = interval
        self._capacity = capacity
        self._db = open_for_writing(path)
        try:
            with history_errors(path):
                self.recovered: list[Recovered] = sessions.recover(self._db)
                self.session = sessions.begin(self._db, opening, wall())
        except HistoryError:
            self._db.close()
            raise
        self._waiting: Lines = {}
        self._audits: list[tuple[Time, Time, str, str, str]] = []
        self._compared = ForecastDifferences()
        self._estimates: list[PastEstimate] = []
        self._measured: dict[str, list[UtilizationSample]] = {}
        self._seen: Visibility = EVERYTHING
        self._unseen: dict[str, None] = {}
        self._next = 0
        self._next_audit = 0
        self._next_difference = 0
        self._room = threading.Condition()
        self._writing = threading.Lock()
        self._closing = threading.Event()
        self.failed = ""
        """Why the last write failed, which is tried again each second; empty if it succeeded."""
        self.lost = 0
        """Number of lines dropped because the queue was full."""
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def record(self, lines: Sequence[HistoryEvent]) -> None:
        """Queue lines. Waits while the queue is full; never raises, and counts dropped lines."""
        with self._room:
            if not self.failed:
                self._room.wait_for(lambda: len(self._waiting) + len(lines) <= self._capacity, PATIENCE)
            room = max(0, self._capacity - len(self._waiting))
            self.lost += max(0, len(lines) - room)
            for line in lines[:room]:
                self._waiting[self._next] = line
                self._next += 1

    def saw(self, seen: Visibility) -> None:
        """Record which resources are visible. One that was once not visible counts as missing for the session."""
        if seen is not self._seen:
            with self._room:
                self._seen = seen
                self._unseen.update(dict.fromkeys(seen.missing_reasons(Workload, HistoryEvent)))

    def audit(self, time: Time, command: str, outcome: str, detail: str) -> None:
        """Queue a line of the audit."""
        with self._room:
            self._audits.append((self._wall(), time, command, outcome, detail))

    def compared(self, said: ForecastDifferences) -> None:
        """Queue a comparison of a forecast with Kueue's decisions."""
        with self._room:
            self._compared += said

    def add_estimates(self, estimates: Sequence[PastEstimate]) -> None:
        """Queue estimated starts: new ones, or ones whose outcome is now known."""
        with self._room:
            self._estimates += estimates

    def measured(self, source: str, samples: Sequence[UtilizationSample]) -> None:
        """Queue GPU utilization samples of a live cluster."""
        with self._room:
            waiting = self._measured.setdefault(source, [])
            waiting += samples
            del waiting[: -gpus.MOST_WAITING]

    def unflushed(self) -> Lines:
        """Lines that are not written yet, or are being written."""
        with self._room:
            return dict(self._waiting)

    def flush(self) -> None:
        """Write all queued lines now. Lines that cannot be written stay queued, and `failed` says why."""
        with self._writing:
            lines, audits, said, estimates = self.unflushed(), list(self._audits), self._compared, list(self._estimates)
            try:
                self._write(lines, audits, said, estimates)
            except Exception as error:
                # On any error this thread continues, and the screens show that nothing is written.
                if not self.failed:
                    LOG.exception("The history cannot be written")
                self.failed = f"{self.path}: {error}"
                return
            self.failed = ""
            self._keep_measured()
            self._written(lines, audits, said, estimates)

    def close(self) -> None:
        """Write queued lines and end the session."""
        self._closing.set()
        self._thread.join()
        self.flush()
        try:
            if not self.failed:
                sessions.end(self._db, self.session, self._wall())
        except sqlite3.Error as error:
            # The next start finds the session open, and closes it with what was flushed.
            LOG.warning("The session cannot be closed in %s: %s", self.path, error)
        finally:
            self._db.close()

    def _run(self) -> None:
        while not self._closing.wait(self._interval):
            self.flush()

    def _write(
        self,
        lines: Lines,
        audits: Sequence[tuple[Time, Time, str, str, str]],
        said: ForecastDifferences,
        estimates: Sequence[PastEstimate],
    ) -> None:
        session = self.session
        with self._db:
            self._db.executemany(_INSERT, [(session, n, *_row(line)) for n, line in lines.items()])
            self._db.executemany(_AUDIT, [(session, n, *row) for n, row in enumerate(audits, self._next_audit)])
            if said.decisions:
                rows = enumerate(said.differences, self._next_difference)
                values = ((session, n, *msgspec.structs.astuple(one)) for n, one in rows)
                self._db.executemany(_DIFFERENCE, values)
                self._db.execute(_AGREEMENT, (session, said.decisions, said.agreed))
            self._db.executemany(_ESTIMATE, [(session, *_estimate(one)) for one in estimates])
            unseen = msgspec.json.encode(list(self._unseen)).decode() if self._unseen else ""
            self._db.execute(
                "update sessions set flushed = ?, unseen = ? where id = ?", (self._wall(), unseen, session)
            )

    def _keep_measured(self) -> None:
        """Write samples; on errors they are dropped, as they expire soon and must not delay events."""
        with self._room:
            measured, self._measured = self._measured, {}
        try:
            with self._db:
                for source, samples in measured.items():
                    gpus.keep(self._db, source, samples)
        except sqlite3.Error as error:
            LOG.info("GPU metrics could not be saved: %s", error)

    def _written(
        self, lines: Lines, audits: Sequence[object], said: ForecastDifferences, estimates: Sequence[object]
    ) -> None:
        self._next_audit += len(audits)
        self._next_difference += len(said.differences)
        with self._room:
            for n in lines:
                del self._waiting[n]
            del self._audits[: len(audits)]
            del self._estimates[: len(estimates)]
            self._compared = self._compared.without(said)
            self._room.notify_all()


def _row(line: HistoryEvent) -> tuple[object, ...]:
    """The line as its columns; its details come last, as text."""
    *values, estimates, choice = msgspec.structs.astuple(line)
    return *values, *(msgspec.json.encode(part).decode() if part else "" for part in (estimates, choice))


def _estimate(estimates: PastEstimate) -> tuple[object, ...]:
    return (
        estimates.workload,
        estimates.asked_at,
        estimates.median,
        estimates.interval.first,
        estimates.interval.last,
        estimates.started,
    )
