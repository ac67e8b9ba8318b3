"""A binary heap whose order may change under it: its top can be put in order again (Go's container/heap)."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Heap(Generic[T]):
    """Items by `before(left, right)`; at most `depth` of them where that is not negative. Mutates."""

    def __init__(self, before: Callable[[T, T], bool], depth: int = -1) -> None:
        self._before, self._depth = before, depth
        self._items: list[T] = []

    def __len__(self) -> int:
        return len(self._items)

    def push(self, item: T) -> None:
        """Add an item; one that is beyond the depth falls out."""
        self._items.append(item)
        self._up(len(self._items) - 1)
        if 0 <= self._depth < len(self._items):
            self._items.pop(self._depth)

    def peek(self) -> T:
        return self._items[0]

    def pop(self) -> T:
        items = self._items
        items[0], items[-1] = items[-1], items[0]
        item = items.pop()
        if items:
            self._down(0)
        return item

    def settle(self) -> None:
        """Put the first item where it belongs now."""
        self._down(0)

    def _up(self, at: int) -> None:
        items = self._items
        while at > 0:
            parent = (at - 1) // 2
            if not self._before(items[at], items[parent]):
                return
            items[at], items[parent] = items[parent], items[at]
            at = parent

    def _down(self, at: int) -> None:
        items = self._items
        while (left := 2 * at + 1) < len(items):
            right = left + 1
            first = right if right < len(items) and self._before(items[right], items[left]) else left
            if not self._before(items[first], items[at]):
                return
            items[at], items[first] = items[first], items[at]
            at = first


def ordered(items: "list[T]", before: Callable[[T, T], bool]) -> list[T]:
    """The items as a heap gives them out."""
    heap = Heap(before)
    for item in items:
        heap.push(item)
    return [heap.pop() for _ in range(len(heap))]
