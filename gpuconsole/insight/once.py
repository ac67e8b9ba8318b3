"""Remember the newest answer, since several panes ask the same of the same Snapshot, and most tables rarely change."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from gpuconsole.model.snapshot import Snapshot

Answer = TypeVar("Answer")


def once(*tables: str) -> Callable[[Callable[[Snapshot], Answer]], Callable[[Snapshot], Answer]]:
    """Make a pure function of these tables of a Snapshot keep its last answer until one of them changes.

    Tables that did not change are the same object in the next Snapshot. Tables and answer are replaced as one tuple, so
    threads may at worst ask twice. The function must read nothing else of the Snapshot, its time included.
    """

    def keep(question: Callable[[Snapshot], Answer]) -> Callable[[Snapshot], Answer]:
        kept: list[tuple[tuple[object, ...], Answer]] = []

        @wraps(question)
        def ask(snapshot: Snapshot) -> Answer:
            now = tuple(getattr(snapshot, table) for table in tables)
            for known, answer in kept[:]:
                if all(old is new for old, new in zip(known, now, strict=True)):
                    return answer
            answer = question(snapshot)
            kept[:] = [(now, answer)]
            return answer

        return ask

    return keep
