"""Kueue's own metrics of a ClusterQueue, compared with our counts."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from gpuconsole.insight.demand import FlavorResource
from gpuconsole.insight.queue_index import queue_index
from gpuconsole.model.clock import Time
from gpuconsole.model.device_units import is_counted
from gpuconsole.model.snapshot import Snapshot

NO_USAGE: Mapping[FlavorResource, float] = {}
NO_EVICTIONS: Mapping[str, float] = {}


class QueueMetrics(Struct, frozen=True, kw_only=True):
    """Kueue's metrics of one ClusterQueue; a missing metric is None."""

    queue: str
    source: str = ""
    """Address of the metrics endpoint; empty without one."""
    time: Time = 0
    """Time of the scrape."""
    since: Time = 0
    """Start of the counts of waits and evictions; 0 = start of Kueue's manager."""
    trouble: str = ""
    """Reason why the metrics are unknown."""
    pending: float | None = None
    """Pending workloads, inadmissible ones included."""
    inadmissible: float | None = None
    """Inadmissible workloads."""
    reserving: float | None = None
    admitted: float | None = None
    wait_median: float | None = None
    """Seconds from creation (or requeueing) to admission, of workloads admitted since the start."""
    wait_p95: float | None = None
    evicted: Mapping[str, float] = NO_EVICTIONS
    """Reason → evictions since the start."""
    usage: Mapping[FlavorResource, float] = NO_USAGE


class MetricComparison(Struct, frozen=True):
    """One number, by Kueue's metrics and by our count."""

    name: str
    theirs: float
    ours: float

    @property
    def same(self) -> bool:
        """True if both numbers agree."""
        return self.theirs == self.ours


def counted(metrics: QueueMetrics, snapshot: Snapshot) -> Iterator[MetricComparison]:
    """Compare the numbers that both Kueue's metrics and our counts have, in display order."""
    index = queue_index(snapshot).cluster_queue(metrics.queue)
    count = index.count
    both = (
        ("Pending", metrics.pending, count.pending),
        ("Quota reserved", metrics.reserving, count.reserved),
        ("Admitted", metrics.admitted, count.admitted),
    )
    for name, theirs, ours in both:
        if theirs is not None:
            yield MetricComparison(name, theirs, ours)
    for (flavor, resource), amount in sorted(metrics.usage.items()):
        if is_counted(resource):
            yield MetricComparison(f"{flavor} {resource}", amount, index.usage.get((flavor, resource), 0))
