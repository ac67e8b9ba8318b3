"""Prometheus metrics of a cluster: queues, waits, quota loans, preemptions, cost, GPUs, forecasts, and the history.

`ClusterCollector` evaluates the newest Snapshot when Prometheus scrapes, by the functions that the screens use, and
keeps the result until the next Snapshot. Every metric has a bounded number of series: those of the most important
workloads, queues or teams; the others are summed up as `(other)` where a sum makes sense, and else counted in
`gpuconsole_omitted_series`. What is unknown because objects cannot be read has no series: unknown is never zero.

Names and units follow Prometheus' rules. `training_job_cost_usd` has no prefix, because dashboards exist for it.
"""

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gpuconsole.errors import ConsoleError
from gpuconsole.insight.cost.allocation import NO_GPU, CostHour, CostKind
from gpuconsole.insight.cost.report import Budget, budget_status, budget_window, month_of, month_window
from gpuconsole.insight.data_gaps import PLACES, QUOTA
from gpuconsole.insight.forecast.backtest import ForecastDifferences
from gpuconsole.insight.forecast.estimates import StartEstimates
from gpuconsole.insight.health.alerts import alerts
from gpuconsole.insight.health.telemetry import GpuAlarmRule, alarms, utilization
from gpuconsole.insight.index.demand import waiting_since
from gpuconsole.insight.index.fragmentation import FlavorSlots, usefulness
from gpuconsole.insight.index.queues import pending, queue_index
from gpuconsole.insight.preemption.history import Losses, preemption_stats, rows
from gpuconsole.insight.preemption.risk import Risk
from gpuconsole.insight.series import GpuSample, QueueSample, Samples, SeriesKind, SeriesSampler
from gpuconsole.insight.sharing.fair_shares import loans
from gpuconsole.model.clock import HOUR, SECOND, Time
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.prices import Prices
from gpuconsole.model.queues import LocalQueue
from gpuconsole.model.snapshot import EMPTY, Snapshot
from gpuconsole.model.text import clean
from gpuconsole.model.workloads import Workload
from gpuconsole.services.analysis import AnalysisService
from gpuconsole.services.status import ConsoleStatus

LOG = logging.getLogger(__name__)
WORKLOADS = 500
"""Default maximum of series of each metric about workloads or jobs."""
OBJECTS = 500
"""Maximum series of each metric about queues, flavors, teams, loans, or reasons."""
LOOPS = 20
"""Maximum preemption loops that have a series each."""
LABEL = 128
"""Maximum characters of a label's value; longer ones are cut."""
OTHER = "(other)"
"""Value of all labels of the series that sums up the series beyond the maximum; no Kubernetes name has parentheses."""
COSTS_AGE = 30.0
"""Seconds for which costs are kept: reading a month from the history takes up to a second."""
WHOLE_HISTORY = 500
"""Maximum preemptions that are searched for loops: the newest."""

Labels = tuple[str, ...]
Rows = Iterable[tuple[Labels, float]]
"""Values of the labels of a series, and its value."""


class MetricsSource(Protocol):
    """What metrics are computed from; a `Console` is one, and so is a stored history."""

    @property
    def prices(self) -> Prices:
        """Prices of nodes that do not state their own."""
        ...

    @property
    def event_counts(self) -> Mapping[tuple[HistoryEventKind, str, str], int]:
        """Number of admissions, preemptions and evictions since the start, by queue and reason."""
        ...

    @property
    def snapshot(self) -> Snapshot:
        """The newest Snapshot; EMPTY before there is one."""
        ...

    @property
    def status(self) -> ConsoleStatus:
        """State of the source: age of the data, problems of the history."""
        ...

    @property
    def compared(self) -> ForecastDifferences:
        """How forecasts differed from Kueue's decisions."""
        ...

    def cost_hours(self, since: Time, until: Time) -> Sequence[CostHour]:
        """Return the costs of the hours that begin in [since, until). Raises HistoryError."""
        ...

    def losses(self) -> Losses:
        """Return the work lost by evictions. Raises HistoryError."""
        ...

    def preemptions(self, limit: int) -> tuple[HistoryEvent, ...]:
        """Return the newest preemptions with their outcomes, oldest first. Raises HistoryError."""
        ...


class Estimates(Protocol):
    """The newest results of long analyses."""

    starts: StartEstimates | None
    risk: Risk | None


class NoEstimates:
    """Stands for long analyses that are not made."""

    starts: StartEstimates | None = None
    risk: Risk | None = None


class BackgroundEstimates:
    """Repeats the long analyses, estimated starts and preemption risk, in a thread of its own. Mutates."""

    def __init__(self, answers: AnalysisService, *, pause: float = 60.0) -> None:
        """`pause` is the number of seconds between the end of an analysis and the start of the next."""
        self._answers = answers
        self._pause = pause
        self._stopped = threading.Event()
        self.starts: StartEstimates | None = None
        self.risk: Risk | None = None
        threading.Thread(target=self._run, name="estimates", daemon=True).start()

    def stop(self) -> None:
        """End the analyses; one step of them may still be computed."""
        self._stopped.set()

    def compute(self) -> None:
        """Make both analyses once, as far as the cluster allows. Blocks."""
        for starts in self._answers.outlook():
            if self._is_over():
                return
            self.starts = starts.answer or self.starts
        for risk in self._answers.risk():
            if self._is_over():
                return
            self.risk = risk.answer or self.risk

    def _is_over(self) -> bool:
        """True after `stop`, and without the worker process: this process must go on recording."""
        worker = self._answers.worker
        return self._stopped.is_set() or worker is None or bool(worker.lost)

    def _run(self) -> None:
        while not self._is_over():
            try:
                self.compute()
            except ConsoleError as error:
                LOG.info("No estimates: %s", error)
            except Exception:
                LOG.exception("No estimates")
            self._stopped.wait(self._pause)


class Limits(Struct, frozen=True, kw_only=True):
    """Maximum numbers of series."""

    workloads: int = WORKLOADS
    objects: int = OBJECTS
    loops: int = LOOPS


def label(value: str) -> str:
    """Return a label's value: one line of printable text of bounded length."""
    return clean(value, LABEL)


class _Families:
    """Builds metrics with a bounded number of series. Mutates: `omitted` counts the series left out, by metric."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.omitted: dict[str, int] = {}

    def gauge(self, name: str, text: str, names: Labels, found: Rows, most: int, *, summed: bool = False) -> Metric:
        """Return a gauge of at most `most` series, the first ones; the rest is summed up, or left out and counted."""
        family = GaugeMetricFamily(name, text, labels=names)
        self._fill(family, name, names, found, most, summed)
        return family

    def counter(self, name: str, text: str, names: Labels, found: Rows, most: int) -> Metric:
        """Return a counter, whose name ends in `_total`, of at most `most` series and the sum of the others."""
        family = CounterMetricFamily(name, text, labels=names)
        self._fill(family, name, names, found, most, True)
        return family

    def _fill(self, family: Any, name: str, names: Labels, found: Rows, most: int, summed: bool) -> None:
        series: dict[Labels, float] = {}
        rest, left_out = 0.0, 0
        for values, value in found:
            if not math.isfinite(value):
                continue
            key = tuple(map(label, values))
            if key in series:
                # Names that are equal after cutting: two series of one name would make the whole scrape invalid.
                series[key] = series[key] + value if summed else series[key]
            elif len(series) < most:
                series[key] = value
            else:
                rest, left_out = rest + value, left_out + 1
        if left_out and summed:
            series[(OTHER,) * len(names)] = rest
        self.omitted[name] = left_out
        for key, value in series.items():
            family.add_metric(key, value)


def single(name: str, text: str, value: float) -> Metric:
    """Return a gauge without labels."""
    return GaugeMetricFamily(name, text, value=value)


class ClusterCollector(Collector):
    """Collects the metrics of one cluster. Mutates its cache; thread-safe, one scrape at a time."""

    def __init__(
        self,
        source: MetricsSource,
        *,
        version: str,
        job_name: Callable[[str], str],
        estimates: Estimates | None = None,
        budgets: Sequence[Budget] = (),
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`job_name` maps a workload's key to `namespace/job`."""
        self._source = source
        self._version = version
        self._job_name = job_name
        self._estimates: Estimates = estimates if estimates is not None else NoEstimates()
        self._budgets = budgets
        self._limits = limits or Limits()
        self._clock = clock
        self._lock = threading.Lock()
        self._cached: tuple[Snapshot, object, object, list[Metric]] | None = None
        self._sampled: tuple[Snapshot, Samples] | None = None
        self._costs: tuple[float, list[Metric]] | None = None
        self._costs_omitted: dict[str, int] = {}
        self._errors: Counter[str] = Counter({name: 0 for name, _ in self._groups()})

    def describe(self) -> Iterable[Metric]:
        """Return nothing: at registration there may be no Snapshot yet."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics; those of the cluster are computed once for each Snapshot."""
        with self._lock:
            begun = time.perf_counter()
            snapshot = self._source.snapshot
            status = self._source.status
            found = [*self._health(status)]
            if snapshot is not EMPTY and not status.loading:
                found += self._of_cluster(snapshot)
            found.append(
                single(
                    "gpuconsole_scrape_duration_seconds",
                    "Time to compute this scrape.",
                    time.perf_counter() - begun,
                )
            )
        yield from found

    def _of_cluster(self, snapshot: Snapshot) -> list[Metric]:
        starts, risk = self._estimates.starts, self._estimates.risk
        known = self._cached
        if known is None or known[0] is not snapshot or known[1] is not starts or known[2] is not risk:
            families = _Families(self._limits)
            found: list[Metric] = []
            for name, group in self._groups():
                try:
                    found += group(families, snapshot)
                except Exception:
                    # One analysis that fails must not hide all the others.
                    if not self._errors[name]:
                        LOG.exception("Metrics of %s cannot be computed", name)
                    self._errors[name] += 1
            omitted = (families.omitted | self._costs_omitted).items()
            text = "Series beyond the maximum, by metric."
            beyond = GaugeMetricFamily("gpuconsole_omitted_series", text, labels=["metric"])
            for metric, count in omitted:
                beyond.add_metric([metric], count)
            found.append(beyond)
            self._cached = known = snapshot, starts, risk, found
        errors = CounterMetricFamily(
            "gpuconsole_scrape_errors_total", "Groups of metrics that could not be computed.", labels=["group"]
        )
        for name, count in self._errors.items():
            errors.add_metric([name], count)
        return [*known[3], errors]

    def _groups(self) -> Sequence[tuple[str, Callable[[_Families, Snapshot], Iterator[Metric]]]]:
        return (
            ("queues", self._queues),
            ("pending", self._pending),
            ("loans", self._loans),
            ("gpus", self._gpus),
            ("preemptions", self._preemptions),
            ("costs", self._cost_metrics),
            ("estimates", self._estimated),
            ("forecasts", self._forecasts),
            ("problems", self._problems),
        )

    def _health(self, status: ConsoleStatus) -> Iterator[Metric]:
        """Metrics of this process and of its connection; also before the cluster is known."""
        text = "Version of gpuconsole; always 1."
        info = GaugeMetricFamily("gpuconsole_build_info", text, labels=["version", "mode"])
        info.add_metric([self._version, status.mode.value], 1)
        yield info
        connected = not (status.sight is not None and status.sight.lost) and not status.stalled
        yield single("gpuconsole_cluster_connected", "1 if the cluster's state is being renewed.", float(connected))
        yield single("gpuconsole_cluster_loaded", "1 once all objects have been read.", float(not status.loading))
        yield single("gpuconsole_cluster_data_age_seconds", "Time since the state was last renewed.", status.age)
        yield single(
            "gpuconsole_snapshot_timestamp_seconds", "Time of the state, by the cluster's clock.", status.time / SECOND
        )
        if status.agreement.known:
            text = "Part of Kueue's decisions of the last 24 hours that the engine made as Kueue did, 0 to 1."
            yield single("gpuconsole_kueue_agreement_ratio", text, status.agreement.agreement)
        failing = float(bool(status.history))
        yield single("gpuconsole_history_failing", "1 while the history cannot be written.", failing)
        yield CounterMetricFamily(
            "gpuconsole_history_lost_events_total",
            "Events missing in the history, because writing was too slow.",
            value=status.lost_events,
        )
        yield CounterMetricFamily(
            "gpuconsole_history_write_failures_total",
            "Writes of the history that failed; each is tried again after a second.",
            value=status.failed_writes,
        )

    def _levels(self, snapshot: Snapshot) -> Samples:
        """Return the levels of the time series; its counts and waits, of the history's own sampler, are missing."""
        if self._sampled is None or self._sampled[0] is not snapshot:
            self._sampled = snapshot, SeriesSampler().sample(snapshot, self._source.prices)
        return self._sampled[1]

    def _queues(self, families: _Families, snapshot: Snapshot) -> Iterator[Metric]:
        """Quota and use of queues and flavors, pending work of queues."""
        if not snapshot.seen.all_of(*QUOTA):
            return
        samples = self._levels(snapshot)
        most = families.limits.objects
        names = ("kind", "queue", "flavor")
        queues = [one for one in samples.queues if one.kind not in (SeriesKind.CLUSTER, SeriesKind.FLAVOR)]
        # Queues of Volcano and KAI, and namespaces, have no flavors.
        by_flavor = [one for one in queues if one.flavor] or queues
        by_flavor.sort(key=lambda one: (one.kind is SeriesKind.COHORT, -one.nominal))
        parts: tuple[tuple[str, str, Callable[[QueueSample], float]], ...] = (
            ("nominal", "Nominal quota", lambda one: one.nominal),
            ("used", "Reserved quota", lambda one: one.used),
            ("borrowed", "Quota in use beyond the nominal quota", lambda one: one.borrowed),
            ("lent", "Nominal quota in use by other queues", lambda one: one.lent),
        )
        series: list[tuple[Labels, float]]
        for part, text, amount in parts:
            series = [((one.kind.value, one.name, one.flavor), amount(one)) for one in by_flavor]
            text = f"{text} of a queue or cohort, in GPUs or other accelerators."
            yield families.gauge(f"gpuconsole_queue_{part}_gpus", text, names, series, most)
        totals = sorted(
            (one for one in queues if not one.flavor),
            key=lambda one: (one.kind is SeriesKind.COHORT, -one.pending),
        )
        text = "Pending workloads of a queue or cohort."
        series = [((one.kind.value, one.name), float(one.pending)) for one in totals]
        yield families.gauge("gpuconsole_queue_pending_workloads", text, ("kind", "queue"), series, most)
        text = "GPUs or other accelerators that the pending workloads of a queue or cohort request."
        series = [((one.kind.value, one.name), one.pending_gpus) for one in totals]
        yield families.gauge("gpuconsole_queue_pending_gpus", text, ("kind", "queue"), series, most)
        text = "Time since the longest pending workload of a ClusterQueue was queued."
        oldest = [
            ((name,), (snapshot.time - index.count.oldest) / SECOND)
            for name, index in queue_index(snapshot).by_queue.items()
            if name and index.count.oldest is not None
        ]
        oldest.sort(key=lambda one: -one[1])
        yield families.gauge("gpuconsole_queue_oldest_pending_seconds", text, ("cluster_queue",), oldest, most)

    def _pending(self, families: _Families, snapshot: Snapshot) -> Iterator[Metric]:
        """Positions and waits of pending workloads, those at the front of their queues first."""
        if not snapshot.seen.all_of(Workload, LocalQueue):
            return
        places = sorted(_positions(snapshot), key=lambda one: (one.in_cluster_queue, one.key))
        names, most = ("namespace", "workload", "cluster_queue", "local_queue"), families.limits.workloads
        metrics: tuple[tuple[str, str, Callable[[_PendingPosition], float]], ...] = (
            (
                "gpuconsole_workload_cluster_queue_position",
                "Position of a pending workload in its ClusterQueue, from 1.",
                lambda one: one.in_cluster_queue,
            ),
            (
                "gpuconsole_workload_local_queue_position",
                "Position of a pending workload in its LocalQueue, from 1.",
                lambda one: one.in_local_queue,
            ),
            (
                "gpuconsole_workload_pending_seconds",
                "Time since a pending workload was queued.",
                lambda one: one.waited,
            ),
        )
        for name, text, value in metrics:
            yield families.gauge(name, text, names, ((one.labels, value(one)) for one in places), most)

    def _loans(self, families: _Families, snapshot: Snapshot) -> Iterator[Metric]:
        """Quota that one queue borrows from another; the borrower is empty if only the amount is known."""
        if not snapshot.seen.all_of(*QUOTA):
            return
        text = "Quota of a lender (ClusterQueue or Cohort) that a ClusterQueue borrows, in GPUs or other accelerators."
        series = [((one.lender, one.borrower, one.flavor, one.unit), float(one.gpus)) for one in loans(snapshot)]
        names = ("lender", "borrower", "flavor", "unit")
        yield families.gauge("gpuconsole_quota_loan_gpus", text, names, series, families.limits.objects, summed=True)

    def _gpus(self, families: _Families, snapshot: Snapshot) -> Iterator[Metric]:
        """GPUs by type and state, the largest gangs that would start, and GPUs that are underutilized."""
        if not snapshot.seen.all_of(*PLACES):
            return
        most = families.limits.objects
        gpus = self._levels(snapshot).gpus
        series = [((one.gpu_type, state), count) for one in gpus for state, count in _states(one)]
        text = "GPUs, MIG instances and other accelerators of nodes, by state; the states add up to all."
        yield families.gauge("gpuconsole_gpus", text, ("gpu_type", "state"), series, most, summed=True)
        text = "Mean utilization of the GPUs that run pods, 0 to 1; without measurements there is no series."
        used = [((one.gpu_type,), one.utilization / 100) for one in gpus if one.utilization is not None]
        yield families.gauge("gpuconsole_gpu_utilization_ratio", text, ("gpu_type",), used, most)
        teams = utilization(snapshot)
        text = "Mean utilization of the GPUs that run pods of a namespace, 0 to 1."
        by_team = [((one.team,), one.percent / 100) for one in (teams.teams if teams is not None else ())]
        yield families.gauge("gpuconsole_namespace_gpu_utilization_ratio", text, ("namespace",), by_team, most)
        yield from _gangs(families, snapshot)
        idle = [one for one in alarms(snapshot) if one.rule in _UNDERUTILIZED]
        text = "Allocated GPUs that are idle, or whose use is low, by owner and finding."
        owned = [
            ((*_space_and_name(one.workload), one.rule.value), float(one.gpus))
            for one in sorted(idle, key=lambda one: -one.gpus)
        ]
        names = ("namespace", "workload", "finding")
        yield families.gauge(
            "gpuconsole_underutilized_gpus", text, names, owned, families.limits.workloads, summed=True
        )

    def _preemptions(self, families: _Families, snapshot: Snapshot) -> Iterator[Metric]:
        """Admissions, preemptions and evictions since the start, lost work, preemption loops."""
        most, counts = families.limits.objects, self._source.event_counts
        metrics = (
            ("admissions", HistoryEventKind.ADMITTED, "Workloads admitted since the start, by ClusterQueue."),
            ("preemptions", HistoryEventKind.PREEMPTED, "Preemptions since the start, by queue of the victim."),
        )
        for name, kind, text in metrics:
            by_queue: Counter[Labels] = Counter()
            for (what, queue, _), count in dict(counts).items():
                if what is kind:
                    by_queue[queue,] += count
            found = by_queue.most_common()
            yield families.counter(f"gpuconsole_{name}_total", text, ("queue",), found, most)
        by_reason: Counter[Labels] = Counter()
        for (what, queue, reason), count in dict(counts).items():
            if what is HistoryEventKind.EVICTED:
                by_reason[queue, reason] += count
        text = "Evictions since the start, preemptions included, by queue and reason."
        names = ("queue", "reason")
        yield families.counter("gpuconsole_evictions_total", text, names, by_reason.most_common(), most)
        lost: dict[str, tuple[float, float]] = {}
        for (queue, _), work in self._source.losses().items():
            gpu_hours, cost = lost.get(queue, (0.0, 0.0))
            lost[queue] = gpu_hours + work.gpu_hours, cost + work.cost
        ranked = sorted(lost.items(), key=lambda one: -one[1][0])
        text = "GPU time lost by evictions, as far as known, by queue."
        hours = [((queue,), gpu_hours * 3600) for queue, (gpu_hours, _) in ranked]
        yield families.counter("gpuconsole_lost_gpu_seconds_total", text, ("queue",), hours, most)
        text = "Cost of the work lost by evictions, as far as known, by queue."
        costs = [((queue,), cost) for queue, (_, cost) in ranked]
        yield families.counter("gpuconsole_lost_work_usd_total", text, ("queue",), costs, most)
        stats = preemption_stats(rows(_since(self._source.preemptions(WHOLE_HISTORY), snapshot.time - HOUR)))
        looping = [one for one in stats.victims if one.thrash]
        text = "Preemption loops of the last hour: workloads preempted 3 times, and queues that preempt each other."
        kinds = [(("workload",), float(len(looping))), (("queue",), float(len(stats.queue_cycles)))]
        yield families.gauge("gpuconsole_preemption_loops", text, ("kind",), kinds, most)
        text = "Preemptions of the last hour of a workload in a preemption loop."
        victims = [(_space_and_name(one.name), float(one.times)) for one in looping]
        names = ("namespace", "workload")
        yield families.gauge("gpuconsole_preemption_loop_preemptions", text, names, victims, families.limits.loops)

    def _cost_metrics(self, families: _Families, snapshot: Snapshot) -> Iterator[Metric]:
        """Cost of jobs and teams; kept for COSTS_AGE seconds, as the history has to be read for it."""
        if self._costs is None or self._clock() - self._costs[0] >= COSTS_AGE:
            own = _Families(families.limits)
            self._costs = self._clock(), list(self._read_costs(own, snapshot))
            self._costs_omitted = own.omitted
        yield from self._costs[1]

    def _read_costs(self, families: _Families, snapshot: Snapshot) -> Iterator[Metric]:
        now, (month, _) = snapshot.time, month_window(month_of(snapshot.time))
        since = min([budget_window(now)[0], *(one.created for one in snapshot.workloads.all())])
        found = self._source.cost_hours(since // HOUR * HOUR, now + 1)
        yield self._job_costs(families, found)
        yield from self._team_costs(families, [one for one in found if one.hour >= month], now)
        yield from self._budget_metrics(families, found, now)

    def _job_costs(self, families: _Families, found: Iterable[CostHour]) -> Metric:
        sums: dict[Labels, float] = {}
        for one in found:
            owner = one.owner
            if owner.kind is CostKind.WORKLOAD and owner.gpu_type != NO_GPU:
                _, name = _space_and_name(self._job_name(owner.workload))
                _add(sums, (name, owner.team, owner.gpu_type, owner.namespace), one.cost_usd)
        text = "Cumulative GPU cost of a training job, in USD; jobs of this month, and older ones that still exist."
        names, most = ("job_name", "team", "gpu_type", "namespace"), families.limits.workloads
        return families.gauge("training_job_cost_usd", text, names, _largest_first(sums), most, summed=True)

    def _team_costs(self, families: _Families, found: Sequence[CostHour], now: Time) -> Iterator[Metric]:
        most = families.limits.objects
        month: dict[Labels, float] = {}
        parts: dict[str, float] = {"used": 0.0, "underutilized": 0.0, "lost": 0.0, "idle": 0.0, "system": 0.0}
        for one in found:
            if one.owner.kind is CostKind.WORKLOAD:
                _add(month, (one.owner.team,), one.cost_usd)
            for part in parts:
                parts[part] += getattr(one, f"{part}_usd")
        text = "Cost of a team in the current month (UTC), in USD; without idle GPUs."
        by_team = _largest_first(month)
        yield families.gauge("gpuconsole_team_cost_month_to_date_usd", text, ("team",), by_team, most, summed=True)
        text = "Cost of the cluster in the current month (UTC), in USD, by category; the categories add up to all."
        series = [((part,), value) for part, value in parts.items()]
        yield families.gauge("gpuconsole_cost_month_to_date_usd", text, ("category",), series, most)
        hour: dict[Labels, float] = {}
        seconds = (now - now // HOUR * HOUR) / SECOND
        recent = [one for one in found if one.hour >= now // HOUR * HOUR - HOUR]
        for one in recent:
            # The last 60 minutes: all of the current hour, and the part of the one before that completes it.
            share = 1.0 if one.hour >= now // HOUR * HOUR else 1 - seconds / 3600
            if one.owner.kind is CostKind.WORKLOAD:
                _add(hour, (one.owner.team,), one.cost_usd * share)
        text = "Cost of a team in the last 60 minutes, in USD per hour; without idle GPUs."
        by_team = _largest_first(hour)
        yield families.gauge("gpuconsole_team_cost_usd_per_hour", text, ("team",), by_team, most, summed=True)

    def _budget_metrics(self, families: _Families, found: Sequence[CostHour], now: Time) -> Iterator[Metric]:
        """Budgets, and what the teams that have one will have cost by the end of the month."""
        if not self._budgets:
            return
        most, states = families.limits.objects, budget_status(found, self._budgets, now)
        text = "Budget of a team for a month, in USD."
        series = [((one.budget.team,), one.budget.usd_per_month) for one in states]
        yield families.gauge("gpuconsole_team_budget_usd", text, ("team",), series, most)
        text = "Expected cost of a team with a budget by the end of the month, at the rate of the last 7 days, in USD."
        series = [((one.budget.team,), one.forecast_usd) for one in states]
        yield families.gauge("gpuconsole_team_cost_month_forecast_usd", text, ("team",), series, most)

    def _estimated(self, families: _Families, snapshot: Snapshot) -> Iterator[Metric]:
        """Estimated starts and preemption risks, as far as they were computed."""
        most = families.limits.workloads
        starts, risk = self._estimates.starts, self._estimates.risk
        if starts is not None:
            known = sorted(
                (one for one in starts.estimates.values() if not one.beyond and one.workload in snapshot.workloads),
                key=lambda one: one.median,
            )
            text = "Estimated start of a pending workload: the median, and the bounds of the 80% interval."
            series = [
                ((*_space_and_name(one.workload), bound), moment / SECOND)
                for one in known
                for bound, moment in (
                    ("p10", one.interval.first),
                    ("p50", one.median),
                    ("p90", one.interval.last),
                )
            ]
            names = ("namespace", "workload", "estimate")
            yield families.gauge("gpuconsole_workload_estimated_start_timestamp_seconds", text, names, series, 3 * most)
        if risk is not None:
            at_risk = [
                (_space_and_name(one.workload), one.probability)
                for one in risk.workloads
                if one.probability is not None and _exists(snapshot, one.workload)
            ]
            text = "Probability that a running workload is evicted within the horizon, 0 to 1."
            of_workload = ("namespace", "workload")
            yield families.gauge("gpuconsole_workload_preemption_risk_ratio", text, of_workload, at_risk, most)
            horizon = (risk.horizon - risk.time) / SECOND
            yield single("gpuconsole_preemption_risk_horizon_seconds", "Time that preemption risks cover.", horizon)

    def _forecasts(self, families: _Families, snapshot: Snapshot) -> Iterator[Metric]:
        """Agreement of the forecasts with Kueue's decisions."""
        compared = self._source.compared
        if compared.decisions:
            text = "Decisions of Kueue that were compared with a forecast."
            yield CounterMetricFamily("gpuconsole_forecast_decisions_total", text, value=compared.decisions)
            text = "Decisions of Kueue that were as forecast."
            yield CounterMetricFamily("gpuconsole_forecast_agreed_total", text, value=compared.agreed)

    def _problems(self, families: _Families, snapshot: Snapshot) -> Iterator[Metric]:
        """The problems that the dashboard lists, such as starved queues, with the GPUs that each concerns."""
        text = "Problems that need attention, by kind and object: the GPUs concerned, at least 1."
        found = [
            ((one.trouble.value, self._job_name(one.key)), float(max(one.gpus, 1)))
            for one in alerts(snapshot, snapshot.recent)
        ]
        yield families.gauge(
            "gpuconsole_problem_gpus", text, ("kind", "object"), found, families.limits.objects, summed=True
        )


_UNDERUTILIZED = (GpuAlarmRule.IDLE, GpuAlarmRule.HOARDING, GpuAlarmRule.EMPTY)


def _add(sums: dict[Labels, float], key: Labels, value: float) -> None:
    sums[key] = sums.get(key, 0.0) + value


def _largest_first(sums: Mapping[Labels, float]) -> Sequence[tuple[Labels, float]]:
    return sorted(sums.items(), key=lambda one: -one[1])


class _PendingPosition(Struct, frozen=True, kw_only=True):
    key: str
    labels: Labels
    in_cluster_queue: int
    in_local_queue: int
    waited: float
    """Seconds."""


def _positions(snapshot: Snapshot) -> Iterator[_PendingPosition]:
    """Yield the pending workloads of all ClusterQueues with their positions."""
    for cluster_queue in queue_index(snapshot).by_queue:
        if not cluster_queue:
            continue
        in_local_queue: Counter[str] = Counter()
        for entry in pending(snapshot, cluster_queue):
            workload = entry.workload
            in_local_queue[workload.local_queue] += 1
            yield _PendingPosition(
                key=workload.key,
                labels=(workload.namespace, workload.name, cluster_queue, workload.queue),
                in_cluster_queue=entry.position,
                in_local_queue=in_local_queue[workload.local_queue],
                waited=(snapshot.time - waiting_since(workload)) / SECOND,
            )


def _states(sample: GpuSample) -> Iterator[tuple[str, float]]:
    yield "allocated", sample.allocated
    yield "idle", sample.idle
    yield "unhealthy", sample.unhealthy
    yield "held", sample.total - sample.allocated - sample.idle - sample.unhealthy


def _gangs(families: _Families, snapshot: Snapshot) -> Iterator[Metric]:
    """Yield the largest gang that would start now on each flavor, or in the cluster where there are no flavors."""
    useful = usefulness(snapshot)
    slots: Sequence[FlavorSlots] = useful.flavors or (useful.cluster, *useful.others)
    most = families.limits.objects
    names = ("flavor", "unit")
    text = "Accelerators of the largest gang that would start now, by flavor and unit."
    gangs = [((one.name, one.unit), float(one.largest_gang.total if one.largest_gang else 0)) for one in slots]
    yield families.gauge("gpuconsole_largest_gang_gpus", text, names, gangs, most)
    text = "Accelerators of the largest pod that would start now, by flavor and unit."
    pods = [((one.name, one.unit), float(one.largest_pod)) for one in slots]
    yield families.gauge("gpuconsole_largest_pod_gpus", text, names, pods, most)
    text = "Idle accelerators of a flavor, by unit."
    idle = [((one.name, one.unit), float(one.idle)) for one in slots]
    yield families.gauge("gpuconsole_flavor_idle_gpus", text, names, idle, most)
    if useful.fragments.known:
        text = "Part of the idle GPUs that typical pods cannot use, 0 to 1."
        yield single("gpuconsole_fragmentation_ratio", text, useful.fragments.percent / 100)


def _exists(snapshot: Snapshot, key: str) -> bool:
    """True if a Workload, job or pod still exists, as an analysis may be older than the Snapshot."""
    return key in snapshot.workloads or key in snapshot.jobs or key in snapshot.pods


def _since(history: Sequence[HistoryEvent], since: Time) -> Sequence[HistoryEvent]:
    return [line for line in history if line.time >= since]


def _space_and_name(key: str) -> tuple[str, str]:
    """Split the key of a workload, `namespace/name`, or of a job or pod, `Kind/namespace/name`."""
    space, _, name = key.rpartition("/")
    return space.rpartition("/")[2], name
