"""All watches of one cluster: which kinds are read, in which order, and which are retried later."""

import logging
import random
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from queue import SimpleQueue

from gpuconsole.backends.base import Missing
from gpuconsole.backends.kube.client import ApiServerConnection, ConnectivityProbe
from gpuconsole.backends.kube.decode import Decoder, WatchMessage
from gpuconsole.backends.kube.discovery import EVENT, Served, discover
from gpuconsole.backends.kube.permissions import Permissions, ReadAccess, read_access
from gpuconsole.backends.kube.watch import Watch, WatchPhase, WatchTimings
from gpuconsole.backends.kube.writes import POD
from gpuconsole.errors import ClusterError
from gpuconsole.model.clock import Time
from gpuconsole.model.manifests.kinds import table_of
from gpuconsole.model.snapshot import HISTORY, VisibilityGap, only_namespaces_text

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
                    Decoder(reached.served, self._known),
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
