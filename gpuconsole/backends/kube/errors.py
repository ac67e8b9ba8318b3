"""What an API server can answer instead of what was asked for: who answered, what is wrong, what would help."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from gpuconsole.errors import ClusterError
from gpuconsole.model.text import clean

LONGEST_RETRY = 120.0
LONGEST_REST = 32.0
"""Seconds that a busy server is left alone at most: the API server itself asks for no more (maxRetryAfter in its
dropped_requests_tracker.go)."""
OK = 200

Decoded = TypeVar("Decoded")


class Unreachable(ClusterError):
    """No answer came: no connection, no TLS, or no byte in time."""


class Cut(Unreachable):
    """An answer broke off, or the connection was closed before it began."""


class Refused(ClusterError):
    """The server answered with a status that is not success. `reason` is Kubernetes' own word for it."""

    def __init__(self, where: str, code: int, reason: str, message: str, retry_after: float = 0.0) -> None:
        self.said = _said(code, message or reason, retry_after)
        """The message and the HTTP status, without who said it."""
        super().__init__(f"{where}: {self.said}")
        self.code = code
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class Unreadable(Refused):
    """The server answered with success, but not with what the API answers: a login page, half of a JSON, nothing."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(where, OK, "Unreadable", f"{why}; is it a Kubernetes API server, or a proxy?")


class Unauthorized(Refused):
    """401: the credentials are not, or not any more, accepted."""


class Forbidden(Refused):
    """403: RBAC does not allow it."""


class ResourceExpired(Refused):
    """410: that resourceVersion or continue token is too old; list again."""


class Busy(Refused):
    """429, 503 and the like: later. `retry_after` is how many seconds the server wants to be left alone."""

    @property
    def rest(self) -> float:
        """Seconds to leave it alone."""
        return min(LONGEST_REST, self.retry_after)

    @property
    def reading(self) -> bool:
        """It is not overloaded: after a restart it has to read this kind's storage first (its own words)."""
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
    """metav1.Status, as far as it is told to people."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_STATUS = msgspec.json.Decoder(ApiStatus)


def decoded(body: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[Decoded]) -> Decoded:
    """Decode JSON that a server sent. Raises msgspec.DecodeError for whatever cannot be decoded."""
    try:
        return decoder.decode(body)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError("not valid UTF-8") from error
    except RecursionError as error:
        raise msgspec.DecodeError("nested too deeply") from error


def page_in(body: bytes) -> str:
    """What an answer is that was made for a browser; nothing of another one."""
    return "a web page" if body.lstrip()[:1] == b"<" else ""


def _text(body: bytes) -> str:
    """What a body without a Status says."""
    return page_in(body) or body[:200].decode(errors="replace")


def _said(code: int, message: str, retry_after: float) -> str:
    advice = _ADVICE.get(code, f"retry in {retry_after:g}s" if retry_after else "")
    status = f"HTTP {code}{f': {advice}' if advice else ''}" if code else ""
    return f"{message} ({status})" if message and status else message or status


def status_in(body: bytes) -> ApiStatus:
    """The Status in an answer; an empty one where there is none."""
    try:
        return decoded(body, _STATUS)
    except msgspec.DecodeError:
        return ApiStatus()


def refused(where: str, code: int, body: bytes, retry_after: str = "") -> Refused:
    """The error for an answer. `retry_after` is the header of that name: seconds, or nothing that helps."""
    status = status_in(body)
    kind = _KINDS.get(code, Refused)
    if kind is Refused and status.reason in ("Expired", "Gone"):
        kind = ResourceExpired
    message = clean(status.message or _text(body), 1000)
    return kind(where, code, clean(status.reason, 100), message, _seconds(retry_after, status))


def _seconds(header: str, status: ApiStatus) -> float:
    asked: Any = header if header.isascii() and header.isdigit() else (status.details or _Details()).retryAfterSeconds
    return min(LONGEST_RETRY, max(0.0, float(asked)))
