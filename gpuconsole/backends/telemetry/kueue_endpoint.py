"""Metrics read directly from Kueue's manager: one response about all queues, of which one queue's lines are read.

Its counters start with the manager, so without a Prometheus the values of the last hour alone are unknown.
"""

from collections.abc import Callable, Iterator, Sequence
from math import inf

from msgspec.structs import replace

from gpuconsole.backends.telemetry.exposition import series
from gpuconsole.backends.telemetry.http import HttpFetcher
from gpuconsole.backends.telemetry.kueue_metrics import EVICTED, GAUGES, WAITS, evictions, gauged
from gpuconsole.backends.telemetry.prometheus import Series
from gpuconsole.errors import TelemetryError
from gpuconsole.insight.index.queues import QueueMetrics
from gpuconsole.model.clock import SECOND, Time

PATH = "/metrics"
_STARTED = "process_start_time_seconds"
_WANTED = frozenset((*GAUGES, WAITS, EVICTED))


class KueueEndpoint:
    """Metrics endpoint of one manager."""

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
    """Compute a histogram quantile as PromQL's `histogram_quantile` does; None if nothing was counted."""
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
