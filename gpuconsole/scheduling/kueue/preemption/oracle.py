"""The two questions asked of preemption: who has to go, and, while flavors are compared, whether anybody could."""

from collections.abc import Sequence

from gpuconsole.scheduling.kueue.context import Context
from gpuconsole.scheduling.kueue.modes import Mode, Outcome
from gpuconsole.scheduling.kueue.preemption.classical import classical_targets
from gpuconsole.scheduling.kueue.preemption.fair import fair_targets
from gpuconsole.scheduling.kueue.preemption.search import Search, Target
from gpuconsole.scheduling.kueue.requests import Request
from gpuconsole.scheduling.kueue.rules import QueueRules


def find_targets(search: Search) -> Sequence[Target]:
    """The workloads to evict so that the preemptor fits, or nobody. The accounts are as before afterwards."""
    context, key = search.context, search.key
    found = context.found
    if key not in found or search.story is not None:
        found[key] = fair_targets(search) if context.config.fair_sharing else classical_targets(search)
    targets: Sequence[Target] = found[key]
    if targets:
        context.asked = None
    elif context.asked is not None:
        context.asked.append((search.columns, tuple(search.uses)))
    return targets


def possibility(context: Context, rules: QueueRules, request: Request, column: int, amount: int) -> Outcome:
    """Whether preemption could free `amount` of one column, and from what height the queue would borrow then.

    The victims found here are not the final ones: those are searched for all columns together
    (PreemptionOracle.SimulatePreemption).
    """
    usage = context.accounts.usage
    targets = find_targets(Search(context, rules, request, frozenset((column,)), [(column, amount)]))
    if not targets:
        return Mode.NO_CANDIDATES, usage.borrowing_height(rules.node, column, amount)[0]
    with context.accounts.trial():
        context.accounts.remove_all(target.holding for target in targets)
        height = usage.borrowing_height(rules.node, column, amount)[0]
    own = any(target.holding.cluster_queue == rules.name for target in targets)
    return (Mode.PREEMPT if own else Mode.RECLAIM), height
