"""Backend for a live cluster: threads list and watch, `poll` drains their messages, commands become API requests."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from gpuconsole.backends.base import ClusterHealth
from gpuconsole.backends.kube.client import PROBE_AFTER, ApiServerConnection, ConnectivityProbe, RateLimiter
from gpuconsole.backends.kube.decode import CommandOutcome, WatchMessage
from gpuconsole.backends.kube.discovery import Served, discover
from gpuconsole.backends.kube.errors import with_retries
from gpuconsole.backends.kube.kueue_config import KueueHealth, VisibilityClient, engines_of, policy_of
from gpuconsole.backends.kube.object_access import KubeObjectAccess
from gpuconsole.backends.kube.owner_join import OwnerJoin
from gpuconsole.backends.kube.permissions import Rights
from gpuconsole.backends.kube.target import RequestedCluster, ResolvedCluster, disable_plugin_prompts
from gpuconsole.backends.kube.watch import WatchTimings
from gpuconsole.backends.kube.watches import Watches
from gpuconsole.backends.kube.writes import CLUSTER_QUEUE, CommandExecutor, KnownObjects
from gpuconsole.backends.telemetry.feed import Feed
from gpuconsole.backends.telemetry.kueue_metrics import KueueMetrics
from gpuconsole.errors import ClusterError
from gpuconsole.insight.health.engines import EnginesInForce
from gpuconsole.insight.index.queues import QueueMetrics, VisibilityPositions
from gpuconsole.model.clock import SECOND, Time
from gpuconsole.model.cluster import Node
from gpuconsole.model.commands import Command
from gpuconsole.model.events import Event, HistoryEvent, HistoryEventKind
from gpuconsole.model.snapshot import EVERYTHING, Snapshot, Visibility
from gpuconsole.model.state import ClusterState
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.sim.policy import SimPolicy

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation
WORK = 0.012
"""Seconds of work per poll, so that a tick of the console (poll, apply events, publish a Snapshot) takes about 20 ms.
"""


def wall() -> Time:
    """Return the current wall-clock time."""
    return time.time_ns() // 1_000


class KubeBackend:
    """The backend of one live cluster, which it watches. Mutable; see `Backend` for thread safety."""

    def __init__(
        self,
        target: RequestedCluster,
        *,
        pace: WatchTimings | None = None,
        probe_after: float = PROBE_AFTER,
        budget: RateLimiter | None = None,
        kueue: KueueConfig | None = None,
        place: ResolvedCluster | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is read or sent before `open`. `kueue` overrides the cluster's own Kueue Configuration.

        `place` is the resolved target, if it was resolved already.
        """
        self._target = target
        self._place = place
        self._probe_after = probe_after
        self._budget = budget or RateLimiter()
        self._kueue = kueue
        self._clock = clock
        self._inbox: SimpleQueue[list[WatchMessage]] = SimpleQueue()
        self._rest: deque[WatchMessage] = deque()
        self._joiner = OwnerJoin()
        self._watches = Watches(
            target.namespaces, self._joiner.known, self._inbox, pace=pace or WatchTimings(), clock=clock, wall=wall
        )
        self._early: list[HistoryEvent] | None = []
        """History events until everything was read once, because they arrive out of order."""
        self._connection: ApiServerConnection | None = None
        self._gate: ConnectivityProbe | None = None
        self._hands: CommandExecutor | None = None
        self._desk: KubeObjectAccess | None = None
        self._state = ClusterState()
        self._seen = EVERYTHING
        self._applying = threading.Lock()
        self.telemetry: Feed | None = None
        """Source of GPU telemetry, started once nodes are known; set it before `open`."""
        self.kueue_metrics: KueueMetrics | None = None
        """Source of Kueue's metrics of the selected queue; set it before `open`."""
        self._measuring = False
        self._visibility: VisibilityClient | None = None
        self._kueue_health: KueueHealth | None = None
        self._asked = threading.Event()
        """Set once its policy was read, or could not be read."""
        self.policy = SimPolicy()
        self.assumed: tuple[str, ...] = ()
        self.engines = EnginesInForce()

    def open(self) -> None:
        """Connect, discover the API kinds and permissions, and start the watches.

        Raises UsageError, or ClusterError if the cluster cannot be read.
        """
        connection = self._connection = ApiServerConnection(self._target, self._budget, place=self._place)
        gate = self._gate = ConnectivityProbe(connection, reopened=self._watches.reopen, probe_after=self._probe_after)
        served = with_retries(partial(discover, connection))
        self.engines = engines_of(served)
        self._watches.begin(connection, gate, served)
        self._visibility = VisibilityClient(connection, wall)
        known = KnownObjects(self._joiner.workload, self._watches.version)
        hands = self._hands = CommandExecutor(connection, lambda: self.served, known, self._came_of, wall)
        rights = Rights(connection, lambda: self.served, known)
        self._desk = KubeObjectAccess(connection, hands, rights, known, self._target.kubeconfig or "")
        disable_plugin_prompts()
        self._thread("policy", partial(self._read_policy, connection, served))
        self._thread("gate", gate.watch_over)
        if any(kind.source == CLUSTER_QUEUE for kind in served):
            health = self._kueue_health = KueueHealth(connection, self.kueue_metrics, self._any_queue)
            self._thread("kueue-health", health.watch)
        self._thread("look-for-more", partial(self._watches.look_for_more, connection, gate))

    def _read_policy(self, connection: ApiServerConnection, served: Sequence[Served]) -> None:
        """Read Kueue's settings; until then, the cluster counts as loading."""
        try:
            self.policy, self.assumed = policy_of(connection, served, self._kueue)
        finally:
            self._asked.set()

    @property
    def connection(self) -> ApiServerConnection:
        """Connection to the API server. Raises ClusterError before `open`."""
        if self._connection is None:
            raise ClusterError("not connected to the cluster yet")
        return self._connection

    @property
    def served(self) -> Sequence[Served]:
        """API kinds that the cluster serves."""
        return self._watches.served

    @property
    def now(self) -> Time:
        """Return the wall-clock time in whole seconds: an idle cluster makes at most one Snapshot per second."""
        return wall() // SECOND * SECOND

    @property
    def gpu_nodes(self) -> Sequence[str]:
        """Names of the nodes with GPUs."""
        return [node.name for node in self._state.table("nodes").all() if node.gpus]

    def _any_queue(self) -> str:
        """Name of a ClusterQueue; empty if there is none."""
        return min((queue.name for queue in self._state.table("cluster_queues").all()), default="")

    def has_node(self, name: str) -> bool:
        """True if a node of this name is known."""
        return self._state.get(Node, name) is not None

    def poll(self, elapsed: float) -> Iterable[Event]:
        """Return the events since the last poll; see `Backend.poll`."""
        events: list[Event] = []
        deadline = self._clock() + WORK
        while self._clock() < deadline and (self._rest or self._fetch()):
            for _ in range(min(50, len(self._rest))):
                events += self._joiner.take(self._rest.popleft())
        delivered = [*self._in_order(events), *self._measured()]
        with self._applying:
            for event in delivered:
                self._state.apply(event)
        return delivered

    def standings(self, cluster_queue: str, local_queue: str) -> VisibilityPositions:
        """Return a queue's pending workloads; see `LiveBackend.standings`."""
        if self._visibility is None:
            return VisibilityPositions(queue=cluster_queue, trouble="not connected to the cluster yet")
        return self._visibility.standings(cluster_queue, local_queue)

    def queue_metrics(self, cluster_queue: str) -> QueueMetrics:
        """Return Kueue's metrics of a queue; without a value if there is no source."""
        if self.kueue_metrics is None:
            return QueueMetrics(queue=cluster_queue)
        return self.kueue_metrics.of(cluster_queue)

    def fork(self) -> "Simulation":
        """Return a simulation that starts from the cluster's current state, with the console's own schedulers."""
        # The engines are slow to import, and most sessions never fork in this process.
        from gpuconsole.sim.engine import Simulation

        return Simulation.from_snapshot(self.snapshot(), policy=self.policy, seed=0)

    def snapshot(self) -> Snapshot:
        """Return the current state of the cluster."""
        with self._applying:
            self._state.seen = self.seen
            self._state.time = max(self._state.time, self.now)
            return self._state.freeze()

    @property
    def seen(self) -> Visibility:
        """Which kinds the Snapshots cover; the same object as before while that does not change."""
        seen = Visibility(gaps=tuple(self._watches.gaps), assumed=self.assumed)
        if seen != self._seen:
            self._seen = seen
        return self._seen

    def submit(self, command: Command) -> None:
        """Queue a command for sending. Raises ClusterError before `open`."""
        if self._hands is None:
            raise ClusterError("not connected to the cluster yet")
        self._hands.take(command)

    def close(self) -> None:
        """Stop all threads without waiting for them, because each may be blocked on a response."""
        self._watches.stop()
        if self._gate is not None:
            self._gate.stop()
        if self._kueue_health is not None:
            self._kueue_health.stop()
        if self._hands is not None:
            self._hands.close()
        if self._desk is not None:
            self._desk.close()
        if self.telemetry is not None:
            self.telemetry.stop()

    def object_access(self) -> KubeObjectAccess:
        """Access to objects besides commands. Raises ClusterError before `open`."""
        if self._desk is None:
            raise ClusterError("not connected to the cluster yet")
        return self._desk

    # Health

    @property
    def health(self) -> ClusterHealth:
        """Connection to the cluster, and completeness of its data."""
        if self._connection is None:
            return ClusterHealth()
        served, missing = self.served, self._watches.missing
        lacking = {right.resource for right in missing}
        last_response = self._connection.last_response_at
        return ClusterHealth(
            # Events are held back until everything was read once.
            loading=self._early is not None,
            age=max(0.0, self._clock() - last_response) if last_response else 0.0,
            lost=self._gate.problem if self._gate is not None and self._gate.shut else self._watches.behind,
            kinds=len(served),
            readable=sum(kind.resource not in lacking for kind in served),
            missing=tuple(missing),
            seen=self.seen,
            unread=tuple(self._unread()),
            requests=self._budget.last_minute,
            most=self._budget.rate,
            kueue=self._kueue_health.problems if self._kueue_health is not None else (),
        )

    def _unread(self) -> Iterable[str]:
        yield from self._watches.unread
        if self.telemetry is not None and self.telemetry.sight.trouble:
            yield self.telemetry.sight.trouble

    def _thread(self, name: str, work: Callable[[], None]) -> None:
        threading.Thread(target=work, name=f"kube {name}", daemon=True).start()

    # Events

    def _came_of(self, line: HistoryEvent) -> None:
        self._inbox.put([CommandOutcome(line)])

    def _fetch(self) -> bool:
        try:
            self._rest.extend(self._inbox.get_nowait())
        except Empty:
            return False
        return True

    def _measured(self) -> Iterable[Event]:
        """Return the new GPU telemetry."""
        if self.telemetry is None or self._early is not None:
            return ()
        if not self._measuring:
            self._measuring = True
            self.telemetry.start()
        return self.telemetry.take()

    def _in_order(self, events: list[Event]) -> list[Event]:
        """Return the events; holds back the history of the first seconds and sorts it by time."""
        if self._early is None:
            return [*events, *self._joiner.overdue(wall())]
        self._early += [event for event in events if isinstance(event, HistoryEvent)]
        others: list[Event] = [event for event in events if not isinstance(event, HistoryEvent)]
        reading = not self._asked.is_set() or not self._watches.synced
        if reading or self._rest or not self._inbox.empty():
            return others
        delivered = [*self._early, *(line for line in self._joiner.overdue() if isinstance(line, HistoryEvent))]
        early = self._joiner.complete(delivered)
        self._early = None
        return [*others, *sorted(early, key=lambda line: (line.time, line.what is not HistoryEventKind.PREEMPTED))]
