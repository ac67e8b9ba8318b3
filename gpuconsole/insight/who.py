"""Who preempts whom: counts by workload and queue, who causes them, chains, and circles that throw work away."""

from collections.abc import Callable, Iterable, Mapping, Sequence

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


class Circle(Struct, frozen=True):
    """Names that evict each other in turn: what one gains another loses, and the work in between is lost."""

    names: tuple[str, ...]
    times: int
    lost_gpu_hours: float
    cost: float


class Who(Struct, frozen=True):
    """The preemptions of a time, summed up. All counts have the most frequent first."""

    preemptions: int = 0
    lost_gpu_hours: float = 0.0
    cost: float = 0.0
    unplaced: int = 0
    """Those whose preemptor has no place yet."""
    in_vain: int = 0
    """Those whose preemptor went without ever having had one."""
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
    return Who(
        preemptions=len(rows),
        lost_gpu_hours=sum(row.lost_gpu_hours for row in rows),
        cost=sum(row.cost for row in rows),
        unplaced=sum(row.admitted_at is None and not row.in_vain for row in rows),
        in_vain=sum(row.in_vain for row in rows),
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
    return tuple(
        Count(
            one,
            len(found[one]),
            sum(row.lost_gpu_hours for row in found[one]),
            sum(row.cost for row in found[one]),
            any(row.thrash for row in found[one]),
        )
        for one in ranked
    )


def about(rows: Iterable[PreemptionRow], workload: str) -> list[PreemptionRow]:
    """The preemptions of a workload and for it, in their order."""
    return [row for row in rows if workload in (row.victim, row.by)]


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
        lost, cost = sum(row.lost_gpu_hours for row in inside), sum(row.cost for row in inside)
        found.append(Circle(tuple(sorted(group)), len(inside), lost, cost))
    return tuple(sorted(found, key=lambda circle: (-circle.times, circle.names)))


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
