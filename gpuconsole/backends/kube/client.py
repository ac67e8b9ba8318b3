"""Requests to the API server, with a rate limit, timeouts, and errors that say what to do.

`ApiServerConnection` sends them, within the `RateLimiter`. `ConnectivityProbe` checks the server on behalf of all
watches, so that they do not flood one that is down. `ServiceProxy` reaches a service inside the cluster (Prometheus,
Kueue's metrics) through the API server; it is used only if the user asks for it.
"""

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from gpuconsole import __version__
from gpuconsole.backends.kube.errors import (
    Busy,
    Cut,
    Refused,
    Unauthorized,
    Unreachable,
    Unreadable,
    decoded,
    page_in,
    refused,
)
from gpuconsole.backends.kube.target import PluginError, RequestedCluster, ResolvedCluster, find
from gpuconsole.errors import ClusterError, ConsoleError, TelemetryError, UsageError
from gpuconsole.model.text import clean

RATE = 20.0
"""Requests per second, on average."""
BURST = 40
"""Requests that may be sent at once."""
MINUTE = 60.0


class RateLimiter:
    """Token bucket: requests per second on average, and the burst. Mutable; thread-safe."""

    def __init__(
        self,
        rate: float = RATE,
        burst: int = BURST,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.rate = rate
        self.burst = burst
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._tokens = float(burst)
        self._filled = clock()
        self._silent_until = 0.0
        self._sent: deque[float] = deque()

    def take(self) -> None:
        """Wait until the next request may be sent."""
        while (wait := self._try()) > 0:
            self._sleep(wait)

    def pause(self, seconds: float) -> None:
        """Send nothing for some seconds, as the server requested (Retry-After)."""
        with self._lock:
            self._silent_until = max(self._silent_until, self._clock() + seconds)

    @property
    def last_minute(self) -> int:
        """Number of requests in the last 60 seconds."""
        with self._lock:
            self._forget(self._clock())
            return len(self._sent)

    def _try(self) -> float:
        """Take a token if there is one (0); else return the seconds to wait."""
        with self._lock:
            now = self._clock()
            if now < self._silent_until:
                return self._silent_until - now
            self._tokens = min(self.burst, self._tokens + (now - self._filled) * self.rate)
            self._filled = now
            if self._tokens < 1:
                return (1 - self._tokens) / self.rate
            self._tokens -= 1
            self._sent.append(now)
            self._forget(now)
            return 0.0

    def _forget(self, now: float) -> None:
        while self._sent and self._sent[0] <= now - MINUTE:
            self._sent.popleft()


LOG = logging.getLogger(__name__)
CONNECT = 5.0
"""Timeout in seconds for a connection."""
READ = 30.0
"""Timeout in seconds for the next bytes of a response."""
CHUNK = 65_536
"""Most bytes that one read from a stream returns."""
LONGEST_LINE = 64 * 2**20
"""Most bytes of a line; etcd stores objects of at most 1.5 MiB."""
RENEW_EVERY = 5.0
"""Seconds between two attempts to reload the credentials."""
JSON = "application/json"
AGENT = f"gpuconsole/{__version__}"

Query = Mapping[str, str | int]
Decoded = TypeVar("Decoded")


class ApiResponse(Struct, frozen=True):
    """A response of the API server. Decoding errors are raised as `Unreadable`."""

    code: int
    body: bytes
    where: str = ""
    """Server, method and path of the request, for error messages."""

    def decode(self, type: type[Decoded]) -> Decoded:
        """Decode the JSON as a type. Raises Unreadable."""
        return self.decode_with(msgspec.json.Decoder(type))

    def decode_with(self, decoder: msgspec.json.Decoder[Decoded]) -> Decoded:
        """Decode as `decode`, with an existing decoder. Raises Unreadable."""
        try:
            return decoded(self.body, decoder)
        except msgspec.DecodeError as error:
            raise self.unreadable(str(error)) from error

    def document(self) -> dict[str, Any]:
        """Return the requested object, which must have a name and a resourceVersion. Raises Unreadable."""
        document = self.decode(dict[str, Any])
        metadata = document.get("metadata")
        known = metadata if isinstance(metadata, dict) else {}
        if not (isinstance(known.get("name"), str) and isinstance(known.get("resourceVersion"), str)):
            raise self.unreadable("the object has no name or resourceVersion")
        return document

    def unreadable(self, why: str) -> Unreadable:
        """Return the error to raise for a response with this content; `why` says what is wrong with it."""
        if not self.body.strip():
            return Unreadable(self.where, "the response is empty")
        page = page_in(self.body)
        return Unreadable(self.where, f"the response is {page}" if page else f"invalid response: {clean(why)}")


class ResponseStream:
    """A streaming response, read in lines. One thread reads; another may call `close`."""

    def __init__(self, response: Any, where: str) -> None:
        self._response = response
        self._where = where

    def lines(self) -> Iterator[list[bytes]]:
        """Yield batches of complete lines as they arrive. Drops an incomplete last line; raises Cut."""
        rest: list[bytes] = []
        size = 0
        while chunk := self._read():
            first, *others = chunk.split(b"\n")
            rest.append(first)
            size += len(first)
            whole: list[bytes] = []
            if others and size <= LONGEST_LINE:
                whole = [b"".join(rest), *others[:-1]]
                rest, size = [others[-1]], len(others[-1])
            if size > LONGEST_LINE:
                raise Cut(f"{self._where}: a line is longer than {LONGEST_LINE // 2**20} MiB")
            yield [line for line in whole if line]

    def close(self) -> None:
        """End the stream, even while a reader waits for its next bytes."""
        try:
            self._response.shutdown()
        except Exception:
            LOG.debug("The stream was closed already", exc_info=True)

    def _read(self) -> bytes:
        try:
            return bytes(self._response.read1(CHUNK) or b"")
        except Exception as error:
            raise Cut(f"{self._where}: the stream was interrupted: {_plain(error)}") from error


class ApiServerConnection:
    """Connection to one API server. Mutates only its credentials; thread-safe."""

    def __init__(
        self,
        target: RequestedCluster,
        budget: RateLimiter | None = None,
        *,
        place: ResolvedCluster | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the kubeconfig, unless `place` is given; nothing is sent yet.

        Raises UsageError, ClusterError.
        """
        self._target = target
        self._clock = clock
        self._renewing = threading.Lock()
        self._renewed = clock()
        self.budget = budget or RateLimiter()
        self.place = place or find(target)
        self.last_response_at = 0.0
        """Time of the last valid response, by the clock; 0 = never."""

    def get(self, path: str, query: Query | None = None, *, accept: str = JSON, read: float = READ) -> ApiResponse:
        """Send a GET request; `read` is its read timeout in seconds. Raises Unreachable, Refused."""
        return self.send("GET", path, query, accept=accept, read=read)

    def send(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: bytes | None = None,
        *,
        content: str = JSON,
        accept: str = JSON,
        read: float = READ,
    ) -> ApiResponse:
        """Send a request and read the whole response. Raises Unreachable, Refused.

        `content` and `accept` are the media types of body and response, `read` is the read timeout in seconds.
        """
        response = self._open(method, path, query, body, content, accept, read)
        with _released(response):
            answer = ApiResponse(response.status, self._body(response), f"{self.place.name}: {method} {path}")
        if answer.body.strip() and not page_in(answer.body):
            self.note_response()
        return answer

    def note_response(self) -> None:
        """Record that a stream delivered something valid, which shows that the server works."""
        self.last_response_at = self._clock()

    @contextmanager
    def stream(
        self, path: str, query: Query | None = None, *, timeout: float, begin: float | None = None
    ) -> Iterator[ResponseStream]:
        """Open a streaming GET.

        `timeout` is the read timeout in seconds, `begin` the timeout of the first byte if that is shorter. The reader
        calls `note_response`, because bytes alone do not show that the server works.
        """
        response = self._open("GET", path, query, None, JSON, JSON, timeout if begin is None else begin)
        _wait_for_bytes(response, timeout)
        try:
            yield ResponseStream(response, self.place.name)
        finally:
            # The rest of a watch is not read, so its connection cannot be reused.
            response.close()

    def _open(
        self, method: str, path: str, query: Query | None, body: bytes | None, content: str, accept: str, read: float
    ) -> Any:
        """Send a request, and retry once with new credentials if the server rejects the old ones."""
        begun = self._clock()
        try:
            return self._try(method, path, query, body, content, accept, read)
        except Unauthorized:
            if not self._renew(begun):
                raise
            return self._try(method, path, query, body, content, accept, read)

    def _try(
        self, method: str, path: str, query: Query | None, body: bytes | None, content: str, accept: str, read: float
    ) -> Any:
        import urllib3

        self.budget.take()
        client = self.place.client
        headers = self._headers(method, accept, content)
        try:
            response = client.rest_client.pool_manager.request(
                method,
                f"{client.configuration.host}{path}{f'?{urlencode(query)}' if query else ''}",
                headers=headers,
                body=body,
                timeout=urllib3.Timeout(connect=CONNECT, read=read),
                preload_content=False,
                redirect=False,
            )
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            said = f"{self.place.name}: {_plain(error)}; check the server and the network"
            # The server may have closed an idle connection; it is not unreachable then.
            dropped = isinstance(_innermost(error), ConnectionError) and not isinstance(
                error, urllib3.exceptions.NewConnectionError
            )
            raise (Cut if dropped else Unreachable)(said) from error
        if response.status >= 300:
            self.note_response()
            raise self._refusal(response)
        return response

    def _refusal(self, response: Any) -> Refused:
        with _released(response):
            body = self._body(response)
        refusal = refused(self.place.name, response.status, body, response.headers.get("Retry-After", ""))
        if isinstance(refusal, Busy) and refusal.retry_after and not refusal.reading:
            self.budget.pause(refusal.rest)
        return refusal

    def _headers(self, method: str, accept: str, content: str) -> dict[str, str]:
        headers = {"Accept": accept, "User-Agent": AGENT}
        if method != "GET":
            headers["Content-Type"] = content
        try:
            self.place.client.update_params_for_auth(headers, [], ["BearerToken"], "", method, None)
        except ClusterError as error:
            raise Unreachable(str(error)) from error
        return {name: value for name, value in headers.items() if value is not None}

    def _body(self, response: Any) -> bytes:
        try:
            return bytes(response.read())
        except Exception as error:
            raise Cut(f"{self.place.name}: the response was interrupted: {_plain(error)}") from error

    def _renew(self, begun: float) -> bool:
        """Reload the credentials, which may have been rotated; False if that fails, or was done a moment ago."""
        with self._renewing:
            if self._renewed > begun:
                return True  # Another thread did it meanwhile.
            if self._clock() - self._renewed < RENEW_EVERY:
                return False
            self._renewed = self._clock()
            try:
                self.place = find(self._target)
            except PluginError as error:
                raise Unreachable(str(error)) from error
            except ConsoleError as error:
                LOG.warning("The credentials could not be reloaded: %s", error)
                return False
            return True


def _wait_for_bytes(response: Any, seconds: float) -> None:
    """Set the read timeout of a response's body.

    urllib3 2 has one timeout for head and body, and exposes the socket only as the owner of its shutdown method.
    """
    shutdown = getattr(response, "_sock_shutdown", None)
    if shutdown is not None:
        shutdown.__self__.settimeout(seconds)


@contextmanager
def _released(response: Any) -> Iterator[None]:
    """Return the connection to the pool."""
    try:
        yield
    finally:
        response.release_conn()


def _plain(error: BaseException) -> str:
    """Return the cause of a urllib3 error, which wraps it several times."""
    import http.client

    import urllib3

    error = _innermost(error)
    unreachable = urllib3.exceptions.NewConnectionError
    if isinstance(error, urllib3.exceptions.TimeoutError | TimeoutError) and not isinstance(error, unreachable):
        return "timed out"
    if isinstance(error, http.client.IncompleteRead):
        return "the connection closed during the response"
    if isinstance(error, OSError) and error.strerror:
        return clean(error.strerror, 300)
    text = str(error.args[-1]) if len(error.args) > 1 else str(error)
    text = text.rpartition(": ")[2] if "Errno" in text else text
    return clean(text or type(error).__name__, 300)


def _innermost(error: BaseException) -> BaseException:
    """Return the innermost error."""
    inner = (getattr(error, "reason", None), *error.args)
    passed_on = next((one for one in inner if isinstance(one, Exception)), None)
    return error if passed_on is None else _innermost(passed_on)


READY = "/readyz"
PATIENCE = 3.0
"""Timeout of the probe in seconds: a server that takes longer counts as unreachable."""
PROBE_AFTER = 20.0
"""Seconds without a response to any request after which the server is probed."""
SHORTEST, LONGEST = 0.3, 3.0
"""Seconds between two probes of a server that does not answer."""
LOOK = 1.0
"""Seconds between two checks whether a probe is due, or whether the probe was stopped."""
SOON = 2.0
"""Seconds without a response after which open streams are closed and opened again, because they may be dead."""


class ConnectivityProbe:
    """Blocks watches while the server is unreachable.

    Mutable; one thread runs `watch_over`, any thread may call `wait` or `report`.
    """

    def __init__(
        self,
        connection: ApiServerConnection,
        *,
        reopened: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        probe_after: float = PROBE_AFTER,
    ) -> None:
        """`reopened` is called when the server answers again after an outage."""
        self._connection = connection
        self._reopened = reopened
        self._clock = clock
        self._probe_after = probe_after
        self._open = threading.Event()
        self._open.set()
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self.problem = ""
        """Why the server is unreachable; empty if it is reachable."""
        self._since = 0.0

    @property
    def shut(self) -> bool:
        """True while the server is unreachable."""
        return not self._open.is_set()

    def report(self, error: ClusterError) -> None:
        """Report that the server is unreachable: watches wait until the probe succeeds."""
        if self._open.is_set():
            LOG.warning("The API server is unreachable: %s", error)
            self._since = self._clock()
        self.problem = str(error)
        self._open.clear()
        self._wake.set()

    def wait(self) -> None:
        """Wait until the server responds or the probe is stopped."""
        while not self._stopped.is_set() and not self._open.wait(LOOK):
            pass

    def stop(self) -> None:
        """Stop the probe and release all waiting watches."""
        self._stopped.set()
        self._wake.set()
        self._open.set()

    def watch_over(self) -> None:
        """Probe while the server is unreachable or has been silent. Ends with `stop`."""
        while not self._stopped.is_set():
            self._wake.wait(LOOK)
            self._wake.clear()
            if self.shut:
                self._regain()
            elif self._clock() - self._connection.last_response_at > self._probe_after:
                self._probe()

    def _regain(self) -> None:
        wait = SHORTEST
        while not self._stopped.is_set() and not self._probe():
            # Jitter, so that many consoles do not retry at the same time.
            self._stopped.wait(wait * random.uniform(0.7, 1.3))
            wait = min(LONGEST, wait * 1.6)
        if self._stopped.is_set():
            return
        LOG.info("The API server is reachable again")
        lasted = self._clock() - self._since
        self.problem = ""
        if lasted > SOON:
            self._reopened()
        self._open.set()

    def _probe(self) -> bool:
        """Request the readiness endpoint. A refusal also shows that the server is up."""
        try:
            answer = self._connection.get(READY, read=PATIENCE)
            if page_in(answer.body):
                # A login page: this is not the API server.
                raise answer.unreadable("")
        except (Unreachable, Unauthorized) as error:
            self.report(error)
            return False
        except Refused as error:
            if error.code < 300 or error.code >= 500:
                self.report(error)
                return False
        return True


SCHEME = "service:"
"""Prefix of the address of a service that is reached through the API server."""
FIND = "find"
"""Address for which the console searches the cluster's services for a Prometheus."""

_HTTPS = "https:"
"""Prefix of the name of a service to which the API server connects with TLS."""
_NAMES = ("prometheus", "thanos-query", "vmselect", "vmsingle", "mimir-query")
"""Names of Prometheus-compatible services, likeliest first."""
_PORTS = (9090, 10902, 9009, 8481, 8429, 8428)
"""Their ports."""


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
    """Sends requests to a service in the cluster through the API server. Mutable: caches the service that it found.

    Its address is `service:NAMESPACE/[https:]NAME[:PORT]`, or `find` for the service that is most likely a Prometheus.
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
