"""Settings of Python's garbage collector and of the C library's allocator.

State is immutable and acyclic, so collections find almost nothing.
"""

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def collect_seldom() -> None:
    """Make full collections rare, as each takes half a second for a large cluster; young objects are collected often.

    Objects that exist now are excluded from collection permanently.
    """
    gc.freeze()
    gc.set_threshold(2_000, 10, 1_000)


_ARENA_MAX, _ARENAS = -8, 2
"""Number of the option M_ARENA_MAX of glibc's `mallopt`, and its value here."""


def limit_arenas() -> None:
    """Let all threads share two arenas of glibc's malloc, as each arena keeps the memory of its busiest moment.

    Does what MALLOC_ARENA_MAX=2 does; has no effect on threads that have allocated already, or with another C library.
    """
    mallopt = _of_libc("mallopt")
    if mallopt is not None:
        mallopt(_ARENA_MAX, _ARENAS)


def return_memory() -> None:
    """Return freed memory to the operating system (glibc's `malloc_trim`, which takes some milliseconds)."""
    trim = _of_libc("malloc_trim")
    if trim is not None:
        trim(0)


def _of_libc(name: str) -> Any:
    """Return a function of the C library; None if it has none of this name."""
    try:
        return getattr(ctypes.CDLL(None), name, None)
    except (OSError, TypeError):
        return None


def collect_by_hand() -> None:
    """Disable automatic collection; the caller calls `collect_new` instead, which takes a tenth of the time.

    Objects that exist now are excluded from collection permanently.
    """
    gc.freeze()
    gc.disable()


def collect_new() -> None:
    """Collect the objects that were created since the last call."""
    gc.collect(1)


@contextmanager
def uncollected() -> Iterator[None]:
    """Context manager that disables collection, for computations of seconds that create no reference cycles."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
