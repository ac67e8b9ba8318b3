"""Reports on costs: sums by a dimension, windows, rounding to cents, the seeds' reports of jobs and teams, budgets."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuconsole.insight.cost.allocation import CostHour, CostKind, CostOwner
from gpuconsole.insight.cost.report import (
    Budget,
    BudgetStatus,
    CostBy,
    CostItem,
    CostlyJob,
    CostPeriod,
    CostSummary,
    JobCost,
    JobFacts,
    TeamMonth,
    budget_status,
    budget_window,
    cost_at_end,
    cost_summary,
    job_cost,
    job_facts,
    month_window,
    period_window,
    team_month,
)
from gpuconsole.model.clock import DAY, HOUR, MINUTE, Time, parse_time
from gpuconsole.model.job import Job
from gpuconsole.model.workloads import Workload
from tests.support.snapshots import pod, world

JANUARY = parse_time("2026-01-01T00:00:00Z")
NOON = JANUARY + 12 * HOUR
DIMENSIONS = {
    CostBy.WORKLOAD: "ns/train",
    CostBy.TEAM: "vision",
    CostBy.PROJECT: "ocr",
    CostBy.QUEUE: "cq",
    CostBy.NAMESPACE: "ns",
    CostBy.USER: "ada",
    CostBy.GPU_TYPE: "h100-80gb",
}


def of(workload: str, team: str = "vision", **fields: str) -> CostOwner:
    return CostOwner(kind=CostKind.WORKLOAD, workload=workload, namespace="ns", team=team, **fields)


def row(owner: CostOwner, hour: Time = NOON, gpus: float = 1.0, **usd: float) -> CostHour:
    return CostHour(owner=owner, hour=hour, gpu_seconds=3600 * gpus, **usd)


IDLE = row(CostOwner(kind=CostKind.IDLE), idle_usd=5.0, gpus=2.5)
SYSTEM = row(CostOwner(kind=CostKind.SYSTEM, workload="kube-system/dns", namespace="kube-system"), system_usd=1.0)


@pytest.mark.parametrize(("by", "name"), DIMENSIONS.items())
def test_costs_are_summed_by_each_dimension(by: CostBy, name: str) -> None:
    full = of("ns/train", project="ocr", queue="cq", user="ada", gpu_type="h100-80gb")
    other = row(CostOwner(kind=CostKind.WORKLOAD), used_usd=1.0)
    found = cost_summary([row(full, used_usd=3.0), row(full, used_usd=2.0), other], by, (NOON, NOON + HOUR))
    assert [(item.name, item.cost_usd) for item in found.items] == [(name, 5.0), ("", 1.0)]


def test_a_summary_has_parts_idle_system_savings_and_utilization() -> None:
    rows = [
        row(
            of("ns/a"),
            used_usd=4.0,
            underutilized_usd=2.0,
            saved_usd=1.5,
            busy_gpu_seconds=900,
            measured_gpu_seconds=1800,
        ),
        row(of("ns/a"), NOON + HOUR, used_usd=-1.0, lost_usd=1.0, gpus=0),
        row(of("ns/b"), NOON + HOUR, used_usd=9.0, gpus=3),
        IDLE,
        SYSTEM,
    ]
    assert cost_summary(rows, CostBy.WORKLOAD, (NOON, NOON + 2 * HOUR)) == CostSummary(
        by=CostBy.WORKLOAD,
        window=(NOON, NOON + 2 * HOUR),
        items=(
            CostItem(
                name="ns/b",
                gpu_hours=3.0,
                cost_usd=9.0,
                used_usd=9.0,
                underutilized_usd=0.0,
                lost_usd=0.0,
                saved_usd=0.0,
                utilization=None,
                first=NOON + HOUR,
                last=NOON + HOUR,
            ),
            CostItem(
                name="ns/a",
                gpu_hours=1.0,
                cost_usd=6.0,
                used_usd=3.0,
                underutilized_usd=2.0,
                lost_usd=1.0,
                saved_usd=1.5,
                utilization=50.0,
                first=NOON,
                last=NOON + HOUR,
            ),
        ),
        total_cost_usd=21.0,
        idle_cost_usd=5.0,
        system_cost_usd=1.0,
        idle_gpu_hours=2.5,
        saved_usd=1.5,
    )


def test_a_window_contains_the_whole_hour_in_which_it_begins_and_ends_before_its_end() -> None:
    rows = [row(of("ns/a"), NOON + number * HOUR, used_usd=10.0**number) for number in range(4)]
    found = cost_summary(rows, CostBy.TEAM, (NOON + HOUR + 20 * MINUTE, NOON + 3 * HOUR))
    assert found.total_cost_usd == 110.0


USD = st.floats(0, 1000)


@given(st.lists(st.tuples(USD, USD, USD), max_size=12), USD, USD)
def test_rounded_parts_add_up_to_the_rounded_total(
    parts: list[tuple[float, float, float]], idle: float, system: float
) -> None:
    rows = [
        row(of(f"ns/{number}"), used_usd=used, underutilized_usd=under, lost_usd=lost)
        for number, (used, under, lost) in enumerate(parts)
    ]
    rows += [row(CostOwner(kind=CostKind.IDLE), idle_usd=idle), row(CostOwner(kind=CostKind.SYSTEM), system_usd=system)]
    found = cost_summary(rows, CostBy.WORKLOAD, (NOON, NOON + HOUR))
    exact = sum(one.cost_usd for one in rows)
    assert abs(found.total_cost_usd - exact) <= 0.005 + 1e-6
    cents = [round(100 * item.cost_usd) for item in found.items]
    assert sum(cents) + round(100 * found.idle_cost_usd) + round(100 * found.system_cost_usd) == round(
        100 * found.total_cost_usd
    )
    by_name = {f"ns/{number}": part for number, part in enumerate(parts)}
    for item, cent in zip(found.items, cents, strict=True):
        assert abs(item.cost_usd - sum(by_name[item.name])) < 0.01 + 1e-6
        categories = item.used_usd, item.underutilized_usd, item.lost_usd
        assert sum(round(100 * one) for one in categories) == cent
        assert min(categories) >= 0


def test_three_thirds_of_a_cent_total_one_cent() -> None:
    rows = [row(of(f"ns/{name}"), used_usd=0.01 / 3) for name in "abc"]
    found = cost_summary(rows, CostBy.WORKLOAD, (NOON, NOON + HOUR))
    assert ([item.cost_usd for item in found.items], found.total_cost_usd) == ([0.01, 0.0, 0.0], 0.01)


def test_months_and_days_are_those_of_utc() -> None:
    now = parse_time("2026-03-01T00:30:00Z")
    march, february = parse_time("2026-03-01T00:00:00Z"), parse_time("2026-02-01T00:00:00Z")
    assert month_window("2025-12") == (parse_time("2025-12-01T00:00:00Z"), JANUARY)
    assert [period_window(period, now) for period in CostPeriod] == [(march, now), (march, now), (february, march)]
    with pytest.raises(ValueError):
        month_window("2026-13")


def test_the_monthly_report_of_a_team_has_the_keys_of_the_seed() -> None:
    """Six jobs; one has two workloads, and one was not measured."""
    rows = [
        row(of(f"ns/job-train-{number}"), gpus=number, used_usd=10.0 * number, **level(0.1 * number, number))
        for number in range(1, 6)
    ]
    rows += [
        row(of("ns/job-six-abc"), gpus=3.3333, used_usd=12.346),
        row(of("ns/job-six-def"), JANUARY + 30 * DAY, gpus=1, lost_usd=2.0),
        row(of("ns/job-train-1"), JANUARY - HOUR, used_usd=1000.0),
        row(of("ns/other", "speech"), used_usd=1000.0),
        row(CostOwner(kind=CostKind.SYSTEM, team="vision"), system_usd=1000.0),
    ]
    jobs = {key: JobFacts(name="ns/six") for key in ("ns/job-six-abc", "ns/job-six-def")}
    found = team_month(rows, "vision", "2026-01", jobs)
    assert found == TeamMonth(
        team="vision",
        month="2026-01",
        total_gpu_hours=19.33,
        total_cost_usd=164.35,
        jobs_count=6,
        top_5_costly_jobs=(
            CostlyJob(job_name="ns/job-train-5", gpu_hours=5.0, cost_usd=50.0, gpu_util=50.0),
            CostlyJob(job_name="ns/job-train-4", gpu_hours=4.0, cost_usd=40.0, gpu_util=40.0),
            CostlyJob(job_name="ns/job-train-3", gpu_hours=3.0, cost_usd=30.0, gpu_util=30.0),
            CostlyJob(job_name="ns/job-train-2", gpu_hours=2.0, cost_usd=20.0, gpu_util=20.0),
            CostlyJob(job_name="ns/six", gpu_hours=4.33, cost_usd=14.35, gpu_util=None),
        ),
        gpu_utilization_avg=30.0,
    )
    document = msgspec.to_builtins(found)
    assert list(document) == [
        *("team", "month", "total_gpu_hours", "total_cost_usd", "jobs_count"),
        *("top_5_costly_jobs", "gpu_utilization_avg"),
    ]
    assert list(document["top_5_costly_jobs"][0]) == ["job_name", "gpu_hours", "cost_usd", "gpu_util"]


def level(part: float, gpus: float) -> dict[str, Any]:
    return {"measured_gpu_seconds": 3600 * gpus, "busy_gpu_seconds": 3600 * gpus * part}


def test_a_team_without_jobs_has_an_empty_report() -> None:
    assert team_month([], "vision", "2026-01") == TeamMonth(
        team="vision",
        month="2026-01",
        total_gpu_hours=0.0,
        total_cost_usd=0.0,
        jobs_count=0,
        top_5_costly_jobs=(),
        gpu_utilization_avg=None,
    )


@pytest.mark.parametrize(("epochs", "per_epoch"), [(4, 8.84), (0, 35.36), (None, None)])
def test_the_cost_of_a_job_is_that_of_the_seed(epochs: int | None, per_epoch: float | None) -> None:
    """8 A100 of 80 GB for two hours; the seed divides by max(epochs, 1)."""
    rows = [row(of("ns/train"), NOON + number * HOUR, gpus=8, used_usd=17.68) for number in range(2)]
    found = job_cost(
        [*rows, IDLE, row(of("ns/other"))], "ns/train", {"ns/train": JobFacts(name="ns/job", epochs=epochs)}
    )
    assert found == JobCost(job_name="ns/job", total_gpu_hours=16.0, total_cost_usd=35.36, cost_per_epoch=per_epoch)
    assert list(msgspec.to_builtins(found)) == ["job_name", "total_gpu_hours", "total_cost_usd", "cost_per_epoch"]


def test_names_and_epochs_of_jobs_come_from_the_job_its_workload_or_its_pods() -> None:
    note = "gpuconsole.io/epochs-completed"
    found = job_facts(
        world(
            [
                Job(namespace="ns", name="a", annotations={note: "7"}),
                Job(namespace="ns", name="b"),
                Workload(namespace="ns", name="job-a-1f", owner="Job/ns/a"),
                Workload(namespace="ns", name="job-b-2f", owner="Job/ns/b", annotations={note: "many"}),
                Workload(namespace="ns", name="bare", annotations={note: "0"}),
                pod("b-0", "n1", job="Job/ns/b", workload="ns/job-b-2f", annotations={note: "2"}),
                pod("b-1", "n1", job="Job/ns/b", workload="ns/job-b-2f", annotations={note: "3"}),
            ]
        )
    )
    assert found == {
        "Job/ns/a": JobFacts(name="ns/a", epochs=7),
        "Job/ns/b": JobFacts(name="ns/b", epochs=3),
        "ns/job-a-1f": JobFacts(name="ns/a", epochs=7),
        "ns/job-b-2f": JobFacts(name="ns/b", epochs=3),
        "ns/bare": JobFacts(name="ns/bare", epochs=0),
    }


def test_a_budget_is_compared_with_what_was_spent_and_with_the_rate_of_the_last_week() -> None:
    """On the 11th at noon, 20.5 days are left; the rate of the last 7 days is 24 USD a day."""
    now = JANUARY + 10 * DAY + 12 * HOUR
    early = [row(of("ns/a"), JANUARY + number * HOUR, used_usd=2.0) for number in range(24)]
    lately = [row(of("ns/a"), now - 7 * DAY + number * HOUR, used_usd=0.5, lost_usd=0.5) for number in range(7 * 24)]
    rows = [*early, *lately, row(of("ns/a"), JANUARY - HOUR, used_usd=500.0), IDLE]
    spent, forecast = 48.0 + 168.0, 216.0 + 24.0 * 20.5
    budgets = [Budget(team="vision", usd_per_month=usd) for usd in (708.0, 707.0, 200.0)]
    found = budget_status(rows, [*budgets, Budget(team="idle", usd_per_month=1.0)], now)
    assert found == (
        *(BudgetStatus(budget=budget, spent_usd=spent, forecast_usd=forecast) for budget in budgets),
        BudgetStatus(budget=Budget(team="idle", usd_per_month=1.0), spent_usd=0.0, forecast_usd=0.0),
    )
    assert [(one.is_exceeded, one.alert) for one in found] == [
        (False, False),
        (False, True),
        (True, True),
        (False, False),
    ]
    assert budget_window(now) == (JANUARY, now)
    assert budget_window(JANUARY + DAY) == (JANUARY - 6 * DAY, JANUARY + DAY)


def test_a_recording_shorter_than_a_week_is_extrapolated_from_its_begin() -> None:
    now = JANUARY + 2 * DAY
    rows = [row(of("ns/a"), JANUARY + DAY + number * HOUR, used_usd=1.0) for number in range(24)]
    (found,) = budget_status(rows, [Budget(team="vision", usd_per_month=1.0)], now)
    assert (found.spent_usd, found.forecast_usd) == (24.0, 24.0 + 29 * 24.0)


def test_the_expected_cost_at_the_end_is_what_accrued_and_the_rate_for_the_remaining_time() -> None:
    assert cost_at_end(10.0, 16.0, 90 * MINUTE) == 34.0
    assert cost_at_end(10.0, 16.0, -MINUTE) == 10.0
    assert cost_at_end(10.0, 16.0, None) is None
