"""Long computations in steps, so that the caller can handle events between steps."""

from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]
"""Each step does a part of the work; the generator returns the result."""


def run_to_end(steps: Steps[T]) -> T:
    """Run all steps and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: T = end.value
            return made
