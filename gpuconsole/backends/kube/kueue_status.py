"""Health of Kueue, and pending workloads from its visibility API.

Health of Kueue itself: polls its Deployment and its metrics, where RBAC allows it.

Client of Kueue's visibility API: pending workloads of the selected queue, in order.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from urllib.parse import quote

import msgspec
from msgspec import Struct

from gpuconsole.backends.kube.client import ApiServerConnection
from gpuconsole.backends.kube.errors import Forbidden, Refused
from gpuconsole.backends.kube.kueue_config import FORBIDDEN, NO_DEPLOYMENT, KueueManager, manager_of
from gpuconsole.backends.telemetry.kueue_metrics import KueueMetrics
from gpuconsole.errors import ClusterError
from gpuconsole.insight.health.kueue_liveness import KueueProblem
from gpuconsole.insight.index.positions import QueuePosition, VisibilityPositions
from gpuconsole.insight.tables import counted
from gpuconsole.model.clock import Time
from gpuconsole.model.text import clean

LOG = logging.getLogger(__name__)
INTERVAL = 30.0
"""Seconds between two checks: two requests a minute."""
SOON = 7.0
"""Seconds between two checks while there is a problem, so that its end is noticed within 10 s."""
AGAIN = 10
"""Number of checks after which a Deployment that may not be read, or was never found, is looked for again."""
NO_METRICS = "Kueue's metrics are missing"


class KueueHealth:
    """Checks Kueue's Deployment and metrics. Mutable; `look` is called from one thread, `problems` from any."""

    def __init__(self, connection: ApiServerConnection, metrics: KueueMetrics | None, queue: Callable[[], str]) -> None:
        """`queue` names a ClusterQueue that Kueue's metrics must include; empty if there is none."""
        self._connection, self._metrics, self._queue = connection, metrics, queue
        self._known: KueueManager | None = None
        """The manager that was found last; one that was never found is not reported as deleted."""
        self._measured = ""
        """ClusterQueue whose metrics were found."""
        self._left_out = 0
        """Number of checks that skip the Deployment."""
        self._stopped = threading.Event()
        self.problems: tuple[KueueProblem, ...] = ()

    def watch(self) -> None:
        """Check periodically until `stop`."""
        while not self._stopped.is_set():
            try:
                self.look()
            except Exception:
                LOG.exception("Kueue's health could not be read")
            self._stopped.wait(SOON if self.problems else INTERVAL)

    def stop(self) -> None:
        """Stop; does not wait for a check in progress."""
        self._stopped.set()

    def look(self) -> None:
        """Check once."""
        found = (self._deployment(), self._telemetry())
        self.problems = tuple(one for one in found if one is not None)

    def _deployment(self) -> KueueProblem | None:
        if self._left_out:
            self._left_out -= 1
            return None
        try:
            manager, why = manager_of(self._connection, self._known.name if self._known is not None else "")
        except ClusterError:
            # It is reported elsewhere that the API server does not respond.
            return None
        if manager is None:
            known = self._known
            self._left_out = AGAIN if known is None or why == FORBIDDEN else 0
            if known is None or why != NO_DEPLOYMENT:
                return None
            return KueueProblem("Kueue was deleted", f"Deployment {known.name} was deleted: no workloads are admitted")
        self._known = manager
        if manager.ready is None or manager.ready > 0:
            return None
        if not manager.wanted:
            return KueueProblem(
                "Kueue is scaled to 0",
                f"Deployment {manager.name} is scaled to 0 replicas: no workloads are admitted",
            )
        wanted = counted(manager.wanted, "replica")
        return KueueProblem(
            "Kueue is not ready",
            f"Deployment {manager.name} is not ready: 0 of {wanted}; no workloads are admitted",
        )

    def _telemetry(self) -> KueueProblem | None:
        queue = self._queue()
        if self._metrics is None or not queue:
            return None
        trouble = self._metrics.trouble(queue)
        if not trouble:
            self._measured = queue
        if not trouble or self._measured != queue:
            return None
        return KueueProblem(NO_METRICS, f"{NO_METRICS}: {trouble}")


GROUP = "/apis/visibility.kueue.x-k8s.io"
VERSIONS = ("v1beta2", "v1beta1")
"""Newest first; Kueue serves one or both."""
RENEW = 15.0
"""Seconds for which a response is cached: four requests a minute while a queue is shown."""
VISIBILITY_AGAIN = 7.0
"""Seconds until an API that is missing or forbidden is retried, while a queue is shown."""
MOST = 1000
"""Most pending workloads that are requested, from the head of the queue."""
PATIENCE = 5.0
_GONE = (404, 503)
_ABSENT = "the visibility API is not served"


class _Metadata(Struct):
    name: str = ""
    namespace: str = ""


class _Pending(Struct, rename="camel"):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    position_in_cluster_queue: int = 0
    position_in_local_queue: int = 0


class _Summary(Struct):
    items: list[_Pending] = []


class VisibilityClient:
    """Requests pending workloads, and caches the response. Mutable; thread-safe; blocks on the server."""

    def __init__(
        self, connection: ApiServerConnection, wall: Callable[[], Time], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._connection = connection
        self._wall = wall
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[float, VisibilityPositions]] = {}
        self._version = ""
        self._absent_until = 0.0

    def standings(self, cluster_queue: str, local_queue: str) -> VisibilityPositions:
        """Return the pending workloads of a ClusterQueue or, if that is forbidden, of the LocalQueue
        (`namespace/name`).
        """
        key = (cluster_queue, local_queue)
        until, known = self._known.get(key, (0.0, VisibilityPositions(queue=cluster_queue)))
        now = self._clock()
        if now < until:
            return known
        if self._absent:
            return VisibilityPositions(queue=cluster_queue, trouble=_ABSENT)
        found = self._ask(cluster_queue, local_queue)
        self._known = {key: (now + (RENEW if found.source else VISIBILITY_AGAIN), found)}
        return found

    @property
    def _absent(self) -> bool:
        """True while the API is assumed not to be served."""
        return self._clock() < self._absent_until

    def _ask(self, cluster_queue: str, local_queue: str) -> VisibilityPositions:
        namespace, _, name = local_queue.partition("/")
        paths = [(cluster_queue, f"clusterqueues/{quote(cluster_queue)}")]
        if name:
            paths.append((local_queue, f"namespaces/{quote(namespace)}/localqueues/{quote(name)}"))
        trouble = ""
        for queue, path in paths:
            try:
                return self._read(queue, path)
            except Forbidden as error:
                trouble = clean(str(error))
            except ClusterError as error:
                LOG.info("Cannot read pending workloads of %s from the visibility API: %s", queue, error)
                return VisibilityPositions(queue=queue, trouble=_ABSENT if self._absent else clean(str(error)))
        return VisibilityPositions(queue=cluster_queue, trouble=trouble)

    def _read(self, queue: str, path: str) -> VisibilityPositions:
        refused: Refused | None = None
        for version in (self._version,) if self._version else VERSIONS:
            where = f"{GROUP}/{version}/{path}/pendingworkloads"
            try:
                answer = self._connection.get(where, {"limit": MOST}, read=PATIENCE)
            except Refused as error:
                if error.code not in _GONE:
                    raise
                refused = error
                continue
            self._version = version
            return self._understood(queue, version, answer.decode(_Summary).items)
        if not self._version:
            self._absent_until = self._clock() + VISIBILITY_AGAIN
        assert refused is not None, "one version at least was asked for"
        raise refused

    def _understood(self, queue: str, version: str, items: Sequence[_Pending]) -> VisibilityPositions:
        places = {
            clean(f"{one.metadata.namespace}/{one.metadata.name}"): QueuePosition(
                one.position_in_cluster_queue + 1, one.position_in_local_queue + 1
            )
            for one in items
        }
        return VisibilityPositions(queue=queue, source=f"visibility API {version}", time=self._wall(), places=places)
