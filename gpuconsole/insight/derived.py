"""Two ways to cache what is computed from a Snapshot: several panes need the same answer, and most rows rarely change.

Both keep their results in the cluster's `DerivedData`; nothing is cached for the whole process.
"""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from gpuconsole.model.snapshot import Snapshot

Answer = TypeVar("Answer")
Rest = ParamSpec("Rest")


def memoized(*tables: str) -> Callable[[Callable[[Snapshot], Answer]], Callable[[Snapshot], Answer]]:
    """Decorate a function of a Snapshot that reads only its tables `tables`, to cache its last two answers.

    Two, since answers before and after a change are compared. Unchanged tables are the same objects in the next
    Snapshot. The function must not read anything else of the Snapshot, not even its time.
    """

    def decorate(compute: Callable[[Snapshot], Answer]) -> Callable[[Snapshot], Answer]:
        @wraps(compute)
        def cached(snapshot: Snapshot) -> Answer:
            now = tuple(getattr(snapshot, table) for table in tables)
            known: tuple[tuple[tuple[object, ...], Answer], ...] = snapshot.derived.get(compute) or ()
            for at, (inputs, answer) in enumerate(known):
                if all(old is new for old, new in zip(inputs, now, strict=True)):
                    if at:
                        snapshot.derived.put(compute, known[::-1])
                    return answer
            answer = compute(snapshot)
            snapshot.derived.put(compute, ((now, answer), *known[:1]))
            return answer

        return cached

    return decorate


def incremental(
    start: Answer,
) -> Callable[[Callable[Concatenate[Snapshot, Answer, Rest], Answer]], Callable[Concatenate[Snapshot, Rest], Answer]]:
    """Decorate a function that computes its answer for a Snapshot from its answer for an earlier one, or from `start`.

    The earlier Snapshot may be any other one of the cluster, also a later one. The function must not change its earlier
    answer, as other threads read it.
    """

    def decorate(
        compute: Callable[Concatenate[Snapshot, Answer, Rest], Answer],
    ) -> Callable[Concatenate[Snapshot, Rest], Answer]:
        @wraps(compute)
        def updated(snapshot: Snapshot, /, *args: Rest.args, **kwargs: Rest.kwargs) -> Answer:
            known = snapshot.derived.get(compute)
            before: Answer = start if known is None else known
            answer = compute(snapshot, before, *args, **kwargs)
            if answer is not before:
                snapshot.derived.put(compute, answer)
            return answer

        return updated

    return decorate
