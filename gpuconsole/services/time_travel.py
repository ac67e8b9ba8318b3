"""Time travel: the cluster at an earlier time, from the history in SQLite.

`recorded_cluster` rebuilds the Snapshot of a recording at a time, with the settings that its schedulers had.
"""

import sqlite3
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from gpuconsole.errors import HistoryError
from gpuconsole.model.change_log import ChangeLogError, rebuild_cluster
from gpuconsole.model.clock import MINUTE, Time, format_time
from gpuconsole.model.snapshot import KEPT, Snapshot
from gpuconsole.services.status import ConsoleMode
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.store import queries
from gpuconsole.store.queries import Recording

_POLICY = msgspec.json.Decoder(SimPolicy)


class RecordedCluster(Struct, frozen=True, kw_only=True):
    """A cluster as it was at an earlier time."""

    snapshot: Snapshot
    policy: SimPolicy | None
    """Settings of its schedulers at that time; None if they were not recorded."""
    recording: Recording

    @property
    def staged(self) -> bool:
        """Whether it was simulated, so that its time is not wall-clock time."""
        return self.recording.mode != ConsoleMode.LIVE


def recorded_cluster(db: sqlite3.Connection, recording: Recording, time: Time) -> RecordedCluster:
    """Rebuild the cluster of a recording at a time. Raises HistoryError if nothing is recorded at that time.

    Takes up to a second for 10,000 workloads: call it in a thread.
    """
    checkpoint, batches = queries.rebuild_at(db, recording.id, time)
    recent = queries.events_until(db, recording.id, time, KEPT)
    try:
        snapshot, text = rebuild_cluster(checkpoint, batches, time, recent)
        policy = _POLICY.decode(text) if text else None
    except ChangeLogError as error:
        raise HistoryError(str(error)) from error
    except msgspec.DecodeError as error:
        # A newer version may have settings that this one does not know.
        raise HistoryError(
            f"the schedulers' settings at {format_time(checkpoint.time)} cannot be read: {error}"
        ) from error
    return RecordedCluster(snapshot=snapshot, policy=policy, recording=recording)


def recording_at(recordings: Sequence[Recording], time: Time) -> Recording:
    """Return the newest recording that covers a time. Raises HistoryError with the recorded times."""
    if not recordings:
        raise HistoryError("nothing is recorded; the console records its clusters while it runs")
    # A recording goes on until the next minute, as `queries.rebuild_at` allows.
    found = [one for one in recordings if one.first <= time <= one.last + MINUTE]
    if found:
        return found[-1]
    ranges = "; ".join(
        f"{one.source} from {format_time(one.first)} to {format_time(one.last)}" for one in recordings[-3:]
    )
    raise HistoryError(f"nothing is recorded at {format_time(time)}; choose a time in {ranges}")
