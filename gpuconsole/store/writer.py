"""Rows of one session: what a `Recorder` queued, written in one transaction.

Only one process writes to a file at a time, so that numbers of texts and owners can be remembered between transactions.
"""

import sqlite3
from collections.abc import Sequence

import msgspec
from msgspec import Struct, field

from gpuconsole.insight.cost.allocation import CostHour, CostOwner
from gpuconsole.insight.forecast.backtest import ForecastDifferences
from gpuconsole.insight.forecast.estimates import PastEstimate
from gpuconsole.insight.series import Samples, hourly
from gpuconsole.model.change_log import ChangeBatch, Checkpoint
from gpuconsole.model.clock import DAY, HOUR, MINUTE, Span, Time
from gpuconsole.model.events import HistoryEvent
from gpuconsole.store import queries
from gpuconsole.store.queries import COLUMNS, Lines
from gpuconsole.store.rows import BLOCK, Names, block_start, hash_of, packed_samples, seconds
from gpuconsole.store.schema import AMOUNTS, OWNER

_INSERT = f"insert into events (session, n, {', '.join(COLUMNS)}) values (?, ?{', ?' * len(COLUMNS)})"
_DIFFERENCE = "insert into differences values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_AGREEMENT = (
    "insert into agreement values (?, ?, ?) on conflict (session) do update"
    " set decisions = decisions + excluded.decisions, agreed = agreed + excluded.agreed"
)
_ESTIMATE = "insert or replace into foretold values (?, ?, ?, ?, ?, ?, ?)"
_AUDIT = "insert into audit (session, n, wall, time, command, outcome, detail) values (?, ?, ?, ?, ?, ?, ?)"
_COST = (
    f"insert into cost_hours values (?, ?, ?{', ?' * len(AMOUNTS)}) on conflict (recording, hour, owner)"
    f" do update set {', '.join(f'{one} = {one} + excluded.{one}' for one in AMOUNTS)}"
)
_SESSION = (
    "update sessions set flushed = :wall, unseen = :unseen, first = coalesce(first, :first),"
    " last = coalesce(max(last, :last), last, :last) where id = :session"
)
_MOST_OWNERS = 200_000
Change = Checkpoint | ChangeBatch


class Queued(Struct, frozen=True, kw_only=True):
    """What is written in one transaction."""

    lines: Lines = {}
    audits: Sequence[tuple[Time, Time, str, str, str]] = ()
    first_audit: int = 0
    """Number of the first line of the audit log."""
    compared: ForecastDifferences = field(default_factory=ForecastDifferences)
    first_difference: int = 0
    estimates: Sequence[PastEstimate] = ()
    costs: Sequence[CostHour] = ()
    samples: Sequence[Samples] = ()
    changes: Sequence[Change] = ()
    unseen: Sequence[str] = ()

    @property
    def times(self) -> tuple[Time, Time] | None:
        """The first and last time that the cluster is known at, by its clock; None without any."""
        states = [one.time for one in self.samples]
        states += (one.time if isinstance(one, Checkpoint) else one.until for one in self.changes)
        # A live cluster reports some events long after their time.
        times = states or [line.time for line in self.lines.values()]
        return (min(times), max(times)) if times else None


class Writer:
    """Writes the rows of one session. Mutates; the caller makes sure that only one thread uses it."""

    def __init__(self, db: sqlite3.Connection, session: int) -> None:
        self._db = db
        self._session = session
        row = db.execute("select recording from sessions where id = ?", (session,)).fetchone()
        self.recording = int(row[0])
        self._names = Names(db)
        self._owners: dict[CostOwner, int] = {}
        self._block: tuple[Time, list[Samples]] | None = None
        self._checkpoint = 0
        """The checkpoint that the next changes continue; 0 without one."""
        self._batches = 0

    def write(self, queued: Queued, wall: Time) -> None:
        """Write everything, or nothing. Raises sqlite3.Error; the same can be written again then."""
        before = self._checkpoint, self._batches
        try:
            with self._db:
                self._write(queued, wall)
        except BaseException:
            self._checkpoint, self._batches = before
            self.forget()
            raise

    def forget(self) -> None:
        """Forget what is known of the file, as another connection changed it or a transaction was rolled back."""
        self._names.forget()
        self._owners.clear()
        self._block = None

    def _write(self, queued: Queued, wall: Time) -> None:
        db, session, today = self._db, self._session, wall // DAY
        db.executemany(_INSERT, [(session, n, *_row(line)) for n, line in queued.lines.items()])
        db.executemany(_AUDIT, [(session, n, *row) for n, row in enumerate(queued.audits, queued.first_audit)])
        if queued.compared.decisions:
            rows = enumerate(queued.compared.differences, queued.first_difference)
            db.executemany(_DIFFERENCE, ((session, n, *msgspec.structs.astuple(one)) for n, one in rows))
            db.execute(_AGREEMENT, (session, queued.compared.decisions, queued.compared.agreed))
        db.executemany(_ESTIMATE, [(session, *_estimate(one)) for one in queued.estimates])
        self._write_costs(queued.costs, today)
        self._write_samples(queued.samples, today)
        for change in queued.changes:
            self._write_change(change)
        first, last = queued.times or (None, None)
        unseen = msgspec.json.encode(list(queued.unseen)).decode() if queued.unseen else ""
        values = {"wall": wall, "unseen": unseen, "first": first, "last": last, "session": session}
        db.execute(_SESSION, values)

    def _write_costs(self, costs: Sequence[CostHour], today: int) -> None:
        rows = []
        for one in costs:
            amounts = [getattr(one, amount) for amount in AMOUNTS]
            rows.append((self.recording, one.hour // HOUR, self._owner(one.owner, today), *amounts))
        self._db.executemany(_COST, rows)

    def _owner(self, owner: CostOwner, today: int) -> int:
        number = self._owners.get(owner)
        if number is None:
            values = [self._names.number(str(getattr(owner, column)), today, kept=True) for column in OWNER]
            key = (self.recording, hash_of((self.recording, *values)), *values)
            same = " and ".join(f"{column} = ?" for column in ("recording", "hash", *OWNER))
            row = self._db.execute(f"select id from cost_owners where {same}", key).fetchone()
            if row is not None:
                number = int(row[0])
            else:
                columns = ", ".join(("recording", "hash", *OWNER))
                made = self._db.execute(f"insert into cost_owners ({columns}) values (?, ?{', ?' * len(OWNER)})", key)
                number = int(made.lastrowid or 0)
            if len(self._owners) >= _MOST_OWNERS:
                self._owners.clear()
            self._owners[owner] = number
        return number

    def _write_samples(self, samples: Sequence[Samples], today: int) -> None:
        for span, start in dict.fromkeys((one.span, block_start(one.time, one.span)) for one in samples):
            new = [one for one in samples if (one.span, block_start(one.time, one.span)) == (span, start)]
            block = {one.time: one for one in (*self._written_block(span, start, today), *new)}
            whole = [block[time] for time in sorted(block)]
            rows = [
                (self.recording, seconds(span), start // HOUR, kind, self._names.number(name, today, kept=True), data)
                for (kind, name), data in packed_samples(whole, start).items()
            ]
            self._db.executemany("insert or replace into series values (?, ?, ?, ?, ?, ?)", rows)
            if span == MINUTE:
                self._block = (start, whole)

    def _written_block(self, span: Span, start: Time, today: int) -> Sequence[Samples]:
        """The written samples of a block. If an hour of minutes is over, it is added to the hourly series."""
        if span == MINUTE and self._block is not None:
            if self._block[0] == start:
                return self._block[1]
            if self._block[0] < start:
                self._write_samples([hourly(self._block[1])], today)
        return queries.samples(self._db, self.recording, start, start + BLOCK[span], span=span)

    def write_hours(self, today: int) -> None:
        """Add the hours that are missing in the hourly series, because a session ended within them."""
        last = queries.newest_sample(self._db, self.recording, HOUR)
        minutes = queries.recorded_series(self._db, self.recording, MINUTE)
        start = max(minutes[0], last + HOUR) if last is not None else minutes[0]
        while start < minutes[1]:
            if found := queries.samples(self._db, self.recording, start, start + HOUR, span=MINUTE):
                self._write_samples([hourly(found)], today)
            start += HOUR

    def _write_change(self, change: Change) -> None:
        if isinstance(change, Checkpoint):
            made = self._db.execute(
                "insert into checkpoints (recording, session, time, data) values (?, ?, ?, ?)",
                (self.recording, self._session, change.time, change.data),
            )
            self._checkpoint, self._batches = int(made.lastrowid or 0), 0
        elif self._checkpoint:
            self._db.execute(
                "insert into change_batches values (?, ?, ?, ?, ?)",
                (self._checkpoint, self._batches, change.time, change.until, change.data),
            )
            self._batches += 1

    def break_change_log(self) -> None:
        """Write no changes until the next checkpoint, because some are missing before them."""
        self._checkpoint = 0


def _row(line: HistoryEvent) -> tuple[object, ...]:
    """The line as its columns; Kueue's Events and the choice of victims come last, as JSON."""
    *values, kueue_events, choice = msgspec.structs.astuple(line)
    return *values, *(msgspec.json.encode(part).decode() if part else "" for part in (kueue_events, choice))


def _estimate(estimate: PastEstimate) -> tuple[object, ...]:
    return (
        estimate.workload,
        estimate.asked_at,
        estimate.median,
        estimate.interval.first,
        estimate.interval.last,
        estimate.started,
    )
