"""Usage, pending workloads and counts of each ClusterQueue, updated incrementally from Snapshot to Snapshot.

Most workloads do not change between two Snapshots. An identity scan finds the changed ones, and only their LocalQueues
are updated, so that the cost depends on the changes, not on the number of workloads.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

from msgspec.structs import replace

from gpuconsole.insight.demand import FlavorResource
from gpuconsole.insight.local_queue_index import LocalQueueIndex, QueueCounts
from gpuconsole.insight.reasons import PendingReason
from gpuconsole.model.queues import LocalQueue
from gpuconsole.model.snapshot import Snapshot, TableView, row_changes
from gpuconsole.model.workloads import Workload

Rows = Sequence[Workload | None]
LocalQueueIndexes = Mapping[str, LocalQueueIndex]
"""LocalQueue → its workloads and sums."""
NO_LOCAL_QUEUES: LocalQueueIndexes = {}
EMPTY_LOCAL_QUEUE_INDEX = LocalQueueIndex()


class ClusterQueueIndex:
    """Workloads of one ClusterQueue. Immutable; sums are computed on demand."""

    def __init__(self, pages: LocalQueueIndexes = NO_LOCAL_QUEUES) -> None:
        self.pages = pages

    def local_queue(self, local_queue: str) -> LocalQueueIndex:
        """Return the workloads of one LocalQueue."""
        return self.pages.get(local_queue, EMPTY_LOCAL_QUEUE_INDEX)

    @property
    def holding(self) -> list[Workload]:
        """Workloads with reserved quota, in no particular order."""
        return [workload for page in self.pages.values() for workload in page.holding.values()]

    @cached_property
    def queue(self) -> list[Workload]:
        """Pending workloads in queue order."""
        return [place[4] for place in sorted(place for page in self.pages.values() for place in page.waiting.values())]

    @property
    def waiting(self) -> Iterator[Workload]:
        """Pending workloads in no particular order."""
        return (place[4] for page in self.pages.values() for place in page.waiting.values())

    @cached_property
    def usage(self) -> Mapping[FlavorResource, int]:
        """Reserved quota by (flavor, resource)."""
        total: dict[FlavorResource, int] = {}
        for page in self.pages.values():
            for pair, amount in page.usage.items():
                total[pair] = total.get(pair, 0) + amount
        return total

    @cached_property
    def unadmitted(self) -> Mapping[FlavorResource, int]:
        """The part of `usage` that is reserved but not admitted."""
        total: dict[FlavorResource, int] = {}
        for page in self.pages.values():
            for pair, amount in page.unadmitted.items():
                total[pair] = total.get(pair, 0) + amount
        return total

    @cached_property
    def wanted(self) -> Counter[str]:
        """Accelerator resource → amount that pending workloads request."""
        total: Counter[str] = Counter()
        for page in self.pages.values():
            total.update(page.wanted)
        return total

    @cached_property
    def longest(self) -> str:
        """Key of the longest pending workload; empty if none is pending."""
        waits = [page.longest() for page in self.pages.values()]
        return min((wait for wait in waits if wait is not None), default=(0, ""))[1]

    @cached_property
    def count(self) -> QueueCounts:
        """Counts of all LocalQueues together."""
        total = QueueCounts()
        for name in self.pages:
            total.add(self.local_count(name))
        return total

    def local_count(self, local_queue: str) -> QueueCounts:
        """Return the counts of one LocalQueue."""
        page, count = self.local_queue(local_queue), QueueCounts()
        count.add(page.count)
        longest = page.longest()
        count.oldest = longest[0] if longest is not None else None
        return count

    @cached_property
    def codes(self) -> Counter[PendingReason]:
        """Reason codes of the pending workloads."""
        total: Counter[PendingReason] = Counter()
        for page in self.pages.values():
            total.update(page.codes)
        return total


EMPTY_CLUSTER_QUEUE_INDEX = ClusterQueueIndex()


class QueueIndex:
    """The workloads of one Snapshot by ClusterQueue; those of missing LocalQueues are under ``""``."""

    def __init__(
        self, rows: Rows, local_queue_targets: Mapping[str, str], by_queue: dict[str, ClusterQueueIndex]
    ) -> None:
        self.rows = rows
        self.local_queue_targets = local_queue_targets
        """LocalQueue → its ClusterQueue."""
        self.by_queue = by_queue

    def cluster_queue(self, cluster_queue: str) -> ClusterQueueIndex:
        """Return the workloads of one ClusterQueue."""
        return self.by_queue.get(cluster_queue, EMPTY_CLUSTER_QUEUE_INDEX)


_kept: list[tuple[TableView[Workload], TableView[LocalQueue], QueueIndex]] = []


def queue_index(snapshot: Snapshot) -> QueueIndex:
    """Group the workloads of a Snapshot by ClusterQueue; unchanged queues since the last call are the same objects.

    A workload with reserved quota belongs to the ClusterQueue of its admission, a pending one to that of its
    LocalQueue; finished and deactivated workloads belong to none.
    """
    # Replaced as one tuple: at worst, threads do the same work twice.
    known = _kept[0] if _kept else None
    rows = snapshot.workloads.rows
    if known is None or known[1] is not snapshot.local_queues:
        local_queue_targets = {
            local_queue.key: local_queue.cluster_queue for local_queue in snapshot.local_queues.all()
        }
        same = known is not None and known[2].local_queue_targets == local_queue_targets
        made = updated(known[2] if same and known is not None else QueueIndex((), local_queue_targets, {}), rows)
    elif known[0] is snapshot.workloads:
        return known[2]
    else:
        made = updated(known[2], rows)
    _kept[:] = [(snapshot.workloads, snapshot.local_queues, made)]
    return made


def updated(old: QueueIndex, rows: Rows) -> QueueIndex:
    """Update the index after the rows changed; unchanged parts are shared with the old index."""
    gone, come = row_changes(old.rows, rows)
    pages: dict[tuple[str, str], LocalQueueIndex] = {}

    def write(workload: Workload, pen: Callable[[LocalQueueIndex, Workload, bool], None]) -> None:
        place = _place(workload, old.local_queue_targets)
        if place is not None:
            queue, holds = place
            where = queue, workload.local_queue
            if where not in pages:
                pages[where] = old.cluster_queue(queue).local_queue(where[1]).copy()
            pen(pages[where], workload, holds)

    before = {workload.key: workload for workload in gone}
    others = []
    for workload in come:
        known = before.get(workload.key)
        # Thousands of workloads become inadmissible at once after a cohort tree was requeued.
        if known is not None and replace(known, inadmissible=workload.inadmissible) == workload:
            del before[workload.key]
            write(workload, LocalQueueIndex.set_inadmissible)
        else:
            others.append(workload)
    for workload in before.values():
        write(workload, LocalQueueIndex.remove)
    for workload in others:
        write(workload, LocalQueueIndex.add)
    return QueueIndex(rows, old.local_queue_targets, _with_local_queues(old.by_queue, pages))


def _place(workload: Workload, local_queue_targets: Mapping[str, str]) -> tuple[str, bool] | None:
    """Return the ClusterQueue of a workload, with True if it has quota reserved there; None if it belongs to none.

    Kueue does not count deactivated workloads, although their pods may still be terminating.
    """
    if not workload.active:
        return None
    reserved = False
    for condition in workload.conditions:
        if condition.status:
            if condition.type == "Finished":
                return None
            reserved = reserved or condition.type == "QuotaReserved"
    if reserved and workload.admission is not None:
        return workload.admission.cluster_queue, True
    return local_queue_targets.get(workload.local_queue, ""), False


def _with_local_queues(
    old: Mapping[str, ClusterQueueIndex], pages: Mapping[tuple[str, str], LocalQueueIndex]
) -> dict[str, ClusterQueueIndex]:
    """Return the ClusterQueues with these LocalQueues replaced."""
    new = dict(old)
    changed: dict[str, dict[str, LocalQueueIndex]] = {}
    for (queue, local_queue), page in pages.items():
        if queue not in changed:
            changed[queue] = dict(old.get(queue, EMPTY_CLUSTER_QUEUE_INDEX).pages)
        if page.empty:
            changed[queue].pop(local_queue, None)
        else:
            changed[queue][local_queue] = page
    new.update((queue, ClusterQueueIndex(bound)) for queue, bound in changed.items())
    return new
