"""Priority of the worker's questions: those that a user waits for run before those that fill columns."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

LONGEST = 10.0
"""Maximum seconds that a question of low priority waits."""


class PriorityLock:
    """Counts urgent questions, and lets others wait for them. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._awaited = 0

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """Mark a question as urgent for the duration of this context."""
        with self._changed:
            self._awaited += 1
        try:
            yield
        finally:
            with self._changed:
                self._awaited -= 1
                self._changed.notify_all()

    def let_pass(self) -> None:
        """Wait until no question is urgent, but not longer than `LONGEST`."""
        with self._changed:
            self._changed.wait_for(lambda: not self._awaited, LONGEST)
