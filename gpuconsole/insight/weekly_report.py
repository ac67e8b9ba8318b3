"""Weekly report of a recorded cluster: utilization, waits, preemptions, idle GPUs, cost and anti-patterns.

Each number stands beside that of the week before. Numbers that were not recorded are None, never 0. Utilization, waits
by queue and counts come from hourly samples, costs and lost work from CostHour rows, and waits by team and size from
history events, which are kept for a shorter time.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from statistics import fmean
from typing import TypeVar

from msgspec import Struct

from gpuconsole.insight.cost.allocation import CostHour, CostKind
from gpuconsole.insight.cost.report import CostBy, cost_summary
from gpuconsole.insight.health.antipatterns import AntiPatternCode
from gpuconsole.insight.health.telemetry import LOW_UTILIZATION
from gpuconsole.insight.preemption.history import PreemptionRow, counts, preemption_stats, rows
from gpuconsole.insight.series import GpuSample, QueueSample, Samples, SeriesKind, mean_utilization
from gpuconsole.model.clock import DAY, HOUR, SECOND, Span, Time, in_seconds, quantile
from gpuconsole.model.events import HistoryEvent, HistoryEventKind

WEEK: Span = 7 * DAY
HOURS = WEEK // HOUR
SIZES = ((1, "1 GPU"), (4, "2–4 GPUs"), (8, "5–8 GPUs"), (32, "9–32 GPUs"))
"""Largest number of GPUs of a workload in a size class, and its name."""
NO_GPUS, LARGER = "no GPUs", "more than 32 GPUs"
IDLE_WHILE_PENDING = 0.05
"""Anti-pattern FRAGMENTATION: more than this fraction of the GPU time was idle while that many GPUs were requested."""
PAIRS = 5
_WEEK = re.compile(r"(\d{4})-W(\d{2})")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Compared(Struct, frozen=True):
    """A number of the week and of the week before; None if it is not known."""

    value: float | None
    before: float | None = None


class WeekData(Struct, frozen=True, kw_only=True):
    """What was recorded in one week."""

    begin: Time
    """Start of the week: Monday, 00:00 UTC."""
    samples: Sequence[Samples] = ()
    """Hourly samples of the week, oldest first."""
    costs: Sequence[CostHour] = ()
    events: Sequence[HistoryEvent] = ()
    """Admissions, preemptions, and evictions with lost work, oldest first."""
    events_since: Time | None = None
    """Start of the known events; None if none are known."""

    @property
    def end(self) -> Time:
        """End of the week (exclusive)."""
        return self.begin + WEEK

    @property
    def has_events(self) -> bool:
        """True if the events of a part of the week are known."""
        return self.events_since is not None and self.events_since < self.end

    @property
    def has_all_events(self) -> bool:
        """True if the events since the start of the week's samples are known."""
        first = max(self.begin, self.samples[0].time) if self.samples else self.begin
        return self.events_since is not None and self.events_since < first + HOUR


class GpuTypeWeek(Struct, frozen=True, kw_only=True):
    """GPUs of one type: means over the recorded hours."""

    gpu_type: str
    gpus: Compared
    allocated_percent: Compared
    utilization_percent: Compared
    """Of the GPUs that pods ran on, as far as it was measured."""
    unhealthy: Compared


class QueueWeek(Struct, frozen=True, kw_only=True):
    """Quota and waits of one ClusterQueue: means over the recorded hours."""

    queue: str
    nominal: Compared
    used: Compared
    borrowed: Compared
    lent: Compared
    admitted: Compared
    """Number of admissions."""
    preempted: Compared
    """Number of preempted workloads."""
    wait_p95_seconds: Compared
    """The highest 95th percentile of any hour."""


class WaitWeek(Struct, frozen=True, kw_only=True):
    """Waits from submission, or the last eviction, to admission, of the workloads of a team or a size."""

    name: str
    admitted: Compared
    wait_p50_seconds: Compared
    wait_p95_seconds: Compared


class NamedCount(Struct, frozen=True, kw_only=True):
    """A number with the name of what it counts."""

    name: str
    count: Compared


class PreemptionWeek(Struct, frozen=True, kw_only=True):
    """Preemptions, evictions, and the work that they lost."""

    preemptions: Compared
    evictions: Compared
    evictions_by_reason: tuple[NamedCount, ...]
    lost_usd: Compared
    """Cost of lost work, node failures included."""
    lost_gpu_hours: Compared
    """Of preempted workloads, as far as known."""
    pairs: tuple[NamedCount, ...]
    """The most frequent pairs `victim queue ← preempting queue`."""


class IdleWeek(Struct, frozen=True, kw_only=True):
    """GPU time that a team was allocated and did not use."""

    team: str
    allocated_gpu_hours: Compared
    idle_gpu_hours: Compared
    """Measured GPU time × (1 − utilization); None if nothing was measured."""
    utilization_percent: Compared
    underutilized_usd: Compared


class CostWeek(Struct, frozen=True, kw_only=True):
    """Cost of a team, of idle capacity, of system pods, or the total."""

    name: str
    gpu_hours: Compared
    cost_usd: Compared


class WeekFinding(Struct, frozen=True, kw_only=True):
    """An anti-pattern of a week."""

    code: AntiPatternCode
    subject: str
    text: str
    """One sentence."""
    repeated: bool
    """True if the week before had the same finding."""


class WeeklyReport(Struct, frozen=True, kw_only=True):
    """The report of one week."""

    week: str
    """ISO 8601: `2026-W47`."""
    begin: Time
    end: Time
    recorded_hours: Compared
    """Hours of the week with samples, of 168."""
    gpus: tuple[GpuTypeWeek, ...]
    queues: tuple[QueueWeek, ...]
    waits_by_team: tuple[WaitWeek, ...]
    waits_by_size: tuple[WaitWeek, ...]
    preemptions: PreemptionWeek
    idle: tuple[IdleWeek, ...]
    """The largest idle GPU time first."""
    idle_unallocated_gpu_hours: Compared
    costs: tuple[CostWeek, ...]
    """Teams, the most expensive first, then `idle` and `system`."""
    total_cost_usd: Compared
    findings: tuple[WeekFinding, ...]
    notes: tuple[str, ...] = ()
    """Sentences that name what is not known."""


def week_of(time: Time) -> str:
    """Return the ISO 8601 week of a time in UTC: `2026-W47`."""
    year, week, _ = (_EPOCH + timedelta(microseconds=time)).isocalendar()
    return f"{year:04}-W{week:02}"


def week_begin(week: str) -> Time:
    """Return the start of an ISO 8601 week in UTC. Raises ValueError."""
    match = _WEEK.fullmatch(week)
    try:
        if match is None:
            raise ValueError(week)
        begin = datetime.fromisocalendar(int(match[1]), int(match[2]), 1).replace(tzinfo=UTC)
    except ValueError as error:
        raise ValueError(f"{week!r} is not a week; write it as 2026-W47") from error
    return (begin - _EPOCH) // timedelta(microseconds=1)


def weekly_report(this: WeekData, before: WeekData) -> WeeklyReport:
    """Report on a week, compared with the week before."""
    both = this, before
    teams = {row.owner.workload: row.owner.team for one in (before, this) for row in one.costs if row.owner.workload}
    costs, total = _costs(both)
    findings_before = {(one.code, one.subject) for one in _findings(before, ())}
    return WeeklyReport(
        week=week_of(this.begin),
        begin=this.begin,
        end=this.end,
        recorded_hours=_compared(both, lambda one: float(len(one.samples))),
        gpus=_gpus(both),
        queues=_queues(both),
        waits_by_team=_waits(both, lambda line: teams.get(line.workload) or line.workload.partition("/")[0]),
        waits_by_size=_waits(both, lambda line: size_of(line.gpus), [NO_GPUS, *(name for _, name in SIZES), LARGER]),
        preemptions=_preemptions(both),
        idle=_idle(both),
        idle_unallocated_gpu_hours=_compared(both, _unallocated),
        costs=costs,
        total_cost_usd=total,
        findings=_findings(this, findings_before),
        notes=_notes(this, before),
    )


_Both = tuple[WeekData, WeekData]


def _compared(both: _Both, number: Callable[[WeekData], float | None]) -> Compared:
    return Compared(number(both[0]), number(both[1]))


_Group = TypeVar("_Group")


def _compared_groups(
    groups: Sequence[Mapping[str, _Group]], name: str, number: Callable[[_Group], float | None]
) -> Compared:
    """Compare a number of one group, such as a queue, in both weeks; None in a week that does not have the group."""
    value, before = (number(week[name]) if name in week else None for week in groups)
    return Compared(value, before)


def _mean(values: Iterable[float]) -> float | None:
    found = tuple(values)
    return fmean(found) if found else None


def _gpus(both: _Both) -> tuple[GpuTypeWeek, ...]:
    found: list[dict[str, list[GpuSample]]] = [{}, {}]
    for types, one in zip(found, both, strict=True):
        for sample in one.samples:
            for gpu in sample.gpus:
                types.setdefault(gpu.gpu_type, []).append(gpu)

    def compared(gpu_type: str, number: Callable[[Sequence[GpuSample]], float | None]) -> Compared:
        return _compared_groups(found, gpu_type, number)

    return tuple(
        GpuTypeWeek(
            gpu_type=name,
            gpus=compared(name, lambda hours: _mean(one.total for one in hours)),
            allocated_percent=compared(name, _allocated_percent),
            utilization_percent=compared(name, mean_utilization),
            unhealthy=compared(name, lambda hours: _mean(one.unhealthy for one in hours)),
        )
        for name in sorted({name for types in found for name in types})
    )


def _allocated_percent(hours: Sequence[GpuSample]) -> float | None:
    total = sum(one.total for one in hours)
    return 100 * sum(one.allocated for one in hours) / total if total else None


def _queues(both: _Both) -> tuple[QueueWeek, ...]:
    found: list[dict[str, list[QueueSample]]] = [{}, {}]
    for queues, one in zip(found, both, strict=True):
        for sample in one.samples:
            for queue in sample.queues:
                if queue.kind is SeriesKind.QUEUE and not queue.flavor:
                    queues.setdefault(queue.name, []).append(queue)

    def compared(name: str, number: Callable[[Sequence[QueueSample]], float | None]) -> Compared:
        return _compared_groups(found, name, number)

    return tuple(
        QueueWeek(
            queue=name,
            nominal=compared(name, lambda hours: _mean(one.nominal for one in hours)),
            used=compared(name, lambda hours: _mean(one.used for one in hours)),
            borrowed=compared(name, lambda hours: _mean(one.borrowed for one in hours)),
            lent=compared(name, lambda hours: _mean(one.lent for one in hours)),
            admitted=compared(name, lambda hours: float(sum(one.admitted for one in hours))),
            preempted=compared(name, lambda hours: float(sum(one.preempted for one in hours))),
            wait_p95_seconds=compared(
                name, lambda hours: max((one.wait_p95 for one in hours if one.wait_p95 is not None), default=None)
            ),
        )
        for name in sorted({name for queues in found for name in queues})
    )


def size_of(gpus: int) -> str:
    """Return the size class of a workload."""
    if gpus <= 0:
        return NO_GPUS
    return next((name for most, name in SIZES if gpus <= most), LARGER)


def _waits(both: _Both, name: Callable[[HistoryEvent], str], order: Sequence[str] = ()) -> tuple[WaitWeek, ...]:
    """Waits by `name`, in the given order, else the most admissions first."""
    found: list[dict[str, list[Span]]] = [{}, {}]
    for groups, one in zip(found, both, strict=True):
        for line in one.events:
            if line.what is HistoryEventKind.ADMITTED:
                groups.setdefault(name(line), []).append(line.waited)
    for groups in found:
        for waits in groups.values():
            waits.sort()
    known = [one.has_events for one in both]

    def compared(group: str, number: Callable[[Sequence[Span]], float | None]) -> Compared:
        value, before = (number(g.get(group, ())) if k else None for g, k in zip(found, known, strict=True))
        return Compared(value, before)

    names = {name for groups in found for name in groups}
    ranked = sorted(names, key=lambda one: (-len(found[0].get(one, ())), one))
    return tuple(
        WaitWeek(
            name=group,
            admitted=compared(group, lambda waits: float(len(waits))),
            wait_p50_seconds=compared(group, lambda waits: in_seconds(quantile(waits, 0.5))),
            wait_p95_seconds=compared(group, lambda waits: in_seconds(quantile(waits, 0.95))),
        )
        for group in ([one for one in order if one in names] if order else ranked)
    )


def _preemptions(both: _Both) -> PreemptionWeek:
    reasons = [_reasons(one) for one in both]
    found = [rows(one.events) for one in both]
    pairs = [_pairs(one) for one in found]
    known = [one.has_events for one in both]

    def counted(name: str, sums: Sequence[Mapping[str, int]], recorded: Sequence[bool]) -> NamedCount:
        value, before = (float(one.get(name, 0)) if there else None for one, there in zip(sums, recorded, strict=True))
        return NamedCount(name=name, count=Compared(value, before))

    names = sorted({name for one in reasons for name in one}, key=lambda name: (-reasons[0].get(name, 0), name))
    top = sorted({name for one in pairs for name in one}, key=lambda name: (-pairs[0].get(name, 0), name))[:PAIRS]
    hours = [preemption_stats(one).lost_gpu_hours if there else None for one, there in zip(found, known, strict=True)]
    return PreemptionWeek(
        preemptions=_compared(both, lambda one: _count(one, "preempted")),
        evictions=_compared(both, lambda one: _count(one, "evicted")),
        evictions_by_reason=tuple(counted(name, reasons, [bool(one.samples) for one in both]) for name in names),
        lost_usd=_compared(both, lambda one: sum(row.lost_usd for row in one.costs) if one.costs else None),
        lost_gpu_hours=Compared(*hours),
        pairs=tuple(counted(name, pairs, known) for name in top),
    )


def _reasons(week: WeekData) -> Counter[str]:
    found: Counter[str] = Counter()
    for sample in week.samples:
        found.update(sample.evictions)
    return found


def _count(week: WeekData, what: str) -> float | None:
    clusters = (queue for one in week.samples for queue in one.queues if queue.kind is SeriesKind.CLUSTER)
    return float(sum(getattr(one, what) for one in clusters)) if week.samples else None


def _pairs(found: Sequence[PreemptionRow]) -> Counter[str]:
    return Counter({one.name: one.times for one in counts(found, _pair)})


def _pair(row: PreemptionRow) -> str:
    return f"{row.victim_queue} ← {row.by_queue}" if row.victim_queue and row.by_queue else ""


class _TeamSum(Struct):
    """Amounts of one team in one week. Mutable."""

    gpu: float = 0.0
    busy: float = 0.0
    measured: float = 0.0
    underutilized: float = 0.0

    @property
    def idle_hours(self) -> float | None:
        return (self.measured - self.busy) * SECOND / HOUR if self.measured > 0 else None

    @property
    def utilization(self) -> float | None:
        return 100 * self.busy / self.measured if self.measured > 0 else None


def _teams(week: WeekData) -> dict[str, _TeamSum]:
    found: dict[str, _TeamSum] = {}
    for row in week.costs:
        if row.owner.kind is CostKind.WORKLOAD:
            team = found.setdefault(row.owner.team, _TeamSum())
            team.gpu += row.gpu_seconds
            team.busy += row.busy_gpu_seconds
            team.measured += row.measured_gpu_seconds
            team.underutilized += row.underutilized_usd
    return {name: team for name, team in found.items() if team.gpu > 0}


def _idle(both: _Both) -> tuple[IdleWeek, ...]:
    found = this, _ = [_teams(one) for one in both]

    def compared(name: str, number: Callable[[_TeamSum], float | None]) -> Compared:
        return _compared_groups(found, name, number)

    return tuple(
        IdleWeek(
            team=name,
            allocated_gpu_hours=compared(name, lambda team: team.gpu * SECOND / HOUR),
            idle_gpu_hours=compared(name, lambda team: team.idle_hours),
            utilization_percent=compared(name, lambda team: team.utilization),
            underutilized_usd=compared(name, lambda team: team.underutilized),
        )
        for name in sorted(this, key=lambda name: (-(this[name].idle_hours or 0.0), name))
    )


def _unallocated(week: WeekData) -> float | None:
    idle = [row.gpu_seconds for row in week.costs if row.owner.kind is CostKind.IDLE]
    return sum(idle) * SECOND / HOUR if week.costs else None


def _costs(both: _Both) -> tuple[tuple[CostWeek, ...], Compared]:
    """Costs by team, of idle capacity and of system pods; they add up to the total."""
    sums = [cost_summary(one.costs, CostBy.TEAM, (one.begin, one.end)) if one.costs else None for one in both]
    items = [{item.name: item for item in one.items} if one is not None else {} for one in sums]
    names = [*items[0], *(name for name in items[1] if name not in items[0])]
    found = [
        CostWeek(
            name=name,
            gpu_hours=Compared(*(one[name].gpu_hours if name in one else None for one in items)),
            cost_usd=Compared(*(one[name].cost_usd if name in one else None for one in items)),
        )
        for name in names
    ]
    idle = CostWeek(
        name="idle",
        gpu_hours=Compared(*(one.idle_gpu_hours if one is not None else None for one in sums)),
        cost_usd=Compared(*(one.idle_cost_usd if one is not None else None for one in sums)),
    )
    system = CostWeek(
        name="system",
        gpu_hours=Compared(None, None),
        cost_usd=Compared(*(one.system_cost_usd if one is not None else None for one in sums)),
    )
    total = Compared(*(one.total_cost_usd if one is not None else None for one in sums))
    return (*found, idle, system), total


def _findings(week: WeekData, before: Collection[tuple[AntiPatternCode, str]]) -> tuple[WeekFinding, ...]:
    found = [*_loops(week), *_low_utilization(week), *_idle_while_pending(week)]
    return tuple(
        WeekFinding(code=code, subject=subject, text=text, repeated=(code, subject) in before)
        for code, subject, text in found
    )


_Found = Iterable[tuple[AntiPatternCode, str, str]]


def _loops(week: WeekData) -> _Found:
    for cycle in preemption_stats(rows(week.events)).queue_cycles:
        names = ", ".join(cycle.names)
        lost = f"{cycle.lost_gpu_hours:,.1f} GPU-hours lost"
        yield AntiPatternCode.THRASH, names, f"{names}: preemption loop, {cycle.times:,} preemptions, {lost}"


def _low_utilization(week: WeekData) -> _Found:
    for name, team in sorted(_teams(week).items()):
        if team.utilization is not None and team.utilization < LOW_UTILIZATION:
            text = f"team {name}: average utilization {team.utilization:.0f}%, {team.idle_hours:,.1f} GPU-hours unused"
            yield AntiPatternCode.LOW_UTILIZATION, name, text


def _idle_while_pending(week: WeekData) -> _Found:
    """GPUs that no pod was allocated while workloads requested as many."""
    idle = total = 0.0
    hours = 0
    for one in week.samples:
        pending = sum(queue.pending_gpus for queue in one.queues if queue.kind is SeriesKind.CLUSTER)
        unused = min(pending, sum(gpu.idle for gpu in one.gpus))
        total += sum(gpu.total for gpu in one.gpus)
        idle += unused
        hours += unused > 0
    if total and idle > IDLE_WHILE_PENDING * total:
        booked = _unallocated(week)
        # The first and the last hour may be recorded in part.
        idle = min(idle, booked) if booked is not None else idle
        share = f"{100 * idle / total:.0f}% of the GPU time"
        text = f"{idle:,.0f} GPU-hours ({share}) were idle in {hours} hours in which workloads were pending"
        yield AntiPatternCode.FRAGMENTATION, "cluster", text


def _notes(this: WeekData, before: WeekData) -> tuple[str, ...]:
    notes = []
    if not this.samples and not this.costs:
        notes.append("Nothing is recorded in this week.")
    elif len(this.samples) < HOURS:
        hours = len(this.samples)
        notes.append(f"{hours} of {HOURS} hours of this week are recorded; sums and counts are of these hours.")
    if not before.samples and not before.costs:
        notes.append("Nothing is recorded in the week before.")
    elif len(before.samples) < HOURS:
        notes.append(f"{len(before.samples)} of {HOURS} hours of the week before are recorded.")
    for name, week in (("this week", this), ("the week before", before)):
        if week.samples and not week.has_all_events:
            part = "not all events" if week.has_events else "no events"
            notes.append(
                f"The history has {part} of {name}, so waits by team and size, pairs of queues and lost GPU-hours"
                " are incomplete; the setting history.raw_days says how long events are kept."
            )
    return tuple(notes)
