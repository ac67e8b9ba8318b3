"""Client of a Prometheus (or Thanos, Mimir, VictoriaMetrics) that scrapes DCGM exporters: one instant query per metric.

Each query drops unneeded labels, so that 40,000 GPUs take 4 MB per metric. The time of a value is that of its scrape,
which one more query returns.
"""

import logging
from collections.abc import Callable, Iterator

import msgspec
from msgspec import Struct

from gpuconsole.backends.telemetry.dcgm import (
    ABOUT_LABELS,
    DEVICE_LABELS,
    METRICS,
    NODE_LABELS,
    Gathering,
    MetricSample,
    node_of,
    place_of,
)
from gpuconsole.backends.telemetry.feed import Scrape
from gpuconsole.backends.telemetry.http import HttpFetcher
from gpuconsole.errors import TelemetryError
from gpuconsole.model.clock import MINUTE, SECOND, Span, Time
from gpuconsole.model.telemetry import GpuMetric
from gpuconsole.model.text import clean

LOG = logging.getLogger(__name__)
PATH = "/api/v1/query"
NODES = (*NODE_LABELS, "instance")
PLACES = (*NODES, *DEVICE_LABELS)
EVERYTHING = (*PLACES, *ABOUT_LABELS)
LOOK_BACK: Span = 30 * MINUTE
"""How far back the first poll checks since when GPUs have been idle."""
_BUSY = "DCGM_FI_DEV_GPU_UTIL"


class Series(Struct):
    """One series of a response: its labels and its newest value."""

    metric: dict[str, str]
    value: tuple[float, str]

    @property
    def number(self) -> float:
        """The value; NaN if it is invalid."""
        try:
            return float(self.value[1])
        except ValueError:
            return float("nan")


class _Vector(Struct):
    result: list[Series]
    resultType: str = "vector"


class _Answer(Struct):
    status: str
    data: _Vector | None = None
    error: str = ""


_DECODER = msgspec.json.Decoder(_Answer)


class Prometheus:
    """One Prometheus. Its only state is whether the past use of GPUs was queried already."""

    def __init__(self, ask: HttpFetcher, *, budget: Callable[[], None] = lambda: None) -> None:
        """`budget` is called before each query, and may wait."""
        self._ask = ask
        self._budget = budget
        self._looked_back = False

    @property
    def address(self) -> str:
        return self._ask.address

    def read(self, known: Callable[[str], bool], now: Time, lasts: Span) -> Scrape:
        """Query all metrics. Raises TelemetryError if the first query fails, or no query returns a series."""
        gathering, troubles, first = Gathering(known), list[str](), ""
        for name, measure in METRICS.items():
            try:
                found = list(self.query(_grouped(name, PLACES if first else EVERYTHING)))
            except TelemetryError as error:
                if not first and not troubles and measure is GpuMetric.MEMORY_USED:
                    raise
                troubles.append(str(error))
                continue
            first = first or (name if found else "")
            for series in found:
                gathering.add(MetricSample(measure, series.metric, series.number))
        if not first:
            raise TelemetryError(
                f"{self.address}: no DCGM metrics (DCGM_FI_…); does this Prometheus scrape the DCGM exporter?"
            )
        times = self._times(first, known)
        nodes = tuple(gathering.nodes(lambda name: times.get(name, now), self.address, lasts))
        idle = self._idle(known, now) if not self._looked_back else {}
        self._looked_back = True
        return Scrape(nodes, tuple(troubles), gathering.unusable, idle)

    def close(self) -> None:
        """Close the connections."""
        self._ask.close()

    def _times(self, metric: str, known: Callable[[str], bool]) -> dict[str, Time]:
        """Return each node's last scrape time."""
        try:
            found = list(self.query(f"max by ({', '.join(NODES)}) (timestamp({metric}))"))
        except TelemetryError as error:
            LOG.info("Cannot query sample times: %s", error)
            return {}
        return {node_of(one.metric, known): int(one.number * SECOND) for one in found}

    def _idle(self, known: Callable[[str], bool], now: Time) -> dict[tuple[str, int, int], Time]:
        """Return the GPUs that were idle during the whole look-back, with its start."""
        minutes = LOOK_BACK // MINUTE
        query = f"max by ({', '.join(PLACES)}) (max_over_time({_BUSY}[{minutes}m])) == 0 and "
        query += f"max by ({', '.join(PLACES)}) ({_BUSY} offset {minutes}m) == 0"
        try:
            found = list(self.query(query))
        except TelemetryError as error:
            LOG.info("Cannot query past GPU use: %s", error)
            return {}
        places = ((node_of(one.metric, known), place_of(one.metric)) for one in found)
        return {(node, *place): now - LOOK_BACK for node, place in places if place is not None}

    def query(self, query: str) -> Iterator[Series]:
        """Evaluate a PromQL expression now. Raises TelemetryError. Thread-safe."""
        self._budget()
        body = self._ask.get(PATH, {"query": query})
        try:
            answer = _DECODER.decode(body)
        except (msgspec.DecodeError, RecursionError) as error:
            what = "an HTML page" if body.lstrip().startswith(b"<") else "not a response of Prometheus"
            raise TelemetryError(f"{self.address}{PATH}: {what}; is this the URL of the Prometheus API?") from error
        if answer.status != "success" or answer.data is None:
            raise TelemetryError(f"{self.address}{PATH}: {clean(answer.error or 'no data', 200)}")
        yield from answer.data.result


def _grouped(metric: str, labels: tuple[str, ...]) -> str:
    return f"max by ({', '.join(labels)}) ({metric})"
