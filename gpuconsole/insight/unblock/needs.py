"""What a workload needs, flavor by flavor, against what is there: the numbers that suggestions start from."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

from msgspec import Struct

from gpuconsole.model.queues import ClusterQueue
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.entry import Entry
from gpuconsole.scheduling.kueue.modes import Mode
from gpuconsole.scheduling.kueue.session import Session

MOST_AHEAD = 50
"""Of each queue so many that wait are counted."""
Pair = tuple[str, str]
"""(flavor, resource)"""


class Gap(Struct, frozen=True, kw_only=True):
    """One flavor that does not have enough: how much each resource lacks, of what is wanted of it in all."""

    flavor: str
    short: Mapping[str, int]
    wanted: Mapping[str, int]


def gaps(session: Session, entry: Entry) -> list[Gap]:
    """The flavors that suit the pods and do not have enough, those that lack least first."""
    return _gaps(session, entry, ())


def gaps_in_turn(session: Session, entry: Entry) -> list[Gap]:
    """The same; where there is enough for it alone, what is missing once those before it have got theirs.

    Where that is enough, too, those count who wait in the other queues of its tree.
    """
    before, others = _rivals(session, entry)
    return gaps(session, entry) or _gaps(session, entry, before) or _gaps(session, entry, (*before, *others))


def _gaps(session: Session, entry: Entry, first: Sequence[Workload]) -> list[Gap]:
    """What each flavor lacks once these have got theirs."""
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
            found.append(Gap(flavor=flavor, short=short, wanted=of_flavor))
    return sorted(found, key=lambda gap: (len(gap.short), sum(gap.short.values()), gap.flavor))


def amounts(session: Session, entry: Entry, gap: Gap) -> list[Mapping[str, int]]:
    """By how much more of each resource that is short a try is worth it, ever more; nothing twice.

    What is missing; all that is wanted; that with what those want who are before it in its queue, and then with what
    everybody wants who waits in its tree: they may take first what is given.
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


def _rivals(session: Session, entry: Entry) -> tuple[Sequence[Workload], Sequence[Workload]]:
    """Who waits before it in its queue, and who waits in the other queues of its tree."""
    tree, own = session.tree.tree, entry.rules.name
    before = tuple(takewhile(lambda one: one.key != entry.request.workload.key, _waiting(session, own)))
    names = [tree.names[one] for one in tree.subtree_queues(tree.root(entry.rules.node))]
    return before, tuple(one for name in names if name != own for one in _waiting(session, name))


def _asked(workloads: Iterable[Workload], resource: str) -> int:
    """What all of their pods ask for."""
    return sum(pod_set.requests.get(resource, 0) for one in workloads for pod_set in one.pod_sets)


def _waiting(session: Session, queue: str) -> list[Workload]:
    """Who waits first in a queue."""
    return [place.workload for place in session.pending(queue)[:MOST_AHEAD]]


def _wanted(entry: Entry) -> Iterator[tuple[Pair, int]]:
    """What all pod sets would take of each flavor that suits them, if they all got that one."""
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
            unsuited |= {n.flavor for n in search.noted if n.mode == Mode.NO_FIT and n.cause == "NoMatchingFlavor"}
    yield from ((pair, amount) for pair, amount in total.items() if pair[0] not in unsuited)


def flavors_of(queue: ClusterQueue) -> set[Pair]:
    """Everything that a ClusterQueue gives out."""
    return set(queue.quotas())
