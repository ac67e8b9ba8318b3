"""The history of preemptions: who had to go for whom, by which rule, at what cost, and whether it goes in circles."""

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from gpuconsole.model.clock import HOUR, Span, Time
from gpuconsole.model.decisions import Rule
from gpuconsole.model.events import Happened, What

RULES = {
    Rule.IN_CLUSTER_QUEUE: "priority in the queue",
    Rule.IN_COHORT_RECLAMATION: "reclaim in cohort",
    Rule.IN_COHORT_FAIR_SHARING: "fair sharing in cohort",
    Rule.IN_COHORT_RECLAIM_WHILE_BORROWING: "reclaim while borrowing",
}
"""The reasons of Kueue's Preempted condition, in words."""
OTHER_REASONS = {
    "Preempted": "preempted",
    "NodePriority": "priority on the node",
}
THRASH_WITHIN: Span = HOUR
THRASH_COUNT = 3


class PreemptionRow(Struct, frozen=True, kw_only=True):
    """One preemption: the victim ← the workload that it made room for."""

    time: Time
    """When the victim was chosen."""
    victim: str
    victim_queue: str
    gpus: int
    by: str
    by_queue: str
    rule: str
    """In words; the reason itself where it is none of Kueue's."""
    reason: str
    priority: int
    by_priority: int
    lost_gpu_hours: float
    cost: float
    """USD of the lost work."""
    latency: Span | None
    """From the choice to the moment when the victim was gone; None while it is not."""
    nth: int
    """The how many-th preemption of this victim in the rows' time."""
    thrash: bool
    """The victim was preempted at least three times within the hour that ends here."""
    admitted_at: Time | None
    """When the preemptor got its place; None if it never did: an eviction for nothing, so far."""
    message: str


def rows(history: Sequence[Happened]) -> list[PreemptionRow]:
    """The preemptions in a piece of history (oldest line first), newest first.

    `history` may hold any lines; PREEMPTED makes the rows (POD_EVICTED those of pods without a workload), EVICTED
    and ADMITTED complete them.
    """
    gone: dict[str, list[Happened]] = {}
    placed: dict[str, list[Time]] = {}
    for line in history:
        if line.what == What.EVICTED:
            gone.setdefault(line.workload, []).append(line)
        elif line.what in (What.ADMITTED, What.STARTED):
            placed.setdefault(line.workload, []).append(line.time)
        elif line.what == What.POD_BOUND:
            placed.setdefault(line.pod, []).append(line.time)
    times: dict[str, list[Time]] = {}
    found = []
    for line in history:
        if not _is_preemption(line):
            continue
        victim = line.workload or line.pod
        earlier = times.setdefault(victim, [])
        earlier.append(line.time)
        found.append(_row(line, victim, earlier, gone.get(line.workload, ()), placed.get(line.by, ())))
    found.reverse()
    return found


def _is_preemption(line: Happened) -> bool:
    return line.what == What.PREEMPTED or (line.what == What.POD_EVICTED and bool(line.by))


def _row(
    line: Happened, victim: str, times: Sequence[Time], gone: Sequence[Happened], placed: Sequence[Time]
) -> PreemptionRow:
    end = next((after for after in gone if after.time >= line.time), None)
    lost = line.lost_gpu_seconds or (end.lost_gpu_seconds if end is not None else 0.0)
    recent = sum(1 for time in times if time > line.time - THRASH_WITHIN)
    return PreemptionRow(
        time=line.time,
        victim=victim,
        victim_queue=line.queue,
        gpus=line.gpus,
        by=line.by,
        by_queue=line.by_queue,
        rule=rule_in_words(line.reason),
        reason=line.reason,
        priority=line.priority,
        by_priority=line.by_priority,
        lost_gpu_hours=lost / 3600,
        cost=line.cost or (end.cost if end is not None else 0.0),
        latency=end.time - line.time if end is not None else None,
        nth=len(times),
        thrash=recent >= THRASH_COUNT,
        admitted_at=next((time for time in placed if time >= line.time), None),
        message=line.message,
    )


def rule_in_words(reason: str) -> str:
    """A rule for people; an unknown reason stays as it is."""
    try:
        return RULES[Rule(reason)]
    except ValueError:
        return OTHER_REASONS.get(reason, reason)


class VictimCount(Struct, frozen=True):
    """How often a workload was preempted, and what that lost."""

    workload: str
    times: int
    lost_gpu_hours: float
    cost: float
    thrash: bool


def by_victim(preemptions: Iterable[PreemptionRow]) -> list[VictimCount]:
    """The workloads that were preempted, most often first."""
    times: Counter[str] = Counter()
    cost: dict[str, float] = {}
    hours: dict[str, float] = {}
    thrash: set[str] = set()
    for row in preemptions:
        times[row.victim] += 1
        hours[row.victim] = hours.get(row.victim, 0.0) + row.lost_gpu_hours
        cost[row.victim] = cost.get(row.victim, 0.0) + row.cost
        if row.thrash:
            thrash.add(row.victim)
    ranked = sorted(times, key=lambda name: (-times[name], name))
    return [VictimCount(name, times[name], hours[name], cost[name], name in thrash) for name in ranked]
