"""Protocols of a backend: it delivers a cluster's events, accepts commands, and may give access to live objects.

A backend is polled: `poll` returns events and is called by one thread only. All other methods are thread-safe. A
backend with virtual time (a simulation) is also `Clocked`, one that can run what-ifs is `Forkable`, and that of a real
cluster is a `LiveBackend`. `Partial` backends may cover only a part of a cluster (RBAC). Only a backend with an API
server has `ObjectAccess` (manifests, dry runs, logs, Events): a simulated pod has no output and no shell.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from msgspec import Struct

from gpuconsole.insight.health.engines import EnginesInForce, KueueProblem
from gpuconsole.insight.index.queues import QueueMetrics, VisibilityPositions
from gpuconsole.model.clock import Time
from gpuconsole.model.commands import Command
from gpuconsole.model.events import Event
from gpuconsole.model.snapshot import EVERYTHING, Snapshot, Visibility
from gpuconsole.sim.policy import SimPolicy

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation


MIN_SPEED = 1.0
MAX_SPEED = 10_000.0
"""Bounds of the speed, in virtual seconds per wall-clock second."""


@runtime_checkable
class Backend(Protocol):
    """Source of a cluster's events. The first `poll` after `open` reports all existing objects."""

    def open(self) -> None:
        """Connect and start to deliver events."""
        ...

    def poll(self, elapsed: float) -> Iterable[Event]:
        """Return the events since the last poll; `elapsed` is the wall-clock seconds since then."""

    def submit(self, command: Command) -> None:
        """Accept a command; its result or refusal is an event of a later poll. Only `Guard` calls this."""

    def close(self) -> None:
        """Disconnect and stop all work."""
        ...


@runtime_checkable
class Clocked(Protocol):
    """Backend with virtual time, which has a speed, can be paused and stepped."""

    @property
    def now(self) -> Time:
        """Virtual time."""
        ...

    @property
    def speed(self) -> float:
        """Requested virtual seconds per wall-clock second."""
        ...

    @property
    def reached(self) -> float:
        """Speed reached recently, below `speed` when the simulation cannot keep up."""

    @property
    def paused(self) -> bool:
        """True while virtual time is stopped."""
        ...

    def set_speed(self, speed: float) -> None:
        """Set the virtual seconds per wall-clock second, clipped to ×1 … ×10,000."""

    def pause(self) -> None:
        """Stop virtual time."""
        ...

    def resume(self) -> None:
        """Let virtual time continue."""
        ...

    def step(self) -> None:
        """Let the next poll advance to the next event, even while paused."""


@runtime_checkable
class Forkable(Protocol):
    """Backend that can be forked into a simulation for what-ifs."""

    def fork(self) -> "Simulation":
        """Return an independent copy of the simulation in its current state. Blocks while a poll runs (≤ 20 ms)."""

    @property
    def policy(self) -> SimPolicy:
        """Return the settings of the simulated schedulers; for a live cluster those of a simulation of it."""


class Missing(Struct, frozen=True):
    """A permission (RBAC verb and resource) that the user lacks; an empty namespace means cluster-wide."""

    verb: str
    resource: str
    """Such as `workloads.kueue.x-k8s.io`."""
    namespace: str = ""

    def __str__(self) -> str:
        where = f"in namespace {self.namespace}" if self.namespace else "at the cluster scope"
        return f"cannot {self.verb} {self.resource} {where}"


class ClusterHealth(Struct, frozen=True, kw_only=True):
    """Whether a live cluster can be reached, and how complete the data of it are, at this moment."""

    loading: bool = True
    """True while some readable kinds, or the scheduler settings, have not been read yet."""
    age: float = 0.0
    """Seconds since the server's last response."""
    lost: str = ""
    """Why the data may be stale; empty while they are current."""
    kinds: int = 0
    """Number of API kinds that the console uses and this cluster serves."""
    readable: int = 0
    """Number of these kinds that the user may read, in all namespaces that were requested."""
    missing: tuple[Missing, ...] = ()
    seen: Visibility = EVERYTHING
    """Which kinds are loaded, and what is assumed in place of those that cannot be read."""
    unread: tuple[str, ...] = ()
    """What could not be read for reasons other than missing permissions, as sentences."""
    requests: int = 0
    """Number of requests to the API server in the last minute."""
    most: float = 0.0
    """Limit of requests to the API server per second."""
    kueue: tuple[KueueProblem, ...] = ()
    """Problems of Kueue by its Deployment and its metrics, as far as these can be read."""


@runtime_checkable
class LiveBackend(Protocol):
    """Backend of a real cluster: wall-clock time, and a connection that can fail."""

    @property
    def now(self) -> Time:
        """Wall-clock time."""
        ...

    @property
    def health(self) -> ClusterHealth:
        """Connection to the cluster, and completeness of its data."""
        ...

    @property
    def policy(self) -> SimPolicy:
        """Return the settings for a simulation of this cluster, such as Kueue's configuration, as far as readable."""

    @property
    def assumed(self) -> tuple[str, ...]:
        """Return the assumptions behind `policy` where settings could not be read, as sentences."""

    def standings(self, cluster_queue: str, local_queue: str) -> VisibilityPositions:
        """Return a queue's pending workloads from Kueue's visibility API. Blocks; call it in a thread."""

    def queue_metrics(self, cluster_queue: str) -> QueueMetrics:
        """Return Kueue's own metrics of a queue. Blocks, as `standings`."""

    def snapshot(self) -> Snapshot:
        """Return the current state of the cluster."""

    @property
    def engines(self) -> EnginesInForce:
        """Return the schedulers in force, inferred from the API kinds that the cluster serves."""


@runtime_checkable
class Partial(Protocol):
    """Backend whose events may cover only a part of the cluster (RBAC)."""

    @property
    def seen(self) -> Visibility:
        """Return which kinds the events cover; the same object as before while that does not change."""


class Follower(Protocol):
    """Keeps a replica of a simulation up to date; the backend reports each step to it, in the polling thread."""

    def carried(self, at: Time, command: Command) -> None:
        """Report a command that was carried out at virtual time `at`."""

    def reached(self, now: Time, digest: int) -> bool:
        """Report that the simulation is at `now`; `digest` is a checksum of its history until then.

        Returns True if the replica has to be restarted with `begin`.
        """

    def begin(self, state: bytes, digest: int) -> None:
        """Restart the replica from a saved simulation."""


def clip_speed(speed: float) -> float:
    """Return the nearest speed that the console supports (×1 … ×10,000)."""
    return min(MAX_SPEED, max(MIN_SPEED, speed))


class PodOperation(StrEnum):
    """An operation on a pod that is not a command, such as opening a shell."""

    LOGS = "logs"
    SHELL = "shell"
    FORWARD = "port-forward"


class PodAccess(Struct, frozen=True):
    """A request for a pod operation in a namespace, to check the permission for it."""

    what: PodOperation
    namespace: str


class Manifest(Struct, frozen=True):
    """An object from the API server, without status and server-managed metadata."""

    document: dict[str, Any]
    version: str


class KubeEvent(Struct, frozen=True, kw_only=True):
    """A Kubernetes Event about an object; Kubernetes keeps it for about an hour."""

    time: Time
    warning: bool
    reason: str
    message: str
    count: int = 1
    about: str = ""
    """Kind and name of the object."""


class LogLine(NamedTuple):
    """A line of a pod's output without control characters. `ours` marks a line that the console adds."""

    pod: str
    text: str
    ours: bool = False


class Logs(Protocol):
    """The output of some pods as it arrives; only the newest lines are kept."""

    @property
    def lines(self) -> Sequence[LogLine]:
        """The newest log lines, oldest first."""
        ...

    @property
    def count(self) -> int:
        """Number of lines received in total, which shows whether there are new ones and how many were dropped."""

    def close(self) -> None:
        """Stop reading."""


class ObjectAccess(Protocol):
    """Reads and dry runs of objects. All except `refusal` and `kubectl` block on the network and raise ClusterError."""

    def refusal(self, asked: Command | PodAccess) -> str:
        """Return why the user lacks permission; empty if it is allowed.

        Also empty if that is not known yet; then it is requested in the background.
        """

    def rehearse(self, documents: Sequence[str]) -> tuple[str, ...]:
        """Dry-run manifests (JSON) on the server, and return a result line for each."""

    def manifest(self, table: str, key: str) -> Manifest:
        """Return an object without its status and server-managed metadata."""
        ...

    def events(self, table: str, key: str) -> tuple[KubeEvent, ...]:
        """Return the Kubernetes Events about an object, oldest first."""

    def logs(self, pods: Sequence[str], *, previous: bool) -> Logs:
        """Start reading the logs of pods (`ns/name`); with `previous`, those of the previous container instance."""

    def kubectl(self, *arguments: str) -> list[str]:
        """Return the kubectl command line for this cluster and user."""


@runtime_checkable
class HasObjectAccess(Protocol):
    """Backend that offers `ObjectAccess`."""

    def object_access(self) -> ObjectAccess:
        """Return the access to the cluster's objects. Raises ClusterError before the backend is open."""
        ...
