"""Trees at rest: those in which the next cycle would come to the same end as the last one.

All their heads were refused, stand in their queues as before, and nothing happened to any queue of the tree, or to
anybody who holds quota there. Such heads are not even taken out of their queues: they are told the same once more.
"""

from collections.abc import Container, Iterator

from msgspec import Struct

from gpuconsole.scheduling.kueue.entry import Entry, Status
from gpuconsole.scheduling.kueue.outcomes import Heads
from gpuconsole.scheduling.kueue.state import State

_REFUSED = (Status.NOT_NOMINATED, Status.SKIPPED)


class Rest(Struct, frozen=True):
    """A tree at rest."""

    entries: list[Entry]
    versions: list[tuple[str, int]]
    """Of the queues of all its ClusterQueues."""


def resting(state: State) -> Iterator[Entry]:
    """The heads of all trees that are still at rest; the others are forgotten."""
    for root, rest in list(state.resting.items()):
        if rest.versions == list(_versions(state, rest.entries[0])):
            yield from rest.entries
        else:
            del state.resting[root]


def note(state: State, heads: Heads, *, others: Container[int]) -> None:
    """See whether a tree whose heads are back in their queues is at rest; `others` are roots where more happened."""
    entries = heads.entries
    root = state.setup.tree.root(entries[0].rules.node)
    if heads.key is not None and heads.anew and root not in others and all(_stays(state, entry) for entry in entries):
        state.resting[root] = Rest(entries, list(_versions(state, entries[0])))


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


def _versions(state: State, entry: Entry) -> Iterator[tuple[str, int]]:
    for name in state.tree_of(entry.rules.name):
        queue = state.roster.look_at(name)
        if queue is not None:
            yield name, queue.version
