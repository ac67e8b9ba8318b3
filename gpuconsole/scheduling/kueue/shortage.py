"""The shortage of a refused head, used to tell quickly whether it is the same after amounts have changed.

Only for heads with one pod set and one short resource in each possible flavor. While that resource stays short even
after every possible preemption, and all others are available, the refusal is the same apart from the missing amount.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from gpuconsole.model.resources import PODS
from gpuconsole.scheduling.kueue.assignment import Assignment, PodSetResult
from gpuconsole.scheduling.kueue.compiled_config import ClusterQueueConfig
from gpuconsole.scheduling.kueue.context import Context
from gpuconsole.scheduling.kueue.flavor_attempts import FlavorSearch
from gpuconsole.scheduling.kueue.preemption.upper_bound import exceeds_bound
from gpuconsole.scheduling.kueue.reasons import GranularReason
from gpuconsole.scheduling.kueue.requests import WorkloadRequest

_Needs = list[tuple[int, int]]


class QuotaShortage(Struct, frozen=True):
    """Requested amounts by column: those that exceed the available quota, and those that are available."""

    short: tuple[tuple[int, int], ...]
    available: tuple[tuple[int, int], ...]


def shortage_of(
    context: Context, rules: ClusterQueueConfig, request: WorkloadRequest, assignment: Assignment
) -> QuotaShortage | None:
    """Return the shortage of a refused head; None if it is not that of one resource in each possible flavor."""
    if len(request.pod_sets) != 1 or request.pod_sets[0].pod_set.min_count is not None:
        return None
    (result,) = assignment.pod_sets
    short: _Needs = []
    there: _Needs = []
    lacking = 0
    for searched in result.searches:
        flavors = list(_by_flavor(context, rules, result, searched))
        lacks = [len(wanting) for wanting, _ in flavors]
        if not flavors or len(flavors) + _excluded(searched) != len(searched.flavors) or max(lacks) > 1:
            return None
        lacking += min(lacks)
        if max(lacks) != min(lacks):
            return None
        for wanting, found in flavors:
            short += wanting
            there += found
    pods = {column for column, _ in short if context.setup.tree.columns[column][1] == PODS}
    return QuotaShortage(tuple(short), tuple(there)) if lacking == 1 and not pods else None


def persists(context: Context, rules: ClusterQueueConfig, request: WorkloadRequest, shortage: QuotaShortage) -> bool:
    """True if the head would have the same shortage with the current usage."""
    return lack(context, rules, ((request, column, amount) for column, amount in shortage.short), shortage.available)


def lack(
    context: Context,
    rules: ClusterQueueConfig,
    short: Iterable[tuple[WorkloadRequest, int, int]],
    there: Iterable[tuple[int, int]],
) -> bool:
    """True if no preemption gives these heads their amounts, while the amounts `there` are available."""
    if not exceeds_bound(context, rules, short):
        return False
    available, node = context.snapshot.usage.available, rules.node
    return all(amount <= max(0, available(node, column)) for column, amount in there)


def _by_flavor(
    context: Context, rules: ClusterQueueConfig, result: PodSetResult, searched: FlavorSearch
) -> Iterator[tuple[_Needs, _Needs]]:
    """Yield short and available amounts for each flavor that was checked against quota."""
    usage, group = context.snapshot.usage, rules.group_of[searched.resource]
    for noted in searched.noted:
        if noted.cause is GranularReason.NO_MATCHING_FLAVOR:
            continue
        columns = group.columns[group.flavors.index(noted.flavor)]
        short: _Needs = []
        there: _Needs = []
        for resource, amount in result.requests.items():
            if resource in columns:
                column = columns[resource]
                free = max(0, usage.available(rules.node, column))
                (short if amount > free else there).append((column, amount))
        yield short, there


def _excluded(searched: FlavorSearch) -> int:
    """Count the flavors that can never fit, whatever the quota."""
    return sum(noted.cause is GranularReason.NO_MATCHING_FLAVOR for noted in searched.noted)
