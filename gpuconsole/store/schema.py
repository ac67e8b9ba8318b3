"""Schema of the history, as migrations: new ones are appended, existing ones are never edited."""

import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gpuconsole.errors import DamagedHistoryError, HistoryError
from gpuconsole.model.clock import DAY
from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.text import clean
from gpuconsole.store.private import OWNER_ONLY_FILE, make_private_file, make_private_folder
from gpuconsole.store.rows import AMOUNTS, LIVE, OWNER

if TYPE_CHECKING:
    from sqlite_utils import Database, Migrations

COUNTED = "(what in ('admitted', 'preempted') or lost_gpu_seconds > 0 or lost_unknown > 0)"
"""SQL condition of the events that totals count; part of a migration, so never edited.

SQLite uses the index only for queries with the same condition in the same words.
"""
_SET = "gpuconsole"
_MIGRATIONS = "_sqlite_migrations"
_FIRST = ("sessions", "audit")
"""Tables that every history has."""


@contextmanager
def _without_data_frames() -> Iterator[None]:
    """Hide numpy and pandas from sqlite-utils, which imports them if installed: 80 MB that nothing here uses."""
    hidden = [name for name in ("numpy", "pandas") if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            sys.modules.pop(name, None)


def migrations() -> "Migrations":
    """All migrations, in order. Imports sqlite-utils, which takes 0.2 s, so only writers call it."""
    with _without_data_frames():
        from sqlite_utils import Migrations

    steps = Migrations(_SET)

    @steps()
    def history(db: "Database") -> None:
        db.execute(
            "create table sessions (id integer primary key, pid integer not null, version text not null,"
            " mode text not null, source text not null, seed integer, started integer not null,"
            " flushed integer not null, ended integer, recovered integer)"
        )
        db.execute(
            "create table events (session integer not null references sessions(id), n integer not null,"
            " time integer not null, what text not null, workload text not null, pod text not null,"
            " queue text not null, by text not null, by_queue text not null, reason text not null,"
            " message text not null, node text not null, flavor text not null, gpus integer not null,"
            " borrowed integer not null, priority integer not null, by_priority integer not null,"
            " lost_gpu_seconds real not null, cost real not null, waited integer not null,"
            " primary key (session, n)) without rowid"
        )
        db.execute("create index events_workload on events (session, workload, n) where workload != ''")
        db.execute("create index events_by on events (session, by, n) where by != ''")
        db.execute("create index events_pod on events (session, pod, n) where pod != '' and workload = ''")
        db.execute("create index events_preempted on events (session, n) where what = 'preempted'")
        db.execute(
            "create table audit (session integer not null references sessions(id), n integer not null,"
            " wall integer not null, time integer not null, command text not null, outcome text not null,"
            " detail text not null, primary key (session, n)) without rowid"
        )

    @steps()
    def announcements(db: "Database") -> None:
        """Kueue's Events, as JSON; empty without any."""
        db.execute("alter table events add column told text not null default ''")

    @steps()
    def losses(db: "Database") -> None:
        """Index for the few lines with lost work."""
        db.execute("create index events_lost on events (session, n) where lost_gpu_seconds > 0")

    @steps()
    def forecasts(db: "Database") -> None:
        """Differences between forecast and Kueue, and the number of compared decisions."""
        db.execute(
            "create table differences (session integer not null references sessions(id), n integer not null,"
            " time integer not null, workload text not null, queue text not null, foreseen text not null,"
            " fact text not null, cause text not null, detail text not null, primary key (session, n)) without rowid"
        )
        db.execute(
            "create table agreement (session integer primary key references sessions(id),"
            " decisions integer not null, agreed integer not null)"
        )

    @steps()
    def choices(db: "Database") -> None:
        """Victim selection, as JSON; empty if it was not recorded."""
        db.execute("alter table events add column choice text not null default ''")

    @steps()
    def foretold(db: "Database") -> None:
        """First estimates of starts, with the actual starts."""
        db.execute(
            "create table foretold (session integer not null references sessions(id), workload text not null,"
            " asked integer not null, median integer not null, first integer not null, last integer not null,"
            " started integer, primary key (session, workload)) without rowid"
        )

    @steps()
    def gpu_samples(db: "Database") -> None:
        """GPU utilization of live clusters in the last hour."""
        db.execute(
            "create table gpu_samples (source text not null, node text not null, time integer not null,"
            " places blob not null, percents blob not null, primary key (source, node, time)) without rowid"
        )
        db.execute("create index gpu_samples_time on gpu_samples (time)")

    @steps()
    def unknown_losses(db: "Database") -> None:
        """Whether the lost work of a line is unknown, as it began before the console observed it."""
        db.execute("alter table events add column lost_unknown integer not null default 0")

    @steps()
    def unseen(db: "Database") -> None:
        """Why the events of a session are incomplete, as a JSON list; empty if they are complete."""
        db.execute("alter table sessions add column unseen text not null default ''")

    @steps()
    def counted(db: "Database") -> None:
        """Index for the totals of the last hour."""
        db.execute(f"create index events_counted on events (session, time) where {COUNTED}")

    @steps()
    def lost_unknown(db: "Database") -> None:
        """Index for the few lines with an unknown loss."""
        db.execute("create index events_lost_unknown on events (session, n) where lost_unknown > 0")

    @steps()
    def units(db: "Database") -> None:
        """The unit of the column `gpus`: GPUs, MIG instances, replicas, DRA devices."""
        db.execute("alter table events add column unit text not null default 'GPU'")

    @steps()
    def races(db: "Database") -> None:
        """The object that changed between two observations of a live cluster, and the time between them."""
        db.execute("alter table differences add column object text not null default ''")
        db.execute("alter table differences add column span integer not null default 0")

    @steps()
    def recordings(db: "Database") -> None:
        """One recording for all sessions of a live cluster, and for each other session; times of the cluster's clock.

        `names` has texts once; `hash` is their CRC-32, `used` the day (since 1970, by the wall clock) of the last use
        by events, `kept` is 1 if costs or series use the text. Numbers of hours are since 1970.
        """
        db.execute("update sessions set mode = upper(mode)")
        db.execute(
            "create table recordings (id integer primary key, mode text not null, source text not null,"
            " first_session integer not null)"
        )
        db.execute("alter table sessions add column recording integer references recordings(id)")
        db.execute("alter table sessions add column first integer")
        db.execute("alter table sessions add column last integer")
        db.execute(
            "insert into recordings (mode, source, first_session)"
            f" select mode, source, min(id) from sessions group by mode, source, iif(mode = '{LIVE}', 0, id)"
            " order by min(id)"
        )
        db.execute(
            "update sessions set recording = (select id from recordings where first_session = sessions.id"
            f" or (mode = '{LIVE}' and mode = sessions.mode and source = sessions.source)),"
            " first = (select min(time) from events where session = sessions.id),"
            " last = (select max(time) from events where session = sessions.id)"
        )
        db.execute("create index sessions_recording on sessions (recording)")
        db.execute(
            "create table names (id integer primary key, hash integer not null, text text not null,"
            " used integer not null, kept integer not null)"
        )
        db.execute("create index names_hash on names (hash)")

    @steps()
    def costs(db: "Database") -> None:
        """Costs by owner and hour. An owner's texts are ids of `names`, or 0.

        The id of costs is 2^44 × recording + 2^24 × hour since 1970 + number of the owner in its recording, and that of
        an owner 2^24 × recording + its number; so both are in order of time, and need no other index.
        """
        owner = ", ".join(f"{column} integer not null" for column in OWNER)
        db.execute(f"create table cost_owners (id integer primary key, {owner})")
        db.execute(
            f"create table cost_hours (id integer primary key, {', '.join(f'{one} real not null' for one in AMOUNTS)})"
        )

    @steps()
    def series(db: "Database") -> None:
        """Time series in blocks: minutes of an hour (`span` 60) or hours of a day (3600); see `store.rows`.

        The samples of an hour or a day that is not over are in `recent_samples`.
        """
        db.execute(
            "create table series (id integer primary key, recording integer not null references recordings(id),"
            " span integer not null, start integer not null, kind text not null, name integer not null,"
            " data blob not null)"
        )
        db.execute("create unique index series_block on series (recording, span, start, kind, name)")
        db.execute(
            "create table recent_samples (recording integer not null references recordings(id), span integer not null,"
            " time integer not null, data blob not null, primary key (recording, span, time)) without rowid"
        )

    @steps()
    def change_log(db: "Database") -> None:
        """Checkpoints and the changes after each, see `model.change_log`.

        The id of changes is 2^24 × that of the checkpoint + a number from 0; their time is null if it is that of the
        previous `until`, or of the checkpoint.
        """
        db.execute(
            "create table checkpoints (id integer primary key, recording integer not null references recordings(id),"
            " session integer not null references sessions(id), time integer not null, data blob not null)"
        )
        db.execute("create index checkpoints_time on checkpoints (recording, time)")
        db.execute(
            "create table change_batches (id integer primary key, time integer, until integer not null,"
            " data blob not null)"
        )

    @steps()
    def event_blocks(db: "Database") -> None:
        """Events in compressed blocks, with totals that need no events; see `store.event_blocks`."""
        db.execute(
            "create table event_blocks (id integer primary key, session integer not null references sessions(id),"
            " first integer not null, last integer not null, kinds integer not null, data blob not null)"
        )
        db.execute("create index event_blocks_times on event_blocks (session, last, first, kinds)")
        db.execute("create index event_blocks_kinds on event_blocks (id, kinds)")
        db.execute("create table event_repeats (id integer primary key, count integer not null, last integer not null)")
        db.execute(
            "create table event_heads (session integer not null references sessions(id), name integer not null,"
            " n integer not null, primary key (session, name)) without rowid"
        )
        db.execute(
            "create table event_totals (session integer not null references sessions(id), what integer not null,"
            " events integer not null, primary key (session, what)) without rowid"
        )
        db.execute(
            "create table losses (session integer not null references sessions(id), queue integer not null,"
            " owner integer not null, gpu_hours real not null, cost real not null, times integer not null,"
            " unknown integer not null, unpriced integer not null, primary key (session, queue, owner)) without rowid"
        )
        db.execute("alter table sessions add column events integer not null default 0")
        _move_events(db.conn)

    @steps()
    def shadow(db: "Database") -> None:
        """Decisions of Kueue that were compared with the engine's, by hours since 1970, and each disagreement."""
        db.execute(
            "create table agreement_hours (recording integer not null references recordings(id), hour integer not null,"
            " decisions integer not null, agreed integer not null, unknown integer not null,"
            " primary key (recording, hour)) without rowid"
        )
        db.execute(
            "create table disagreements (id integer primary key, recording integer not null references recordings(id),"
            " time integer not null, workload text not null, queue text not null, kind text not null,"
            " expected text not null, actual text not null, cause text not null)"
        )
        db.execute("create index disagreements_time on disagreements (recording, time)")

    return steps


_OLD = (
    "time",
    "what",
    "workload",
    "pod",
    "queue",
    "by",
    "by_queue",
    "reason",
    "message",
    "node",
    "flavor",
    "gpus",
    "borrowed",
    "priority",
    "by_priority",
    "lost_gpu_seconds",
    "cost",
    "lost_unknown",
    "unit",
    "waited",
    "told",
    "choice",
)
"""Columns of the table `events` of earlier versions."""


def _move_events(db: sqlite3.Connection) -> None:
    """Write the events of the table `events` of earlier versions as blocks, and drop it. Part of a migration."""
    from gpuconsole.store.event_blocks import MOST
    from gpuconsole.store.rows import Names
    from gpuconsole.store.writer import EventBlockWriter

    names = Names(db)
    for session, flushed in db.execute("select id, flushed from sessions order by id").fetchall():
        writer, last = EventBlockWriter(db, session, names), -1
        query = f"select n, {', '.join(_OLD)} from events where session = ? and n > ? order by n limit ?"
        while rows := db.execute(query, (session, last, MOST)).fetchall():
            writer.add({int(row[0]): _old_event(row) for row in rows}, {}, int(flushed) // DAY)
            last = int(rows[-1][0])
        writer.merge()
        db.execute("update sessions set events = ? where id = ?", (last + 1, session))
    db.execute("drop table events")


def _old_event(row: tuple[Any, ...]) -> HistoryEvent:
    fields = dict(zip(_OLD, row[1:], strict=True))
    try:
        fields["told"] = msgspec.json.decode(fields["told"]) if fields["told"] else ()
        fields["choice"] = msgspec.json.decode(fields["choice"]) if fields["choice"] else None
        return msgspec.convert({**fields, "lost_unknown": bool(fields["lost_unknown"])}, HistoryEvent)
    except (msgspec.DecodeError, TypeError) as error:
        raise DamagedHistoryError(f"line {row[0]} of the history is damaged: {clean(str(error))}") from error


ELSEWHERE = "move the file, or use another one (--history FILE, or GPUCONSOLE_STATE_DIR for another folder)"
"""Advice at the end of an error about a history that cannot be used."""


def open_for_writing(path: Path) -> sqlite3.Connection:
    """Open the history, create or migrate it. Raises HistoryError with the user's next step.

    A file that is not a history of this version or an earlier one is not changed.
    """
    with _without_data_frames():
        from sqlite_utils import Database

    with history_errors(path):
        steps = migrations()
        refuse_foreign(path)
        make_private_folder(path.parent)
        make_private_file(path)
        connection = sqlite3.connect(path, check_same_thread=False, timeout=5.0)
        try:
            # Only a new file can still be given this; others give no pages back, but reuse them.
            connection.execute("pragma auto_vacuum = incremental")
            connection.execute("pragma journal_mode = wal")
            connection.execute("pragma synchronous = normal")
            steps.apply(Database(connection))
        except sqlite3.Error:
            connection.close()
            raise
    return connection


@contextmanager
def history_errors(path: Path) -> Iterator[None]:
    """Convert errors of this file to a HistoryError with the remedy."""
    try:
        yield
    except DamagedHistoryError as error:
        advice = f"`gpuconsole history check --history {path}` lists all damage"
        raise HistoryError(f"{path}: {error}; {advice}; to record anew, {ELSEWHERE}") from error
    except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else error
        raise HistoryError(f"{path}: {problem}; {ELSEWHERE}") from error
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        # A value or a column that no version of gpuconsole writes.
        problem = f"the database is damaged ({type(error).__name__}: {clean(str(error), 200)})"
        raise HistoryError(f"{path}: {problem}; {ELSEWHERE}") from error


def _names_of_migrations() -> set[str]:
    with _without_data_frames():
        from sqlite_utils import Database

    return {step.name for step in migrations().pending(Database(memory=True))}


def refuse_foreign(path: Path) -> bool:
    """Raise HistoryError unless the file is a history or can become one; return whether it needs no migration."""
    known = _names_of_migrations()
    if path.is_dir():
        raise HistoryError(f"{path}: this is a directory; {ELSEWHERE}")
    if not path.exists() or path.stat().st_size == 0:
        return False
    # Reading a file in WAL mode creates files beside it, unless it is opened as immutable.
    unwritten = "" if path.with_name(f"{path.name}-wal").exists() else "&immutable=1"
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro{unwritten}", uri=True, timeout=5.0)) as db:
        tables = {name for (name,) in db.execute("select name from sqlite_master where type = 'table'")}
        applied = _applied(db) if _MIGRATIONS in tables else {}
        ours = applied.pop(_SET, set())
        # Another console may be about to create the tables of a new history.
        if not ours and (applied or tables - {_MIGRATIONS}):
            raise HistoryError(f"{path}: not a history of gpuconsole; {ELSEWHERE}")
        if ours - set(known):
            raise HistoryError(f"{path}: written by a newer version of gpuconsole; {ELSEWHERE}")
        for table in _FIRST if ours else ():
            db.execute(f"select * from {table} limit 1").fetchone()
    return ours == known


def _applied(db: sqlite3.Connection) -> dict[str, set[str]]:
    """Set of migrations → names of the applied ones."""
    found: dict[str, set[str]] = {}
    for migrations_of, name in db.execute(f"select migration_set, name from {_MIGRATIONS}"):
        found.setdefault(migrations_of, set()).add(name)
    return found


class HistoryInUseError(HistoryError):
    """Another process records to the file."""

    def __init__(self, path: Path, writer: str) -> None:
        """`writer` is its PID; empty if unknown."""
        who = f"process {writer}" if writer else "another process"
        super().__init__(f"{path}: {who} records to this file; end it, or record to another file (--history FILE)")
        self.writer = f"PID {writer}" if writer else "another process"


class WriterLock:
    """Held by the process that records to a history; the operating system releases it when the process ends.

    It is a lock on a file beside the history. SQLite's own locks would be released with each transaction.
    """

    def __init__(self, path: Path) -> None:
        """Raises HistoryInUseError if another process, or another recorder of this one, holds the lock."""
        self._path = path.with_name(f"{path.name}-lock")
        while True:
            self._descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR, OWNER_ONLY_FILE)
            try:
                _lock(self._descriptor)
            except OSError:
                holder = os.read(self._descriptor, 20).decode(errors="replace").strip()
                os.close(self._descriptor)
                raise HistoryInUseError(path, holder if holder.isdigit() else "") from None
            # Its holder before may have deleted the file after it was opened here.
            if self._is_in_place():
                break
            os.close(self._descriptor)
        os.truncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._path.stat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Let others record."""
        with suppress(OSError):
            self._path.unlink()
        os.close(self._descriptor)


def _lock(descriptor: int) -> None:
    """Lock a file exclusively until it is closed. Raises OSError if another process has locked it."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def lock_for_writing(path: Path) -> WriterLock:
    """Become the one process that writes to the history. Raises HistoryError, HistoryInUseError.

    A file that is not a history of this version or an earlier one is not changed.
    """
    with history_errors(path):
        refuse_foreign(path)
        make_private_folder(path.parent)
        return WriterLock(path)


@contextmanager
def earlier_sessions(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a history for queries, beside its writer or without one. Raises HistoryError, also for queries.

    A history of an earlier version is migrated first. A missing or empty file is read as one without sessions, and is
    not changed.
    """
    with history_errors(path):
        if not path.exists() or path.stat().st_size == 0:
            with closing(_empty_history()) as db:
                yield db
            return
        if not refuse_foreign(path):
            lock = lock_for_writing(path)
            try:
                open_for_writing(path).close()
            finally:
                lock.release()
        with closing(open_for_reading(path)) as db:
            yield db


def _empty_history() -> sqlite3.Connection:
    with _without_data_frames():
        from sqlite_utils import Database

    db = sqlite3.connect(":memory:")
    migrations().apply(Database(db))
    return db


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a history of this version for queries, also beside its writer. Raises HistoryError, also for queries."""
    with history_errors(path), closing(open_for_reading(path)) as db:
        yield db


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open a history for queries, also beside its writer. Raises HistoryError."""
    with history_errors(path):
        if not path.exists():
            raise HistoryError(f"{path}: no such file; name an existing history")
        db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=5.0)
        try:
            db.execute("select 1 from sqlite_master").fetchone()
        except sqlite3.OperationalError:
            # A file in WAL mode in a folder in which SQLite cannot create the files beside it.
            db.close()
            if path.with_name(f"{path.name}-wal").exists():
                raise
            db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True, timeout=5.0)
        return db
