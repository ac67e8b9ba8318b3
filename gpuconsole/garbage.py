"""Settings of Python's garbage collector: state is immutable and acyclic, so collections find almost nothing."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


def collect_seldom() -> None:
    """Make full collections rare, as each takes half a second for a large cluster; young objects are collected often.

    Objects that exist now are excluded from collection permanently.
    """
    gc.freeze()
    gc.set_threshold(2_000, 10, 1_000)


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
