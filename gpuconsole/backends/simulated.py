"""Backend for the embedded simulator: a poll advances virtual time by `elapsed` × speed, within a budget of work.

`SimulationClock` has the speed, pauses and steps; `TelemetrySampler` adds simulated GPU telemetry, a few nodes per
poll.
"""

import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from queue import Empty, SimpleQueue

import msgspec

from gpuconsole.backends.base import Follower, clip_speed
from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.commands import Command
from gpuconsole.model.events import Applied, Deleted, Event, HistoryEvent
from gpuconsole.model.objects import TABLES
from gpuconsole.model.snapshot import Snapshot, Visibility
from gpuconsole.model.telemetry import NodeTelemetry
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.sim.telemetry import PERIOD, simulate_metrics

WINDOW = 40
"""Polls over which the reached speed is averaged: about two seconds."""


class SimulationClock:
    """Converts wall-clock seconds to virtual time. Mutable; `set_speed`, `pause`, `resume`, `step` are thread-safe."""

    def __init__(self, speed: float, paused: bool) -> None:
        self._speed = clip_speed(speed)
        self._paused = threading.Event()
        if paused:
            self._paused.set()
        self._steps = 0
        self._lock = threading.Lock()
        self._window: deque[tuple[float, Span]] = deque(maxlen=WINDOW)

    @property
    def speed(self) -> float:
        return self._speed

    @property
    def reached(self) -> float:
        """Average speed of the last polls; 0 if there were none."""
        window = list(self._window)
        wall = sum(elapsed for elapsed, _ in window)
        return sum(span for _, span in window) / SECOND / wall if wall else 0.0

    @property
    def paused(self) -> bool:
        return self._paused.is_set()

    def set_speed(self, speed: float) -> None:
        """Set the virtual seconds per wall-clock second, clipped to the supported range."""
        self._speed = clip_speed(speed)
        # Speeds that were reached at another setting do not count.
        self._window.clear()

    def pause(self) -> None:
        """Stop virtual time."""
        self._paused.set()

    def resume(self) -> None:
        """Let virtual time continue."""
        self._window.clear()
        self._paused.clear()

    def step(self) -> None:
        """Let the next poll advance to the next event, even while paused."""
        with self._lock:
            self._steps += 1

    def take_steps(self) -> int:
        """Return how many steps were requested since the last call, and reset the number."""
        with self._lock:
            steps, self._steps = self._steps, 0
        return steps

    def span(self, elapsed: float) -> Span:
        """Return by how much virtual time advances in `elapsed` wall-clock seconds; 0 while paused."""
        return 0 if self.paused else round(elapsed * self._speed * SECOND)

    def note(self, elapsed: float, span: Span) -> None:
        """Record how far virtual time really advanced in `elapsed` wall-clock seconds, for `reached`."""
        if elapsed > 0 and not self.paused:
            self._window.append((elapsed, span))


NODES = 16
"""Number of nodes whose telemetry is sampled per poll, which takes two milliseconds."""
REST = 25
"""Minimum number of polls between the starts of two rounds of telemetry over all nodes."""
TABLE = TABLES[NodeTelemetry]


class TelemetrySampler:
    """Adds simulated GPU telemetry to the events, a few nodes per poll. Mutable; called by the polling thread."""

    def __init__(self) -> None:
        self._round: Iterator[NodeTelemetry] = iter(())
        self._begun: Time | None = None
        self._polls = REST
        self._sent: set[str] = set()
        self._before: set[str] = set()
        self._foreign = False

    def take(self, simulation: Simulation) -> list[Event]:
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
            self._round, self._begun, self._polls = simulate_metrics(snapshot, seed), snapshot.time, 0
            self._before, self._sent = self._sent, set()


BUDGET = 0.018
"""Seconds of work per poll, so that a tick (poll, apply and freeze) takes about 20 ms; events of one time are not
split.
"""


class SimulatedBackend(SimulationClock):
    """Runs a simulation as a backend. Mutable. It owns the simulation; other code gets forks or events.

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
        """`measure` adds simulated GPU telemetry to the events; `follower` keeps a replica of the simulation."""
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
                self._simulation.run_next_moment()
            self.note(elapsed, self._simulation.now - before)
            return self._events()

    @property
    def policy(self) -> SimPolicy:
        """The settings of the simulated schedulers."""
        return self._simulation.policy

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
    """Return the checksum `previous`, extended by the history events among `events`."""
    for event in events:
        if isinstance(event, HistoryEvent):
            previous = zlib.crc32(_ENCODER.encode(event), previous)
    return previous
