"""The history of this session: stored lines together with those not written yet."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager

from gpuconsole.insight.forecast.calibration import PastEstimate
from gpuconsole.insight.forecast.estimates import KEPT
from gpuconsole.insight.overview import LastHour, hour_of
from gpuconsole.insight.preemption.history import NEEDED, Losses, added, lost_by
from gpuconsole.model.clock import Time
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.store import queries
from gpuconsole.store.recorder import Recorder
from gpuconsole.store.schema import history_errors, open_for_reading

ENDLESS = 2**62


@contextmanager
def _reading(recorder: Recorder) -> Iterator[sqlite3.Connection]:
    """The history, opened beside its writer. Raises HistoryError, also for queries."""
    with history_errors(recorder.path), closing(open_for_reading(recorder.path)) as db:
        yield db


# Unwritten lines are read before stored ones: a line that is written meanwhile is then in both, never in neither.


def preemptions(recorder: Recorder, limit: int) -> tuple[HistoryEvent, ...]:
    """The newest preemptions with their outcomes, oldest line first. Raises HistoryError."""
    fresh = {n: line for n, line in recorder.unflushed().items() if line.what in NEEDED}
    with _reading(recorder) as db:
        stored = queries.preemptions(db, recorder.session, limit)
    return newest_preemptions((stored | fresh).values(), limit)


def newest_preemptions(lines: Iterable[HistoryEvent], limit: int) -> tuple[HistoryEvent, ...]:
    """Preemption lines from the `limit`-th last preemption on."""
    needed = [line for line in lines if line.what in NEEDED]
    chosen = [place for place, line in enumerate(needed) if line.what is HistoryEventKind.PREEMPTED]
    return tuple(needed[chosen[-limit:][0] :]) if chosen else ()


def losses(recorder: Recorder) -> Losses:
    """The work lost in this session, by queue and workload. Raises HistoryError."""
    fresh = recorder.unflushed()
    with _reading(recorder) as db:
        stored = queries.losses(db, recorder.session, min(fresh, default=ENDLESS))
    return added(stored, lost_by(fresh.values()))


def last_hour(recorder: Recorder, now: Time) -> LastHour:
    """Totals of the hour before `now` in this session. Raises HistoryError.

    On a live cluster these include the time before the session, as far as Kubernetes' Events record it.
    """
    fresh = recorder.unflushed()
    with _reading(recorder) as db:
        stored = queries.last_hour(db, recorder.session, now, min(fresh, default=ENDLESS))
    return stored + hour_of(fresh.values(), now)


def preemption_count(recorder: Recorder) -> int:
    """Number of recorded preemptions in this session. Raises HistoryError."""
    fresh = recorder.unflushed()
    with _reading(recorder) as db:
        stored = queries.preemption_count(db, recorder.session, min(fresh, default=ENDLESS))
    return stored + sum(line.what is HistoryEventKind.PREEMPTED for line in fresh.values())


def of_workload(recorder: Recorder, workload: str) -> tuple[HistoryEvent, ...]:
    """All events of a workload, and its effects on others, oldest first. Raises HistoryError."""
    fresh = {n: line for n, line in recorder.unflushed().items() if workload in (line.workload, line.by)}
    with _reading(recorder) as db:
        stored = queries.of_workload(db, recorder.session, workload)
    return tuple((stored | fresh).values())


def estimates(recorder: Recorder, source: str) -> list[PastEstimate]:
    """Estimated starts on a live cluster in this session and earlier ones, oldest first.

    Raises HistoryError.
    """
    with _reading(recorder) as db:
        return queries.estimates(db, source, KEPT)
