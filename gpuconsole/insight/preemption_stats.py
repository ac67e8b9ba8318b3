"""Preemption statistics: counts by workload and queue, preemptors, chains, and preemption loops."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec import Struct, field

from gpuconsole.insight.preemptions import PreemptionRow

LONGEST = 6
"""Maximum length of a preemption chain."""


class PreemptionCount(Struct, frozen=True):
    """Number of preemptions of one workload or queue, with their lost work."""

    name: str
    times: int
    lost_gpu_hours: float
    cost: float
    """USD."""
    thrash: bool = False
    """A workload of it was preempted at least three times within an hour."""
    unknown: int = 0
    """Number of preemptions with unknown loss: the sums are lower bounds."""
    unpriced: int = 0
    """Number of preemptions with unknown cost."""


class PreemptionPair(Struct, frozen=True):
    """Number of preemptions of one victim by one preemptor."""

    victim: str
    by: str
    times: int


class EvictionCycle(Struct, frozen=True):
    """A preemption loop: workloads or queues that preempt each other, so that work is lost repeatedly."""

    names: tuple[str, ...]
    times: int
    lost_gpu_hours: float
    cost: float
    unknown: int = 0
    unpriced: int = 0
    pairs: tuple[PreemptionPair, ...] = ()
    """Its pairs of victim and preemptor, the most frequent first."""


class PreemptionStats(Struct, frozen=True):
    """Summary of preemptions. All counts have the most frequent first."""

    preemptions: int = 0
    lost_gpu_hours: float = 0.0
    cost: float = 0.0
    unplaced: int = 0
    """Preemptions whose preemptor is still unscheduled, as far as known."""
    in_vain: int = 0
    """Wasted preemptions: the preemptor ended before it was scheduled."""
    unknown: int = 0
    """Number of preemptions with unknown loss: the sums are lower bounds."""
    unpriced: int = 0
    """Number of preemptions with unknown cost."""
    rules: tuple[PreemptionCount, ...] = ()
    victims: tuple[PreemptionCount, ...] = ()
    victim_queues: tuple[PreemptionCount, ...] = ()
    causers: tuple[PreemptionCount, ...] = ()
    """The preemptors."""
    causing_queues: tuple[PreemptionCount, ...] = ()
    cycles: tuple[EvictionCycle, ...] = field(default=(), name="circles")
    """Preemption loops of workloads."""
    queue_cycles: tuple[EvictionCycle, ...] = field(default=(), name="queue_circles")
    """Preemption loops of ClusterQueues."""


def preemption_stats(rows: Sequence[PreemptionRow]) -> PreemptionStats:
    """Summarize preemptions (`preemptions.rows`)."""
    lost = _lost(rows)
    return PreemptionStats(
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
        cycles=eviction_cycles(rows, lambda row: (row.by, row.victim)),
        queue_cycles=eviction_cycles(rows, lambda row: (row.by_queue, row.victim_queue)),
    )


def counts(rows: Iterable[PreemptionRow], name: Callable[[PreemptionRow], str]) -> tuple[PreemptionCount, ...]:
    """Count the rows by name, the most frequent first; rows without a name are left out."""
    found: dict[str, list[PreemptionRow]] = {}
    for row in rows:
        if name(row):
            found.setdefault(name(row), []).append(row)
    ranked = sorted(found, key=lambda one: (-len(found[one]), one))
    return tuple(_count(one, found[one]) for one in ranked)


def _count(name: str, rows: Sequence[PreemptionRow]) -> PreemptionCount:
    lost, thrash = _lost(rows), any(row.thrash for row in rows)
    return PreemptionCount(name, len(rows), lost.gpu_hours, lost.cost, thrash, lost.unknown, lost.unpriced)


class _Lost(Struct, frozen=True):
    """Sum of known losses of some preemptions, and number of unknown ones."""

    gpu_hours: float
    cost: float
    unknown: int
    unpriced: int


def _lost(rows: Sequence[PreemptionRow]) -> _Lost:
    hours = [row.lost_gpu_hours for row in rows if row.lost_gpu_hours is not None]
    costs = [row.cost for row in rows if row.cost is not None]
    return _Lost(sum(hours), sum(costs), len(rows) - len(hours), len(rows) - len(costs))


def about(rows: Iterable[PreemptionRow], names: Collection[str]) -> list[PreemptionRow]:
    """Filter the preemptions with these workloads (or pods without one) as victim or preemptor."""
    return [row for row in rows if row.victim in names or row.by in names]


def chain(row: PreemptionRow, rows: Sequence[PreemptionRow]) -> tuple[str, ...]:
    """Return the victim, its preemptor, the later preemptor of that one, and so on; only a loop repeats a name."""
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


def eviction_cycles(
    rows: Sequence[PreemptionRow], ends: Callable[[PreemptionRow], tuple[str, str]]
) -> tuple[EvictionCycle, ...]:
    """Find the preemption loops: groups of names that preempt each other, directly or indirectly; most evictions first.

    `ends` gives preemptor and victim of a row. A name that preempts only itself is not a loop.
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
        found.append(EvictionCycle(names, len(inside), lost.gpu_hours, lost.cost, lost.unknown, lost.unpriced, pairs))
    return tuple(sorted(found, key=lambda cycle: (-cycle.times, cycle.names)))


def _pairs(ends: Iterable[tuple[str, str]]) -> tuple[PreemptionPair, ...]:
    """Count the preemptions by (preemptor, victim)."""
    counted = sorted(Counter(ends).items(), key=lambda one: (-one[1], one[0][1], one[0][0]))
    return tuple(PreemptionPair(victim, by, times) for (by, victim), times in counted)


def _mutual(edges: Mapping[str, Iterable[str]]) -> list[frozenset[str]]:
    """Return the strongly connected components with at least two names."""
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
