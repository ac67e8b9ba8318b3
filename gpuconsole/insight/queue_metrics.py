"""What Kueue's own metrics say of a ClusterQueue, beside what we count in it."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from gpuconsole.insight.books import books
from gpuconsole.insight.demand import FlavorResource
from gpuconsole.model.clock import Time
from gpuconsole.model.device_units import is_counted
from gpuconsole.model.snapshot import Snapshot

NO_USAGE: Mapping[FlavorResource, float] = {}
NOBODY: Mapping[str, float] = {}


class QueueMetrics(Struct, frozen=True, kw_only=True):
    """Kueue's metrics of one ClusterQueue; None where one is not there."""

    queue: str
    source: str = ""
    """The address of who told; empty where nobody is asked."""
    time: Time = 0
    """When they were scraped."""
    since: Time = 0
    """From when on waits and evictions were counted; 0 = since Kueue's manager started, whenever that was."""
    trouble: str = ""
    """Why they are not known."""
    pending: float | None = None
    """Wait for quota, those included that are not tried until something happens."""
    inadmissible: float | None = None
    """Those of them."""
    reserving: float | None = None
    admitted: float | None = None
    wait_median: float | None = None
    """Seconds from creation (or requeueing) to admission, of those that were admitted since."""
    wait_p95: float | None = None
    evicted: Mapping[str, float] = NOBODY
    """Reason → evictions since."""
    usage: Mapping[FlavorResource, float] = NO_USAGE


class Counted(Struct, frozen=True):
    """One number by two accounts."""

    name: str
    theirs: float
    ours: float

    @property
    def same(self) -> bool:
        return self.theirs == self.ours


def counted(metrics: QueueMetrics, snapshot: Snapshot) -> Iterator[Counted]:
    """What Kueue's metrics and our own counts both say, in the order in which it is read."""
    book = books(snapshot).book(metrics.queue)
    count = book.count
    both = (
        ("Pending", metrics.pending, count.pending),
        ("Holding quota", metrics.reserving, count.reserved),
        ("Admitted", metrics.admitted, count.admitted),
    )
    for name, theirs, ours in both:
        if theirs is not None:
            yield Counted(name, theirs, ours)
    for (flavor, resource), amount in sorted(metrics.usage.items()):
        if is_counted(resource):
            yield Counted(f"{flavor} {resource}", amount, book.usage.get((flavor, resource), 0))
