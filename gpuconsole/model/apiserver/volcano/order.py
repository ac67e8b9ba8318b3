"""Things that depend on each other: an order in which each comes after what it depends on."""

from collections.abc import Mapping, Sequence


def order_of(dependencies: Mapping[str, Sequence[str]]) -> list[str] | None:
    """Names in such an order; None if they run in a circle, or depend on something that is not there.

    Of names that could come next the one that became free last comes first (Volcano jobs/validate topoSort).
    """
    waits = {name: len(before) for name, before in dependencies.items()}
    free = [name for name, count in waits.items() if not count]
    done: list[str] = []
    while free:
        last = free.pop()
        done.append(last)
        for name, before in dependencies.items():
            if last in before:
                waits[name] -= 1
                if not waits[name]:
                    free.append(name)
    return done if len(done) == len(dependencies) else None
