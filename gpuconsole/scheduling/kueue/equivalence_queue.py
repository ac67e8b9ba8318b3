"""The equivalence classes of one ClusterQueue: pending workloads by scheduling hash, and the sorted heads of the
classes.

A class may be inadmissible: then none of its workloads becomes the head. Entries are deleted lazily: a stale entry is
dropped when it reaches the front of its class, and the sorted heads are updated on the next read.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush
from itertools import islice

from gpuconsole.scheduling.kueue.requests import Order, WorkloadRequest

EquivalenceClass = tuple[str, bytes]
"""A LocalQueue's key (under admission fair sharing) and a scheduling hash."""
_Entry = tuple[Order, int]
_ClassHead = tuple[Order, EquivalenceClass, WorkloadRequest]


class EquivalenceQueue:
    """Workloads in equivalence classes, some of them inadmissible. Mutates; `copy` returns an independent copy."""

    __slots__ = (
        "_class_heads",
        "_entries",
        "_heaps",
        "_inadmissible_prefix",
        "_sorted_heads",
        "_stale",
        "inadmissible_hashes",
        "waiting",
    )

    def __init__(self) -> None:
        self.waiting: dict[int, WorkloadRequest] = {}
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
        twin = EquivalenceQueue()
        twin.waiting, twin.inadmissible_hashes = self.waiting.copy(), self.inadmissible_hashes.copy()
        twin._heaps = {equivalence_class: heap[:] for equivalence_class, heap in self._heaps.items()}
        twin._entries, twin._class_heads = self._entries.copy(), self._class_heads.copy()
        twin._sorted_heads = {local_queue: line[:] for local_queue, line in self._sorted_heads.items()}
        twin._stale, twin._inadmissible_prefix = self._stale.copy(), self._inadmissible_prefix.copy()
        return twin

    def add(self, request: WorkloadRequest, equivalence_class: EquivalenceClass) -> None:
        """Add or update a workload."""
        number, entry = request.id, (request.order, request.id)
        self.waiting[number] = request
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
        self.waiting[request.id] = request
        self._stale.add(self._entries[request.id][1])

    def remove(self, number: int) -> None:
        """Remove a workload, if present."""
        if self.waiting.pop(number, None) is not None:
            self._stale.add(self._entries[number][1])

    def of_hash(self, shape: bytes) -> Iterator[WorkloadRequest]:
        """Yield all workloads of a scheduling hash, in no particular order."""
        for equivalence_class in [(local_queue, shape) for local_queue in self._sorted_heads]:
            for entry in list(self._heaps.get(equivalence_class, ())):
                request = self.waiting.get(entry[1])
                if request is not None and self._entries[entry[1]] == (entry, equivalence_class):
                    yield request

    def mark_inadmissible(self, shapes: Mapping[bytes, str]) -> None:
        """Mark the classes of these hashes inadmissible, with the reasons."""
        self.inadmissible_hashes.update(shapes)

    def mark_admissible(self, shapes: Iterable[bytes]) -> bool:
        """Make the classes of these hashes admissible; True if any was inadmissible."""
        closed, before = self.inadmissible_hashes, len(self.inadmissible_hashes)
        for shape in shapes if closed else ():
            closed.pop(shape, None)
        if len(closed) == before:
            return False
        self._inadmissible_prefix.clear()
        return True

    def mark_all_admissible(self) -> Mapping[bytes, str]:
        """Make all classes admissible; returns the hashes of those that were not."""
        closed, self.inadmissible_hashes = self.inadmissible_hashes, {}
        self._inadmissible_prefix.clear()
        return closed

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
        for _, (_, shape), request in islice(
            self._up_to_date_heads(local_queue), self._inadmissible_prefix.get(local_queue, 0), None
        ):
            if shape not in self.inadmissible_hashes:
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
                request = self.waiting.get(entry[1])
                if request is not None:
                    return request
                del self._entries[entry[1]]
            heappop(heap)
        self._heaps.pop(equivalence_class, None)
        return None
