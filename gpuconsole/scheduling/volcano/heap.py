"""A heap whose order may change while it is in use, as Volcano's queues of queues, jobs and tasks do."""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class Heap(Generic[T]):
    """A binary heap. Mutates.

    What comes first is asked of `first` at each step, and elements are compared in the order that Go's container/heap
    compares them: an order that changes meanwhile leaves the same traces.
    """

    __slots__ = ("_first", "_items")

    def __init__(self, first: Callable[[T, T], bool], items: Iterable[T] = ()) -> None:
        self._first = first
        self._items: list[T] = []
        for item in items:
            self.push(item)

    def __len__(self) -> int:
        return len(self._items)

    def push(self, item: T) -> None:
        self._items.append(item)
        self._up(len(self._items) - 1)

    def pop(self) -> T:
        """Take the first out."""
        items = self._items
        last = len(items) - 1
        items[0], items[last] = items[last], items[0]
        self._down(last)
        return items.pop()

    def clone(self) -> "Heap[T]":
        twin: Heap[T] = Heap(self._first)
        twin._items = self._items[:]
        return twin

    def _up(self, at: int) -> None:
        items = self._items
        while at:
            parent = (at - 1) // 2
            if not self._first(items[at], items[parent]):
                break
            items[at], items[parent] = items[parent], items[at]
            at = parent

    def _down(self, end: int) -> None:
        items, at = self._items, 0
        while (child := 2 * at + 1) < end:
            if child + 1 < end and self._first(items[child + 1], items[child]):
                child += 1
            if not self._first(items[child], items[at]):
                break
            items[at], items[child] = items[child], items[at]
            at = child
