"""What an API server can answer instead of what was asked for: who answered, what is wrong, what would help."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from gpuconsole.errors import ClusterError
from gpuconsole.model.text import clean

LONGEST_RETRY = 120.0


class Unreachable(ClusterError):
    """No answer came: no connection, no TLS, or no byte in time."""


class Cut(Unreachable):
    """An answer began, and broke off."""


class Refused(ClusterError):
    """The server answered with a status that is not success. `reason` is Kubernetes' own word for it."""

    def __init__(self, where: str, code: int, reason: str, message: str, retry_after: float = 0.0) -> None:
        super().__init__(f"{where}: {message or reason or f'HTTP {code}'}{_ADVICE.get(code, '')}")
        self.code = code
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class Unauthorized(Refused):
    """401: the credentials are not, or not any more, accepted."""


class Forbidden(Refused):
    """403: RBAC does not allow it."""


class Gone(Refused):
    """410: that resourceVersion or continue token is too old; list again."""


class Busy(Refused):
    """429, 503 and the like: later. `retry_after` is how many seconds the server wants to be left alone."""

    @property
    def reading(self) -> bool:
        """It is not overloaded: after a restart it has to read this kind's storage first (its own words)."""
        return "storage is (re)initializing" in self.message


_ADVICE = {
    401: " (HTTP 401: the credentials are not accepted; log in anew, or name another --context)",
    403: " (HTTP 403: ask for a role that allows it; README has ready ones)",
}
_KINDS: Mapping[int, type[Refused]] = {
    401: Unauthorized,
    403: Forbidden,
    410: Gone,
    429: Busy,
    503: Busy,
    504: Busy,
}


class _Details(Struct, frozen=True):
    retryAfterSeconds: int = 0


class Status(Struct, frozen=True):
    """metav1.Status, as far as it is told to people."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_STATUS = msgspec.json.Decoder(Status)


def status_in(body: bytes) -> Status:
    """The Status in an answer; an empty one where there is none."""
    try:
        return _STATUS.decode(body)
    except msgspec.DecodeError:
        return Status()


def refused(where: str, code: int, body: bytes, retry_after: str = "") -> Refused:
    """The error for an answer. `retry_after` is the header of that name: seconds, or nothing that helps."""
    status = status_in(body)
    kind = _KINDS.get(code, Refused)
    if kind is Refused and status.reason in ("Expired", "Gone"):
        kind = Gone
    message = clean(status.message or body[:200].decode(errors="replace"), 1000)
    return kind(where, code, clean(status.reason, 100), message, _seconds(retry_after, status))


def _seconds(header: str, status: Status) -> float:
    asked: Any = header if header.isascii() and header.isdigit() else (status.details or _Details()).retryAfterSeconds
    return min(LONGEST_RETRY, max(0.0, float(asked)))
