"""Retention: deletes what is older than the settings allow, or too much, in small transactions.

Raw data are the events and the change log; minutes are the time series by the minute; hours are those by the hour,
costs, the audit log and sessions. The age of a live cluster's data is that of their times; the data of a simulation,
which has its own clock, are as old as their session. If the file is still too large, the oldest data are deleted before
their age, raw ones first.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.config import HistorySettings
from gpuconsole.model.clock import DAY, HOUR, MINUTE, Time
from gpuconsole.store.event_blocks import SESSION_BITS
from gpuconsole.store.rows import HOURS, LIVE, MOST_BATCHES, MOST_OWNERS, OWNER, cost_id, seconds

_CHUNK = 500
"""Maximum rows with large values of a transaction."""
_SMALL = 20_000
"""Maximum rows without large values of a transaction."""
_PAGES = 2_000
"""Maximum pages that a transaction gives back to the file system."""
_SHRUNK = 0.5
"""Factor of the ages that are kept while the file is too large."""
_LEAST = HOUR
"""The newest hour is kept whatever its size."""
_GIB = 1 << 30


class Deleted(Struct, frozen=True, kw_only=True):
    """Number of rows that retention deletes or has deleted, by part of the history."""

    event_blocks: int = 0
    checkpoints: int = 0
    change_batches: int = 0
    series_blocks: int = 0
    costs: int = 0
    audit: int = 0
    sessions: int = 0

    def __add__(self, other: "Deleted") -> "Deleted":
        return Deleted(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__struct_fields__)


class _Ages(Struct, frozen=True, kw_only=True):
    """What is kept, in µs."""

    raw: int
    minutes: int
    hours: int


class _Cutoffs(Struct, frozen=True, kw_only=True):
    """What is deleted of one recording: everything before these times of its clock."""

    recording: int
    sessions: tuple[int, ...]
    raw: Time
    minutes: Time
    hours: Time


class _Statement(Struct, frozen=True, kw_only=True):
    """Rows to delete: `delete from TABLE where KEY in (select KEY CONDITION limit CHUNK)`."""

    table: str
    condition: str
    """From `from` on."""
    values: tuple[object, ...]
    counts: str = ""
    """Field of Deleted that counts the rows."""
    key: str = "id"
    chunk: int = _SMALL

    def counted(self, rows: int) -> Deleted:
        return Deleted(**{self.counts: rows}) if self.counts else Deleted()


def prune(
    db: sqlite3.Connection,
    settings: HistorySettings,
    now: Time,
    *,
    session: int = 0,
    during: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Deleted:
    """Delete what the settings do not keep at the wall-clock time `now`; returns what was deleted.

    Each transaction is within `during()`, between which others can write. `session` is that of the writer, whose row is
    kept. Raises sqlite3.Error.
    """
    total = Deleted()
    ages = _ages(settings)
    while True:
        deleted = Deleted()
        for statement in _statements(db, ages, now, session):
            deleted += _repeat(db, statement, during)
        total += deleted
        with during():
            _forget_texts(db, ages, now, all_texts=bool(deleted.costs or deleted.sessions or deleted.series_blocks))
        _vacuum(db, during)
        if _used_bytes(db) <= settings.max_gib * _GIB or (smaller := _shrunk(ages)) == ages:
            return total
        ages = smaller


def planned(db: sqlite3.Connection, settings: HistorySettings, now: Time, *, session: int = 0) -> Deleted:
    """Return what `prune` would delete because of its age."""
    total = Deleted()
    for statement in _statements(db, _ages(settings), now, session):
        (count,) = db.execute(f"select count(*) {statement.condition}", statement.values).fetchone()
        total += statement.counted(count)
    return total


def _statements(db: sqlite3.Connection, ages: _Ages, now: Time, writer: int) -> Iterator[_Statement]:
    for cutoffs in _cutoffs(db, ages, now):
        yield from _raw(cutoffs)
        yield from _minutes(cutoffs)
        yield from _hours(cutoffs, writer)


def used_bytes_too_many(db: sqlite3.Connection, settings: HistorySettings) -> int:
    """Bytes by which the history is larger than the settings allow; 0 if it is not."""
    return max(0, _used_bytes(db) - int(settings.max_gib * _GIB))


def _repeat(
    db: sqlite3.Connection, statement: _Statement, during: Callable[[], AbstractContextManager[object]]
) -> Deleted:
    """Delete the rows of a statement in small transactions."""
    total = Deleted()
    query = (
        f"delete from {statement.table} where {statement.key} in"
        f" (select {statement.key.strip('()')} {statement.condition} limit {statement.chunk})"
    )
    while True:
        with during(), db:
            rows = db.execute(query, statement.values).rowcount
        total += statement.counted(rows)
        if rows < statement.chunk:
            return total


def _ages(settings: HistorySettings) -> _Ages:
    return _Ages(
        raw=round(settings.raw_days * DAY),
        minutes=round(settings.minutes_days * DAY),
        hours=round(settings.hours_days * DAY),
    )


def _shrunk(ages: _Ages) -> _Ages:
    """Ages that keep less: first of raw data, then of minutes, then of hours."""
    for field in ages.__struct_fields__:
        age = getattr(ages, field)
        if age > _LEAST:
            return replace(ages, **{field: max(_LEAST, round(age * _SHRUNK))})
    return ages


def _cutoffs(db: sqlite3.Connection, ages: _Ages, now: Time) -> Iterator[_Cutoffs]:
    rows = db.execute(
        "select recordings.id, recordings.mode, max(coalesce(ended, flushed)), group_concat(sessions.id),"
        " max(coalesce(last, 0)) from recordings join sessions on recording = recordings.id group by recordings.id"
    ).fetchall()
    for recording, mode, flushed, sessions, last in rows:
        begin = {name: now - getattr(ages, name) for name in ages.__struct_fields__}
        if mode != LIVE:
            begin = {name: last + DAY if flushed < time else 0 for name, time in begin.items()}
        # Costs and hours go by the day, because then texts that only they used are looked for.
        begin["hours"] = begin["hours"] // DAY * DAY
        numbers = tuple(int(number) for number in str(sessions).split(","))
        yield _Cutoffs(recording=recording, sessions=numbers, **begin)


def _raw(cutoffs: _Cutoffs) -> Iterator[_Statement]:
    for session in cutoffs.sessions:
        first, end = session << SESSION_BITS, (session + 1) << SESSION_BITS
        yield _Statement(
            table="event_blocks",
            condition="from event_blocks where session = ? and last < ?",
            values=(session, cutoffs.raw),
            counts="event_blocks",
            chunk=_CHUNK,
        )
        kept = "coalesce((select min(id) from event_blocks where id >= ? and id < ?), ?)"
        yield _Statement(
            table="event_repeats",
            condition=f"from event_repeats where id >= ? and id < {kept}",
            values=(first, first, end, end),
        )
        yield _Statement(
            table="event_heads",
            condition=f"from event_heads where session = ? and session * {1 << SESSION_BITS} + n < {kept}",
            values=(session, first, end, end),
            key="(session, name)",
        )
    yield _Statement(
        table="agreement_hours",
        condition="from agreement_hours where recording = ? and hour < ?",
        values=(cutoffs.recording, cutoffs.raw // HOUR),
        key="(recording, hour)",
    )
    yield _Statement(
        table="disagreements",
        condition="from disagreements where recording = ? and time < ?",
        values=(cutoffs.recording, cutoffs.raw),
    )
    # A checkpoint is needed as long as changes after it are.
    old = (
        "from checkpoints where recording = ? and coalesce((select min(later.time) from checkpoints later"
        " where later.recording = checkpoints.recording and later.id > checkpoints.id),"
        " (select max(last) from sessions where sessions.id = checkpoints.session)) < ?"
    )
    yield _Statement(
        table="change_batches",
        condition=f"from change_batches where id / {MOST_BATCHES} in (select id {old})",
        values=(cutoffs.recording, cutoffs.raw),
        counts="change_batches",
        chunk=_CHUNK,
    )
    yield _Statement(
        table="checkpoints",
        condition=old,
        values=(cutoffs.recording, cutoffs.raw),
        counts="checkpoints",
        chunk=_CHUNK,
    )


def _minutes(cutoffs: _Cutoffs) -> Iterator[_Statement]:
    yield _series(cutoffs.recording, seconds(MINUTE), cutoffs.minutes // HOUR)
    yield _recent(cutoffs.recording, seconds(MINUTE), cutoffs.minutes)
    for session in cutoffs.sessions:
        yield _Statement(
            table="differences",
            condition="from differences where session = ? and time < ?",
            values=(session, cutoffs.minutes),
            key="(session, n)",
        )


def _series(recording: int, span: int, before: int) -> _Statement:
    return _Statement(
        table="series",
        condition="from series where recording = ? and span = ? and start < ?",
        values=(recording, span, before),
        counts="series_blocks",
        chunk=_CHUNK,
    )


def _recent(recording: int, span: int, before: Time) -> _Statement:
    return _Statement(
        table="recent_samples",
        condition="from recent_samples where recording = ? and span = ? and time < ?",
        values=(recording, span, before),
        key="(recording, span, time)",
    )


def _hours(cutoffs: _Cutoffs, writer: int) -> Iterator[_Statement]:
    recording = cutoffs.recording
    yield _series(recording, seconds(HOUR), cutoffs.hours // HOUR)
    yield _recent(recording, seconds(HOUR), cutoffs.hours)
    yield _Statement(
        table="cost_hours",
        condition="from cost_hours where id >= ? and id < ?",
        values=(cost_id(recording, 0, 0), cost_id(recording, cutoffs.hours // HOUR, 0)),
        counts="costs",
    )
    for session in cutoffs.sessions:
        yield _Statement(
            table="audit",
            condition="from audit where session = ? and time < ?",
            values=(session, cutoffs.hours),
            counts="audit",
            key="(session, n)",
        )
        yield _Statement(
            table="foretold",
            condition="from foretold where session = ? and asked < ?",
            values=(session, cutoffs.hours),
            key="(session, workload)",
        )
        gone = "where ended is not null and coalesce(last, flushed) < ? and id = ? and id != ?"
        values = (cutoffs.hours, session, writer)
        for table in ("event_totals", "losses", "agreement"):
            yield _Statement(
                table=table,
                condition=f"from {table} where session in (select id from sessions {gone})",
                values=values,
                key="session",
            )
        yield _Statement(table="sessions", condition=f"from sessions {gone}", values=values, counts="sessions")


def _forget_texts(db: sqlite3.Connection, ages: _Ages, now: Time, *, all_texts: bool) -> None:
    """Delete texts that nothing uses any more; with `all_texts` also owners of costs, and texts of costs and series."""
    (oldest,) = db.execute(
        "select min(started) from sessions where mode != ?"
        " and exists (select 1 from event_blocks where session = sessions.id)",
        (LIVE,),
    ).fetchone()
    # Events are written on the day of their time, or later.
    used = min(now - ages.raw, now if oldest is None else oldest) // DAY - 1
    with db:
        db.execute("delete from names where kept = 0 and used < ?", (used,))
        if not all_texts:
            return
        db.execute(
            "delete from recordings where id not in (select recording from sessions where recording is not null)"
        )
        db.execute("create temp table if not exists needed (id integer primary key)")
        db.execute("delete from needed")
        owner = f"id / {MOST_OWNERS * HOURS} * {MOST_OWNERS} + id % {MOST_OWNERS}"
        db.execute(f"insert or ignore into needed select {owner} from cost_hours")
        db.execute("delete from cost_owners where id not in (select id from needed)")
        db.execute("delete from needed")
        for column in OWNER:
            db.execute(f"insert or ignore into needed select {column} from cost_owners")
        db.execute("insert or ignore into needed select name from series union select queue from losses")
        db.execute("insert or ignore into needed select owner from losses")
        db.execute("delete from names where kept = 1 and used < ? and id not in (select id from needed)", (used,))
        db.execute("delete from needed")


def _vacuum(db: sqlite3.Connection, during: Callable[[], AbstractContextManager[object]]) -> None:
    """Give free pages back to the file system; files of earlier versions keep them, and reuse them."""
    while _pragma(db, "auto_vacuum") == _INCREMENTAL and (free := _pragma(db, "freelist_count")):
        with during():
            db.execute(f"pragma incremental_vacuum({_PAGES})").fetchall()
        if _pragma(db, "freelist_count") >= free:
            break
    with during():
        db.execute("pragma wal_checkpoint(truncate)").fetchall()


_INCREMENTAL = 2


def _used_bytes(db: sqlite3.Connection) -> int:
    return (_pragma(db, "page_count") - _pragma(db, "freelist_count")) * _pragma(db, "page_size")


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"pragma {name}").fetchone()[0])
