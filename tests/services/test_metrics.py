"""Prometheus metrics: what a scrape says of a cluster, how many series it has at most, and what it leaves out."""

import subprocess
from collections.abc import Iterator, Mapping, Sequence

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric

from gpuconsole.backends.simulated import SimulatedBackend
from gpuconsole.cli.options import OpenRequest
from gpuconsole.cli.sources import open_simulation
from gpuconsole.errors import HistoryError
from gpuconsole.insight.cost.allocation import CostHour, CostKind, CostOwner
from gpuconsole.insight.cost.report import Budget
from gpuconsole.insight.forecast.backtest import ForecastDifferences
from gpuconsole.insight.forecast.estimates import Estimate, Interval, StartEstimates
from gpuconsole.insight.index.queues import position, positions
from gpuconsole.insight.preemption.history import Losses
from gpuconsole.insight.sharing.fair_shares import loans
from gpuconsole.model.clock import HOUR, SECOND, Time, parse_time
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.objects import TABLES
from gpuconsole.model.prices import Prices
from gpuconsole.model.snapshot import EMPTY, Snapshot, Visibility, VisibilityGap
from gpuconsole.services.console import Console
from gpuconsole.services.metrics import LABEL, OTHER, ClusterCollector, Limits
from gpuconsole.services.status import ConsoleMode, ConsoleStatus
from gpuconsole.store.recorder import Opening, Recorder
from gpuconsole.ui.names import called
from tests.live.telemetry import promtool_binary

NOW = parse_time("2026-01-15T12:30:00Z")
LABELS_OF_THE_SEED = {"job_name", "team", "gpu_type", "namespace"}


class Source:
    """A source of metrics whose parts are set by hand."""

    def __init__(self, snapshot: Snapshot, costs: Sequence[CostHour] = ()) -> None:
        self.snapshot = snapshot
        self.costs = costs
        self.prices = Prices()
        self.event_counts: Mapping[tuple[HistoryEventKind, str, str], int] = {}
        self.status = ConsoleStatus(mode=ConsoleMode.LIVE, source="test", time=snapshot.time)
        self.compared = ForecastDifferences()
        self.asked: list[tuple[Time, Time]] = []

    def cost_hours(self, since: Time, until: Time) -> list[CostHour]:
        self.asked.append((since, until))
        return [one for one in self.costs if since <= one.hour < until]

    def losses(self) -> Losses:
        return {}

    def preemptions(self, limit: int) -> tuple[HistoryEvent, ...]:
        return ()


def collector(source: Source | Console, **options: object) -> ClusterCollector:
    return ClusterCollector(source, version="test", job_name=called, **options)  # type: ignore[arg-type]


def scraped(collector: ClusterCollector) -> dict[str, Metric]:
    """All metrics by name; of counters with their `_total`."""
    return {name: one for one in collector.collect() for name in {sample.name for sample in one.samples} or {one.name}}


def values(collector: ClusterCollector, name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """The series of a metric: values of some of its labels → value."""
    metric = scraped(collector).get(name)
    samples = metric.samples if metric is not None else []
    return {tuple(one.labels[label] for label in labels): one.value for one in samples}


def text_of(collector: ClusterCollector) -> str:
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry).decode()


def at(snapshot: Snapshot, time: Time) -> Snapshot:
    return Snapshot(time, snapshot.serial, {}, ())


def cost(workload: str, team: str, hour: Time, usd: float, *, gpu_type: str = "a100-80gb") -> CostHour:
    namespace = workload.partition("/")[0]
    owner = CostOwner(kind=CostKind.WORKLOAD, workload=workload, namespace=namespace, team=team, gpu_type=gpu_type)
    return CostHour(owner=owner, hour=hour, gpu_seconds=3600.0, used_usd=usd)


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """The default fixture after a simulated hour, with its history."""
    opened = open_simulation(OpenRequest())
    backend = SimulatedBackend(opened.simulation, speed=3600, measure=True)
    path = tmp_path_factory.mktemp("history") / "history.db"
    recorder = Recorder(path, Opening(version="test", mode="simulated"), wall=lambda: 0, interval=1e6)
    about = ConsoleStatus(mode=ConsoleMode.SIM, source="default")
    console = Console(backend, about=about, recorder=recorder, prices=opened.simulation.policy.prices)
    end = opened.simulation.now + HOUR
    while console.snapshot.time < end:
        console.tick(0.1)
    recorder.flush()
    yield console
    console.stop()


def test_a_scrape_of_a_simulation_has_the_numbers_of_the_screens(console: Console) -> None:
    of, snapshot = collector(console), console.snapshot
    in_cluster_queue = values(of, "gpuconsole_workload_cluster_queue_position", "namespace", "workload")
    assert in_cluster_queue == {tuple(key.split("/")): place for key, place in positions(snapshot).items()}
    assert in_cluster_queue, "somebody is pending"
    in_local_queue = values(of, "gpuconsole_workload_local_queue_position", "namespace", "workload")
    for names, place in in_local_queue.items():
        found = position(snapshot, "/".join(names))
        assert found is not None
        assert found.in_local_queue == place
    lent = values(of, "gpuconsole_quota_loan_gpus", "lender", "borrower", "flavor")
    assert lent == {(one.lender, one.borrower, one.flavor): one.gpus for one in loans(snapshot)}
    states = values(of, "gpuconsole_gpus", "gpu_type", "state")
    assert sum(states.values()) == sum(node.gpus for node in snapshot.nodes.all())


def test_costs_of_jobs_teams_and_categories_add_up_to_the_recorded_costs(console: Console) -> None:
    of, now = collector(console), console.snapshot.time
    recorded = console.cost_hours(now - 24 * HOUR, now + 1)
    of_work = sum(one.cost_usd for one in recorded if one.owner.kind is CostKind.WORKLOAD)
    jobs = values(of, "training_job_cost_usd", *sorted(LABELS_OF_THE_SEED))
    teams = values(of, "gpuconsole_team_cost_month_to_date_usd", "team")
    categories = values(of, "gpuconsole_cost_month_to_date_usd", "category")
    assert of_work > 1
    assert sum(jobs.values()) == pytest.approx(of_work)
    assert sum(teams.values()) == pytest.approx(of_work)
    assert sum(categories.values()) == pytest.approx(sum(one.cost_usd for one in recorded))


def test_the_metric_of_the_seed_has_its_name_and_labels(console: Console) -> None:
    metric = scraped(collector(console))["training_job_cost_usd"]
    assert metric.type == "gauge"
    assert {frozenset(one.labels) for one in metric.samples} == {frozenset(LABELS_OF_THE_SEED)}


def test_counters_count_what_happened_since_the_start(console: Console) -> None:
    found = values(collector(console), "gpuconsole_admissions_total", "queue")
    counts = console.event_counts
    assert found == {
        (queue,): sum(n for (kind, name, _), n in counts.items() if kind is HistoryEventKind.ADMITTED and name == queue)
        for kind, queue, _ in counts
        if kind is HistoryEventKind.ADMITTED
    }
    assert found


@pytest.mark.skipif(promtool_binary() is None, reason="there is no promtool here (Debian: prometheus)")
def test_promtool_finds_nothing_wrong_with_names_and_help(console: Console) -> None:
    promtool = str(promtool_binary())
    done = subprocess.run(
        [promtool, "check", "metrics"], input=text_of(collector(console)), text=True, capture_output=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_snapshot_is_evaluated_once(console: Console) -> None:
    of = collector(console)
    first, second = (
        {id(one) for one in of.collect() if one.name.startswith("gpuconsole_queue_")},
        {id(one) for one in of.collect() if one.name.startswith("gpuconsole_queue_")},
    )
    assert first == second
    assert first


def test_costs_are_read_once_in_thirty_seconds() -> None:
    clock = [0.0]
    source = Source(at(EMPTY, NOW), [cost("llm/train", "llm", NOW // HOUR * HOUR, 2.0)])
    of = collector(source, clock=lambda: clock[0])
    for moment in (0.0, 10.0, 29.0, 30.0, 31.0):
        clock[0] = moment
        source.snapshot = at(EMPTY, NOW + round(moment) * SECOND)
        assert values(of, "training_job_cost_usd", "job_name") == {("train",): 2.0}
    assert len(source.asked) == 2


def test_the_rate_is_that_of_the_last_60_minutes() -> None:
    hour = NOW // HOUR * HOUR
    source = Source(at(EMPTY, NOW), [cost("a/x", "a", hour, 3.0), cost("a/x", "a", hour - HOUR, 8.0)])
    assert values(collector(source), "gpuconsole_team_cost_usd_per_hour", "team") == {("a",): 3.0 + 8.0 / 2}


def test_the_cost_of_the_month_leaves_out_the_month_before() -> None:
    new_year = parse_time("2026-01-01T00:00:00Z")
    source = Source(
        at(EMPTY, new_year + 2 * HOUR), [cost("a/x", "a", new_year - HOUR, 5.0), cost("a/x", "a", new_year, 3.0)]
    )
    of = collector(source)
    assert values(of, "gpuconsole_team_cost_month_to_date_usd", "team") == {("a",): 3.0}
    assert values(of, "training_job_cost_usd", "job_name") == {("x",): 8.0}, "a job's cost is cumulative"


def test_budgets_come_with_a_forecast_and_only_where_there_are_any() -> None:
    source = Source(at(EMPTY, NOW), [cost("a/x", "a", NOW // HOUR * HOUR - HOUR, 3.0)])
    with_budget = collector(source, budgets=(Budget(team="a", usd_per_month=100.0),))
    assert values(with_budget, "gpuconsole_team_budget_usd", "team") == {("a",): 100.0}
    assert values(with_budget, "gpuconsole_team_cost_month_forecast_usd", "team")["a",] > 3.0
    assert "gpuconsole_team_budget_usd" not in scraped(collector(source))


def test_beyond_the_maximum_costs_are_summed_and_positions_are_left_out(console: Console) -> None:
    of, full = collector(console, limits=Limits(workloads=1)), collector(console)
    costs, all_costs = (values(one, "training_job_cost_usd", *sorted(LABELS_OF_THE_SEED)) for one in (of, full))
    assert len(costs) == 2
    assert sum(costs.values()) == pytest.approx(sum(all_costs.values()))
    rest = costs.pop((OTHER,) * 4)
    assert rest == pytest.approx(sum(sorted(all_costs.values())[:-1])), "the most expensive job has a series of its own"
    shown, every = (values(one, "gpuconsole_workload_cluster_queue_position", "workload") for one in (of, full))
    assert list(shown.values()) == [1], "the heads of the queues come first"
    assert len(every) > 1
    omitted = values(of, "gpuconsole_omitted_series", "metric")
    assert omitted["gpuconsole_workload_cluster_queue_position",] == len(every) - 1
    assert omitted["training_job_cost_usd",] == len(all_costs) - 1


def test_hostile_and_long_names_stay_one_line_and_one_series() -> None:
    hour, long = NOW // HOUR * HOUR, "n" * 300
    hostile = 'x"}\n\x1b[2Jevil_metric 1'
    costs = [
        cost(f"a/{long}1", "a", hour, 1.0),
        cost(f"a/{long}2", "a", hour, 2.0),
        cost(f"a/{hostile}", "a", hour, 4.0),
    ]
    of = collector(Source(at(EMPTY, NOW), costs))
    found = values(of, "training_job_cost_usd", "job_name")
    assert sorted(found.values()) == [3.0, 4.0], "two names that are equal after cutting are one series"
    assert all(len(name) <= LABEL and name.isprintable() for (name,) in found)
    assert not [line for line in text_of(of).splitlines() if line.startswith("evil_metric")]


def test_what_cannot_be_read_has_no_series(console: Console) -> None:
    old = console.snapshot
    tables = {name: getattr(old, name) for name in TABLES.values()}
    seen = Visibility(gaps=(VisibilityGap(table="workloads", resource="workloads.kueue.x-k8s.io", why="forbidden"),))
    found = scraped(collector(Source(Snapshot(old.time, old.serial, tables, old.recent, seen))))
    assert not [name for name in found if name.startswith(("gpuconsole_workload_", "gpuconsole_quota_loan"))]
    assert not [name for name in found if name.startswith("gpuconsole_queue_")]
    assert "gpuconsole_gpus" in found, "nodes and pods can be read"


def test_before_the_cluster_is_loaded_only_the_state_of_the_process_is_known() -> None:
    source = Source(at(EMPTY, NOW), [cost("a/x", "a", NOW, 3.0)])
    source.status = ConsoleStatus(
        mode=ConsoleMode.LIVE, loading=True, history="the disk is full", lost_events=7, failed_writes=3
    )
    of = collector(source)
    assert {name: metric.samples[0].value for name, metric in scraped(of).items() if "duration" not in name} == {
        "gpuconsole_build_info": 1.0,
        "gpuconsole_cluster_connected": 1.0,
        "gpuconsole_cluster_loaded": 0.0,
        "gpuconsole_cluster_data_age_seconds": 0.0,
        "gpuconsole_snapshot_timestamp_seconds": 0.0,
        "gpuconsole_history_failing": 1.0,
        "gpuconsole_history_lost_events_total": 7.0,
        "gpuconsole_history_write_failures_total": 3.0,
    }


def test_an_analysis_that_fails_is_counted_and_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    source = Source(at(EMPTY, NOW))

    def fail(since: Time, until: Time) -> list[CostHour]:
        raise HistoryError("the history is damaged")

    source.cost_hours = fail  # type: ignore[method-assign]
    of = collector(source)
    for time in (NOW, NOW + SECOND):
        source.snapshot = at(EMPTY, time)
        list(of.collect())
    errors = values(of, "gpuconsole_scrape_errors_total", "group")
    assert errors["costs",] == 2
    assert sum(errors.values()) == 2
    assert "gpuconsole_preemption_loops" in scraped(of)
    assert len(caplog.records) == 1, "it is logged once, not at each scrape"


class _Estimates:
    def __init__(self, starts: StartEstimates) -> None:
        self.starts: StartEstimates | None = starts
        self.risk = None


def test_estimated_starts_have_the_bounds_of_their_interval(console: Console) -> None:
    key = next(iter(positions(console.snapshot)))
    interval = Interval(NOW + SECOND, NOW + 3 * SECOND)
    known = Estimate(
        workload=key,
        asked=NOW,
        horizon=NOW + HOUR,
        past=HOUR,
        runs=20,
        never=0,
        median=NOW + 2 * SECOND,
        raw=interval,
        interval=interval,
    )
    gone = Estimate(**{name: getattr(known, name) for name in Estimate.__struct_fields__} | {"workload": "no/more"})
    estimates = _Estimates(StartEstimates(time=NOW, estimates={key: known, "no/more": gone}))
    found = values(
        collector(console, estimates=estimates),
        "gpuconsole_workload_estimated_start_timestamp_seconds",
        "namespace",
        "workload",
        "estimate",
    )
    base, names = NOW / SECOND, tuple(key.split("/"))
    assert found == {(*names, "p10"): base + 1, (*names, "p50"): base + 2, (*names, "p90"): base + 3}
