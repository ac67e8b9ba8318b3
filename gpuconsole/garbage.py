"""How seldom garbage is looked for: facts are frozen and acyclic, so that next to nothing is found."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


def collect_seldom() -> None:
    """Let the collector look at what is new, and hardly ever at all that there is.

    A full collection of a big cluster takes half a second. What stands now is left out of collections for good.
    """
    gc.freeze()
    gc.set_threshold(2_000, 10, 1_000)


def collect_by_hand() -> None:
    """Let nobody look for garbage before `collect_new` is called: to look at all that is new takes a tenth of the time.

    What stands now is left out of collections for good.
    """
    gc.freeze()
    gc.disable()


def collect_new() -> None:
    """Look for garbage in what is new since this was called last."""
    gc.collect(1)


@contextmanager
def uncollected() -> Iterator[None]:
    """Inside the block nobody looks for garbage: for an answer that takes seconds and makes none."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
