"""Errors of requests to the API server, and retries of requests at startup.

The text of an error names the server, the problem, and what to do.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from gpuconsole.errors import ClusterError
from gpuconsole.model.text import clean

LONGEST_RETRY = 120.0
"""Longest Retry-After in seconds that is accepted; greater values are reduced to it."""
LONGEST_REST = 32.0
"""Most seconds for which a busy server is left alone; the API server itself requests no more (maxRetryAfter in its
dropped_requests_tracker.go).
"""
OK = 200

Decoded = TypeVar("Decoded")


class Unreachable(ClusterError):
    """No response: no connection, TLS failure, or timeout."""


class Cut(Unreachable):
    """The response ended early, or the connection was closed before it began."""


class Refused(ClusterError):
    """The server responded with an error status. `reason` is the Kubernetes Status reason."""

    def __init__(self, where: str, code: int, reason: str, message: str, retry_after: float = 0.0) -> None:
        self.said = _said(code, message or reason, retry_after)
        """Message and HTTP status, without the server."""
        super().__init__(f"{where}: {self.said}")
        self.code = code
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class Unreadable(Refused):
    """The server responded with success, but not with an API object: a login page, truncated JSON, an empty body."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(where, OK, "Unreadable", f"{why}; is it a Kubernetes API server, or a proxy?")


class Unauthorized(Refused):
    """401: the credentials are missing, wrong or expired."""


class Forbidden(Refused):
    """403: RBAC does not allow it."""


class ResourceExpired(Refused):
    """410: the resourceVersion or continue token is too old; list again."""


class Busy(Refused):
    """429, 503 and the like: retry later. `retry_after` is the server's Retry-After in seconds."""

    @property
    def rest(self) -> float:
        """Seconds to wait before a retry."""
        return min(LONGEST_REST, self.retry_after)

    @property
    def reading(self) -> bool:
        """True if the server is not overloaded but still initializing this kind's storage after a restart."""
        return "storage is (re)initializing" in self.message


_ADVICE = {
    401: "the credentials were rejected; log in again, or use another --context",
    403: "ask for a role that allows it, such as those in deploy/rbac",
    **dict.fromkeys((301, 302, 303, 307, 308), "redirects are not followed; check for a proxy"),
}
_KINDS: Mapping[int, type[Refused]] = {
    401: Unauthorized,
    403: Forbidden,
    410: ResourceExpired,
    429: Busy,
    503: Busy,
    504: Busy,
}


class _Details(Struct, frozen=True):
    retryAfterSeconds: int = 0


class ApiStatus(Struct, frozen=True):
    """metav1.Status, with the fields that error messages use."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_STATUS = msgspec.json.Decoder(ApiStatus)


def decoded(body: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[Decoded]) -> Decoded:
    """Decode JSON from a server. Raises msgspec.DecodeError for anything that cannot be decoded."""
    try:
        return decoder.decode(body)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError("not valid UTF-8") from error
    except RecursionError as error:
        raise msgspec.DecodeError("nested too deeply") from error


def page_in(body: bytes) -> str:
    """Return "a web page" if a response body is HTML, for error messages; otherwise an empty string."""
    return "a web page" if body.lstrip()[:1] == b"<" else ""


def _text(body: bytes) -> str:
    """Return the error text of a body without a Status."""
    return page_in(body) or body[:200].decode(errors="replace")


def _said(code: int, message: str, retry_after: float) -> str:
    advice = _ADVICE.get(code, f"retry in {retry_after:g}s" if retry_after else "")
    status = f"HTTP {code}{f': {advice}' if advice else ''}" if code else ""
    return f"{message} ({status})" if message and status else message or status


def status_in(body: bytes) -> ApiStatus:
    """Return the Status in a response; an empty one if there is none."""
    try:
        return decoded(body, _STATUS)
    except msgspec.DecodeError:
        return ApiStatus()


def refused(where: str, code: int, body: bytes, retry_after: str = "") -> Refused:
    """Return the error for an unsuccessful response with this HTTP status `code` and Retry-After header."""
    status = status_in(body)
    kind = _KINDS.get(code, Refused)
    if kind is Refused and status.reason in ("Expired", "Gone"):
        kind = ResourceExpired
    message = clean(status.message or _text(body), 1000)
    return kind(where, code, clean(status.reason, 100), message, _seconds(retry_after, status))


def _seconds(header: str, status: ApiStatus) -> float:
    asked: Any = header if header.isascii() and header.isdigit() else (status.details or _Details()).retryAfterSeconds
    return min(LONGEST_RETRY, max(0.0, float(asked)))


LOG = logging.getLogger(__name__)
PATIENCE = 30.0
"""Seconds for which a busy server is retried."""
RESTS = (0.5, 1.5)
"""Seconds before each retry after other temporary errors."""
LONGEST = 8.0
"""Most seconds between two retries of a busy server without Retry-After."""

Found = TypeVar("Found")


def with_retries(work: Callable[[], Found]) -> Found:
    """Call `work`, and retry while the server is busy or starting, or cut off its response. Raises the last error."""
    deadline = time.monotonic() + PATIENCE
    busy, rests = RESTS[0], iter(RESTS)
    while True:
        try:
            return work()
        except Busy as error:
            wait = max(error.retry_after, busy)
            busy = min(LONGEST, 2 * busy)
            if time.monotonic() + wait > deadline:
                raise
            LOG.info("Retrying in %gs: %s", wait, error)
        except (Cut, Refused) as error:
            rest = next(rests, None) if _may_heal(error) else None
            if rest is None:
                raise
            wait = rest
            LOG.info("Retrying in %gs: %s", wait, error)
        time.sleep(wait)


def _may_heal(error: Cut | Refused) -> bool:
    """True for errors of a server or proxy that is starting or overloaded."""
    return isinstance(error, Cut) or error.code < 300 or error.code >= 500
