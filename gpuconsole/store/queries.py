"""Queries of the history: one function each, plain SQL, structs as results.

They raise HistoryError for an invalid line, and sqlite3.Error for an unreadable file. A line is a history event; it has
its number in the session, by which it can be merged with lines that are not stored yet (`recorder` does that).
"""

import sqlite3
from collections import Counter
from collections.abc import Iterable
from operator import itemgetter
from typing import Any

import msgspec
from msgspec.structs import replace

from gpuconsole.errors import HistoryError
from gpuconsole.insight.forecast.backtest import DifferenceCause, ForecastDifference, ForecastDifferences
from gpuconsole.insight.forecast.estimates import Interval, PastEstimate
from gpuconsole.insight.overview import BINS, LastHour
from gpuconsole.insight.preemption.history import NEEDED, Losses, LostWork
from gpuconsole.model.clock import HOUR, Time
from gpuconsole.model.events import ConsideredCandidate, HistoryEvent, HistoryEventKind, KueueEvent, PreemptionTrace
from gpuconsole.model.text import clean
from gpuconsole.store.schema import COUNTED

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
