"""Where a workload stands in its queues, by Kueue's own order (§3.1), from a Snapshot alone."""

from collections.abc import Mapping

from msgspec import Struct

from gpuconsole.insight.books import books
from gpuconsole.insight.demand import wanted_gpus
from gpuconsole.insight.once import once
from gpuconsole.model.decisions import Pending
from gpuconsole.model.snapshot import Snapshot


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


def pending(snapshot: Snapshot, cluster_queue: str) -> list[Pending]:
    """Everything that waits for a ClusterQueue, in queue order, positions from 1."""
    waiting = books(snapshot).book(cluster_queue).queue
    return [Pending(workload, place, workload.parked) for place, workload in enumerate(waiting, start=1)]


@once("workloads", "local_queues")
def positions(snapshot: Snapshot) -> Mapping[str, int]:
    """Waiting workload → its place in its ClusterQueue, from 1."""
    return {
        workload.key: place
        for name, book in books(snapshot).by_queue.items()
        if name
        for place, workload in enumerate(book.queue, start=1)
    }


def position(snapshot: Snapshot, workload: str) -> Position | None:
    """Where a workload stands; None if it does not wait in a queue that has a ClusterQueue."""
    subject = snapshot.workloads.get(workload)
    door = snapshot.local_queues.get(subject.local_queue) if subject is not None else None
    if subject is None or door is None:
        return None
    waiting = books(snapshot).book(door.cluster_queue).queue
    place = next((place for place, other in enumerate(waiting) if other.key == workload), None)
    if place is None:
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
