"""Possible states of Kueue's scheduler that the API does not show: inadmissible workloads, and the next flavor to try.

To reproduce a decision that the engine does not take on the visible state, the engine is run again as if all other
workloads that were refused before were inadmissible, and from each flavor at which the workload's search may continue.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import islice, product

from msgspec.structs import replace

from gpuconsole.model.queues import ClusterQueue, QueueingStrategy
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.assignment import Resume
from gpuconsole.scheduling.kueue.conditions import QUOTA_RESERVED
from gpuconsole.scheduling.kueue.session import KueueSession
from gpuconsole.scheduling.kueue.session_state import ClusterQueueState
from gpuconsole.scheduling.kueue.state import FlavorScanProgress

MOST_PLACES = 16
"""Limit on the flavor positions that are tried, as their number grows with pod sets and flavors."""
_FROM_THE_START = -1


def possible_scheduler_states(
    session: KueueSession, snapshot: Snapshot, workload: str, other: str = ""
) -> Iterator[KueueSession]:
    """Yield possible states of the session in which only `workload` and `other` are active.

    There is one state for each flavor position at which the workload's search may continue.
    """
    subject = snapshot.workloads.get(workload)
    local_queue = snapshot.local_queues.get(subject.local_queue) if subject is not None else None
    queue = snapshot.cluster_queues.get(local_queue.cluster_queue) if local_queue is not None else None
    if queue is None:
        return
    kept = session.dump()
    awake = (workload, other)
    inadmissible = {
        name: ClusterQueueState(inadmissible=_refused(session, snapshot, name, awake)) for name in kept.queues
    }
    alone = replace(kept, due=(), queues=inadmissible, progress={})
    generation = kept.generations.get(queue.name, 0)
    # A workload that was never tried has no flavor position to continue from.
    most = MOST_PLACES if subject is not None and _looked_at(subject) else 1
    for resume in islice(_places(queue, session.requested(workload)), most):
        fork = session.fork()
        fork.load(replace(alone, progress={workload: FlavorScanProgress(resume, generation, kept.cycles, b"")}))
        yield fork


def _refused(session: KueueSession, snapshot: Snapshot, queue: str, awake: Collection[str]) -> tuple[str, ...]:
    """Return refused workloads, except these, that may be inadmissible. StrictFIFO keeps its head active."""
    known = snapshot.cluster_queues.get(queue)
    if known is None or known.queueing_strategy is QueueingStrategy.STRICT_FIFO:
        return ()
    waiting = (one.workload for one in session.pending(queue))
    return tuple(other.key for other in waiting if other.key not in awake and _looked_at(other))


def _looked_at(workload: Workload) -> bool:
    return workload.condition(QUOTA_RESERVED) is not None


def _places(queue: ClusterQueue, requested: Mapping[str, Mapping[str, int]]) -> Iterator[Resume]:
    """Yield the flavor positions where the pod sets' search may continue: the start, or after a flavor."""
    last = {resource: len(group.flavors) - 1 for group in queue.resource_groups for resource in group.covered_resources}
    choices = [
        [
            {resource: place if place < last.get(resource, 0) else _FROM_THE_START for resource in resources}
            for place in range(_FROM_THE_START, max([1, *(last.get(resource, 0) for resource in resources)]))
        ]
        for resources in requested.values()
    ]
    return product(*choices)
