"""The weekly report: each number beside that of the week before, and nothing unknown as zero."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuconsole.insight.cost.allocation import CostHour, CostKind, CostOwner
from gpuconsole.insight.health.antipatterns import AntiPatternCode
from gpuconsole.insight.series import GpuSample, QueueSample, Samples, SeriesKind
from gpuconsole.insight.weekly_report import (
    WEEK,
    Compared,
    CostWeek,
    GpuTypeWeek,
    IdleWeek,
    NamedCount,
    PreemptionWeek,
    QueueWeek,
    WaitWeek,
    WeekData,
    WeekFinding,
    WeeklyReport,
    size_of,
    week_begin,
    week_of,
    weekly_report,
)
from gpuconsole.model.clock import HOUR, MINUTE, Span, Time, parse_time
from gpuconsole.model.events import HistoryEvent, HistoryEventKind

BEGIN = parse_time("2026-11-16T00:00Z")
EARLIER = BEGIN - WEEK
EMPTY, EMPTY_BEFORE = WeekData(begin=BEGIN), WeekData(begin=EARLIER)


def cost(team: str, workload: str = "", at: Time = BEGIN, kind: CostKind = CostKind.WORKLOAD, **usd: float) -> CostHour:
    owner = CostOwner(kind=kind, team=team, workload=workload, gpu_type="a100-80gb")
    return CostHour(owner=owner, hour=at, **usd)


def hour(at: Time, queue: QueueSample | None = None, **cluster: float) -> Samples:
    fields = {"nominal": 8.0, "used": 4.0, **cluster}
    total = QueueSample(kind=SeriesKind.CLUSTER, name="", **fields)  # type: ignore[arg-type]
    gpu = GpuSample(gpu_type="a100-80gb", total=8, allocated=4.0, idle=4.0, unhealthy=0.0, utilization=50.0)
    queues = (total, queue) if queue is not None else (total,)
    return Samples(
        time=at, span=HOUR, queues=queues, gpus=(gpu,), evictions={"Preempted": int(cluster.get("evicted", 0))}
    )


def admitted(workload: str, waited: Span, gpus: int = 1, at: Time = BEGIN) -> HistoryEvent:
    return HistoryEvent(time=at, what=HistoryEventKind.ADMITTED, workload=workload, waited=waited, gpus=gpus)


def preempted(
    victim: str, queue: str, by: str, by_queue: str, at: Time = BEGIN, lost: float = 0.0
) -> list[HistoryEvent]:
    names = {"workload": victim, "queue": queue, "by": by, "by_queue": by_queue, "lost_gpu_seconds": lost}
    return [
        HistoryEvent(time=at, what=what, reason="InCohortReclamation", **names)  # type: ignore[arg-type]
        for what in (HistoryEventKind.PREEMPTED, HistoryEventKind.EVICTED)
    ]


def test_weeks_are_those_of_iso_8601_in_utc() -> None:
    assert week_begin("2026-W47") == BEGIN
    assert [week_of(time) for time in (BEGIN - 1, BEGIN, BEGIN + WEEK - 1, BEGIN + WEEK)] == [
        "2026-W46",
        "2026-W47",
        "2026-W47",
        "2026-W48",
    ]
    assert week_begin("2026-W01") == parse_time("2025-12-29T00:00Z")


@pytest.mark.parametrize("text", ["2026-47", "2026-W54", "2026-W00", "0000-W01", "last week", ""])
def test_what_is_no_week_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write it as 2026-W47"):
        week_begin(text)


@settings(deadline=None)
@given(st.integers(0, 4_000_000_000_000_000))
def test_each_time_is_in_the_week_that_is_named_after_it(time: Time) -> None:
    assert week_begin(week_of(time)) <= time < week_begin(week_of(time)) + WEEK


def test_what_was_not_recorded_is_unknown_and_not_zero() -> None:
    unknown = Compared(None, None)
    assert weekly_report(EMPTY, EMPTY_BEFORE) == WeeklyReport(
        week="2026-W47",
        begin=BEGIN,
        end=BEGIN + WEEK,
        recorded_hours=Compared(0.0, 0.0),
        gpus=(),
        queues=(),
        waits_by_team=(),
        waits_by_size=(),
        preemptions=PreemptionWeek(
            preemptions=unknown,
            evictions=unknown,
            evictions_by_reason=(),
            lost_usd=unknown,
            lost_gpu_hours=unknown,
            pairs=(),
        ),
        idle=(),
        idle_unallocated_gpu_hours=unknown,
        costs=(
            CostWeek(name="idle", gpu_hours=unknown, cost_usd=unknown),
            CostWeek(name="system", gpu_hours=unknown, cost_usd=unknown),
        ),
        total_cost_usd=unknown,
        findings=(),
        notes=("Nothing is recorded in this week.", "Nothing is recorded in the week before."),
    )


def test_utilization_and_quota_are_means_over_the_recorded_hours() -> None:
    def queue(used: float, **more: float) -> QueueSample:
        fields = {"nominal": 8.0, "used": used, **more}
        return QueueSample(kind=SeriesKind.QUEUE, name="q", **fields)  # type: ignore[arg-type]

    this = WeekData(
        begin=BEGIN,
        samples=[
            hour(BEGIN, queue(4.0, admitted=2, wait_p95=60.0, borrowed=1.0)),
            hour(BEGIN + HOUR, queue(8.0, admitted=3, preempted=1, wait_p95=90.0, lent=2.0)),
        ],
    )
    before = WeekData(begin=EARLIER, samples=[hour(EARLIER, queue(2.0))])
    found = weekly_report(this, before)
    assert found.gpus == (
        GpuTypeWeek(
            gpu_type="a100-80gb",
            gpus=Compared(8.0, 8.0),
            allocated_percent=Compared(50.0, 50.0),
            utilization_percent=Compared(50.0, 50.0),
            unhealthy=Compared(0.0, 0.0),
        ),
    )
    assert found.queues == (
        QueueWeek(
            queue="q",
            nominal=Compared(8.0, 8.0),
            used=Compared(6.0, 2.0),
            borrowed=Compared(0.5, 0.0),
            lent=Compared(1.0, 0.0),
            admitted=Compared(5.0, 0.0),
            preempted=Compared(1.0, 0.0),
            wait_p95_seconds=Compared(90.0, None),
        ),
    )
    assert found.recorded_hours == Compared(2.0, 1.0)


def test_waits_are_by_team_of_the_costs_else_by_namespace_and_by_size() -> None:
    events = [
        admitted("a/one", MINUTE),
        admitted("a/two", 3 * MINUTE, gpus=8),
        admitted("b/three", 5 * MINUTE, gpus=33),
        admitted("b/four", 7 * MINUTE, gpus=0),
    ]
    costs = [cost("vision", "a/one", used_usd=1.0), cost("vision", "a/two", used_usd=1.0)]
    this = WeekData(begin=BEGIN, costs=costs, events=events, events_since=EARLIER)
    found = weekly_report(this, WeekData(begin=EARLIER, events_since=EARLIER))
    assert found.waits_by_team == (
        WaitWeek(
            name="b",
            admitted=Compared(2.0, 0.0),
            wait_p50_seconds=Compared(360.0, None),
            wait_p95_seconds=Compared(414.0, None),
        ),
        WaitWeek(
            name="vision",
            admitted=Compared(2.0, 0.0),
            wait_p50_seconds=Compared(120.0, None),
            wait_p95_seconds=Compared(174.0, None),
        ),
    )
    assert [(one.name, one.wait_p50_seconds.value) for one in found.waits_by_size] == [
        ("no GPUs", 420.0),
        ("1 GPU", 60.0),
        ("5–8 GPUs", 180.0),
        ("more than 32 GPUs", 300.0),
    ]


@pytest.mark.parametrize(("gpus", "size"), [(0, "no GPUs"), (1, "1 GPU"), (2, "2–4 GPUs"), (32, "9–32 GPUs")])
def test_sizes(gpus: int, size: str) -> None:
    assert size_of(gpus) == size


def test_preemptions_are_counted_by_samples_and_their_losses_by_costs_and_events() -> None:
    events = [*preempted("a/x", "qa", "b/y", "qb", lost=7200.0), *preempted("b/y", "qb", "a/x", "qa", BEGIN + HOUR)]
    this = WeekData(
        begin=BEGIN,
        samples=[hour(BEGIN, preempted=2, evicted=2)],
        costs=[cost("a", "a/x", lost_usd=4.42, used_usd=1.0)],
        events=events,
        events_since=BEGIN,
    )
    before = WeekData(begin=EARLIER, samples=[hour(EARLIER, preempted=5, evicted=6)])
    found = weekly_report(this, before)
    assert found.preemptions == PreemptionWeek(
        preemptions=Compared(2.0, 5.0),
        evictions=Compared(2.0, 6.0),
        evictions_by_reason=(NamedCount(name="Preempted", count=Compared(2.0, 6.0)),),
        lost_usd=Compared(4.42, None),
        lost_gpu_hours=Compared(2.0, None),
        pairs=(
            NamedCount(name="qa ← qb", count=Compared(1.0, None)),
            NamedCount(name="qb ← qa", count=Compared(1.0, None)),
        ),
    )
    assert [one for one in found.findings if one.code is AntiPatternCode.THRASH] == [
        WeekFinding(
            code=AntiPatternCode.THRASH,
            subject="qa, qb",
            text="qa, qb: preemption loop, 2 preemptions, 2.0 GPU-hours lost",
            repeated=False,
        )
    ]
    assert any("The history has no events of the week before" in note for note in found.notes)


def test_idle_gpus_are_those_that_a_team_holds_and_does_not_use() -> None:
    def used(team: str, busy: float, measured: float) -> CostHour:
        return cost(team, f"{team}/w", gpu_seconds=36_000.0, busy_gpu_seconds=busy, measured_gpu_seconds=measured)

    this = WeekData(begin=BEGIN, costs=[used("a", 3_600.0, 36_000.0), used("b", 0.0, 0.0)])
    before = WeekData(begin=EARLIER, costs=[used("a", 7_200.0, 36_000.0)])
    found = weekly_report(this, before)
    assert found.idle == (
        IdleWeek(
            team="a",
            allocated_gpu_hours=Compared(10.0, 10.0),
            idle_gpu_hours=Compared(9.0, 8.0),
            utilization_percent=Compared(10.0, 20.0),
            underutilized_usd=Compared(0.0, 0.0),
        ),
        IdleWeek(
            team="b",
            allocated_gpu_hours=Compared(10.0, None),
            idle_gpu_hours=Compared(None, None),
            utilization_percent=Compared(None, None),
            underutilized_usd=Compared(0.0, None),
        ),
    )
    assert found.findings == (
        WeekFinding(
            code=AntiPatternCode.LOW_UTILIZATION,
            subject="a",
            text="team a: average utilization 10%, 9.0 GPU-hours unused",
            repeated=True,
        ),
    )


AMOUNTS = st.floats(0, 1000, allow_nan=False)
ROWS = st.lists(
    st.one_of(
        st.builds(cost, st.sampled_from("abc"), used_usd=AMOUNTS, underutilized_usd=AMOUNTS, lost_usd=AMOUNTS),
        st.builds(cost, st.just(""), kind=st.just(CostKind.IDLE), idle_usd=AMOUNTS),
        st.builds(cost, st.just(""), kind=st.just(CostKind.SYSTEM), system_usd=AMOUNTS),
    ),
    min_size=1,
    max_size=12,
)


@settings(deadline=None)
@given(ROWS)
def test_teams_idle_and_system_add_up_to_the_total_to_the_cent(costs: list[CostHour]) -> None:
    found = weekly_report(WeekData(begin=BEGIN, costs=costs), EMPTY_BEFORE)
    assert found.total_cost_usd.value == pytest.approx(sum(row.cost_usd for row in costs), abs=0.00501)
    assert sum(one.cost_usd.value or 0.0 for one in found.costs) == pytest.approx(found.total_cost_usd.value, abs=1e-6)


def test_gpus_that_are_idle_while_work_is_pending_are_a_finding() -> None:
    samples = [hour(BEGIN + number * HOUR, pending_gpus=3.0 if number < 2 else 0.0) for number in range(4)]
    found = weekly_report(WeekData(begin=BEGIN, samples=samples), WeekData(begin=EARLIER, samples=samples[2:]))
    assert found.findings == (
        WeekFinding(
            code=AntiPatternCode.FRAGMENTATION,
            subject="cluster",
            text="6 GPU-hours (19% of the GPU time) were idle in 2 hours in which workloads were pending",
            repeated=False,
        ),
    )


def test_the_idle_hours_of_a_finding_are_at_most_those_of_the_cost() -> None:
    """Of an hour that is recorded in part, the samples know only the mean."""
    idle = CostHour(owner=CostOwner(kind=CostKind.IDLE), hour=BEGIN, gpu_seconds=5 * 3600.0, idle_usd=5.0)
    samples = [hour(BEGIN + number * HOUR, pending_gpus=3.0) for number in range(2)]
    found = weekly_report(WeekData(begin=BEGIN, samples=samples, costs=[idle]), EMPTY_BEFORE)
    assert [one.text for one in found.findings] == [
        "5 GPU-hours (31% of the GPU time) were idle in 2 hours in which workloads were pending"
    ]
