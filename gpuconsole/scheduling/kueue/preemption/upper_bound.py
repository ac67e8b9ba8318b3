"""A fast upper bound that skips the search for victims where no preemption could help.

Victims come only from queues that borrow, so the last victim of a queue leaves it at most its own size below its quota.
If the preemptor does not fit even with all queues at that lowest usage, no search finds victims.
"""

from collections.abc import Iterable
from itertools import pairwise

from gpuconsole.model.queues import PreemptionPolicy
from gpuconsole.scheduling.kueue.compiled_config import ClusterQueueConfig
from gpuconsole.scheduling.kueue.context import Context, UsageKey, usage_key_for
from gpuconsole.scheduling.kueue.preemption.search import NOT_BORROWING, PreemptionSearch, candidates_of, dependence
from gpuconsole.scheduling.kueue.requests import WorkloadRequest


def cannot_fit(search: PreemptionSearch) -> bool:
    """True if no preemption can free enough; only computed for a single short column."""
    if len(search.columns) != 1:
        return False
    (column,) = search.columns
    wanted = next((amount for needed, amount in search.uses if needed == column), 0)
    return wanted > 0 and wanted > max_available(search.context, search.rules, search.request, column)


def max_available(context: Context, rules: ClusterQueueConfig, request: WorkloadRequest, column: int) -> int:
    """Return the most that preemption could make available in a column; shared by workloads of one priority, or age.

    It is an upper bound, for classical preemption only.
    """
    return _cached_max_available(usage_key_for(context, rules.node), context, rules, request, column)


def exceeds_bound(
    context: Context, rules: ClusterQueueConfig, wanted: Iterable[tuple[WorkloadRequest, int, int]]
) -> bool:
    """True if no head can get its amount of a column, even by preemption; `wanted` has (head, column, amount)."""
    node, ground, available = rules.node, usage_key_for(context, rules.node), context.snapshot.usage.available
    for request, column, amount in wanted:
        # The available quota is computed faster than the bound.
        if amount <= available(node, column) or amount <= _cached_max_available(
            ground, context, rules, request, column
        ):
            return False
    return True


def _cached_max_available(
    ground: UsageKey, context: Context, rules: ClusterQueueConfig, request: WorkloadRequest, column: int
) -> int:
    key = request.priority, request.timestamp if rules.looks_at_age else 0, column
    found = ground.max_available.get(key)
    if found is None:
        search = PreemptionSearch(context, rules, request, frozenset((column,)), ())
        found = ground.max_available[key] = _compute_max_available(search, column)
    return found


def _compute_max_available(search: PreemptionSearch, column: int) -> int:
    """Return the preemptor's capacity if every other queue of its tree were at its lowest usage."""
    usage = search.usage
    tree, node = usage.tree, search.rules.node
    sizes, alone = _candidate_amounts(search, search.rules.name, column, own=True), _only_own_candidates(search, column)
    if alone and not sizes:
        return usage.available(node, column)
    path = (node, *tree.paths[node])
    floors = {at: usage.used(at, column) for at in path} if alone else _lowest_usage(search, column, path[-1])
    own = usage.used(node, column) - sum(sizes)
    lowest = {node: own}
    below = own - floors[node]
    for child, parent in pairwise(path):
        local = tree.local[child * tree.width + column]
        below = max(0, lowest[child] - local) - max(0, floors[child] - local)
        lowest[parent] = floors[parent] + below
    available = 0
    for at in reversed(path):
        index = at * tree.width + column
        if at == path[-1]:
            available = tree.subtree[index] - lowest[at]
            continue
        left = tree.local[index] - lowest[at]
        ceiling = tree.ceiling[index]
        if ceiling is not None:
            available = min(available, ceiling + min(0, left))
        available += max(0, left)
    return available


def _only_own_candidates(search: PreemptionSearch, column: int) -> bool:
    """True if only workloads of its own queue are candidates: it may not preempt others while it borrows.

    No node on its path below the root has unused quota of the column, so it borrows any amount and has no hierarchical
    advantage.
    """
    usage, rules = search.usage, search.rules
    if rules.queue.preemption.borrow_within_cohort.policy != PreemptionPolicy.NEVER:
        return False
    return all(
        usage.used(at, column) >= usage.tree.subtree[at * usage.tree.width + column]
        for at in (rules.node, *usage.tree.paths[rules.node][:-1])
    )


def _lowest_usage(search: PreemptionSearch, column: int, root: int) -> dict[int, int]:
    """Return the least usage of each node after preemption; shared by many preemptors of a cycle."""
    policy = search.rules.queue.preemption.reclaim_within_cohort
    key = "floors", root, column, policy, dependence(search, policy, NOT_BORROWING)
    kept = search.context.cohort_cache(root)
    known = kept.get(key)
    if known is None:
        floors: dict[int, int] = {}
        _fill_lowest_usage(search, column, root, floors)
        kept[key] = known = (floors,)
    found: dict[int, int] = known[0]
    return found


def _fill_lowest_usage(search: PreemptionSearch, column: int, node: int, floors: dict[int, int]) -> int:
    """Fill in the lowest usage of a subtree; returns the amount that counts in the node's parent."""
    usage = search.usage
    tree = usage.tree
    at = node * tree.width + column
    if node < len(tree.cohorts):
        floors[node] = sum(_fill_lowest_usage(search, column, child, floors) for child in _members(search, node))
    else:
        used, quota = usage.usage[at], tree.subtree[at]
        sizes = _candidate_amounts(search, tree.names[node], column, own=False) if used > quota else ()
        floors[node] = max(used - sum(sizes), min(used, quota + 1 - max(sizes))) if sizes else used
    return max(0, floors[node] - tree.local[at])


def _members(search: PreemptionSearch, cohort: int) -> list[int]:
    tree = search.usage.tree
    return tree.children[cohort] + tree.queue_children[cohort]


def _candidate_amounts(search: PreemptionSearch, queue: str, column: int, *, own: bool) -> list[int]:
    """Return the amount of a column that each candidate in a queue uses."""
    preemption = search.rules.queue.preemption
    policy = preemption.within_cluster_queue if own else preemption.reclaim_within_cohort
    if policy == PreemptionPolicy.NEVER:
        return []
    known, key = (
        search.context.cluster_queue_cache(queue),
        ("sizes", column, policy, dependence(search, policy, NOT_BORROWING)),
    )
    found: list[int] | None = known.get(key)
    if found is None:
        candidates = candidates_of(search, queue, policy)
        found = known[key] = [amount for c in candidates for at, amount in c.uses if at == column]
    return found
