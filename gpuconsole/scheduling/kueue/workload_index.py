"""Every workload of a session by integer id, and the recent usage of a LocalQueue.

`WorkloadIndex` has the pending workloads by queue, and the quota holders. It mutates; a fork shares everything and
copies a queue, or a queue's quota holders, only before it first changes them.

`LocalQueueUsage` is for admission fair sharing (Kueue 0.19 pkg/cache/queue/afs): the sampled consumption of the queue's
admitted workloads, in which older samples count less, and an entry penalty for each workload that has reserved quota
and is not yet admitted, so that a queue cannot fill the cluster between two samples. Amounts are billionths (of a core,
a byte, a GPU), because Kueue rounds to nine decimals.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.resources import BILLIONTH, CPU, Resources
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.cluster_queue import ClusterQueueHeap
from gpuconsole.scheduling.kueue.pod_resources import Holding, WorkloadRequest

WorkloadRecord = WorkloadRequest | Holding | Workload
"""A pending workload, a quota holder, or a workload that is in no queue."""
_rank = attrgetter("rank")


class WorkloadIndex:
    """Workloads by id. Mutates by its methods only; `fork` returns an independent copy."""

    __slots__ = (
        *("_active_queues", "_changed", "_holdings", "_ids", "_ids_shared", "_own_holdings", "_own_queues", "_queues"),
        *("_ranked", "_maybe_newly_inadmissible", "records"),
    )

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._ids_shared = False
        self.records: list[WorkloadRecord | None] = []
        """By id; None for those that are gone."""
        self._queues: dict[str, ClusterQueueHeap] = {}
        self._own_queues: set[str] = set()
        self._maybe_newly_inadmissible: set[str] = set()
        """Queues that may have changed since `newly_inadmissible` was called."""
        self._active_queues: tuple[str, ...] = ()
        """Queues that may have a head, in order, as cached by `active_queues`."""
        self._changed: set[str] = set()
        """Queues that may have changed since then."""
        self._holdings: dict[str, dict[int, Holding]] = {}
        self._own_holdings: set[str] = set()
        self._ranked: dict[str, tuple[Holding, ...]] = {}

    def fork(self) -> "WorkloadIndex":
        """Return an independent copy; both sides copy shared queues and holdings before they change them."""
        copied = WorkloadIndex()
        copied._ids = self._ids
        copied._ids_shared = self._ids_shared = True
        copied.records = self.records[:]
        copied._queues, copied._holdings = self._queues.copy(), self._holdings.copy()
        copied._ranked, copied._maybe_newly_inadmissible = self._ranked.copy(), self._maybe_newly_inadmissible.copy()
        copied._active_queues, copied._changed = self._active_queues, self._changed.copy()
        self._own_queues, self._own_holdings = set(), set()
        return copied

    def id_of(self, key: str) -> int:
        """Return the id of a workload; a new one gets the next number."""
        number = self._ids.get(key)
        if number is None:
            if self._ids_shared:
                self._ids, self._ids_shared = self._ids.copy(), False
            number = self._ids[key] = len(self.records)
            self.records.append(None)
        return number

    def contains(self, key: str) -> bool:
        """True if the workload was ever pending or held quota."""
        return key in self._ids

    def get(self, key: str) -> WorkloadRecord | None:
        """Return the record of a workload; None if it is unknown or gone."""
        number = self._ids.get(key)
        return None if number is None else self.records[number]

    @property
    def holdings(self) -> Mapping[str, Mapping[int, Holding]]:
        """ClusterQueue → id → quota holder."""
        return self._holdings

    @property
    def holders_by_queue(self) -> Iterator[Holding]:
        """Iterate over all quota holders."""
        return chain.from_iterable(held.values() for held in self._holdings.values())

    def holdings_in_preemption_order(self, name: str) -> tuple[Holding, ...]:
        """Return the quota holders of a ClusterQueue in preemption order."""
        found = self._ranked.get(name)
        if found is None:
            found = self._ranked[name] = tuple(sorted(self._holdings.get(name, {}).values(), key=_rank))
        return found

    def add_holding(self, holding: Holding) -> None:
        """Add or replace a quota holder."""
        self.records[holding.id] = holding
        name = holding.cluster_queue
        held, ranked = self._unshared_holdings(name), self._ranked.pop(name, None)
        old = held.get(holding.id)
        if ranked is not None and old is None:
            at = bisect_right(ranked, holding.rank, key=_rank)
            self._ranked[name] = (*ranked[:at], holding, *ranked[at:])
        elif ranked is not None and old is not None and old.rank == holding.rank:
            at = _insert_position(ranked, old)
            self._ranked[name] = (*ranked[:at], holding, *ranked[at + 1 :])
        held[holding.id] = holding

    def drop_holding(self, holding: Holding) -> None:
        """Remove a quota holder and its record."""
        name = holding.cluster_queue
        held, ranked = self._unshared_holdings(name).pop(holding.id), self._ranked.pop(name, None)
        if ranked is not None:
            at = _insert_position(ranked, held)
            self._ranked[name] = ranked[:at] + ranked[at + 1 :]
        self.records[holding.id] = None

    def _unshared_holdings(self, name: str) -> dict[int, Holding]:
        """Return the mutable quota holders of a ClusterQueue."""
        if name not in self._own_holdings:
            self._holdings[name] = self._holdings.get(name, {}).copy()
            self._own_holdings.add(name)
        return self._holdings[name]

    def add_queue(self, name: str, queue: ClusterQueueHeap) -> None:
        """Add the queue of a ClusterQueue, or replace it."""
        self._queues[name] = queue
        self._own_queues.add(name)
        self._maybe_newly_inadmissible.add(name)
        self._changed.add(name)

    def drop_queue(self, name: str) -> None:
        """Remove the queue of a deleted ClusterQueue."""
        self._queues.pop(name, None)
        self._changed.add(name)

    def queue(self, name: str) -> ClusterQueueHeap:
        """Return a ClusterQueue's queue for changes."""
        self._maybe_newly_inadmissible.add(name)
        self._changed.add(name)
        return self._unshared_queue(name)

    def _unshared_queue(self, name: str) -> ClusterQueueHeap:
        if name not in self._own_queues:
            self._queues[name] = self._queues[name].copy()
            self._own_queues.add(name)
        return self._queues[name]

    def newly_inadmissible(self) -> list[WorkloadRequest]:
        """Return the workloads that became inadmissible since the last call, each once."""
        found = [
            r
            for name in self._maybe_newly_inadmissible & self._queues.keys()
            for r in self._unshared_queue(name).newly_inadmissible()
        ]
        self._maybe_newly_inadmissible = set()
        return found

    def active_queues(self) -> Sequence[str]:
        """Return the ClusterQueues, in order, whose queues may have a head."""
        if self._changed:
            found = {*self._active_queues}.difference(self._changed)
            found.update(name for name in self._changed & self._queues.keys() if not self._queues[name].is_idle)
            self._active_queues, self._changed = tuple(sorted(found)), set()
        return self._active_queues

    def read_queue(self, name: str) -> ClusterQueueHeap | None:
        """Return a ClusterQueue's queue, read-only; None if there is none."""
        return self._queues.get(name)

    @property
    def has_pending(self) -> bool:
        """True if any workload is in a queue."""
        return any(len(queue) for queue in self._queues.values())

    def all_queues(self) -> Iterable[WorkloadRecord]:
        """Yield the records of all workloads."""
        return (record for record in self.records if record is not None)


def _insert_position(ranked: tuple[Holding, ...], holding: Holding) -> int:
    """Return the position of a holding in the preemption order of its queue."""
    return ranked.index(holding, bisect_left(ranked, holding.rank, key=_rank))


BillionthAmounts = Mapping[str, int]
"""Resource name → amount in billionths of its unit."""


class LocalQueueUsage(Struct, frozen=True, omit_defaults=True):
    """The recorded consumption and entry penalties of one LocalQueue."""

    updated: Time
    """Time of the last update of `consumed`; never decreases."""
    consumed: BillionthAmounts = {}
    penalties: Mapping[str, BillionthAmounts] = {}
    """Workload's key → what its reservation costs the queue until it is admitted."""
    has_reported_usage: bool = False
    """True if `consumed` includes the consumption that the LocalQueue's status reported."""

    @property
    def total_penalty(self) -> BillionthAmounts:
        """All entry penalties together."""
        return sum_amounts(*self.penalties.values())


def to_billionths(amounts: Resources) -> dict[str, int]:
    """Amounts in base units as billionths."""
    return {name: value * (BILLIONTH // 1000 if name == CPU else BILLIONTH) for name, value in amounts.items()}


def sum_amounts(*vectors: BillionthAmounts) -> dict[str, int]:
    """Return the exact sums by resource name."""
    total: dict[str, int] = {}
    for vector in vectors:
        for name, value in vector.items():
            total[name] = total.get(name, 0) + value
    return total


def multiply(vector: BillionthAmounts, factor: float) -> dict[str, int]:
    """Multiply, rounding down, so that repeated scaling by less than 1 ends at zero (resource.MulByFloat)."""
    # The shortest decimal that stands for the factor, as strconv.FormatFloat writes it.
    numerator, denominator = Decimal(repr(factor)).as_integer_ratio()
    return {name: value * numerator // denominator for name, value in vector.items()}


def sample_weight(elapsed: Span, half_life: Span) -> float:
    """Weight, 0 to 1, of current usage against that `elapsed` ago; 0 without a half-life (calculateAlphaRate)."""
    return 1.0 - math.pow(0.5, elapsed / SECOND / (half_life / SECOND)) if half_life else 0.0


def decayed_usage(
    consumed: BillionthAmounts, usage: BillionthAmounts, elapsed: Span, half_life: Span
) -> dict[str, int]:
    """Combine decayed consumption with current usage (CalculateDecayedConsumed)."""
    rate = sample_weight(elapsed, half_life)
    return sum_amounts(multiply(consumed, 1 - rate), multiply(usage, rate))


def with_sample(usage_record: LocalQueueUsage, usage: BillionthAmounts, now: Time, half_life: Span) -> LocalQueueUsage:
    """Return the record after a sample of the current usage; without a half-life nothing is remembered."""
    if not half_life:
        return replace(usage_record, consumed={}, updated=now)
    elapsed = max(0, now - usage_record.updated)
    consumed = decayed_usage(usage_record.consumed, usage, elapsed, half_life)
    return replace(usage_record, consumed=consumed, updated=max(now, usage_record.updated))


def with_missed_samples(usage_record: LocalQueueUsage, now: Time, interval: Span, half_life: Span) -> LocalQueueUsage:
    """Apply the samples that were skipped while the queue had no admitted workloads, as one sample.

    Unchanged until more than one interval has passed.
    """
    missed = now - usage_record.updated
    if not interval or missed <= interval:
        return usage_record
    return with_sample(usage_record, {}, usage_record.updated + missed // interval * interval, half_life)


def with_converted_penalty(
    usage_record: LocalQueueUsage, workload: str, usage: BillionthAmounts, now: Time, half_life: Span
) -> LocalQueueUsage:
    """Turn a workload's penalty into consumption when it is admitted (updateAfsConsumedUsage)."""
    elapsed = max(0, now - usage_record.updated)
    consumed = decayed_usage(usage_record.consumed, usage, elapsed, half_life)
    consumed = sum_amounts(consumed, usage_record.penalties.get(workload, {}))
    return replace(without_penalty(usage_record, workload), consumed=consumed, updated=max(now, usage_record.updated))


def with_penalty(usage_record: LocalQueueUsage, workload: str, penalty: BillionthAmounts) -> LocalQueueUsage:
    """Charge a workload's reservation; replaces its previous penalty (PushPenalty)."""
    return replace(usage_record, penalties={**usage_record.penalties, workload: penalty})


def without_penalty(usage_record: LocalQueueUsage, workload: str) -> LocalQueueUsage:
    """Remove a workload's penalty, if it has one (SubPenalty)."""
    if workload not in usage_record.penalties:
        return usage_record
    return replace(
        usage_record, penalties={key: charged for key, charged in usage_record.penalties.items() if key != workload}
    )


def with_reported_usage(usage_record: LocalQueueUsage | None, consumed: BillionthAmounts, now: Time) -> LocalQueueUsage:
    """Add the consumption that a LocalQueue's status reports; once, and without a sample of running workloads.

    A live sample would count workloads whose penalties are still pending twice (initializeAfsIfNeeded).
    """
    if usage_record is None:
        return LocalQueueUsage(updated=now, consumed=consumed, has_reported_usage=True)
    if usage_record.has_reported_usage:
        return usage_record
    return replace(usage_record, consumed=sum_amounts(usage_record.consumed, consumed), has_reported_usage=True)


def comparable_usage(
    consumed: BillionthAmounts, penalty: BillionthAmounts, weight: float, resource_weights: Mapping[str, float]
) -> float:
    """Return the number by which LocalQueues are compared; infinite for weight 0 (CalculateUsage)."""
    if weight <= 0:
        return math.inf
    amounts = sum_amounts(consumed, penalty)
    return sum(resource_weights.get(name, 1) * (amounts[name] / BILLIONTH) for name in sorted(amounts)) / weight
