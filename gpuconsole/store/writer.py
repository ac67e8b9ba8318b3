"""Rows of one session: what a `Recorder` queued, written in one transaction.

Only one process writes to a file at a time, so that numbers of texts and owners can be remembered between transactions.
"""

import re
import sqlite3
import zlib
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct, field

from gpuconsole.insight.cost.allocation import CostHour, CostOwner
from gpuconsole.insight.forecast.agreement import AgreementRecord
from gpuconsole.insight.forecast.backtest import ForecastDifferences
from gpuconsole.insight.forecast.estimates import PastEstimate
from gpuconsole.insight.preemption.history import lost_by
from gpuconsole.insight.series import Samples, hourly
from gpuconsole.model.change_log import ChangeBatch, Checkpoint
from gpuconsole.model.clock import DAY, HOUR, MINUTE, Span, Time
from gpuconsole.model.events import SAME_CHANGE, HistoryEvent, KueueEvent, PreemptionTrace
from gpuconsole.store import queries
from gpuconsole.store.event_blocks import (
    BY_HERE,
    HEAD,
    KIND_NUMBERS,
    LONG_COLUMNS,
    LOST,
    MERGED_AFTER,
    MOST,
    NUMBER_HERE,
    PLACEHOLDER,
    SESSION_BITS,
    SUBJECT_HERE,
    TEXT_COLUMNS,
    UID_HERE,
    USUAL_UNIT,
    VALUE_COLUMNS,
    BlockHead,
    Column,
    EventBlockReader,
    EventRow,
    Lines,
)
from gpuconsole.store.rows import (
    AMOUNTS,
    BLOCK,
    MOST_BATCHES,
    MOST_OWNERS,
    OWNER,
    Names,
    block_start,
    cost_id,
    owner_id,
    packed_sample,
    packed_samples,
    seconds,
    short,
)

_DIFFERENCE = "insert into differences values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_AGREEMENT = (
    "insert into agreement values (?, ?, ?) on conflict (session) do update"
    " set decisions = decisions + excluded.decisions, agreed = agreed + excluded.agreed"
)
_AGREEMENT_HOUR = (
    "insert into agreement_hours values (?, ?, ?, ?, ?) on conflict (recording, hour) do update set"
    " decisions = decisions + excluded.decisions, agreed = agreed + excluded.agreed,"
    " unknown = unknown + excluded.unknown"
)
_DISAGREEMENT = (
    "insert into disagreements (recording, time, workload, queue, kind, expected, actual, cause)"
    " values (?, ?, ?, ?, ?, ?, ?, ?)"
)
_ESTIMATE = "insert or replace into foretold values (?, ?, ?, ?, ?, ?, ?)"
_AUDIT = "insert into audit (session, n, wall, time, command, outcome, detail) values (?, ?, ?, ?, ?, ?, ?)"
_COST = (
    f"insert into cost_hours values (?{', ?' * len(AMOUNTS)}) on conflict (id)"
    f" do update set {', '.join(f'{one} = {one} + excluded.{one}' for one in AMOUNTS)}"
)
_SESSION = (
    "update sessions set flushed = :wall, unseen = :unseen, first = coalesce(first, :first),"
    " last = coalesce(max(last, :last), last, :last), events = max(events, :events) where id = :session"
)
_OWNER = f"insert into cost_owners (id, {', '.join(OWNER)}) values (?{', ?' * len(OWNER)})"
_COSTS_BETWEEN = "select id from cost_hours where id >= ? and id < ?"
_RECENT = "insert or replace into recent_samples values (?, ?, ?, ?)"
_BLOCK = "insert or replace into series (recording, span, start, kind, name, data) values (?, ?, ?, ?, ?, ?)"
_MOST_OWNERS = 200_000
Change = Checkpoint | ChangeBatch


class Queued(Struct, frozen=True, kw_only=True):
    """What is written in one transaction."""

    lines: Lines = {}
    repeats: Mapping[int, tuple[int, Time]] = {}
    """Number of a written event → how often it has occurred, and when it did last."""
    audits: Sequence[tuple[Time, Time, str, str, str]] = ()
    first_audit: int = 0
    """Number of the first line of the audit log."""
    compared: ForecastDifferences = field(default_factory=ForecastDifferences)
    first_difference: int = 0
    agreement: AgreementRecord = AgreementRecord()
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


_VARIABLE = re.compile(r"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})|([0-9]{1,18})")


class EventBlockWriter:
    """Writes the events of one session. Mutates; used within the transactions of its caller."""

    def __init__(self, db: sqlite3.Connection, session: int, names: Names) -> None:
        self._db = db
        self._session = session
        self._names = names
        self._heads: dict[int, int] = {}
        """Number of a subject's name → its last event."""
        self._open: list[EventRow] = []
        """Events of the small blocks that will be merged."""
        self._open_blocks: list[int] = []
        row = db.execute("select recording, started from sessions where id = ?", (session,)).fetchone()
        self._recording, self._started = int(row[0]), int(row[1])
        self._earlier: list[EventBlockReader] | None = None
        """Readers of the earlier sessions of the recording, while events from before this session are written."""

    def forget(self) -> None:
        """Forget what is known of the file, because a transaction was rolled back or another connection wrote."""
        self._heads.clear()
        self._open.clear()
        self._open_blocks.clear()

    def add(self, lines: Mapping[int, HistoryEvent], repeats: Mapping[int, tuple[int, Time]], today: int) -> None:
        """Write events by number, and how often earlier ones occurred: number → (count, last time)."""
        rows = [self._row(n, line, today) for n, line in lines.items()]
        self._earlier = None
        self._add_repeats(repeats)
        self._add_totals(lines.values(), today)
        if not rows:
            return
        together = [*self._open, *rows]
        if len(together) >= MOST or len(self._open_blocks) >= MERGED_AFTER:
            self._rewrite(together)
        else:
            self._open_blocks.append(self._write(rows))
            self._open = together

    def merge(self) -> None:
        """Merge the small blocks of this session, as at its end."""
        if len(self._open_blocks) > 1:
            self._rewrite(self._open)

    def _rewrite(self, rows: Sequence[EventRow]) -> None:
        """Write these events, which include those of all small blocks, as large blocks."""
        self._db.executemany("delete from event_blocks where id = ?", [(block,) for block in self._open_blocks])
        for first in range(0, len(rows), MOST):
            self._write(rows[first : first + MOST])
        ids = [self._id(rows[place].n) for place in (0, -1)]
        self._db.execute("delete from event_repeats where id between ? and ?", ids)
        self._open, self._open_blocks = [], []
        if len(self._heads) > _MOST_HEADS:
            self._heads.clear()

    def _id(self, n: int) -> int:
        return self._session << SESSION_BITS | n

    def _write(self, rows: Sequence[EventRow]) -> int:
        times = [row.time for row in rows]
        kinds = 0
        for row in rows:
            kinds |= 1 << row.what
            if row.values.get(Column.LOST_GPU_SECONDS) or row.values.get(Column.LOST_UNKNOWN):
                kinds |= LOST
        number = self._id(rows[0].n)
        self._db.execute(
            "insert into event_blocks (id, session, first, last, kinds, data) values (?, ?, ?, ?, ?, ?)",
            (number, self._session, min(times), max(times), kinds, _packed(rows)),
        )
        return number

    def _add_repeats(self, repeats: Mapping[int, tuple[int, Time]]) -> None:
        if not repeats:
            return
        for row in self._open:
            if (known := repeats.get(row.n)) is not None:
                row.values |= {Column.COUNT: known[0] - 1, Column.LAST_TIME: known[1] - row.time}
        self._db.executemany(
            "insert or replace into event_repeats values (?, ?, ?)",
            [(self._id(n), count, last) for n, (count, last) in repeats.items()],
        )

    def _add_totals(self, lines: Collection[HistoryEvent], today: int) -> None:
        counts: dict[int, int] = {}
        for line in lines:
            counts[KIND_NUMBERS[line.what]] = counts.get(KIND_NUMBERS[line.what], 0) + 1
        self._db.executemany(
            "insert into event_totals values (?, ?, ?) on conflict (session, what)"
            " do update set events = events + excluded.events",
            [(self._session, what, number) for what, number in counts.items()],
        )
        losses = [
            (
                self._session,
                self._names.number(queue, today, kept=True),
                self._names.number(owner, today, kept=True),
                lost.gpu_hours,
                lost.cost,
                lost.times,
                lost.unknown,
                lost.unpriced,
            )
            for (queue, owner), lost in lost_by(lines).items()
        ]
        self._db.executemany(_ADD_LOSS, losses)

    def _row(self, n: int, line: HistoryEvent, today: int) -> EventRow:
        names = self._names
        row: dict[int, Any] = {}
        for name, column in TEXT_COLUMNS.items():
            if text := getattr(line, name):
                row[column] = names.number(text, today)
        for name, column in VALUE_COLUMNS.items():
            if value := getattr(line, name):
                row[column] = short(value)
        subject = names.number(line.workload or line.pod, today)
        by = names.number(line.by, today)
        if line.workload:
            row[Column.WORKLOAD] = subject
        if line.pod:
            row[Column.POD] = line.pod if line.workload else subject
        if by:
            row[Column.BY] = by
        if line.unit != USUAL_UNIT:
            row[Column.UNIT] = names.number(line.unit, today) or ""
        if line.lost_unknown:
            row[Column.LOST_UNKNOWN] = 1
        if line.message:
            row[Column.MESSAGE] = self._message(line.message, line, today)
        if line.told:
            row[Column.TOLD] = [self._told(one, line, today) for one in line.told]
        if line.choice is not None:
            row[Column.CHOICE] = self._choice(line.choice, today)
        if line.count > 1:
            row[Column.COUNT], row[Column.LAST_TIME] = line.count - 1, line.last_time - line.time
        for column, number in ((Column.PREVIOUS, subject), (Column.BY_PREVIOUS, by if by != subject else 0)):
            if number and (distance := self._follow(number, n)):
                row[column] = distance
        is_known = line.time < self._started and subject > 0 and self._is_known(line, subject)
        return EventRow(n, line.time, KIND_NUMBERS[line.what], row, is_known)

    def _is_known(self, line: HistoryEvent, subject: int) -> bool:
        """True if an earlier session of the recording has this event, by the rule of the live backend."""
        if self._earlier is None:
            query = "select id from sessions where recording = ? and id < ? order by id desc"
            earlier = self._db.execute(query, (self._recording, self._session)).fetchall()
            self._earlier = [EventBlockReader(self._db, number) for (number,) in earlier]
        for reader in self._earlier:
            for block, place in reader.chain(subject):
                time = block.times[place]
                is_same = abs(time - line.time) <= SAME_CHANGE and block.kind(place) is line.what
                if is_same and block.subject(place) == subject:
                    return True
                # Events are reported late by hours at most.
                if time < line.time - DAY:
                    break
        return False

    def _follow(self, name: int, n: int) -> int:
        """Append event `n` to the chain of a name; returns the distance to the event before, or 0."""
        last = self._heads.get(name)
        if last is None:
            found = self._db.execute(HEAD, (self._session, name)).fetchone()
            last = int(found[0]) if found is not None else None
        self._heads[name] = n
        self._db.execute("insert or replace into event_heads values (?, ?, ?)", (self._session, name, n))
        return n - last if last is not None else 0

    def _message(self, text: str, line: HistoryEvent, today: int) -> Any:
        """The text as template and variables; as it is if it has characters that placeholders use."""
        if PLACEHOLDER.search(text) or not text:
            return text
        variables: list[Any] = []

        def placeholder(found: re.Match[str]) -> str:
            uid, number = found.groups()
            if uid is not None:
                variables.append(UUID(uid).bytes)
                return UID_HERE
            variables.append(number if number[0] == "0" and number != "0" else int(number))
            return NUMBER_HERE

        for name, here in ((line.workload or line.pod, SUBJECT_HERE), (line.by, BY_HERE)):
            if name:
                text = text.replace(name, here)
        template = _VARIABLE.sub(placeholder, text)
        return [self._names.number(template, today), *variables]

    def _told(self, told: KueueEvent, line: HistoryEvent, today: int) -> list[Any]:
        who = 0 if told.workload == line.workload else 1 if told.workload == line.by else told.workload
        if line.message and told.message == line.message:
            message: Any = 0
        elif line.message and told.message.startswith(line.message):
            rest = self._message(told.message.removeprefix(line.message), line, today)
            message = [0, rest] if isinstance(rest, str) else [0, *rest]
        else:
            message = self._message(told.message, line, today)
        return [who, self._names.number(told.reason, today), message, int(told.warning)]

    def _choice(self, choice: PreemptionTrace, today: int) -> list[Any]:
        considered = choice.considered
        return [
            choice.share,
            choice.by_share,
            choice.left_out,
            choice.as_of,
            int(choice.differs),
            [self._names.number(one.workload, today) for one in considered],
            [self._names.number(one.queue, today) for one in considered],
            [self._names.number(one.verdict.value, today) for one in considered],
            [one.priority for one in considered],
        ]


_MOST_HEADS = 200_000
_ADD_LOSS = (
    "insert into losses values (?, ?, ?, ?, ?, ?, ?, ?) on conflict (session, queue, owner) do update set"
    " gpu_hours = gpu_hours + excluded.gpu_hours, cost = cost + excluded.cost, times = times + excluded.times,"
    " unknown = unknown + excluded.unknown, unpriced = unpriced + excluded.unpriced"
)


def _packed(rows: Sequence[EventRow]) -> bytes:
    times, numbers = ([getattr(row, field) for row in rows] for field in ("time", "n"))
    gaps = [0, *(one - before - 1 for before, one in pairwise(numbers))]
    head = BlockHead(
        [times[0], *(one - before for before, one in pairwise(times))],
        bytes(row.what for row in rows),
        # The first number is part of the block's id.
        gaps if any(gaps) else [],
        [place for place, row in enumerate(rows) if row.is_known],
    )
    columns: dict[int, dict[int, list[Any]]] = {}
    texts: dict[int, dict[int, list[Any]]] = {}
    for what in sorted(set(head.whats)):
        values = [row.values for row in rows if row.what == what]
        for column in sorted(set().union(*values)):
            part = texts if column in LONG_COLUMNS else columns
            part.setdefault(what, {})[column] = [row.get(column, 0) for row in values]
    parts = (head, columns, texts) if texts else (head, columns)
    return b"".join(zlib.compress(msgspec.msgpack.encode(part), 9) for part in parts)


class Writer:
    """Writes the rows of one session. Mutates; the caller makes sure that only one thread uses it."""

    def __init__(self, db: sqlite3.Connection, session: int) -> None:
        self._db = db
        self._session = session
        row = db.execute("select recording from sessions where id = ?", (session,)).fetchone()
        self.recording = int(row[0])
        self._names = Names(db)
        self._events = EventBlockWriter(db, session, self._names)
        self._owners: dict[CostOwner, int] = {}
        self._open_blocks: dict[Span, Time] = {}
        """Span → start of the hour or day of the last sample that was written."""
        self._checkpoint = 0
        """The checkpoint that the next changes continue; 0 without one."""
        self._batches = 0
        self._until: Time = 0
        """The time up to which changes are written."""

    def write(self, queued: Queued, wall: Time) -> None:
        """Write everything, or nothing. Raises sqlite3.Error; the same can be written again then."""
        before = self._checkpoint, self._batches, self._until, dict(self._open_blocks)
        try:
            with self._db:
                self._write(queued, wall)
        except BaseException:
            self._checkpoint, self._batches, self._until, self._open_blocks = before
            self.forget()
            raise

    def forget(self) -> None:
        """Forget what is known of the file, as another connection changed it or a transaction was rolled back."""
        self._names.forget()
        self._events.forget()
        self._owners.clear()

    def _write(self, queued: Queued, wall: Time) -> None:
        db, session, today = self._db, self._session, wall // DAY
        self._events.add(queued.lines, queued.repeats, today)
        db.executemany(_AUDIT, [(session, n, *row) for n, row in enumerate(queued.audits, queued.first_audit)])
        if queued.compared.decisions:
            rows = enumerate(queued.compared.differences, queued.first_difference)
            db.executemany(_DIFFERENCE, ((session, n, *msgspec.structs.astuple(one)) for n, one in rows))
            db.execute(_AGREEMENT, (session, queued.compared.decisions, queued.compared.agreed))
        hours = queued.agreement.hours.items()
        db.executemany(_AGREEMENT_HOUR, [(self.recording, hour, *msgspec.structs.astuple(one)) for hour, one in hours])
        found = queued.agreement.disagreements
        db.executemany(_DISAGREEMENT, [(self.recording, *msgspec.structs.astuple(one)) for one in found])
        db.executemany(_ESTIMATE, [(session, *_estimate(one)) for one in queued.estimates])
        self._write_costs(queued.costs, today)
        self._write_samples(queued.samples, today)
        for change in queued.changes:
            self._write_change(change)
        first, last = queued.times or (None, None)
        unseen = msgspec.json.encode(list(queued.unseen)).decode() if queued.unseen else ""
        values = {"wall": wall, "unseen": unseen, "first": first, "last": last, "session": session}
        values["events"] = max(queued.lines, default=-1) + 1
        db.execute(_SESSION, values)

    def _write_costs(self, costs: Sequence[CostHour], today: int) -> None:
        for one in costs:
            number = cost_id(self.recording, one.hour // HOUR, self._owner(one.owner, one.hour // HOUR, today))
            self._db.execute(_COST, (number, *[getattr(one, amount) for amount in AMOUNTS]))

    def _owner(self, owner: CostOwner, hour: int, today: int) -> int:
        """Number of an owner in its recording. One that had no costs in the two hours before may get a new number."""
        if not self._owners:
            first, last = cost_id(self.recording, hour - 2, 0), cost_id(self.recording, hour + 1, 0)
            numbers = {number & (MOST_OWNERS - 1) for (number,) in self._db.execute(_COSTS_BETWEEN, (first, last))}
            self._owners = {known: number for number, known in queries.cost_owners(self._db, self.recording, numbers)}
        number = self._owners.get(owner)
        if number is None:
            range_ = owner_id(self.recording, 0), owner_id(self.recording + 1, 0)
            (newest,) = self._db.execute("select max(id) from cost_owners where id >= ? and id < ?", range_).fetchone()
            number = newest - range_[0] + 1 if newest is not None else 0
            values = [self._names.number(str(getattr(owner, column)), today, kept=True) for column in OWNER]
            self._db.execute(_OWNER, (owner_id(self.recording, number), *values))
            if len(self._owners) >= _MOST_OWNERS:
                self._owners.clear()
            self._owners[owner] = number
        return number

    def _write_samples(self, samples: Sequence[Samples], today: int) -> None:
        for one in samples:
            start = block_start(one.time, one.span)
            if self._open_blocks.get(one.span) != start:
                self._pack_all(one.span, today, but=start)
                self._open_blocks[one.span] = start
            self._db.execute(_RECENT, (self.recording, seconds(one.span), one.time, packed_sample(one)))

    def _pack_all(self, span: Span, today: int, but: Time | None = None) -> None:
        """Pack the hours or days that are over, also those of earlier sessions: all but one, or but the last."""
        rows = self._db.execute(
            "select time from recent_samples where recording = ? and span = ?", (self.recording, seconds(span))
        )
        starts = sorted({block_start(time, span) for (time,) in rows})
        for start in starts if but is not None else starts[:-1]:
            if start != but:
                self._pack(span, start, today)

    def _pack(self, span: Span, start: Time, today: int) -> None:
        """Write the samples of an hour or day that is over as blocks, and add an hour to the hourly series."""
        end = start + BLOCK[span]
        samples = queries.samples(self._db, self.recording, start, end, span=span)
        rows = [
            (self.recording, seconds(span), start // HOUR, kind, self._names.number(name, today, kept=True), data)
            for (kind, name), data in packed_samples(samples, start).items()
        ]
        self._db.executemany(_BLOCK, rows)
        self._db.execute(
            "delete from recent_samples where recording = ? and span = ? and time >= ? and time < ?",
            (self.recording, seconds(span), start, end),
        )
        if samples and span == MINUTE:
            self._write_samples([hourly(samples)], today)

    def _write_change(self, change: Change) -> None:
        if isinstance(change, Checkpoint):
            made = self._db.execute(
                "insert into checkpoints (recording, session, time, data) values (?, ?, ?, ?)",
                (self.recording, self._session, change.time, change.data),
            )
            self._checkpoint, self._batches, self._until = int(made.lastrowid or 0), 0, change.time
        elif self._checkpoint and self._batches < MOST_BATCHES:
            time = change.time if change.time != self._until else None
            number = self._checkpoint * MOST_BATCHES + self._batches
            self._db.execute(
                "insert into change_batches values (?, ?, ?, ?)", (number, time, change.until, change.data)
            )
            self._batches, self._until = self._batches + 1, change.until

    def close(self) -> None:
        """Write the session's small blocks as large ones. Raises sqlite3.Error."""
        with self._db:
            self._events.merge()

    def pack(self, wall: Time) -> None:
        """Pack time series of hours that are over, also of sessions that were killed. Raises sqlite3.Error."""
        try:
            with self._db:
                self._pack_all(MINUTE, wall // DAY)
                self._pack_all(HOUR, wall // DAY)
        except BaseException:
            self.forget()
            raise


def _estimate(estimate: PastEstimate) -> tuple[object, ...]:
    return (
        estimate.workload,
        estimate.asked_at,
        estimate.median,
        estimate.interval.first,
        estimate.interval.last,
        estimate.started,
    )


def pack_samples(db: sqlite3.Connection, wall: Time) -> None:
    """Pack the time series of all recordings that are over, where nobody records. Raises sqlite3.Error."""
    newest = "select max(id) from sessions where recording is not null group by recording"
    for (session,) in db.execute(newest).fetchall():
        Writer(db, session).pack(wall)
