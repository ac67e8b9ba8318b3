"""The queue of one ClusterQueue: its head and its inadmissible workloads (Kueue 0.19 pkg/cache/queue/cluster_queue.go).

Pending workloads are grouped into equivalence classes, one per scheduling hash. The scheduler gives all workloads of a
class the same answer, so when one is refused for lack of quota, the whole class is marked inadmissible until a change
in the cohort tree requeues it. Other workloads are marked inadmissible one by one. Under admission fair sharing each
LocalQueue has its own classes, and the head comes from the LocalQueue with the least recent usage.

`ClusterQueueHeap` is the queue. It keeps the classes in an `EquivalenceQueue`, which deletes lazily: a stale entry is
dropped when it reaches the front of its class, and the sorted heads of the classes are updated on the next read.
"""

from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from enum import StrEnum
from heapq import heappop, heappush
from itertools import islice

from gpuconsole.scheduling.kueue.messages import GranularReason
from gpuconsole.scheduling.kueue.pod_resources import Order, WorkloadRequest

EquivalenceClass = tuple[str, bytes]
"""A LocalQueue's key (under admission fair sharing) and a scheduling hash."""
_Entry = tuple[Order, int]
_ClassHead = tuple[Order, EquivalenceClass, WorkloadRequest]


class EquivalenceQueue:
    """Priority queue of workloads in equivalence classes, each admissible or inadmissible as a whole. Mutates."""

    __slots__ = (
        "_class_heads",
        "_entries",
        "_heaps",
        "_inadmissible_prefix",
        "_sorted_heads",
        "_stale",
        "inadmissible_hashes",
        "pending",
    )

    def __init__(self) -> None:
        self.pending: dict[int, WorkloadRequest] = {}
        """All workloads by id; read-only for callers."""
        self.inadmissible_hashes: dict[bytes, str] = {}
        """Hashes of the inadmissible classes → reason; read-only for callers."""
        self._heaps: dict[EquivalenceClass, list[_Entry]] = {}
        self._entries: dict[int, tuple[_Entry, EquivalenceClass]] = {}
        """Where an id's valid entry is; any other entry of that id is void."""
        self._sorted_heads: dict[str, list[_ClassHead]] = {}
        """LocalQueue → the head of each class, admissible or not, in order."""
        self._class_heads: dict[EquivalenceClass, _ClassHead] = {}
        """Equivalence class → its entry in the sorted heads."""
        self._stale: set[EquivalenceClass] = set()
        """Classes whose head may have changed."""
        self._inadmissible_prefix: dict[str, int] = {}
        """LocalQueue → number of leading sorted heads whose classes are inadmissible."""

    def copy(self) -> "EquivalenceQueue":
        """Return an independent copy."""
        copied = EquivalenceQueue()
        copied.pending, copied.inadmissible_hashes = self.pending.copy(), self.inadmissible_hashes.copy()
        copied._heaps = {equivalence_class: heap[:] for equivalence_class, heap in self._heaps.items()}
        copied._entries, copied._class_heads = self._entries.copy(), self._class_heads.copy()
        copied._sorted_heads = {local_queue: line[:] for local_queue, line in self._sorted_heads.items()}
        copied._stale, copied._inadmissible_prefix = self._stale.copy(), self._inadmissible_prefix.copy()
        return copied

    def add(self, request: WorkloadRequest, equivalence_class: EquivalenceClass) -> None:
        """Add or update a workload."""
        number, entry = request.id, (request.order, request.id)
        self.pending[number] = request
        self._stale.add(equivalence_class)
        known = self._entries.get(number)
        if known == (entry, equivalence_class):
            return
        if known is not None:
            self._stale.add(known[1])
        self._entries[number] = entry, equivalence_class
        heappush(self._heaps.setdefault(equivalence_class, []), entry)
        self._sorted_heads.setdefault(equivalence_class[0], [])

    def replace(self, request: WorkloadRequest) -> None:
        """Update a workload whose position does not change."""
        self.pending[request.id] = request
        self._stale.add(self._entries[request.id][1])

    def remove(self, number: int) -> None:
        """Remove a workload, if present."""
        if self.pending.pop(number, None) is not None:
            self._stale.add(self._entries[number][1])

    def workloads_with_hash(self, scheduling_hash: bytes) -> Iterator[WorkloadRequest]:
        """Yield all workloads of a scheduling hash, in no particular order."""
        for equivalence_class in [(local_queue, scheduling_hash) for local_queue in self._sorted_heads]:
            for entry in list(self._heaps.get(equivalence_class, ())):
                request = self.pending.get(entry[1])
                if request is not None and self._entries[entry[1]] == (entry, equivalence_class):
                    yield request

    def mark_inadmissible(self, scheduling_hashes: Mapping[bytes, str]) -> None:
        """Mark the classes of these hashes inadmissible, with the reasons."""
        self.inadmissible_hashes.update(scheduling_hashes)

    def mark_admissible(self, scheduling_hashes: Iterable[bytes]) -> bool:
        """Make the classes of these hashes admissible; True if any was inadmissible."""
        inadmissible_classes, before = self.inadmissible_hashes, len(self.inadmissible_hashes)
        for scheduling_hash in scheduling_hashes if inadmissible_classes else ():
            inadmissible_classes.pop(scheduling_hash, None)
        if len(inadmissible_classes) == before:
            return False
        self._inadmissible_prefix.clear()
        return True

    def mark_all_admissible(self) -> Mapping[bytes, str]:
        """Make all classes admissible; returns the hashes of those that were not."""
        inadmissible_classes, self.inadmissible_hashes = self.inadmissible_hashes, {}
        self._inadmissible_prefix.clear()
        return inadmissible_classes

    @property
    def has_head(self) -> bool:
        """True if any workload is admissible."""
        for local_queue in self._sorted_heads:  # noqa: SIM110 - asked of many queues a cycle
            if self.head(local_queue) is not None:
                return True
        return False

    def heads(self) -> dict[str, WorkloadRequest]:
        """Return the first admissible workload of each LocalQueue that has one."""
        return {
            local_queue: first for local_queue in self._sorted_heads if (first := self.head(local_queue)) is not None
        }

    def head(self, local_queue: str) -> WorkloadRequest | None:
        """Return the first admissible workload of a LocalQueue; None if there is none."""
        line, at = self._up_to_date_heads(local_queue), self._inadmissible_prefix.get(local_queue, 0)
        while at < len(line) and line[at][1][1] in self.inadmissible_hashes:
            at += 1
        self._inadmissible_prefix[local_queue] = at
        return line[at][2] if at < len(line) else None

    def class_heads(self, local_queue: str) -> Iterator[WorkloadRequest]:
        """Yield the head of each admissible class of a LocalQueue, in order; the queue must not change meanwhile."""
        for _, (_, scheduling_hash), request in islice(
            self._up_to_date_heads(local_queue), self._inadmissible_prefix.get(local_queue, 0), None
        ):
            if scheduling_hash not in self.inadmissible_hashes:
                yield request

    def _up_to_date_heads(self, local_queue: str) -> list[_ClassHead]:
        """Return the sorted class heads of a LocalQueue after updating the stale ones."""
        if self._stale:
            stale, self._stale = self._stale, set()
            if len(stale) * 4 > len(self._class_heads):
                self._rebuild(stale)
            else:
                for equivalence_class in stale:
                    self._reposition(equivalence_class)
        return self._sorted_heads.get(local_queue, [])

    def _rebuild(self, stale: Iterable[EquivalenceClass]) -> None:
        """Sort all class heads again; faster than moving them one by one when many are stale."""
        for equivalence_class in stale:
            first = self._class_head(equivalence_class)
            if first is None:
                self._class_heads.pop(equivalence_class, None)
            else:
                self._class_heads[equivalence_class] = first.order, equivalence_class, first
        for line in self._sorted_heads.values():
            line.clear()
        for entry in self._class_heads.values():
            self._sorted_heads[entry[1][0]].append(entry)
        for line in self._sorted_heads.values():
            line.sort()
        self._inadmissible_prefix.clear()

    def _reposition(self, equivalence_class: EquivalenceClass) -> None:
        """Move the head of a class to its sorted position."""
        old, first, line = (
            self._class_heads.pop(equivalence_class, None),
            self._class_head(equivalence_class),
            self._sorted_heads[equivalence_class[0]],
        )
        if old is not None and first is not old[2]:
            at = bisect_left(line, old)
            del line[at]
            self._shift_prefix(equivalence_class[0], at, -1)
            old = None
        if first is not None:
            entry = self._class_heads[equivalence_class] = old or (first.order, equivalence_class, first)
            if old is None:
                at = bisect_left(line, entry)
                line.insert(at, entry)
                self._shift_prefix(equivalence_class[0], at, 1)

    def _shift_prefix(self, local_queue: str, at: int, by: int) -> None:
        """Adjust the inadmissible prefix after an insertion or deletion at this position."""
        if at < (passed := self._inadmissible_prefix.get(local_queue, 0)):
            self._inadmissible_prefix[local_queue] = at if by > 0 else passed - 1

    def _class_head(self, equivalence_class: EquivalenceClass) -> WorkloadRequest | None:
        """Return the first workload of a class; drops the void entries before it."""
        heap = self._heaps.get(equivalence_class)
        while heap:
            entry = heap[0]
            known = self._entries.get(entry[1])
            if known is not None and known[0] is entry:
                request = self.pending.get(entry[1])
                if request is not None:
                    return request
                del self._entries[entry[1]]
            heappop(heap)
        self._heaps.pop(equivalence_class, None)
        return None


_NO_HASH = b""
_OWN_CLASS_SUFFIX = b"+"
_ALL_LOCAL_QUEUES = ""

QueueUsage = Callable[[str], float]
"""LocalQueue → recent usage; the LocalQueue with the least comes first, before priority and age."""


class RequeueReason(StrEnum):
    """Reason for which a head returns to its queue; decides whether it is retried at once or becomes inadmissible."""

    GENERIC = ""
    FAILED_AFTER_NOMINATION = "FailedAfterNomination"
    NAMESPACE_MISMATCH = "NamespaceMismatch"
    PREEMPTION_GATED = "PreemptionGated"
    PENDING_PREEMPTION = "PendingPreemption"
    PENDING_MIGRATION = "PendingMigration"
    PREEMPTION_FAILED = "PreemptionFailed"
    NO_FIT = "NoFit"
    PREEMPTION_NO_CANDIDATES = "PreemptionNoCandidates"


_WAITS_FOR_VICTIMS = (RequeueReason.PENDING_PREEMPTION, RequeueReason.PENDING_MIGRATION)
_RETRIED_AT_ONCE = (RequeueReason.FAILED_AFTER_NOMINATION, RequeueReason.PREEMPTION_FAILED, *_WAITS_FOR_VICTIMS)
_MARKS_CLASS_INADMISSIBLE = (RequeueReason.NO_FIT, RequeueReason.PREEMPTION_NO_CANDIDATES)


class ClusterQueueHeap:
    """Pending workloads of one ClusterQueue. Mutates; `copy` returns an independent copy."""

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
        """Admission fair sharing is on: then `head` and `sorted_pending` need the usage of LocalQueues."""
        self._equivalence_queue = EquivalenceQueue()
        """All but individually inadmissible workloads, and the inadmissible classes with their granular reasons."""
        self._inadmissible: dict[int, WorkloadRequest] = {}
        """Workloads that became inadmissible one by one, by id."""
        self._requeued_from_local_queue: set[int] = set()
        """Ids of workloads that are tried although their class was refused: they have a class of their own."""
        self._sticky: int | None = None
        """The workload whose preemptions are under way: under BestEffortFIFO it stays the head."""
        self._touched: set[int] = set()
        """Workloads that were added, changed or became inadmissible since `newly_inadmissible` was called."""
        self._reported_hashes: frozenset[bytes] = frozenset()
        """The classes that were inadmissible at that time."""
        self._reported: set[int] = set()
        """Workloads that `newly_inadmissible` has returned and that have not changed since."""
        self.version = 0
        """Grows with every change, but not when a head is taken out for a cycle."""
        self.members = 0
        """Grows whenever the head of a class may have changed."""

    def copy(self) -> "ClusterQueueHeap":
        """Return an independent copy."""
        copied = ClusterQueueHeap(strict=self._strict, hashing=self._hashing, taking_turns=self._taking_turns)
        copied._equivalence_queue, copied._inadmissible, copied._sticky = (
            self._equivalence_queue.copy(),
            self._inadmissible.copy(),
            self._sticky,
        )
        copied._touched, copied._reported_hashes, copied.version = (
            self._touched.copy(),
            self._reported_hashes,
            self.version,
        )
        copied._reported, copied.members = self._reported.copy(), self.members
        copied._requeued_from_local_queue = self._requeued_from_local_queue.copy()
        return copied

    def __len__(self) -> int:
        return len(self._equivalence_queue.pending) + len(self._inadmissible)

    def __contains__(self, id: int) -> bool:
        return id in self._equivalence_queue.pending or id in self._inadmissible

    @property
    def is_idle(self) -> bool:
        """True if no admissible workload is pending, so that there is no head."""
        return not self._equivalence_queue.has_head

    def push(self, request: WorkloadRequest) -> None:
        """Add or update a workload. It is inadmissible at once if its equivalence class is."""
        self._reported.discard(request.id)
        self._push(request)

    def push_from_local_queue(self, request: WorkloadRequest) -> None:
        """Add a workload after its LocalQueue was resumed or redirected; it is tried even if its class is inadmissible.

        Its backoff does not matter either (Kueue 0.19 AddFromLocalQueue, pushToHeapIfNotTracked).
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

    def update_in_place(self, request: WorkloadRequest) -> None:
        """Update a workload whose change does not matter to scheduling; it keeps its position."""
        self.version += 1
        self.members += 1
        if request.id in self._inadmissible:
            self._inadmissible[request.id] = request
        else:
            self._equivalence_queue.replace(request)
        self._touched.add(request.id)
        self._reported.discard(request.id)

    def mark_inadmissible(self, request: WorkloadRequest) -> None:
        """Mark a workload inadmissible until a change in the cohort tree requeues it."""
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
        """Remove a workload that was admitted, finished, deleted or moved."""
        self.version += 1
        self.members += 1
        self._equivalence_queue.remove(id)
        self._requeued_from_local_queue.discard(id)
        self._inadmissible.pop(id, None)
        if self._sticky == id:
            self._sticky = None

    def is_inadmissible(self, id: int) -> bool:
        """True if the workload itself or its class is inadmissible."""
        if id in self._inadmissible:
            return True
        inadmissible_classes, waiting = self._equivalence_queue.inadmissible_hashes, self._equivalence_queue.pending
        return bool(inadmissible_classes) and id in waiting and self._hash_of(waiting[id]) in inadmissible_classes

    @property
    def inadmissible_count(self) -> int:
        """Number of inadmissible workloads."""
        inadmissible_classes = self._equivalence_queue.inadmissible_hashes
        waiting = self._equivalence_queue.pending.values() if inadmissible_classes else ()
        return len(self._inadmissible) + sum(self._hash_of(request) in inadmissible_classes for request in waiting)

    def newly_inadmissible(self) -> list[WorkloadRequest]:
        """Return the workloads that became inadmissible since the last call, each once.

        Only touched workloads and newly inadmissible classes are visited: a class may be large.
        """
        ids = self._touched
        for scheduling_hash in self._equivalence_queue.inadmissible_hashes.keys() - self._reported_hashes:
            ids.update(request.id for request in self._equivalence_queue.workloads_with_hash(scheduling_hash))
        self._touched, self._reported_hashes = set(), frozenset(self._equivalence_queue.inadmissible_hashes)
        found = [id for id in ids - self._reported if self.is_inadmissible(id)]
        self._reported.update(found)
        return [self._inadmissible.get(id) or self._equivalence_queue.pending[id] for id in found]

    def is_sticky(self, id: int) -> bool:
        """True for the sticky workload, which stays the head while its victims terminate."""
        return self._sticky == id

    def class_refusal(self, id: int) -> str | None:
        """Return the reason for which an inadmissible workload's class was refused, if known (GetNoFitReason)."""
        request = self._inadmissible.get(id) or self._equivalence_queue.pending.get(id)
        return None if request is None else self._equivalence_queue.inadmissible_hashes.get(self._hash_of(request))

    def head(self, usage: QueueUsage | None = None) -> WorkloadRequest | None:
        """Return the workload that is tried next; None if no admissible workload is pending.

        `usage` is required under admission fair sharing.
        """
        held = self._waiting_head()
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

    def take_head(self, head: WorkloadRequest) -> None:
        """Remove the head for a cycle; `requeue` returns it."""
        self.members += 1
        self._equivalence_queue.remove(head.id)

    def _waiting_head(self) -> WorkloadRequest | None:
        """Return the workload whose victims are terminating, if it is still admissible."""
        if self._sticky is None or self._strict:
            return None
        held = self._equivalence_queue.pending.get(self._sticky)
        return (
            held
            if held is not None and self._hash_of(held) not in self._equivalence_queue.inadmissible_hashes
            else None
        )

    def requeue(
        self, request: WorkloadRequest, reason: RequeueReason, *, ready: bool, more_flavors: bool, granular: str = ""
    ) -> None:
        """Requeue a head that was not admitted.

        If its backoff has ended (`ready`), it is retried in the next cycle where `reason` allows that or flavors are
        left to try (`more_flavors`). Otherwise it becomes inadmissible, and for some reasons its whole class with it.
        `granular` is the reason in its condition.
        """
        if reason in _WAITS_FOR_VICTIMS:
            self._sticky = request.id
        at_once = reason is not RequeueReason.NAMESPACE_MISMATCH if self._strict else reason in _RETRIED_AT_ONCE
        if ready and (at_once or more_flavors):
            self._push(request)
            return
        self._move_to_inadmissible(request)
        if self._hashing and reason in _MARKS_CLASS_INADMISSIBLE:
            self.mark_classes_inadmissible([(request, granular)])

    def set_sticky(self, request: WorkloadRequest) -> None:
        """Keep this workload the head under BestEffortFIFO while its victims terminate."""
        self.version += 1
        self._sticky = request.id

    def mark_unrefused_classes_admissible(self) -> None:
        """Make classes admissible again unless a workload of theirs was itself refused since the last requeue."""
        if not self._equivalence_queue.inadmissible_hashes:
            return
        refused = {request.scheduling_hash for request in self._inadmissible.values()}
        if self._equivalence_queue.mark_admissible(
            [
                scheduling_hash
                for scheduling_hash in self._equivalence_queue.inadmissible_hashes
                if scheduling_hash not in refused
            ]
        ):
            self.version += 1

    @property
    def is_strict(self) -> bool:
        """True under StrictFIFO: a refused head stays the head."""
        return self._strict

    @property
    def uses_scheduling_hash(self) -> bool:
        """True if one refusal applies to the whole equivalence class."""
        return self._hashing

    @property
    def has_no_inadmissible_class(self) -> bool:
        """True if every equivalence class is admissible."""
        return not self._equivalence_queue.inadmissible_hashes

    def class_heads(self) -> Iterator[WorkloadRequest]:
        """Yield the heads of all admissible classes, in order.

        Yields none under admission fair sharing, or if a sticky workload or one of `requeued_from_local_queue` may
        precede them. The queue must not change during the iteration.
        """
        if self._taking_turns or self._requeued_from_local_queue or self._sticky in self._equivalence_queue.pending:
            return iter(())
        return self._equivalence_queue.class_heads(_ALL_LOCAL_QUEUES)

    def mark_classes_inadmissible(self, refused: Iterable[tuple[WorkloadRequest, str]]) -> None:
        """Mark the classes of these heads inadmissible, with the granular reasons of their conditions."""
        self.version += 1
        scheduling_hashes = {
            head.scheduling_hash: granular or GranularReason.PENDING_EVALUATION.value for head, granular in refused
        }
        self._rejoin_class(scheduling_hashes)
        self._equivalence_queue.mark_inadmissible(scheduling_hashes)

    def _rejoin_class(self, scheduling_hashes: Container[bytes]) -> None:
        """Move workloads with a class of their own back to the class of their hash, for these hashes."""
        for request in [
            self._equivalence_queue.pending[id]
            for id in self._requeued_from_local_queue
            if id in self._equivalence_queue.pending
        ]:
            if request.scheduling_hash in scheduling_hashes:
                self._requeued_from_local_queue.discard(request.id)
                self._push(request)

    def mark_classes_admissible(self, heads: Iterable[WorkloadRequest]) -> None:
        """Make the classes of these heads admissible again."""
        if self._equivalence_queue.mark_admissible(head.scheduling_hash for head in heads):
            self.version += 1

    def requeue_inadmissible(
        self, ready: Callable[[WorkloadRequest], bool], matches: Callable[[WorkloadRequest], bool] | None
    ) -> None:
        """Make all classes admissible, and requeue the inadmissible workloads whose backoff has ended and whose
        namespace matches.

        `matches` is None if every namespace matches.
        """
        self.version += 1
        opened = self._equivalence_queue.mark_all_admissible()
        self._rejoin_class(opened)
        if matches is not None:
            for request in [
                request
                for scheduling_hash in opened
                for request in self._equivalence_queue.workloads_with_hash(scheduling_hash)
            ]:
                if not matches(request):
                    self._move_to_inadmissible(request)
        for request in list(self._inadmissible.values()):
            if ready(request) and (matches is None or matches(request)):
                self._push(request)

    def sorted_pending(self, usage: QueueUsage | None = None) -> list[tuple[WorkloadRequest, bool]]:
        """Return all pending workloads in queue order, each with whether it is inadmissible."""
        everything = [*self._equivalence_queue.pending.values(), *self._inadmissible.values()]
        sticky = None if self._strict else self._sticky
        everything.sort(key=lambda request: (request.id != sticky, request.order))
        if self._taking_turns and usage is not None:
            everything.sort(key=lambda request: usage(request.workload.local_queue))
        return [(request, self.is_inadmissible(request.id)) for request in everything]

    @property
    def requeued_from_local_queue(self) -> tuple[int, ...]:
        """Ids of workloads that are tried although their class was refused."""
        return tuple(sorted(self._requeued_from_local_queue))

    def dump(self) -> tuple[tuple[int, ...], tuple[tuple[bytes, str], ...], int | None]:
        """Return the state that is not in the workloads: inadmissible ids, inadmissible classes with reasons, sticky
        id.
        """
        return (
            tuple(self._inadmissible),
            tuple(sorted(self._equivalence_queue.inadmissible_hashes.items())),
            self._sticky,
        )

    def load(
        self,
        inadmissible: Iterable[int],
        inadmissible_classes: Iterable[tuple[bytes, str]],
        sticky: int | None,
        requeued_from_local_queue: Iterable[int] = (),
    ) -> None:
        """Restore a saved queue: the three values that `dump` returned, and those of `requeued_from_local_queue`.

        The workloads must be queued already.
        """
        self.version += 1
        self._equivalence_queue.mark_all_admissible()
        before, self._requeued_from_local_queue = self._requeued_from_local_queue, set(requeued_from_local_queue)
        for number in (before ^ self._requeued_from_local_queue) & self._equivalence_queue.pending.keys():
            self._push(self._equivalence_queue.pending[number])
        self._equivalence_queue.mark_inadmissible(dict(inadmissible_classes))
        self._sticky = sticky
        wanted = set(inadmissible)
        for number in wanted & self._equivalence_queue.pending.keys():
            self.mark_inadmissible(self._equivalence_queue.pending[number])
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
