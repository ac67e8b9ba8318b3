"""Long computations in steps, so that the caller can handle events between steps, show progress, or cancel."""

from collections import deque
from collections.abc import Generator, Iterable
from typing import Generic, TypeAlias, TypeVar

from msgspec import Struct

T = TypeVar("T")
P = TypeVar("P")

Steps: TypeAlias = Generator[None, None, T]
"""Each step does a part of the work; the generator returns the result."""


class Progress(Struct, Generic[T], frozen=True, kw_only=True):
    """Progress of a long analysis, with the answer so far.

    An analysis is an iterator of these; the last one has the complete answer. To cancel it, stop iterating.
    """

    done: int = 0
    """Completed part of what it is doing, in the unit of `total`: a number of kinds or runs, or simulated time."""
    total: int | None = None
    """The whole of it; None if unknown."""
    doing: str = ""
    """What is being computed, in words; empty if there is only one thing to do."""
    answer: T | None = None
    """The answer so far; None if it has not changed since the last one."""
    last: bool = False
    """True if the answer is complete and nothing follows."""


def run_to_end(steps: Steps[T]) -> T:
    """Run all steps and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: T = end.value
            return made


def report_steps(steps: Steps[T], progress: P) -> Generator[P, None, T]:
    """Run all steps and return the result; yield `progress` after each of them."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: T = end.value
            return made
        yield progress


def complete_answer(analysis: Iterable[Progress[T]]) -> T:
    """Run an analysis to its end and return the complete answer."""
    # Only the last one is kept, as an answer may be large.
    last = deque(analysis, maxlen=1).pop()
    assert last.last
    assert last.answer is not None
    return last.answer
