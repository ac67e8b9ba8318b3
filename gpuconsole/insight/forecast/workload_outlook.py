"""Forecast of one workload: its start while it is pending, an eviction while it is admitted.

It uses fewer runs than the commands do, as it is updated often.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from gpuconsole.insight.forecast.estimates import RUNS
from gpuconsole.insight.forecast.expected_start import Eta, expected_start_steps
from gpuconsole.insight.pending.why import AdmissionView, view_on
from gpuconsole.insight.preemption.risk import EFFORT, HORIZON, WorkloadRisk, eviction_risk_steps
from gpuconsole.model.clock import DAY, Time
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import PLACED, WorkloadPhase, phase

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation


_EFFORT = EFFORT // 2
"""Half of the simulation steps of the answer about all workloads."""


class WorkloadOutlook(Struct, frozen=True, kw_only=True):
    """Forecast of one workload at `time`, with its horizon and the number of runs."""

    time: Time
    until: Time
    runs: int
    eta: Eta | None = None
    risk: WorkloadRisk | None = field(default=None, name="danger")
    whole: bool = True
    """False until the runs end."""


def outlook_steps(
    simulation: "Simulation", workload: str, *, runs: int = RUNS, seed: int = 0, found: Snapshot | None = None
) -> Iterator[WorkloadOutlook]:
    """Simulate the cluster for one workload; each answer is better than the one before. To cancel, stop iterating.

    The simulation is not modified, and must not advance in the meantime. A workload that does not exist, or that is
    neither pending nor admitted, gets an empty answer. `found` is the live or saved cluster that the simulation started
    from, if any; running work is read from it, as in `risk`.
    """
    now = simulation.now
    nothing = WorkloadOutlook(time=now, until=now, runs=0)
    subject = simulation.workload(workload)
    stands = subject if found is None else found.workloads.get(workload)
    if stands is not None and phase(stands) in PLACED:
        standing = view_on(found, simulation.policy) if found is not None else None
        yield from _risk_steps(simulation, workload, runs, seed, standing)
    elif subject is not None and phase(subject) in (WorkloadPhase.PENDING, WorkloadPhase.QUOTA_RESERVED):
        for answer in expected_start_steps(simulation, workload, runs=runs, seed=seed, horizon=DAY):
            whole = answer.start is not None
            yield replace(nothing, until=now + DAY, runs=runs, eta=answer if whole else None, whole=whole)
    else:
        yield nothing


def _risk_steps(
    simulation: "Simulation", workload: str, runs: int, seed: int, found: AdmissionView | None
) -> Iterator[WorkloadOutlook]:
    now = simulation.now
    for piece in eviction_risk_steps(simulation, runs=runs, seed=seed, horizon=HORIZON, found=found, effort=_EFFORT):
        until = piece.risk.horizon if piece.risk is not None else now + HORIZON
        workload_risks = piece.risk.workloads if piece.risk is not None else ()
        workload_risk = next((one for one in workload_risks if one.workload == workload), None)
        yield WorkloadOutlook(
            time=now, until=until, runs=piece.runs, risk=workload_risk if piece.last else None, whole=piece.last
        )
