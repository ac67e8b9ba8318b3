"""Workloads of each ClusterQueue and LocalQueue: usage, counts, positions, and pending admission checks.

A `QueueIndex` has the sums of each queue. Most workloads do not change between two Snapshots: an identity scan finds
those that did, and only their LocalQueues are updated, so that the cost depends on the changes. Positions follow
Kueue's order (§3.1) from a Snapshot alone. Kueue's own metrics and the positions of its visibility API are compared
with ours.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.derived import incremental, memoized
from gpuconsole.insight.index.demand import (
    CONFIG,
    FlavorResource,
    held,
    held_units,
    waiting_since,
    wanted_accelerators,
    wanted_units,
)
from gpuconsole.insight.pending.reasons import FlavorGroups, PendingReason, flavor_groups, pending_code
from gpuconsole.model.clock import Span, Time, format_span
from gpuconsole.model.devices import WHOLE_GPU, Units, added, in_one_unit, is_counted
from gpuconsole.model.events import Pending
from gpuconsole.model.queues import ClusterQueue, LocalQueue, QueueingStrategy, StopPolicy
from gpuconsole.model.snapshot import NO_ROWS, Snapshot, TableView, row_changes
from gpuconsole.model.workloads import CheckState, Workload
from gpuconsole.scheduling.kueue.pod_resources import effective_priority, queue_timestamp

QueueKey = tuple[int, Time, str, str, Workload]
"""Priority (negated), queue-order timestamp, uid, key, workload: sorts in queue order."""


class QueueCounts(Struct):
    """Workload counts of a queue. Filled while it is counted, read-only afterwards."""

    pending: int = 0
    """Pending, inadmissible ones included; deactivated ones are not counted."""
    inadmissible: int = 0
    reserved: int = 0
    """With reserved quota, admitted ones included."""
    admitted: int = 0
    """Admitted: their pods run or may run."""
    pending_gpus: int = 0
    """GPUs, replicas and MIG instances that pending workloads request."""
    oldest: Time | None = None
    """Time since which the oldest pending workload has been pending."""

    def add(self, other: "QueueCounts") -> None:
        """Add another queue's counts."""
        self.pending += other.pending
        self.inadmissible += other.inadmissible
        self.reserved += other.reserved
        self.admitted += other.admitted
        self.pending_gpus += other.pending_gpus
        if other.oldest is not None and (self.oldest is None or other.oldest < self.oldest):
            self.oldest = other.oldest


class LocalQueueIndex:
    """Workloads of one LocalQueue with their counts. Mutates while it is built; immutable in a QueueIndex.

    A workload is removed with the same numbers with which it was added, since they depend on the workload and on the
    resource groups of its ClusterQueue alone.
    """

    __slots__ = (
        "_groups",
        "_longest",
        "_since",
        "codes",
        "count",
        "holding",
        "unadmitted",
        "usage",
        "waiting",
        "wanted",
    )

    def __init__(self, groups: FlavorGroups = ()) -> None:
        self._groups = groups
        """Those of its ClusterQueue."""
        self.holding: dict[str, Workload] = {}
        self.waiting: dict[str, QueueKey] = {}
        self.usage: dict[FlavorResource, int] = {}
        """Reserved quota (Kueue's flavorsReservation), summed from the workloads, not read from a status."""
        self.unadmitted: dict[FlavorResource, int] = {}
        """The part of it that is not admitted: admission checks or topology assignment are pending."""
        self.wanted: Counter[str] = Counter()
        """Accelerator resource → amount that pending workloads request."""
        self.codes: Counter[PendingReason] = Counter()
        """Reason codes of the pending workloads."""
        self.count = QueueCounts()
        """Its counts; `oldest` is not set, see `longest`."""
        self._since: dict[str, Time] = {}
        self._longest: tuple[Time, str] | None = None
        """The minimum of `_since`, if it was computed and is still pending."""

    def copy(self) -> "LocalQueueIndex":
        """Return an independent copy."""
        twin = LocalQueueIndex(self._groups)
        twin.holding, twin.waiting, twin._since = self.holding.copy(), self.waiting.copy(), self._since.copy()
        twin.usage, twin.unadmitted, twin.codes = self.usage.copy(), self.unadmitted.copy(), self.codes.copy()
        twin.wanted = self.wanted.copy()
        twin.count.add(self.count)
        twin._longest = self._longest
        return twin

    @property
    def empty(self) -> bool:
        """True if it has no workloads."""
        return not self.holding and not self.waiting

    def longest(self) -> tuple[Time, str] | None:
        """Return the start of the longest wait, and the key of that workload; None if none is pending."""
        if self._longest is None:
            self._longest = min(((since, key) for key, since in self._since.items()), default=None)
        return self._longest

    def add(self, workload: Workload, holds: bool) -> None:
        """Add a workload; `holds` if it has reserved quota."""
        # Each `key` is a new text; the state has it as well.
        key = sys.intern(workload.key)
        if holds:
            self.holding[key] = workload
            self._count_holding(workload, 1)
            return
        self.waiting[key] = (*queue_order(workload), key, workload)
        since = self._since[key] = waiting_since(workload)
        if self._longest is not None:
            self._longest = min(self._longest, (since, key))
        self._count_waiting(workload, 1)

    def remove(self, workload: Workload, holds: bool) -> None:
        """Remove a workload; `holds` as when it was added."""
        if holds:
            del self.holding[workload.key]
            self._count_holding(workload, -1)
            return
        del self.waiting[workload.key], self._since[workload.key]
        if self._longest is not None and self._longest[1] == workload.key:
            self._longest = None
        self._count_waiting(workload, -1)

    def set_inadmissible(self, workload: Workload, holds: bool) -> None:
        """Record that a workload became inadmissible, or admissible again, and did not change otherwise."""
        if holds:
            self.holding[workload.key] = workload
            return
        priority, time, uid, key, before = self.waiting[workload.key]
        self.waiting[key] = priority, time, uid, key, workload
        self._count_inadmissible(before, -1)
        self._count_inadmissible(workload, 1)

    def _count_holding(self, workload: Workload, sign: int) -> None:
        self.count.reserved += sign
        admitted = workload.admitted
        if admitted:
            self.count.admitted += sign
        for pair, amount in held(workload):
            _count(self.usage, pair, sign * amount)
            if not admitted:
                _count(self.unadmitted, pair, sign * amount)

    def _count_waiting(self, workload: Workload, sign: int) -> None:
        self.count.pending += sign
        for resource, amount in wanted_accelerators(workload).items():
            self.wanted[resource] += sign * amount
            self.count.pending_gpus += sign * amount
        self._count_inadmissible(workload, sign)

    def _count_inadmissible(self, workload: Workload, sign: int) -> None:
        self.count.inadmissible += sign * workload.inadmissible
        self.codes[pending_code(workload, self._groups)] += sign


def _count(amounts: dict[FlavorResource, int], pair: FlavorResource, amount: int) -> None:
    left = amounts.get(pair, 0) + amount
    if left:
        amounts[pair] = left
    else:
        amounts.pop(pair, None)


def queue_order(workload: Workload) -> tuple[int, Time, str]:
    """Return the sort key in a ClusterQueue (Kueue §3.1): effective priority descending, queue-order timestamp, UID.

    Not considered: the preemptor that BestEffortFIFO keeps at the head, and admission fair sharing (`positions`).
    """
    return -effective_priority(workload, CONFIG), queue_timestamp(workload, CONFIG), workload.uid


Rows = Sequence[Workload | None]
LocalQueueIndexes = Mapping[str, LocalQueueIndex]
"""LocalQueue → its workloads and sums."""
NO_LOCAL_QUEUES: LocalQueueIndexes = {}
EMPTY_LOCAL_QUEUE_INDEX = LocalQueueIndex()
NO_GROUPS: Mapping[str, FlavorGroups] = {}


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
        self,
        rows: Rows,
        local_queue_targets: Mapping[str, str],
        by_queue: dict[str, ClusterQueueIndex],
        groups: Mapping[str, FlavorGroups] = NO_GROUPS,
    ) -> None:
        self.rows = rows
        self.local_queue_targets = local_queue_targets
        """LocalQueue → its ClusterQueue."""
        self.by_queue = by_queue
        self.groups = groups
        """ClusterQueue → its resource groups."""

    def cluster_queue(self, cluster_queue: str) -> ClusterQueueIndex:
        """Return the workloads of one ClusterQueue."""
        return self.by_queue.get(cluster_queue, EMPTY_CLUSTER_QUEUE_INDEX)


IndexedTables = tuple[TableView[Workload], TableView[LocalQueue], TableView[ClusterQueue], QueueIndex]
_NOTHING_INDEXED: IndexedTables = (NO_ROWS, NO_ROWS, NO_ROWS, QueueIndex((), {}, {}))


def queue_index(snapshot: Snapshot) -> QueueIndex:
    """Group the workloads of a Snapshot by ClusterQueue; unchanged queues since the last call are the same objects.

    A workload with reserved quota belongs to the ClusterQueue of its admission, a pending one to that of its
    LocalQueue; finished and deactivated workloads belong to none.
    """
    return _indexed(snapshot)[-1]


@incremental(_NOTHING_INDEXED)
def _indexed(snapshot: Snapshot, before: IndexedTables) -> IndexedTables:
    workloads, local_queues, cluster_queues, index = before
    same = local_queues is snapshot.local_queues and cluster_queues is snapshot.cluster_queues
    if same and workloads is snapshot.workloads:
        return before
    if not same:
        targets = {local_queue.key: local_queue.cluster_queue for local_queue in snapshot.local_queues.all()}
        groups = _groups(snapshot)
        if index.local_queue_targets != targets or index.groups != groups:
            index = QueueIndex((), targets, {}, groups)
    if index.rows is not snapshot.workloads.rows:
        index = updated(index, snapshot.workloads.rows)
    return snapshot.workloads, snapshot.local_queues, snapshot.cluster_queues, index


@memoized("cluster_queues")
def _groups(snapshot: Snapshot) -> Mapping[str, FlavorGroups]:
    return {queue.name: flavor_groups(queue) for queue in snapshot.cluster_queues.all()}


def pending_reason(snapshot: Snapshot, workload: Workload) -> PendingReason:
    """Return the reason code of a pending workload, from Kueue's message."""
    local_queue = snapshot.local_queues.get(workload.local_queue)
    groups = _groups(snapshot).get(local_queue.cluster_queue, ()) if local_queue is not None else ()
    return pending_code(workload, groups)


def updated(old: QueueIndex, rows: Rows) -> QueueIndex:
    """Return the index after the table of workloads changed to `rows`; unchanged parts are shared with the old one."""
    gone, come = row_changes(old.rows, rows)
    pages: dict[tuple[str, str], LocalQueueIndex] = {}

    def write(workload: Workload, pen: Callable[[LocalQueueIndex, Workload, bool], None]) -> None:
        place = _place(workload, old.local_queue_targets)
        if place is not None:
            queue, holds = place
            where = queue, workload.local_queue
            if where not in pages:
                known = old.cluster_queue(queue).pages.get(where[1])
                pages[where] = known.copy() if known is not None else LocalQueueIndex(old.groups.get(queue, ()))
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
    return QueueIndex(rows, old.local_queue_targets, _with_local_queues(old.by_queue, pages), old.groups)


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
    """Yield the numbers that both Kueue's metrics and our index have for a ClusterQueue, in display order."""
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


READY = "Ready"


class Checking(Struct, frozen=True, kw_only=True):
    """A workload that has reserved quota and is not admitted."""

    workload: str
    gpus: int
    """Accelerators that it reserves and does not use yet."""
    units: Units
    """The reserved accelerators by unit."""
    since: Time
    open: tuple[CheckState, ...]
    """Its checks that are not ready; empty while it waits for its topology assignment."""

    @property
    def names(self) -> str:
        """Names of the pending admission checks; `topology assignment` if there are none."""
        return ", ".join(check.name for check in self.open) or "topology assignment"


def open_checks(workload: Workload) -> tuple[CheckState, ...]:
    """Return the admission checks of a workload that are not Ready."""
    return tuple(check for check in workload.checks if check.state != READY)


@memoized(
    "workloads", "local_queues", "cluster_queues", "cohorts", "nodes", "device_classes", "resource_claim_templates"
)
def checking(snapshot: Snapshot) -> tuple[Checking, ...]:
    """List the workloads with reserved quota that are not admitted, the longest wait first."""
    found = []
    for index in queue_index(snapshot).by_queue.values():
        if index.count.reserved > index.count.admitted:
            found += [_checking(snapshot, workload) for workload in index.holding if not workload.admitted]
    return tuple(sorted(found, key=lambda one: (one.since, one.workload)))


def _checking(snapshot: Snapshot, workload: Workload) -> Checking:
    reserved, units = workload.condition("QuotaReserved"), held_units(snapshot, workload)
    return Checking(
        workload=workload.key,
        gpus=sum(units.values()),
        units=units,
        since=reserved.since if reserved is not None else workload.created,
        open=open_checks(workload),
    )


STRICT = QueueingStrategy.STRICT_FIFO


class Position(Struct, frozen=True):
    """Position of a workload in its queues, from 1; inadmissible workloads count, as in Kueue's visibility API."""

    workload: str
    cluster_queue: str
    in_cluster_queue: int
    of_cluster_queue: int
    in_local_queue: int
    of_local_queue: int
    gpus_ahead: int
    """GPUs, or what `unit` names, that workloads ahead of it in the ClusterQueue request."""
    unit: str = WHOLE_GPU.noun


def pending(
    snapshot: Snapshot, cluster_queue: str, *, local_queue: str = "", offset: int = 0, limit: int | None = None
) -> list[Pending]:
    """Return the pending workloads of a ClusterQueue, or of one of its LocalQueues, in queue order.

    Positions start at 1. `offset` are skipped, then at most `limit` follow; negative numbers count as 0.
    """
    waiting = _in_order(snapshot, cluster_queue)
    listed = [Pending(workload, place, workload.inadmissible) for place, workload in enumerate(waiting, start=1)]
    if local_queue:
        listed = [entry for entry in listed if entry.workload.local_queue == local_queue]
    listed = listed[max(0, offset) :]
    return listed if limit is None else listed[: max(0, limit)]


def _in_order(snapshot: Snapshot, cluster_queue: str) -> list[Workload]:
    """Sort the pending workloads of a ClusterQueue; with admission fair sharing, by usage of their LocalQueues first.

    Workloads of a stopped LocalQueue are left out, as Kueue does not queue them.
    """
    index = queue_index(snapshot).cluster_queue(cluster_queue)
    waiting = _preemptor_first(snapshot, cluster_queue, index)
    local_queues = [
        local_queue for local_queue in map(snapshot.local_queues.get, index.pages) if local_queue is not None
    ]
    stopped = {local_queue.key for local_queue in local_queues if local_queue.stop_policy is not StopPolicy.NONE}
    if stopped:
        waiting = [workload for workload in waiting if workload.local_queue not in stopped]
    usage = {local_queue.key: local_queue.usage for local_queue in local_queues if local_queue.usage is not None}
    return sorted(waiting, key=lambda w: usage.get(w.local_queue, 0.0)) if usage else waiting


def _preemptor_first(snapshot: Snapshot, cluster_queue: str, index: ClusterQueueIndex) -> list[Workload]:
    """Move a preemptor that waits for its victims to the head, as BestEffortFIFO does (Kueue 0.19 cluster_queue.go)."""
    queue = snapshot.cluster_queues.get(cluster_queue)
    if not index.codes[PendingReason.WAITING_FOR_VICTIMS] or queue is None or queue.queueing_strategy is STRICT:
        return index.queue
    return sorted(index.queue, key=lambda one: pending_code(one, ()) is not PendingReason.WAITING_FOR_VICTIMS)


@memoized("workloads", "local_queues", "cluster_queues")
def positions(snapshot: Snapshot) -> Mapping[str, int]:
    """Map pending workloads to their position in their ClusterQueue, from 1."""
    return {
        workload.key: place
        for name in queue_index(snapshot).by_queue
        if name
        for place, workload in enumerate(_in_order(snapshot, name), start=1)
    }


def position(snapshot: Snapshot, workload: str) -> Position | None:
    """Return the position of a workload; None if it is not pending, or its LocalQueue is stopped or does not exist.

    Also None if not all workloads are visible.
    """
    if not snapshot.seen.all_of(Workload, LocalQueue):
        return None
    subject = snapshot.workloads.get(workload)
    local_queue = snapshot.local_queues.get(subject.local_queue) if subject is not None else None
    if subject is None or local_queue is None:
        return None
    waiting = _in_order(snapshot, local_queue.cluster_queue)
    place = next((place for place, other in enumerate(waiting) if other.key == workload), None)
    if place is None:
        return None
    same_local_queue = [other for other in waiting if other.local_queue == subject.local_queue]
    gpus, unit = in_one_unit(added(*(wanted_units(snapshot, other) for other in waiting[:place])))
    return Position(
        workload=workload,
        cluster_queue=local_queue.cluster_queue,
        in_cluster_queue=place + 1,
        of_cluster_queue=len(waiting),
        in_local_queue=next(n for n, other in enumerate(same_local_queue, start=1) if other.key == workload),
        of_local_queue=len(same_local_queue),
        gpus_ahead=gpus,
        unit=unit,
    )


class QueuePosition(Struct, frozen=True):
    """Positions of one workload in its ClusterQueue and LocalQueue, from 1."""

    in_cluster_queue: int
    in_local_queue: int


class VisibilityPositions(Struct, frozen=True, kw_only=True):
    """Positions of all pending workloads of one queue, from one source."""

    queue: str
    """ClusterQueue, or the `namespace/name` of a LocalQueue if only its pending workloads may be read."""
    source: str = ""
    time: Time = 0
    places: Mapping[str, QueuePosition] = {}
    trouble: str = ""
    """Reason why no positions are available."""


def position_text(standings: VisibilityPositions, workload: str, ours: Position | None, now: Time) -> str:
    """Describe Kueue's position of a workload, with source and age, or why it is missing; empty if it was not read."""
    place = standings.places.get(workload)
    if not standings.source:
        return f"no position from Kueue: {standings.trouble}" if standings.trouble else ""
    age: Span = max(0, now - standings.time)
    where = f"{standings.source}, {format_span(age)} ago" if age else standings.source
    if place is None:
        return f"not listed as pending by Kueue: {where}"
    same = ours is not None and (ours.in_cluster_queue, ours.in_local_queue) == (
        place.in_cluster_queue,
        place.in_local_queue,
    )
    words = f"position by Kueue {place.in_cluster_queue} ({place.in_local_queue} in its LocalQueue): {where}"
    return words if same or ours is None else f"{words}; ours {ours.in_cluster_queue} ({ours.in_local_queue})"
