"""Kueue's own metrics, by a Prometheus that scrapes them. Asked only for the queue that is looked at."""

import time
from collections.abc import Callable, Iterator

from gpuconsole.backends.telemetry.prometheus import Prometheus, Series
from gpuconsole.errors import TelemetryError
from gpuconsole.insight.queue_metrics import QueueMetrics
from gpuconsole.model.clock import SECOND, Time
from gpuconsole.model.text import clean

RENEW = 30.0
"""Seconds for which an answer stands: as often as metrics are scraped."""
AGAIN = 300.0
"""Seconds until a Prometheus is asked again that knows nothing of the queue."""
HOUR = "1h"
_GAUGES = "pending_workloads|reserving_active_workloads|admitted_active_workloads|cluster_queue_resource_usage"
_PENDING, _RESERVING, _ADMITTED, _USAGE = (f"kueue_{name}" for name in _GAUGES.split("|"))
_WAITS = "kueue_admission_wait_time_seconds_bucket"
_EVICTED = "kueue_evicted_workloads_total"


class KueueMetrics:
    """Asks, and remembers the answer for a while. Mutates; may be called from any thread, and waits for the server."""

    def __init__(
        self, prometheus: Prometheus, wall: Callable[[], Time], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._prometheus = prometheus
        self._wall = wall
        self._clock = clock
        self._known: tuple[float, QueueMetrics] = (0.0, QueueMetrics(queue=""))

    def of(self, queue: str) -> QueueMetrics:
        """What is known of a ClusterQueue. Never raises: what is wrong stands in the answer."""
        until, known = self._known
        if known.queue == queue and self._clock() < until:
            return known
        try:
            found = self._ask(queue)
        except TelemetryError as error:
            found = QueueMetrics(queue=queue, source=self._prometheus.address, trouble=clean(str(error), 300))
        self._known = (self._clock() + (AGAIN if found.trouble else RENEW), found)
        return found

    def _ask(self, queue: str) -> QueueMetrics:
        name = f'cluster_queue="{_quoted(queue)}"'
        gauges = list(self._prometheus.query(f'{{__name__=~"kueue_({_GAUGES})",{name}}}'))
        if not gauges:
            why = f"it has no metrics of Kueue for {queue}; does it scrape Kueue's manager?"
            raise TelemetryError(f"{self._prometheus.address}: {why}")
        # Of several managers only the leader counts; the others say nothing, or what was true when they led.
        waiting = {s.metric.get("status", ""): s.number for s in _named(gauges, _PENDING)}
        scraped = [one.number for one in self._prometheus.query(f"max(timestamp({_PENDING}{{{name}}}))")]
        quantiles = {s.metric.get("quantile", ""): s.number for s in self._prometheus.query(_quantiles(name))}
        evicted = self._prometheus.query(f"sum by (reason) (increase({_EVICTED}{{{name}}}[{HOUR}]))")
        return QueueMetrics(
            queue=queue,
            source=self._prometheus.address,
            time=int(scraped[0] * SECOND) if scraped and scraped[0] == scraped[0] else self._wall(),
            pending=sum(waiting.values()) if waiting else None,
            inadmissible=waiting.get("inadmissible"),
            reserving=_most(gauges, _RESERVING),
            admitted=_most(gauges, _ADMITTED),
            wait_median=_known(quantiles.get("0.5")),
            wait_p95=_known(quantiles.get("0.95")),
            evicted={clean(s.metric.get("reason", ""), 60): round(s.number) for s in evicted if s.number >= 0.5},
            usage={
                (clean(s.metric.get("flavor", ""), 253), clean(s.metric.get("resource", ""), 253)): s.number
                for s in _named(gauges, _USAGE)
            },
        )


def _named(gauges: list[Series], name: str) -> Iterator[Series]:
    """The series of a metric; of equal ones (of several managers) the largest comes last."""
    return iter(sorted((one for one in gauges if one.metric.get("__name__") == name), key=lambda one: one.number))


def _most(gauges: list[Series], name: str) -> float | None:
    return max((one.number for one in _named(gauges, name)), default=None)


def _quantiles(name: str) -> str:
    buckets = f"sum by (le) (increase({_WAITS}{{{name}}}[{HOUR}]))"
    parts = ((part, f"histogram_quantile({part}, {buckets})") for part in ("0.5", "0.95"))
    return " or ".join(f'label_replace({quantile}, "quantile", "{part}", "", "")' for part, quantile in parts)


def _known(value: float | None) -> float | None:
    """None also for NaN: nobody was admitted in that time."""
    return value if value is not None and value == value else None


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
