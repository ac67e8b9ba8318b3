"""The one seam: where events come from and commands go to.

A backend is pulled: `poll` says what happened, and is called by one thread only. Everything else may be called from any
thread. A backend whose time we make ourselves (a simulation, a recording) is `Clocked` as well; one whose future can be
computed is `Forkable`.
"""

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from gpuconsole.model.clock import Time
from gpuconsole.model.commands import Command
from gpuconsole.model.events import Event
from gpuconsole.sim.engine import Simulation

MIN_SPEED = 1.0
MAX_SPEED = 10_000.0


@runtime_checkable
class Backend(Protocol):
    """Where a cluster's events come from. The first `poll` after `open` tells all objects that exist."""

    def open(self) -> None: ...

    def poll(self, elapsed: float) -> Iterable[Event]:
        """What happened since the last poll; `elapsed` is the wall-clock seconds since then."""

    def submit(self, command: Command) -> None:
        """Take in a command; its effect or refusal comes back as events of a later poll. Only `Guard` calls it."""

    def close(self) -> None: ...


@runtime_checkable
class Clocked(Protocol):
    """What only a backend offers whose time we make: a speed, a pause and single steps."""

    @property
    def now(self) -> Time: ...

    @property
    def speed(self) -> float: ...

    @property
    def reached(self) -> float:
        """The speed of late, which is below `speed` where there is too much to compute."""

    @property
    def paused(self) -> bool: ...

    def set_speed(self, speed: float) -> None:
        """Virtual seconds a second, clipped to ×1 … ×10,000."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def step(self) -> None:
        """Let the next poll run the next moment at which something happens, although paused."""


@runtime_checkable
class Forkable(Protocol):
    """What only a backend offers that can say what would happen."""

    def fork(self) -> Simulation:
        """An independent twin of the simulation as it is now. Waits for a running poll (≤ 20 ms)."""


class Follower(Protocol):
    """Someone who keeps a replica of a simulation, by being told what it was told. Called by the polling thread."""

    def carried(self, at: Time, command: Command) -> None:
        """The command was carried out at virtual time `at`."""

    def reached(self, now: Time, digest: int) -> bool:
        """The simulation stands at `now`, and `digest` sums up all that happened until then.

        True if the replica has to start anew.
        """

    def begin(self, state: bytes, digest: int) -> None:
        """Start anew from a saved simulation."""


def clip_speed(speed: float) -> float:
    """The nearest speed that the console offers."""
    return min(MAX_SPEED, max(MIN_SPEED, speed))
