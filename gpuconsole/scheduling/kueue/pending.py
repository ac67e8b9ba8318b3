"""The queue of one ClusterQueue: who is next, who is parked (Kueue 0.19 pkg/cache/queue/cluster_queue.go).

Waiting workloads stand in lanes, one per scheduling shape, each a heap; a heap over the lanes' first entries gives the
head. Workloads of one shape get the same answer from the scheduler, so when one of them is refused for want of quota,
its lane is closed: all of it counts as parked, without a look at any of it, until the tree wakes. Others are parked
one by one. Entries are deleted lazily: what left the queue is dropped when it comes to the top of its lane.

Under admission fair sharing each LocalQueue has lanes of its own, and the head comes from the one that used least.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from heapq import heappop, heappush

from gpuconsole.scheduling.kueue.reasons import Reason
from gpuconsole.scheduling.kueue.requests import Order, Request

_NO_SHAPE = b""
_ONE_DOOR = ""

Lane = tuple[str, bytes]
"""A LocalQueue's key, where they take turns, and a shape."""
Usage = Callable[[str], float]
"""What a LocalQueue used lately: that with the least comes first, before priority and age."""


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

    __slots__ = (
        "members",
        "version",
        *("_closed", "_entries", "_hashing", "_lanes", "_parked", "_reported", "_sticky"),
        *("_strict", "_taking_turns", "_told", "_tops", "_touched", "_waiting"),
    )

    def __init__(self, *, strict: bool, hashing: bool, taking_turns: bool = False) -> None:
        self._strict = strict
        self._hashing = hashing and not strict
        self._taking_turns = taking_turns
        """LocalQueues take turns by what they used: then `head` and `listing` need to be told their usage."""
        self._waiting: dict[int, Request] = {}
        """Every workload in a lane, by id."""
        self._parked: dict[int, Request] = {}
        """Workloads that were parked one by one, by id."""
        self._sticky: int | None = None
        """The workload whose preemptions are under way: under BestEffortFIFO it stays the head."""
        self._lanes: dict[Lane, list[tuple[Order, int]]] = {}
        self._entries: dict[int, tuple[Order, Lane]] = {}
        """Where in the lanes an id's valid entry is; any other entry of that id is void."""
        self._tops: dict[str, list[tuple[Order, Lane]]] = {}
        """For each LocalQueue a heap that has its every open lane at or before the order of its first workload."""
        self._closed: dict[bytes, str] = {}
        """Shapes that were refused, with the granular reason of the refusal."""
        self._touched: set[int] = set()
        """Workloads that came, changed or were parked one by one since `newly_parked` was asked."""
        self._told: frozenset[bytes] = frozenset()
        """The shapes that were closed then."""
        self._reported: set[int] = set()
        """Whom `newly_parked` has named and who has not changed since, though the tree may have woken."""
        self.version = 0
        """Grows with every change, but not when a head is taken out for a cycle."""
        self.members = 0
        """Grows whenever another workload may be first in its lane."""

    def copy(self) -> "PendingQueue":
        twin = PendingQueue(strict=self._strict, hashing=self._hashing, taking_turns=self._taking_turns)
        twin._waiting, twin._parked, twin._sticky = self._waiting.copy(), self._parked.copy(), self._sticky
        twin._lanes = {lane: entries[:] for lane, entries in self._lanes.items()}
        twin._tops = {door: tops[:] for door, tops in self._tops.items()}
        twin._entries, twin._closed = self._entries.copy(), self._closed.copy()
        twin._touched, twin._told, twin.version = self._touched.copy(), self._told, self.version
        twin._reported, twin.members = self._reported.copy(), self.members
        return twin

    def __len__(self) -> int:
        return len(self._waiting) + len(self._parked)

    def __contains__(self, id: int) -> bool:
        return id in self._waiting or id in self._parked

    @property
    def idle(self) -> bool:
        """True if nobody waits in an open lane, so that there is certainly no head."""
        return not self._waiting or not any(self._tops.values())

    def push(self, request: Request) -> None:
        """Add a workload, or take in that one changed. In a closed lane it counts as parked at once."""
        self._reported.discard(request.id)
        self._line_up(request)

    def _line_up(self, request: Request) -> None:
        self.version += 1
        self.members += 1
        self._parked.pop(request.id, None)
        self._waiting[request.id] = request
        self._touched.add(request.id)
        lane = self._lane(request)
        entry = (request.order, lane)
        if self._entries.get(request.id) == entry:
            return
        self._entries[request.id] = entry
        entries = self._lanes.setdefault(lane, [])
        heappush(entries, (request.order, request.id))
        tops = self._tops.setdefault(lane[0], [])
        if entries[0][1] == request.id and lane[1] not in self._closed:
            heappush(tops, entry)

    def refresh(self, request: Request) -> None:
        """Take in a change that scheduling does not look at; the workload stays where it is."""
        self.version += 1
        self.members += 1
        (self._parked if request.id in self._parked else self._waiting)[request.id] = request
        self._touched.add(request.id)
        self._reported.discard(request.id)

    def park(self, request: Request) -> None:
        """Put a workload aside until the tree wakes."""
        self._reported.discard(request.id)
        self._put_aside(request)

    def _put_aside(self, request: Request) -> None:
        self.version += 1
        self.members += 1
        self._waiting.pop(request.id, None)
        self._parked[request.id] = request
        self._touched.add(request.id)

    def remove(self, id: int) -> None:
        """The workload left: it was admitted, finished, deleted or moved."""
        self.version += 1
        self.members += 1
        self._waiting.pop(id, None)
        self._parked.pop(id, None)
        if self._sticky == id:
            self._sticky = None

    def is_parked(self, id: int) -> bool:
        if id in self._parked:
            return True
        return bool(self._closed) and id in self._waiting and self._shape(self._waiting[id]) in self._closed

    def newly_parked(self) -> list[Request]:
        """Workloads that are parked and came, or changed, since they were named here; each is named once.

        Only those are looked at to whom something happened: a lane may be long.
        """
        ids = self._touched
        for shape in self._closed.keys() - self._told:
            for door in self._tops:
                ids.update(id for _, id in self._lanes.get((door, shape), ()))
        self._touched, self._told = set(), frozenset(self._closed)
        found = [id for id in ids - self._reported if self.is_parked(id)]
        self._reported.update(found)
        return [self._parked.get(id) or self._waiting[id] for id in found]

    def is_sticky(self, id: int) -> bool:
        """True for the workload whose preemptions are under way."""
        return self._sticky == id

    def refusal(self, id: int) -> str | None:
        """Why the shape of a parked workload was refused; None if nothing says so (GetNoFitReason)."""
        request = self._parked.get(id) or self._waiting.get(id)
        return None if request is None else self._closed.get(self._shape(request))

    def head(self, usage: Usage | None = None) -> Request | None:
        """The workload that is tried next, or None when nothing active waits."""
        if not self._taking_turns:
            return self._next(_ONE_DOOR)
        assert usage is not None
        heads = [(usage(door), head) for door in self._tops if (head := self._next(door)) is not None]
        if not heads:
            return None
        return min(heads, key=lambda pair: (pair[0], pair[1].id != self._sticky, pair[1].order))[1]

    def take(self, head: Request) -> None:
        """Take the head out of the queue; it comes back by `requeue` or not at all."""
        self.members += 1
        del self._waiting[head.id]

    def _next(self, door: str) -> Request | None:
        """The first active workload of a LocalQueue, or of the whole queue where they take no turns."""
        if self._sticky is not None and not self._strict:
            held = self._waiting.get(self._sticky)
            if held is not None and self._shape(held) not in self._closed and self._lane(held)[0] == door:
                return held
        return self._top(self._tops.get(door, []))

    def _top(self, tops: list[tuple[Order, Lane]]) -> Request | None:
        """The first workload of the open lanes in a heap of lanes, which stands at its top then."""
        while tops:
            order, lane = tops[0]
            first = None if lane[1] in self._closed else self._first(lane)
            if first is not None and first.order == order:
                return first
            heappop(tops)
            if first is not None:
                heappush(tops, (first.order, lane))
        return None

    def requeue(
        self, request: Request, reason: Requeue, *, ready: bool, more_flavors: bool, granular: str = ""
    ) -> None:
        """Take back a head that was not admitted.

        It is tried again in the next cycle when its reason calls for that or flavors are left to try, unless its
        backoff has not ended (`ready`); else it is parked, and with it everything of its shape. `granular` is the
        reason that its condition gives.
        """
        if reason in _MAKES_ROOM:
            self._sticky = request.id
        at_once = reason is not Requeue.NAMESPACE_MISMATCH if self._strict else reason in _AT_ONCE
        if ready and (at_once or more_flavors):
            self._line_up(request)
            return
        self._put_aside(request)
        if self._hashing and reason in _CLOSES_LANE:
            self.close(request, granular)

    @property
    def closes_lanes(self) -> bool:
        """True if one that is refused stands for all of its shape."""
        return self._hashing

    @property
    def all_open(self) -> bool:
        """True if no lane is closed."""
        return not self._closed

    def first_of_lanes(self) -> Iterator[Request]:
        """The first workloads of all open lanes, in order; nobody where one comes before its turn.

        Nothing may be closed, or come, meanwhile.
        """
        if self._taking_turns or self._sticky in self._waiting:
            return
        tops = self._tops.get(_ONE_DOOR, [])[:]
        last: Request | None = None
        while (first := self._top(tops)) is not None:
            heappop(tops)
            # A lane may stand there several times.
            if last is None or (first is not last and first.order >= last.order):
                last = first
                yield first

    def close(self, head: Request, granular: str) -> None:
        """Refuse all of the head's shape, by the granular reason of its condition, until the tree wakes."""
        self.version += 1
        self._closed[head.shape] = granular or Reason.PENDING_EVALUATION.value

    def open(self, head: Request) -> None:
        """Take back that its lane was closed."""
        if self._closed.pop(head.shape, None) is not None:
            self.version += 1
            self._show(self._lane(head))

    def wake(self, ready: Callable[[Request], bool], matches: Callable[[Request], bool] | None) -> None:
        """Open all lanes and bring back the parked workloads whose backoff has ended and whose namespace matches.

        `matches` is None where every namespace does.
        """
        self.version += 1
        closed, self._closed = self._closed, {}
        for lane in [(door, shape) for door in self._tops for shape in closed]:
            if matches is not None:
                self._park_mismatches(lane, matches)
            self._show(lane)
        for request in list(self._parked.values()):
            if ready(request) and (matches is None or matches(request)):
                self._line_up(request)

    def listing(self, usage: Usage | None = None) -> list[tuple[Request, bool]]:
        """Everything that waits, in queue order, with whether it is parked."""
        everything = [*self._waiting.values(), *self._parked.values()]
        sticky = None if self._strict else self._sticky
        everything.sort(key=lambda request: (request.id != sticky, request.order))
        if self._taking_turns and usage is not None:
            everything.sort(key=lambda request: usage(request.workload.local_queue))
        return [(request, self.is_parked(request.id)) for request in everything]

    def memory(self) -> tuple[tuple[int, ...], tuple[tuple[bytes, str], ...], int | None]:
        """What the workloads themselves do not say: who is parked, which shapes and why, and who is sticky."""
        return tuple(self._parked), tuple(sorted(self._closed.items())), self._sticky

    def recall(self, parked: Iterable[int], closed: Iterable[tuple[bytes, str]], sticky: int | None) -> None:
        """Take in what `memory` gave; the workloads must be there."""
        self.version += 1
        self._closed, self._sticky = dict(closed), sticky
        wanted = set(parked)
        for number in wanted & self._waiting.keys():
            self.park(self._waiting[number])
        for number in self._parked.keys() - wanted:
            self.push(self._parked[number])

    def _shape(self, request: Request) -> bytes:
        return request.shape if self._hashing else _NO_SHAPE

    def _lane(self, request: Request) -> Lane:
        return request.workload.local_queue if self._taking_turns else _ONE_DOOR, self._shape(request)

    def _park_mismatches(self, lane: Lane, matches: Callable[[Request], bool]) -> None:
        for _, id in self._lanes.get(lane, ()):
            request = self._waiting.get(id)
            if request is not None and self._lane(request) == lane and not matches(request):
                self._put_aside(request)

    def _show(self, lane: Lane) -> None:
        """An open lane is to be found; void or not, its first entry does not come after its first workload."""
        entries = self._lanes.get(lane)
        if entries:
            heappush(self._tops.setdefault(lane[0], []), (entries[0][0], lane))

    def _first(self, lane: Lane) -> Request | None:
        """The first workload of a lane; void entries before it are dropped."""
        entries = self._lanes.get(lane)
        while entries:
            order, id = entries[0]
            valid = self._entries.get(id) == (order, lane)
            if valid and id in self._waiting:
                return self._waiting[id]
            heappop(entries)
            if valid:
                del self._entries[id]
        self._lanes.pop(lane, None)
        return None
