"""Histories in SQLite of simulated clusters, as a console that ran them would have written them."""

from pathlib import Path

from gpuconsole.insight.cost.allocation import DEFAULT_LABELS
from gpuconsole.model.clock import MINUTE, Span
from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.prices import Prices
from gpuconsole.model.snapshot import EVERYTHING, Snapshot
from gpuconsole.services.recording import HistoryPipeline
from gpuconsole.sim.engine import Simulation
from gpuconsole.store.recorder import Opening, Recorder

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
