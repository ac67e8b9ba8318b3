"""The list of problems that need an operator's attention, from one Snapshot and the newest history."""

from collections.abc import Iterable, Iterator, Sequence

from gpuconsole.insight.alert_kinds import Alert, AlertKind
from gpuconsole.insight.antipatterns.contention import monopoly
from gpuconsole.insight.antipatterns.monopoly import team_monopolies
from gpuconsole.insight.antipatterns.usage import low_utilization, oversized
from gpuconsole.insight.borrowing import borrowed_gpus
from gpuconsole.insight.data_gaps import PLACES, QUOTA
from gpuconsole.insight.device_demand import pod_units, template_units
from gpuconsole.insight.gangs import deadlock, gang_key, waiting_gangs
from gpuconsole.insight.gpu_alarm_rules import GpuAlarmRule
from gpuconsole.insight.gpumap import GpuRow, GpuState, gpu_rows
from gpuconsole.insight.losses import at_least
from gpuconsole.insight.missing_pods import all_refused_pods
from gpuconsole.insight.pods_by_node import pods_by_node
from gpuconsole.insight.preemption_stats import counts
from gpuconsole.insight.preemptions import rows
from gpuconsole.insight.queue_alerts import queue_alerts
from gpuconsole.insight.queue_index import queue_index
from gpuconsole.insight.tables import counted
from gpuconsole.insight.telemetry import GpuAlarm, alarms
from gpuconsole.model.clock import MINUTE, Span, Time, format_span
from gpuconsole.model.cluster import Pod
from gpuconsole.model.device_units import ANY_DEVICE, added, described
from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.prices import Prices
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload

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
    """Anti-patterns that need no cost; `antipatterns.finding` lists all of them with their cost."""
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
