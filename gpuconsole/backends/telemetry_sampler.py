"""Telemetry of a simulated cluster as events: a few nodes per poll, in turn."""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from gpuconsole.model.clock import Time
from gpuconsole.model.events import Applied, Deleted, Event
from gpuconsole.model.objects import TABLES
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.telemetry import NodeTelemetry
from gpuconsole.sim.telemetry import PERIOD, measure

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation

NODES = 16
"""Nodes that are sampled per poll: two milliseconds."""
REST = 25
"""Minimum number of polls from the beginning of one round to that of the next."""
TABLE = TABLES[NodeTelemetry]


class TelemetrySampler:
    """Samples the GPUs of a simulation. Mutable; called by the polling thread."""

    def __init__(self) -> None:
        self._round: Iterator[NodeTelemetry] = iter(())
        self._begun: Time | None = None
        self._polls = REST
        self._sent: set[str] = set()
        self._before: set[str] = set()
        self._foreign = False

    def take(self, simulation: "Simulation") -> list[Event]:
        """Return the telemetry of the next few nodes."""
        self._polls += 1
        now = simulation.now
        events: list[Event] = [Applied(now, one) for one in islice(self._round, NODES)]
        self._sent.update(event.object.key for event in events if isinstance(event, Applied))
        if len(events) == NODES or self._foreign:
            return events
        # Remove the telemetry of nodes that were deleted or are down.
        events += [Deleted(now, TABLE, name) for name in sorted(self._before - self._sent)]
        self._before = self._before & self._sent
        if self._polls >= REST and (self._begun is None or now >= self._begun + PERIOD):
            self._begin(simulation.snapshot(), simulation.seed)
        return events

    def _begin(self, snapshot: Snapshot, seed: int) -> None:
        # Telemetry of a live cluster in the snapshot is kept instead of simulated values.
        self._foreign = any(not one.simulated for one in snapshot.telemetry.all())
        if not self._foreign:
            self._round, self._begun, self._polls = measure(snapshot, seed), snapshot.time, 0
            self._before, self._sent = self._sent, set()
