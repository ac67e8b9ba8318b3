"""Positions of pending workloads in their queues, by Kueue's order and by its visibility API.

Positions of pending workloads in their queues, by Kueue's order (§3.1), from a Snapshot alone.

Queue positions from Kueue's visibility API, compared with our own.
"""

from collections.abc import Mapping

from msgspec import Struct

from gpuconsole.insight.derived import memoized
from gpuconsole.insight.index.demand import wanted_units
from gpuconsole.insight.index.queues import ClusterQueueIndex, queue_index
from gpuconsole.insight.pending.reasons import PendingReason, code_of
from gpuconsole.model.clock import Span, Time, format_span
from gpuconsole.model.decisions import Pending
from gpuconsole.model.device_units import WHOLE_GPU, added, in_one_unit
from gpuconsole.model.queues import LocalQueue, QueueingStrategy, StopPolicy
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload

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
    return sorted(index.queue, key=lambda workload: not _awaits_victims(workload))


def _awaits_victims(workload: Workload) -> bool:
    said = workload.condition("QuotaReserved")
    return said is not None and code_of(said.message) is PendingReason.WAITING_FOR_VICTIMS


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
    """Return the position of a workload; None if it is not pending, or its queue is stopped or has no ClusterQueue.

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
