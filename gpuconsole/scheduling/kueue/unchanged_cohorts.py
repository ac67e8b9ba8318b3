"""Unchanged cohort trees, in which the next cycle would have the same outcome as the last one.

All their heads were refused and returned to their queues unchanged, and since then these queues and the tree's quota
holders are the same. Such heads stay in their queues and their refusal is repeated, as long as no other queue of the
tree has a head in the cycle.
"""

from collections.abc import Container

from msgspec import Struct

from gpuconsole.scheduling.kueue.cycle_cache import CohortHeads
from gpuconsole.scheduling.kueue.entry import CycleEntry, EntryStatus
from gpuconsole.scheduling.kueue.state import KueueState

_REFUSED = (EntryStatus.NOT_NOMINATED, EntryStatus.SKIPPED)


class UnchangedCohort(Struct, frozen=True):
    """A cohort tree in which another cycle would change nothing."""

    entries: list[CycleEntry]
    versions: list[int]
    """Versions of the heads' queues."""


def unchanged(state: KueueState) -> dict[int, list[CycleEntry]]:
    """Return root → heads for trees that are still unchanged; forgets the others."""
    for root, cohort in list(state.unchanged_cohorts.items()):
        if cohort.versions != _versions(state, cohort.entries):
            del state.unchanged_cohorts[root]
    return {root: cohort.entries for root, cohort in state.unchanged_cohorts.items()}


def note_if_unchanged(state: KueueState, heads: CohortHeads, *, others: Container[int]) -> None:
    """Note a tree as unchanged if another cycle would repeat this one; `others` are roots with further heads."""
    entries = heads.entries
    root = state.setup.tree.root(entries[0].rules.node)
    if (
        heads.key is not None
        and heads.starts_from_first_flavor
        and root not in others
        and all(_comes_back_unchanged(state, entry) for entry in entries)
    ):
        state.unchanged_cohorts[root] = UnchangedCohort(entries, _versions(state, entries))


def _comes_back_unchanged(state: KueueState, entry: CycleEntry) -> bool:
    """True if the head was refused and returns to its queue unchanged."""
    queue, number = state.workload_index.peek(entry.rules.name), entry.request.id
    return (
        entry.status in _REFUSED
        and entry.resume is None
        and queue is not None
        and not queue.is_inadmissible(number)
        and queue.is_sticky(number) == entry.preemptor
    )


def _versions(state: KueueState, entries: list[CycleEntry]) -> list[int]:
    queues = (state.workload_index.peek(entry.rules.name) for entry in entries)
    return [queue.version if queue is not None else -1 for queue in queues]
