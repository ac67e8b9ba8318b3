"""Cache for functions of a Snapshot: several panes need the same answer, and most tables rarely change."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from gpuconsole.model.snapshot import Snapshot

Answer = TypeVar("Answer")


def memoized(*tables: str) -> Callable[[Callable[[Snapshot], Answer]], Callable[[Snapshot], Answer]]:
    """Decorate a function of a Snapshot that reads only its tables `tables`, to cache the last two answers.

    Two, since a what-if compares baseline and change. Unchanged tables are the same objects in the next Snapshot.
    Tables and answer are replaced as one tuple, so that threads compute an answer twice at worst. The function must not
    read anything else of the Snapshot, not even its time.
    """

    def keep(question: Callable[[Snapshot], Answer]) -> Callable[[Snapshot], Answer]:
        kept: list[tuple[tuple[object, ...], Answer]] = []

        @wraps(question)
        def ask(snapshot: Snapshot) -> Answer:
            now = tuple(getattr(snapshot, table) for table in tables)
            for one in reversed(kept[:]):
                if all(old is new for old, new in zip(one[0], now, strict=True)):
                    if one is not kept[-1]:
                        kept[:] = [kept[-1], one]
                    return one[1]
            answer = question(snapshot)
            kept[:] = [*kept[-1:], (now, answer)]
            return answer

        return ask

    return keep
