"""What probably comes for one workload: its start while it waits, an eviction while it runs."""

from typing import TYPE_CHECKING

from msgspec import Struct

from gpuconsole.insight.expected_start import Eta, expected_start
from gpuconsole.insight.risk import HORIZON, Danger, risk
from gpuconsole.model.clock import DAY, Time
from gpuconsole.model.workloads import Phase

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation

RUNS = 9
"""Fewer than a command takes, for this is asked again and again; with fewer, no run stands for 10 or 90 %."""


class Ahead(Struct, frozen=True, kw_only=True):
    """The answer as it was at `time`, until when it looks ahead, and by how many runs."""

    time: Time
    until: Time
    runs: int
    eta: Eta | None = None
    danger: Danger | None = None


def ahead(simulation: "Simulation", workload: str, *, runs: int = RUNS, seed: int = 0) -> Ahead:
    """Run the cluster forward for one workload. The simulation is not touched.

    Nothing is known of a workload that is not there, or that neither waits nor runs.
    """
    now = simulation.now
    if simulation.workload(workload) is None:
        return Ahead(time=now, until=now, runs=0)
    found = expected_start(simulation, workload, runs=runs, seed=seed, horizon=DAY)
    if found.start is not None:
        return Ahead(time=now, until=found.start.horizon, runs=runs, eta=found)
    if found.phase is not Phase.RUNNING:
        return Ahead(time=now, until=now, runs=0)
    told = risk(simulation, runs=runs, seed=seed, horizon=HORIZON)
    danger = next((one for one in told.dangers if one.workload == workload), None)
    return Ahead(time=now, until=told.horizon, runs=runs, danger=danger)
