"""Access to a live cluster's objects: manifests to edit, dry runs, Events, logs, and kubectl command lines."""

from collections.abc import Iterator, Sequence
from urllib.parse import quote

from msgspec import Struct

from gpuconsole.backends.kube.api_requests import KnownObjects, object_of
from gpuconsole.backends.kube.client import ApiServerConnection
from gpuconsole.backends.kube.commands import CommandExecutor
from gpuconsole.backends.kube.logs import KubeLogs
from gpuconsole.backends.kube.rights import Rights
from gpuconsole.backends.kube.target import IN_CLUSTER
from gpuconsole.backends.object_access import KubeEvent, Manifest, PodAccess
from gpuconsole.model.clock import parse_time
from gpuconsole.model.commands import Command
from gpuconsole.model.text import clean

MOST_EVENTS = 500
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
    """Implements `ObjectAccess` with the API server. Thread-safe."""

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
        """Start reading the logs of pods (`ns/name`)."""
        logs = KubeLogs(self._connection, pods, previous=previous)
        self._logs = [*(one for one in self._logs if not one.closed), logs]
        return logs

    def kubectl(self, *arguments: str) -> list[str]:
        """Return the kubectl command line for this cluster and user."""
        place = self._connection.place
        file = ["--kubeconfig", self._kubeconfig] if self._kubeconfig else []
        context = ["--context", place.context] if place.context != IN_CLUSTER else []
        return ["kubectl", *file, *context, *arguments]

    def close(self) -> None:
        """Stop all logs and permission checks."""
        self._rights.close()
        for logs in self._logs:
            logs.close()


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
