"""Kueue's metrics from a Prometheus that scrapes its manager: four queries per ClusterQueue."""

from msgspec.structs import replace

from gpuconsole.backends.telemetry.kueue_metrics import EVICTED, GAUGES, PENDING, WAITS, evictions, gauged
from gpuconsole.backends.telemetry.prometheus import Prometheus
from gpuconsole.errors import TelemetryError
from gpuconsole.insight.index.queues import QueueMetrics
from gpuconsole.model.clock import HOUR, SECOND, Time

_WINDOW = "1h"


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
