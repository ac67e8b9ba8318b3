"""The one seam: where events come from and commands go to.

A backend is pulled: `poll` says what happened, and is called by one thread only. Everything else may be called from any
thread. A backend whose time we make ourselves (a simulation, a recording) is `Clocked` as well; one whose future can be
computed is `Forkable`. One whose time is everybody's is `Live`.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from msgspec import Struct

from gpuconsole.insight.engines import EnginesInForce
from gpuconsole.insight.kueue_liveness import KueueProblem
from gpuconsole.insight.queue_metrics import QueueMetrics
from gpuconsole.insight.visibility_positions import VisibilityPositions
from gpuconsole.model.clock import Time
from gpuconsole.model.commands import Command
from gpuconsole.model.events import Event
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.visibility import EVERYTHING, Visibility
from gpuconsole.sim.policy import SimPolicy

if TYPE_CHECKING:
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

    def fork(self) -> "Simulation":
        """An independent twin of the simulation as it is now. Waits for a running poll (≤ 20 ms)."""


class Missing(Struct, frozen=True):
    """A right that the user does not have; no namespace stands for the whole cluster."""

    verb: str
    resource: str
    """`workloads.kueue.x-k8s.io`"""
    namespace: str = ""

    def __str__(self) -> str:
        where = f"in namespace {self.namespace}" if self.namespace else "at the cluster scope"
        return f"cannot {self.verb} {self.resource} {where}"


class ClusterHealth(Struct, frozen=True, kw_only=True):
    """How well a live cluster can be seen at this moment."""

    loading: bool = True
    """Not everything that can be read was read once."""
    age: float = 0.0
    """Seconds since the server last said anything."""
    lost: str = ""
    """Why what is shown may be out of date; empty while it is not."""
    kinds: int = 0
    """Kinds that are served, of those that the console knows."""
    readable: int = 0
    """Those of them that the user may read wherever it was asked for."""
    missing: tuple[Missing, ...] = ()
    seen: Visibility = EVERYTHING
    """What that leaves unknown, and what was assumed instead of what cannot be read."""
    unread: tuple[str, ...] = ()
    """What could not be read for other reasons, each in a sentence."""
    requests: int = 0
    """Sent in the last minute."""
    most: float = 0.0
    """Requests a second that are never exceeded."""
    kueue: tuple[KueueProblem, ...] = ()
    """Why Kueue does not work, by its Deployment and its metrics, as far as these can be read."""


@runtime_checkable
class LiveBackend(Protocol):
    """What only a backend offers whose cluster others run: the time is everybody's, and the sight of it can fail."""

    @property
    def now(self) -> Time: ...

    @property
    def health(self) -> ClusterHealth: ...

    @property
    def policy(self) -> SimPolicy:
        """How a Snapshot goes on when it is tried out in a simulation, as far as the cluster tells."""

    @property
    def assumed(self) -> tuple[str, ...]:
        """What the cluster does not tell of that policy, in sentences."""

    def standings(self, cluster_queue: str, local_queue: str) -> VisibilityPositions:
        """Who waits for a queue by the word of the cluster itself. Waits for its answer; call it in a thread."""

    def queue_metrics(self, cluster_queue: str) -> QueueMetrics:
        """What Kueue's own metrics say of a queue. Waits for the answer, as `standings`."""

    def snapshot(self) -> Snapshot:
        """The cluster as it is known now."""

    @property
    def engines(self) -> EnginesInForce:
        """Who decides there, as far as the kinds tell that it serves."""


@runtime_checkable
class Partial(Protocol):
    """What only a backend offers whose events may not tell of everything that there is."""

    @property
    def seen(self) -> Visibility:
        """What of the cluster they tell; the same value as long as that is the same."""


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
