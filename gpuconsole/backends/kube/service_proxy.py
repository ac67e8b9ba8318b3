"""HTTP to a service inside the cluster through the API server's service proxy; used only on request."""

from collections.abc import Callable, Mapping

from msgspec import Struct

from gpuconsole.backends.kube.client import ApiServerConnection
from gpuconsole.errors import ClusterError, TelemetryError, UsageError
from gpuconsole.model.text import clean

SCHEME = "service:"
FIND = "find"
READ = 30.0
_HTTPS = "https:"
"""Prefix of the name of a service to which the API server connects with TLS."""
_NAMES = ("prometheus", "thanos-query", "vmselect", "vmsingle", "mimir-query")
_PORTS = (9090, 10902, 9009, 8481, 8429, 8428)


class _Port(Struct, frozen=True):
    port: int = 0


class _Spec(Struct, frozen=True):
    ports: list[_Port] | None = None


class _Meta(Struct, frozen=True):
    namespace: str = ""
    name: str = ""
    labels: dict[str, str] | None = None


class _Service(Struct, frozen=True):
    """core/v1 Service, with the fields that identify it."""

    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()


class _Services(Struct, frozen=True):
    items: list[_Service] | None


class ServiceProxy:
    """Proxies to `service:NAMESPACE/[https:]NAME[:PORT]`, or to the most likely Prometheus for `find`. Caches its
    choice.
    """

    def __init__(self, address: str, connection: Callable[[], ApiServerConnection]) -> None:
        """Sends nothing yet. Raises UsageError if the address is invalid."""
        self.address = address
        self._connection = connection
        self._path = "" if address == FIND else _path(*_parts(address))

    def get(self, path: str, query: Mapping[str, str]) -> bytes:
        """GET below the service's address. Raises TelemetryError."""
        try:
            if not self._path:
                self._find()
            return self._connection().get(f"{self._path}{path}", dict(query), read=READ).body
        except ClusterError as error:
            raise TelemetryError(f"{self.address}{path}: {error}") from error

    def close(self) -> None:
        """Release nothing: the connection to the API server is shared."""

    def _find(self) -> None:
        """Find the Prometheus service in all namespaces, by the best-matching name."""
        items = self._connection().get("/api/v1/services").decode(_Services).items or []
        found = sorted(rank for item in items if (rank := _rank(item)) is not None)
        if not found:
            raise TelemetryError("found no Prometheus service in the cluster; give one with --prometheus URL")
        _, namespace, name, port = found[0]
        self.address = f"{SCHEME}{namespace}/{name}:{port}"
        self._path = _path(namespace, name, str(port))


def _rank(item: _Service) -> tuple[int, str, str, int] | None:
    """Rank a service by how likely it is a Prometheus (lower is likelier); None if it is not one."""
    name = item.metadata.name
    label = (item.metadata.labels or {}).get("app.kubernetes.io/name", "")
    ports = [port.port for port in item.spec.ports or () if port.port in _PORTS]
    named = [place for place, word in enumerate(_NAMES) if word in (name, label) or name.endswith(f"-{word}")]
    named += [place + len(_NAMES) for place, word in enumerate(_NAMES) if word in name]
    if not ports or not named or "operator" in name or "alertmanager" in name or "exporter" in name:
        return None
    return min(named), item.metadata.namespace, name, ports[0]


def _parts(address: str) -> tuple[str, str, str]:
    namespace, _, rest = address.removeprefix(SCHEME).partition("/")
    encrypted = rest.startswith(_HTTPS)
    name, _, port = rest.removeprefix(_HTTPS).partition(":")
    if not all(part and part.replace("-", "").replace(".", "").isalnum() for part in (namespace, name, port or "9090")):
        raise UsageError(f"{clean(address, 200)}: write it as service:NAMESPACE/NAME:PORT")
    return namespace, f"{_HTTPS if encrypted else ''}{name}", port or "9090"


def _path(namespace: str, name: str, port: str) -> str:
    return f"/api/v1/namespaces/{namespace}/services/{name}:{port}/proxy"
