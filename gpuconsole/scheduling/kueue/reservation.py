"""Reserves capacity for a head that needs preemption but has no candidates, so that later entries cannot take it.

Kueue 0.19 scheduler.reserveCapacityForUnreclaimablePreempt.
"""

from gpuconsole.model.queues import PreemptionPolicy
from gpuconsole.scheduling.kueue.assignment import Assignment
from gpuconsole.scheduling.kueue.compiled_config import ClusterQueueConfig
from gpuconsole.scheduling.kueue.usage import UsageTree


def can_always_reclaim(rules: ClusterQueueConfig) -> bool:
    """True if the queue may reclaim from any workload, so that no capacity needs to be reserved."""
    return rules.queue.preemption.reclaim_within_cohort == PreemptionPolicy.ANY


def capacity_to_reserve(usage: UsageTree, rules: ClusterQueueConfig, assignment: Assignment) -> list[tuple[int, int]]:
    """Return (column, amount) to count as used: within the nominal quota, or up to the borrowing limit if it
    borrows.
    """
    return [
        (column, _reserve(usage, rules, column, amount, assignment.borrowing))
        for column, amount in assignment.usage.items()
    ]


def _reserve(usage: UsageTree, rules: ClusterQueueConfig, column: int, amount: int, borrowing: bool) -> int:
    tree = usage.tree
    at = rules.node * tree.width + column
    free = tree.nominal[at] - usage.usage[at]
    if not borrowing:
        return max(0, min(amount, free))
    limit = tree.borrowing_limit[at]
    return amount if limit is None else min(amount, free + limit)
