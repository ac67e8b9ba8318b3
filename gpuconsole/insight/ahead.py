"""Forecast of one workload: its start while it is pending, an eviction while it is admitted.

It takes fewer runs than a command does, as it is asked often.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.expected_start import Eta, expecting
from gpuconsole.insight.outlook import RUNS
from gpuconsole.insight.risk import EFFORT, HORIZON, Danger, foreboding
from gpuconsole.insight.standing import Standing, standing_on
from gpuconsole.model.clock import DAY, Time
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import PLACED, WorkloadPhase, phase

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation

_EFFORT = EFFORT // 2
"""Half of the simulation steps of the answer about all workloads."""


class Ahead(Struct, frozen=True, kw_only=True):
    """The forecast at `time`, with its horizon and the number of runs."""

    time: Time
    until: Time
    runs: int
    eta: Eta | None = None
    danger: Danger | None = None
    whole: bool = True
    """False until the runs end."""


def ahead(simulation: "Simulation", workload: str, *, runs: int = RUNS, seed: int = 0) -> Ahead:
    """Simulate the cluster for one workload. The simulation is not modified.

    A workload that does not exist, or that is neither pending nor admitted, gets an empty answer.
    """
    *_, last = looking(simulation, workload, runs=runs, seed=seed)
    return last


def looking(
    simulation: "Simulation", workload: str, *, runs: int = RUNS, seed: int = 0, found: Snapshot | None = None
) -> Iterator[Ahead]:
    """`ahead` as an iterator; to cancel, stop iterating. The simulation must not advance in the meantime.

    `found` is the live or saved cluster that the simulation started from, if any: what runs is read from it, as for
    `risk`.
    """
    now = simulation.now
    nothing = Ahead(time=now, until=now, runs=0)
    subject = simulation.workload(workload)
    stands = subject if found is None else found.workloads.get(workload)
    if stands is not None and phase(stands) in PLACED:
        standing = standing_on(found, simulation.policy) if found is not None else None
        yield from _endangered(simulation, workload, runs, seed, standing)
    elif subject is not None and phase(subject) in (WorkloadPhase.PENDING, WorkloadPhase.QUOTA_RESERVED):
        for told in expecting(simulation, workload, runs=runs, seed=seed, horizon=DAY):
            whole = told.start is not None
            yield replace(nothing, until=now + DAY, runs=runs, eta=told if whole else None, whole=whole)
    else:
        yield nothing


def _endangered(
    simulation: "Simulation", workload: str, runs: int, seed: int, found: Standing | None
) -> Iterator[Ahead]:
    now = simulation.now
    for piece in foreboding(simulation, runs=runs, seed=seed, horizon=HORIZON, found=found, effort=_EFFORT):
        until = piece.risk.horizon if piece.risk is not None else now + HORIZON
        dangers = piece.risk.dangers if piece.risk is not None else ()
        danger = next((one for one in dangers if one.workload == workload), None)
        yield Ahead(time=now, until=until, runs=piece.runs, danger=danger if piece.last else None, whole=piece.last)
