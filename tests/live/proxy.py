"""A proxy on loopback, in front of an API server, that misbehaves on demand.

It answers in the server's place, cuts connections in the middle of a line, delays, and hangs: what networks, load
balancers and overloaded servers do to a console. Every connection serves one request.
"""

import re
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import StrEnum

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tests.live.certificates import Pair

_CLOSING = re.compile(rb"^connection:[^\r\n]*\r\n", re.IGNORECASE | re.MULTILINE)
_LENGTH = re.compile(rb"^content-length: *(\d+)", re.IGNORECASE | re.MULTILINE)
TICK = 0.02
"""Seconds between looks at what was ordered."""
PATIENCE = 2.0
"""Seconds that an order to open connections is waited for."""
MOST = 65_536
REASONS = {401: "Unauthorized", 410: "Expired", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}


class Fault(Struct, frozen=True, kw_only=True):
    """What is done to requests whose `METHOD path` matches; to `times` of them, or to all."""

    match: str
    token: str = ""
    """Only to who comes with this token."""
    times: int | None = None
    status: int = 0
    """Answer with this status; 0 = pass the request on."""
    retry_after: int | None = None
    delay: float = 0.0
    """Seconds before anything is done."""
    cut_after: int | None = None
    """Pass this many bytes of the answer on, then close."""


class Seen(Struct, frozen=True):
    """A request that came through."""

    at: float
    """Seconds of the monotonic clock."""
    line: str
    """`METHOD path?query`."""
    status: int = 0
    """What the proxy answered itself; 0 = the server did."""

    @property
    def is_watch(self) -> bool:
        return is_watch(self.line)


class _Order(StrEnum):
    CUT = "cut"
    EXPIRE = "expire"


class _Relay:
    """One answer under way. `order` is set by other threads, and carried out between two pieces."""

    def __init__(self, line: str) -> None:
        self.line = line
        self.order: _Order | None = None


class Proxy:
    """A misbehaving proxy. Mutates; everything may be called from any thread."""

    def __init__(self, upstream: tuple[str, int], authority: str, serving: Pair) -> None:
        self._upstream = upstream
        self._outward = ssl.create_default_context(cafile=authority)
        self._inward = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._inward.load_cert_chain(serving.certificate, serving.key)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._relays: set[_Relay] = set()
        self._flowing = threading.Event()
        self._flowing.set()
        self._closed = threading.Event()
        self.seen: list[Seen] = []

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> "Proxy":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._flowing.set()
        with suppress(OSError):
            # Closing alone does not wake who waits in accept().
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def do(self, fault: Fault) -> None:
        """Do this to requests from now on, until `heal`, or as often as it says."""
        with self._lock:
            self._faults.append(fault)

    def heal(self) -> None:
        """Pass everything on again."""
        with self._lock:
            self._faults.clear()
        self._flowing.set()

    def hang(self) -> None:
        """Nothing gets through any more, and no connection is closed."""
        self._flowing.clear()

    def watches(self, match: str = "") -> list[str]:
        """The watches that are open now."""
        with self._lock:
            return [one.line for one in self._relays if is_watch(one.line) and re.search(match, one.line)]

    def cut_watches(self, match: str = "") -> int:
        """Close open watches in the middle of a line; how many."""
        return self._order(_Order.CUT, match)

    def expire_watches(self, match: str = "") -> int:
        """Let open watches say that their version is too old (410 as an event), and end; how many."""
        return self._order(_Order.EXPIRE, match)

    def _order(self, order: _Order, match: str) -> int:
        with self._lock:
            meant = [one for one in self._relays if is_watch(one.line) and re.search(match, one.line)]
            for relay in meant:
                relay.order = order
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            with self._lock:
                if self._relays.isdisjoint(meant):
                    break
            time.sleep(TICK)
        return len(meant)

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, raw: socket.socket) -> None:
        with suppress(OSError), raw, self._inward.wrap_socket(raw, server_side=True) as client:
            head, body = _request(client)
            if not head:
                return
            line = " ".join(head.split(b"\r\n", 1)[0].decode().split(" ")[:2])
            self._flowing.wait()
            fault = self._fault(line, head.decode())
            with self._lock:
                self.seen.append(Seen(time.monotonic(), line, fault.status))
            time.sleep(fault.delay)
            if fault.status:
                client.sendall(_answer(fault))
            else:
                self._pass_on(client, line, head, body, fault.cut_after)

    def _fault(self, line: str, head: str) -> Fault:
        with self._lock:
            for place, fault in enumerate(self._faults):
                if re.search(fault.match, line) and fault.token in head and fault.times != 0:
                    if fault.times is not None:
                        self._faults[place] = replace(fault, times=fault.times - 1)
                    return fault
        return Fault(match="")

    def _pass_on(self, client: ssl.SSLSocket, line: str, head: bytes, body: bytes, cut_after: int | None) -> None:
        relay = _Relay(line)
        with (
            socket.create_connection(self._upstream) as raw,
            self._outward.wrap_socket(raw, server_hostname=self._upstream[0]) as server,
        ):
            first, _, rest = head.partition(b"\r\n")
            server.sendall(first + b"\r\nConnection: close\r\n" + _CLOSING.sub(b"", rest) + body)
            with self._lock:
                self._relays.add(relay)
            try:
                self._carry(relay, client, server, cut_after)
            finally:
                with self._lock:
                    self._relays.discard(relay)

    def _carry(self, relay: _Relay, client: ssl.SSLSocket, server: ssl.SSLSocket, cut_after: int | None) -> None:
        passed = 0
        while not self._closed.is_set():
            if relay.order is not None:
                client.sendall(_LAST_WORDS[relay.order]())
                return
            if _gone(client) or not (server.pending() or select.select([server], [], [], TICK)[0]):
                if _gone(client):
                    return
                continue
            piece = server.recv(MOST)
            self._flowing.wait()
            if not piece:
                return
            if cut_after is not None and passed + len(piece) > cut_after:
                client.sendall(piece[: cut_after - passed])
                return
            client.sendall(piece)
            passed += len(piece)


def is_watch(line: str) -> bool:
    """True for a request that stays open."""
    return line.startswith("GET") and re.search(r"[?&]watch=(1|true)", line) is not None


def _gone(client: ssl.SSLSocket) -> bool:
    """True if the client hung up: it has nothing more to say, so anything to read is the end."""
    return bool(select.select([client], [], [], 0)[0])


def _request(client: ssl.SSLSocket) -> tuple[bytes, bytes]:
    """The head of a request, with its empty line, and its body."""
    data = b""
    for piece in _pieces(client):
        data += piece
        if b"\r\n\r\n" in data:
            break
    head, separator, body = data.partition(b"\r\n\r\n")
    found = _LENGTH.search(head)
    missing = int(found[1]) - len(body) if found is not None else 0
    while missing > 0:
        piece = client.recv(MOST)
        if not piece:
            return b"", b""
        body, missing = body + piece, missing - len(piece)
    return (head + separator if separator else b""), body


def _pieces(client: ssl.SSLSocket) -> Iterator[bytes]:
    while piece := client.recv(MOST):
        yield piece


def _status(code: int) -> dict[str, object]:
    reason = REASONS.get(code, "Unknown")
    message = "too old resource version: 1 (2)" if code == 410 else f"the proxy says {code}"
    return {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    }  # fmt: skip


def _answer(fault: Fault) -> bytes:
    body = msgspec.json.encode(_status(fault.status))
    lines = [
        f"HTTP/1.1 {fault.status} {REASONS.get(fault.status, 'Unknown')}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    if fault.retry_after is not None:
        lines.append(f"Retry-After: {fault.retry_after}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _half_a_line() -> bytes:
    """A chunk that announces more than comes."""
    return b"80\r\n" + b'{"type":"MODIFIED","object":{"kind":"Workload","metadata":{"na'


def _expired() -> bytes:
    line = msgspec.json.encode({"type": "ERROR", "object": _status(410)}) + b"\n"
    return f"{len(line):x}\r\n".encode() + line + b"\r\n0\r\n\r\n"


_LAST_WORDS: dict[_Order, Callable[[], bytes]] = {_Order.CUT: _half_a_line, _Order.EXPIRE: _expired}
