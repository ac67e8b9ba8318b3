"""Anti-patterns: what works but wastes GPUs or waiting time, with evidence, cost and fix; the most expensive first.

They come from workloads (`find_contention`: gang deadlocks, monopolies, fragmentation, preemption loops), from
telemetry (`find_unused`: accelerators that are idle, borrowed and idle, or oversized), and from manifests (`find`: the
lint findings that waste GPUs).
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from gpuconsole.insight.cost.rates import hourly, unit_hourly
from gpuconsole.insight.data_gaps import PLACES, QUOTA
from gpuconsole.insight.health.telemetry import (
    LOW_UTILIZATION,
    Average,
    GpuAlarm,
    GpuAlarmRule,
    alarms,
    sm_by_workload,
    utilization,
)
from gpuconsole.insight.index.capacity import capacity
from gpuconsole.insight.index.demand import amount_of, quota_accelerators, quota_unit
from gpuconsole.insight.index.engine_queues import ENGINES, queues, volcano_uses
from gpuconsole.insight.index.fragmentation import usefulness
from gpuconsole.insight.index.gpu_map import GpuState, gpu_rows
from gpuconsole.insight.index.gpu_time import gpu_allocations, queue_of
from gpuconsole.insight.index.pods import deadlock
from gpuconsole.insight.index.quota_tree import NodeKind, QuotaNode, leaves, queues_below, quota_tree
from gpuconsole.insight.linting import LintEngines, LintFacts, LintFinding, lint
from gpuconsole.insight.linting.facts import OPEN, placed_by
from gpuconsole.insight.preemption.history import (
    EvictionCycle,
    PreemptionCount,
    PreemptionRow,
    at_least,
    preemption_stats,
    rows,
)
from gpuconsole.insight.sharing.fair_shares import borrowed_gpus
from gpuconsole.insight.tables import counted
from gpuconsole.model.clock import DAY, HOUR, MINUTE, Span, Time, format_span
from gpuconsole.model.cluster import Namespace, Node, Pod, PriorityClass
from gpuconsole.model.devices import WHOLE_GPU, added, common, in_one_unit
from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.job import Job, JobPhase
from gpuconsole.model.objects import Object
from gpuconsole.model.prices import Prices
from gpuconsole.model.queues import (
    ClusterQueue,
    Cohort,
    LocalQueue,
    ResourceFlavor,
    Topology,
    WorkloadPriorityClass,
)
from gpuconsole.model.snapshot import Snapshot, Visibility
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.policy import SimPolicy

DAY_HOURS = 24


class AntiPatternCode(StrEnum):
    """Kinds of anti-pattern, the most urgent first."""

    DEADLOCK = "gang-deadlock"
    COHORT_CYCLE = "cohort-cycle"
    THRASH = "thrash"
    IDLE = "idle-allocated"
    BORROWED_IDLE = "borrowed-idle"
    OVERSIZED = "oversized-request"
    LOW_UTILIZATION = "low-utilization"
    MONOPOLY = "monopoly"
    FRAGMENTATION = "fragmentation"
    NEVER_FITS = "never-fits"
    UNREACHABLE_QUOTA = "unreachable-quota"
    MISSING_PRIORITY_CLASS = "missing-priority-class"


class AntiPattern(Struct, frozen=True, kw_only=True):
    """One finding; `table` and `subject` name the object that it is about, if there is one."""

    code: AntiPatternCode
    subject: str
    table: str = ""
    text: str
    """One sentence."""
    evidence: Mapping[str, str | int | float] = {}
    """The numbers that support it."""
    gpus: float = 0.0
    """Wasted GPUs, or what `unit` names."""
    unit: str = WHOLE_GPU.noun
    cost_per_day: float = 0.0
    """Cost in USD per day while nothing changes; 0 if there is none."""
    shared_cost_per_day: float = 0.0
    """Part of that cost that another finding counts as well: evictions inside a preemption loop of queues."""
    fix: str
    since: Time | None = None


def total_per_day(found: Iterable[AntiPattern]) -> float:
    """Cost of all findings in USD per day, each eviction counted once."""
    return sum(one.cost_per_day - one.shared_cost_per_day for one in found)


MONOPOLY = 0.8
"""Threshold: fraction of the GPUs that one team holds while others are pending."""


class _Team(Struct):
    """Accelerators that a team holds and requests. Filled while they are counted."""

    used: float = 0.0
    unqueued: float = 0.0
    """Part of the held accelerators that belongs to no Kueue Workload."""
    wanted: float = 0.0
    blocked: bool = False
    """It has pending pods that fit on no node."""


def team_monopolies(snapshot: Snapshot, prices: Prices) -> Iterator[AntiPattern]:
    """Find teams that hold most accelerators, more than their share, while another one is pending below its share.

    A team's share is what its queue deserves; for namespaces, and for queues without such a value, an equal part. Work
    that Kueue admitted is not counted as a monopoly, since quota decides there (see `monopoly`); but it may be pending
    because unqueued work of another namespace holds the nodes.
    """
    if not snapshot.seen.all_of(*PLACES) or not _anybody_waits(snapshot):
        return
    rows = [row for row in gpu_rows(snapshot) if row.ready]
    total = sum(sum(row.units.values()) for row in rows)
    by_queue, teams = _teams(snapshot, max((row.counts[GpuState.IDLE] for row in rows), default=0))
    shares = _shares(snapshot, teams, total) if by_queue else dict.fromkeys(teams, total / max(1, len(teams)))
    unit = common(unit for row in rows for unit in row.units) or WHOLE_GPU
    for name, team in sorted(teams.items()):
        starved = [
            other for other, one in sorted(teams.items()) if other != name and one.blocked and one.used < shares[other]
        ]
        if not total or team.unqueued / total < MONOPOLY or team.used <= shares[name] or not starved:
            continue
        beyond = team.used - shares[name]
        kind = "queue" if by_queue else "namespace"
        verb = "has" if len(starved) == 1 else "have"
        whose = "its share" if len(starved) == 1 else "their shares"
        yield AntiPattern(
            code=AntiPatternCode.MONOPOLY,
            subject=name,
            text=(
                f"{kind} {name} holds {100 * team.used / total:.0f}% of the {total} {unit.noun}s; "
                f"{', '.join(starved)} {verb} pending work below {whose}"
            ),
            evidence={
                "holds": round(team.used, 1),
                "share": round(shares[name], 1),
                "of": total,
                "others wait for": round(sum(teams[other].wanted for other in starved), 1),
            },
            gpus=beyond,
            unit=unit.noun,
            cost_per_day=beyond * unit_hourly(snapshot, unit.noun, prices) * DAY_HOURS,
            fix=_FIXES[kind],
        )


_FIXES = {
    "queue": "limit the queue (Volcano: capability, KAI: limit), or let the others reclaim their deserved share",
    "namespace": "limit the namespace with a ResourceQuota, or use Kueue with quota for each team",
}


def _anybody_waits(snapshot: Snapshot) -> bool:
    pods = any(one.devices for one in gpu_allocations(snapshot).get("", ()))
    return pods or any(group.phase in ("", "Pending") for group in snapshot.pod_groups.all())


def _teams(snapshot: Snapshot, most_idle: int) -> tuple[bool, Mapping[str, _Team]]:
    """Sum accelerators by team: by queue if there are several queues, else by namespace. The first value is True if by
    queue.

    A pod that would fit into the idle GPUs of one node (`most_idle`) is pending for another reason.
    """
    work = [(node, one) for node, held in gpu_allocations(snapshot).items() for one in held if one.devices]
    held_back = {name: n for name, use in volcano_uses(snapshot).items() if (n := sum(use.held_back.values()))}
    names = {queue_of(snapshot, one) for _, one in work if not one.workload} | held_back.keys()
    by_queue = len(names - {""}) > 1
    teams: dict[str, _Team] = {}
    for node, one in work:
        if by_queue and one.workload:
            continue
        team = teams.setdefault(queue_of(snapshot, one) if by_queue else one.namespace, _Team())
        if node:
            team.used += one.gpus or one.devices
            team.unqueued += 0 if one.workload else one.gpus or one.devices
        else:
            team.wanted += one.devices
            team.blocked |= one.devices > most_idle
    for name, amount in held_back.items() if by_queue else ():
        team = teams.setdefault(name, _Team())
        team.wanted += amount
        team.blocked |= amount > most_idle
    return by_queue, teams


def _shares(snapshot: Snapshot, teams: Mapping[str, _Team], total: int) -> dict[str, float]:
    """The deserved share of each queue; an equal part if none is set, or if together they exceed the cluster."""
    deserved = {
        leaf.name: float(leaf.gpus.nominal)
        for root in queues(snapshot)
        if root.kind in ENGINES
        for leaf in leaves(root)
        if leaf.name in teams
    }
    equal = total / len(teams)
    if not 0 < sum(deserved.values()) <= total:
        return dict.fromkeys(teams, equal)
    return {name: deserved.get(name, 0.0) for name in teams}


FRAGMENTED = 50.0
"""Threshold: percent of the idle GPUs that typical pods cannot use."""
FEW = 8
"""Threshold: fewer idle GPUs are not reported."""
OFTEN = 4
"""Threshold: evictions among a group of queues from which on it is a preemption loop."""
PAIRS = 3
"""Number of pairs of a preemption loop that the text names."""


def find_contention(snapshot: Snapshot, prices: Prices, history: Sequence[HistoryEvent]) -> Iterator[AntiPattern]:
    """Find gang deadlocks, monopolies, fragmentation and preemption loops; `history` has the oldest line first."""
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
    """Find queues that use most of a cohort tree and borrow, while another one is pending below its nominal quota.

    Also namespaces that use most of a ClusterQueue that several share.
    """
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


LOW_SM = 10.0
"""Threshold: SM activity in percent below which a request is oversized."""
SETTLED: Span = 30 * MINUTE
"""Minimum run time before a workload is evaluated: it may load its data first."""


def find_unused(snapshot: Snapshot, prices: Prices) -> Iterator[AntiPattern]:
    """Find idle, oversized and underutilized accelerators; none without telemetry, and none from stale samples."""
    idle = [alarm for alarm in alarms(snapshot) if alarm.rule is GpuAlarmRule.IDLE]
    yield from _idle(snapshot, prices, idle)
    yield from oversized(snapshot, prices, {alarm.workload for alarm in idle})
    yield from low_utilization(snapshot)


def low_utilization(snapshot: Snapshot) -> Iterator[AntiPattern]:
    """Find low average utilization of the cluster or of a team, without cost: other findings count the waste."""
    found = utilization(snapshot, SETTLED)
    averages = (found.cluster, *found.teams) if found is not None else ()
    for one in averages:
        if not one.is_low:
            continue
        evidence = {
            f"{one.unit}s": one.gpus,
            "measured": one.measured,
            "SM percent": round(one.sm, 1) if one.sm is not None else "",
            "utilization percent": round(one.utilization, 1) if one.utilization is not None else "",
            "threshold": LOW_UTILIZATION,
        }
        yield AntiPattern(
            code=AntiPatternCode.LOW_UTILIZATION,
            subject=one.team,
            table="namespaces" if one.team in snapshot.namespaces else "",
            text=low_utilization_text(one),
            evidence=evidence,
            gpus=one.gpus * (1 - one.percent / 100),
            unit=one.unit,
            fix="start with the workloads of lowest SM activity: fix their input pipeline, or use MIG instances"
            " or shared GPUs",
        )


def low_utilization_text(one: Average) -> str:
    """Format an average: `team speech: average SM activity 18% on 24 GPUs`."""
    who = f"team {one.team}" if one.team else "the cluster"
    what = "SM activity" if one.sm is not None else "utilization"
    return f"{who}: average {what} {one.percent:.0f}% on {counted(one.gpus, one.unit)}, below {LOW_UTILIZATION:.0f}%"


def _idle(snapshot: Snapshot, prices: Prices, idle: list[GpuAlarm]) -> Iterator[AntiPattern]:
    borrowed = borrowed_gpus(snapshot)
    for alarm in idle:
        lent = min(alarm.gpus, borrowed.get(alarm.workload, 0))
        yield AntiPattern(
            code=AntiPatternCode.BORROWED_IDLE if lent else AntiPatternCode.IDLE,
            subject=alarm.workload or alarm.node,
            table="workloads" if alarm.workload in snapshot.workloads else "nodes",
            text=alarm.text + (f"; {lent} of them borrowed" if lent else ""),
            evidence={
                f"{alarm.unit}s": alarm.gpus,
                "borrowed": lent,
                "idle for": format_span(snapshot.time - alarm.since) if alarm.since is not None else "",
            },
            gpus=alarm.gpus,
            unit=alarm.unit,
            cost_per_day=alarm.gpus * _unit_hourly(snapshot, prices, alarm) * DAY_HOURS,
            fix="stop it, or release its GPUs while it is idle"
            + ("; a borrowingLimit leaves the quota to queues that use it" if lent else ""),
            since=alarm.since,
        )


def _unit_hourly(snapshot: Snapshot, prices: Prices, alarm: GpuAlarm) -> float:
    workload = snapshot.workloads.get(alarm.workload)
    if workload is not None and workload.admission is not None:
        count, unit = amount_of(snapshot, workload)
        if count and unit == alarm.unit:
            return hourly(snapshot, workload, prices) / count
    return unit_hourly(snapshot, alarm.unit, prices, alarm.node)


def oversized(snapshot: Snapshot, prices: Prices, idle: Container[str] = ()) -> Iterator[AntiPattern]:
    """Find workloads that request more GPUs than they use: low SM activity. `idle` are workloads to skip."""
    for key, sm in sm_by_workload(snapshot).items():
        if sm >= LOW_SM:
            continue
        workload = snapshot.workloads.get(key)
        admitted = workload.condition("Admitted") if workload is not None else None
        if workload is None or admitted is None or not admitted.status or key in idle:
            continue
        if snapshot.time - admitted.since < SETTLED:
            continue
        count, unit = amount_of(snapshot, workload)
        if not count:
            continue
        unused = count * (1 - sm / 100)
        yield AntiPattern(
            code=AntiPatternCode.OVERSIZED,
            subject=key,
            table="workloads",
            text=f"{key}: SM activity {sm:.0f}% on {counted(count, unit)}, below {LOW_SM:.0f}%",
            evidence={f"{unit}s": count, "SM percent": round(sm, 1), "threshold": LOW_SM},
            gpus=unused,
            unit=unit,
            cost_per_day=hourly(snapshot, workload, prices) * DAY_HOURS * (1 - sm / 100),
            fix="request fewer GPUs, a MIG instance or a shared GPU; or fix the input pipeline",
            since=admitted.since,
        )


_RANK = {code: rank for rank, code in enumerate(AntiPatternCode)}
RESTS_ON: Mapping[AntiPatternCode, tuple[type, ...]] = {
    AntiPatternCode.DEADLOCK: (Workload, *PLACES),
    AntiPatternCode.MONOPOLY: QUOTA,
    AntiPatternCode.FRAGMENTATION: PLACES,
    AntiPatternCode.NEVER_FITS: (ClusterQueue, Cohort, ResourceFlavor, Topology, Node),
    AntiPatternCode.UNREACHABLE_QUOTA: (ClusterQueue, LocalQueue, Cohort, ResourceFlavor, Namespace, Node),
    AntiPatternCode.MISSING_PRIORITY_CLASS: (PriorityClass, WorkloadPriorityClass),
}
"""Kind → objects that must all be visible: otherwise a finding may be false."""
_ALSO_READS: Mapping[AntiPatternCode, tuple[type, ...]] = {
    AntiPatternCode.THRASH: (HistoryEvent,),
    AntiPatternCode.NEVER_FITS: (LocalQueue,),
}
"""Kind → further objects that it reads; its findings are correct even if some of these are not visible."""


def antipatterns(
    snapshot: Snapshot, prices: Prices, history: Sequence[HistoryEvent] = (), engines: LintEngines = OPEN
) -> tuple[AntiPattern, ...]:
    """Find all anti-patterns, the most expensive first, those without cost by kind. `history`: oldest line first.

    Kinds that need objects that are not visible are skipped (see `unchecked_kinds`).
    """
    found = [
        *find_contention(snapshot, prices, history),
        *find_unused(snapshot, prices),
        *find(snapshot, engines, prices),
    ]
    found = [one for one in found if snapshot.seen.all_of(*RESTS_ON.get(one.code, ()))]
    return tuple(sorted(found, key=lambda one: (-one.cost_per_day, _RANK[one.code], one.subject, one.text)))


def unchecked_kinds(seen: Visibility) -> tuple[str, ...]:
    """List the kinds that were skipped, wholly or in part, with the missing permissions."""
    codes: dict[tuple[str, ...], list[str]] = {}
    for code in AntiPatternCode:
        if lacking := seen.missing_reasons(*RESTS_ON.get(code, ()), *_ALSO_READS.get(code, ())):
            codes.setdefault(lacking, []).append(code)
    said = [f"{', '.join(group)}: {'; '.join(lacking)}" for lacking, group in codes.items()]
    unseen = seen.missing_reasons(Job, Workload, Pod)
    return (*said, *([f"findings about other workloads: {'; '.join(unseen)}"] if unseen else ()))


def engines_of(policy: SimPolicy) -> LintEngines:
    """Return what lint checks the manifests against: the policy's schedulers and Kueue configuration."""
    placement = placed_by(policy.placement)
    return LintEngines(
        # A cluster in which kube-scheduler is assumed may have other schedulers as well.
        placement="" if placement == "kube-scheduler" else placement,
        kueue=policy.kueue,
        unqueued=policy.kueue is None,
        capacity=policy.capacity,
    )


CODES = {
    "cohort-cycle": AntiPatternCode.COHORT_CYCLE,
    "unreachable-quota": AntiPatternCode.UNREACHABLE_QUOTA,
    "quota-beyond-nodes": AntiPatternCode.UNREACHABLE_QUOTA,
    "never-fits-quota": AntiPatternCode.NEVER_FITS,
    "never-fits-flavor": AntiPatternCode.NEVER_FITS,
    "never-fits-topology": AntiPatternCode.NEVER_FITS,
    "never-fits-node": AntiPatternCode.NEVER_FITS,
    "never-fits-cluster": AntiPatternCode.NEVER_FITS,
    "resource-not-covered": AntiPatternCode.NEVER_FITS,
    "mig-profile-not-covered": AntiPatternCode.NEVER_FITS,
    "missing-priority-class": AntiPatternCode.MISSING_PRIORITY_CLASS,
}
"""Code of a lint finding → the kind of anti-pattern that it is reported as."""
_TABLES = {"ClusterQueue": "cluster_queues", "Cohort": "cohorts", "ResourceFlavor": "flavors", "Workload": "workloads"}


def find(snapshot: Snapshot, engines: LintEngines, prices: Prices) -> Iterator[AntiPattern]:
    """Find the anti-patterns in manifests: the lint findings about unfinished work that waste GPUs."""
    alive = [obj for obj in snapshot.objects() if not _over(obj)]
    for finding in lint(LintFacts(alive, engines)):
        # A node with a MIG profile without quota is only a warning: no workload is refused because of it.
        if finding.code in CODES and not finding.object.startswith("Node/"):
            yield _pattern(snapshot, finding, prices)


def _over(obj: Object) -> bool:
    match obj:
        case Workload():
            return obj.finished
        case Job():
            return obj.phase in (JobPhase.SUCCEEDED, JobPhase.FAILED)
        case Pod():
            return obj.done
        case _:
            return False


def _pattern(snapshot: Snapshot, finding: LintFinding, prices: Prices) -> AntiPattern:
    kind, _, name = finding.object.partition("/")
    gpus, unit = _stranded(snapshot, finding, name)
    return AntiPattern(
        code=CODES[finding.code],
        subject=name,
        table=_TABLES.get(kind, "jobs" if name.count("/") else ""),
        text=f"{finding.object}: {finding.problem}",
        evidence=finding.evidence,
        gpus=gpus,
        unit=unit,
        cost_per_day=gpus * unit_hourly(snapshot, unit, prices) * DAY_HOURS if gpus else 0.0,
        fix=finding.fix,
    )


def _stranded(snapshot: Snapshot, finding: LintFinding, name: str) -> tuple[int, str]:
    """Accelerators that no workload can get because their quota is unreachable, and their unit."""
    queue = snapshot.cluster_queues.get(name)
    if finding.code != "unreachable-quota" or queue is None:
        return 0, WHOLE_GPU.noun
    counted = quota_accelerators(snapshot)
    quotas = [(resource, quota.nominal) for (_, resource), quota in queue.quotas().items() if resource in counted]
    wanted = added(*({quota_unit(snapshot, resource): nominal} for resource, nominal in quotas))
    there = added(*(row.units for row in gpu_rows(snapshot)))
    return in_one_unit({unit: min(nominal, there.get(unit, 0)) for unit, nominal in wanted.items()})
