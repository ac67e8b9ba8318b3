"""Topological order of tasks or flows that depend on each other."""

from collections.abc import Mapping, Sequence


def order_of(dependencies: Mapping[str, Sequence[str]]) -> list[str] | None:
    """Return the names, each after its dependencies; None for a cycle or a missing dependency.

    Of the names that could come next, the one whose dependencies were completed last comes first (Volcano jobs/validate
    topoSort).
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
