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
"""A LocalQueue's key, its door, where they take turns, and a shape."""
_Entry = tuple[Order, int]
_ClassHead = tuple[Order, EquivalenceClass, WorkloadRequest]


class EquivalenceQueue:
    """Workloads in lanes, of which some are closed. Mutates; `copy` gives an independent twin."""

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
        """Everybody in a lane, by id; to be read."""
        self.inadmissible_hashes: dict[bytes, str] = {}
        """Shapes whose lanes are closed, and why; to be read."""
        self._heaps: dict[EquivalenceClass, list[_Entry]] = {}
        self._entries: dict[int, tuple[_Entry, EquivalenceClass]] = {}
        """Where an id's valid entry is; any other entry of that id is void."""
        self._sorted_heads: dict[str, list[_ClassHead]] = {}
        """By door the first of each lane, open or not, in order."""
        self._class_heads: dict[EquivalenceClass, _ClassHead] = {}
        """Who of a lane stands in its line."""
        self._stale: set[EquivalenceClass] = set()
        """Lanes whose first may be another one by now."""
        self._inadmissible_prefix: dict[str, int] = {}
        """So many at the beginning of a line are in closed lanes."""

    def copy(self) -> "EquivalenceQueue":
        twin = EquivalenceQueue()
        twin.waiting, twin.inadmissible_hashes = self.waiting.copy(), self.inadmissible_hashes.copy()
        twin._heaps = {equivalence_class: heap[:] for equivalence_class, heap in self._heaps.items()}
        twin._entries, twin._class_heads = self._entries.copy(), self._class_heads.copy()
        twin._sorted_heads = {local_queue: line[:] for local_queue, line in self._sorted_heads.items()}
        twin._stale, twin._inadmissible_prefix = self._stale.copy(), self._inadmissible_prefix.copy()
        return twin

    def add(self, request: WorkloadRequest, equivalence_class: EquivalenceClass) -> None:
        """A workload comes, or has changed."""
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
        """A workload has changed in nothing that says where it stands."""
        self.waiting[request.id] = request
        self._stale.add(self._entries[request.id][1])

    def remove(self, number: int) -> None:
        """A workload leaves, if it is there."""
        if self.waiting.pop(number, None) is not None:
            self._stale.add(self._entries[number][1])

    def of_hash(self, shape: bytes) -> Iterator[WorkloadRequest]:
        """Everybody in the lanes of a shape, in no order."""
        for equivalence_class in [(local_queue, shape) for local_queue in self._sorted_heads]:
            for entry in list(self._heaps.get(equivalence_class, ())):
                request = self.waiting.get(entry[1])
                if request is not None and self._entries[entry[1]] == (entry, equivalence_class):
                    yield request

    def mark_inadmissible(self, shapes: Mapping[bytes, str]) -> None:
        """Close the lanes of these shapes, and say why."""
        self.inadmissible_hashes.update(shapes)

    def mark_admissible(self, shapes: Iterable[bytes]) -> bool:
        """Open the lanes of these shapes; True if any was closed."""
        closed, before = self.inadmissible_hashes, len(self.inadmissible_hashes)
        for shape in shapes if closed else ():
            closed.pop(shape, None)
        if len(closed) == before:
            return False
        self._inadmissible_prefix.clear()
        return True

    def mark_all_admissible(self) -> Mapping[bytes, str]:
        """Open all lanes; the shapes of those that were closed."""
        closed, self.inadmissible_hashes = self.inadmissible_hashes, {}
        self._inadmissible_prefix.clear()
        return closed

    @property
    def has_head(self) -> bool:
        """True if somebody is in an open lane."""
        for local_queue in self._sorted_heads:  # noqa: SIM110 - asked of many queues a cycle
            if self.head(local_queue) is not None:
                return True
        return False

    def heads(self) -> dict[str, WorkloadRequest]:
        """By door the first of all open lanes, where there is one."""
        return {
            local_queue: first for local_queue in self._sorted_heads if (first := self.head(local_queue)) is not None
        }

    def head(self, local_queue: str) -> WorkloadRequest | None:
        """The first of all open lanes behind a door."""
        line, at = self._up_to_date_heads(local_queue), self._inadmissible_prefix.get(local_queue, 0)
        while at < len(line) and line[at][1][1] in self.inadmissible_hashes:
            at += 1
        self._inadmissible_prefix[local_queue] = at
        return line[at][2] if at < len(line) else None

    def class_heads(self, local_queue: str) -> Iterator[WorkloadRequest]:
        """The first of each open lane behind a door, in order; nothing may change meanwhile."""
        for _, (_, shape), request in islice(
            self._up_to_date_heads(local_queue), self._inadmissible_prefix.get(local_queue, 0), None
        ):
            if shape not in self.inadmissible_hashes:
                yield request

    def _up_to_date_heads(self, local_queue: str) -> list[_ClassHead]:
        """The line at a door, with those in it that are first now."""
        if self._stale:
            stale, self._stale = self._stale, set()
            if len(stale) * 4 > len(self._class_heads):
                self._rebuild(stale)
            else:
                for equivalence_class in stale:
                    self._reposition(equivalence_class)
        return self._sorted_heads.get(local_queue, [])

    def _rebuild(self, stale: Iterable[EquivalenceClass]) -> None:
        """Quicker than to find each a place where many may have another first."""
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
        """Put whoever is first in a lane where that belongs in the line."""
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
        """Somebody comes into the line, or leaves it, at this place."""
        if at < (passed := self._inadmissible_prefix.get(local_queue, 0)):
            self._inadmissible_prefix[local_queue] = at if by > 0 else passed - 1

    def _class_head(self, equivalence_class: EquivalenceClass) -> WorkloadRequest | None:
        """The first workload of a lane; void entries before it are dropped."""
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
