"""Reports on costs over time: sums by team or another dimension, monthly team reports, budgets, cost of a job.

All are sums of CostHour rows, so a window has the resolution of an hour: it includes the whole UTC hour in which it
begins. Amounts are rounded to cents such that the parts add up to the total (largest remainder). Idle capacity and
system pods are not charged to anyone; they stand beside the items.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from math import floor
from statistics import fmean

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.cost.allocation import (
    COST_AMOUNTS,
    DEFAULT_LABELS,
    CostAllocator,
    CostHour,
    CostKind,
    CostLabels,
    CostOwner,
)
from gpuconsole.insight.index.demand import FlavorResource, held, quota_accelerators
from gpuconsole.insight.sharing.fair_shares import borrowed_parts, loans, over_nominal
from gpuconsole.model.clock import DAY, HOUR, SECOND, Span, Time
from gpuconsole.model.prices import Prices
from gpuconsole.model.snapshot import Snapshot

EPOCHS = "gpuconsole.io/epochs-completed"
"""Annotation of a job, its Workload or its pods: number of completed training epochs."""
RATE_OVER: Span = 7 * DAY
"""Time whose mean rate the forecast of a month's end continues."""
TOP = 5
Window = tuple[Time, Time]
"""Begin and end (exclusive)."""


class CostBy(StrEnum):
    """What costs are grouped by."""

    WORKLOAD = "workload"
    TEAM = "team"
    PROJECT = "project"
    QUEUE = "queue"
    NAMESPACE = "namespace"
    USER = "user"
    GPU_TYPE = "gpu-type"


class CostPeriod(StrEnum):
    """A window that is named relative to the present; days and months are those of UTC."""

    TODAY = "today"
    MONTH = "month"
    LAST_MONTH = "last-month"


class CostItem(Struct, frozen=True, kw_only=True):
    """Cost of one workload, team or the like in a window."""

    name: str
    """Empty for costs without this dimension, such as pods without a queue."""
    gpu_hours: float
    cost_usd: float
    """Sum of used, underutilized and lost."""
    used_usd: float
    underutilized_usd: float
    lost_usd: float
    saved_usd: float
    """Saved by spot, compared with on demand."""
    utilization: float | None
    """Percent, weighted by GPU time; None if it was not measured."""
    first: Time
    """First hour with a cost."""
    last: Time
    """Last hour with a cost."""


class CostSummary(Struct, frozen=True, kw_only=True):
    """Cost of a cluster in a window: items + idle + system = total, to the cent."""

    by: CostBy
    window: Window
    items: tuple[CostItem, ...]
    """Most expensive first."""
    total_cost_usd: float
    idle_cost_usd: float
    """Cost of unallocated GPUs, and of nodes without GPUs and pods."""
    system_cost_usd: float
    idle_gpu_hours: float
    saved_usd: float
    """Saved by spot, idle nodes included."""


class _Sum:
    """Amounts of one item, not rounded. Mutable."""

    __slots__ = ("busy", "first", "gpu", "last", "lost", "measured", "saved", "underutilized", "used")

    def __init__(self, hour: Time) -> None:
        self.gpu = self.used = self.underutilized = self.lost = self.saved = self.busy = self.measured = 0.0
        self.first = self.last = hour

    def add(self, row: CostHour) -> None:
        self.gpu += row.gpu_seconds
        self.used += row.used_usd
        self.underutilized += row.underutilized_usd
        self.lost += row.lost_usd
        self.saved += row.saved_usd
        self.busy += row.busy_gpu_seconds
        self.measured += row.measured_gpu_seconds
        if row.hour < self.first:
            self.first = row.hour
        elif row.hour > self.last:
            self.last = row.hour

    @property
    def cost(self) -> float:
        return self.used + self.underutilized + self.lost

    @property
    def utilization(self) -> float | None:
        return round(100 * self.busy / self.measured, 1) if self.measured > 1e-6 else None


def cost_summary(rows: Iterable[CostHour], by: CostBy, window: Window) -> CostSummary:
    """Sum the costs of a window by a dimension."""
    sums: dict[str, _Sum] = {}
    idle = system = idle_gpu = saved = 0.0
    dimension = by.value.replace("-", "_")
    # By identity, because most rows share their owner: a hash of all its texts takes longer than the sums.
    known: dict[int, tuple[CostOwner, _Sum | None]] = {}
    for row in _in(rows, window):
        owner = row.owner
        saved += row.saved_usd
        pair = known.get(id(owner))
        if pair is None:
            charged = owner.kind is CostKind.WORKLOAD
            found = sums.setdefault(getattr(owner, dimension), _Sum(row.hour)) if charged else None
            pair = known[id(owner)] = (owner, found)
        if pair[1] is not None:
            pair[1].add(row)
        else:
            idle += row.idle_usd
            system += row.system_usd
            idle_gpu += row.gpu_seconds if owner.kind is CostKind.IDLE else 0.0
    there = [(name, one) for name, one in sums.items() if one.gpu > 1e-6 or one.cost > 1e-9]
    there.sort(key=lambda pair: (-pair[1].cost, pair[0]))
    *costs, idle_cents, system_cents = _apportioned([*(one.cost for _, one in there), idle, system])
    return CostSummary(
        by=by,
        window=window,
        items=tuple(_item(name, one, cents) for (name, one), cents in zip(there, costs, strict=True)),
        total_cost_usd=(sum(costs) + idle_cents + system_cents) / 100,
        idle_cost_usd=idle_cents / 100,
        system_cost_usd=system_cents / 100,
        idle_gpu_hours=_hours(idle_gpu),
        saved_usd=round(saved, 2),
    )


def _in(rows: Iterable[CostHour], window: Window) -> Iterable[CostHour]:
    since, until = window[0] // HOUR * HOUR, window[1]
    return (row for row in rows if since <= row.hour < until)


def _item(name: str, amounts: _Sum, cents: int) -> CostItem:
    used, underutilized, lost = _apportioned([amounts.used, amounts.underutilized, amounts.lost], cents)
    return CostItem(
        name=name,
        gpu_hours=_hours(amounts.gpu),
        cost_usd=cents / 100,
        used_usd=used / 100,
        underutilized_usd=underutilized / 100,
        lost_usd=lost / 100,
        saved_usd=round(amounts.saved, 2),
        utilization=amounts.utilization,
        first=amounts.first,
        last=amounts.last,
    )


def _hours(gpu_seconds: float) -> float:
    return round(gpu_seconds / 3600, 4)


def _apportioned(usd: Sequence[float], total: int | None = None) -> list[int]:
    """Round amounts to cents that add up to `total` cents, or to the rounded sum: by the largest remainder."""
    # Sums of floats that are a few billionths below a cent are that cent.
    exact = [round(100 * max(0.0, one), 6) for one in usd]
    cents = [floor(one) for one in exact]
    missing = (round(sum(exact)) if total is None else total) - sum(cents)
    by_remainder = sorted(range(len(exact)), key=lambda place: cents[place] - exact[place])
    for place in by_remainder[: max(0, missing)]:
        cents[place] += 1
    for place in reversed(by_remainder):
        if missing >= 0:
            break
        if cents[place]:
            cents[place] -= 1
            missing += 1
    return cents


# Present rates


def present_rates(snapshot: Snapshot, prices: Prices, labels: CostLabels = DEFAULT_LABELS) -> tuple[CostHour, ...]:
    """Return what a cluster costs per hour at its present shares, as rows of the hour of the Snapshot."""
    allocator = CostAllocator(snapshot, prices, labels)
    # A second, because GPU metrics become stale in an hour.
    allocator.advance(snapshot.time + SECOND)
    hour = snapshot.time // HOUR * HOUR
    return tuple(
        replace(row, hour=hour, **{name: getattr(row, name) * (HOUR // SECOND) for name in COST_AMOUNTS})
        for row in allocator.drain()
    )


# Borrowed and lent quota


class LoanRates(Struct, frozen=True, kw_only=True):
    """What borrowed quota costs at present, in USD per hour: parts of the cost rates, not added to them.

    Both add up to the same amount in each cohort. Usage above all quota of a cohort, as after a quota was reduced, is
    in neither, because no ClusterQueue lends it.
    """

    borrowed: Mapping[str, float]
    """Workload → cost rate of its GPUs above the nominal quota of its ClusterQueue."""
    lent: Mapping[str, float]
    """ClusterQueue, or Cohort with its own quota → cost rate of its GPUs that others use."""

    def borrowed_by(self, name: Callable[[str], str]) -> Mapping[str, float]:
        """Sum the borrowed rates by a name of each workload, such as its team."""
        found: dict[str, float] = {}
        for workload, usd in self.borrowed.items():
            found[name(workload)] = found.get(name(workload), 0.0) + usd
        return found


def workload_costs(rows: Iterable[CostHour]) -> Mapping[str, float]:
    """Sum the costs in USD by workload."""
    found: dict[str, float] = {}
    for row in rows:
        if row.owner.kind is CostKind.WORKLOAD:
            found[row.owner.workload] = found.get(row.owner.workload, 0.0) + row.cost_usd
    return found


NO_LOANS = LoanRates(borrowed={}, lent={})


def loan_rates(snapshot: Snapshot, hourly: Mapping[str, float]) -> LoanRates:
    """Divide the cost rates of workloads, in USD per hour, into what they use of their own quota and of others'.

    A workload borrows as much as `borrowed_parts` says, at its own mean price per accelerator; a lender is attributed
    its part of the borrower's cost as in `loans`. Quota of pods that hold no GPUs yet costs nothing.
    """
    counted = quota_accelerators(snapshot)
    parts: dict[tuple[str, FlavorResource], list[tuple[str, float]]] = {}
    for key, amounts in borrowed_parts(snapshot).items():
        workload, usd = snapshot.workloads[key], hourly.get(key, 0.0)
        total = sum(amount for (_, resource), amount in held(workload) if resource in counted)
        for pair, amount in amounts.items() if usd else ():
            parts.setdefault((workload.cluster_queue, pair), []).append((key, usd * amount / total))
    borrowed: dict[str, float] = {}
    lent: dict[str, float] = {}
    over = over_nominal(snapshot)
    for loan in loans(snapshot):
        pair = loan.flavor, loan.resource
        for key, usd in parts.get((loan.borrower, pair), ()):
            part = usd * loan.gpus / over[loan.borrower][pair]
            borrowed[key] = borrowed.get(key, 0.0) + part
            lent[loan.lender] = lent.get(loan.lender, 0.0) + part
    return LoanRates(borrowed=borrowed, lent=lent)


# Windows


def month_window(month: str) -> Window:
    """Return begin and end of a month such as `2026-01`, in UTC. Raises ValueError."""
    begin = datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC)
    end = begin.replace(year=begin.year + begin.month // 12, month=begin.month % 12 + 1)
    return _time(begin), _time(end)


def month_of(time: Time) -> str:
    """Return the month of a time in UTC, such as `2026-01`."""
    return datetime.fromtimestamp(time // SECOND, UTC).strftime("%Y-%m")


def period_window(period: CostPeriod, now: Time) -> Window:
    """Return the window of a period: today and this month end now, the last month at its end."""
    month = month_window(month_of(now))
    match period:
        case CostPeriod.TODAY:
            return now // DAY * DAY, now
        case CostPeriod.MONTH:
            return month[0], now
        case CostPeriod.LAST_MONTH:
            return month_window(month_of(month[0] - 1))


def _time(moment: datetime) -> Time:
    return round(moment.timestamp()) * SECOND


# Jobs and the monthly report


class JobFacts(Struct, frozen=True, kw_only=True):
    """Facts about a job that cost rows do not have."""

    name: str
    """`namespace/name` of the job."""
    epochs: int | None = None
    """Completed training epochs; None if unknown."""


NO_JOBS: Mapping[str, JobFacts] = {}


def job_facts(snapshot: Snapshot) -> Mapping[str, JobFacts]:
    """Map the `workload` of cost rows to facts about its job; finished jobs that were deleted are missing."""
    found: dict[str, JobFacts] = {}
    by_pods: dict[str, int] = {}
    for pod in snapshot.pods.all():
        epochs = _epochs(pod.annotations)
        if epochs is not None:
            for key in {pod.workload, pod.job, pod.key} - {""}:
                by_pods[key] = max(epochs, by_pods.get(key, 0))
    for job in snapshot.jobs.all():
        epochs = _epochs(job.annotations)
        found[job.key] = JobFacts(name=job_name(job.key), epochs=by_pods.get(job.key) if epochs is None else epochs)
    for workload in snapshot.workloads.all():
        owner = found.get(workload.owner)
        epochs = owner.epochs if owner is not None and owner.epochs is not None else _epochs(workload.annotations)
        found[workload.key] = JobFacts(
            name=owner.name if owner is not None else job_name(workload.owner or workload.key),
            epochs=by_pods.get(workload.key) if epochs is None else epochs,
        )
    return found


def _epochs(annotations: Mapping[str, str]) -> int | None:
    text = annotations.get(EPOCHS, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def job_name(workload: str) -> str:
    """Return `namespace/name` of the key of a workload or job (`Kind/namespace/name`)."""
    return workload.partition("/")[2] if workload.count("/") == 2 else workload


class CostlyJob(Struct, frozen=True, kw_only=True):
    """A job in the monthly report of its team."""

    job_name: str
    gpu_hours: float
    cost_usd: float
    gpu_util: float | None
    """Average GPU utilization in percent; None if it was not measured."""


class TeamMonth(Struct, frozen=True, kw_only=True):
    """Monthly report of a team."""

    team: str
    month: str
    """Such as `2026-01`, in UTC."""
    total_gpu_hours: float
    total_cost_usd: float
    jobs_count: int
    """Number of jobs that held GPUs or nodes in the month."""
    top_5_costly_jobs: tuple[CostlyJob, ...]
    gpu_utilization_avg: float | None
    """Mean of the jobs' utilization in percent, of those that were measured; None if none was."""


def team_month(rows: Iterable[CostHour], team: str, month: str, jobs: Mapping[str, JobFacts] = NO_JOBS) -> TeamMonth:
    """Return the report of a team for a month such as `2026-01`. Raises ValueError for another form of month.

    `jobs` names the jobs of workloads; a workload that is missing there goes by its own name.
    """
    sums: dict[str, _Sum] = {}
    for row in _in(rows, month_window(month)):
        if row.owner.team == team and row.owner.kind is CostKind.WORKLOAD:
            key = row.owner.workload
            name = jobs[key].name if key in jobs else job_name(key)
            sums.setdefault(name, _Sum(row.hour)).add(row)
    ranked = sorted(sums.items(), key=lambda pair: (-pair[1].cost, pair[0]))
    cents = _apportioned([one.cost for _, one in ranked])
    levels = [level for _, one in ranked if (level := one.utilization) is not None]
    return TeamMonth(
        team=team,
        month=month,
        total_gpu_hours=round(sum(one.gpu for _, one in ranked) / 3600, 2),
        total_cost_usd=sum(cents) / 100,
        jobs_count=len(ranked),
        top_5_costly_jobs=tuple(
            CostlyJob(job_name=name, gpu_hours=round(one.gpu / 3600, 2), cost_usd=cost / 100, gpu_util=one.utilization)
            for (name, one), cost in zip(ranked[:TOP], cents, strict=False)
        ),
        gpu_utilization_avg=round(fmean(levels), 1) if levels else None,
    )


class JobCost(Struct, frozen=True, kw_only=True):
    """Accrued cost of a job, running or finished."""

    job_name: str
    total_gpu_hours: float
    total_cost_usd: float
    cost_per_epoch: float | None
    """USD per completed epoch, the total while none is completed; None if the number of epochs is unknown."""


def job_cost(rows: Iterable[CostHour], workload: str, jobs: Mapping[str, JobFacts] = NO_JOBS) -> JobCost:
    """Return the cost of a workload so far, by all rows."""
    total, gpu = 0.0, 0.0
    for row in rows:
        if row.owner.workload == workload and row.owner.kind is CostKind.WORKLOAD:
            total += row.cost_usd
            gpu += row.gpu_seconds
    facts = jobs.get(workload) or JobFacts(name=job_name(workload))
    return JobCost(
        job_name=facts.name,
        total_gpu_hours=round(gpu / 3600, 2),
        total_cost_usd=round(total, 2),
        cost_per_epoch=round(total / max(facts.epochs, 1), 2) if facts.epochs is not None else None,
    )


def cost_at_end(accrued_usd: float, usd_per_hour: float, remaining: Span | None) -> float | None:
    """Return the expected cost of a workload at its end in USD; None if the remaining time is unknown."""
    return None if remaining is None else accrued_usd + usd_per_hour * max(0, remaining) / HOUR


# Budgets


class Budget(Struct, frozen=True, kw_only=True):
    """What a team may spend in a month."""

    team: str
    usd_per_month: float


class BudgetStatus(Struct, frozen=True, kw_only=True):
    """A budget, what was spent of it, and what the month will cost.

    The forecast is what was spent, and for the rest of the month the mean rate of the last 7 days.
    """

    budget: Budget
    spent_usd: float
    forecast_usd: float

    @property
    def is_exceeded(self) -> bool:
        """True if more was spent than the budget."""
        return self.spent_usd > self.budget.usd_per_month

    @property
    def alert(self) -> bool:
        """True if the budget is exceeded, or will be by the forecast."""
        return self.is_exceeded or self.forecast_usd > self.budget.usd_per_month


def budget_status(rows: Iterable[CostHour], budgets: Sequence[Budget], now: Time) -> tuple[BudgetStatus, ...]:
    """Compare the teams' costs of this month with their budgets, in the order of `budgets`.

    `rows` are those since `budget_window(now)`. If they begin less than 7 days ago, the rate is that since their begin.
    """
    begin, end = month_window(month_of(now))
    recent = (now - RATE_OVER) // HOUR * HOUR
    first = now // HOUR * HOUR
    spent = {budget.team: 0.0 for budget in budgets}
    lately = dict(spent)
    for row in rows:
        hour, team = row.hour, row.owner.team
        if recent <= hour < first:
            first = hour
        if team in spent and row.owner.kind is CostKind.WORKLOAD and hour < now:
            if hour >= begin:
                spent[team] += row.cost_usd
            if hour >= recent:
                lately[team] += row.cost_usd
    observed = max(now - first, 1)
    return tuple(
        BudgetStatus(
            budget=budget,
            spent_usd=round(spent[budget.team], 2),
            forecast_usd=round(spent[budget.team] + lately[budget.team] / observed * (end - now), 2),
        )
        for budget in budgets
    )


def budget_window(now: Time) -> Window:
    """Return the window of the rows that `budget_status` needs: this month, and at least the last 7 days."""
    return min(month_window(month_of(now))[0], (now - RATE_OVER) // HOUR * HOUR), now
