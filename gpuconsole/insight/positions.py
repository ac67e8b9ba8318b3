"""Where a workload stands in its queues, by Kueue's own order (§3.1), from a Snapshot alone."""

from collections import defaultdict
from collections.abc import Mapping

from msgspec import Struct

from gpuconsole.insight.demand import CONFIG, wanted_gpus
from gpuconsole.insight.once import once
from gpuconsole.model.clock import Time
from gpuconsole.model.decisions import Pending
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.requests import effective_priority, queue_timestamp


class Position(Struct, frozen=True):
    """Places count from 1, parked workloads included, as Kueue's visibility API counts them."""

    workload: str
    cluster_queue: str
    in_cluster_queue: int
    of_cluster_queue: int
    in_local_queue: int
    of_local_queue: int
    gpus_ahead: int
    """GPUs that those before it in the ClusterQueue wait for."""


@once("workloads", "local_queues")
def _waiting(snapshot: Snapshot) -> dict[str, list[Workload]]:
    """ClusterQueue → its waiting workloads in queue order."""
    target = {door.key: door.cluster_queue for door in snapshot.local_queues.all()}
    queues: dict[str, list[Workload]] = defaultdict(list)
    for workload in snapshot.workloads.all():
        name = target.get(workload.local_queue)
        if name is not None and is_waiting(workload):
            queues[name].append(workload)
    for workloads in queues.values():
        workloads.sort(key=queue_order)
    return queues


def is_waiting(workload: Workload) -> bool:
    """True for a workload that waits for quota: active, not finished, nothing reserved."""
    return workload.active and not any(
        c.status and c.type in ("QuotaReserved", "Finished") for c in workload.conditions
    )


def queue_order(workload: Workload) -> tuple[int, Time, str]:
    """Sort key inside one ClusterQueue: effective priority descending, queue-order timestamp, uid.

    What a Snapshot does not hold is left out: the preemptor that BestEffortFIFO keeps in front, and usage-based
    admission fair sharing.
    """
    return -effective_priority(workload, CONFIG), queue_timestamp(workload, CONFIG), workload.uid


def pending(snapshot: Snapshot, cluster_queue: str) -> list[Pending]:
    """Everything that waits for a ClusterQueue, in queue order, positions from 1."""
    waiting = _waiting(snapshot).get(cluster_queue, ())
    return [Pending(workload, place, workload.parked) for place, workload in enumerate(waiting, start=1)]


@once("workloads", "local_queues")
def positions(snapshot: Snapshot) -> Mapping[str, int]:
    """Waiting workload → its place in its ClusterQueue, from 1."""
    return {
        workload.key: place
        for waiting in _waiting(snapshot).values()
        for place, workload in enumerate(waiting, start=1)
    }


def position(snapshot: Snapshot, workload: str) -> Position | None:
    """Where a workload stands; None if it does not wait in a queue that has a ClusterQueue."""
    subject = snapshot.workloads.get(workload)
    if subject is None or not is_waiting(subject):
        return None
    door = snapshot.local_queues.get(subject.local_queue)
    waiting = _waiting(snapshot).get(door.cluster_queue, []) if door is not None else []
    place = next((place for place, other in enumerate(waiting) if other.key == workload), None)
    if door is None or place is None:
        return None
    same_door = [other for other in waiting if other.local_queue == subject.local_queue]
    return Position(
        workload=workload,
        cluster_queue=door.cluster_queue,
        in_cluster_queue=place + 1,
        of_cluster_queue=len(waiting),
        in_local_queue=next(n for n, other in enumerate(same_door, start=1) if other.key == workload),
        of_local_queue=len(same_door),
        gpus_ahead=sum(wanted_gpus(other) for other in waiting[:place]),
    )
