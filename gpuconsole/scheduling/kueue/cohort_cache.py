"""Caches the results of preemption searches for the usage at the start of a cycle, until a workload's quota changes.

In most cycles most heads are those of the previous cycle, and their cohort trees are unchanged. A `CohortCache` is
valid for the current usage only. Its `SharedCache` also has results for other usage, keyed by a number for the usage or
for the history of a tree, so that forks with the same events in a tree find each other's results.
"""

from collections.abc import Hashable
from itertools import count
from typing import Any, TypeVar

from gpuconsole.scheduling.kueue.quota_tree import QuotaTree

Key = TypeVar("Key")
CacheEntries = dict[Hashable, Any]
"""Key → cached result; each module that caches here builds keys that no other module builds."""
PreemptionQuery = tuple[frozenset[int], tuple[tuple[int, int], ...]]
"""A search for victims: the columns that need preemption, and the requested (column, amount) pairs."""
MAX_ENTRIES_PER_COHORT = 2_000
"""Maximum number of entries of one cohort tree or queue; without it, many distinct priorities could fill the memory."""
MAX_ENTRIES = 10_000
"""Maximum number of entries of each shared cache; an entry takes about 3 KB."""


class SharedCache:
    """Results that stay valid when usage changes, because their keys include it; shared by all forks.

    A change of quotas starts an empty one.
    """

    __slots__ = ("_amounts", "_counted", "_states", "_steps", "cached_entries", "has_forks", "nominations")

    def __init__(self) -> None:
        self._amounts: CacheEntries = {}
        self._counted = count()
        self._steps: CacheEntries = {}
        """(State number of a cohort tree, event) → state number after the event."""
        self._states = count()
        self.cached_entries: CacheEntries = {}
        """State and heads of a tree → outcomes of the heads."""
        self.nominations: CacheEntries = {}
        """Nominations without victims, by scheduling hash, nomination key and usage."""
        self.has_forks = False
        """The session was forked: outcomes are cached only from then on, as few repeat within one session."""

    def next_state(self, state: int, change: Hashable) -> int:
        """Return the state number of a cohort tree after an event in it.

        Forks get equal numbers after the same sequence of events, so that they can share cached outcomes.
        """
        step = state, change
        found: int | None = self._steps.get(step)
        if found is None:
            found = next(self._states)
            put_bounded(self._steps, step, found)
        return found

    def usage_number(self, amounts: Hashable) -> int:
        """Return a number for the usage on the path from a queue to its root; faster to look up than the amounts."""
        found: int | None = self._amounts.get(amounts)
        if found is None:
            found = next(self._counted)
            put_bounded(self._amounts, amounts, found)
        return found


class CohortCache:
    """Results for the current usage: by cohort tree, and by ClusterQueue if they depend only on its quota holders.

    The quota holders of a ClusterQueue are the workloads that have reserved quota in it.
    """

    __slots__ = ("_queues", "_states", "_trees", "shared_cache")

    def __init__(self) -> None:
        self._trees: dict[int, CacheEntries] = {}
        self._queues: dict[str, CacheEntries] = {}
        self._states: dict[int, int] = {}
        self.shared_cache = SharedCache()

    def fork(self) -> "CohortCache":
        """Return a cache with the same entries for a fork; `shared_cache` stays shared."""
        self.shared_cache.has_forks = True
        copied = CohortCache.__new__(CohortCache)
        copied._trees, copied._queues, copied._states = self._trees.copy(), self._queues.copy(), self._states.copy()
        copied.shared_cache = self.shared_cache
        return copied

    def new_empty(self) -> "CohortCache":
        """Return an empty cache for changed quotas; it remembers whether the session has forks."""
        fresh = CohortCache()
        fresh.shared_cache.has_forks = self.shared_cache.has_forks
        return fresh

    def cohort_entries(self, root: int) -> CacheEntries:
        """Return the mutable cache entries of a cohort tree."""
        return _entries_of(self._trees, root)

    def queue_entries(self, name: str) -> CacheEntries:
        """Return the mutable cache entries about a ClusterQueue's quota holders."""
        return _entries_of(self._queues, name)

    def state_number(self, root: int) -> int:
        """Return a number for the history of a tree: equal numbers mean that the same workloads hold the same quota."""
        # A tree without events has a number of its own.
        return self._states.get(root, -1 - root)

    def invalidate(self, tree: QuotaTree, name: str, change: Hashable) -> None:
        """Drop the entries about the ClusterQueue `name` and its cohort tree after one of its quota holders changed.

        `change` is the key of the change for `SharedCache.next_state`: the marks of a workload's new holding, or the
        id of a workload that released its quota.
        """
        self._queues.pop(name, None)
        node = tree.queues.get(name)
        if node is not None:
            root = tree.root(node)
            self._trees.pop(root, None)
            if self.shared_cache.has_forks:
                self._states[root] = self.shared_cache.next_state(self.state_number(root), change)


def put_bounded(known: CacheEntries, key: Hashable, found: object) -> None:
    """Add an entry; clears the cache first when it is full."""
    if len(known) >= MAX_ENTRIES:
        known.clear()
    known[key] = found


def _entries_of(kept: dict[Key, CacheEntries], key: Key) -> CacheEntries:
    known = kept.get(key)
    if known is None or len(known) > MAX_ENTRIES_PER_COHORT:
        known = kept[key] = {}
    return known
