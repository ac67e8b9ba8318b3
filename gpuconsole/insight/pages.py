"""One page of the books: the workloads of one LocalQueue in one ClusterQueue, and what they add up to."""

from collections import Counter

from msgspec import Struct

from gpuconsole.insight.demand import CONFIG, FlavorResource, held, waiting_since, wanted_accelerators
from gpuconsole.insight.reasons import Code, code_of
from gpuconsole.model.clock import Time
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.requests import effective_priority, queue_timestamp

Place = tuple[int, Time, str, str, Workload]
"""Priority (negated), queue-order timestamp, uid, key, workload: sorts in queue order."""


class Count(Struct):
    """What a queue has. Filled while it is counted, read-only after it."""

    pending: int = 0
    """Wait for quota, parked ones included; stopped ones are not counted."""
    parked: int = 0
    reserved: int = 0
    """Hold quota, admitted ones included."""
    admitted: int = 0
    """Their pods run or may run."""
    pending_gpus: int = 0
    """GPUs, replicas of GPUs and MIG instances that the pending ones ask for."""
    oldest: Time | None = None
    """When the one that waits longest began to wait."""

    def add(self, other: "Count") -> None:
        """Roll another queue's counts up into this one."""
        self.pending += other.pending
        self.parked += other.parked
        self.reserved += other.reserved
        self.admitted += other.admitted
        self.pending_gpus += other.pending_gpus
        if other.oldest is not None and (self.oldest is None or other.oldest < self.oldest):
            self.oldest = other.oldest


class Page:
    """Mutates by `add` and `remove` while it is written; a page that is in a book is not touched any more.

    A workload is removed by the same numbers by which it was added, since all of them come from the workload alone.
    """

    __slots__ = ("_longest", "_since", "codes", "count", "holding", "unadmitted", "usage", "waiting", "wanted")

    def __init__(self) -> None:
        self.holding: dict[str, Workload] = {}
        self.waiting: dict[str, Place] = {}
        self.usage: dict[FlavorResource, int] = {}
        """Quota held (Kueue's flavorsReservation), added up from the workloads: no status is trusted."""
        self.unadmitted: dict[FlavorResource, int] = {}
        """What of it is only reserved: by those whose checks or topology are not ready."""
        self.wanted: Counter[str] = Counter()
        """Resource of accelerators → how much of it the pending ones ask for."""
        self.codes: Counter[Code] = Counter()
        """Why those wait that wait."""
        self.count = Count()
        """All but `oldest`."""
        self._since: dict[str, Time] = {}
        self._longest: tuple[Time, str] | None = None
        """The least of `_since`, if that was asked for and still waits."""

    def copy(self) -> "Page":
        twin = Page()
        twin.holding, twin.waiting, twin._since = self.holding.copy(), self.waiting.copy(), self._since.copy()
        twin.usage, twin.unadmitted, twin.codes = self.usage.copy(), self.unadmitted.copy(), self.codes.copy()
        twin.wanted = self.wanted.copy()
        twin.count.add(self.count)
        twin._longest = self._longest
        return twin

    @property
    def empty(self) -> bool:
        return not self.holding and not self.waiting

    def longest(self) -> tuple[Time, str] | None:
        """When the wait of the one that waits longest began, and its key."""
        if self._longest is None:
            self._longest = min(((since, key) for key, since in self._since.items()), default=None)
        return self._longest

    def add(self, workload: Workload, holds: bool) -> None:
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
        if holds:
            del self.holding[workload.key]
            self._count_holding(workload, -1)
            return
        del self.waiting[workload.key], self._since[workload.key]
        if self._longest is not None and self._longest[1] == workload.key:
            self._longest = None
        self._count_waiting(workload, -1)

    def park(self, workload: Workload, holds: bool) -> None:
        """Take in that it is parked now, or is no more, and that nothing else of it changed."""
        if holds:
            self.holding[workload.key] = workload
            return
        priority, time, uid, key, before = self.waiting[workload.key]
        self.waiting[key] = priority, time, uid, key, workload
        self._count_parking(before, -1)
        self._count_parking(workload, 1)

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
        self._count_parking(workload, sign)

    def _count_parking(self, workload: Workload, sign: int) -> None:
        self.count.parked += sign * workload.parked
        refused = workload.condition("QuotaReserved")
        if refused is not None and refused.message:
            self.codes[code_of(refused.message)] += sign
        else:
            self.codes[Code.PARKED if workload.parked else Code.QUEUED] += sign


def _count(amounts: dict[FlavorResource, int], pair: FlavorResource, amount: int) -> None:
    left = amounts.get(pair, 0) + amount
    if left:
        amounts[pair] = left
    else:
        amounts.pop(pair, None)


def queue_order(workload: Workload) -> tuple[int, Time, str]:
    """Sort key inside one ClusterQueue (Kueue §3.1): effective priority descending, queue-order timestamp, uid.

    Left out are the preemptor that BestEffortFIFO keeps in front, and usage-based admission fair sharing (`positions`).
    """
    return -effective_priority(workload, CONFIG), queue_timestamp(workload, CONFIG), workload.uid
