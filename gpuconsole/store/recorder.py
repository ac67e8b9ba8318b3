"""Writes the history: a `Recorder` queues events, and writes them every second in its own thread.

Written data is durable: a kill loses at most the events since the last write. A session is one run of the console; one
without an end whose process is gone was not closed, and is closed by the next start. Of GPU utilization samples of live
clusters only the last hour is kept.

The functions at the end read the history of this session: stored lines (`queries`) together with those that are not
written yet.
"""

import logging
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.config import HistorySettings
from gpuconsole.errors import DamagedHistoryError, HistoryError
from gpuconsole.insight.cost.allocation import CostHour
from gpuconsole.insight.forecast.agreement import AgreementRecord
from gpuconsole.insight.forecast.backtest import ForecastDifferences
from gpuconsole.insight.forecast.estimates import KEPT, PastEstimate
from gpuconsole.insight.health.telemetry import DevicePlace, UtilizationSample
from gpuconsole.insight.overview import LastHour, hour_of
from gpuconsole.insight.preemption.history import NEEDED, NOTHING_LOST, Losses, LostWork, lost_by
from gpuconsole.insight.series import Samples
from gpuconsole.model.change_log import ChangeBatch, Checkpoint
from gpuconsole.model.clock import DAY, HOUR, Time, format_time
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.snapshot import EVERYTHING, Visibility
from gpuconsole.model.text import clean
from gpuconsole.model.workloads import Workload
from gpuconsole.store import queries
from gpuconsole.store.event_blocks import Lines
from gpuconsole.store.queries import ENDLESS as ENDLESS
from gpuconsole.store.retention import prune
from gpuconsole.store.rows import LIVE
from gpuconsole.store.schema import (
    HistoryInUseError,
    history_errors,
    lock_for_writing,
    open_for_writing,
    reading,
)
from gpuconsole.store.writer import Change, Queued, Writer

MOST = 200_000
"""Maximum stored samples of all clusters; 5,000 nodes have 120,000 in an hour."""
MOST_WAITING = 50_000
"""Maximum samples of a cluster that wait to be written; beyond it the oldest are dropped."""
_PLACES = msgspec.msgpack.Decoder(tuple[DevicePlace, ...])


def keep(db: sqlite3.Connection, source: str, samples: Sequence[UtilizationSample]) -> None:
    """Store utilization samples of cluster `source`; delete those older than an hour, and the oldest beyond `MOST`."""
    rows = [(source, one.node, one.time, msgspec.msgpack.encode(one.places), one.percents) for one in samples]
    db.executemany("insert or replace into gpu_samples values (?, ?, ?, ?, ?)", rows)
    db.execute("delete from gpu_samples where time <= ?", (max(one.time for one in samples) - HOUR,))
    db.execute(
        "delete from gpu_samples where time <= (select time from gpu_samples order by time desc limit 1 offset ?)",
        (MOST,),
    )


def kept(db: sqlite3.Connection, source: str, nodes: Sequence[str], since: Time) -> list[UtilizationSample]:
    """Return the stored utilization samples of nodes of cluster `source`, oldest first; invalid ones are omitted."""
    rows = db.execute(
        "select node, time, places, percents from gpu_samples"
        " where source = ? and node in (select value from json_each(?)) and time > ? order by time",
        (source, msgspec.json.encode(nodes).decode(), since),
    ).fetchall()
    return [sample for row in rows if (sample := _sample(*row)) is not None]


def _sample(node: str, time: int, places: bytes, percents: bytes) -> UtilizationSample | None:
    try:
        return UtilizationSample(clean(str(node)), int(time), _PLACES.decode(places), bytes(percents))
    except (msgspec.DecodeError, TypeError, ValueError):
        return None


class Opening(Struct, frozen=True, kw_only=True):
    """What is known of a session when it starts, and is stored then."""

    version: str
    mode: str = ""
    source: str = ""
    seed: int | None = None


class Recovered(Struct, frozen=True, kw_only=True):
    """A session that was not closed, with the time up to which it was stored."""

    session: int
    lines: int
    flushed: Time
    """Wall-clock time of its last write."""

    def __str__(self) -> str:
        return f"recovered {self.lines:,} events of a session that ended abnormally at {format_time(self.flushed)}"


class Kept(Struct, frozen=True, kw_only=True):
    """A session that has history events."""

    number: int
    mode: str
    source: str
    last: Time
    """Time of its last history event, by the cluster's clock."""
    unseen: tuple[str, ...] = ()
    """Why its lines are incomplete, in sentences; empty if they are complete."""


def newest(db: sqlite3.Connection) -> Kept | None:
    """The last session with history events, which may be the current one; None without any. Raises HistoryError."""
    row = db.execute(
        "select id, mode, source, unseen, last from sessions where events > 0 and last is not null"
        " order by id desc limit 1"
    ).fetchone()
    if row is None:
        return None
    try:
        unseen = msgspec.json.decode(row[3], type=tuple[str, ...]) if row[3] else ()
    except msgspec.DecodeError as error:
        raise DamagedHistoryError(f"session {row[0]} of the history is damaged: {error}") from error
    return Kept(number=row[0], mode=row[1], source=clean(row[2]), last=int(row[4]), unseen=tuple(map(clean, unseen)))


def begin(db: sqlite3.Connection, opening: Opening, wall: Time) -> int:
    """Store a new session; returns its number. All sessions of a live cluster are one recording."""
    with db:
        row = db.execute(
            "insert into sessions (pid, version, mode, source, seed, started, flushed) values (?, ?, ?, ?, ?, ?, ?)",
            (os.getpid(), opening.version, opening.mode, opening.source, opening.seed, wall, wall),
        )
        session = int(row.lastrowid or 0)
        same = None
        if opening.mode == LIVE:
            query = "select id from recordings where mode = ? and source = ?"
            same = db.execute(query, (LIVE, opening.source)).fetchone()
        if same is None:
            made = db.execute(
                "insert into recordings (mode, source, first_session) values (?, ?, ?)",
                (opening.mode, opening.source, session),
            )
            same = (made.lastrowid,)
        db.execute("update sessions set recording = ? where id = ?", (same[0], session))
    return session


def end(db: sqlite3.Connection, session: int, wall: Time) -> None:
    """Mark a session as ended."""
    with db:
        db.execute("update sessions set ended = ?, flushed = ? where id = ?", (wall, wall, session))


def recover(db: sqlite3.Connection) -> list[Recovered]:
    """Close the sessions whose process is gone; returns what was stored of each. SQLite has replayed its log by now."""
    rows = db.execute("select id, pid, flushed from sessions where ended is null order by id").fetchall()
    gone = [(session, flushed) for session, pid, flushed in rows if not _lives(pid)]
    with db:
        return [_close(db, session, flushed) for session, flushed in gone]


def _close(db: sqlite3.Connection, session: int, flushed: Time) -> Recovered:
    lines = queries.written(db, session)
    db.execute("update sessions set ended = flushed, recovered = ? where id = ?", (lines, session))
    return Recovered(session=session, lines=lines, flushed=flushed)


def _lives(pid: int) -> bool:
    # In a container the process before may have had our own number. On Windows, signal 0 would end the process.
    if pid == os.getpid() or sys.platform == "win32":
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


LOG = logging.getLogger(__name__)
KEPT_BY_DEFAULT = HistorySettings()
INTERVAL = 1.0
"""Seconds between two writes: what a kill -9 loses at most."""
CAPACITY = 200_000
"""Maximum history events that wait to be written."""
PATIENCE = 1.0
"""Seconds that `record` waits for room in the queue before history events are lost (and counted)."""

MOST_CHANGES = 64_000_000
"""Maximum bytes of changes that wait to be written; beyond it the change log ends until its next checkpoint."""


REPEATED_FOR = DAY
"""Maximum time from the first to the last of repeated events that are one in the history."""
MOST_PENDING = 50_000
"""Maximum workloads and pods whose last PENDING events are known; beyond it, repetitions become events of their own."""
MOST_REASONS = 100
"""Maximum different PENDING events of a workload, beyond which all are forgotten as well."""


def _same(line: HistoryEvent) -> tuple[object, ...]:
    """What is equal in repeated events of a workload or pod."""
    return line.pod, line.queue, line.reason, line.message, line.gpus, line.priority


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
        retention: HistorySettings = KEPT_BY_DEFAULT,
    ) -> None:
        """Open and migrate the history, close sessions that others left open, and begin one. Raises HistoryError."""
        self.path = path
        self._wall = wall
        self._interval = interval
        self._retention = retention
        self._capacity = capacity
        self._lock = lock_for_writing(path)
        try:
            self._db = open_for_writing(path)
        except HistoryError:
            self._lock.release()
            raise
        try:
            with history_errors(path):
                self.recovered: list[Recovered] = recover(self._db)
                self.session = begin(self._db, opening, wall())
                self._writer = Writer(self._db, self.session)
        except HistoryError:
            self._db.close()
            self._lock.release()
            raise
        self._waiting: Lines = {}
        self._repeats: dict[int, tuple[int, Time]] = {}
        """Number of a written event → how often it occurred, and when it did last."""
        self._pending: dict[str, dict[tuple[object, ...], tuple[int, HistoryEvent]]] = {}
        """Pending workload or pod → its PENDING events since its last other event, with their numbers."""
        self._losses: dict[tuple[str, str], LostWork] = {}
        self._audits: list[tuple[Time, Time, str, str, str]] = []
        self._costs: list[CostHour] = []
        self._samples: list[Samples] = []
        self._changes: list[Change] = []
        self._changes_size = 0
        self._changes_lost = False
        self._prepare: Callable[[], None] | None = None
        self._compared = ForecastDifferences()
        self._agreement = AgreementRecord()
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
        self._pruning_ends = threading.Event()
        self.failed = ""
        """Why the last write failed, which is tried again each second; empty if it succeeded."""
        self.lost = 0
        """Number of lines dropped because the queue was full."""
        self.failed_writes = 0
        """Number of writes that failed."""
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def record(self, lines: Sequence[HistoryEvent]) -> None:
        """Queue history events. Waits while the queue is full; never raises, and counts dropped events.

        A PENDING event that repeats one of the same pending workload or pod is counted in that one.
        """
        with self._room:
            if not self.failed:
                self._room.wait_for(lambda: len(self._waiting) + len(lines) <= self._capacity, PATIENCE)
            for line in lines:
                if self._is_repeated(line):
                    continue
                if len(self._waiting) >= self._capacity:
                    self.lost += 1
                    continue
                for key, lost in lost_by((line,)).items():
                    self._losses[key] = self._losses.get(key, NOTHING_LOST) + lost
                if line.what is HistoryEventKind.PENDING:
                    self._pending.setdefault(line.workload or line.pod, {})[_same(line)] = (self._next, line)
                self._waiting[self._next] = line
                self._next += 1

    def _is_repeated(self, line: HistoryEvent) -> bool:
        """True if the event repeats one, in which it is then counted."""
        subject = line.workload or line.pod
        if line.what is not HistoryEventKind.PENDING:
            if subject:
                self._pending.pop(subject, None)
            return False
        known = self._pending.get(subject, {}).get(_same(line))
        if known is None or line.time - known[1].time > REPEATED_FOR:
            if len(self._pending) >= MOST_PENDING or len(self._pending.get(subject, ())) >= MOST_REASONS:
                self._pending.clear()
            return False
        number, first = known
        counted = replace(first, count=first.count + 1, last_time=max(first.last_time, line.time))
        self._pending[subject][_same(line)] = (number, counted)
        if number in self._waiting:
            self._waiting[number] = counted
        else:
            self._repeats[number] = (counted.count, counted.last_time)
        return True

    def losses(self) -> Losses:
        """The work lost in this session, by queue and workload. Raises HistoryError."""
        with self._room:
            return dict(self._losses)

    def saw(self, seen: Visibility) -> None:
        """Record why preemptions may be missing: workloads or events that are not visible now or were not earlier."""
        if seen is not self._seen:
            with self._room:
                self._seen = seen
                self._unseen.update(dict.fromkeys(seen.missing_reasons(Workload, HistoryEvent)))

    def audit(self, time: Time, command: str, outcome: str, detail: str) -> None:
        """Queue a line of the audit log."""
        with self._room:
            self._audits.append((self._wall(), time, command, outcome, detail))

    def compared(self, said: ForecastDifferences) -> None:
        """Queue the differences of a forecast from Kueue's decisions."""
        with self._room:
            self._compared += said

    def add_agreement(self, found: AgreementRecord) -> None:
        """Queue decisions that a shadow has compared since the last call."""
        with self._room:
            self._agreement += found

    def add_estimates(self, estimates: Sequence[PastEstimate]) -> None:
        """Queue estimated starts: new ones, or ones whose outcome is now known."""
        with self._room:
            self._estimates += estimates

    def measured(self, source: str, samples: Sequence[UtilizationSample]) -> None:
        """Queue GPU utilization samples of a live cluster."""
        with self._room:
            waiting = self._measured.setdefault(source, [])
            waiting += samples
            del waiting[:-MOST_WAITING]

    @property
    def recording(self) -> int:
        """Number of the recording that this session continues."""
        return self._writer.recording

    @property
    def records(self) -> bool:
        """False if another process records, so that the history can only be read."""
        return True

    def before_writes(self, prepare: Callable[[], None]) -> None:
        """Call `prepare` in the recorder's thread before each write; it adds costs, samples and changes."""
        self._prepare = prepare

    def add_costs(self, rows: Sequence[CostHour]) -> None:
        """Queue costs, which are added to those of the same owner and hour."""
        with self._room:
            self._costs += rows

    def add_samples(self, samples: Samples) -> None:
        """Queue the time series of a minute."""
        with self._room:
            self._samples.append(samples)

    def add_changes(self, checkpoint: Checkpoint | None, batch: ChangeBatch | None) -> None:
        """Queue a part of the change log: a checkpoint, and the changes after it or after the previous ones."""
        with self._room:
            for change in (checkpoint, batch):
                if isinstance(change, Checkpoint):
                    self._changes_lost = False
                if change is not None and not self._changes_lost:
                    self._changes.append(change)
                    self._changes_size += len(change.data)
            if self._changes_size > MOST_CHANGES:
                self._changes.clear()
                self._changes_size, self._changes_lost = 0, True

    def unflushed(self) -> Lines:
        """History events by number that are not written yet, or are being written."""
        with self._room:
            return dict(self._waiting)

    def unflushed_repeats(self) -> dict[int, tuple[int, Time]]:
        """Number of a written event → how often it occurred and when it did last, if that is not written yet."""
        with self._room:
            return dict(self._repeats)

    def flush(self) -> None:
        """Write everything that is queued now. What cannot be written stays queued, and `failed` says why."""
        with self._writing:
            if self._prepare is not None:
                self._prepare()
            queued = self._queued()
            try:
                self._writer.write(queued, self._wall())
            except Exception as error:
                # On any error this thread continues, and the screens show that nothing is written.
                if not self.failed:
                    LOG.exception("The history cannot be written")
                self.failed = f"{self.path}: {error}"
                self.failed_writes += 1
                return
            self.failed = ""
            self._keep_measured()
            self._written(queued)

    def close(self) -> None:
        """Write what is queued and end the session."""
        self._closing.set()
        self._pruning_ends.set()
        self._thread.join()
        self.flush()
        try:
            if not self.failed:
                self._writer.close()
                end(self._db, self.session, self._wall())
        except sqlite3.Error as error:
            # The next start finds the session open, and closes it with what was flushed.
            LOG.warning("The session cannot be closed in %s: %s", self.path, error)
        finally:
            self._db.close()
            self._lock.release()

    def prune(self) -> None:
        """Delete what the retention settings do not keep, between writes. Never raises; errors are logged."""
        try:
            with self._maintenance():
                self._writer.pack(self._wall())
            prune(self._db, self._retention, self._wall(), session=self.session, during=self._maintenance)
        except HistoryError:
            LOG.info("The session ends while old parts of the history are deleted; the next one goes on")
        except Exception:
            LOG.exception("Old parts of the history cannot be deleted")

    def stop_pruning(self) -> None:
        """End `prune` after its current transaction, as the session ends."""
        self._pruning_ends.set()

    @contextmanager
    def _maintenance(self) -> Iterator[None]:
        """Keep the writer out while its file is changed; it reads what it remembers of the file anew."""
        with self._writing:
            if self._pruning_ends.is_set():
                raise HistoryError("the session ends")
            try:
                yield
            finally:
                self._writer.forget()

    def _run(self) -> None:
        while not self._closing.wait(self._interval):
            self.flush()

    def _queued(self) -> Queued:
        with self._room:
            return Queued(
                lines=dict(self._waiting),
                repeats=dict(self._repeats),
                audits=list(self._audits),
                first_audit=self._next_audit,
                compared=self._compared,
                first_difference=self._next_difference,
                agreement=self._agreement,
                estimates=list(self._estimates),
                costs=list(self._costs),
                samples=list(self._samples),
                changes=list(self._changes),
                unseen=list(self._unseen),
            )

    def _keep_measured(self) -> None:
        """Write samples; on errors they are dropped, as they expire soon and must not delay events."""
        with self._room:
            measured, self._measured = self._measured, {}
        try:
            with self._db:
                for source, samples in measured.items():
                    keep(self._db, source, samples)
        except sqlite3.Error as error:
            LOG.info("GPU metrics could not be saved: %s", error)

    def _written(self, queued: Queued) -> None:
        self._next_audit += len(queued.audits)
        self._next_difference += len(queued.compared.differences)
        with self._room:
            for n, line in queued.lines.items():
                now = self._waiting.pop(n)
                if now is not line:
                    self._repeats[n] = (now.count, now.last_time)
            for n, repeated in queued.repeats.items():
                if self._repeats.get(n) == repeated:
                    del self._repeats[n]
            del self._audits[: len(queued.audits)]
            del self._estimates[: len(queued.estimates)]
            del self._costs[: len(queued.costs)]
            del self._samples[: len(queued.samples)]
            if self._changes[: len(queued.changes)] == queued.changes:
                del self._changes[: len(queued.changes)]
                self._changes_size = sum(len(change.data) for change in self._changes)
            self._compared = self._compared.without(queued.compared)
            self._agreement = self._agreement.without(queued.agreement)
            self._room.notify_all()


class SharedHistory(Recorder):
    """The history of a live cluster that another process records: it is read, and nothing is recorded."""

    def __init__(self, path: Path, opening: Opening, problem: HistoryInUseError) -> None:
        """Find the session of the process that `problem` names. Raises `problem` if it records another cluster."""
        self.path = path
        with reading(path) as db:
            row = db.execute(
                "select id, recording from sessions where mode = ? and source = ? order by id desc limit 1",
                (opening.mode, opening.source),
            ).fetchone()
        if row is None:
            raise problem
        self.writer = problem.writer
        """The process that records, for users."""
        self.session, self._recording = int(row[0]), int(row[1])
        self.recovered = []
        self.failed = str(problem)
        self.lost = self.failed_writes = 0

    @property
    def recording(self) -> int:
        return self._recording

    @property
    def records(self) -> bool:
        return False

    def record(self, lines: Sequence[HistoryEvent]) -> None:
        """Ignore events; the other process records them."""

    def saw(self, seen: Visibility) -> None:
        """Ignore what is visible."""

    def audit(self, time: Time, command: str, outcome: str, detail: str) -> None:
        """Ignore the audit log: without one, changes of the cluster are refused."""

    def compared(self, said: ForecastDifferences) -> None:
        """Ignore comparisons."""

    def add_agreement(self, found: AgreementRecord) -> None:
        """Ignore compared decisions; the other process compares them, too."""

    def add_estimates(self, estimates: Sequence[PastEstimate]) -> None:
        """Ignore estimates."""

    def measured(self, source: str, samples: Sequence[UtilizationSample]) -> None:
        """Ignore GPU utilization."""

    def unflushed(self) -> Lines:
        return {}

    def unflushed_repeats(self) -> dict[int, tuple[int, Time]]:
        return {}

    def losses(self) -> Losses:
        with reading(self.path) as db:
            return queries.losses(db, self.session, ENDLESS)

    def flush(self) -> None:
        """Write nothing."""

    def prune(self) -> None:
        """Delete nothing; the other process does."""

    def stop_pruning(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Close nothing, as each query opens the file."""


def open_recorder(
    path: Path, opening: Opening, *, wall: Callable[[], Time], retention: HistorySettings = KEPT_BY_DEFAULT
) -> Recorder:
    """Open a history for recording, or for reading if another process records the same live cluster to it.

    Raises HistoryError.
    """
    try:
        return Recorder(path, opening, wall=wall, retention=retention)
    except HistoryInUseError as error:
        if opening.mode != LIVE:
            raise
        return SharedHistory(path, opening, error)


# Unwritten lines are read before stored ones: a line that is written meanwhile is then in both, never in neither.


def preemptions(recorder: Recorder, limit: int) -> tuple[HistoryEvent, ...]:
    """The newest preemptions of this session with their outcomes, oldest first. Raises HistoryError."""
    fresh = {n: line for n, line in recorder.unflushed().items() if line.what in NEEDED}
    with reading(recorder.path) as db:
        stored = queries.preemptions(db, recorder.session, limit)
    return newest_preemptions((stored | fresh).values(), limit)


def newest_preemptions(lines: Iterable[HistoryEvent], limit: int) -> tuple[HistoryEvent, ...]:
    """The last `limit` preemptions among these events, and later outcomes of their victims and preemptors."""
    needed = [line for line in lines if line.what in NEEDED]
    chosen = [place for place, line in enumerate(needed) if line.what is HistoryEventKind.PREEMPTED]
    return tuple(needed[chosen[-limit:][0] :]) if chosen else ()


def losses(recorder: Recorder) -> Losses:
    """The work lost in this session, by queue and workload. Raises HistoryError."""
    return recorder.losses()


def last_hour(recorder: Recorder, now: Time) -> LastHour:
    """Totals of the hour before `now` in this session. Raises HistoryError.

    On a live cluster these include the time before the session, as far as Kubernetes' Events record it.
    """
    fresh = recorder.unflushed()
    with reading(recorder.path) as db:
        stored = queries.last_hour(db, recorder.session, now, min(fresh, default=ENDLESS))
    return stored + hour_of(fresh.values(), now)


def preemption_count(recorder: Recorder) -> int:
    """Number of recorded preemptions in this session. Raises HistoryError."""
    fresh = recorder.unflushed()
    with reading(recorder.path) as db:
        stored = queries.preemption_count(db, recorder.session, min(fresh, default=ENDLESS))
    return stored + sum(line.what is HistoryEventKind.PREEMPTED for line in fresh.values())


def of_workload(recorder: Recorder, workload: str) -> tuple[HistoryEvent, ...]:
    """All events of a workload, and its effects on others, oldest first. Raises HistoryError."""
    repeats = recorder.unflushed_repeats()
    fresh = {n: line for n, line in recorder.unflushed().items() if workload in (line.workload, line.by)}
    with reading(recorder.path) as db:
        stored = queries.of_workload(db, recorder.session, workload)
    for n, (count, last) in repeats.items():
        if n in stored:
            stored[n] = replace(stored[n], count=count, last_time=last)
    return tuple((stored | fresh).values())


def estimates(recorder: Recorder, source: str) -> list[PastEstimate]:
    """Estimated starts on the live cluster `source` in all sessions, oldest first. Raises HistoryError."""
    with reading(recorder.path) as db:
        return queries.estimates(db, source, KEPT)
