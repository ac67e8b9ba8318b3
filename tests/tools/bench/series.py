"""Sampling the time series of a big cluster, as the recorder does each minute."""

from functools import partial

from gpuconsole.insight.overview import dashboard
from gpuconsole.insight.series import SeriesSampler, hourly
from gpuconsole.model.clock import MINUTE
from gpuconsole.model.prices import Prices
from tests.tools.bench.forks import simulation
from tests.tools.bench.report import Report, cpu

WORKLOADS, NODES = 100_000, 5_000


def series(report: Report) -> None:
    """Sample a Snapshot that the dashboard has evaluated, and Snapshots a minute apart; reduce an hour of samples."""
    made, prices, sampler = simulation(WORKLOADS, NODES), Prices(), SeriesSampler()
    known, fresh = list[float](), list[float]()
    for _ in range(max(3, report.runs)):
        made.advance(made.now + MINUTE)
        for event in made.drain():
            sampler.note(event)
        snapshot = made.snapshot()
        fresh.append(cpu(partial(sampler.sample, snapshot, prices)))
        dashboard(snapshot)
        known.append(cpu(partial(sampler.sample, snapshot, prices)))
    known.sort()
    fresh.sort()
    name = f"sample of {WORKLOADS:,} workloads, {NODES:,} nodes"
    report.time(name, known[len(known) // 2], bar=0.050)
    report.time("  with the indexes that changed within a minute", fresh[len(fresh) // 2])
    report.time("  60 samples reduced to an hour", cpu(partial(hourly, [sampler.sample(snapshot, prices)] * 60)))
