"""A binary heap that tolerates an ordering that changes while items are queued, as the queues of Volcano and KAI do."""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class Heap(Generic[T]):
    """Priority queue ordered by `before(left, right)`, of at most `depth` items unless that is negative. Mutates.

    Items are compared in the same sequence as in Go's container/heap, so that an ordering that changes while items are
    queued has the same effects.
    """

    __slots__ = ("_before", "_depth", "_items")

    def __init__(self, before: Callable[[T, T], bool], items: Iterable[T] = (), *, depth: int = -1) -> None:
        self._before, self._depth = before, depth
        self._items: list[T] = []
        for item in items:
            self.push(item)

    def __len__(self) -> int:
        return len(self._items)

    def push(self, item: T) -> None:
        """Add an item; beyond the depth, the item at the last position of the array is dropped."""
        self._items.append(item)
        self._sift_up(len(self._items) - 1)
        if 0 <= self._depth < len(self._items):
            self._items.pop(self._depth)

    def peek(self) -> T:
        """Return the first item without removing it."""
        return self._items[0]

    def pop(self) -> T:
        """Remove and return the first item."""
        items = self._items
        items[0], items[-1] = items[-1], items[0]
        item = items.pop()
        self.restore_order()
        return item

    def restore_order(self) -> None:
        """Restore the order after the first item changed."""
        items, at, end = self._items, 0, len(self._items)
        while (child := 2 * at + 1) < end:
            if child + 1 < end and self._before(items[child + 1], items[child]):
                child += 1
            if not self._before(items[child], items[at]):
                return
            items[at], items[child] = items[child], items[at]
            at = child

    def copy(self) -> "Heap[T]":
        """An independent copy with the same items."""
        twin: Heap[T] = Heap(self._before, depth=self._depth)
        twin._items = self._items[:]
        return twin

    def _sift_up(self, at: int) -> None:
        items = self._items
        while at:
            parent = (at - 1) // 2
            if not self._before(items[at], items[parent]):
                return
            items[at], items[parent] = items[parent], items[at]
            at = parent


def heap_sorted(items: Iterable[T], before: Callable[[T, T], bool]) -> list[T]:
    """Return the items in the order in which a heap pops them."""
    heap = Heap(before, items)
    return [heap.pop() for _ in range(len(heap))]
