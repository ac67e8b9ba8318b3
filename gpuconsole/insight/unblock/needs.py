"""Quota that a workload lacks, flavor by flavor, as the starting point of suggestions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

from msgspec import Struct

from gpuconsole.model.queues import ClusterQueue
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.assignment import FlavorAssignmentMode
from gpuconsole.scheduling.kueue.entry import CycleEntry
from gpuconsole.scheduling.kueue.session import KueueSession

MOST_AHEAD = 50
"""Limit on the pending workloads that are counted per queue."""
Pair = tuple[str, str]
"""(flavor, resource)"""


class QuotaGap(Struct, frozen=True, kw_only=True):
    """A flavor without enough quota: the shortage of each resource, and its total request."""

    flavor: str
    short: Mapping[str, int]
    wanted: Mapping[str, int]


def gaps(session: KueueSession, entry: CycleEntry) -> list[QuotaGap]:
    """List the flavors that match the pods and have too little quota, the smallest shortage first."""
    return _gaps(session, entry, ())


def gaps_in_turn(session: KueueSession, entry: CycleEntry) -> list[QuotaGap]:
    """Return `gaps`; if there is enough quota for it alone, the gaps after the workloads before it in its queue.

    If there is enough after these, too, the pending workloads in other queues of its cohort tree count as well.
    """
    before, others = _rivals(session, entry)
    return gaps(session, entry) or _gaps(session, entry, before) or _gaps(session, entry, (*before, *others))


def _gaps(session: KueueSession, entry: CycleEntry, first: Sequence[Workload]) -> list[QuotaGap]:
    """Return the shortage of each flavor after these workloads reserved their quota."""
    tree, node = session.tree, entry.rules.node
    wanted = dict(_wanted(entry))
    found = []
    for flavor in dict.fromkeys(flavor for flavor, _ in wanted):
        of_flavor = {resource: amount for (name, resource), amount in wanted.items() if name == flavor}
        short = {
            resource: needed - available
            for resource, amount in of_flavor.items()
            if (needed := amount + _asked(first, resource))
            > (available := max(0, tree.available(node, tree.tree.numbers[flavor, resource])))
        }
        if short:
            found.append(QuotaGap(flavor=flavor, short=short, wanted=of_flavor))
    return sorted(found, key=lambda gap: (len(gap.short), sum(gap.short.values()), gap.flavor))


def amounts(session: KueueSession, entry: CycleEntry, gap: QuotaGap) -> list[Mapping[str, int]]:
    """Yield amounts to try of each resource that is short, increasing and without duplicates.

    These are the shortage; the total request; that plus the requests before it in its queue; that plus all pending
    requests of its cohort tree, since other workloads may be admitted first.
    """
    before, others = _rivals(session, entry)
    taking_first = ((), before, (*before, *others))
    found: list[Mapping[str, int]] = [
        gap.short,
        *(
            {resource: gap.wanted[resource] + _asked(first, resource) for resource in gap.short}
            for first in taking_first
        ),
    ]
    return [one for place, one in enumerate(found) if one not in found[:place]]


def _rivals(session: KueueSession, entry: CycleEntry) -> tuple[Sequence[Workload], Sequence[Workload]]:
    """Return the pending workloads before it in its queue, and those in the other queues of its cohort tree."""
    tree, own = session.tree.tree, entry.rules.name
    before = tuple(takewhile(lambda one: one.key != entry.request.workload.key, _waiting(session, own)))
    names = [tree.names[one] for one in tree.subtree_queues(tree.root(entry.rules.node))]
    return before, tuple(one for name in names if name != own for one in _waiting(session, name))


def _asked(workloads: Iterable[Workload], resource: str) -> int:
    """Return the total request of all pods of these workloads."""
    return sum(pod_set.requests.get(resource, 0) for one in workloads for pod_set in one.pod_sets)


def _waiting(session: KueueSession, queue: str) -> list[Workload]:
    """Return the first pending workloads of a queue."""
    return [place.workload for place in session.pending(queue)[:MOST_AHEAD]]


def _wanted(entry: CycleEntry) -> Iterator[tuple[Pair, int]]:
    """Yield the total request of all pod sets in each flavor that matches them."""
    total: dict[Pair, int] = {}
    unsuited: set[str] = set()
    for request in entry.request.pod_sets:
        amounts: dict[str, int] = dict(request.scaled(request.count))
        if entry.rules.covers_pods:
            amounts["pods"] = request.count
        for resource, amount in amounts.items():
            group = entry.rules.group_of.get(resource)
            for flavor in group.flavors if group is not None and amount else ():
                total[flavor, resource] = total.get((flavor, resource), 0) + amount
    for result in entry.assignment.pod_sets:
        for search in result.searches:
            unsuited |= {
                n.flavor
                for n in search.noted
                if n.mode == FlavorAssignmentMode.NO_FIT and n.cause == "NoMatchingFlavor"
            }
    yield from ((pair, amount) for pair, amount in total.items() if pair[0] not in unsuited)


def flavors_of(queue: ClusterQueue) -> set[Pair]:
    """Return all (flavor, resource) that a ClusterQueue covers."""
    return set(queue.quotas())
