"""Who preempts whom: counts by workload and queue, who causes them, chains, and preemption loops."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from gpuconsole.insight.preemptions import PreemptionRow

LONGEST = 6
"""Links of a chain that are followed."""


class Count(Struct, frozen=True):
    """How often one name comes up, and what that lost."""

    name: str
    times: int
    lost_gpu_hours: float
    cost: float
    """USD."""
    thrash: bool = False
    """Some workload of it was preempted at least three times within an hour."""
    unknown: int = 0
    """Times of which nobody knows what they lost: the sums are at least so much."""
    unpriced: int = 0
    """The same of what that cost."""


class Pair(Struct, frozen=True):
    """How often one preempted the other."""

    victim: str
    by: str
    times: int


class Circle(Struct, frozen=True):
    """A preemption loop: names that evict each other in turn, so that the work in between is lost."""

    names: tuple[str, ...]
    times: int
    lost_gpu_hours: float
    cost: float
    unknown: int = 0
    unpriced: int = 0
    pairs: tuple[Pair, ...] = ()
    """Who preempted whom in it, the most frequent first."""


class Who(Struct, frozen=True):
    """The preemptions of a time, summed up. All counts have the most frequent first."""

    preemptions: int = 0
    lost_gpu_hours: float = 0.0
    cost: float = 0.0
    unplaced: int = 0
    """Those whose preemptor has no place yet, as far as it is known."""
    in_vain: int = 0
    """Those whose preemptor went without ever having had one."""
    unknown: int = 0
    """Those of which nobody knows what they lost: the sums are at least so much."""
    unpriced: int = 0
    """The same of what that cost."""
    rules: tuple[Count, ...] = ()
    victims: tuple[Count, ...] = ()
    victim_queues: tuple[Count, ...] = ()
    causers: tuple[Count, ...] = ()
    """The workloads that others had to make room for."""
    causing_queues: tuple[Count, ...] = ()
    circles: tuple[Circle, ...] = ()
    """Of workloads."""
    queue_circles: tuple[Circle, ...] = ()
    """Of ClusterQueues."""


NOBODY = Who()


def who(rows: Sequence[PreemptionRow]) -> Who:
    """Sum up preemptions (`preemptions.rows`)."""
    lost = _lost(rows)
    return Who(
        preemptions=len(rows),
        lost_gpu_hours=lost.gpu_hours,
        cost=lost.cost,
        unplaced=sum(row.admitted_at is None and row.by_known and not row.in_vain for row in rows),
        in_vain=sum(row.in_vain for row in rows),
        unknown=lost.unknown,
        unpriced=lost.unpriced,
        rules=counts(rows, lambda row: row.rule),
        victims=counts(rows, lambda row: row.victim),
        victim_queues=counts(rows, lambda row: row.victim_queue),
        causers=counts(rows, lambda row: row.by),
        causing_queues=counts(rows, lambda row: row.by_queue),
        circles=circles(rows, lambda row: (row.by, row.victim)),
        queue_circles=circles(rows, lambda row: (row.by_queue, row.victim_queue)),
    )


def counts(rows: Iterable[PreemptionRow], name: Callable[[PreemptionRow], str]) -> tuple[Count, ...]:
    """How often each name comes up, the most frequent first; rows without one are left out."""
    found: dict[str, list[PreemptionRow]] = {}
    for row in rows:
        if name(row):
            found.setdefault(name(row), []).append(row)
    ranked = sorted(found, key=lambda one: (-len(found[one]), one))
    return tuple(_count(one, found[one]) for one in ranked)


def _count(name: str, rows: Sequence[PreemptionRow]) -> Count:
    lost, thrash = _lost(rows), any(row.thrash for row in rows)
    return Count(name, len(rows), lost.gpu_hours, lost.cost, thrash, lost.unknown, lost.unpriced)


class _Lost(Struct, frozen=True):
    """What is known of the losses of some preemptions, and of how many nothing is."""

    gpu_hours: float
    cost: float
    unknown: int
    unpriced: int


def _lost(rows: Sequence[PreemptionRow]) -> _Lost:
    hours = [row.lost_gpu_hours for row in rows if row.lost_gpu_hours is not None]
    costs = [row.cost for row in rows if row.cost is not None]
    return _Lost(sum(hours), sum(costs), len(rows) - len(hours), len(rows) - len(costs))


def about(rows: Iterable[PreemptionRow], names: Collection[str]) -> list[PreemptionRow]:
    """The preemptions of these workloads (pods, where no Workload stands for them) and for them, in their order."""
    return [row for row in rows if row.victim in names or row.by in names]


def chain(row: PreemptionRow, rows: Sequence[PreemptionRow]) -> tuple[str, ...]:
    """The victim, its preemptor, who preempted that one later, and so on; a name comes twice only where it closes."""
    names = [row.victim, row.by]
    after = row.time
    while names[-1] and len(names) <= LONGEST and names[-1] not in names[:-1]:
        later = [other for other in rows if other.victim == names[-1] and other.time >= after]
        if not later:
            break
        next_one = min(later, key=lambda other: other.time)
        names.append(next_one.by)
        after = next_one.time
    return tuple(name for name in names if name)


def circles(rows: Sequence[PreemptionRow], ends: Callable[[PreemptionRow], tuple[str, str]]) -> tuple[Circle, ...]:
    """The largest groups of names in which everyone evicts everyone else, if by way of others; most evictions first.

    `ends` gives the name that causes an eviction and the one that suffers it. One that evicts itself is no group.
    """
    edges: dict[str, dict[str, None]] = {}
    for row in rows:
        by, victim = ends(row)
        if by and victim and by != victim:
            edges.setdefault(by, {})[victim] = None
    found = []
    for group in _mutual(edges):
        inside = [row for row in rows if group.issuperset(ends(row)) and len(set(ends(row))) == 2]
        lost = _lost(inside)
        names = tuple(sorted(group))
        pairs = _pairs(map(ends, inside))
        found.append(Circle(names, len(inside), lost.gpu_hours, lost.cost, lost.unknown, lost.unpriced, pairs))
    return tuple(sorted(found, key=lambda circle: (-circle.times, circle.names)))


def _pairs(ends: Iterable[tuple[str, str]]) -> tuple[Pair, ...]:
    """(preemptor, victim) of each preemption, counted."""
    counted = sorted(Counter(ends).items(), key=lambda one: (-one[1], one[0][1], one[0][0]))
    return tuple(Pair(victim, by, times) for (by, victim), times in counted)


def _mutual(edges: Mapping[str, Iterable[str]]) -> list[frozenset[str]]:
    """The strongly connected groups of two and more: all that a name reaches and that reach it."""
    backwards: dict[str, dict[str, None]] = {}
    for start, ends in edges.items():
        for end in ends:
            backwards.setdefault(end, {})[start] = None
    core = edges.keys() & backwards.keys()
    edges = {name: core.intersection(edges[name]) for name in core}
    backwards = {name: dict.fromkeys(core.intersection(backwards[name])) for name in core}
    groups, seen = [], set[str]()
    for name in sorted(core):
        if name not in seen:
            group = _reached(name, edges) & _reached(name, backwards)
            seen |= group
            if len(group) > 1:
                groups.append(frozenset(group))
    return groups


def _reached(name: str, edges: Mapping[str, Iterable[str]]) -> set[str]:
    found, left = {name}, [name]
    while left:
        for end in edges.get(left.pop(), ()):
            if end not in found:
                found.add(end)
                left.append(end)
    return found
