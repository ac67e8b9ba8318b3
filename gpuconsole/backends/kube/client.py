"""Every request to the API server: within the budget, with a time limit, and with errors that say what would help."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from gpuconsole import __version__
from gpuconsole.backends.kube.answers import Busy, Cut, Refused, Unauthorized, Unreachable, refused
from gpuconsole.backends.kube.budget import Budget
from gpuconsole.backends.kube.target import Place, Target, find
from gpuconsole.errors import ConsoleError
from gpuconsole.model.text import clean

LOG = logging.getLogger(__name__)
CONNECT = 5.0
"""Seconds to get a connection."""
READ = 30.0
"""Seconds to wait for the next bytes of an answer."""
CHUNK = 65_536
RENEW_EVERY = 5.0
"""Seconds between two tries to read the credentials anew."""
JSON = "application/json"
AGENT = f"gpuconsole/{__version__}"

Query = Mapping[str, str | int]


class Answer(Struct, frozen=True):
    """What came back."""

    code: int
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Stream:
    """An answer that goes on: its bytes come as lines. One thread reads; `close` may come from another."""

    def __init__(self, response: Any, where: str) -> None:
        self._response = response
        self._where = where

    def lines(self) -> Iterator[list[bytes]]:
        """Whole lines, as many as came at once. A line that was cut is left out; raises Cut."""
        rest = b""
        while True:
            chunk = self._read()
            if not chunk:
                return
            *whole, rest = (rest + chunk).split(b"\n")
            yield [line for line in whole if line]

    def close(self) -> None:
        """End it, also while somebody waits for its next bytes."""
        try:
            self._response.shutdown()
        except Exception:
            LOG.debug("The stream was closed already", exc_info=True)

    def _read(self) -> bytes:
        try:
            return bytes(self._response.read1(CHUNK) or b"")
        except Exception as error:
            raise Cut(f"{self._where}: the stream broke: {_plain(error)}") from error


class Connection:
    """One API server, and what we may ask of it. Mutates only its credentials; any thread may use it."""

    def __init__(
        self,
        target: Target,
        budget: Budget | None = None,
        *,
        place: Place | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the configuration, unless `place` was found in it already; nothing is sent yet.

        Raises UsageError, ClusterError.
        """
        self._target = target
        self._clock = clock
        self._renewing = threading.Lock()
        self._renewed = clock()
        self.budget = budget or Budget()
        self.place = place or find(target)
        self.heard = 0.0
        """When the server last said anything, by the clock; 0 = never."""

    def get(self, path: str, query: Query | None = None, *, accept: str = JSON, read: float = READ) -> Answer:
        """GET. Raises Unreachable, Refused."""
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
    ) -> Answer:
        """Ask something, and read the whole answer. Raises Unreachable, Refused."""
        response = self._open(method, path, query, body, content, accept, read)
        with _released(response):
            return Answer(response.status, self._body(response))

    @contextmanager
    def stream(self, path: str, query: Query | None = None, *, patience: float) -> Iterator[Stream]:
        """GET something that goes on; `patience` is how many seconds may pass without a byte."""
        response = self._open("GET", path, query, None, JSON, JSON, patience)
        try:
            yield Stream(_Heard(response, self), self.place.name)
        finally:
            # What is left of a watch is not read to its end, so that its connection cannot be used again.
            response.close()

    def _open(
        self, method: str, path: str, query: Query | None, body: bytes | None, content: str, accept: str, read: float
    ) -> Any:
        """Send a request, with new credentials once where the old ones are no longer accepted."""
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
        try:
            response = client.rest_client.pool_manager.request(
                method,
                f"{client.configuration.host}{path}{f'?{urlencode(query)}' if query else ''}",
                headers=self._headers(method, accept, content),
                body=body,
                timeout=urllib3.Timeout(connect=CONNECT, read=read),
                preload_content=False,
                redirect=False,
            )
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise Unreachable(
                f"{self.place.name}: {_plain(error)}; is the server up, and reachable from here?"
            ) from error
        self.heard = self._clock()
        if response.status >= 300:
            raise self._refusal(response)
        return response

    def _refusal(self, response: Any) -> Refused:
        with _released(response):
            body = self._body(response)
        refusal = refused(self.place.name, response.status, body, response.headers.get("Retry-After", ""))
        if isinstance(refusal, Busy) and refusal.retry_after and not refusal.reading:
            self.budget.hush(refusal.retry_after)
        return refusal

    def _headers(self, method: str, accept: str, content: str) -> dict[str, str]:
        headers = {"Accept": accept, "User-Agent": AGENT}
        if method != "GET":
            headers["Content-Type"] = content
        self.place.client.update_params_for_auth(headers, [], ["BearerToken"], "", method, None)
        return {name: value for name, value in headers.items() if value is not None}

    def _body(self, response: Any) -> bytes:
        try:
            return bytes(response.read())
        except Exception as error:
            raise Cut(f"{self.place.name}: the answer broke off: {_plain(error)}") from error

    def _renew(self, begun: float) -> bool:
        """Read the credentials anew, as they may have been rotated; False where that was just done."""
        with self._renewing:
            if self._renewed > begun:
                return True  # Another thread did it meanwhile.
            if self._clock() - self._renewed < RENEW_EVERY:
                return False
            self._renewed = self._clock()
            try:
                self.place = find(self._target)
            except ConsoleError as error:
                LOG.warning("The credentials could not be read anew: %s", error)
                return False
            return True


class _Heard:
    """A response that notes when bytes come."""

    def __init__(self, response: Any, connection: Connection) -> None:
        self._response = response
        self._connection = connection

    def read1(self, size: int) -> bytes | None:
        data: bytes | None = self._response.read1(size)
        if data:
            self._connection.heard = self._connection._clock()
        return data

    def shutdown(self) -> None:
        self._response.shutdown()


@contextmanager
def _released(response: Any) -> Iterator[None]:
    """Give the connection back, for the next request."""
    try:
        yield
    finally:
        response.release_conn()


def _plain(error: Exception) -> str:
    """The heart of an error of urllib3, which wraps them several times."""
    import urllib3

    reason = getattr(error, "reason", None)
    inner = reason if isinstance(reason, Exception) else error
    if isinstance(inner, urllib3.exceptions.ReadTimeoutError):
        return "it does not answer in time"
    text = str(inner).rpartition(": ")[2] if "Errno" in str(inner) else str(inner)
    return clean(text or type(inner).__name__, 300)
