"""A search for victims: the preemptor's request, the check whether it fits, and the reduction to a minimal set of
victims.

Filters and orders the workloads that a preemption policy allows to be preempted.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from heapq import merge
from itertools import groupby
from typing import TypeVar

from msgspec import Struct

from gpuconsole.model.clock import MINUTE
from gpuconsole.model.decisions import CandidateVerdict, PreemptionRule
from gpuconsole.model.queues import BorrowWithinCohort, PreemptionPolicy
from gpuconsole.scheduling.kueue.compiled_config import ClusterQueueConfig
from gpuconsole.scheduling.kueue.context import Context, SearchTrace
from gpuconsole.scheduling.kueue.quota_tree import UsageTree
from gpuconsole.scheduling.kueue.requests import Holding, WorkloadRequest
from gpuconsole.scheduling.kueue.topology.tas_assignment import Demands, find


class PreemptionTarget(Struct, frozen=True):
    """A victim with the rule that allows it; a replaced slice of the same job has no rule."""

    holding: Holding
    rule: PreemptionRule | None


class PreemptionSearch:
    """The request of a preemptor and the columns in which it needs preemption; `uses` are (column, amount) pairs."""

    __slots__ = ("columns", "context", "demands", "request", "rules", "trace", "uses")

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
        self.uses = uses
        self.demands = demands or {}
        """Flavor → topology requests that must fit, too."""
        self.trace: SearchTrace | None = None
        """Record of the candidates, if a trace is requested."""

    @property
    def key(self) -> Hashable:
        """Equal for searches that have the same result while the usage is the same."""
        wanted = tuple((flavor, d.pod_set.name, d.count) for flavor, group in self.demands.items() for d in group)
        return self.request.id, self.columns, tuple(self.uses), wanted

    @property
    def usage(self) -> UsageTree:
        return self.context.snapshot.usage

    def fits(self, *, borrowing: bool) -> bool:
        """True if the preemptor fits now, its topology included; without `borrowing` also within nominal quota."""
        node, usage = self.rules.node, self.usage
        if not borrowing and any(usage.over(node, column, amount) for column, amount in self.uses):
            return False
        if not usage.fits(node, self.uses):
            return False
        return not self.demands or not find(self.context, self.demands).failed


def fill_back(search: PreemptionSearch, targets: list[PreemptionTarget], *, borrowing: bool) -> list[PreemptionTarget]:
    """Put victims back, last chosen first, as long as the preemptor still fits; the last one chosen stays a victim.

    All targets must be removed from the usage. The last target takes the place of one that is put back, so the order
    changes as in Kueue; only the set matters.
    """
    accounts = search.context.snapshot
    targets = targets[:]
    for index in range(len(targets) - 2, -1, -1):
        accounts.add(targets[index].holding)
        if search.fits(borrowing=borrowing):
            if search.trace is not None:
                search.trace.record(targets[index].holding, CandidateVerdict.PUT_BACK)
            targets[index] = targets[-1]
            targets.pop()
        else:
            accounts.remove(targets[index].holding)
    return targets


T = TypeVar("T")
NOT_BORROWING = BorrowWithinCohort()
_BUFFER = 5 * MINUTE


def allows(search: PreemptionSearch, policy: PreemptionPolicy) -> Callable[[Holding], bool]:
    """Return a test of whether the policy allows a candidate to be preempted (SatisfiesPreemptionPolicy)."""
    mine = search.request.priority
    match policy:
        case PreemptionPolicy.ANY:
            return lambda _: True
        case PreemptionPolicy.LOWER_PRIORITY:
            return lambda candidate: candidate.priority < mine
        case PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY:
            after = search.request.timestamp + (_BUFFER if search.context.gates.timestamp_buffer else 0)
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
    key = search.columns, policy, dependence(search, policy, NOT_BORROWING)
    found = known.get(key)
    if found is None:
        away, columns = search.context.removed, search.columns
        found = known[key] = tuple(
            [
                holding
                for holding in filter(allows(search, policy), search.context.held_by(cluster_queue))
                if holding.id not in away and not columns.isdisjoint(holding.columns)
            ]
        )
    return found


def dependence(search: PreemptionSearch, reclaim: PreemptionPolicy, borrow: BorrowWithinCohort) -> tuple[int, int]:
    """Return the parts of the preemptor that decide its candidates: priority, age, or neither."""
    by_age = reclaim == PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY
    anyone = reclaim in (PreemptionPolicy.ANY, PreemptionPolicy.NEVER) and borrow.policy == PreemptionPolicy.NEVER
    return 0 if anyone else search.request.priority, search.request.timestamp if by_age else 0


def considered_in_order(search: PreemptionSearch, holding: Holding) -> tuple[bool, bool, tuple[bool, int, int, str]]:
    """Sort key (CandidatesOrdering): already evicted, other queues, lowest priority, newest reservation, uid."""
    return not holding.evicted, holding.cluster_queue == search.rules.name, holding.rank


def in_turn(search: PreemptionSearch, found: Iterable[T], holding_of: Callable[[T], Holding]) -> list[T]:
    """Return candidates of several queues in preemption order; `found` has those of one queue together.

    Under admission fair sharing those of one queue keep their order, by LocalQueue usage before priority, and the
    queues are merged by their next candidates: no order of all candidates agrees with that of each queue.
    """

    def key(candidate: T) -> tuple[bool, bool, tuple[bool, int, int, str]]:
        return considered_in_order(search, holding_of(candidate))

    if search.context.config.usage_based is None:
        return sorted(found, key=key)
    queues = groupby(found, key=lambda candidate: holding_of(candidate).cluster_queue)
    return list(merge(*(list(candidates) for _, candidates in queues), key=key))
