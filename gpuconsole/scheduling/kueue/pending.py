"""The queue of one ClusterQueue: who is next, who is parked (Kueue 0.19 pkg/cache/queue/cluster_queue.go).

Waiting workloads stand in lanes, one per scheduling shape, each a heap; a heap over the lanes' first entries gives the
head. Workloads of one shape get the same answer from the scheduler, so when one of them is refused for want of quota,
its lane is closed: all of it counts as parked, without a look at any of it, until the tree wakes. Others are parked
one by one. Entries are deleted lazily: what left the queue is dropped when it comes to the top of its lane.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from heapq import heappop, heappush

from gpuconsole.scheduling.kueue.requests import Order, Request

_NO_SHAPE = b""


class Requeue(StrEnum):
    """Why a head comes back to its queue; decides whether it is tried again at once or parked."""

    GENERIC = ""
    FAILED_AFTER_NOMINATION = "FailedAfterNomination"
    NAMESPACE_MISMATCH = "NamespaceMismatch"
    PREEMPTION_GATED = "PreemptionGated"
    PENDING_PREEMPTION = "PendingPreemption"
    PENDING_MIGRATION = "PendingMigration"
    PREEMPTION_FAILED = "PreemptionFailed"
    NO_FIT = "NoFit"
    PREEMPTION_NO_CANDIDATES = "PreemptionNoCandidates"


_MAKES_ROOM = (Requeue.PENDING_PREEMPTION, Requeue.PENDING_MIGRATION)
_AT_ONCE = (Requeue.FAILED_AFTER_NOMINATION, Requeue.PREEMPTION_FAILED, *_MAKES_ROOM)
_CLOSES_LANE = (Requeue.NO_FIT, Requeue.PREEMPTION_NO_CANDIDATES)


class PendingQueue:
    """Waiting workloads of one ClusterQueue. Mutates; `copy` gives an independent twin."""

    __slots__ = ("_closed", "_entries", "_hashing", "_lanes", "_parked", "_sticky", "_strict", "_tops", "_waiting")

    def __init__(self, *, strict: bool, hashing: bool) -> None:
        self._strict = strict
        self._hashing = hashing and not strict
        self._waiting: dict[int, Request] = {}
        """Every workload in a lane, by id."""
        self._parked: dict[int, Request] = {}
        """Workloads that were parked one by one, by id."""
        self._sticky: int | None = None
        """The workload whose preemptions are under way: under BestEffortFIFO it stays the head."""
        self._lanes: dict[bytes, list[tuple[Order, int]]] = {}
        self._entries: dict[int, tuple[Order, bytes]] = {}
        """Where in the lanes an id's valid entry is; any other entry of that id is void."""
        self._tops: list[tuple[Order, bytes]] = []
        """A heap that has every open lane at or before the order of its first workload."""
        self._closed: set[bytes] = set()

    def copy(self) -> "PendingQueue":
        twin = PendingQueue(strict=self._strict, hashing=self._hashing)
        twin._waiting, twin._parked, twin._sticky = self._waiting.copy(), self._parked.copy(), self._sticky
        twin._lanes = {shape: lane[:] for shape, lane in self._lanes.items()}
        twin._entries, twin._tops, twin._closed = self._entries.copy(), self._tops[:], self._closed.copy()
        return twin

    def __len__(self) -> int:
        return len(self._waiting) + len(self._parked)

    def __contains__(self, id: int) -> bool:
        return id in self._waiting or id in self._parked

    @property
    def idle(self) -> bool:
        """True if nobody waits in a lane, so that there is certainly no head."""
        return not self._waiting

    def push(self, request: Request) -> None:
        """Add a workload, or take in that one changed. In a closed lane it counts as parked at once."""
        self._parked.pop(request.id, None)
        self._waiting[request.id] = request
        shape = self._shape(request)
        entry = (request.order, shape)
        if self._entries.get(request.id) == entry:
            return
        self._entries[request.id] = entry
        lane = self._lanes.setdefault(shape, [])
        heappush(lane, (request.order, request.id))
        if lane[0][1] == request.id and shape not in self._closed:
            heappush(self._tops, entry)

    def refresh(self, request: Request) -> None:
        """Take in a change that scheduling does not look at; the workload stays where it is."""
        (self._parked if request.id in self._parked else self._waiting)[request.id] = request

    def park(self, request: Request) -> None:
        """Put a workload aside until the tree wakes."""
        self._waiting.pop(request.id, None)
        self._parked[request.id] = request

    def remove(self, id: int) -> None:
        """The workload left: it was admitted, finished, deleted or moved."""
        self._waiting.pop(id, None)
        self._parked.pop(id, None)
        if self._sticky == id:
            self._sticky = None

    def is_parked(self, id: int) -> bool:
        if id in self._parked:
            return True
        return bool(self._closed) and id in self._waiting and self._shape(self._waiting[id]) in self._closed

    def is_sticky(self, id: int) -> bool:
        """True for the workload whose preemptions are under way."""
        return self._sticky == id

    def head(self) -> Request | None:
        """The workload that is tried next, or None when nothing active waits."""
        if self._sticky is not None and not self._strict:
            held = self._waiting.get(self._sticky)
            if held is not None and self._shape(held) not in self._closed:
                return held
        while self._tops:
            order, shape = self._tops[0]
            first = None if shape in self._closed else self._first(shape)
            if first is not None and first.order == order:
                return first
            heappop(self._tops)
            if first is not None:
                heappush(self._tops, (first.order, shape))
        return None

    def pop(self) -> Request | None:
        """Take the head out of the queue; it comes back by `requeue` or not at all."""
        head = self.head()
        if head is not None:
            del self._waiting[head.id]
        return head

    def requeue(self, request: Request, reason: Requeue, *, ready: bool, more_flavors: bool) -> None:
        """Take back a head that was not admitted.

        It is tried again in the next cycle when its reason calls for that or flavors are left to try, unless its
        backoff has not ended (`ready`); else it is parked, and with it everything of its shape.
        """
        if reason in _MAKES_ROOM:
            self._sticky = request.id
        at_once = reason is not Requeue.NAMESPACE_MISMATCH if self._strict else reason in _AT_ONCE
        if ready and (at_once or more_flavors):
            self.push(request)
            return
        self.park(request)
        if self._hashing and reason in _CLOSES_LANE:
            self._closed.add(request.shape)

    def wake(self, ready: Callable[[Request], bool], matches: Callable[[Request], bool] | None) -> None:
        """Open all lanes and bring back the parked workloads whose backoff has ended and whose namespace matches.

        `matches` is None where every namespace does.
        """
        closed, self._closed = self._closed, set()
        for shape in closed:
            if matches is not None:
                self._park_mismatches(shape, matches)
            first = self._first(shape)
            if first is not None:
                heappush(self._tops, (first.order, shape))
        for request in list(self._parked.values()):
            if ready(request) and (matches is None or matches(request)):
                self.push(request)

    def listing(self) -> list[tuple[Request, bool]]:
        """Everything that waits, in queue order, with whether it is parked."""
        everything = [*self._waiting.values(), *self._parked.values()]
        sticky = None if self._strict else self._sticky
        everything.sort(key=lambda request: (request.id != sticky, request.order))
        return [(request, self.is_parked(request.id)) for request in everything]

    def memory(self) -> tuple[tuple[int, ...], tuple[bytes, ...], int | None]:
        """What the workloads themselves do not say: who is parked, which shapes, and who is sticky."""
        return tuple(self._parked), tuple(sorted(self._closed)), self._sticky

    def recall(self, parked: Iterable[int], closed: Iterable[bytes], sticky: int | None) -> None:
        """Take in what `memory` gave; the workloads must be there."""
        self._closed, self._sticky = set(closed), sticky
        wanted = set(parked)
        for number in wanted & self._waiting.keys():
            self.park(self._waiting[number])
        for number in self._parked.keys() - wanted:
            self.push(self._parked[number])

    def _shape(self, request: Request) -> bytes:
        return request.shape if self._hashing else _NO_SHAPE

    def _park_mismatches(self, shape: bytes, matches: Callable[[Request], bool]) -> None:
        for _, id in self._lanes.get(shape, ()):
            request = self._waiting.get(id)
            if request is not None and self._shape(request) == shape and not matches(request):
                self.park(request)

    def _first(self, shape: bytes) -> Request | None:
        """The first workload of a lane; void entries before it are dropped."""
        lane = self._lanes.get(shape)
        while lane:
            order, id = lane[0]
            valid = self._entries.get(id) == (order, shape)
            if valid and id in self._waiting:
                return self._waiting[id]
            heappop(lane)
            if valid:
                del self._entries[id]
        self._lanes.pop(shape, None)
        return None
