"""Backend for a live cluster: threads list and watch, `poll` drains their messages, commands become API requests.

`Watches` are the watches of one cluster: which kinds are read, in which order, and which are retried later.
"""

import logging
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from gpuconsole.backends.base import ClusterHealth, Missing
from gpuconsole.backends.kube.client import PROBE_AFTER, ApiServerConnection, ConnectivityProbe, RateLimiter
from gpuconsole.backends.kube.decode import CommandOutcome, Decoder, WatchMessage
from gpuconsole.backends.kube.discovery import EVENT, Served, discover
from gpuconsole.backends.kube.errors import with_retries
from gpuconsole.backends.kube.events import OwnerJoin
from gpuconsole.backends.kube.kueue_config import KueueHealth, VisibilityClient, engines_of, policy_of
from gpuconsole.backends.kube.object_access import KubeObjectAccess
from gpuconsole.backends.kube.permissions import Permissions, ReadAccess, Rights, read_access
from gpuconsole.backends.kube.target import RequestedCluster, ResolvedCluster, disable_plugin_prompts
from gpuconsole.backends.kube.watch import Watch, WatchPhase, WatchTimings
from gpuconsole.backends.kube.writes import CLUSTER_QUEUE, POD, CommandExecutor, KnownObjects
from gpuconsole.backends.telemetry.feed import Feed
from gpuconsole.backends.telemetry.kueue_metrics import KueueMetrics
from gpuconsole.errors import ClusterError
from gpuconsole.insight.health.engines import EnginesInForce
from gpuconsole.insight.index.queues import QueueMetrics, VisibilityPositions
from gpuconsole.model.clock import SECOND, Time
from gpuconsole.model.cluster import Node
from gpuconsole.model.commands import Command
from gpuconsole.model.events import Event, HistoryEvent, HistoryEventKind
from gpuconsole.model.manifests.kinds import table_of
from gpuconsole.model.snapshot import EVERYTHING, HISTORY, Snapshot, Visibility, VisibilityGap, only_namespaces_text
from gpuconsole.model.state import ClusterState
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.sim.policy import SimPolicy

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation


LOG = logging.getLogger(__name__)
SELECTORS = {EVENT: ("involvedObject.kind=Workload", "reason=FailedScheduling")}
"""Field selectors of a kind: only objects that match one of them are watched."""
BEHIND = 3.0
"""Seconds after which an interrupted watch makes the data count as stale."""
PATIENCE = 20.0
"""Most seconds for which watching pods waits for the kinds that decide which pods are kept."""
AT_ONCE, SOON, LATER, LAST = range(4)
"""Order in which kinds are first read."""
QUEUES = frozenset({"ClusterQueue", "Cohort", "LocalQueue", "Queue", "ResourceFlavor"})
"""Kinds with few objects, on which all screens depend."""


def _turn(watch: Watch) -> int:
    """Priority with which a kind is first read."""
    match watch.decoder.served.source:
        case source if source == POD:
            return LAST
        case (_, "Workload"):
            return LATER
        case (_, kind) if kind in QUEUES:
            return AT_ONCE
        case _:
            return SOON


class Watches:
    """Starts, retries and stops the watches of a cluster, a thread each. Mutable; status properties are thread-safe."""

    def __init__(
        self,
        namespaces: Sequence[str],
        known: Collection[str],
        inbox: SimpleQueue[list[WatchMessage]],
        *,
        pace: WatchTimings,
        clock: Callable[[], float],
        wall: Callable[[], Time],
    ) -> None:
        """`namespaces` limits the watches (empty: all); `known` are jobs whose pods are kept (`Decoder`)."""
        self._namespaces = namespaces
        self._known = known
        self._inbox = inbox
        self._pace = pace
        self._clock = clock
        self._wall = wall
        self._all: list[Watch] = []
        self._reached: dict[tuple[str, str], ReadAccess] = {}
        self._behind_since: float | None = None
        self._stopped = threading.Event()
        self.recorded: Collection[tuple[str, str]] = ()
        """Kinds whose messages keep their documents."""

    def begin(self, connection: ApiServerConnection, gate: ConnectivityProbe, served: Sequence[Served]) -> None:
        """Watch the kinds that may be read.

        Queues come first, which are few; then nodes and what screens need; then Workloads; then pods, after the kinds
        that decide which pods are kept.
        """
        begun = [watch for reached in self._reach(connection, served) for watch in self._of(connection, gate, reached)]
        self._all += begun
        before: list[Watch] = []
        for turn in (AT_ONCE, SOON, LATER, LAST):
            waiting = tuple(before)
            for watch in begun:
                if _turn(watch) == turn:
                    before.append(watch)
                    run = partial(self._run_after, watch, waiting) if waiting else watch.run
                    threading.Thread(target=run, name=f"kube {watch.label}", daemon=True).start()

    def _reach(self, connection: ApiServerConnection, served: Sequence[Served]) -> Sequence[ReadAccess]:
        reaches = read_access(connection, served, self._namespaces, connection.place.namespace)
        self._reached.update((reached.served.source, reached) for reached in reaches)
        return reaches

    def _of(self, connection: ApiServerConnection, gate: ConnectivityProbe, reached: ReadAccess) -> Iterable[Watch]:
        for namespace in reached.namespaces:
            for selector in SELECTORS.get(reached.served.source, ("",)):
                yield Watch(
                    connection,
                    Decoder(reached.served, self._known, keeps_documents=reached.served.source in self.recorded),
                    namespace=namespace,
                    tell=self._inbox.put,
                    gate=gate,
                    wall=self._wall,
                    pace=self._pace,
                    selector=selector,
                )

    def _run_after(self, watch: Watch, others: Sequence[Watch]) -> None:
        until = self._clock() + PATIENCE
        for other in others:
            other.synced.wait(max(0.0, until - self._clock()))
        # The polling thread processes the messages of the others; before that, no job is known.
        while not self._inbox.empty() and self._clock() < until and not self._stopped.wait(0.02):
            pass
        watch.run()

    def look_for_more(self, connection: ApiServerConnection, gate: ConnectivityProbe) -> None:
        """Retry forbidden or absent kinds, and periodically look for newly served ones. Ends with `stop`."""
        permissions = Permissions(connection, self._namespaces or (connection.place.namespace,), clock=self._clock)
        look = self._clock() + self._pace.again
        while not self._stopped.wait(self._pace.until_recheck):
            gate.wait()
            try:
                self._recheck(connection, gate, permissions)
                if self._clock() >= look:
                    look = self._clock() + self._pace.again * random.uniform(0.8, 1.2)
                    self.begin(connection, gate, [served for served in discover(connection) if not self._has(served)])
            except ClusterError as error:
                LOG.info("Cannot check access to further kinds: %s", error)

    def _recheck(self, connection: ApiServerConnection, gate: ConnectivityProbe, permissions: Permissions) -> None:
        """Retry kinds that may be available now. One request for the RBAC rules covers all denied kinds."""
        refused = [(watch, watch.missing) for watch in self._all if watch.phase is WatchPhase.FORBIDDEN]
        unreached = [reached.served for reached in self._reached.values() if not reached.namespaces]
        if (refused or unreached) and permissions.changed(len(refused) + len(unreached)):
            self.begin(connection, gate, unreached)
        for watch, right in refused:
            if right is None or not permissions.denies(right, watch.decoder.served):
                watch.retry()
        for watch in self._all:
            if watch.phase is WatchPhase.ABSENT:
                watch.retry()

    def _has(self, served: Served) -> bool:
        reached = self._reached.get(served.source)
        return reached is not None and bool(reached.namespaces)

    def reopen(self) -> None:
        """Reconnect all watches after an outage."""
        for watch in self._all:
            watch.reopen()

    def stop(self) -> None:
        """Stop all threads without waiting for them, because each may be blocked on a response."""
        self._stopped.set()
        for watch in self._all:
            watch.stop()

    # Status

    @property
    def served(self) -> Sequence[Served]:
        """API kinds that the cluster serves."""
        return [reached.served for reached in self._reached.values()]

    def version(self, source: tuple[str, str]) -> str:
        """Served version of a kind; empty if it is not served."""
        reached = self._reached.get(source)
        return reached.served.version if reached is not None else ""

    @property
    def synced(self) -> bool:
        """True once every kind that the user may read has been read."""
        return all(watch.synced.is_set() for watch in self._all)

    @property
    def missing(self) -> Sequence[Missing]:
        """Permissions that are missing."""
        denied = [right for reached in self._reached.values() for right in reached.missing]
        return tuple(dict.fromkeys([*denied, *self._refused]))

    @property
    def _refused(self) -> Sequence[Missing]:
        """Missing permissions that only a refused request showed."""
        return [watch.missing for watch in self._all if watch.missing is not None]

    @property
    def gaps(self) -> Iterable[VisibilityGap]:
        """Kinds that are not completely read, and why."""
        every = self._refused
        unread = Counter[tuple[str, str]]()
        for watch in self._all:
            unread[watch.decoder.served.source] += watch.unread
        for source, reached in self._reached.items():
            refused = [right for right in every if right.resource == reached.served.resource]
            lost = {right.namespace for right in refused}
            rights = [*reached.missing, *refused]
            narrowed = self._namespaces if reached.served.namespaced else ()
            odd = unread[source]
            if not rights and not narrowed and not odd:
                continue
            why = [*map(str, rights), *([only_namespaces_text(narrowed)] if narrowed and reached.namespaces else ())]
            why += [f"{odd} of {reached.served.resource} could not be read"] if odd else []
            yield VisibilityGap(
                table=HISTORY if source == EVENT else table_of(source),
                resource=reached.served.resource,
                why=", ".join(why),
                namespaces=tuple(name for name in reached.namespaces if name and name not in lost and not odd),
                partly=bool(odd),
            )

    @property
    def behind(self) -> str:
        """Return a sentence about watches that have been interrupted for a while; empty if there are none."""
        behind = [watch.label for watch in self._all if watch.phase is WatchPhase.CATCHING_UP]
        if not behind:
            self._behind_since = None
            return ""
        if self._behind_since is None:
            self._behind_since = self._clock()
        if self._clock() - self._behind_since < BEHIND:
            return ""
        return f"catching up with {', '.join(behind[:3])}{' …' if len(behind) > 3 else ''}"

    @property
    def unread(self) -> Iterable[str]:
        """Sentences about objects that exist but could not be read."""
        for watch in self._all:
            if problem := watch.problem:
                yield problem
            if watch.unread:
                yield f"{watch.unread} of {watch.label} could not be read"


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
        self._record: Callable[[WatchMessage], None] | None = None
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

    def record(self, take: Callable[[WatchMessage], None], kinds: Collection[tuple[str, str]]) -> None:
        """Pass each watch message to `take`, those about `kinds` with their documents. Call it before `open`."""
        self._record, self._watches.recorded = take, kinds

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
                message = self._rest.popleft()
                if self._record is not None:
                    self._record(message)
                events += self._joiner.take(message)
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
