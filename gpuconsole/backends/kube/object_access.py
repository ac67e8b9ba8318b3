"""Access to a live cluster's objects: manifests to edit, dry runs, Events, logs, and kubectl command lines.

`KubeObjectAccess` implements `ObjectAccess`. `KubeLogs` follows logs of pods, in a thread per container; failures
become lines.
"""

import logging
import re
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from urllib.parse import quote

from msgspec import Struct

from gpuconsole.backends.base import KubeEvent, LogLine, Manifest, PodAccess
from gpuconsole.backends.kube.client import ApiServerConnection, Query, ResponseStream
from gpuconsole.backends.kube.errors import Refused
from gpuconsole.backends.kube.permissions import Rights
from gpuconsole.backends.kube.target import IN_CLUSTER
from gpuconsole.backends.kube.writes import CommandExecutor, KnownObjects, object_of
from gpuconsole.errors import ClusterError
from gpuconsole.model.clock import parse_time
from gpuconsole.model.commands import Command
from gpuconsole.model.text import clean

LOG = logging.getLogger(__name__)
KEPT = 2_000
"""Most log lines that are kept, of all pods together."""
WIDEST = 1_000
"""Most characters of a log line; the rest is cut off."""
FIRST = 200
"""Number of earlier log lines that are read from each container at the start."""
PODS = 32
"""Most pods whose logs are read at once: each needs a connection."""
LATER = 2.0
"""Seconds until a container that has not started is tried again."""
SILENCE = 3_600.0
"""Seconds without output after which a log counts as interrupted."""
_CHOICE = re.compile(r"choose one of: \[([^\]]*)\]")
"""The server's error for a pod with several containers, which names them."""
_WAITING = ("ContainerCreating", "PodInitializing", "is waiting to start", "not found for pod", "does not have a host")


class KubeLogs:
    """Follows the logs of some pods until it is closed. Thread-safe."""

    def __init__(self, connection: ApiServerConnection, pods: Sequence[str], *, previous: bool) -> None:
        self._connection = connection
        self._previous = previous
        self._lines: deque[LogLine] = deque(maxlen=KEPT)
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._streams: set[ResponseStream] = set()
        self.count = 0
        for pod in pods[:PODS]:
            self._thread(pod, "")
        if len(pods) > PODS:
            self._say("", f"{len(pods) - PODS} more pods are not shown; the limit is {PODS}")

    @property
    def lines(self) -> Sequence[LogLine]:
        """The newest log lines, oldest first."""
        with self._lock:
            return tuple(self._lines)

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._stopped.is_set()

    def close(self) -> None:
        """Stop following the logs."""
        self._stopped.set()
        with self._lock:
            streams = tuple(self._streams)
        for stream in streams:
            stream.close()

    def _thread(self, pod: str, container: str) -> None:
        threading.Thread(target=self._read, args=(pod, container), name=f"kube logs {pod}", daemon=True).start()

    def _read(self, pod: str, container: str) -> None:
        """Follow one container's log until it ends. Never raises."""
        try:
            while not self._stopped.is_set() and not self._once(pod, container):
                self._stopped.wait(LATER)
        except ClusterError as error:
            if not self._stopped.is_set():
                self._say(pod, error.message if isinstance(error, Refused) else str(error))
        except Exception as error:
            if not self._stopped.is_set():
                LOG.exception("Logs of %s", pod)
                self._say(pod, repr(error))

    def _once(self, pod: str, container: str) -> bool:
        """Read a log to its end; False if the container has not started yet. Raises ClusterError."""
        namespace, _, name = pod.partition("/")
        path = f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(name)}/log"
        query: Query = {
            "tailLines": FIRST,
            **({"container": container} if container else {}),
            **({"previous": "true"} if self._previous else {"follow": "true"}),
        }
        try:
            with self._connection.stream(path, query, timeout=SILENCE) as stream:
                self._follow(stream, pod, container)
        except Refused as error:
            if (choice := _CHOICE.search(error.message)) and not container:
                for one in choice[1].split():
                    self._thread(pod, one)
                return True
            if not self._previous and any(words in error.message for words in _WAITING):
                return False
            raise
        if not self._stopped.is_set():
            self._say(pod, "no previous logs" if self._previous and not self.count else "container terminated")
        return True

    def _follow(self, stream: ResponseStream, pod: str, container: str) -> None:
        with self._lock:
            self._streams.add(stream)
        try:
            for lines in stream.lines():
                if self._stopped.is_set():
                    return
                self._take(pod, container, lines)
        finally:
            with self._lock:
                self._streams.discard(stream)

    def _take(self, pod: str, container: str, lines: Sequence[bytes]) -> None:
        name = f"{pod} {container}".strip()
        # Tabs are expanded; other control characters are made visible.
        texts = (line[: 4 * WIDEST].decode(errors="replace").rstrip("\r").expandtabs(4) for line in lines[-KEPT:])
        made = [LogLine(name, clean(text, WIDEST)) for text in texts]
        with self._lock:
            self._lines.extend(made)
            self.count += len(lines)

    def _say(self, pod: str, text: str) -> None:
        with self._lock:
            self._lines.append(LogLine(pod, clean(text, WIDEST), ours=True))
            self.count += 1


"""Parts of the server's errors for a container that has not started yet."""
MOST_EVENTS = 500
"""Most Kubernetes Events that are read of one object."""
NEVER = "1970-01-01T00:00:00Z"
_SERVERS = ("managedFields", "uid", "creationTimestamp", "generation", "resourceVersion", "selfLink", "ownerReferences")
"""Fields of metadata that an editor must not change."""


class _Series(Struct, frozen=True, rename="camel"):
    count: int | None = None
    last_observed_time: str | None = None


class _Event(Struct, frozen=True, rename="camel"):
    """core/v1 Event"""

    series: _Series | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int | None = None


class _Events(Struct, frozen=True):
    items: list[_Event] | None


class KubeObjectAccess:
    """Reads and dry-runs objects of a live cluster through the API server (`ObjectAccess`). Thread-safe."""

    def __init__(
        self,
        connection: ApiServerConnection,
        hands: CommandExecutor,
        rights: Rights,
        known: KnownObjects,
        kubeconfig: str,
    ) -> None:
        self._connection = connection
        self._hands = hands
        self._rights = rights
        self._known = known
        self._kubeconfig = kubeconfig
        self._logs: list[KubeLogs] = []

    def refusal(self, asked: Command | PodAccess) -> str:
        """Return why the user lacks permission; see `ObjectAccess.refusal`."""
        return self._rights.refusal(asked)

    def rehearse(self, documents: Sequence[str]) -> tuple[str, ...]:
        """Dry-run manifests (JSON) on the server, and return a result line for each."""
        return self._hands.rehearse(documents)

    def manifest(self, table: str, key: str) -> Manifest:
        """Return an object without its status and server-managed metadata."""
        document = self._connection.get(self._hands.path(*object_of(table, key))).document()
        version = document["metadata"]["resourceVersion"]
        metadata = {name: value for name, value in document["metadata"].items() if name not in _SERVERS}
        kept = {name: value for name, value in document.items() if name != "status"}
        return Manifest(kept | {"metadata": metadata}, version)

    def events(self, table: str, key: str) -> tuple[KubeEvent, ...]:
        """Return the Kubernetes Events about an object, and about a workload's job, oldest first."""
        found = [said for name in self._about(table, key) for said in self._events_of(*name)]
        return tuple(sorted(found, key=lambda said: said.time))

    def _about(self, table: str, key: str) -> Iterator[tuple[tuple[str, str], str, str]]:
        """Yield the object and, for a workload, its job."""
        yield object_of(table, key)
        workload = self._known.workload(key) if table == "workloads" else None
        if workload is not None and workload.owner:
            yield object_of("jobs", workload.owner)

    def _events_of(self, source: tuple[str, str], namespace: str, name: str) -> Iterator[KubeEvent]:
        inside = f"/namespaces/{quote(namespace)}" if namespace else ""
        selector = f"involvedObject.kind={source[1]},involvedObject.name={name}"
        answer = self._connection.get(f"/api/v1{inside}/events", {"fieldSelector": selector, "limit": MOST_EVENTS})
        for event in answer.decode(_Events).items or ():
            try:
                yield _said(event, f"{source[1]} {name}")
            except (ValueError, OverflowError) as error:
                raise answer.unreadable(f"timestamp of an Event: {error}") from error

    def logs(self, pods: Sequence[str], *, previous: bool) -> KubeLogs:
        """Start reading the logs of pods (`ns/name`); with `previous`, those of the previous container instance."""
        logs = KubeLogs(self._connection, pods, previous=previous)
        self._logs = [*(one for one in self._logs if not one.closed), logs]
        return logs

    def kubectl(self, *arguments: str) -> list[str]:
        """Return the kubectl command line for this cluster and user."""
        return kubectl_command(self._kubeconfig, self._connection.place.context, *arguments)

    def close(self) -> None:
        """Stop all logs and permission checks."""
        self._rights.close()
        for logs in self._logs:
            logs.close()


def kubectl_command(kubeconfig: str, context: str, *arguments: str) -> list[str]:
    """Return the kubectl command line for a context of a kubeconfig; an empty path stands for the default one."""
    file = ["--kubeconfig", kubeconfig] if kubeconfig else []
    chosen = ["--context", context] if context != IN_CLUSTER else []
    return ["kubectl", *file, *chosen, *arguments]


def _said(event: _Event, about: str) -> KubeEvent:
    series = event.series or _Series()
    moment = series.last_observed_time or event.last_timestamp or event.event_time or NEVER
    return KubeEvent(
        time=parse_time(moment),
        warning=event.type == "Warning",
        reason=clean(event.reason, 100),
        message=clean(event.message),
        count=series.count or event.count or 1,
        about=clean(about, 300),
    )
