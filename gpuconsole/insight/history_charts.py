"""Numbers of charts of the history: preemptions by pair of queues, distributions of waits, allocations over time."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.preemption.history import PreemptionRow
from gpuconsole.model.clock import HOUR, Span, Time
from gpuconsole.model.devices import WHOLE_GPU
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.snapshot import Snapshot


class QueuePair(Struct, frozen=True, kw_only=True):
    """Preemptions of workloads of one queue by workloads of one queue."""

    victim: str
    """Queue of the victims; empty if it is unknown."""
    by: str
    """Queue of the preemptors, likewise."""
    times: int
    lost_gpu_hours: float
    """As far as known."""
    cost: float
    """USD of the lost work, as far as known."""


class PreemptionMatrix(Struct, frozen=True):
    """Preemptions by queue of the victim and queue of the preemptor."""

    pairs: tuple[QueuePair, ...] = ()
    """The most frequent first."""

    @property
    def queues(self) -> list[str]:
        """All queues, those with the most preemptions first."""
        counts: Counter[str] = Counter()
        for pair in self.pairs:
            counts.update({name: pair.times for name in {pair.victim, pair.by}})
        return sorted(counts, key=lambda name: (-counts[name], name))

    @property
    def counts(self) -> Mapping[tuple[str, str], int]:
        """(queue of the victim, queue of the preemptor) → number of preemptions."""
        return {(pair.victim, pair.by): pair.times for pair in self.pairs}


def preemption_matrix(rows: Iterable[PreemptionRow]) -> PreemptionMatrix:
    """Count preemptions by the queues of victim and preemptor."""
    found: dict[tuple[str, str], QueuePair] = {}
    for row in rows:
        key = row.victim_queue, row.by_queue
        pair = found.get(key) or QueuePair(victim=key[0], by=key[1], times=0, lost_gpu_hours=0.0, cost=0.0)
        found[key] = replace(
            pair,
            times=pair.times + 1,
            lost_gpu_hours=pair.lost_gpu_hours + (row.lost_gpu_hours or 0.0),
            cost=pair.cost + (row.cost or 0.0),
        )
    return PreemptionMatrix(tuple(sorted(found.values(), key=lambda pair: (-pair.times, pair.victim, pair.by))))


class WaitDistribution(Struct, frozen=True):
    """Waits of the workloads that a queue admitted."""

    queue: str
    """Empty for all queues."""
    waits: tuple[Span, ...]
    """Sorted."""

    def fraction(self, wait: Span) -> float:
        """Return the fraction of the workloads that waited at most so long; 0 without workloads."""
        return bisect_right(self.waits, wait) / len(self.waits) if self.waits else 0.0


def wait_distributions(events: Iterable[HistoryEvent]) -> tuple[WaitDistribution, ...]:
    """Return the waits of admissions: of all queues, then of each queue, that with the most admissions first.

    A workload that was evicted and admitted again counts twice, each time from the submission or eviction on.
    """
    waits: dict[str, list[Span]] = {}
    for event in events:
        if event.what is HistoryEventKind.ADMITTED:
            waits.setdefault(event.queue, []).append(max(0, event.waited))
    every = tuple(sorted(wait for found in waits.values() for wait in found))
    queues = sorted(waits, key=lambda queue: (-len(waits[queue]), queue))
    return (WaitDistribution("", every), *(WaitDistribution(queue, tuple(sorted(waits[queue]))) for queue in queues))


class Allocation(Struct, frozen=True, kw_only=True):
    """GPUs that a workload had from its admission until it ended."""

    workload: str
    queue: str
    gpus: int
    unit: str = WHOLE_GPU.noun
    begin: Time
    """Start of the window, if it was admitted before that."""
    end: Time
    """End of the window, if it still has them."""
    outcome: HistoryEventKind | None = None
    """What ended it; None if it still has the GPUs."""


ENDS = (
    HistoryEventKind.EVICTED,
    HistoryEventKind.FINISHED,
    HistoryEventKind.FAILED,
    HistoryEventKind.DELETED,
)
ALLOCATING = (HistoryEventKind.ADMITTED, *ENDS)
"""Kinds of the events that `allocations` reads."""


def allocations(events: Iterable[HistoryEvent], snapshot: Snapshot, begin: Time, end: Time) -> tuple[Allocation, ...]:
    """Return the allocations of GPUs in a window, by their start.

    `events` are those of the window, of the kinds `ALLOCATING`, oldest first; `snapshot` is the cluster at its end, and
    tells what runs since before the window. What began and ended unseen is missing.
    """
    held: dict[str, Allocation] = {}
    found: list[Allocation] = []
    for event in events:
        if event.what is HistoryEventKind.ADMITTED:
            if event.gpus:
                held[event.workload] = Allocation(
                    workload=event.workload,
                    queue=event.queue,
                    gpus=event.gpus,
                    unit=event.unit,
                    begin=event.time,
                    end=end,
                )
        elif event.what in ENDS:
            known = held.pop(event.workload, None)
            if known is None and event.gpus and event.what is not HistoryEventKind.DELETED:
                known = Allocation(
                    workload=event.workload,
                    queue=event.queue,
                    gpus=event.gpus,
                    unit=event.unit,
                    begin=begin,
                    end=end,
                )
            if known is not None:
                found.append(replace(known, end=event.time, outcome=event.what))
    for workload in snapshot.workloads.all():
        admitted = workload.condition("Admitted")
        if workload.admitted and not workload.finished and workload.key not in held and workload.gpus:
            since = max(begin, admitted.since if admitted is not None else begin)
            if since < end:
                held[workload.key] = Allocation(
                    workload=workload.key, queue=workload.cluster_queue, gpus=workload.gpus, begin=since, end=end
                )
    return tuple(sorted([*found, *held.values()], key=lambda one: (one.begin, one.workload)))


def gpus_over_time(parts: Sequence[Allocation], begin: Time, end: Time, columns: int) -> list[float]:
    """Return the mean number of GPUs that allocations had in each of `columns` equal parts of a window."""
    if end <= begin or columns < 1:
        return []
    width = (end - begin) / columns
    values = [0.0] * columns
    for one in parts:
        first, last = (max(begin, one.begin) - begin) / width, (min(end, one.end) - begin) / width
        for column in range(int(first), min(columns, int(last) + 1)):
            overlap = min(last, column + 1) - max(first, column)
            values[column] += one.gpus * max(0.0, overlap)
    return values


class GanttBy(StrEnum):
    """What the rows of the Gantt chart are."""

    WORKLOAD = "workload"
    QUEUE = "queue"
    NAMESPACE = "namespace"

    @property
    def next(self) -> "GanttBy":
        return list(GanttBy)[(list(GanttBy).index(self) + 1) % len(GanttBy)]


class GanttRow(NamedTuple):
    """GPUs of one owner over time."""

    owner: str
    queue: str
    parts: tuple[Allocation, ...]
    begin: Time
    """Start of the window."""
    end: Time

    @property
    def gpu_hours(self) -> float:
        """GPU time in the window, in hours."""
        return sum(one.gpus * (one.end - one.begin) for one in self.parts) / HOUR

    @property
    def gpus(self) -> int:
        """GPUs at the end of the window."""
        return sum(one.gpus for one in self.parts if one.outcome is None)

    @property
    def evictions(self) -> int:
        """Number of evictions in the window."""
        return sum(one.outcome is HistoryEventKind.EVICTED for one in self.parts)


def gantt_rows(found: Sequence[Allocation], by: GanttBy, begin: Time, end: Time) -> list[GanttRow]:
    """Group allocations by owner; the owners in the order of their first GPUs."""
    owners: dict[str, list[Allocation]] = {}
    for one in found:
        match by:
            case GanttBy.WORKLOAD:
                owner = one.workload
            case GanttBy.QUEUE:
                owner = one.queue
            case GanttBy.NAMESPACE:
                owner = one.workload.split("/")[-2] if "/" in one.workload else one.workload
        owners.setdefault(owner, []).append(one)
    return [GanttRow(owner, parts[0].queue, tuple(parts), begin, end) for owner, parts in owners.items()]
