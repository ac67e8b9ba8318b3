"""Work that is done piece by piece, so that whoever does it can look up from it in between."""

from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]
"""Each step does a piece; the last one gives what was made."""


def run_to_end(steps: Steps[T]) -> T:
    """What comes of it, without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: T = end.value
            return made
