"""The queue of one ClusterQueue: who is next, who is parked (Kueue 0.19 pkg/cache/queue/cluster_queue.go).

Waiting workloads stand in lanes, one per scheduling shape. Workloads of one shape get the same answer from the
scheduler, so when one of them is refused for want of quota, its lane is closed: all of it counts as parked, without a
look at any of it, until the tree wakes. Others are parked one by one.

Under admission fair sharing each LocalQueue has lanes of its own, and the head comes from the one that used least.
"""

from collections.abc import Callable, Container, Iterable, Iterator
from enum import StrEnum

from gpuconsole.scheduling.kueue.lanes import Lane, Lanes
from gpuconsole.scheduling.kueue.reasons import Reason
from gpuconsole.scheduling.kueue.requests import Request

_NO_SHAPE = b""
_OWN_LANE = b"+"
_ONE_DOOR = ""

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
        *("_brought_back", "_hashing", "_lanes", "_parked", "_reported", "_sticky"),
        *("_strict", "_taking_turns", "_told", "_touched"),
    )

    def __init__(self, *, strict: bool, hashing: bool, taking_turns: bool = False) -> None:
        self._strict = strict
        self._hashing = hashing and not strict
        self._taking_turns = taking_turns
        """LocalQueues take turns by what they used: then `head` and `listing` need to be told their usage."""
        self._lanes = Lanes()
        """All but those who were parked one by one; closed are shapes that were refused, with the granular reason."""
        self._parked: dict[int, Request] = {}
        """Workloads that were parked one by one, by id."""
        self._brought_back: set[int] = set()
        """Workloads that are tried though their shape was refused, by id: they have lanes of their own."""
        self._sticky: int | None = None
        """The workload whose preemptions are under way: under BestEffortFIFO it stays the head."""
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
        twin._lanes, twin._parked, twin._sticky = self._lanes.copy(), self._parked.copy(), self._sticky
        twin._touched, twin._told, twin.version = self._touched.copy(), self._told, self.version
        twin._reported, twin.members = self._reported.copy(), self.members
        twin._brought_back = self._brought_back.copy()
        return twin

    def __len__(self) -> int:
        return len(self._lanes.waiting) + len(self._parked)

    def __contains__(self, id: int) -> bool:
        return id in self._lanes.waiting or id in self._parked

    @property
    def idle(self) -> bool:
        """True if nobody waits in an open lane, so that there is no head."""
        return not self._lanes.anybody

    def push(self, request: Request) -> None:
        """Add a workload, or take in that one changed. In a closed lane it counts as parked at once."""
        self._reported.discard(request.id)
        self._line_up(request)

    def bring_back(self, request: Request) -> None:
        """Add a workload of a LocalQueue that was opened, or led here: it is tried, whatever is known of its shape.

        Its back-off does not matter either (Kueue 0.19 AddFromLocalQueue, pushToHeapIfNotTracked).
        """
        if self._hashing and request.shape in self._lanes.closed:
            self._brought_back.add(request.id)
        self.push(request)

    def _line_up(self, request: Request) -> None:
        self.version += 1
        self.members += 1
        self._parked.pop(request.id, None)
        self._touched.add(request.id)
        self._lanes.add(request, self._lane(request))

    def refresh(self, request: Request) -> None:
        """Take in a change that scheduling does not look at; the workload stays where it is."""
        self.version += 1
        self.members += 1
        if request.id in self._parked:
            self._parked[request.id] = request
        else:
            self._lanes.replace(request)
        self._touched.add(request.id)
        self._reported.discard(request.id)

    def park(self, request: Request) -> None:
        """Put a workload aside until the tree wakes."""
        self._reported.discard(request.id)
        self._put_aside(request)

    def _put_aside(self, request: Request) -> None:
        self.version += 1
        self.members += 1
        self._lanes.remove(request.id)
        self._brought_back.discard(request.id)
        self._parked[request.id] = request
        self._touched.add(request.id)

    def remove(self, id: int) -> None:
        """The workload left: it was admitted, finished, deleted or moved."""
        self.version += 1
        self.members += 1
        self._lanes.remove(id)
        self._brought_back.discard(id)
        self._parked.pop(id, None)
        if self._sticky == id:
            self._sticky = None

    def is_parked(self, id: int) -> bool:
        if id in self._parked:
            return True
        closed, waiting = self._lanes.closed, self._lanes.waiting
        return bool(closed) and id in waiting and self._shape(waiting[id]) in closed

    @property
    def inadmissible(self) -> int:
        """How many are parked."""
        closed = self._lanes.closed
        waiting = self._lanes.waiting.values() if closed else ()
        return len(self._parked) + sum(self._shape(request) in closed for request in waiting)

    def newly_parked(self) -> list[Request]:
        """Workloads that are parked and came, or changed, since they were named here; each is named once.

        Only those are looked at to whom something happened: a lane may be long.
        """
        ids = self._touched
        for shape in self._lanes.closed.keys() - self._told:
            ids.update(request.id for request in self._lanes.of_shape(shape))
        self._touched, self._told = set(), frozenset(self._lanes.closed)
        found = [id for id in ids - self._reported if self.is_parked(id)]
        self._reported.update(found)
        return [self._parked.get(id) or self._lanes.waiting[id] for id in found]

    def is_sticky(self, id: int) -> bool:
        """True for the workload whose preemptions are under way."""
        return self._sticky == id

    def refusal(self, id: int) -> str | None:
        """Why the shape of a parked workload was refused; None if nothing says so (GetNoFitReason)."""
        request = self._parked.get(id) or self._lanes.waiting.get(id)
        return None if request is None else self._lanes.closed.get(self._shape(request))

    def head(self, usage: Usage | None = None) -> Request | None:
        """The workload that is tried next, or None when nothing active waits."""
        held = self._held()
        if not self._taking_turns:
            return held or self._lanes.head(_ONE_DOOR)
        assert usage is not None
        heads = self._lanes.heads()
        if held is not None:
            heads[held.workload.local_queue] = held
        return min(
            heads.values(),
            key=lambda head: (usage(head.workload.local_queue), head.id != self._sticky, head.order),
            default=None,
        )

    def take(self, head: Request) -> None:
        """Take the head out of the queue; it comes back by `requeue` or not at all."""
        self.members += 1
        self._lanes.remove(head.id)

    def _held(self) -> Request | None:
        """The workload whose preemptions are under way, where it is the head of its LocalQueue, or of all."""
        if self._sticky is None or self._strict:
            return None
        held = self._lanes.waiting.get(self._sticky)
        return held if held is not None and self._shape(held) not in self._lanes.closed else None

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
            self.close([(request, granular)])

    def stick(self, request: Request) -> None:
        """The victims of this workload are terminating: under BestEffortFIFO it is the head."""
        self.version += 1
        self._sticky = request.id

    def reopen(self) -> None:
        """Open the lanes of shapes of which nobody was refused who is still parked."""
        if not self._lanes.closed:
            return
        refused = {request.shape for request in self._parked.values()}
        if self._lanes.open([shape for shape in self._lanes.closed if shape not in refused]):
            self.version += 1

    @property
    def strict(self) -> bool:
        """True under StrictFIFO: a head that is refused stays the head."""
        return self._strict

    @property
    def closes_lanes(self) -> bool:
        """True if one that is refused stands for all of its shape."""
        return self._hashing

    @property
    def all_open(self) -> bool:
        """True if no lane is closed."""
        return not self._lanes.closed

    def first_of_lanes(self) -> Iterator[Request]:
        """The first workloads of all open lanes, in order; nobody where one comes before its turn.

        Nothing may be closed, or come, meanwhile.
        """
        if self._taking_turns or self._brought_back or self._sticky in self._lanes.waiting:
            return iter(())
        return self._lanes.firsts(_ONE_DOOR)

    def close(self, refused: Iterable[tuple[Request, str]]) -> None:
        """Refuse all of the shapes of these heads until the tree wakes, by the granular reasons of their conditions."""
        self.version += 1
        shapes = {head.shape: granular or Reason.PENDING_EVALUATION.value for head, granular in refused}
        self._join(shapes)
        self._lanes.close(shapes)

    def _join(self, shapes: Container[bytes]) -> None:
        """Let those of these shapes who have lanes of their own stand with the others of their shape."""
        for request in [self._lanes.waiting[id] for id in self._brought_back if id in self._lanes.waiting]:
            if request.shape in shapes:
                self._brought_back.discard(request.id)
                self._line_up(request)

    def open(self, heads: Iterable[Request]) -> None:
        """Take back that the lanes of these heads were closed."""
        if self._lanes.open(head.shape for head in heads):
            self.version += 1

    def wake(self, ready: Callable[[Request], bool], matches: Callable[[Request], bool] | None) -> None:
        """Open all lanes and bring back the parked workloads whose backoff has ended and whose namespace matches.

        `matches` is None where every namespace does.
        """
        self.version += 1
        opened = self._lanes.open_all()
        self._join(opened)
        if matches is not None:
            for request in [request for shape in opened for request in self._lanes.of_shape(shape)]:
                if not matches(request):
                    self._put_aside(request)
        for request in list(self._parked.values()):
            if ready(request) and (matches is None or matches(request)):
                self._line_up(request)

    def listing(self, usage: Usage | None = None) -> list[tuple[Request, bool]]:
        """Everything that waits, in queue order, with whether it is parked."""
        everything = [*self._lanes.waiting.values(), *self._parked.values()]
        sticky = None if self._strict else self._sticky
        everything.sort(key=lambda request: (request.id != sticky, request.order))
        if self._taking_turns and usage is not None:
            everything.sort(key=lambda request: usage(request.workload.local_queue))
        return [(request, self.is_parked(request.id)) for request in everything]

    @property
    def brought_back(self) -> tuple[int, ...]:
        """Workloads that are tried though their shape was refused, by id."""
        return tuple(sorted(self._brought_back))

    def memory(self) -> tuple[tuple[int, ...], tuple[tuple[bytes, str], ...], int | None]:
        """What the workloads themselves do not say: who is parked, which shapes and why, and who is sticky."""
        return tuple(self._parked), tuple(sorted(self._lanes.closed.items())), self._sticky

    def recall(
        self,
        parked: Iterable[int],
        closed: Iterable[tuple[bytes, str]],
        sticky: int | None,
        brought_back: Iterable[int] = (),
    ) -> None:
        """Take in what `memory` gave; the workloads must be there."""
        self.version += 1
        self._lanes.open_all()
        self._brought_back = set(brought_back)
        for number in self._brought_back & self._lanes.waiting.keys():
            self._line_up(self._lanes.waiting[number])
        self._lanes.close(dict(closed))
        self._sticky = sticky
        wanted = set(parked)
        for number in wanted & self._lanes.waiting.keys():
            self.park(self._lanes.waiting[number])
        for number in self._parked.keys() - wanted:
            self.push(self._parked[number])

    def _shape(self, request: Request) -> bytes:
        if not self._hashing:
            return _NO_SHAPE
        return request.shape + _OWN_LANE if request.id in self._brought_back else request.shape

    def _lane(self, request: Request) -> Lane:
        return request.workload.local_queue if self._taking_turns else _ONE_DOOR, self._shape(request)
