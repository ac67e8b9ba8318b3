"""Read-only backend for tests that replays a list of events in order of time, at the chosen speed.

No command opens it: the history keeps no objects, so a Snapshot cannot be rebuilt from it.
"""

from collections.abc import Iterable, Sequence

from gpuconsole.backends.simulated import SimulationClock
from gpuconsole.errors import ReadOnlyError
from gpuconsole.model.clock import Time
from gpuconsole.model.commands import Command
from gpuconsole.model.events import Event


class RecordedBackend(SimulationClock):
    """Replays a list of events, which must be in order of time. Read-only."""

    def __init__(self, events: Sequence[Event], *, speed: float = 60.0, paused: bool = False) -> None:
        super().__init__(speed, paused)
        self._events = events
        self._next = 0
        self._now: Time = events[0].time if events else 0

    @property
    def now(self) -> Time:
        return self._now

    def open(self) -> None:
        """Set the time to the first event's; the first poll returns what happened then."""

    def submit(self, command: Command) -> None:
        """Raise ReadOnlyError: a recording cannot be changed."""
        raise ReadOnlyError("A recording is read-only; open its snapshot with `gpuconsole run --snapshot FILE`")

    def poll(self, elapsed: float) -> Iterable[Event]:
        """Return the events up to the new time, and those of requested steps."""
        before = self._now
        self._now += self.span(elapsed)
        events = self._read_on()
        for _ in range(self.take_steps()):
            if self._next < len(self._events):
                self._now = self._events[self._next].time
                events += self._read_on()
        self.note(elapsed, self._now - before)
        return events

    def close(self) -> None:
        """Nothing to release."""

    def _read_on(self) -> list[Event]:
        first = self._next
        while self._next < len(self._events) and self._events[self._next].time <= self._now:
            self._next += 1
        return list(self._events[first : self._next])
