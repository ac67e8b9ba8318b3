"""Whose turn it is with the worker process: who waits in front of a screen goes before what fills its columns."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

LONGEST = 10.0
"""Seconds after which what goes last takes a turn all the same."""


class PriorityLock:
    """Questions that are being answered, and others that can wait. For any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._awaited = 0

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """From its first piece to its last somebody waits for this answer."""
        with self._changed:
            self._awaited += 1
        try:
            yield
        finally:
            with self._changed:
                self._awaited -= 1
                self._changed.notify_all()

    def let_pass(self) -> None:
        """Return when nobody waits for an answer, or after a long time."""
        with self._changed:
            self._changed.wait_for(lambda: not self._awaited, LONGEST)
