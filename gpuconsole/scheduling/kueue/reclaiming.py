"""Finds the workloads that a ClusterQueue could preempt for an amount of one flavor, before any workload is pending."""

from gpuconsole.model.decisions import PreemptionRule
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.preemption import PreemptionSearch, find_targets
from gpuconsole.scheduling.kueue.requests import WorkloadRequest
from gpuconsole.scheduling.kueue.state import KueueState

NO_TARGETS = -1
"""Id of the supposed preemptor, which no workload has."""


def targets_for_amount(
    state: KueueState, cluster_queue: str, flavor: str, resource: str, amount: int, priority: int
) -> list[tuple[str, PreemptionRule]] | None:
    """Return the victims and rules for an amount of a flavor; empty if it is free, None if no preemption helps.

    The supposed preemptor is the newest workload of its priority.
    """
    rules, context = state.setup.queues.get(cluster_queue), state.context()
    usage = context.snapshot.usage
    column = usage.tree.numbers.get((flavor, resource))
    if rules is None or column is None:
        return None
    if usage.fits(rules.node, [(column, amount)]):
        return []
    asking = Workload(namespace="", name="", priority=priority, created=state.now)
    request = WorkloadRequest(asking, NO_TARGETS, cluster_queue, state.config)
    targets = find_targets(PreemptionSearch(context, rules, request, frozenset((column,)), [(column, amount)]))
    return [(target.holding.key, target.rule) for target in targets if target.rule is not None] or None
