"""HTTP requests for telemetry, with limits on time and size, and the parser of metrics endpoints' responses.

Errors say what to do. httpx is imported with the first request, because most sessions have no telemetry. `series` reads
Prometheus' text exposition format 0.0.4; it skips other metrics than the requested ones by the first word of their
lines, because an exporter has many more metrics than are shown.
"""

import re
import time
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit, urlunsplit

import msgspec
from msgspec import Struct

from gpuconsole import __version__
from gpuconsole.errors import TelemetryError, UsageError
from gpuconsole.model.text import clean

if TYPE_CHECKING:
    import ssl

    import httpx

CONNECT = 5.0
"""Timeout in seconds for a connection."""
READ = 15.0
"""Timeout in seconds for the next bytes of a response."""
WHOLE = 60.0
"""Timeout in seconds for a whole response."""
MOST_BYTES = 256 * 1024 * 1024
SAID = 200
"""Maximum characters of a server's text in an error."""
NOTHING: Mapping[str, str] = {}
_ADVICE = {
    401: "; set {}.token_file to a file with a bearer token",
    403: "; the credentials have no permission",
    404: "; check the URL",
}
"""HTTP status → what the user can do; `{}` is the configuration section."""
SETTINGS = "live.telemetry"


class HttpAccess(Struct, frozen=True, kw_only=True):
    """Credentials and TLS settings of a telemetry source."""

    token_file: str = ""
    """File with a bearer token; read for every request, because tokens rotate."""
    ca_file: str = ""
    """File with the certificate authorities for the server, instead of the default ones."""
    headers: Mapping[str, str] = NOTHING
    insecure: bool = False
    """Accept any certificate; only at the user's request."""
    settings: str = SETTINGS
    """Configuration section of these settings, for errors."""


class HttpFetcher(Protocol):
    """Sends GET requests to one telemetry source, directly or through the API server."""

    @property
    def address(self) -> str:
        """Address in messages, without user name and password."""

    def get(self, path: str, query: Mapping[str, str]) -> bytes:
        """GET below the address. Raises TelemetryError."""

    def close(self) -> None:
        """Close the connections."""


class Http:
    """A telemetry source that is queried directly by its URL. Thread-safe."""

    def __init__(
        self, url: str, access: HttpAccess | None = None, transport: "httpx.BaseTransport | None" = None
    ) -> None:
        """Sends nothing yet. Raises UsageError if the URL is invalid."""
        self._url = checked(url)
        self._access = access or HttpAccess()
        self._transport = transport
        self._client: httpx.Client | None = None
        self.address = shown(url)

    def get(self, path: str, query: Mapping[str, str]) -> bytes:
        """GET below the URL. Raises TelemetryError."""
        import httpx

        where = f"{self.address}{path}"
        try:
            with self._open().stream("GET", self._url + path, params=query or None, headers=self._headers()) as answer:
                body = _body(answer, where)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            raise TelemetryError(f"{where}: {clean(str(error), SAID) or type(error).__name__}") from error
        if answer.status_code != 200:
            location = answer.headers.get("location", "")
            raise TelemetryError(refusal(where, answer.status_code, body, location, self._access.settings))
        return body

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _open(self) -> "httpx.Client":
        if self._client is None:
            import httpx

            timeout = httpx.Timeout(READ, connect=CONNECT)
            # The authorities are loaded once for all servers; loading them for each of 5,000 exporters takes minutes.
            checks = self._url.startswith("https:") and not self._access.insecure
            verify = _authorities(self._access.ca_file) if checks else False
            self._client = httpx.Client(timeout=timeout, verify=verify, transport=self._transport)
        return self._client

    def _headers(self) -> dict[str, str]:
        headers = {"User-Agent": f"gpuconsole/{__version__}", **self._access.headers}
        if self._access.token_file:
            headers["Authorization"] = f"Bearer {Path(self._access.token_file).expanduser().read_text().strip()}"
        return headers


@cache
def _authorities(ca_file: str) -> "ssl.SSLContext":
    import ssl

    import httpx

    return ssl.create_default_context(cafile=ca_file) if ca_file else httpx.create_ssl_context()


def checked(url: str) -> str:
    """Validate a URL and return it without its trailing slash. Raises UsageError that says how to correct it."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise UsageError(f"{clean(shown(url), SAID)}: not a URL; write it as http://prometheus.monitoring:9090")
    return url.rstrip("/")


def shown(url: str) -> str:
    """Return a URL for messages, without user name and password."""
    try:
        parts = urlsplit(url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])).rstrip("/")
    except ValueError:
        return url


def _body(answer: "httpx.Response", where: str) -> bytes:
    begun, whole, size = time.monotonic(), list[bytes](), 0
    for part in answer.iter_bytes():
        whole.append(part)
        size += len(part)
        if size > MOST_BYTES:
            raise TelemetryError(f"{where}: the response is larger than {MOST_BYTES // 1024**2} MiB")
        if time.monotonic() - begun > WHOLE:
            raise TelemetryError(f"{where}: the response did not complete within {WHOLE:g}s")
    return b"".join(whole)


class _PrometheusError(Struct):
    """Error response of Prometheus."""

    error: str = ""


def refusal(where: str, code: int, body: bytes, location: str = "", settings: str = SETTINGS) -> str:
    """Return a sentence for an error that explains an unsuccessful HTTP response."""
    if 300 <= code < 400:
        return f"{where}: HTTP {code} redirects to {clean(shown(location), SAID)}; use the URL behind the login page"
    try:
        said = msgspec.json.decode(body, type=_PrometheusError).error
    except msgspec.DecodeError:
        said = body[:SAID].decode(errors="replace").strip().partition("\n")[0] if not body.startswith(b"<") else ""
    return f"{where}: HTTP {code}{f' {clean(said, SAID)}' if said else ''}{_ADVICE.get(code, '').format(settings)}"


_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|\})')
_ESCAPED = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "\\": "\\", '"': '"'}
MOST_LINE = 20_000
"""Maximum characters of a line of metrics; longer ones are skipped."""


def series(text: str, names: Collection[str]) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield (metric, labels, value) of each line with one of these metrics; invalid lines are skipped."""
    for line in text.split("\n"):
        name = line[: line.find("{")] if "{" in line else line.partition(" ")[0]
        if name.strip() in names and len(line) <= MOST_LINE:
            found = _read(line[len(name) :])
            if found is not None:
                yield name.strip(), *found


def _read(rest: str) -> tuple[dict[str, str], float] | None:
    """Parse labels and value from the rest of a line."""
    labels: dict[str, str] = {}
    if rest.startswith("{"):
        place = 1
        closed = rest[1:].lstrip().startswith("}")
        while not closed:
            match = _LABEL.match(rest, place)
            if match is None:
                return None
            labels[match[1]] = _ESCAPED.sub(lambda one: _ESCAPES.get(one[1], one[0]), match[2])
            place = match.end()
            closed = match[3] == "}" or rest[place:].lstrip().startswith("}")
        rest = rest[place:] if rest[place - 1] == "}" else rest[rest.index("}", place) + 1 :]
    try:
        return labels, float(rest.split()[0])
    except (IndexError, ValueError):
        return None
