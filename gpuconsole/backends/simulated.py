"""Backend for the embedded simulator: a poll advances virtual time by `elapsed` × speed, within a budget of work."""

import threading
import time
import zlib
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue

import msgspec

from gpuconsole.backends.base import Follower
from gpuconsole.backends.simulation_clock import SimulationClock
from gpuconsole.backends.telemetry_sampler import TelemetrySampler
from gpuconsole.model.clock import Time
from gpuconsole.model.commands import Command
from gpuconsole.model.events import Applied, Event, HistoryEvent
from gpuconsole.model.snapshot import Visibility
from gpuconsole.sim.engine import Simulation

BUDGET = 0.018
"""Seconds of work per poll, so that a tick (poll, apply and freeze) takes about 20 ms; events of one time are not
split.
"""


class SimulatedBackend(SimulationClock):
    """Runs a simulation as a backend. Owns it; other code gets forks or events.

    The result depends only on the virtual times of the commands, not on how polls divide the time.
    """

    def __init__(
        self,
        simulation: Simulation,
        *,
        speed: float = 60.0,
        paused: bool = False,
        follower: Follower | None = None,
        measure: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`measure` adds simulated GPU telemetry to the events."""
        super().__init__(speed, paused)
        self._simulation = simulation
        self._follower = follower
        self._clock = clock
        self._survey = TelemetrySampler() if measure else None
        self._inbox: SimpleQueue[Command] = SimpleQueue()
        self._guard = threading.Lock()
        self._opening: list[Event] = []
        self._digest = 0
        self.seen: Visibility = simulation.snapshot().seen
        """Which kinds were loaded from the cluster that it continues."""

    @property
    def now(self) -> Time:
        return self._simulation.now

    @property
    def digest(self) -> int:
        """Checksum of the history so far; equal for two simulations with the same history."""
        return self._digest

    def open(self) -> None:
        """Queue the existing objects as the first events."""
        with self._guard:
            recent = [event for event in self._simulation.drain() if isinstance(event, HistoryEvent)]
            snapshot = self._simulation.snapshot()
            self._opening = [Applied(snapshot.time, obj) for obj in snapshot.objects()]
            # A simulation from objects reports its whole history; one from a snapshot has only the newest events.
            self._opening.extend(recent or snapshot.recent)

    def submit(self, command: Command) -> None:
        """Queue a command for the next poll."""
        self._inbox.put(command)

    def poll(self, elapsed: float) -> Iterable[Event]:
        """Advance virtual time within the budget, and return the events."""
        with self._guard:
            before = self._simulation.now
            self._carry_out()
            self._advance(before + self.span(elapsed))
            for _ in range(self.take_steps()):
                self._simulation.step()
            self.note(elapsed, self._simulation.now - before)
            return self._events()

    def fork(self) -> Simulation:
        """Return an independent copy of the simulation; waits for a running poll."""
        with self._guard:
            return self._simulation.fork()

    def close(self) -> None:
        """Release nothing: the simulation is freed with this object."""

    def _carry_out(self) -> None:
        while True:
            try:
                command = self._inbox.get_nowait()
            except Empty:
                return
            self._simulation.submit(command)
            if self._follower is not None:
                self._follower.carried(self._simulation.now, command)

    def _advance(self, until: Time) -> None:
        """Advance to `until`, one event time after another, until the work budget is used up or the user pauses."""
        simulation, deadline = self._simulation, self._clock() + BUDGET
        while (moment := simulation.next_time) is not None and moment <= until:
            if self.paused or self._clock() > deadline:
                return
            simulation.advance(moment)
        simulation.advance(until)

    def _events(self) -> list[Event]:
        events = list(self._simulation.drain())
        self._digest = digest(events, self._digest)
        if self._follower is not None and self._follower.reached(self._simulation.now, self._digest):
            self._follower.begin(self._simulation.save(), self._digest)
        if self._opening:
            events = self._opening + events
            self._opening = []
        if self._survey is not None:
            events += self._survey.take(self._simulation)
        return events


_ENCODER = msgspec.msgpack.Encoder()


def digest(events: Iterable[Event], previous: int = 0) -> int:
    """Extend a checksum with the history events in `events`."""
    for event in events:
        if isinstance(event, HistoryEvent):
            previous = zlib.crc32(_ENCODER.encode(event), previous)
    return previous
