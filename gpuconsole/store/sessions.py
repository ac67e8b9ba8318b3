"""Sessions: one per run of the console. One without an end whose process is gone was not closed."""

import os
import sqlite3
import sys

import msgspec
from msgspec import Struct

from gpuconsole.errors import HistoryError
from gpuconsole.model.clock import Time, format_time
from gpuconsole.model.text import clean


class Opening(Struct, frozen=True, kw_only=True):
    """What is stored about a session when it starts."""

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
    """A session with stored lines."""

    number: int
    mode: str
    source: str
    last: Time
    """Time of its last line, by the cluster's clock."""
    unseen: tuple[str, ...] = ()
    """Why its lines are incomplete, in sentences; empty if they are complete."""


def newest(db: sqlite3.Connection) -> Kept | None:
    """The last session with lines, if any. Raises HistoryError for an invalid one."""
    row = db.execute(
        "select id, mode, source, unseen, (select time from events where session = id order by n desc limit 1) as last"
        " from sessions where last is not null order by id desc limit 1"
    ).fetchone()
    if row is None:
        return None
    try:
        unseen = msgspec.json.decode(row[3], type=tuple[str, ...]) if row[3] else ()
    except msgspec.DecodeError as error:
        raise HistoryError(f"session {row[0]} of the history is damaged: {error}") from error
    return Kept(number=row[0], mode=row[1], source=clean(row[2]), last=int(row[4]), unseen=tuple(map(clean, unseen)))


def begin(db: sqlite3.Connection, opening: Opening, wall: Time) -> int:
    """Store a new session; returns its number."""
    with db:
        row = db.execute(
            "insert into sessions (pid, version, mode, source, seed, started, flushed) values (?, ?, ?, ?, ?, ?, ?)",
            (os.getpid(), opening.version, opening.mode, opening.source, opening.seed, wall, wall),
        )
    return int(row.lastrowid or 0)


def end(db: sqlite3.Connection, session: int, wall: Time) -> None:
    """Mark a session as ended."""
    with db:
        db.execute("update sessions set ended = ?, flushed = ? where id = ?", (wall, wall, session))


def recover(db: sqlite3.Connection) -> list[Recovered]:
    """Close the sessions whose process is gone; returns what each kept. SQLite has replayed its log by then."""
    rows = db.execute("select id, pid, flushed from sessions where ended is null order by id").fetchall()
    gone = [(session, flushed) for session, pid, flushed in rows if not _lives(pid)]
    with db:
        return [_close(db, session, flushed) for session, flushed in gone]


def _close(db: sqlite3.Connection, session: int, flushed: Time) -> Recovered:
    (lines,) = db.execute("select count(*) from events where session = ?", (session,)).fetchone()
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
