"""Which workloads a preemption policy allows to evict, and in which order they are considered."""

from collections.abc import Iterable

from gpuconsole.model.clock import MINUTE
from gpuconsole.model.queues import PreemptionPolicy
from gpuconsole.scheduling.kueue.preemption.search import Search
from gpuconsole.scheduling.kueue.requests import Holding

_BUFFER = 5 * MINUTE


def allows(search: Search, candidate: Holding, policy: PreemptionPolicy) -> bool:
    """True if the policy lets the preemptor evict this candidate (SatisfiesPreemptionPolicy)."""
    mine = search.request.priority
    match policy:
        case PreemptionPolicy.ANY:
            return True
        case PreemptionPolicy.LOWER_PRIORITY:
            return candidate.priority < mine
        case PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY:
            age = candidate.timestamp - search.request.timestamp
            needed = _BUFFER if search.context.gates.timestamp_buffer else 0
            return candidate.priority < mine or (candidate.priority == mine and age > needed)
    return False


def candidates_of(search: Search, cluster_queue: str, policy: PreemptionPolicy) -> Iterable[Holding]:
    """Workloads of a queue that the policy allows and that use something that is needed."""
    columns = search.columns
    for holding in search.context.holdings.get(cluster_queue, {}).values():
        if not columns.isdisjoint(holding.columns) and allows(search, holding, policy):
            yield holding


def considered_in_order(search: Search, holding: Holding) -> tuple[bool, bool, tuple[int, int, str]]:
    """Sort key (CandidatesOrdering): already evicted, other queues, lowest priority, newest reservation, uid."""
    return not holding.evicted, holding.cluster_queue == search.rules.name, holding.order
