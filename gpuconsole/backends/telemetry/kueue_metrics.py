"""Kueue's own metrics of the selected ClusterQueue, requested while it is on screen.

`KueueQueries` asks a Prometheus that scrapes Kueue's manager: four queries per queue. `KueueEndpoint` reads the
manager's metrics endpoint: one response about all queues. Its counters start with the manager, so waits and evictions
are those since then, not those of the last hour.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Protocol

from msgspec.structs import replace

from gpuconsole.backends.telemetry.http import HttpFetcher, series
from gpuconsole.backends.telemetry.prometheus import Prometheus, Series
from gpuconsole.errors import TelemetryError
from gpuconsole.insight.index.queues import QueueMetrics
from gpuconsole.model.clock import HOUR, SECOND, Time
from gpuconsole.model.text import clean

RENEW = 30.0
"""Seconds for which a response is cached: as often as metrics are scraped."""
AGAIN = 7.0
"""Seconds until a source without metrics of the queue is queried again, while the queue is shown."""
PENDING, RESERVING, ADMITTED, USAGE = GAUGES = (
    "kueue_pending_workloads",
    "kueue_reserving_active_workloads",
    "kueue_admitted_active_workloads",
    "kueue_cluster_queue_resource_usage",
)
WAITS = "kueue_admission_wait_time_seconds_bucket"
EVICTED = "kueue_evicted_workloads_total"


class KueueMetricsSource(Protocol):
    """A Prometheus that scrapes Kueue's manager, or the manager itself."""

    @property
    def address(self) -> str:
        """Address in messages."""

    def of(self, queue: str, now: Time) -> QueueMetrics:
        """Return the metrics of a ClusterQueue. Raises TelemetryError."""


class KueueMetrics:
    """Caches Kueue's metrics of a queue from one source. Mutable; thread-safe; blocks on the server."""

    def __init__(
        self, knower: KueueMetricsSource, wall: Callable[[], Time], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._knower = knower
        self._wall = wall
        self._clock = clock
        self._known: tuple[float, QueueMetrics] = (0.0, QueueMetrics(queue=""))

    @property
    def address(self) -> str:
        """Address of the source in messages."""
        return self._knower.address

    def trouble(self, queue: str) -> str:
        """Request the metrics without the cache, and return why a ClusterQueue has none; empty if it has."""
        try:
            self._knower.of(queue, self._wall())
        except TelemetryError as error:
            return clean(str(error), 300)
        return ""

    def of(self, queue: str) -> QueueMetrics:
        """Return the metrics of a ClusterQueue. Never raises: errors are in the result."""
        until, known = self._known
        if known.queue == queue and self._clock() < until:
            return known
        try:
            found = self._knower.of(queue, self._wall())
        except TelemetryError as error:
            found = QueueMetrics(queue=queue, source=self._knower.address, trouble=clean(str(error), 300))
        self._known = (self._clock() + (AGAIN if found.trouble else RENEW), found)
        return found


def gauged(gauges: Sequence[Series], queue: str, source: str, time: Time) -> QueueMetrics:
    """Read a queue's metrics from the series of `GAUGES`.

    Of several managers only the leader counts; the others export nothing, or old values from when they led.
    """
    waiting = {one.metric.get("status", ""): one.number for one in _named(gauges, PENDING)}
    return QueueMetrics(
        queue=queue,
        source=source,
        time=time,
        pending=sum(waiting.values()) if waiting else None,
        inadmissible=waiting.get("inadmissible"),
        reserving=_most(gauges, RESERVING),
        admitted=_most(gauges, ADMITTED),
        usage={
            (clean(one.metric.get("flavor", ""), 253), clean(one.metric.get("resource", ""), 253)): one.number
            for one in _named(gauges, USAGE)
        },
    )


def evictions(counted: Sequence[Series]) -> Mapping[str, float]:
    """Return evictions by reason; a value that Prometheus extrapolates to less than 0.5 counts as none."""
    reasons: dict[str, float] = {}
    for one in counted:
        reason = clean(one.metric.get("reason", ""), 60)
        reasons[reason] = reasons.get(reason, 0.0) + one.number
    return {reason: round(number) for reason, number in reasons.items() if number >= 0.5}


def _named(gauges: Sequence[Series], name: str) -> Iterator[Series]:
    """Return the series of a metric; of equal ones (from several managers) the largest comes last."""
    return iter(sorted((one for one in gauges if one.metric.get("__name__") == name), key=lambda one: one.number))


def _most(gauges: Sequence[Series], name: str) -> float | None:
    return max((one.number for one in _named(gauges, name)), default=None)


PATH = "/metrics"
_STARTED = "process_start_time_seconds"
_WANTED = frozenset((*GAUGES, WAITS, EVICTED))


class KueueEndpoint:
    """Metrics endpoint of one replica of Kueue's manager. Waits and evictions are those since its start."""

    def __init__(self, ask: HttpFetcher, *, budget: Callable[[], None] = lambda: None) -> None:
        """`budget` is called before each request, and may wait."""
        self._ask = ask
        self._budget = budget

    @property
    def address(self) -> str:
        return self._ask.address

    def of(self, queue: str, now: Time) -> QueueMetrics:
        """Request all metrics, and return those of a ClusterQueue. Raises TelemetryError."""
        self._budget()
        text = self._ask.get(PATH, {}).decode(errors="replace")
        found = list(_series_of_queue(text, queue))
        if not found:
            raise TelemetryError(f"{self.address}: {_nothing(text, queue)}")
        buckets = [one for one in found if one.metric["__name__"] == WAITS]
        return replace(
            gauged(found, queue, self.address, now),
            since=min(now, next((int(value * SECOND) for _, _, value in series(text, (_STARTED,))), 0)),
            wait_median=quantile(0.5, buckets),
            wait_p95=quantile(0.95, buckets),
            evicted=evictions([one for one in found if one.metric["__name__"] == EVICTED]),
        )


def _series_of_queue(text: str, queue: str) -> Iterator[Series]:
    """Yield the series of a queue. Filters lines by its name first, because there may be thousands of queues."""
    lines = "\n".join(line for line in text.split("\n") if queue in line)
    for name, labels, value in series(lines, _WANTED):
        if labels.get("cluster_queue") == queue:
            yield Series({**labels, "__name__": name}, (0.0, str(value)))


def _nothing(text: str, queue: str) -> str:
    if any(line.startswith("kueue_") for line in text.split("\n")):
        return f"no Kueue metrics for {queue}; is this the leader replica?"
    return "no Kueue metrics (kueue_…) at this address"


def quantile(part: float, buckets: Sequence[Series]) -> float | None:
    """Compute the quantile `part` (0 to 1) of a histogram, as `histogram_quantile` of PromQL; None without counts."""
    below: dict[float, float] = {}
    for one in buckets:
        bound = _bound(one.metric.get("le", ""))
        below[bound] = below.get(bound, 0.0) + one.number
    counts = sorted((bound, count) for bound, count in below.items() if bound == bound)
    if len(counts) < 2 or counts[-1][0] != inf or not counts[-1][1] > 0:
        return None
    rank = part * counts[-1][1]
    before, lower = 0.0, 0.0
    for bound, count in counts:
        if count >= rank:
            # The last bucket has no upper bound.
            return lower if bound == inf else lower + (bound - lower) * (rank - before) / (count - before)
        before, lower = count, bound
    return None


def _bound(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


_WINDOW = "1h"
"""Time for which waits and evictions are queried."""


class KueueQueries:
    """Queries one Prometheus for the last hour of a queue."""

    def __init__(self, prometheus: Prometheus) -> None:
        self._prometheus = prometheus

    @property
    def address(self) -> str:
        return self._prometheus.address

    def of(self, queue: str, now: Time) -> QueueMetrics:
        """Request all metrics of a ClusterQueue. Raises TelemetryError."""
        name = f'cluster_queue="{_quoted(queue)}"'
        gauges = list(self._prometheus.query(f'{{__name__=~"{"|".join(GAUGES)}",{name}}}'))
        if not gauges:
            why = f"no Kueue metrics for {queue}; does this Prometheus scrape kueue-controller-manager?"
            raise TelemetryError(f"{self.address}: {why}")
        scraped = [one.number for one in self._prometheus.query(f"max(timestamp({PENDING}{{{name}}}))")]
        quantiles = {one.metric.get("quantile", ""): one.number for one in self._prometheus.query(_quantiles(name))}
        evicted = list(self._prometheus.query(f"sum by (reason) (increase({EVICTED}{{{name}}}[{_WINDOW}]))"))
        time = int(scraped[0] * SECOND) if scraped and scraped[0] == scraped[0] else now
        return replace(
            gauged(gauges, queue, self.address, time),
            since=time - HOUR,
            wait_median=_known(quantiles.get("0.5")),
            wait_p95=_known(quantiles.get("0.95")),
            evicted=evictions(evicted),
        )


def _quantiles(name: str) -> str:
    buckets = f"sum by (le) (increase({WAITS}{{{name}}}[{_WINDOW}]))"
    parts = ((part, f"histogram_quantile({part}, {buckets})") for part in ("0.5", "0.95"))
    return " or ".join(f'label_replace({quantile}, "quantile", "{part}", "", "")' for part, quantile in parts)


def _known(value: float | None) -> float | None:
    """Return None also for NaN: no workload was admitted in that time."""
    return value if value is not None and value == value else None


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
