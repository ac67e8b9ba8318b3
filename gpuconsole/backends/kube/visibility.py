"""Client of Kueue's visibility API: pending workloads of the selected queue, in order."""

import logging
import time
from collections.abc import Callable, Sequence
from urllib.parse import quote

import msgspec
from msgspec import Struct

from gpuconsole.backends.kube.client import ApiServerConnection
from gpuconsole.backends.kube.errors import Forbidden, Refused
from gpuconsole.errors import ClusterError
from gpuconsole.insight.index.positions import QueuePosition, VisibilityPositions
from gpuconsole.model.clock import Time
from gpuconsole.model.text import clean

LOG = logging.getLogger(__name__)
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
