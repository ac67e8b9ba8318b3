"""What all searches for victims share: the preemptor's request, its candidates, the fit check and minimal victim sets.

The candidates are the workloads that the preemption policy allows to be preempted, in preemption order.

`cannot_fit_by_preemption` skips the classical search where no preemption could help. Victims come only from queues that
borrow, so the last victim of a queue leaves it at most its own size below its quota. If the preemptor does not fit even
with all queues at that lowest usage, no search finds victims.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from heapq import merge
from itertools import groupby, pairwise
from typing import TypeVar

from msgspec import Struct

from gpuconsole.model.clock import MINUTE
from gpuconsole.model.events import CandidateVerdict, PreemptionRule
from gpuconsole.model.queues import BorrowWithinCohort, PreemptionPolicy
from gpuconsole.scheduling.kueue.cluster_queue_status import ClusterQueueConfig
from gpuconsole.scheduling.kueue.context import Context, SearchTrace, UsageKey, usage_key_for
from gpuconsole.scheduling.kueue.pod_resources import Holding, WorkloadRequest
from gpuconsole.scheduling.kueue.quota_tree import UsageTree
from gpuconsole.scheduling.kueue.topology.tas_assignment import Demands, find_assignments


class PreemptionTarget(Struct, frozen=True):
    """A victim with the rule that allows it; a replaced slice of the same job has no rule."""

    holding: Holding
    rule: PreemptionRule | None


def can_always_reclaim(rules: ClusterQueueConfig) -> bool:
    """True if the queue may reclaim from any workload, so that no capacity needs to be reserved (CanAlwaysReclaim)."""
    return rules.queue.preemption.reclaim_within_cohort == PreemptionPolicy.ANY


class PreemptionSearch:
    """Input of a search for victims: the preemptor's request, its (column, amount) pairs, the columns to free."""

    __slots__ = ("columns", "context", "demands", "request", "requested", "rules", "trace")

    def __init__(
        self,
        context: Context,
        rules: ClusterQueueConfig,
        request: WorkloadRequest,
        columns: frozenset[int],
        uses: Sequence[tuple[int, int]],
        demands: Demands | None = None,
    ) -> None:
        self.context = context
        self.rules = rules
        self.request = request
        self.columns = columns
        self.requested = uses
        self.demands = demands or {}
        """Flavor → topology requests that must fit, too."""
        self.trace: SearchTrace | None = None
        """Record of the candidates, if a trace is requested."""

    @property
    def key(self) -> Hashable:
        """Cache key: equal for searches that have the same result while the usage is the same."""
        wanted = tuple((flavor, d.pod_set.name, d.count) for flavor, group in self.demands.items() for d in group)
        return self.request.id, self.columns, tuple(self.requested), wanted

    @property
    def usage(self) -> UsageTree:
        """The quota usage in which the search removes victims and puts them back."""
        return self.context.snapshot.usage

    def fits(self, *, borrowing: bool) -> bool:
        """True if the preemptor fits now, its topology included; without `borrowing` also within nominal quota."""
        node, usage = self.rules.node, self.usage
        if not borrowing and any(usage.is_borrowing(node, column, amount) for column, amount in self.requested):
            return False
        if not usage.fits_available(node, self.requested):
            return False
        return not self.demands or not find_assignments(self.context, self.demands).failed


def restore_unneeded_victims(
    search: PreemptionSearch, targets: list[PreemptionTarget], *, borrowing: bool
) -> list[PreemptionTarget]:
    """Put victims back, last chosen first, as long as the preemptor still fits; the last one chosen stays a victim.

    All targets must be removed from the usage. The last target takes the place of one that is put back, so the order
    changes as in Kueue; only the set matters.
    """
    accounts = search.context.snapshot
    targets = targets[:]
    for index in range(len(targets) - 2, -1, -1):
        accounts.add_holding(targets[index].holding)
        if search.fits(borrowing=borrowing):
            if search.trace is not None:
                search.trace.record(targets[index].holding, CandidateVerdict.PUT_BACK)
            targets[index] = targets[-1]
            targets.pop()
        else:
            accounts.remove_holding(targets[index].holding)
    return targets


T = TypeVar("T")
NOT_BORROWING = BorrowWithinCohort()
"""Passed to `candidate_key` where borrowWithinCohort does not matter."""
_TIMESTAMP_BUFFER = 5 * MINUTE
"""By how much a workload of equal priority must be newer (gate SchedulerTimestampPreemptionBuffer)."""


def policy_allows(search: PreemptionSearch, policy: PreemptionPolicy) -> Callable[[Holding], bool]:
    """Return a test of whether the policy allows a candidate to be preempted (SatisfiesPreemptionPolicy)."""
    mine = search.request.priority
    match policy:
        case PreemptionPolicy.ANY:
            return lambda _: True
        case PreemptionPolicy.LOWER_PRIORITY:
            return lambda candidate: candidate.priority < mine
        case PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY:
            after = search.request.timestamp + (_TIMESTAMP_BUFFER if search.context.gates.timestamp_buffer else 0)
            return lambda other: other.priority < mine or (other.priority == mine and other.timestamp > after)
    return lambda _: False


def candidates_of(search: PreemptionSearch, cluster_queue: str, policy: PreemptionPolicy) -> Sequence[Holding]:
    """Return the workloads of a ClusterQueue that a preemptor may preempt, in preemption order.

    The policy allows each of them, and each uses a flavor and resource for which the preemptor needs preemption.
    Cached, as preemptors of equal priority mostly have the same candidates.
    """
    if policy == PreemptionPolicy.NEVER:
        return ()
    known = search.context.cluster_queue_cache(cluster_queue)
    key = search.columns, policy, candidate_key(search, policy, NOT_BORROWING)
    found = known.get(key)
    if found is None:
        away, columns = search.context.removed, search.columns
        found = known[key] = tuple(
            [
                holding
                for holding in filter(policy_allows(search, policy), search.context.held_by(cluster_queue))
                if holding.id not in away and not columns.isdisjoint(holding.columns)
            ]
        )
    return found


def candidate_key(search: PreemptionSearch, reclaim: PreemptionPolicy, borrow: BorrowWithinCohort) -> tuple[int, int]:
    """Cache key of the candidates: the preemptor's priority and queue timestamp, 0 where they do not depend on it."""
    by_age = reclaim == PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY
    anyone = reclaim in (PreemptionPolicy.ANY, PreemptionPolicy.NEVER) and borrow.policy == PreemptionPolicy.NEVER
    return 0 if anyone else search.request.priority, search.request.timestamp if by_age else 0


def candidates_ordering_key(
    search: PreemptionSearch, holding: Holding
) -> tuple[bool, bool, tuple[bool, int, int, str]]:
    """Sort key (CandidatesOrdering): already evicted, other queues, lowest priority, newest reservation, uid."""
    return not holding.evicted, holding.cluster_queue == search.rules.name, holding.rank


def merge_in_order(search: PreemptionSearch, found: Iterable[T], holding_of: Callable[[T], Holding]) -> list[T]:
    """Return candidates of several queues in preemption order; `found` has those of one queue together.

    Under admission fair sharing those of one queue keep their order, by LocalQueue usage before priority, and the
    queues are merged by their next candidates: no order of all candidates agrees with that of each queue.
    """

    def key(candidate: T) -> tuple[bool, bool, tuple[bool, int, int, str]]:
        return candidates_ordering_key(search, holding_of(candidate))

    if search.context.config.usage_based_fair_sharing is None:
        return sorted(found, key=key)
    queues = groupby(found, key=lambda candidate: holding_of(candidate).cluster_queue)
    return list(merge(*(list(candidates) for _, candidates in queues), key=key))


def cannot_fit_by_preemption(search: PreemptionSearch) -> bool:
    """True if no preemption can free enough; only computed for a single short column."""
    if len(search.columns) != 1:
        return False
    (column,) = search.columns
    wanted = next((amount for needed, amount in search.requested if needed == column), 0)
    return wanted > 0 and wanted > max_available(search.context, search.rules, search.request, column)


def max_available(context: Context, rules: ClusterQueueConfig, request: WorkloadRequest, column: int) -> int:
    """Return an upper bound of the amount that preemption could make available to a workload in a column.

    For classical preemption only.
    """
    return _cached_max_available(usage_key_for(context, rules.node), context, rules, request, column)


def exceeds_bound(
    context: Context, rules: ClusterQueueConfig, wanted: Iterable[tuple[WorkloadRequest, int, int]]
) -> bool:
    """True if no head in `wanted`, (head, column, amount), can get its amount, even by preemption."""
    node, cache, available = rules.node, usage_key_for(context, rules.node), context.snapshot.usage.available
    for request, column, amount in wanted:
        # The available quota is computed faster than the bound.
        if amount <= available(node, column) or amount <= _cached_max_available(cache, context, rules, request, column):
            return False
    return True


def _cached_max_available(
    cache: UsageKey, context: Context, rules: ClusterQueueConfig, request: WorkloadRequest, column: int
) -> int:
    key = request.priority, request.timestamp if rules.compares_age else 0, column
    found = cache.max_available.get(key)
    if found is None:
        search = PreemptionSearch(context, rules, request, frozenset((column,)), ())
        found = cache.max_available[key] = _compute_max_available(search, column)
    return found


def _compute_max_available(search: PreemptionSearch, column: int) -> int:
    """Return the preemptor's capacity if every other queue of its tree were at its lowest usage."""
    usage = search.usage
    tree, node = usage.tree, search.rules.node
    sizes, alone = _candidate_amounts(search, search.rules.name, column, own=True), _only_own_candidates(search, column)
    if alone and not sizes:
        return usage.available(node, column)
    path = (node, *tree.paths[node])
    floors = {at: usage.usage_of(at, column) for at in path} if alone else _lowest_usage(search, column, path[-1])
    own = usage.usage_of(node, column) - sum(sizes)
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
        usage.usage_of(at, column) >= usage.tree.subtree[at * usage.tree.width + column]
        for at in (rules.node, *usage.tree.paths[rules.node][:-1])
    )


def _lowest_usage(search: PreemptionSearch, column: int, root: int) -> dict[int, int]:
    """Return the least usage of each node after preemption; shared by many preemptors of a cycle."""
    policy = search.rules.queue.preemption.reclaim_within_cohort
    key = "floors", root, column, policy, candidate_key(search, policy, NOT_BORROWING)
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
        ("sizes", column, policy, candidate_key(search, policy, NOT_BORROWING)),
    )
    found: list[int] | None = known.get(key)
    if found is None:
        candidates = candidates_of(search, queue, policy)
        found = known[key] = [amount for c in candidates for at, amount in c.usage if at == column]
    return found
