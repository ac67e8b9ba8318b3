"""DCGM exporters queried directly: one request per node, several at a time."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from gpuconsole.backends.telemetry.exposition import series
from gpuconsole.backends.telemetry.http import Http, HttpAccess, checked, shown
from gpuconsole.backends.telemetry.samples import METRICS, Gathering, MetricSample
from gpuconsole.backends.telemetry.source import Scrape
from gpuconsole.errors import TelemetryError
from gpuconsole.model.clock import Span, Time

AT_ONCE = 8
NODE = "{node}"
PATH = "/metrics"


class Exporters:
    """Exporters by URL; a URL with `{node}` is expanded for every GPU node. Keeps its connections."""

    def __init__(
        self,
        urls: Sequence[str],
        nodes: Callable[[], Iterable[str]],
        *,
        access: HttpAccess | None = None,
        budget: Callable[[], None] = lambda: None,
        open_http: Callable[[str, HttpAccess | None], Http] = Http,
    ) -> None:
        """Raises UsageError if a URL is invalid."""
        for url in urls:
            checked(url.replace(NODE, "node"))
        self._urls = tuple(urls)
        self._nodes = nodes
        self._access = access
        self._budget = budget
        self._open = open_http
        self._known: dict[str, Http] = {}
        self.address = ", ".join(shown(url) for url in urls[:2]) + (" …" if len(urls) > 2 else "")

    def read(self, known: Callable[[str], bool], now: Time, lasts: Span) -> Scrape:
        """Query all exporters. Raises TelemetryError if none can be read, or none has DCGM metrics."""
        wanted = list(self._wanted())
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="telemetry") as pool:
            answers = list(pool.map(lambda pair: self._text(*pair), wanted))
        gathering, troubles, sources = Gathering(known), list[str](), 0
        for (_, node), (text, trouble) in zip(wanted, answers, strict=True):
            if trouble:
                troubles.append(trouble)
                continue
            sources += 1
            for name, labels, value in series(text, METRICS):
                gathering.add(MetricSample(METRICS[name], labels, value), node)
        if wanted and not sources:
            more = f", and {len(wanted) - 1} more" if len(wanted) > 1 else ""
            raise TelemetryError(f"{troubles[0]}{more}")
        found = tuple(gathering.nodes(lambda _: now, self.address, lasts))
        if sources and not found:
            raise TelemetryError(f"{self.address}: no DCGM metrics (DCGM_FI_…) at this address")
        return Scrape(found, tuple(troubles), gathering.unusable)

    def close(self) -> None:
        """Close the connections."""
        for http in self._known.values():
            http.close()

    def _wanted(self) -> Iterable[tuple[str, str]]:
        """Yield (URL, node if the URL contains it)."""
        for url in self._urls:
            if NODE in url:
                yield from ((url.replace(NODE, node), node) for node in self._nodes())
            else:
                yield url, ""

    def _text(self, url: str, node: str) -> tuple[str, str]:
        """Return (text, error)."""
        http = self._known.get(url)
        if http is None:
            http = self._known[url] = self._open(url.removesuffix(PATH), self._access)
        try:
            self._budget()
            return http.get(PATH, {}).decode(errors="replace"), ""
        except TelemetryError as error:
            return "", str(error)
