"""Workloads of one LocalQueue in one ClusterQueue, with their sums."""

from collections import Counter

from msgspec import Struct

from gpuconsole.insight.demand import CONFIG, FlavorResource, held, waiting_since, wanted_accelerators
from gpuconsole.insight.reasons import PendingReason, code_of
from gpuconsole.model.clock import Time
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.requests import effective_priority, queue_timestamp

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
    """Workloads of one LocalQueue. Mutates by `add` and `remove` while it is built; immutable once it is in a
    QueueIndex.

    A workload is removed with the same numbers with which it was added, since they depend on the workload alone.
    """

    __slots__ = ("_longest", "_since", "codes", "count", "holding", "unadmitted", "usage", "waiting", "wanted")

    def __init__(self) -> None:
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
        """All but `oldest`."""
        self._since: dict[str, Time] = {}
        self._longest: tuple[Time, str] | None = None
        """The minimum of `_since`, if it was computed and is still pending."""

    def copy(self) -> "LocalQueueIndex":
        """Return an independent copy."""
        twin = LocalQueueIndex()
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
        """Start and key of the longest pending workload."""
        if self._longest is None:
            self._longest = min(((since, key) for key, since in self._since.items()), default=None)
        return self._longest

    def add(self, workload: Workload, holds: bool) -> None:
        """Add a workload; `holds` if it has reserved quota."""
        if holds:
            self.holding[workload.key] = workload
            self._count_holding(workload, 1)
            return
        key = workload.key
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
        refused = workload.condition("QuotaReserved")
        if refused is not None and refused.message:
            self.codes[code_of(refused.message)] += sign
        else:
            self.codes[PendingReason.INADMISSIBLE if workload.inadmissible else PendingReason.QUEUED] += sign


def _count(amounts: dict[FlavorResource, int], pair: FlavorResource, amount: int) -> None:
    left = amounts.get(pair, 0) + amount
    if left:
        amounts[pair] = left
    else:
        amounts.pop(pair, None)


def queue_order(workload: Workload) -> tuple[int, Time, str]:
    """Return the sort key inside one ClusterQueue (Kueue §3.1): effective priority descending, queue-order timestamp,
    uid.

    Not considered: the preemptor that BestEffortFIFO keeps at the head, and admission fair sharing (`positions`).
    """
    return -effective_priority(workload, CONFIG), queue_timestamp(workload, CONFIG), workload.uid
