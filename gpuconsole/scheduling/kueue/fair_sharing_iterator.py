"""The order of entries under fair sharing: a tournament in every cohort (Kueue 0.19 fair_sharing_iterator.go).

Each entry is the winner of a new tournament, because every admission changes the shares.
"""

from collections.abc import Iterator

from gpuconsole.scheduling.kueue.context import Context
from gpuconsole.scheduling.kueue.entry import CycleEntry
from gpuconsole.scheduling.kueue.fair_sharing import DominantResourceShare, share

_Shares = dict[tuple[int, int], DominantResourceShare]
"""(cohort, workload id) → share, with the workload, of the cohort's child on the workload's path."""


def iterate_fairly(context: Context, entries: list[CycleEntry]) -> Iterator[CycleEntry]:
    """Yield entries in fair sharing order; trees follow one another by the name of their first ClusterQueue.

    Entries with a cached outcome come in the order of the cached cycle.
    """
    waiting = {entry.rules.node: entry for entry in sorted(entries, key=lambda entry: entry.rules.name)}
    tree = context.snapshot.usage.tree
    while waiting:
        first = next(iter(waiting))
        root = tree.root(first)
        if root in waiting:
            yield waiting.pop(root)
        elif waiting[first].turn:
            members = [node for node in waiting if tree.root(node) == root]
            yield from sorted((waiting.pop(node) for node in members), key=lambda entry: entry.turn)
        else:
            yield from _tournaments(context, root, waiting)


def _tournaments(context: Context, root: int, waiting: dict[int, CycleEntry]) -> Iterator[CycleEntry]:
    """Yield all entries of one tree; shares are computed again only after the usage changed."""
    shares: _Shares = {}
    weighed = -1
    members = [node for node in context.snapshot.usage.tree.subtree_queues(root) if node in waiting]
    for _ in members:
        if weighed != context.version:
            weighed = context.version
            for node in members:
                if node in waiting:
                    _compute_shares(context, waiting[node], shares)
        winner = _best(context, root, waiting, shares)
        assert winner is not None
        del waiting[winner.rules.node]
        yield winner


def _compute_shares(context: Context, entry: CycleEntry, shares: _Shares) -> None:
    """Compute the share that each node on the entry's path would have with it."""
    usage = context.snapshot.usage
    node, uses = entry.rules.node, entry.assignment.uses
    usage.add(node, uses)
    for parent in usage.tree.paths[node]:
        shares[parent, entry.request.id] = share(usage, node)
        node = parent
    usage.remove(entry.rules.node, uses)


def _best(context: Context, cohort: int, waiting: dict[int, CycleEntry], shares: _Shares) -> CycleEntry | None:
    """Return the winner among a cohort's children; child cohorts take part with their own winners."""
    tree = context.snapshot.usage.tree
    candidates = [_best(context, child, waiting, shares) for child in tree.children[cohort]]
    candidates += [waiting.get(child) for child in tree.queue_children[cohort]]
    found = [candidate for candidate in candidates if candidate is not None]
    return min(found, key=lambda entry: rank(context, entry, shares[cohort, entry.request.id]), default=None)


def rank(
    context: Context, entry: CycleEntry, share: DominantResourceShare
) -> tuple[bool, bool, tuple[bool, float], int, int]:
    """Return the sort key of the entry that a child of a cohort puts forward; the lowest wins.

    Preemptors whose victims are terminating (gate PrioritizePreemptorWorkloads), entries that borrow nothing they
    request (gate FairSharingPrioritizeNonBorrowing), the lower share, the higher priority, the older workload.
    """
    requested = entry.assignment.usage
    borrowing = any(requested.get(column, 0) > 0 for column in share.borrowed)
    return (
        context.gates.preemptors_first and not entry.preemptor,
        borrowing and context.gates.prioritize_non_borrowing,
        share.key,
        -entry.request.priority if context.gates.priority_sorting else 0,
        entry.request.timestamp,
    )
