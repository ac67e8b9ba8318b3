"""Queries of the history: one function each, plain SQL, structs as results.

They raise HistoryError for an invalid line, and sqlite3.Error for an unreadable file. A line is a history event; it has
its number in the session, by which it can be merged with lines that are not stored yet (`recorder` does that).
"""

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from operator import itemgetter
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.errors import HistoryError
from gpuconsole.insight.cost.allocation import CostHour, CostOwner
from gpuconsole.insight.forecast.backtest import DifferenceCause, ForecastDifference, ForecastDifferences
from gpuconsole.insight.forecast.estimates import Interval, PastEstimate
from gpuconsole.insight.overview import BINS, LastHour
from gpuconsole.insight.preemption.history import NEEDED, Losses, LostWork
from gpuconsole.insight.series import Samples, SeriesKind
from gpuconsole.model.change_log import ChangeBatch, Checkpoint
from gpuconsole.model.clock import HOUR, MINUTE, Span, Time, format_time
from gpuconsole.model.events import ConsideredCandidate, HistoryEvent, HistoryEventKind, KueueEvent, PreemptionTrace
from gpuconsole.model.text import clean
from gpuconsole.store.rows import BLOCK, block_start, kinds_of, number_of, seconds, unpacked_samples
from gpuconsole.store.schema import AMOUNTS, COUNTED, OWNER

COLUMNS = HistoryEvent.__struct_fields__
Lines = dict[int, HistoryEvent]
"""History events by their number in the session, in order."""


# The planner prefers to walk all of a session by number, so each part names the index that leads straight to its lines.
_FIELDS = ", ".join(f"events.{column}" for column in ("n", *COLUMNS))
_AFTERWARDS = ", ".join(f"'{what.value}'" for what in sorted(NEEDED - {HistoryEventKind.PREEMPTED}))
_PREEMPTIONS = f"""
with chosen as materialized (
    select session, n, workload, pod, by from events indexed by events_preempted
    where session = :session and what = 'preempted' order by n desc limit :limit
),
first as materialized (select min(n) as n from chosen),
subject as materialized (
    select iif(workload != '', workload, pod) as name from chosen union select by from chosen
)
select {_FIELDS} from chosen join events using (session, n)
union all
select {_FIELDS} from first cross join subject cross join events indexed by events_workload
    on session = :session and workload = name and workload != '' and events.n > first.n
    where what in ({_AFTERWARDS})
union all
select {_FIELDS} from first cross join subject cross join events indexed by events_pod
    on session = :session and pod = name and pod != '' and workload = '' and events.n > first.n
    where what in ({_AFTERWARDS})
"""
_OF_WORKLOAD = f"""
select {_FIELDS} from events indexed by events_workload
    where session = :session and workload = :workload and workload != ''
union all
select {_FIELDS} from events indexed by events_by
    where session = :session and by = :workload and by != '' and workload != :workload
"""


_LOSSES = """
with lost as (
    select queue, workload, pod, lost_gpu_seconds, cost, 0 as unknown from events indexed by events_lost
    where session = :session and n < :before and lost_gpu_seconds > 0 and lost_unknown = 0 and what != 'preempted'
    union all
    select queue, workload, pod, 0, 0, 1 from events indexed by events_lost_unknown
    where session = :session and n < :before and lost_unknown > 0 and what != 'preempted'
)
select queue, iif(workload != '', workload, pod) as owner, sum(lost_gpu_seconds) / 3600, sum(cost),
    count(*), sum(unknown), sum(cost = 0)
    from lost group by queue, owner
"""


_KUEUE_EVENTS = msgspec.json.Decoder(tuple[KueueEvent, ...])
_CHOICE = msgspec.json.Decoder(PreemptionTrace)


def preemptions(db: sqlite3.Connection, session: int, limit: int) -> Lines:
    """The newest preemptions of a session, with the later outcomes of victims and preemptors."""
    return _lines(db.execute(_PREEMPTIONS, {"session": session, "limit": limit}))


def of_workload(db: sqlite3.Connection, session: int, workload: str) -> Lines:
    """All events of a workload in a session, and its effects on others."""
    return _lines(db.execute(_OF_WORKLOAD, {"session": session, "workload": workload}))


def losses(db: sqlite3.Connection, session: int, before: int) -> Losses:
    """Lost work in the history events of a session with numbers below `before`, by (queue, workload).

    Evictions count; a preemption only repeats the loss of its eviction.
    """
    rows = db.execute(_LOSSES, {"session": session, "before": before})
    return {
        (clean(queue), clean(owner)): LostWork(float(hours), float(cost), times, unknown, unpriced)
        for queue, owner, hours, cost, times, unknown, unpriced in rows
    }


_LAST_HOUR = f"""
select min(:bins - 1, (time - :start) * :bins / :hour) as bin, sum(what = 'admitted'), sum(what = 'preempted'),
    total(lost_gpu_seconds) filter (where what != 'preempted') / 3600,
    total(cost) filter (where what != 'preempted'),
    count(*) filter (where what != 'preempted' and (lost_gpu_seconds > 0 or lost_unknown > 0)),
    count(*) filter (where what != 'preempted' and lost_unknown > 0),
    count(*) filter (where what != 'preempted' and (lost_unknown > 0 or (lost_gpu_seconds > 0 and cost = 0)))
    from events indexed by events_counted
    where session = :session and time > :start and n < :before and {COUNTED}
    group by bin
"""


def last_hour(db: sqlite3.Connection, session: int, now: Time, before: int) -> LastHour:
    """Totals of the hour before `now`, from the session's history events with numbers below `before`."""
    start = now - HOUR
    named = {"session": session, "start": start, "before": before, "bins": BINS, "hour": HOUR}
    rows = db.execute(_LAST_HOUR, named).fetchall()
    admitted, preempted = ({row[0]: int(row[column]) for row in rows} for column in (1, 2))
    hours, cost, losses, unknown, unpriced = (sum(row[column] for row in rows) for column in range(3, 8))
    return LastHour(
        time=now,
        admitted=sum(admitted.values()),
        admitted_bins=tuple(admitted.get(place, 0) for place in range(BINS)),
        preempted=sum(preempted.values()),
        preempted_bins=tuple(preempted.get(place, 0) for place in range(BINS)),
        lost_gpu_hours=float(hours),
        cost=float(cost),
        losses=losses,
        unknown=unknown,
        unpriced=unpriced,
        since=start,
    )


def preemption_count(db: sqlite3.Connection, session: int, before: int) -> int:
    """Count the preemptions among the session's history events with numbers below `before`."""
    (number,) = db.execute(
        "select count(*) from events indexed by events_preempted where session = ? and n < ? and what = 'preempted'",
        (session, before),
    ).fetchone()
    return int(number)


def count(db: sqlite3.Connection, session: int) -> int:
    """Return the number of history events of a session."""
    (number,) = db.execute("select count(*) from events where session = ?", (session,)).fetchone()
    return int(number)


def audit(db: sqlite3.Connection, session: int) -> list[tuple[str, str, str]]:
    """Every line of a session's audit log as (command, outcome, detail), in order."""
    rows = db.execute("select command, outcome, detail from audit where session = ? order by n", (session,))
    return [(clean(command), clean(outcome), clean(detail)) for command, outcome, detail in rows]


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


def estimates(db: sqlite3.Connection, source: str, limit: int) -> list[PastEstimate]:
    """The newest estimated starts of the live cluster `source`, from all its sessions, oldest first."""
    rows = db.execute(
        "select workload, asked, median, first, last, foretold.started from foretold join sessions on id = session"
        " where mode = 'live' and source = ? order by asked desc, workload desc limit ?",
        (source, limit),
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
    """`live`, `sim` …, as `ConsoleMode`."""
    source: str
    first: Time
    """When the recorded time begins, by the cluster's clock."""
    last: Time
    """When it ends."""


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


_OWNER_TEXTS = ", ".join(f"coalesce({column}_name.text, '')" for column in OWNER[1:])
_OWNER_NAMES = " ".join(f"left join names {column}_name on {column}_name.id = {column}" for column in OWNER[1:])
_OWNERS = (
    f"select cost_owners.id, kind_name.text, {_OWNER_TEXTS} from cost_owners"
    f" left join names kind_name on kind_name.id = kind {_OWNER_NAMES} where recording = ?"
)


def cost_hours(db: sqlite3.Connection, recording: int, since: Time, until: Time) -> list[CostHour]:
    """Costs of the hours that overlap [since, until), by hour and owner. Raises HistoryError."""
    hours = {"recording": recording, "since": since // HOUR, "until": -(-until // HOUR)}
    rows = db.execute(f"select owner, hour, {', '.join(AMOUNTS)} from cost_hours where {_HOURS}", hours).fetchall()
    return _costs(db, recording, rows)


def cost_sums(db: sqlite3.Connection, recording: int, since: Time, until: Time) -> list[CostHour]:
    """Costs of the hours that overlap [since, until), summed by owner; `hour` is the owner's first hour.

    A report of a month needs no more, and has far fewer rows. Raises HistoryError.
    """
    hours = {"recording": recording, "since": since // HOUR, "until": -(-until // HOUR)}
    sums = ", ".join(f"sum({one})" for one in AMOUNTS)
    rows = db.execute(
        f"select owner, min(hour), {sums} from cost_hours where {_HOURS} group by owner", hours
    ).fetchall()
    return _costs(db, recording, rows)


_HOURS = "recording = :recording and hour >= :since and hour < :until"


def _costs(db: sqlite3.Connection, recording: int, rows: Sequence[tuple[Any, ...]]) -> list[CostHour]:
    owners: dict[int, CostOwner] = {}
    needed = {row[0] for row in rows}
    for number, *values in db.execute(_OWNERS, (recording,)) if needed else ():
        if number in needed:
            texts = dict(zip(OWNER, map(clean, values), strict=True))
            try:
                owners[number] = msgspec.convert(texts, CostOwner)
            except msgspec.ValidationError as error:
                raise HistoryError(f"owner {number} of costs in the history is damaged: {error}") from error
    if lost := needed - owners.keys():
        raise HistoryError(f"the history has costs of owner {min(lost)}, which is missing")
    # Positional creation would be no faster, and this is half of the time of a report.
    return [
        CostHour(
            owner=owners[owner],
            hour=hour * HOUR,
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
        for owner, hour, gpu_seconds, used, underutilized, lost_work, idle, system, saved, busy, measured in rows
    ]


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
    if begin >= end:
        return []
    if name is None:
        rows = db.execute(_ALL_SERIES, wanted)
    else:
        number = number_of(db, name)
        if number is None:
            return []
        rows = db.execute(_SERIES, {**wanted, "name": number, "text": name})
    try:
        found = unpacked_samples(((start * HOUR, what, text, data) for start, what, text, data in rows), span)
    except ValueError as error:
        raise HistoryError(f"time series of the history are damaged: {error}") from error
    return [one for one in found if since <= one.time < until]


def recorded_series(db: sqlite3.Connection, recording: int, span: Span) -> tuple[Time, Time]:
    """First and last start of a block of the time series; (0, -1 block) without any."""
    where, values = "from series where recording = ? and span = ?", (recording, seconds(span))
    (first,) = db.execute(f"select min(start) {where}", values).fetchone()
    (last,) = db.execute(f"select max(start) {where}", values).fetchone()
    return (int(first) * HOUR, int(last) * HOUR) if first is not None else (0, -BLOCK[span])


def newest_sample(db: sqlite3.Connection, recording: int, span: Span) -> Time | None:
    """Time of the last sample of a span; None without any. Raises HistoryError."""
    _, start = recorded_series(db, recording, span)
    found = samples(db, recording, start, start + BLOCK[span], span=span) if start >= 0 else []
    return found[-1].time if found else None


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
    batches = db.execute(
        "select time, until, data from change_batches where checkpoint = ? and time <= ? order by n", (number, time)
    )
    return Checkpoint(int(begun), bytes(data)), [
        ChangeBatch(int(start), int(until), bytes(changes)) for start, until, changes in batches
    ]


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
    ranges = " and ".join(f"{format_time(first)} to {format_time(last)}" for first, last in sorted(nearest))
    return f"nothing is recorded at {format_time(time)}; choose a time in {ranges}"


def marks(
    db: sqlite3.Connection, recording: int, kinds: Collection[HistoryEventKind], since: Time, until: Time
) -> list[tuple[Time, HistoryEventKind]]:
    """Times of the history events of these kinds in [since, until), in order."""
    rows = db.execute(
        "select time, what from events join sessions on id = session where recording = ? and time >= ? and time < ?"
        " and what in (select value from json_each(?)) order by time",
        (recording, since, until, msgspec.json.encode(list(kinds)).decode()),
    )
    return [(int(time), HistoryEventKind(what)) for time, what in rows]


def events_until(db: sqlite3.Connection, recording: int, time: Time, limit: int) -> list[HistoryEvent]:
    """The newest `limit` history events of a recording until `time`, oldest first."""
    sessions = db.execute(
        "select id from sessions where recording = ? and first <= ? order by id desc", (recording, time)
    ).fetchall()
    found: list[HistoryEvent] = []
    for (session,) in sessions:
        wanted = {"session": session, "last": _last_until(db, session, time), "limit": limit - len(found)}
        lines = _lines(db.execute(_UNTIL, wanted))
        found[:0] = lines.values()
        if len(found) >= limit:
            break
    return found


def counted_events(db: sqlite3.Connection, recording: int, since: Time, until: Time) -> list[HistoryEvent]:
    """The admissions, preemptions and evictions with lost work in [since, until), oldest first. Raises HistoryError."""
    rows = db.execute(
        f"select {_FIELDS} from sessions cross join events indexed by events_counted on session = id"
        f" where recording = ? and time >= ? and time < ? and {COUNTED} order by time, session, n",
        (recording, since, until),
    )
    return [line for _, line in map(_line, rows)]


def counted_since(db: sqlite3.Connection, recording: int) -> Time | None:
    """Time of the first of the recording's events that `counted_events` returns; None if there are none."""
    (first,) = db.execute(
        "select min(time) from sessions cross join events indexed by events_counted on session = id"
        f" where recording = ? and {COUNTED}",
        (recording,),
    ).fetchone()
    return int(first) if first is not None else None


_UNTIL = f"select {_FIELDS} from events where session = :session and n <= :last order by n desc limit :limit"
_AT_NUMBER = "select n, time from events where session = ? and n <= ? order by n desc limit 1"


def _last_until(db: sqlite3.Connection, session: int, time: Time) -> int:
    """Number of the session's last event until `time`; -1 without any. Times grow with the numbers."""
    (last,) = db.execute("select max(n) from events where session = ?", (session,)).fetchone()
    low, high = -1, -1 if last is None else int(last)
    while low < high:
        middle = (low + high + 1) // 2
        row = db.execute(_AT_NUMBER, (session, middle)).fetchone()
        if row is None or row[1] <= time:
            low = middle
        else:
            high = int(row[0]) - 1
    return low


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


def _cause(text: str) -> DifferenceCause:
    """The cause; one that this version does not know is a disagreement."""
    return DifferenceCause(text) if text in list(DifferenceCause) else DifferenceCause.DISAGREEMENT


def _lines(rows: Iterable[tuple[Any, ...]]) -> Lines:
    return dict(sorted(map(_line, rows), key=itemgetter(0)))


def _line(row: tuple[Any, ...]) -> tuple[int, HistoryEvent]:
    # The file may have been edited by others: its texts are from outside.
    values = [clean(value) if isinstance(value, str) else value for value in row[1:-2]]
    try:
        kueue_event = tuple(map(_cleaned, _KUEUE_EVENTS.decode(str(row[-2])))) if row[-2] else ()
        choice = _choice(_CHOICE.decode(str(row[-1]))) if row[-1] else None
        fields = dict(zip(COLUMNS, (*values, kueue_event, choice), strict=True))
        # SQLite has no booleans.
        return row[0], msgspec.convert({**fields, "lost_unknown": bool(fields["lost_unknown"])}, HistoryEvent)
    except msgspec.DecodeError as error:
        raise HistoryError(f"line {row[0]} of the history is damaged: {error}") from error


def _cleaned(kueue_event: KueueEvent) -> KueueEvent:
    return KueueEvent(
        clean(kueue_event.workload), clean(kueue_event.reason), clean(kueue_event.message), kueue_event.warning
    )


def _choice(choice: PreemptionTrace) -> PreemptionTrace:
    considered = tuple(
        ConsideredCandidate(clean(one.workload), clean(one.queue), one.verdict, one.priority)
        for one in choice.considered
    )
    return replace(choice, share=clean(choice.share), by_share=clean(choice.by_share), considered=considered)
