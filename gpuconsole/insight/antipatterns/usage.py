"""Anti-patterns from telemetry: accelerators that are allocated but idle, borrowed and idle, or oversized."""

from collections.abc import Container, Iterator

from gpuconsole.insight.antipatterns.pattern import DAY_HOURS, AntiPattern, AntiPatternCode
from gpuconsole.insight.borrowing import borrowed_gpus
from gpuconsole.insight.cost import hourly, unit_hourly
from gpuconsole.insight.device_demand import amount_of
from gpuconsole.insight.gpu_alarm_rules import GpuAlarmRule
from gpuconsole.insight.tables import counted
from gpuconsole.insight.telemetry import LOW_UTILIZATION, Average, GpuAlarm, alarms, sm_by_workload, utilization
from gpuconsole.model.clock import MINUTE, Span, format_span
from gpuconsole.model.prices import Prices
from gpuconsole.model.snapshot import Snapshot

LOW_SM = 10.0
"""Threshold: SM activity in percent below which a request is oversized."""
SETTLED: Span = 30 * MINUTE
"""Minimum run time before a workload is evaluated: it may load its data first."""


def find_unused(snapshot: Snapshot, prices: Prices) -> Iterator[AntiPattern]:
    """Find the anti-patterns of this module; none without telemetry, and none from stale samples."""
    idle = [alarm for alarm in alarms(snapshot) if alarm.rule is GpuAlarmRule.IDLE]
    yield from _idle(snapshot, prices, idle)
    yield from oversized(snapshot, prices, {alarm.workload for alarm in idle})
    yield from low_utilization(snapshot)


def low_utilization(snapshot: Snapshot) -> Iterator[AntiPattern]:
    """Low average utilization of the cluster or of a team; its cost is that of idle and oversized requests."""
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
    """`team speech: average SM activity 18% on 24 GPUs`."""
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
    """Workloads with low SM activity, except those that are known to be idle."""
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
