"""The simulation: a cluster that lives on its own, can be driven by commands, forked and saved."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gpuconsole.model.clock import Time
from gpuconsole.model.commands import Command
from gpuconsole.model.events import Event
from gpuconsole.model.objects import Object
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.sim.policy import SimPolicy

if TYPE_CHECKING:
    from gpuconsole.scheduling.kube.session import Placement
    from gpuconsole.scheduling.kueue.session import Session


class Simulation:
    """A simulated cluster. Mutates by `submit`, `advance` and `step` only."""

    now: Time
    policy: SimPolicy
    seed: int

    @classmethod
    def from_objects(cls, objects: Iterable[Object], *, policy: SimPolicy, seed: int, start: Time) -> "Simulation":
        """A cluster that begins with these objects at `start`; their events wait in `drain()`."""
        raise NotImplementedError

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot, *, policy: SimPolicy, seed: int) -> "Simulation":
        """A cluster that goes on from a Snapshot; nothing of what is in it is told again by `drain()`."""
        raise NotImplementedError

    @property
    def session(self) -> "Session | None":
        """Kueue's session, for answers about positions and quota; None without queueing."""
        raise NotImplementedError

    @property
    def placement(self) -> "Placement":
        """Where pods are, for answers about free GPUs."""
        raise NotImplementedError

    def submit(self, command: Command) -> None:
        """Carry a command out at `now`, after those submitted before it; a refusal becomes a COMMAND_REFUSED line."""
        raise NotImplementedError

    def schedule(self, at: Time, command: Command) -> None:
        """Carry a command out at a later moment."""
        raise NotImplementedError

    def advance(self, until: Time) -> None:
        """Run everything up to and including `until`; `now == until` afterwards."""
        raise NotImplementedError

    def step(self) -> bool:
        """Run the next moment at which something happens; False if nothing will."""
        raise NotImplementedError

    def drain(self) -> list[Event]:
        """What happened since the last drain, in order."""
        raise NotImplementedError

    def snapshot(self) -> Snapshot:
        raise NotImplementedError

    def fork(self) -> "Simulation":
        """An independent twin."""
        raise NotImplementedError

    def save(self) -> bytes:
        raise NotImplementedError

    @classmethod
    def load(cls, data: bytes) -> "Simulation":
        """Read what `save` wrote. Raises msgspec.ValidationError."""
        raise NotImplementedError
