"""What searches found on the accounts as cycles begin with them, kept until somebody comes or goes.

In most cycles most heads are those of the cycle before, and nothing has happened in their trees. What is kept belongs
to one state of the accounts, so that a fork may use what was found before it, and both may add to it.
"""

from collections.abc import Hashable
from typing import Any, TypeVar

from gpuconsole.scheduling.kueue.tree import QuotaTree

Key = TypeVar("Key")
Known = dict[Hashable, Any]
Asked = tuple[frozenset[int], tuple[tuple[int, int], ...]]
"""A search for victims: the columns in which somebody has to make room, and what is needed by column."""
MOST = 2_000
"""So much is kept of one tree, or of one queue: workloads may have as many priorities as they like."""
MOST_PROPOSALS = 10_000
"""A proposal takes about 3 KB."""


class Findings:
    """By root of a tree what depends on all of it, and by ClusterQueue what depends on who holds quota there."""

    __slots__ = ("_queues", "_trees", "proposals")

    def __init__(self) -> None:
        self._trees: dict[int, Known] = {}
        self._queues: dict[str, Known] = {}
        self.proposals: Known = {}
        """What was proposed where amounts alone told it; as long as the quotas are the same, in whatever fork."""

    def fork(self) -> "Findings":
        twin = Findings()
        twin._trees, twin._queues = self._trees.copy(), self._queues.copy()
        twin.proposals = self.proposals
        return twin

    def of_tree(self, root: int) -> Known:
        """What is known of a tree; to be added to."""
        return _kept(self._trees, root)

    def of_queue(self, name: str) -> Known:
        """What is known of those who hold quota in a ClusterQueue; to be added to."""
        return _kept(self._queues, name)

    def forget(self, tree: QuotaTree, name: str) -> None:
        """Who holds quota in a ClusterQueue changed, or how much."""
        self._queues.pop(name, None)
        node = tree.queues.get(name)
        if node is not None:
            self._trees.pop(tree.root(node), None)


def keep(known: Known, key: Hashable, proposal: object) -> None:
    """Add a proposal; when there are too many all others are forgotten."""
    if len(known) >= MOST_PROPOSALS:
        known.clear()
    known[key] = proposal


def _kept(kept: dict[Key, Known], key: Key) -> Known:
    known = kept.get(key)
    if known is None or len(known) > MOST:
        known = kept[key] = {}
    return known
