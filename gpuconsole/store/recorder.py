"""The recorder: takes in what happened at once, writes it each second in a thread of its own.

What was written stays, whatever happens to the process: a kill loses at most what came since the last write.
"""

import logging
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from gpuconsole.errors import HistoryError
from gpuconsole.insight.calibration import PastEstimate
from gpuconsole.insight.forecast_check import ForecastDifferences
from gpuconsole.insight.trends import UtilizationSample
from gpuconsole.model.clock import Time
from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.visibility import EVERYTHING, Visibility
from gpuconsole.model.workloads import Workload
from gpuconsole.store import gpus, sessions
from gpuconsole.store.queries import COLUMNS, Lines
from gpuconsole.store.schema import history_errors, open_for_writing
from gpuconsole.store.sessions import Opening, Recovered

LOG = logging.getLogger(__name__)
INTERVAL = 1.0
"""Seconds between two writes: what a kill -9 loses at most."""
CAPACITY = 200_000
"""Lines that may wait to be written."""
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
    """Writes one session's history. Mutates; methods may be called from any thread."""

    def __init__(
        self,
        path: Path,
        opening: Opening,
        *,
        wall: Callable[[], Time],
        interval: float = INTERVAL,
        capacity: int = CAPACITY,
    ) -> None:
        """Open the history, bring it up to date, close what others left open, and begin. Raises HistoryError."""
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
        """Why the last write failed; it is tried again each second."""
        self.lost = 0
        """Lines that found no room."""
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def record(self, lines: Sequence[HistoryEvent]) -> None:
        """Take in lines. Waits for room where writing is slow; never raises, and counts what it has to drop."""
        with self._room:
            if not self.failed:
                self._room.wait_for(lambda: len(self._waiting) + len(lines) <= self._capacity, PATIENCE)
            room = max(0, self._capacity - len(self._waiting))
            self.lost += max(0, len(lines) - room)
            for line in lines[:room]:
                self._waiting[self._next] = line
                self._next += 1

    def saw(self, seen: Visibility) -> None:
        """Take in what of the cluster is seen. What was not seen once is missing, also if it is seen later."""
        if seen is not self._seen:
            with self._room:
                self._seen = seen
                self._unseen.update(dict.fromkeys(seen.missing_reasons(Workload, HistoryEvent)))

    def audit(self, time: Time, command: str, outcome: str, detail: str) -> None:
        """Take in a line of the audit."""
        with self._room:
            self._audits.append((self._wall(), time, command, outcome, detail))

    def compared(self, said: ForecastDifferences) -> None:
        """Take in how a forecast compared with what Kueue did."""
        with self._room:
            self._compared += said

    def add_estimates(self, estimates: Sequence[PastEstimate]) -> None:
        """Take in estimates of starts: new ones, or such of which it is known by now what became of them."""
        with self._room:
            self._estimates += estimates

    def measured(self, source: str, samples: Sequence[UtilizationSample]) -> None:
        """Take in how busy GPUs of a live cluster were."""
        with self._room:
            waiting = self._measured.setdefault(source, [])
            waiting += samples
            del waiting[: -gpus.MOST_WAITING]

    def unflushed(self) -> Lines:
        """What is not written yet, or is being written now."""
        with self._room:
            return dict(self._waiting)

    def flush(self) -> None:
        """Write all that waits, now. What cannot be written keeps waiting, and `failed` says why."""
        with self._writing:
            lines, audits, said, estimates = self.unflushed(), list(self._audits), self._compared, list(self._estimates)
            try:
                self._write(lines, audits, said, estimates)
            except Exception as error:
                # Whatever it was: this thread lives on, and the screens say that nothing is written.
                if not self.failed:
                    LOG.exception("The history cannot be written")
                self.failed = f"{self.path}: {error}"
                return
            self.failed = ""
            self._keep_measured()
            self._written(lines, audits, said, estimates)

    def close(self) -> None:
        """Write what waits and end the session."""
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
        """What cannot be written is left out: it is worth nothing soon, and must not hold up what happened."""
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
    """The line as its columns; what it tells comes last, and is text."""
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
