"""Anti-patterns between workloads: gang deadlocks, monopolies, fragmentation, preemption loops."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from gpuconsole.insight.antipatterns.monopoly import MONOPOLY, team_monopolies
from gpuconsole.insight.antipatterns.pattern import DAY_HOURS, AntiPattern, AntiPatternCode
from gpuconsole.insight.capacity import capacity
from gpuconsole.insight.cost import unit_hourly
from gpuconsole.insight.fragmentation import usefulness
from gpuconsole.insight.gangs import deadlock
from gpuconsole.insight.gpumap import GpuState, gpu_rows
from gpuconsole.insight.losses import at_least
from gpuconsole.insight.preemption_stats import EvictionCycle, PreemptionCount, preemption_stats
from gpuconsole.insight.preemptions import PreemptionRow, rows
from gpuconsole.insight.quota import quota_tree
from gpuconsole.insight.quota_node import NodeKind, QuotaNode, queues_below
from gpuconsole.insight.tables import counted
from gpuconsole.model.clock import DAY, HOUR
from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.prices import Prices
from gpuconsole.model.snapshot import Snapshot

FRAGMENTED = 50.0
"""Threshold: percent of the idle GPUs that typical pods cannot use."""
FEW = 8
"""Threshold: fewer idle GPUs are not reported."""
OFTEN = 4
"""Threshold: evictions among a group of queues that make it a preemption loop."""
PAIRS = 3
"""Number of pairs of a preemption loop that the text names."""


def find_contention(snapshot: Snapshot, prices: Prices, history: Sequence[HistoryEvent]) -> Iterator[AntiPattern]:
    """Find the anti-patterns of this module; evictions come from `history` (oldest line first)."""
    yield from _deadlock(snapshot, prices)
    yield from monopoly(snapshot, prices)
    yield from team_monopolies(snapshot, prices)
    yield from _fragments(snapshot, prices)
    yield from _thrash(snapshot, rows(history))


def _deadlock(snapshot: Snapshot, prices: Prices) -> Iterator[AntiPattern]:
    free = {row.node: row.counts[GpuState.IDLE] for row in gpu_rows(snapshot)}
    locked = deadlock(snapshot, free)
    if locked is None:
        return
    first = locked.gangs[0]
    yield AntiPattern(
        code=AntiPatternCode.DEADLOCK,
        subject=first.name,
        table="workloads" if first.name in snapshot.workloads else "jobs",
        text=f"{len(locked.gangs)} partially scheduled gangs hold {locked.held} and wait for each other",
        evidence={gang.name: f"holds {gang.held}, needs {gang.missing_gpus} more" for gang in locked.gangs},
        gpus=locked.held_gpus,
        unit=locked.unit,
        cost_per_day=locked.held_gpus * unit_hourly(snapshot, locked.unit, prices) * DAY_HOURS,
        fix="evict one gang; use gang scheduling (Kueue's waitForPodsReady, a PodGroup, or a gang scheduler)",
        since=first.since,
    )


def monopoly(snapshot: Snapshot, prices: Prices) -> Iterator[AntiPattern]:
    """A queue that uses most of a cohort tree and borrows, while another queue is pending below its nominal quota."""
    for root in quota_tree(snapshot):
        yield from _shared_queues(root, snapshot, prices)
        queues = [queue for queue in queues_below((root,)) if queue.kind is NodeKind.CLUSTER_QUEUE]
        for node in queues:
            part = node.gpus.used / root.gpus.potential if root.gpus.potential else 0.0
            starved = [one for one in queues if one is not node and one.pending and one.gpus.used < one.gpus.nominal]
            if len(queues) < 2 or part < MONOPOLY or not node.gpus.borrowed or not starved:
                continue
            names = ", ".join(one.name for one in starved)
            yield AntiPattern(
                code=AntiPatternCode.MONOPOLY,
                subject=node.name,
                table="cluster_queues",
                text=f"{node.name} holds {100 * part:.0f}% of the {root.unit}s of {root.name};"
                f" pending below nominal quota: {names}",
                evidence={
                    "holds": node.gpus.used,
                    "owns": node.gpus.nominal,
                    "of": root.gpus.potential,
                    "others wait for": sum(one.pending_gpus for one in starved),
                },
                gpus=node.gpus.borrowed,
                unit=node.unit,
                cost_per_day=node.gpus.borrowed * unit_hourly(snapshot, node.unit, prices) * DAY_HOURS,
                fix="set its borrowingLimit, or lendingLimit of the others; or let them reclaim (reclaimWithinCohort)",
            )


def _shared_queues(root: QuotaNode, snapshot: Snapshot, prices: Prices) -> Iterator[AntiPattern]:
    """A namespace that holds most of a ClusterQueue that several share, while another one is pending with less.

    Kueue has no quota per LocalQueue: the first to be admitted can use all of it.
    """
    for node in queues_below((root,)):
        local_queues = node.children if node.kind is NodeKind.CLUSTER_QUEUE else ()
        held: dict[str, int] = defaultdict(int)
        asked: dict[str, int] = defaultdict(int)
        for local_queue in local_queues:
            namespace = local_queue.name.partition("/")[0]
            held[namespace] += local_queue.gpus.used
            asked[namespace] += local_queue.pending_gpus
        part, total = node.gpus.nominal / max(1, len(held)), node.gpus.nominal
        left = max(0, total - node.gpus.used)
        starved = [name for name in sorted(held) if asked[name] > left and held[name] < part]
        for name, used in sorted(held.items()):
            if not total or used / total < MONOPOLY or used <= part or not starved:
                continue
            verb = "has" if len(starved) == 1 else "have"
            yield AntiPattern(
                code=AntiPatternCode.MONOPOLY,
                subject=node.name,
                table="cluster_queues",
                text=f"namespace {name} holds {100 * used / total:.0f}% of the {counted(total, node.unit)} of"
                f" ClusterQueue {node.name}; {', '.join(starved)} {verb} pending work below an equal part",
                evidence={
                    "namespace": name,
                    "holds": used,
                    "equal part": round(part, 1),
                    "of": total,
                    "others wait for": sum(asked[other] for other in starved),
                },
                gpus=used - part,
                unit=node.unit,
                cost_per_day=(used - part) * unit_hourly(snapshot, node.unit, prices) * DAY_HOURS,
                fix="give each namespace its own ClusterQueue in one cohort, or use admission fair sharing",
            )


def _fragments(snapshot: Snapshot, prices: Prices) -> Iterator[AntiPattern]:
    answer = usefulness(snapshot)
    measure = answer.fragments
    if measure.idle < FEW or measure.percent < FRAGMENTED:
        return
    unit = answer.cluster.unit
    yield AntiPattern(
        code=AntiPatternCode.FRAGMENTATION,
        subject="",
        text=f"{measure.fragment:.0f} of {measure.idle} idle {unit}s are fragmented: too small for typical pods",
        evidence={
            "idle": measure.idle,
            "percent": round(measure.percent),
            "most on one node": answer.cluster.largest_pod,
        },
        gpus=measure.fragment,
        unit=unit,
        cost_per_day=measure.fragment * unit_hourly(snapshot, unit, prices) * DAY_HOURS,
        fix="bin-pack small pods (binpack, MostAllocated), consolidate, or use MIG for small workloads",
    )


def _thrash(snapshot: Snapshot, found: Sequence[PreemptionRow]) -> Iterator[AntiPattern]:
    """Preemption loops: workloads that are preempted repeatedly, and queues that preempt each other."""
    if not found:
        return
    stats = preemption_stats(found)
    days = max(HOUR, snapshot.time - found[-1].time) / DAY
    often = [cycle for cycle in stats.queue_cycles if cycle.times >= OFTEN]
    shared = _shared(found, often)
    for victim in stats.victims:
        if victim.thrash:
            yield AntiPattern(
                code=AntiPatternCode.THRASH,
                subject=victim.name,
                table="workloads" if victim.name in snapshot.workloads else "",
                text=f"{victim.name}: preemption loop, preempted {victim.times} times (3 or more within 1h)",
                evidence={"preemptions": victim.times, "GPU-hours lost": _hours(victim)},
                cost_per_day=victim.cost / days,
                shared_cost_per_day=shared.get(victim.name, 0.0) / days,
                fix="give it dedicated quota, a higher priority or checkpoints; or hold it until quota is available",
            )
    yield from (_preemption_loop(snapshot, cycle, days) for cycle in often)


def _hours(lost: PreemptionCount | EvictionCycle) -> float | str:
    hours = round(lost.lost_gpu_hours, 1)
    return at_least(str(hours), lost.unknown, lost.times) if lost.unknown else hours


def _shared(found: Sequence[PreemptionRow], often: Sequence[EvictionCycle]) -> dict[str, float]:
    """Victim → USD of its evictions that one of the preemption loops counts as well."""
    cycle_of = {name: number for number, cycle in enumerate(often) for name in cycle.names}
    costs: dict[str, float] = {}
    for row in found:
        inside = row.by_queue != row.victim_queue and row.by_queue in cycle_of
        if inside and cycle_of[row.by_queue] == cycle_of.get(row.victim_queue):
            costs[row.victim] = costs.get(row.victim, 0.0) + (row.cost or 0.0)
    return costs


def _often(cycle: EvictionCycle) -> str:
    """Format the most frequent pairs (victim ← preemptor) of a preemption loop."""
    pairs = [f"{pair.victim} ← {pair.by} ({pair.times}×)" for pair in cycle.pairs[:PAIRS]]
    return ", ".join(pairs) + (", …" if len(cycle.pairs) > PAIRS else "")


def _preemption_loop(snapshot: Snapshot, cycle: EvictionCycle, days: float) -> AntiPattern:
    tree = capacity(snapshot).tree
    parents = {tree.names[tree.parent[tree.queues[name]]] for name in cycle.names if name in tree.queues}
    return AntiPattern(
        code=AntiPatternCode.THRASH,
        subject=cycle.names[0],
        table="cluster_queues",
        text=f"{len(cycle.names)} queues preempt each other {cycle.times} times: {_often(cycle)}",
        evidence={
            "evictions": cycle.times,
            "GPU-hours lost": _hours(cycle),
            "below": ", ".join(sorted(parents)),
        },
        cost_per_day=cycle.cost / days,
        fix="lower the borrowing limits, set reclaimWithinCohort: LowerPriority, or enable fair sharing",
    )
