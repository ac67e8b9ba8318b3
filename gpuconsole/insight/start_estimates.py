"""Estimated starts of all pending workloads, from one set of simulation runs."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.calibration import Calibration
from gpuconsole.insight.estimates import Estimate, corrected, estimate
from gpuconsole.insight.eta import start_steps
from gpuconsole.insight.workload_history import workload_history
from gpuconsole.model.clock import DAY, Span, Time
from gpuconsole.model.workloads import WorkloadPhase, phase

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation

RUNS = 9
"""The minimum for the 10% and 90% quantiles."""


class StartEstimates(Struct, frozen=True, kw_only=True):
    """Estimates of one moment, by workload."""

    time: Time = 0
    estimates: Mapping[str, Estimate] = {}
    """Empty until the runs end."""
    whole: bool = False


def start_estimate_steps(
    simulation: "Simulation", *, runs: int = RUNS, seed: int = 0, horizon: Span = DAY
) -> Iterator[StartEstimates]:
    """Estimate the start of all pending workloads, as an iterator; to cancel, stop iterating.

    There are no estimates until some work has finished, because run times are unknown. The simulation is not modified,
    and must not advance in the meantime.
    """
    snapshot = simulation.snapshot()
    keys = [
        one.key
        for one in snapshot.workloads.all()
        if phase(one) in (WorkloadPhase.PENDING, WorkloadPhase.QUOTA_RESERVED)
    ]
    known = workload_history(snapshot)
    if not keys or not any(run.ended for run in known.runs):
        yield StartEstimates(time=snapshot.time, whole=True)
        return
    for piece in start_steps(simulation, keys, known, runs=runs, seed=seed, horizon=horizon):
        estimates = {key: estimate(found) for key, found in (piece.starts or {}).items()}
        yield StartEstimates(time=snapshot.time, estimates=estimates, whole=piece.starts is not None)


def calibrated(found: StartEstimates, learned: Calibration) -> StartEstimates:
    """Return the estimates with intervals stretched by the errors of earlier estimates (see `calibration`)."""
    return replace(found, estimates={key: corrected(one, learned) for key, one in found.estimates.items()})
