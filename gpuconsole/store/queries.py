"""Queries of the history: one function each, plain SQL, structs as results.

They raise HistoryError for an invalid line, and sqlite3.Error for an unreadable file. A line is a history event; it has
its number in the session, by which it can be merged with lines that are not stored yet (`recorder` does that).
"""

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Struct

from gpuconsole.errors import DamagedHistoryError, HistoryError
from gpuconsole.insight.cost.allocation import CostHour, CostOwner
from gpuconsole.insight.forecast.agreement import (
    KEPT,
    AgreementCounts,
    AgreementRecord,
    DecisionKind,
    DisagreementCause,
    ShadowDisagreement,
    first_hour,
)
from gpuconsole.insight.forecast.backtest import DifferenceCause, ForecastDifference, ForecastDifferences
from gpuconsole.insight.forecast.estimates import Interval, PastEstimate
from gpuconsole.insight.overview import BINS, LastHour
from gpuconsole.insight.preemption.history import NEEDED, OVER, PLACED, Losses, LostWork, lost_by, lost_by_one
from gpuconsole.insight.series import Samples, SeriesKind
from gpuconsole.insight.tables import time_range
from gpuconsole.model.change_log import ChangeBatch, Checkpoint
from gpuconsole.model.clock import DAY, HOUR, MINUTE, SECOND, Span, Time, format_time
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.text import clean
from gpuconsole.store.event_blocks import KIND_NUMBERS, LOST, EventBlock, EventBlockReader, Found, Lines, bits
from gpuconsole.store.rows import (
    AMOUNTS,
    BLOCK,
    HOURS,
    LIVE,
    MOST_BATCHES,
    MOST_OWNERS,
    OWNER,
    block_start,
    cost_id,
    kinds_of,
    number_of,
    owner_id,
    seconds,
    unpacked_sample,
    unpacked_samples,
)

ENDLESS = 2**62
"""A number greater than that of any event: queries then include all stored events."""
_AFTERWARDS = NEEDED - {HistoryEventKind.PREEMPTED}
_PREEMPTED = KIND_NUMBERS[HistoryEventKind.PREEMPTED]
_RECONSTRUCTED = KIND_NUMBERS[HistoryEventKind.RECONSTRUCTED]
_ADMITTED = KIND_NUMBERS[HistoryEventKind.ADMITTED]
_PLACED, _OVER = ({KIND_NUMBERS[kind] for kind in kinds} for kinds in (PLACED, OVER))
_WITH_TEXTS = (HistoryEventKind.PREEMPTED, HistoryEventKind.RECONSTRUCTED)
_OVERVIEW = (HistoryEventKind.ADMITTED, HistoryEventKind.PREEMPTED)


def preemptions(db: sqlite3.Connection, session: int, limit: int) -> Lines:
    """The newest preemptions of a session, with the later outcomes of victims and preemptors. Raises HistoryError.

    The outcomes are those that `rows` needs, without messages and Events.
    """
    reader = EventBlockReader(db, session)
    chosen: list[Found] = []
    for block in reader.blocks(kinds=bits([HistoryEventKind.PREEMPTED]), newest_first=True):
        chosen += ((block, at) for at in reversed(block.places(_PREEMPTED)))
        if len(chosen) >= limit:
            break
    del chosen[limit:]
    if not chosen:
        return {}
    first = min(block.numbers[at] for block, at in chosen)
    names = {name for block, at in chosen for name in (block.subject(at), block.preemptor(at)) if name}
    found = {block.numbers[at]: (block, at) for block, at in chosen}
    for block, at in _outcomes(chosen, reader.about(names, _AFTERWARDS, after=first)):
        found[block.numbers[at]] = (block, at)
    reader.read_texts(names)
    return {
        n: reader.event(block, at, has_texts=block.kind(at) in _WITH_TEXTS) for n, (block, at) in sorted(found.items())
    }


def _outcomes(chosen: Sequence[Found], later: Iterable[tuple[EventBlock, int, int]]) -> Iterator[Found]:
    """Those of the `later` events (block, place, name) that `rows` needs to complete the `chosen` preemptions.

    Of the times at which the pods of a preemptor are bound it needs only the first one after each preemption.
    """
    preempted: dict[int, list[Time]] = {}
    """Victim → times of its preemptions after which it was not admitted again yet."""
    unplaced: dict[int, list[Time]] = {}
    """Preemptor → times of its preemptions after which it was not placed yet."""
    for block, at in chosen:
        preempted.setdefault(block.subject(at), []).append(block.times[at])
        unplaced.setdefault(block.preemptor(at), []).append(block.times[at])
    first_as_victim = {name: min(times) for name, times in preempted.items()}
    first_as_preemptor = {name: min(times) for name, times in unplaced.items()}
    for block, at, name in later:
        what, time = block.whats[at], block.times[at]
        if what not in _PLACED:
            is_needed = what == _RECONSTRUCTED or time >= first_as_victim.get(name, ENDLESS)
            is_needed |= what in _OVER and time >= first_as_preemptor.get(name, ENDLESS)
        else:
            is_needed = False
            if times := unplaced.get(name):
                unplaced[name] = [one for one in times if one > time]
                is_needed = len(unplaced[name]) < len(times)
            if what == _ADMITTED and (times := preempted.get(name)):
                preempted[name] = [one for one in times if one >= time]
                is_needed |= len(preempted[name]) < len(times)
        if is_needed:
            yield block, at


def of_workload(db: sqlite3.Connection, session: int, workload: str) -> Lines:
    """All events of a workload in a session, and its effects on others. Raises HistoryError."""
    number = number_of(db, workload)
    if not number:
        return {}
    reader = EventBlockReader(db, session)
    events = reader.events(reader.chain(number))
    return {n: line for n, line in events.items() if workload in (line.workload, line.by)}


def losses(db: sqlite3.Connection, session: int, before: int) -> Losses:
    """Lost work in the history events of a session with numbers below `before`, by (queue, workload).

    Evictions count; a preemption only repeats the loss of its eviction. Events that were deleted by retention count.
    Raises HistoryError.
    """
    rows = db.execute(
        "select queues.text, owners.text, gpu_hours, cost, times, unknown, unpriced from losses"
        " left join names queues on queues.id = queue left join names owners on owners.id = owner"
        " where session = ? order by queue, owner",
        (session,),
    ).fetchall()
    found = {
        (clean(queue or ""), clean(owner or "")): LostWork(float(hours), float(cost), times, unknown, unpriced)
        for queue, owner, hours, cost, times, unknown, unpriced in rows
    }
    for key, later in lost_by(_from_number(db, session, before, LOST)).items():
        found[key] = found[key] + LostWork(-later.gpu_hours, -later.cost, -later.times, -later.unknown, -later.unpriced)
    return {key: lost for key, lost in found.items() if lost.times}


def _from_number(db: sqlite3.Connection, session: int, first: int, kinds: int) -> list[HistoryEvent]:
    """The events of some kinds (bits) with numbers from `first`: those that were written since the caller looked."""
    if first >= written(db, session):
        return []
    reader = EventBlockReader(db, session)
    blocks = reader.blocks(kinds=kinds)
    return [reader.event(block, at) for block in blocks for at, n in enumerate(block.numbers) if n >= first]


def written(db: sqlite3.Connection, session: int) -> int:
    """The number that follows that of the last written event of a session."""
    row = db.execute("select events from sessions where id = ?", (session,)).fetchone()
    return int(row[0]) if row is not None else 0


def last_hour(db: sqlite3.Connection, session: int, now: Time, before: int) -> LastHour:
    """Totals of the hour before `now`, from the session's history events with numbers below `before`.

    Raises HistoryError.
    """
    start = now - HOUR
    admitted, preempted = [0] * BINS, [0] * BINS
    lost = LostWork()
    reader = EventBlockReader(db, session)
    for block in reader.blocks(since=start, kinds=bits(_OVERVIEW) | LOST):
        counted = {
            what: [
                time
                for at in block.places(KIND_NUMBERS[what])
                if (time := block.times[at]) > start and block.numbers[at] < before
            ]
            for what in _OVERVIEW
        }
        for bins, what in ((admitted, HistoryEventKind.ADMITTED), (preempted, HistoryEventKind.PREEMPTED)):
            for time in counted[what]:
                bins[min(BINS - 1, (time - start) * BINS // HOUR)] += 1
        for at in block.places_with_loss():
            if block.times[at] > start and block.numbers[at] < before:
                loss = block.loss(at)
                if loss.what is not HistoryEventKind.PREEMPTED:
                    lost += lost_by_one(loss)
    return LastHour(
        time=now,
        admitted=sum(admitted),
        admitted_bins=tuple(admitted),
        preempted=sum(preempted),
        preempted_bins=tuple(preempted),
        lost_gpu_hours=lost.gpu_hours,
        cost=lost.cost,
        losses=lost.times,
        unknown=lost.unknown,
        unpriced=lost.unpriced,
        since=start,
    )


def preemption_count(db: sqlite3.Connection, session: int, before: int) -> int:
    """Count the preemptions among the session's history events with numbers below `before`. Raises HistoryError."""
    later = _from_number(db, session, before, bits([HistoryEventKind.PREEMPTED]))
    query = "select coalesce(sum(events), 0) from event_totals where session = ? and what = ?"
    number = int(db.execute(query, (session, _PREEMPTED)).fetchone()[0])
    return number - sum(line.what is HistoryEventKind.PREEMPTED for line in later)


def compared(db: sqlite3.Connection, limit: int) -> ForecastDifferences:
    """Comparison of the forecasts of all sessions with Kueue's decisions.

    All decisions and causes are counted; the newest `limit` differences are listed, oldest first.
    """
    (decisions, agreed) = db.execute(
        "select coalesce(sum(decisions), 0), coalesce(sum(agreed), 0) from agreement"
    ).fetchone()
    rows = db.execute(
        "select time, span, workload, queue, foreseen, fact, cause, detail, object from differences"
        " order by session desc, n desc limit ?",
        (limit,),
    ).fetchall()
    listed = tuple(map(_difference, reversed(rows)))
    causes: Counter[DifferenceCause] = Counter()
    for cause, number in db.execute("select cause, count(*) from differences group by cause"):
        causes[_cause(cause)] += number
    earlier = causes - Counter(one.cause for one in listed)
    return ForecastDifferences(decisions=decisions, agreed=agreed, differences=listed, earlier=earlier)


def agreement(db: sqlite3.Connection, recording: int, now: Time) -> AgreementRecord:
    """Return the decisions of Kueue in the 24 hours before `now` that were compared with the engine's."""
    hours = db.execute(
        "select hour, decisions, agreed, unknown from agreement_hours where recording = ? and hour between ? and ?",
        (recording, first_hour(now), now // HOUR),
    ).fetchall()
    rows = db.execute(
        "select time, workload, queue, kind, expected, actual, cause from disagreements"
        " where recording = ? and time > ? and time <= ? order by id desc limit ?",
        (recording, now - DAY, now, KEPT),
    ).fetchall()
    return AgreementRecord(
        hours={int(hour): AgreementCounts(*map(int, counts)) for hour, *counts in hours},
        disagreements=tuple(map(_disagreement, reversed(rows))),
    )


def agreement_of(db: sqlite3.Connection, source: str, now: Time) -> AgreementRecord:
    """Return the same for the live cluster `source`; an empty one if nothing of it is recorded."""
    row = db.execute("select id from recordings where mode = ? and source = ?", (LIVE, source)).fetchone()
    return agreement(db, int(row[0]), now) if row is not None else AgreementRecord()


def estimates(db: sqlite3.Connection, source: str, limit: int) -> list[PastEstimate]:
    """The newest estimated starts of the live cluster `source`, from all its sessions, oldest first."""
    rows = db.execute(
        "select workload, asked, median, foretold.first, foretold.last, foretold.started from foretold"
        " join sessions on id = session"
        " where mode = ? and source = ? order by asked desc, workload desc limit ?",
        (LIVE, source, limit),
    ).fetchall()
    return [
        PastEstimate(
            workload=clean(workload),
            asked_at=int(asked),
            median=int(median),
            interval=Interval(int(first), int(last)),
            started=int(started) if started is not None else None,
        )
        for workload, asked, median, first, last, started in reversed(rows)
    ]


class Recording(Struct, frozen=True, kw_only=True):
    """What was recorded of one cluster: all sessions of a live cluster in this file, or one simulation."""

    id: int
    mode: str
    """`LIVE`, `SIM` …, as `ConsoleMode`."""
    source: str
    first: Time
    """When the recorded time begins, by the cluster's clock."""
    last: Time
    """When it ends."""

    @property
    def staged(self) -> bool:
        """Whether it is of a simulation, so that its time is not wall-clock time."""
        return self.mode != LIVE


def recordings(db: sqlite3.Connection) -> list[Recording]:
    """All recordings that contain anything, oldest first; the last one is that of the newest session."""
    rows = db.execute(
        "select recordings.id, recordings.mode, recordings.source, min(first), max(last) from recordings"
        " join sessions on recording = recordings.id where last is not null"
        " group by recording order by max(sessions.id)"
    )
    return [
        Recording(id=int(number), mode=clean(mode), source=clean(source), first=int(first), last=int(last))
        for number, mode, source, first, last in rows
    ]


def cost_hours(db: sqlite3.Connection, recording: int, since: Time, until: Time) -> list[CostHour]:
    """Costs of the hours that overlap [since, until), by hour and owner. Raises HistoryError."""
    rows = db.execute(
        f"select id, id, {', '.join(AMOUNTS)} from cost_hours where {_HOURS}", _ids(recording, since, until)
    )
    return _costs(db, recording, rows.fetchall())


def cost_sums(db: sqlite3.Connection, recording: int, since: Time, until: Time) -> list[CostHour]:
    """Costs of the hours that overlap [since, until), summed by owner; `hour` is the owner's first hour.

    A report of a month needs no more, and has far fewer rows. Raises HistoryError.
    """
    sums = ", ".join(f"sum({one})" for one in AMOUNTS)
    query = f"select id % {MOST_OWNERS} as owner, min(id), {sums} from cost_hours where {_HOURS} group by owner"
    return _costs(db, recording, db.execute(query, _ids(recording, since, until)).fetchall())


_HOURS = "id >= ? and id < ?"


def _ids(recording: int, since: Time, until: Time) -> tuple[int, int]:
    return cost_id(recording, since // HOUR, 0), cost_id(recording, -(-until // HOUR), 0)


def _costs(db: sqlite3.Connection, recording: int, rows: Sequence[tuple[Any, ...]]) -> list[CostHour]:
    needed = {row[0] % MOST_OWNERS for row in rows}
    owners = dict(cost_owners(db, recording, needed))
    if lost := needed - owners.keys():
        raise DamagedHistoryError(f"the history has costs of owner {min(lost)}, which is missing")
    found = []
    for owner, number, gpu_seconds, used, underutilized, lost_work, idle, system, saved, busy, measured in rows:
        one = CostHour(
            owner=owners[owner % MOST_OWNERS],
            hour=number // MOST_OWNERS % HOURS * HOUR,
            gpu_seconds=gpu_seconds,
            used_usd=used,
            underutilized_usd=underutilized,
            lost_usd=lost_work,
            idle_usd=idle,
            system_usd=system,
            saved_usd=saved,
            busy_gpu_seconds=busy,
            measured_gpu_seconds=measured,
        )
        found.append(one)
    return found


def cost_owners(db: sqlite3.Connection, recording: int, numbers: Collection[int]) -> Iterator[tuple[int, CostOwner]]:
    """Owners of costs in a recording by number. Raises HistoryError."""
    query = f"select id, {', '.join(OWNER)} from cost_owners where id >= ? and id < ?"
    bounds = owner_id(recording, min(numbers, default=0)), owner_id(recording, max(numbers, default=-1) + 1)
    texts: dict[int, str] = {0: ""}
    for owner, *values in db.execute(query, bounds).fetchall():
        number = owner - owner_id(recording, 0)
        if number not in numbers:
            continue
        for value in values:
            if value not in texts:
                row = db.execute("select text from names where id = ?", (value,)).fetchone()
                texts[value] = clean(row[0]) if row is not None else ""
        try:
            fields = dict(zip(OWNER, (texts[value] for value in values), strict=True))
            yield number, msgspec.convert(fields, CostOwner)
        except msgspec.ValidationError as error:
            raise DamagedHistoryError(f"owner {number} of costs in the history is damaged: {error}") from error


# A walk from block to block by its whole key: a range of starts would read the blocks of all series.
_SERIES = """
with recursive starts(start) as (select :since union all select start + :step from starts where start + :step < :until)
select series.start, series.kind, :text, data from starts cross join json_each(:kinds) wanted cross join series
    on recording = :recording and span = :span and series.start = starts.start and kind = wanted.value and name = :name
"""
_ALL_SERIES = """
select start, kind, coalesce(text, ''), data from series left join names on names.id = name
    where recording = :recording and span = :span and start >= :since and start < :until
    and kind in (select value from json_each(:kinds))
"""


def samples(
    db: sqlite3.Connection,
    recording: int,
    since: Time,
    until: Time,
    *,
    span: Span,
    kind: SeriesKind | None = None,
    name: str | None = None,
) -> list[Samples]:
    """Time series of [since, until) in minutes or hours, oldest first. Raises HistoryError.

    With `kind`, or `kind` and `name`, they contain only these queues; GPUs, evictions and cost only without.
    """
    recent = _recent_samples(db, recording, since, until, span, kind, name)
    first, last = recorded_series(db, recording, span)
    begin, end = block_start(max(since, first), span), min(until, last + BLOCK[span])
    wanted: dict[str, object] = {
        "recording": recording,
        "span": seconds(span),
        "since": begin // HOUR,
        "until": -(-end // HOUR),
        "step": BLOCK[span] // HOUR,
        "kinds": msgspec.json.encode(kinds_of(kind)).decode(),
    }
    number = number_of(db, name) if name is not None else None
    if begin >= end or (name is not None and number is None):
        return recent
    if name is None:
        rows = db.execute(_ALL_SERIES, wanted)
    else:
        rows = db.execute(_SERIES, {**wanted, "name": number, "text": name})
    try:
        found = unpacked_samples(((start * HOUR, what, text, data) for start, what, text, data in rows), span)
    except ValueError as error:
        raise DamagedHistoryError(f"time series of the history are damaged: {error}") from error
    by_time = {one.time: one for one in (*found, *recent) if since <= one.time < until}
    return [by_time[time] for time in sorted(by_time)]


def _recent_samples(
    db: sqlite3.Connection,
    recording: int,
    since: Time,
    until: Time,
    span: Span,
    kind: SeriesKind | None,
    name: str | None,
) -> list[Samples]:
    """Samples that are not packed yet."""
    rows = db.execute(
        "select data from recent_samples where recording = ? and span = ? and time >= ? and time < ? order by time",
        (recording, seconds(span), since, until),
    )
    try:
        found = [unpacked_sample(data, kind, name) for (data,) in rows]
    except ValueError as error:
        raise DamagedHistoryError(f"time series of the history are damaged: {error}") from error
    return [one for one in found if one is not None]


def recorded_series(db: sqlite3.Connection, recording: int, span: Span) -> tuple[Time, Time]:
    """First and last start of a block of the time series; (0, -1 block) without any."""
    where, values = "from series where recording = ? and span = ?", (recording, seconds(span))
    (first,) = db.execute(f"select min(start) {where}", values).fetchone()
    (last,) = db.execute(f"select max(start) {where}", values).fetchone()
    return (int(first) * HOUR, int(last) * HOUR) if first is not None else (0, -BLOCK[span])


def rebuild_at(db: sqlite3.Connection, recording: int, time: Time) -> tuple[Checkpoint, list[ChangeBatch]]:
    """The checkpoint from which the cluster at `time` is rebuilt, and the changes after it up to then, in order.

    Raises HistoryError if nothing is recorded at that time.
    """
    row = db.execute(
        "select checkpoints.id, time, data, last from checkpoints join sessions on sessions.id = session"
        " where checkpoints.recording = ? and time <= ? order by time desc, checkpoints.id desc limit 1",
        (recording, time),
    ).fetchone()
    if row is None or (row[3] is not None and time > row[3] + MINUTE):
        raise HistoryError(_nothing_at(db, recording, time))
    number, begun, data, _ = row
    batches, reached = [], int(begun)
    rows = db.execute(_BATCHES, (number * MOST_BATCHES, (number + 1) * MOST_BATCHES))
    for start, until, changes in rows:
        batch = ChangeBatch(int(start) if start is not None else reached, int(until), bytes(changes))
        if batch.time > time:
            break
        batches.append(batch)
        reached = batch.until
    return Checkpoint(int(begun), bytes(data)), batches


_BATCHES = "select time, until, data from change_batches where id >= ? and id < ? order by id"


def _nothing_at(db: sqlite3.Connection, recording: int, time: Time) -> str:
    """Message that names the recorded times nearest to `time`."""
    rows = db.execute(
        "select min(time), last from checkpoints join sessions on sessions.id = session"
        " where checkpoints.recording = ? group by session order by session",
        (recording,),
    ).fetchall()
    if not rows:
        return "the history has no states of this cluster, only events; use a history that a newer version recorded"
    nearest = sorted(rows, key=lambda row: max(row[0] - time, time - row[1], 0))[:2]
    ranges = " and ".join(time_range(first, last) for first, last in sorted(nearest))
    return f"nothing is recorded at {format_time(time // SECOND * SECOND)}; choose a time in {ranges}"


def marks(
    db: sqlite3.Connection, recording: int, kinds: Collection[HistoryEventKind], since: Time, until: Time
) -> list[tuple[Time, HistoryEventKind]]:
    """Times of the history events of these kinds in [since, until), in order. Raises HistoryError."""
    found = []
    wanted = frozenset(kinds)
    for session in _sessions(db, recording):
        for block in EventBlockReader(db, session).blocks(since=since, until=until, kinds=bits(wanted)):
            for what in wanted:
                times = (block.times[at] for at in block.places(KIND_NUMBERS[what]) if at not in block.known)
                found += [(time, what) for time in times if since <= time < until]
    return sorted(found)


def events(
    db: sqlite3.Connection,
    recording: int,
    since: Time,
    until: Time,
    kinds: Collection[HistoryEventKind] = tuple(HistoryEventKind),
) -> Iterator[HistoryEvent]:
    """The history events of these kinds in [since, until), in the order in which they were recorded.

    Raises HistoryError.
    """
    wanted = frozenset(kinds)
    for session in _sessions(db, recording):
        reader = EventBlockReader(db, session)
        for block in reader.blocks(since=since, until=until, kinds=bits(wanted)):
            for at, what in enumerate(block.kinds()):
                if what in wanted and since <= block.times[at] < until and at not in block.known:
                    yield reader.event(block, at)


def events_until(db: sqlite3.Connection, recording: int, time: Time, limit: int) -> list[HistoryEvent]:
    """The newest `limit` history events of a recording until `time`, oldest first. Raises HistoryError."""
    found: list[HistoryEvent] = []
    for session in reversed(_sessions(db, recording)):
        reader = EventBlockReader(db, session)
        for block in reader.blocks(until=time + 1, newest_first=True):
            places = [at for at in range(len(block.numbers)) if block.times[at] <= time and at not in block.known]
            found += (reader.event(block, at) for at in reversed(places))
            if len(found) >= limit:
                return found[:limit][::-1]
    return found[::-1]


def counted_events(db: sqlite3.Connection, recording: int, since: Time, until: Time) -> list[HistoryEvent]:
    """The admissions, preemptions and evictions with lost work in [since, until), oldest first. Raises HistoryError."""
    found: list[HistoryEvent] = []
    for session in _sessions(db, recording):
        reader = EventBlockReader(db, session)
        for block in reader.blocks(since=since, until=until, kinds=bits(_OVERVIEW) | LOST):
            found += (reader.event(block, at) for at in _counted(block) if since <= block.times[at] < until)
    return sorted(found, key=attrgetter("time"))


def counted_since(db: sqlite3.Connection, recording: int) -> Time | None:
    """Time of the first of the recording's events that `counted_events` returns; None if there are none."""
    for session in _sessions(db, recording):
        for block in EventBlockReader(db, session).blocks(kinds=bits(_OVERVIEW) | LOST):
            if counted := _counted(block):
                return min(block.times[at] for at in counted)
    return None


def _counted(block: EventBlock) -> list[int]:
    """Places of the events that totals of a recording count."""
    places = set(block.places_with_loss()).union(*(block.places(KIND_NUMBERS[what]) for what in _OVERVIEW))
    return sorted(places - block.known)


def _sessions(db: sqlite3.Connection, recording: int) -> list[int]:
    """Sessions of a recording, oldest first."""
    return [number for (number,) in db.execute("select id from sessions where recording = ? order by id", (recording,))]


def _difference(row: tuple[Any, ...]) -> ForecastDifference:
    time, span, *texts = row
    workload, queue, forecast, fact, cause, detail, obj = (clean(str(text)) for text in texts)
    return ForecastDifference(
        time=int(time),
        workload=workload,
        queue=queue,
        forecast=forecast,
        fact=fact,
        cause=_cause(cause),
        detail=detail,
        object=obj,
        span=int(span),
    )


def _disagreement(row: tuple[Any, ...]) -> ShadowDisagreement:
    time, kind = int(row[0]), str(row[3])
    workload, queue, expected, actual = (clean(str(row[place])) for place in (1, 2, 4, 5))
    return ShadowDisagreement(
        time=time,
        workload=workload,
        queue=queue,
        kind=DecisionKind(kind) if kind in list(DecisionKind) else DecisionKind.PENDING,
        expected=expected,
        actual=actual,
        cause=DisagreementCause(row[6]) if row[6] in list(DisagreementCause) else DisagreementCause.NOT_TRIED,
    )


def _cause(text: str) -> DifferenceCause:
    """The cause; one that this version does not know is a disagreement."""
    return DifferenceCause(text) if text in list(DifferenceCause) else DifferenceCause.DISAGREEMENT
