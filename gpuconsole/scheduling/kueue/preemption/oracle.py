"""Preemption queries: the victims for a preemptor and, while flavors are compared, whether preemption could help at
all.
"""

from collections.abc import Sequence

from gpuconsole.scheduling.kueue.compiled_config import ClusterQueueConfig
from gpuconsole.scheduling.kueue.context import Context
from gpuconsole.scheduling.kueue.flavor_assignment_mode import FlavorAssignmentMode, ModeAndHeight
from gpuconsole.scheduling.kueue.preemption.classical import classical_targets
from gpuconsole.scheduling.kueue.preemption.fair_sharing import fair_targets
from gpuconsole.scheduling.kueue.preemption.search import PreemptionSearch, PreemptionTarget
from gpuconsole.scheduling.kueue.requests import WorkloadRequest


def find_targets(search: PreemptionSearch) -> Sequence[PreemptionTarget]:
    """Return the victims that let the preemptor fit; empty if there are none. The usage is unchanged afterwards."""
    context, key = search.context, search.key
    found = context.search_results
    if key not in found or search.trace is not None:
        found[key] = fair_targets(search) if context.config.fair_sharing else classical_targets(search)
    targets: Sequence[PreemptionTarget] = found[key]
    if targets:
        context.preemption_queries = None
    elif context.preemption_queries is not None:
        context.preemption_queries.append((search.columns, tuple(search.uses)))
    return targets


def possibility(
    context: Context, rules: ClusterQueueConfig, request: WorkloadRequest, column: int, amount: int
) -> ModeAndHeight:
    """Return whether preemption could free `amount` of one column, and the borrowing level after it.

    The victims found here are not the final ones: those are searched for all columns together
    (PreemptionOracle.SimulatePreemption).
    """
    usage = context.snapshot.usage
    targets = find_targets(PreemptionSearch(context, rules, request, frozenset((column,)), [(column, amount)]))
    if not targets:
        return FlavorAssignmentMode.NO_CANDIDATES, usage.borrowing_height(rules.node, column, amount)[0]
    with context.snapshot.revertible():
        context.snapshot.remove_all(target.holding for target in targets)
        height = usage.borrowing_height(rules.node, column, amount)[0]
    own = any(target.holding.cluster_queue == rules.name for target in targets)
    return (FlavorAssignmentMode.PREEMPT if own else FlavorAssignmentMode.RECLAIM), height
