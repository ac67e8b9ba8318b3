"""Requests to the API server, with a rate limit, timeouts, and errors that say what to do."""

import logging
import threading
import time
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
from gpuconsole.backends.kube.rate_limiter import RateLimiter
from gpuconsole.backends.kube.target import PluginError, RequestedCluster, ResolvedCluster, find
from gpuconsole.errors import ClusterError, ConsoleError
from gpuconsole.model.text import clean

LOG = logging.getLogger(__name__)
CONNECT = 5.0
"""Timeout in seconds for a connection."""
READ = 30.0
"""Timeout in seconds for the next bytes of a response."""
CHUNK = 65_536
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
    """Server, method and path, for errors."""

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
        """Return the error for a response that the API would not send."""
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
        """Send a GET request. Raises Unreachable, Refused."""
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
        """Send a request and read the whole response. Raises Unreachable, Refused."""
        response = self._open(method, path, query, body, content, accept, read)
        with _released(response):
            answer = ApiResponse(response.status, self._body(response), f"{self.place.name}: {method} {path}")
        if answer.body.strip() and not page_in(answer.body):
            self.note_response()
        return answer

    def note_response(self) -> None:
        """Record that the server sent a valid response."""
        self.last_response_at = self._clock()

    @contextmanager
    def stream(
        self, path: str, query: Query | None = None, *, patience: float, begin: float | None = None
    ) -> Iterator[ResponseStream]:
        """Open a streaming GET.

        `patience` is the read timeout in seconds, `begin` the timeout of the first byte if that is shorter. The reader
        calls `note_response`, because bytes alone do not show that the server works.
        """
        response = self._open("GET", path, query, None, JSON, JSON, patience if begin is None else begin)
        _wait_for_bytes(response, patience)
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
    """Set the read timeout of a response's body. urllib3 2 has one timeout for head and body, and exposes the socket
    only as the owner of its shutdown method.
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
