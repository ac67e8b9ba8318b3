"""What only Kueue remembers, as far as it matters for one workload: who is parked, and which flavor it tries next.

Nobody can read either. So a decision that the engine would not have taken is tried again as if all that were refused
before were parked, but for this workload, and from each place in the lists of flavors at which its search may go on.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import islice, product

from msgspec.structs import replace

from gpuconsole.model.queues import ClusterQueue, QueueingStrategy
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.assignment import Resume
from gpuconsole.scheduling.kueue.conditions import QUOTA_RESERVED
from gpuconsole.scheduling.kueue.memory import QueueMemory
from gpuconsole.scheduling.kueue.session import Session
from gpuconsole.scheduling.kueue.state import Progress

MOST_PLACES = 16
"""So many places to go on from are tried, of what many pod sets and flavors would make possible."""
_FROM_THE_START = -1


def memories(session: Session, snapshot: Snapshot, workload: str, beside: str = "") -> Iterator[Session]:
    """The session as it might be, were only this workload woken, and that `beside` it, of which nothing is supposed.

    Once for each place that the workload's search may go on from.
    """
    subject = snapshot.workloads.get(workload)
    door = snapshot.local_queues.get(subject.local_queue) if subject is not None else None
    queue = snapshot.cluster_queues.get(door.cluster_queue) if door is not None else None
    if queue is None:
        return
    kept = session.memory()
    awake = (workload, beside)
    parked = {name: QueueMemory(parked=_refused(session, snapshot, name, awake)) for name in kept.queues}
    alone = replace(kept, due=(), queues=parked, progress={})
    generation = kept.generations.get(queue.name, 0)
    # Nobody's search stopped anywhere who was never looked at.
    most = MOST_PLACES if subject is not None and _looked_at(subject) else 1
    for resume in islice(_places(queue, session.requested(workload)), most):
        fork = session.fork()
        fork.recall(replace(alone, progress={workload: Progress(resume, generation, kept.cycles, b"")}))
        yield fork


def _refused(session: Session, snapshot: Snapshot, queue: str, awake: Collection[str]) -> tuple[str, ...]:
    """Who may be parked, but for these: whom Kueue has looked at and refused. A StrictFIFO queue keeps its head."""
    known = snapshot.cluster_queues.get(queue)
    if known is None or known.queueing_strategy is QueueingStrategy.STRICT_FIFO:
        return ()
    waiting = (one.workload for one in session.pending(queue))
    return tuple(other.key for other in waiting if other.key not in awake and _looked_at(other))


def _looked_at(workload: Workload) -> bool:
    return workload.condition(QUOTA_RESERVED) is not None


def _places(queue: ClusterQueue, requested: Mapping[str, Mapping[str, int]]) -> Iterator[Resume]:
    """Where the search may go on in each pod set: at the start, or after any flavor but the last."""
    last = {resource: len(group.flavors) - 1 for group in queue.resource_groups for resource in group.covered_resources}
    choices = [
        [
            {resource: place if place < last.get(resource, 0) else _FROM_THE_START for resource in resources}
            for place in range(_FROM_THE_START, max([1, *(last.get(resource, 0) for resource in resources)]))
        ]
        for resources in requested.values()
    ]
    return product(*choices)
