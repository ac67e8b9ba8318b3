"""The history of this session as one: what is stored already, and what still waits to be written."""

from contextlib import closing

from gpuconsole.model.events import Happened, What
from gpuconsole.store import queries
from gpuconsole.store.recorder import Recorder
from gpuconsole.store.schema import open_for_reading

# What waits is read before what is stored: a line that is written meanwhile is then in both, and never in none.


def preemptions(recorder: Recorder, limit: int) -> tuple[Happened, ...]:
    """The newest preemptions, oldest first. Raises HistoryError."""
    fresh = {n: line for n, line in recorder.unflushed().items() if line.what is What.PREEMPTED}
    with closing(open_for_reading(recorder.path)) as db:
        stored = queries.preemptions(db, recorder.session, limit)
    return tuple((stored | fresh).values())[-limit:]


def of_workload(recorder: Recorder, workload: str) -> tuple[Happened, ...]:
    """All that happened to a workload, and what it did to others, oldest first. Raises HistoryError."""
    fresh = {n: line for n, line in recorder.unflushed().items() if workload in (line.workload, line.by)}
    with closing(open_for_reading(recorder.path)) as db:
        stored = queries.of_workload(db, recorder.session, workload)
    return tuple((stored | fresh).values())
