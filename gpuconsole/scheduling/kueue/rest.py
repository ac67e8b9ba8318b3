"""Trees at rest: those in which the next cycle would come to the same end as the last one.

All their heads were refused, stand in their queues as before, and nothing happened to these queues, or to anybody who
holds quota in the tree. Such heads are not even taken out of their queues: they are told the same once more, as long as
no other queue of the tree has a head that takes part in the cycle.
"""

from collections.abc import Container

from msgspec import Struct

from gpuconsole.scheduling.kueue.entry import Entry, Status
from gpuconsole.scheduling.kueue.outcomes import Heads
from gpuconsole.scheduling.kueue.state import State

_REFUSED = (Status.NOT_NOMINATED, Status.SKIPPED)


class Rest(Struct, frozen=True):
    """A tree at rest."""

    entries: list[Entry]
    versions: list[int]
    """Of the queues of its heads."""


def resting(state: State) -> dict[int, list[Entry]]:
    """Root → the heads of a tree that is still at rest; the others are forgotten."""
    for root, rest in list(state.resting.items()):
        if rest.versions != _versions(state, rest.entries):
            del state.resting[root]
    return {root: rest.entries for root, rest in state.resting.items()}


def note(state: State, heads: Heads, *, others: Container[int]) -> None:
    """See whether a tree whose heads are back in their queues is at rest; `others` are roots where more happened."""
    entries = heads.entries
    root = state.setup.tree.root(entries[0].rules.node)
    if heads.key is not None and heads.anew and root not in others and all(_stays(state, entry) for entry in entries):
        state.resting[root] = Rest(entries, _versions(state, entries))


def _stays(state: State, entry: Entry) -> bool:
    """True if the head was refused, and comes again as it came."""
    queue, number = state.roster.look_at(entry.rules.name), entry.request.id
    return (
        entry.status in _REFUSED
        and entry.resume is None
        and queue is not None
        and not queue.is_parked(number)
        and queue.is_sticky(number) == entry.preemptor
    )


def _versions(state: State, entries: list[Entry]) -> list[int]:
    queues = (state.roster.look_at(entry.rules.name) for entry in entries)
    return [queue.version if queue is not None else -1 for queue in queues]
