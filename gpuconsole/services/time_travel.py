"""Time travel: the cluster at an earlier time, from the history in SQLite.

`recorded_cluster` rebuilds the Snapshot of a recording at a time, with the settings that its schedulers had.
`TimeTravel` does so for the recording of a running console, and finds the times of events. `PastBackend` lets analyses
start from a rebuilt cluster as from a live one.
"""

import sqlite3
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from gpuconsole.backends.base import ClusterHealth
from gpuconsole.errors import HistoryError, ReadOnlyError
from gpuconsole.insight.forecast.agreement import AgreementRecord
from gpuconsole.insight.health.engines import EnginesInForce, engines
from gpuconsole.insight.index.queues import QueueMetrics, VisibilityPositions
from gpuconsole.insight.tables import seconds, time_range
from gpuconsole.model.change_log import ChangeLogError, rebuild_cluster
from gpuconsole.model.clock import DAY, HOUR, MINUTE, Time, format_time, parse_span, parse_time
from gpuconsole.model.commands import Command
from gpuconsole.model.events import Event, HistoryEvent, HistoryEventKind
from gpuconsole.model.snapshot import KEPT, Snapshot
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.store import queries
from gpuconsole.store.queries import Recording
from gpuconsole.store.schema import reading

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation

MOST_EVENTS = 5_000
"""Maximum history events that are read for the screens of preemptions, losses and the last hour."""
TRAVELLING = "An earlier time is shown; press Esc to return to the present"
"""Why changes are refused meanwhile."""
_REACH = (HOUR, 6 * HOUR, DAY, 7 * DAY, 366 * DAY)
"""Spans in which the next event is searched, one after the other, because most are near."""
_POLICY = msgspec.json.Decoder(SimPolicy)


class RecordedCluster(Struct, frozen=True, kw_only=True):
    """A cluster as it was at an earlier time."""

    snapshot: Snapshot
    policy: SimPolicy | None
    """Settings of its schedulers at that time; None if they were not recorded."""
    recording: Recording
    events: tuple[HistoryEvent, ...] = ()
    """The newest history events until then, oldest first; more than the Snapshot has."""
    agreement: AgreementRecord = AgreementRecord()
    """Kueue's decisions of the 24 hours before, compared with the engine's."""

    @property
    def staged(self) -> bool:
        """Whether it was simulated, so that its time is not wall-clock time."""
        return self.recording.staged


def recorded_cluster(db: sqlite3.Connection, recording: Recording, time: Time, events: int = KEPT) -> RecordedCluster:
    """Rebuild the cluster of a recording at a time, with at most so many history events before it.

    Raises HistoryError if nothing is recorded at that time. Takes up to a second for 10,000 workloads: call it in a
    thread.
    """
    checkpoint, batches = queries.rebuild_at(db, recording.id, time)
    lines = tuple(queries.events_until(db, recording.id, time, events))
    try:
        snapshot, text = rebuild_cluster(checkpoint, batches, time, lines[-KEPT:])
        policy = _POLICY.decode(text) if text else None
    except ChangeLogError as error:
        raise HistoryError(str(error)) from error
    except msgspec.DecodeError as error:
        # A newer version may have settings that this one does not know.
        raise HistoryError(
            f"the schedulers' settings at {format_time(checkpoint.time)} cannot be read: {error}"
        ) from error
    agreement = queries.agreement(db, recording.id, time)
    return RecordedCluster(snapshot=snapshot, policy=policy, recording=recording, events=lines, agreement=agreement)


FORMS = "write it as 2026-01-05T14:00Z, or as -2h for the time before the end of the recording"


def parse_moment(text: str, end: Time) -> Time:
    """Parse a time, `2026-01-05T14:00Z`, or a span before the end of a recording, `-2h`. Raises ValueError."""
    try:
        return end - parse_span(text[1:]) if text.startswith("-") else parse_time(text)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"TIME {text!r}: {FORMS}") from error


def recording_at(recordings: Sequence[Recording], time: Time) -> Recording:
    """Return the newest recording that covers a time. Raises HistoryError with the recorded times."""
    if not recordings:
        raise HistoryError("nothing is recorded; the console records its clusters while it runs")
    # A recording goes on until the next minute, as `queries.rebuild_at` allows.
    found = [one for one in recordings if one.first <= time <= one.last + MINUTE]
    if found:
        return found[-1]
    ranges = "; ".join(f"{one.source} from {time_range(one.first, one.last)}" for one in recordings[-3:])
    raise HistoryError(f"nothing is recorded at {seconds(time)}; choose a time in {ranges}")


class TimeTravel:
    """Reads earlier states of the recording that a console writes. Methods block, and raise HistoryError."""

    def __init__(self, path: Path, recording: int) -> None:
        self._path = path
        self._recording = recording

    def recording(self) -> Recording:
        """Return the recorded times."""
        with reading(self._path) as db:
            return self._found(db)

    def cluster(self, time: Time) -> RecordedCluster:
        """Rebuild the cluster at a time."""
        with reading(self._path) as db:
            return recorded_cluster(db, self._found(db), time, MOST_EVENTS)

    def marks(
        self, kinds: Collection[HistoryEventKind], since: Time, until: Time
    ) -> list[tuple[Time, HistoryEventKind]]:
        """Return the times of history events of these kinds in [since, until), in order."""
        with reading(self._path) as db:
            return queries.marks(db, self._recording, kinds, since, until)

    def next_mark(self, kinds: Collection[HistoryEventKind], time: Time, *, forward: bool) -> Time | None:
        """Return the time of the next event of these kinds, or of the previous one; None if there is none."""
        with reading(self._path) as db:
            found = self._found(db)
            for reach in _REACH:
                since, until = (time + 1, time + reach) if forward else (time - reach, time)
                # Earlier events are known, but not the cluster at their time.
                marks = queries.marks(db, self._recording, kinds, max(since, found.first), until)
                if marks:
                    return marks[0 if forward else -1][0]
                if until > found.last if forward else since < found.first:
                    break
        return None

    def _found(self, db: sqlite3.Connection) -> Recording:
        for one in queries.recordings(db):
            if one.id == self._recording:
                return one
        raise HistoryError("nothing is recorded yet; wait a second")


class PastBackend:
    """A recorded cluster at one time, for `AnalysisService`: a `LiveBackend` without events that accepts nothing."""

    def __init__(self, cluster: RecordedCluster) -> None:
        self._cluster = cluster
        self._policy = cluster.policy or SimPolicy()

    def open(self) -> None:
        """Nothing has to be opened."""

    def close(self) -> None:
        """Nothing has to be closed."""

    def poll(self, elapsed: float) -> Iterable[Event]:
        """Return no events: the past does not change."""
        return ()

    def submit(self, command: Command) -> None:
        """Raises ReadOnlyError."""
        raise ReadOnlyError(TRAVELLING)

    @property
    def now(self) -> Time:
        """Time of the Snapshot."""
        return self._cluster.snapshot.time

    @property
    def health(self) -> ClusterHealth:
        """The data are complete."""
        return ClusterHealth(loading=False, seen=self._cluster.snapshot.seen)

    @property
    def policy(self) -> SimPolicy:
        """Settings of the schedulers at that time."""
        return self._policy

    @property
    def assumed(self) -> tuple[str, ...]:
        """No assumptions beside those of the Snapshot."""
        return ()

    @property
    def engines(self) -> EnginesInForce:
        """The schedulers in force at that time."""
        return engines(self._policy)

    def standings(self, cluster_queue: str, local_queue: str) -> VisibilityPositions:
        """Return no positions: Kueue's visibility API knows the present only."""
        return VisibilityPositions(queue=cluster_queue)

    def queue_metrics(self, cluster_queue: str) -> QueueMetrics:
        """Return no metrics: Kueue's metrics are of the present only."""
        return QueueMetrics(queue=cluster_queue)

    def snapshot(self) -> Snapshot:
        """Return the Snapshot."""
        return self._cluster.snapshot

    def fork(self) -> "Simulation":
        """Return a simulation that continues from that time."""
        from gpuconsole.sim.engine import Simulation

        return Simulation.from_snapshot(self._cluster.snapshot, policy=self._policy, seed=0)
