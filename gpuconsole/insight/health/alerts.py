"""Alerts: problems of GPUs, gangs and queues that need an operator's attention, from a Snapshot and the newest history.

Queue problems (`queue_alerts`): no admission, starvation, long waits, pending admission checks, reclaimable quota.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from msgspec import Struct

from gpuconsole.insight.data_gaps import PLACES, QUOTA
from gpuconsole.insight.health.antipatterns import low_utilization, monopoly, oversized, team_monopolies
from gpuconsole.insight.health.telemetry import GpuAlarm, GpuAlarmRule, alarms
from gpuconsole.insight.index.capacity import StarvedQueue, StarvedQuota
from gpuconsole.insight.index.demand import pod_units, template_units
from gpuconsole.insight.index.gpu_map import GpuRow, GpuState, gpu_rows
from gpuconsole.insight.index.pods import all_refused_pods, deadlock, gang_key, pods_by_node, waiting_gangs
from gpuconsole.insight.index.queues import checking, queue_index
from gpuconsole.insight.index.quota_tree import SEVERAL_UNITS, NodeKind, QuotaNode, queues_below, quota_tree
from gpuconsole.insight.preemption.history import at_least, counts, rows
from gpuconsole.insight.sharing.fair_shares import Loan, borrowed_gpus, loans
from gpuconsole.insight.tables import counted
from gpuconsole.model.clock import MINUTE, Span, Time, format_span
from gpuconsole.model.cluster import Pod
from gpuconsole.model.devices import ANY_DEVICE, added, described, is_counted
from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.prices import Prices
from gpuconsole.model.queues import ClusterQueue, PreemptionPolicy
from gpuconsole.model.resources import format_quantity
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload


class AlertKind(StrEnum):
    """Kinds of problems, the most urgent first."""

    KUEUE = "kueue"
    """Kueue itself does not work."""
    DEADLOCK = "deadlock"
    NODE_DOWN = "node-down"
    GPU_FAULT = "gpu-fault"
    QUEUE_INACTIVE = "admits-nobody"
    THRASH = "thrash"
    STARVED = "starved"
    GANG = "gang"
    UNSCHEDULABLE = "unschedulable"
    CHECKS = "checks"
    LONG_WAIT = "long-wait"
    GPU_HOT = "gpu-hot"
    GPU_UNUSED = "gpu-unused"
    GPU_WASTED = "gpu-wasted"
    OVERSIZED = "oversized"
    LOW_UTILIZATION = "low-utilization"
    MONOPOLY = "monopoly"
    IDLE_GPUS = "idle-gpus"
    RECLAIMABLE = "reclaimable"
    IDLE_NODE = "idle-node"


class Alert(Struct, frozen=True, kw_only=True):
    """One problem; `table` and `key` name the object to open, if there is one."""

    trouble: AlertKind
    text: str
    table: str = ""
    key: str = ""
    gpus: int = 0


LONG_WAIT: Span = 30 * MINUTE
CHECKS_LISTED = 5


def queue_alerts(snapshot: Snapshot) -> Iterator[Alert]:
    """List all queue problems, in no particular order."""
    yield from _queues(snapshot)
    yield from _checks(snapshot)
    yield from _borrowers(snapshot)


def _queues(snapshot: Snapshot) -> Iterator[Alert]:
    """Yield alerts for queues that admit no workloads, are starved, or have a long wait."""
    unseen = not snapshot.seen.all_of(ClusterQueue)
    for node in queues_below(quota_tree(snapshot)):
        if unseen and node.kind is NodeKind.LOCAL_QUEUE:
            continue  # Its ClusterQueue exists but is not visible.
        trouble, text = _queue_trouble(node, snapshot.time)
        if trouble is not None:
            table = "cluster_queues" if node.kind is NodeKind.CLUSTER_QUEUE else "local_queues"
            yield Alert(trouble=trouble, text=text, table=table, key=node.name, gpus=node.pending_gpus)


def _queue_trouble(node: QuotaNode, now: Time) -> tuple[AlertKind | None, str]:
    waits = f"; {counted(node.pending, 'pending workload')}" if node.pending else ""
    if node.problem or (node.shut and node.pending):
        return AlertKind.QUEUE_INACTIVE, f"{node.name}: {node.shut}{waits}"
    if node.starved is not None:
        return AlertKind.STARVED, starved_text(node, node.starved, now)
    if node.oldest is not None and now - node.oldest >= LONG_WAIT:
        return (
            AlertKind.LONG_WAIT,
            f"{node.name}: {node.pending} pending, the oldest for {format_span(now - node.oldest)}",
        )
    return None, ""


def starved_text(queue: QuotaNode, starved: StarvedQueue, now: Time) -> str:
    """Format the alert: `ranking is starved: 3 pending, the oldest for 12m; uses 6 of its 16 h100 GPUs …`."""
    parts = [
        f"uses {format_quantity(one.resource, one.used)} of its {format_quantity(one.resource, one.nominal)} "
        f"{one.flavor} {_noun(one, queue.unit)} while {_borrowers_text(one)}"
        for one in starved.quotas
    ]
    wait = format_span(max(0, now - starved.since))
    return f"{queue.name} is starved: {starved.pending} pending, the oldest for {wait}; {'; '.join(parts)}"


def _noun(quota: StarvedQuota, unit: str) -> str:
    """Return the unit of the quota: that of the queue's accelerators if there is one, else the resource's name."""
    if not is_counted(quota.resource) or unit == SEVERAL_UNITS:
        return quota.resource.rpartition("/")[2]
    return unit if quota.nominal == 1 else f"{unit}s"


def _borrowers_text(quota: StarvedQuota) -> str:
    named = [f"{queue} borrows {format_quantity(quota.resource, amount)}" for queue, amount in quota.borrowers[:2]]
    more = len(quota.borrowers) - len(named)
    return " and ".join(named) + (f" ({more} more borrow)" if more else "")


def _checks(snapshot: Snapshot) -> Iterator[Alert]:
    """Yield workloads with pending admission checks: one line each, or one line for all of them if there are many."""
    rows = checking(snapshot)
    if len(rows) > CHECKS_LISTED:
        units = added(*(one.units for one in rows))
        gpus = sum(units.values())
        text = f"{len(rows)} workloads have {described(units)} reserved and wait for admission checks"
        yield Alert(trouble=AlertKind.CHECKS, text=text, table="workloads", key=rows[0].workload, gpus=gpus)
        return
    for one in rows:
        span = format_span(max(0, snapshot.time - one.since))
        text = f"{one.workload}: {described(one.units)} reserved, waiting for {one.names} for {span}"
        yield Alert(
            trouble=AlertKind.CHECKS, text=text, table="workloads", key=one.workload, gpus=sum(one.units.values())
        )


def _borrowers(snapshot: Snapshot) -> Iterator[Alert]:
    """Yield workloads on borrowed quota that its owner can reclaim: one line per ClusterQueue."""
    charged = borrowed_gpus(snapshot)
    by_queue: dict[str, list[Loan]] = {}
    for loan in loans(snapshot) if charged else ():
        if _may_reclaim(snapshot, loan.lender):
            by_queue.setdefault(loan.borrower, []).append(loan)
    for queue, lent in by_queue.items():
        borrowers = list(dict.fromkeys(key for loan in lent for key in loan.workloads))
        yield _reclaimable(queue, borrowers, sum(charged[key] for key in borrowers), lent)


def _may_reclaim(snapshot: Snapshot, lender: str) -> bool:
    """True if the lender may reclaim its quota; a Cohort's own quota is never reclaimed."""
    queue = snapshot.cluster_queues.get(lender)
    return queue is not None and queue.preemption.reclaim_within_cohort is not PreemptionPolicy.NEVER


def _reclaimable(queue: str, borrowers: Sequence[str], borrowed: int, lent: Sequence[Loan]) -> Alert:
    owned: Counter[str] = Counter()
    for loan in lent:
        owned[loan.lender] += loan.gpus
    lenders, gpus = sorted(owned, key=lambda name: (-owned[name], name)), owned.total()
    alone = len(borrowers) == 1
    who = f"{borrowers[0]} runs" if alone else f"{queue}: {len(borrowers)} workloads run"
    owner = " and ".join(lenders[:2]) + (f" and {len(lenders) - 2} more" if len(lenders) > 2 else "")
    units = {loan.unit for loan in lent}
    unit = units.pop() if len(units) == 1 else ANY_DEVICE
    them = "it" if borrowed == 1 else "them" if gpus == borrowed else f"{gpus} of them"
    return Alert(
        trouble=AlertKind.RECLAIMABLE,
        text=f"{who} on {counted(borrowed, f'borrowed {unit}')}; {owner} can reclaim {them}",
        table="workloads" if alone else "cluster_queues",
        key=borrowers[0] if alone else queue,
        gpus=gpus,
    )


UNPRICED = Prices()
GANG_WAIT: Span = MINUTE
IDLE_NODES_LISTED = 5
ALARMS_LISTED = 5
PODS_LISTED = 5


_RANK = {trouble: rank for rank, trouble in enumerate(AlertKind)}


def alerts(snapshot: Snapshot, history: Sequence[HistoryEvent] = ()) -> tuple[Alert, ...]:
    """List all problems, the most urgent kind first; within a kind, the most GPUs first."""
    measured = alarms(snapshot)
    found = [
        *_gangs(snapshot),
        *_unschedulable(snapshot),
        *_nodes(snapshot),
        *queue_alerts(snapshot),
        *_measured(snapshot, measured),
        *_patterns(snapshot, measured),
        *_thrash(history),
    ]
    return tuple(sorted(found, key=lambda one: (_RANK[one.trouble], -one.gpus, one.key)))


def _gangs(snapshot: Snapshot) -> Iterator[Alert]:
    gangs = waiting_gangs(snapshot)
    if not gangs:
        return
    free = {row.node: row.states[GpuState.IDLE] for row in gpu_rows(snapshot)}
    locked = deadlock(snapshot, free) if snapshot.seen.all_of(Workload, *PLACES) else None
    if locked is not None:
        parts = "; ".join(f"{g.name} holds {g.held} and needs {g.missing_gpus} more" for g in locked.gangs[:4])
        yield Alert(
            trouble=AlertKind.DEADLOCK,
            text=f"Deadlock: {len(locked.gangs)} partially scheduled gangs hold {locked.held}: {parts}",
            table=_table(snapshot, locked.gangs[0].name),
            key=locked.gangs[0].name,
            gpus=locked.held_gpus,
        )
    for gang in gangs:
        if snapshot.time - gang.since >= GANG_WAIT or gang.held_gpus:
            state = "partially scheduled gang" if gang.placed else "gang not scheduled"
            holds = f", holding {gang.held}" if gang.held_gpus else ""
            yield Alert(
                trouble=AlertKind.GANG,
                text=f"{gang.name}: {state}, {gang.placed} of {gang.needed} pods placed{holds}",
                table=_table(snapshot, gang.name),
                key=gang.name,
                gpus=gang.held_gpus,
            )


def _unschedulable(snapshot: Snapshot) -> Iterator[Alert]:
    """Workloads with accelerator pods that are unschedulable or refused by a ResourceQuota, gangs excepted."""
    gangs = {gang.key for gang in waiting_gangs(snapshot)}
    found: dict[str, list[Pod]] = {}
    for pod in pods_by_node(snapshot).waiting.values():
        if pod.message and not pod.gates and not pod.deleted and gang_key(pod) not in gangs:
            found.setdefault(pod.workload or pod.job or pod.key, []).append(pod)
    rows = []
    for owner, pods in found.items():
        units = added(*(pod_units(snapshot, pod) for pod in pods))
        if units:
            what = f"{counted(len(pods), 'pod')} ({described(units)}) unschedulable: {pods[0].message}"
            rows.append((owner, f"{owner}: {what}", sum(units.values())))
    for owner, refused in all_refused_pods(snapshot).items():
        namespace = refused.refusal.quota.namespace
        units = added(*(template_units(snapshot, namespace, template) for template in refused.templates))
        if units:
            rows.append((owner, f"{owner}: {refused.text}", sum(units.values())))
    rows.sort(key=lambda row: (-row[2], row[0]))
    for owner, text, number in rows[:PODS_LISTED]:
        table = _table(snapshot, owner) or "workloads"
        yield Alert(trouble=AlertKind.UNSCHEDULABLE, text=text, table=table, key=owner, gpus=number)
    if rest := rows[PODS_LISTED:]:
        text = f"{counted(len(rest), 'more workload')} with unschedulable or missing pods"
        gpus = sum(number for _, _, number in rest)
        yield Alert(trouble=AlertKind.UNSCHEDULABLE, text=text, table="workloads", key=rest[0][0], gpus=gpus)


def _table(snapshot: Snapshot, owner: str) -> str:
    """The Snapshot table that has the owner of a gang; empty if no object represents the gang."""
    if owner in snapshot.workloads:
        return "workloads"
    if owner in snapshot.jobs:
        return "jobs"
    return "pod_groups" if owner in snapshot.pod_groups else ""


def _nodes(snapshot: Snapshot) -> Iterator[Alert]:
    waiting = sum(index.count.pending_gpus for index in queue_index(snapshot).by_queue.values())
    idle = []
    for row in gpu_rows(snapshot):
        if not row.ready:
            text = f"{row.node} is NotReady: {described(row.units)} unavailable"
            yield Alert(trouble=AlertKind.NODE_DOWN, text=text, table="nodes", key=row.node, gpus=len(row.all_cells))
        elif row.all_cells and row.states[GpuState.IDLE] == len(row.all_cells):
            idle.append(row)
    yield from _idle(snapshot, idle, waiting)


def _idle(snapshot: Snapshot, rows: list[GpuRow], waiting: int) -> Iterator[Alert]:
    """Idle nodes: one line each, or one line for all of them if there are many."""
    total, units = sum(len(row.all_cells) for row in rows), described(added(*(row.units for row in rows)))
    if waiting and total:
        text = f"{units} on {counted(len(rows), 'node')} idle while {waiting} are requested"
        yield Alert(trouble=AlertKind.IDLE_GPUS, text=text, table="nodes", key=rows[0].node, gpus=total)
        return
    if len(rows) > IDLE_NODES_LISTED:
        text = f"{len(rows)} nodes with {units} idle"
        yield Alert(trouble=AlertKind.IDLE_NODE, text=text, table="nodes", key=rows[0].node, gpus=total)
        return
    ended = _last_end(snapshot, {row.node for row in rows})
    for row in rows:
        since = ended.get(row.node)
        span = f" for {format_span(snapshot.time - since)}" if since else ""
        text = f"{row.node}: {described(row.units)} idle{span}"
        yield Alert(trouble=AlertKind.IDLE_NODE, text=text, table="nodes", key=row.node, gpus=len(row.all_cells))


def _last_end(snapshot: Snapshot, nodes: set[str]) -> dict[str, Time]:
    """Time at which the last pod on each of these nodes ended, as far as ended pods are still known."""
    ended: dict[str, Time] = {}
    for pod in snapshot.pods.all():
        if pod.node in nodes and pod.done:
            ended[pod.node] = max(ended.get(pod.node, 0), pod.finished)
    return ended


_ALARMS = {
    GpuAlarmRule.FAULTY: (AlertKind.GPU_FAULT, "with faults"),
    GpuAlarmRule.HOT: (AlertKind.GPU_HOT, "hot or throttled"),
    GpuAlarmRule.IDLE: (AlertKind.GPU_UNUSED, "allocated but idle for 30m or longer"),
    GpuAlarmRule.HOARDING: (AlertKind.GPU_WASTED, "with full memory and no activity"),
    GpuAlarmRule.EMPTY: (AlertKind.GPU_WASTED, "with low SM activity"),
}


def _measured(snapshot: Snapshot, measured: Iterable[GpuAlarm]) -> Iterator[Alert]:
    """GPU alarms: the first of each kind one by one, the others in one line."""
    by_rule: dict[GpuAlarmRule, list[GpuAlarm]] = {}
    borrowed = borrowed_gpus(snapshot)
    for alarm in measured:
        by_rule.setdefault(alarm.rule, []).append(alarm)
    for rule, found in by_rule.items():
        trouble, words = _ALARMS[rule]
        for alarm in found[:ALARMS_LISTED]:
            known = alarm.workload in snapshot.workloads and trouble in (AlertKind.GPU_UNUSED, AlertKind.GPU_WASTED)
            table, key = ("workloads", alarm.workload) if known else ("nodes", alarm.node)
            text = alarm.text + _borrowed(
                borrowed.get(alarm.workload, 0) if rule is GpuAlarmRule.IDLE else 0, alarm.unit
            )
            yield Alert(trouble=trouble, text=text, table=table, key=key, gpus=alarm.gpus)
        rest = sum(alarm.gpus for alarm in found[ALARMS_LISTED:])
        if rest:
            units = {alarm.unit for alarm in found[ALARMS_LISTED:]}
            text = f"{counted(rest, f'more {units.pop() if len(units) == 1 else ANY_DEVICE}')} {words}"
            yield Alert(trouble=trouble, text=text, table="nodes", key=found[ALARMS_LISTED].node)


def _borrowed(count: int, unit: str) -> str:
    return f"; {counted(count, unit)} borrowed" if count else ""


def _patterns(snapshot: Snapshot, measured: Iterable[GpuAlarm]) -> Iterator[Alert]:
    """Anti-patterns that need no cost; `antipatterns.antipatterns` lists all of them with their cost."""
    idle = {alarm.workload for alarm in measured if alarm.rule is GpuAlarmRule.IDLE}
    found = sorted(oversized(snapshot, UNPRICED, idle), key=lambda one: -one.gpus)[:ALARMS_LISTED]
    monopolies = [*monopoly(snapshot, UNPRICED)] if snapshot.seen.all_of(*QUOTA) else []
    monopolies += team_monopolies(snapshot, UNPRICED)
    low = sorted(low_utilization(snapshot), key=lambda one: (one.subject != "", -one.gpus))[:ALARMS_LISTED]
    kinds = ((AlertKind.OVERSIZED, found), (AlertKind.LOW_UTILIZATION, low), (AlertKind.MONOPOLY, monopolies))
    for trouble, patterns in kinds:
        for one in patterns:
            yield Alert(trouble=trouble, text=one.text, table=one.table, key=one.subject, gpus=round(one.gpus))


def _thrash(history: Sequence[HistoryEvent]) -> Iterator[Alert]:
    for victim in counts(rows(history), lambda row: row.victim):
        if victim.thrash:
            lost = f"{at_least(f'{victim.lost_gpu_hours:.1f}', victim.unknown, victim.times)} GPU-hours lost"
            text = f"{victim.name}: preemption loop, preempted {victim.times} times in recent events, {lost}"
            yield Alert(trouble=AlertKind.THRASH, text=text, table="workloads", key=victim.name)
