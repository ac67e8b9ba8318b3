"""The queue of one ClusterQueue: its head and its inadmissible workloads (Kueue 0.19 pkg/cache/queue/cluster_queue.go).

Pending workloads are grouped into equivalence classes, one per scheduling hash. The scheduler gives all workloads of a
class the same answer, so when one is refused for lack of quota, the whole class is marked inadmissible until a change
in the cohort tree requeues it. Other workloads are marked inadmissible one by one. Under admission fair sharing each
LocalQueue has its own classes, and the head comes from the LocalQueue with the least recent usage.
"""

from collections.abc import Callable, Container, Iterable, Iterator
from enum import StrEnum

from gpuconsole.scheduling.kueue.equivalence_queue import EquivalenceClass, EquivalenceQueue
from gpuconsole.scheduling.kueue.reasons import GranularReason
from gpuconsole.scheduling.kueue.requests import WorkloadRequest

_NO_HASH = b""
_OWN_CLASS_SUFFIX = b"+"
_ALL_LOCAL_QUEUES = ""

QueueUsage = Callable[[str], float]
"""What a LocalQueue used lately: that with the least comes first, before priority and age."""


class RequeueReason(StrEnum):
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


_MAKES_ROOM = (RequeueReason.PENDING_PREEMPTION, RequeueReason.PENDING_MIGRATION)
_AT_ONCE = (RequeueReason.FAILED_AFTER_NOMINATION, RequeueReason.PREEMPTION_FAILED, *_MAKES_ROOM)
_MARKS_CLASS = (RequeueReason.NO_FIT, RequeueReason.PREEMPTION_NO_CANDIDATES)


class ClusterQueueHeap:
    """Waiting workloads of one ClusterQueue. Mutates; `copy` gives an independent twin."""

    __slots__ = (
        "members",
        "version",
        *("_requeued_from_local_queue", "_hashing", "_equivalence_queue", "_inadmissible", "_reported", "_sticky"),
        *("_strict", "_taking_turns", "_reported_hashes", "_touched"),
    )

    def __init__(self, *, strict: bool, hashing: bool, taking_turns: bool = False) -> None:
        self._strict = strict
        self._hashing = hashing and not strict
        self._taking_turns = taking_turns
        """LocalQueues take turns by what they used: then `head` and `listing` need to be told their usage."""
        self._equivalence_queue = EquivalenceQueue()
        """All but those who were parked one by one; closed are shapes that were refused, with the granular reason."""
        self._inadmissible: dict[int, WorkloadRequest] = {}
        """Workloads that were parked one by one, by id."""
        self._requeued_from_local_queue: set[int] = set()
        """Workloads that are tried though their shape was refused, by id: they have lanes of their own."""
        self._sticky: int | None = None
        """The workload whose preemptions are under way: under BestEffortFIFO it stays the head."""
        self._touched: set[int] = set()
        """Workloads that came, changed or were parked one by one since `newly_parked` was asked."""
        self._reported_hashes: frozenset[bytes] = frozenset()
        """The shapes that were closed then."""
        self._reported: set[int] = set()
        """Whom `newly_parked` has named and who has not changed since, though the tree may have woken."""
        self.version = 0
        """Grows with every change, but not when a head is taken out for a cycle."""
        self.members = 0
        """Grows whenever another workload may be first in its lane."""

    def copy(self) -> "ClusterQueueHeap":
        twin = ClusterQueueHeap(strict=self._strict, hashing=self._hashing, taking_turns=self._taking_turns)
        twin._equivalence_queue, twin._inadmissible, twin._sticky = (
            self._equivalence_queue.copy(),
            self._inadmissible.copy(),
            self._sticky,
        )
        twin._touched, twin._reported_hashes, twin.version = self._touched.copy(), self._reported_hashes, self.version
        twin._reported, twin.members = self._reported.copy(), self.members
        twin._requeued_from_local_queue = self._requeued_from_local_queue.copy()
        return twin

    def __len__(self) -> int:
        return len(self._equivalence_queue.waiting) + len(self._inadmissible)

    def __contains__(self, id: int) -> bool:
        return id in self._equivalence_queue.waiting or id in self._inadmissible

    @property
    def idle(self) -> bool:
        """True if nobody waits in an open lane, so that there is no head."""
        return not self._equivalence_queue.has_head

    def push(self, request: WorkloadRequest) -> None:
        """Add a workload, or take in that one changed. In a closed lane it counts as parked at once."""
        self._reported.discard(request.id)
        self._push(request)

    def push_from_local_queue(self, request: WorkloadRequest) -> None:
        """Add a workload of a LocalQueue that was opened, or led here: it is tried, whatever is known of its shape.

        Its back-off does not matter either (Kueue 0.19 AddFromLocalQueue, pushToHeapIfNotTracked).
        """
        if self._hashing and request.scheduling_hash in self._equivalence_queue.inadmissible_hashes:
            self._requeued_from_local_queue.add(request.id)
        self.push(request)

    def _push(self, request: WorkloadRequest) -> None:
        self.version += 1
        self.members += 1
        self._inadmissible.pop(request.id, None)
        self._touched.add(request.id)
        self._equivalence_queue.add(request, self._class_of(request))

    def refresh(self, request: WorkloadRequest) -> None:
        """Take in a change that scheduling does not look at; the workload stays where it is."""
        self.version += 1
        self.members += 1
        if request.id in self._inadmissible:
            self._inadmissible[request.id] = request
        else:
            self._equivalence_queue.replace(request)
        self._touched.add(request.id)
        self._reported.discard(request.id)

    def mark_inadmissible(self, request: WorkloadRequest) -> None:
        """Put a workload aside until the tree wakes."""
        self._reported.discard(request.id)
        self._move_to_inadmissible(request)

    def _move_to_inadmissible(self, request: WorkloadRequest) -> None:
        self.version += 1
        self.members += 1
        self._equivalence_queue.remove(request.id)
        self._requeued_from_local_queue.discard(request.id)
        self._inadmissible[request.id] = request
        self._touched.add(request.id)

    def remove(self, id: int) -> None:
        """The workload left: it was admitted, finished, deleted or moved."""
        self.version += 1
        self.members += 1
        self._equivalence_queue.remove(id)
        self._requeued_from_local_queue.discard(id)
        self._inadmissible.pop(id, None)
        if self._sticky == id:
            self._sticky = None

    def is_inadmissible(self, id: int) -> bool:
        if id in self._inadmissible:
            return True
        closed, waiting = self._equivalence_queue.inadmissible_hashes, self._equivalence_queue.waiting
        return bool(closed) and id in waiting and self._hash_of(waiting[id]) in closed

    @property
    def inadmissible_count(self) -> int:
        """How many are parked."""
        closed = self._equivalence_queue.inadmissible_hashes
        waiting = self._equivalence_queue.waiting.values() if closed else ()
        return len(self._inadmissible) + sum(self._hash_of(request) in closed for request in waiting)

    def newly_inadmissible(self) -> list[WorkloadRequest]:
        """Workloads that are parked and came, or changed, since they were named here; each is named once.

        Only those are looked at to whom something happened: a lane may be long.
        """
        ids = self._touched
        for shape in self._equivalence_queue.inadmissible_hashes.keys() - self._reported_hashes:
            ids.update(request.id for request in self._equivalence_queue.of_hash(shape))
        self._touched, self._reported_hashes = set(), frozenset(self._equivalence_queue.inadmissible_hashes)
        found = [id for id in ids - self._reported if self.is_inadmissible(id)]
        self._reported.update(found)
        return [self._inadmissible.get(id) or self._equivalence_queue.waiting[id] for id in found]

    def is_sticky(self, id: int) -> bool:
        """True for the workload whose preemptions are under way."""
        return self._sticky == id

    def refusal(self, id: int) -> str | None:
        """Why the shape of a parked workload was refused; None if nothing says so (GetNoFitReason)."""
        request = self._inadmissible.get(id) or self._equivalence_queue.waiting.get(id)
        return None if request is None else self._equivalence_queue.inadmissible_hashes.get(self._hash_of(request))

    def head(self, usage: QueueUsage | None = None) -> WorkloadRequest | None:
        """The workload that is tried next, or None when nothing active waits."""
        held = self._held()
        if not self._taking_turns:
            return held or self._equivalence_queue.head(_ALL_LOCAL_QUEUES)
        assert usage is not None
        heads = self._equivalence_queue.heads()
        if held is not None:
            heads[held.workload.local_queue] = held
        return min(
            heads.values(),
            key=lambda head: (usage(head.workload.local_queue), head.id != self._sticky, head.order),
            default=None,
        )

    def take(self, head: WorkloadRequest) -> None:
        """Take the head out of the queue; it comes back by `requeue` or not at all."""
        self.members += 1
        self._equivalence_queue.remove(head.id)

    def _held(self) -> WorkloadRequest | None:
        """The workload whose preemptions are under way, where it is the head of its LocalQueue, or of all."""
        if self._sticky is None or self._strict:
            return None
        held = self._equivalence_queue.waiting.get(self._sticky)
        return (
            held
            if held is not None and self._hash_of(held) not in self._equivalence_queue.inadmissible_hashes
            else None
        )

    def requeue(
        self, request: WorkloadRequest, reason: RequeueReason, *, ready: bool, more_flavors: bool, granular: str = ""
    ) -> None:
        """Take back a head that was not admitted.

        It is tried again in the next cycle when its reason calls for that or flavors are left to try, unless its
        backoff has not ended (`ready`); else it is parked, and with it everything of its shape. `granular` is the
        reason that its condition gives.
        """
        if reason in _MAKES_ROOM:
            self._sticky = request.id
        at_once = reason is not RequeueReason.NAMESPACE_MISMATCH if self._strict else reason in _AT_ONCE
        if ready and (at_once or more_flavors):
            self._push(request)
            return
        self._move_to_inadmissible(request)
        if self._hashing and reason in _MARKS_CLASS:
            self.mark_classes_inadmissible([(request, granular)])

    def set_sticky(self, request: WorkloadRequest) -> None:
        """The victims of this workload are terminating: under BestEffortFIFO it is the head."""
        self.version += 1
        self._sticky = request.id

    def mark_unrefused_classes_admissible(self) -> None:
        """Open the lanes of shapes of which nobody was refused who is still parked."""
        if not self._equivalence_queue.inadmissible_hashes:
            return
        refused = {request.scheduling_hash for request in self._inadmissible.values()}
        if self._equivalence_queue.mark_admissible(
            [shape for shape in self._equivalence_queue.inadmissible_hashes if shape not in refused]
        ):
            self.version += 1

    @property
    def strict(self) -> bool:
        """True under StrictFIFO: a head that is refused stays the head."""
        return self._strict

    @property
    def uses_scheduling_hash(self) -> bool:
        """True if one that is refused stands for all of its shape."""
        return self._hashing

    @property
    def has_no_inadmissible_class(self) -> bool:
        """True if no lane is closed."""
        return not self._equivalence_queue.inadmissible_hashes

    def class_heads(self) -> Iterator[WorkloadRequest]:
        """The first workloads of all open lanes, in order; nobody where one comes before its turn.

        Nothing may be closed, or come, meanwhile.
        """
        if self._taking_turns or self._requeued_from_local_queue or self._sticky in self._equivalence_queue.waiting:
            return iter(())
        return self._equivalence_queue.class_heads(_ALL_LOCAL_QUEUES)

    def mark_classes_inadmissible(self, refused: Iterable[tuple[WorkloadRequest, str]]) -> None:
        """Refuse all of the shapes of these heads until the tree wakes, by the granular reasons of their conditions."""
        self.version += 1
        shapes = {
            head.scheduling_hash: granular or GranularReason.PENDING_EVALUATION.value for head, granular in refused
        }
        self._rejoin_class(shapes)
        self._equivalence_queue.mark_inadmissible(shapes)

    def _rejoin_class(self, shapes: Container[bytes]) -> None:
        """Let those of these shapes who have lanes of their own stand with the others of their shape."""
        for request in [
            self._equivalence_queue.waiting[id]
            for id in self._requeued_from_local_queue
            if id in self._equivalence_queue.waiting
        ]:
            if request.scheduling_hash in shapes:
                self._requeued_from_local_queue.discard(request.id)
                self._push(request)

    def mark_classes_admissible(self, heads: Iterable[WorkloadRequest]) -> None:
        """Take back that the lanes of these heads were closed."""
        if self._equivalence_queue.mark_admissible(head.scheduling_hash for head in heads):
            self.version += 1

    def requeue_inadmissible(
        self, ready: Callable[[WorkloadRequest], bool], matches: Callable[[WorkloadRequest], bool] | None
    ) -> None:
        """Open all lanes and bring back the parked workloads whose backoff has ended and whose namespace matches.

        `matches` is None where every namespace does.
        """
        self.version += 1
        opened = self._equivalence_queue.mark_all_admissible()
        self._rejoin_class(opened)
        if matches is not None:
            for request in [request for shape in opened for request in self._equivalence_queue.of_hash(shape)]:
                if not matches(request):
                    self._move_to_inadmissible(request)
        for request in list(self._inadmissible.values()):
            if ready(request) and (matches is None or matches(request)):
                self._push(request)

    def listing(self, usage: QueueUsage | None = None) -> list[tuple[WorkloadRequest, bool]]:
        """Everything that waits, in queue order, with whether it is parked."""
        everything = [*self._equivalence_queue.waiting.values(), *self._inadmissible.values()]
        sticky = None if self._strict else self._sticky
        everything.sort(key=lambda request: (request.id != sticky, request.order))
        if self._taking_turns and usage is not None:
            everything.sort(key=lambda request: usage(request.workload.local_queue))
        return [(request, self.is_inadmissible(request.id)) for request in everything]

    @property
    def requeued_from_local_queue(self) -> tuple[int, ...]:
        """Workloads that are tried though their shape was refused, by id."""
        return tuple(sorted(self._requeued_from_local_queue))

    def dump(self) -> tuple[tuple[int, ...], tuple[tuple[bytes, str], ...], int | None]:
        """What the workloads themselves do not say: who is parked, which shapes and why, and who is sticky."""
        return (
            tuple(self._inadmissible),
            tuple(sorted(self._equivalence_queue.inadmissible_hashes.items())),
            self._sticky,
        )

    def load(
        self,
        inadmissible: Iterable[int],
        closed: Iterable[tuple[bytes, str]],
        sticky: int | None,
        brought_back: Iterable[int] = (),
    ) -> None:
        """Take in what `memory` gave; the workloads must be there."""
        self.version += 1
        self._equivalence_queue.mark_all_admissible()
        self._requeued_from_local_queue = set(brought_back)
        for number in self._requeued_from_local_queue & self._equivalence_queue.waiting.keys():
            self._push(self._equivalence_queue.waiting[number])
        self._equivalence_queue.mark_inadmissible(dict(closed))
        self._sticky = sticky
        wanted = set(inadmissible)
        for number in wanted & self._equivalence_queue.waiting.keys():
            self.mark_inadmissible(self._equivalence_queue.waiting[number])
        for number in self._inadmissible.keys() - wanted:
            self.push(self._inadmissible[number])

    def _hash_of(self, request: WorkloadRequest) -> bytes:
        if not self._hashing:
            return _NO_HASH
        return (
            request.scheduling_hash + _OWN_CLASS_SUFFIX
            if request.id in self._requeued_from_local_queue
            else request.scheduling_hash
        )

    def _class_of(self, request: WorkloadRequest) -> EquivalenceClass:
        return request.workload.local_queue if self._taking_turns else _ALL_LOCAL_QUEUES, self._hash_of(request)
