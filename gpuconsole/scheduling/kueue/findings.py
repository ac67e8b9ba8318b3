"""What searches found on the accounts as cycles begin with them, kept until somebody comes or goes.

In most cycles most heads are those of the cycle before, and nothing has happened in their trees. What was found belongs
to one state of the accounts, so that a fork may use what was found before it, and both may add to it. What became of
heads is kept longer, by the state of their tree: forks in which the same happens to a tree come to the same state.
"""

from collections.abc import Hashable
from itertools import count
from typing import Any, TypeVar

from gpuconsole.scheduling.kueue.tree import QuotaTree

Key = TypeVar("Key")
Known = dict[Hashable, Any]
Asked = tuple[frozenset[int], tuple[tuple[int, int], ...]]
"""A search for victims: the columns in which somebody has to make room, and what is needed by column."""
MOST = 2_000
"""So much is kept of one tree, or of one queue: workloads may have as many priorities as they like."""
MOST_KEPT = 10_000
"""A proposal takes about 3 KB, as do the outcomes of one tree."""


class Book:
    """What does not pass with a state of the accounts; shared by all forks while the quotas are the same."""

    __slots__ = ("_amounts", "_counted", "_states", "_steps", "outcomes", "proposals", "shared")

    def __init__(self) -> None:
        self._amounts: Known = {}
        self._counted = count()
        self._steps: Known = {}
        """A state of a tree, and what happened to it → the state after that."""
        self._states = count()
        self.outcomes: Known = {}
        """What became of the heads of a tree, by its state and what they are like."""
        self.proposals: Known = {}
        """What was proposed where amounts alone told it."""
        self.shared = False
        """Somebody forked: what became of heads is only kept from then on, as few of them repeat themselves alone."""

    def after(self, state: int, what: Hashable) -> int:
        """The state of a tree after something happened to it; the same for whoever comes there on the same way."""
        step = state, what
        found: int | None = self._steps.get(step)
        if found is None:
            found = next(self._states)
            keep(self._steps, step, found)
        return found

    def number_of(self, amounts: Hashable) -> int:
        """A number that stands for what is used on the way up from a queue, as it is quicker to look up."""
        found: int | None = self._amounts.get(amounts)
        if found is None:
            found = next(self._counted)
            keep(self._amounts, amounts, found)
        return found


class Findings:
    """By root of a tree what depends on all of it, and by ClusterQueue what depends on who holds quota there."""

    __slots__ = ("_queues", "_states", "_trees", "book")

    def __init__(self) -> None:
        self._trees: dict[int, Known] = {}
        self._queues: dict[str, Known] = {}
        self._states: dict[int, int] = {}
        self.book = Book()

    def fork(self) -> "Findings":
        self.book.shared = True
        twin = Findings.__new__(Findings)
        twin._trees, twin._queues, twin._states = self._trees.copy(), self._queues.copy(), self._states.copy()
        twin.book = self.book
        return twin

    def anew(self) -> "Findings":
        """Nothing known, as the quotas are other ones now; whoever forked goes on keeping what becomes of heads."""
        fresh = Findings()
        fresh.book.shared = self.book.shared
        return fresh

    def of_tree(self, root: int) -> Known:
        """What is known of a tree; to be added to."""
        return _kept(self._trees, root)

    def of_queue(self, name: str) -> Known:
        """What is known of those who hold quota in a ClusterQueue; to be added to."""
        return _kept(self._queues, name)

    def state_of(self, root: int) -> int:
        """A number for all that happened to a tree: where it is equal, the same workloads hold the same quota."""
        # A tree to which nothing happened has its own.
        return self._states.get(root, -1 - root)

    def note(self, tree: QuotaTree, name: str, what: Hashable) -> None:
        """Something happened to a workload that holds quota in a ClusterQueue."""
        self._queues.pop(name, None)
        node = tree.queues.get(name)
        if node is not None:
            root = tree.root(node)
            self._trees.pop(root, None)
            if self.book.shared:
                self._states[root] = self.book.after(self.state_of(root), what)


def keep(known: Known, key: Hashable, found: object) -> None:
    """Add something; when there is too much all else is forgotten."""
    if len(known) >= MOST_KEPT:
        known.clear()
    known[key] = found


def _kept(kept: dict[Key, Known], key: Key) -> Known:
    known = kept.get(key)
    if known is None or len(known) > MOST:
        known = kept[key] = {}
    return known
