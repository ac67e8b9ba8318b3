"""Job order: down the tree of queues, then by the order of jobs (KAI 0.13).

Victims come in reverse order: first the last job of the queue that is served last.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from msgspec import Struct

from gpuconsole.scheduling.heap import Heap
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.api.tasks import KaiPodStatus
from gpuconsole.scheduling.kai.fair_share.resource_share import QueueState
from gpuconsole.scheduling.kai.session import KaiSession


class Wanted(Struct, frozen=True, kw_only=True):
    """Selection of jobs, and how many per queue (`depth`, -1: all); with `victims`, in reverse order."""

    ready: bool = False
    pending: bool = False
    preemptible: bool = False
    active: bool = False
    victims: bool = False
    depth: int = -1


class _QueueNode:
    """A queue that has jobs, or queues with jobs, below it. Mutates."""

    def __init__(self, queue: QueueState, jobs: Heap[PodGroupInfo] | None, places: Heap[_QueueNode] | None) -> None:
        self.queue, self.jobs, self.places = queue, jobs, places
        self.unsettled = False
        self.parent: _QueueNode | None = None

    @property
    def empty(self) -> bool:
        return not (self.jobs if self.jobs is not None else self.places)


class JobsByQueue:
    """A priority queue of jobs over the tree of the session's queues. Mutates."""

    def __init__(self, session: KaiSession, wanted: Wanted, jobs: Iterable[PodGroupInfo] = ()) -> None:
        self._session, self._wanted = session, wanted
        self._roots: Heap[_QueueNode] = Heap(self._place_before)
        self._places: dict[str, _QueueNode] = {}
        self._popped: dict[str, list[PodGroupInfo]] = {}
        for job in jobs:
            if self._wants(job):
                self.push(job)

    def __bool__(self) -> bool:
        return bool(self._roots)

    def __len__(self) -> int:
        return sum(len(place.jobs) for place in self._places.values() if place.jobs is not None)

    def _wants(self, job: PodGroupInfo) -> bool:
        wanted, queues = self._wanted, self._session.queues
        queue = queues.get(job.queue)
        return (
            queue is not None
            and queue.leaf
            and (not queue.parent or queue.parent in queues)
            and (not wanted.pending or KaiPodStatus.PENDING in job.by_status)
            and (not wanted.ready or job.ready)
            and (not wanted.preemptible or job.preemptible)
            and (not wanted.active or job.active_allocated > 0)
        )

    def push(self, job: PodGroupInfo) -> None:
        """Add a job to its queue; ignored if that has child queues."""
        queue = self._session.queues[job.queue]
        if not queue.leaf:
            return
        place = self._places.get(job.queue)
        new = place is None
        if place is None:
            place = self._places[job.queue] = _QueueNode(queue, Heap(self._job_before, depth=self._wanted.depth), None)
        cast(Heap[PodGroupInfo], place.jobs).push(job)
        if new:
            self._link(place)
        self._unsettle(place)

    def _link(self, place: _QueueNode) -> None:
        """Attach a node of the tree below its parent, up to the root."""
        if not place.queue.parent:
            self._roots.push(place)
            return
        above = self._session.queues.get(place.queue.parent)
        if above is None:
            return
        parent = self._places.get(above.uid)
        new = parent is None
        if parent is None:
            parent = self._places[above.uid] = _QueueNode(above, None, Heap(self._place_before))
        place.parent = parent
        cast(Heap[_QueueNode], parent.places).push(place)
        if new:
            self._link(parent)

    def pop(self) -> PodGroupInfo:
        """Remove and return the next job."""
        place = self._next(self._roots)
        while place.places is not None:
            place = self._next(place.places)
        job = cast(Heap[PodGroupInfo], place.jobs).pop()
        if self._wanted.victims:
            self._popped.setdefault(place.queue.uid, []).append(job)
        self._after_pop(place)
        return job

    def _next(self, places: Heap[_QueueNode]) -> _QueueNode:
        """The tree node that is served first; changed nodes are reordered as they reach the top."""
        place = places.peek()
        while place.unsettled:
            places.settle()
            place.unsettled = False
            place = places.peek()
        return place

    def _after_pop(self, place: _QueueNode) -> None:
        current: _QueueNode | None = place
        while current is not None and current.empty:
            (cast(Heap[_QueueNode], current.parent.places) if current.parent else self._roots).pop()
            del self._places[current.queue.uid]
            current = current.parent
        if current is not None:
            self._unsettle(current)

    def _unsettle(self, place: _QueueNode) -> None:
        current: _QueueNode | None = place
        while current is not None:
            current.unsettled = True
            current = current.parent

    def _job_before(self, one: PodGroupInfo, other: PodGroupInfo) -> bool:
        first = self._session.job_before(one, other)
        return not first if self._wanted.victims else first

    def _place_before(self, one: _QueueNode, other: _QueueNode) -> bool:
        if one.empty:
            return not self._wanted.victims
        if other.empty:
            return self._wanted.victims
        mine, my_victims = self._best(one)
        theirs, their_victims = self._best(other)
        first = self._session.queue_before(one.queue, other.queue, (mine, theirs), (my_victims, their_victims))
        return not first if self._wanted.victims else first

    def _best(self, place: _QueueNode) -> tuple[PodGroupInfo | None, Sequence[PodGroupInfo]]:
        """The next job below a tree node, or as victims the jobs that would be evicted with it."""
        while place.places is not None:
            place = place.places.peek()
        jobs = cast(Heap[PodGroupInfo], place.jobs)
        if not self._wanted.victims:
            return (jobs.peek() if jobs else None), ()
        return None, [*self._popped.get(place.queue.uid, ()), *([jobs.peek()] if jobs else ())]


def pending_jobs(session: KaiSession, action: str, *, preemptible: bool = False) -> JobsByQueue:
    """Pending jobs that an action tries: those with enough tasks for the minimum of every pod set."""
    wanted = Wanted(ready=True, pending=True, preemptible=preemptible, depth=session.depth(action))
    return JobsByQueue(session, wanted, session.jobs.values())
