"""Forecasts of a big cluster that others run: the first look, and looks after something changed."""

from msgspec.structs import replace

from gpuconsole.insight.forecast.forecast import Forecaster
from gpuconsole.model.clock import SECOND
from gpuconsole.model.events import Applied
from gpuconsole.model.state import ClusterState
from gpuconsole.sim.policy import SimPolicy
from tests.tools.bench.forks import simulation
from tests.tools.bench.report import Report, cpu, median

WORKLOADS, NODES = 10_000, 5_000
CHANGED = 100


def looks(report: Report) -> None:
    """What a look costs: all of it at first, then what changed and the cycles that come next."""
    policy, state = SimPolicy(), ClusterState()
    cluster = simulation(WORKLOADS, NODES).snapshot()
    for thing in cluster.objects():
        state.apply(Applied(cluster.time, thing))
    foreseer = Forecaster()
    first = cpu(lambda: foreseer.forecast(state.freeze(), policy))
    report.seconds(f"first forecast, {WORKLOADS:,} workloads, {NODES:,} nodes", first, bar=2)
    waiting = [workload for workload in cluster.workloads.all() if not workload.reserved][:CHANGED]

    def look() -> None:
        for workload in waiting:
            known = state.table("workloads").get(workload.key)
            state.apply(Applied(state.time + SECOND, replace(known, priority=known.priority + 1)))
        foreseer.forecast(state.freeze(), policy)

    report.seconds(f"forecast after {CHANGED} of them changed", median(look, report.runs), bar=2)
