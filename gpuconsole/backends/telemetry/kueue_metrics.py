"""Kueue's own metrics of the selected queue, from a Prometheus or the manager, requested while it is on screen."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from gpuconsole.backends.telemetry.prometheus import Series
from gpuconsole.errors import TelemetryError
from gpuconsole.insight.index.queues import QueueMetrics
from gpuconsole.model.clock import Time
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
    """Requests metrics, and caches the response. Mutable; thread-safe; blocks on the server."""

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
