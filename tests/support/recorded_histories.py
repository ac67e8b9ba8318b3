"""Histories in SQLite of simulated clusters, as a console that ran them would have written them."""

import sqlite3
from pathlib import Path

from gpuconsole.backends.simulated import SimulatedBackend
from gpuconsole.cli.options import OpenRequest
from gpuconsole.cli.sources import open_simulation
from gpuconsole.insight.cost.allocation import DEFAULT_LABELS
from gpuconsole.model.clock import MINUTE, SECOND, Span
from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.prices import Prices
from gpuconsole.model.snapshot import EVERYTHING, Snapshot
from gpuconsole.services.console import Console
from gpuconsole.services.recording import HistoryPipeline
from gpuconsole.services.time_travel import RecordedCluster
from gpuconsole.sim.engine import Simulation
from gpuconsole.store.recorder import Opening, Recorder
from gpuconsole.workers.client import Worker

NEVER = 1e6
"""Seconds between two writes of a recorder that writes only when it is told to."""


def record(
    path: Path, simulation: Simulation, span: Span, *, mode: str = "SIM", source: str = "test"
) -> list[Snapshot]:
    """Record a simulation for this long in a session of its own; returns the Snapshot of each minute."""
    opening = Opening(version="1", mode=mode, source=source)
    recorder = Recorder(path, opening, wall=lambda: simulation.now, interval=NEVER)
    pipeline = HistoryPipeline(recorder, Prices(), DEFAULT_LABELS, lambda: simulation.policy)
    found = []
    for minute in range(span // MINUTE + 1):
        if minute:
            simulation.advance(simulation.now + MINUTE)
        events = simulation.drain()
        recorder.record([event for event in events if isinstance(event, HistoryEvent)])
        pipeline.add(events, simulation.now, EVERYTHING)
        recorder.flush()
        found.append(simulation.snapshot())
    assert not pipeline.failed
    recorder.close()
    return found


SPEED = 60.0
"""Simulated seconds per second."""
STEP = 15 * SECOND


class RecordedConsole:
    """A console that has simulated a fixture for an hour, with its history, and its Snapshot of each minute."""

    def __init__(
        self, path: Path, fixture: str = "org-cohort", minutes: int = 60, worker: Worker | None = None
    ) -> None:
        simulation = open_simulation(OpenRequest(files=(fixture,))).simulation
        if worker is not None:
            worker.introduce(simulation.save())
        backend = SimulatedBackend(simulation, speed=SPEED, follower=worker)
        opening = Opening(version="1", mode="SIM", source="test")
        recorder = Recorder(path, opening, wall=lambda: 0, interval=NEVER)
        self.console = Console(backend, recorder=recorder, worker=worker)
        self.snapshots: list[Snapshot] = []
        self.history: list[HistoryEvent] = []
        for _ in range(minutes):
            before = self.snapshots[-1].recent if self.snapshots else ()
            for _ in range(MINUTE // STEP):
                self._advance()
            recorder.flush()
            self.snapshots.append(self.console.snapshot)
            self.history += [line for line in self.console.snapshot.recent if line not in before]

    def _advance(self) -> None:
        """Simulate `STEP`, in as many ticks as it takes: on a busy machine one tick does not do all of it."""
        until = self.console.snapshot.time + STEP
        while (left := until - self.console.snapshot.time) > 0:
            self.console.tick(left / SPEED / SECOND)

    def at(self, snapshot: Snapshot) -> RecordedCluster:
        assert self.console.time_travel is not None
        return self.console.time_travel.cluster(snapshot.time)


def event_count(db: sqlite3.Connection, session: int) -> int:
    """The number of history events of a session, also of those that were deleted by retention."""
    row = db.execute("select sum(events) from event_totals where session = ?", (session,)).fetchone()
    return int(row[0] or 0)


def audit_log(db: sqlite3.Connection, session: int) -> list[tuple[str, str, str]]:
    """Every line of a session's audit log as (command, outcome, detail), in order."""
    return db.execute("select command, outcome, detail from audit where session = ? order by n", (session,)).fetchall()
