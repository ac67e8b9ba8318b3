"""The lanes of one ClusterQueue: waiting workloads by shape, and the first of each lane in a line, in order.

A lane may be closed: then nobody in it is next. Entries are deleted lazily: what left its lane is dropped when it comes
first in it, and where the first of a lane stands in the line is looked up when somebody asks who is next.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush
from itertools import islice

from gpuconsole.scheduling.kueue.requests import Order, Request

Lane = tuple[str, bytes]
"""A LocalQueue's key, its door, where they take turns, and a shape."""
_Entry = tuple[Order, int]
_First = tuple[Order, Lane, Request]


class Lanes:
    """Workloads in lanes, of which some are closed. Mutates; `copy` gives an independent twin."""

    __slots__ = ("_entries", "_firsts", "_heaps", "_lines", "_passed", "_stale", "closed", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[int, Request] = {}
        """Everybody in a lane, by id; to be read."""
        self.closed: dict[bytes, str] = {}
        """Shapes whose lanes are closed, and why; to be read."""
        self._heaps: dict[Lane, list[_Entry]] = {}
        self._entries: dict[int, tuple[_Entry, Lane]] = {}
        """Where an id's valid entry is; any other entry of that id is void."""
        self._lines: dict[str, list[_First]] = {}
        """By door the first of each lane, open or not, in order."""
        self._firsts: dict[Lane, _First] = {}
        """Who of a lane stands in its line."""
        self._stale: set[Lane] = set()
        """Lanes whose first may be another one by now."""
        self._passed: dict[str, int] = {}
        """So many at the beginning of a line are in closed lanes."""

    def copy(self) -> "Lanes":
        twin = Lanes()
        twin.waiting, twin.closed = self.waiting.copy(), self.closed.copy()
        twin._heaps = {lane: heap[:] for lane, heap in self._heaps.items()}
        twin._entries, twin._firsts = self._entries.copy(), self._firsts.copy()
        twin._lines = {door: line[:] for door, line in self._lines.items()}
        twin._stale, twin._passed = self._stale.copy(), self._passed.copy()
        return twin

    def add(self, request: Request, lane: Lane) -> None:
        """A workload comes, or has changed."""
        number, entry = request.id, (request.order, request.id)
        self.waiting[number] = request
        self._stale.add(lane)
        known = self._entries.get(number)
        if known == (entry, lane):
            return
        if known is not None:
            self._stale.add(known[1])
        self._entries[number] = entry, lane
        heappush(self._heaps.setdefault(lane, []), entry)
        self._lines.setdefault(lane[0], [])

    def replace(self, request: Request) -> None:
        """A workload has changed in nothing that says where it stands."""
        self.waiting[request.id] = request
        self._stale.add(self._entries[request.id][1])

    def remove(self, number: int) -> None:
        """A workload leaves, if it is there."""
        if self.waiting.pop(number, None) is not None:
            self._stale.add(self._entries[number][1])

    def of_shape(self, shape: bytes) -> Iterator[Request]:
        """Everybody in the lanes of a shape, in no order."""
        for lane in [(door, shape) for door in self._lines]:
            for entry in list(self._heaps.get(lane, ())):
                request = self.waiting.get(entry[1])
                if request is not None and self._entries[entry[1]] == (entry, lane):
                    yield request

    def close(self, shapes: Mapping[bytes, str]) -> None:
        """Close the lanes of these shapes, and say why."""
        self.closed.update(shapes)

    def open(self, shapes: Iterable[bytes]) -> bool:
        """Open the lanes of these shapes; True if any was closed."""
        closed, before = self.closed, len(self.closed)
        for shape in shapes if closed else ():
            closed.pop(shape, None)
        if len(closed) == before:
            return False
        self._passed.clear()
        return True

    def open_all(self) -> Mapping[bytes, str]:
        """Open all lanes; the shapes of those that were closed."""
        closed, self.closed = self.closed, {}
        self._passed.clear()
        return closed

    @property
    def anybody(self) -> bool:
        """True if somebody is in an open lane."""
        for door in self._lines:  # noqa: SIM110 - asked of many queues a cycle
            if self.head(door) is not None:
                return True
        return False

    def heads(self) -> dict[str, Request]:
        """By door the first of all open lanes, where there is one."""
        return {door: first for door in self._lines if (first := self.head(door)) is not None}

    def head(self, door: str) -> Request | None:
        """The first of all open lanes behind a door."""
        line, at = self._settled(door), self._passed.get(door, 0)
        while at < len(line) and line[at][1][1] in self.closed:
            at += 1
        self._passed[door] = at
        return line[at][2] if at < len(line) else None

    def firsts(self, door: str) -> Iterator[Request]:
        """The first of each open lane behind a door, in order; nothing may change meanwhile."""
        for _, (_, shape), request in islice(self._settled(door), self._passed.get(door, 0), None):
            if shape not in self.closed:
                yield request

    def _settled(self, door: str) -> list[_First]:
        """The line at a door, with those in it that are first now."""
        if self._stale:
            stale, self._stale = self._stale, set()
            if len(stale) * 4 > len(self._firsts):
                self._line_up_anew(stale)
            else:
                for lane in stale:
                    self._find_place(lane)
        return self._lines.get(door, [])

    def _line_up_anew(self, stale: Iterable[Lane]) -> None:
        """Quicker than to find each a place where many may have another first."""
        for lane in stale:
            first = self._first(lane)
            if first is None:
                self._firsts.pop(lane, None)
            else:
                self._firsts[lane] = first.order, lane, first
        for line in self._lines.values():
            line.clear()
        for entry in self._firsts.values():
            self._lines[entry[1][0]].append(entry)
        for line in self._lines.values():
            line.sort()
        self._passed.clear()

    def _find_place(self, lane: Lane) -> None:
        """Put whoever is first in a lane where that belongs in the line."""
        old, first, line = self._firsts.pop(lane, None), self._first(lane), self._lines[lane[0]]
        if old is not None and first is not old[2]:
            at = bisect_left(line, old)
            del line[at]
            self._moved(lane[0], at, -1)
            old = None
        if first is not None:
            entry = self._firsts[lane] = old or (first.order, lane, first)
            if old is None:
                at = bisect_left(line, entry)
                line.insert(at, entry)
                self._moved(lane[0], at, 1)

    def _moved(self, door: str, at: int, by: int) -> None:
        """Somebody comes into the line, or leaves it, at this place."""
        if at < (passed := self._passed.get(door, 0)):
            self._passed[door] = at if by > 0 else passed - 1

    def _first(self, lane: Lane) -> Request | None:
        """The first workload of a lane; void entries before it are dropped."""
        heap = self._heaps.get(lane)
        while heap:
            entry = heap[0]
            known = self._entries.get(entry[1])
            if known is not None and known[0] is entry:
                request = self.waiting.get(entry[1])
                if request is not None:
                    return request
                del self._entries[entry[1]]
            heappop(heap)
        self._heaps.pop(lane, None)
        return None
