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
from gpuconsole.model.workloads import PLACED, Phase, phase

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation

_EFFORT = EFFORT // 2
"""Half of what the answer about all workloads may take."""


class Ahead(Struct, frozen=True, kw_only=True):
    """The answer as it was at `time`, until when it looks ahead, and by how many runs."""

    time: Time
    until: Time
    runs: int
    eta: Eta | None = None
    danger: Danger | None = None
    whole: bool = True
    """False as long as the runs go on."""


def ahead(simulation: "Simulation", workload: str, *, runs: int = RUNS, seed: int = 0) -> Ahead:
    """Run the cluster forward for one workload. The simulation is not touched.

    Nothing is known of a workload that is not there, or that neither waits nor is admitted.
    """
    *_, last = looking(simulation, workload, runs=runs, seed=seed)
    return last


def looking(
    simulation: "Simulation", workload: str, *, runs: int = RUNS, seed: int = 0, found: Snapshot | None = None
) -> Iterator[Ahead]:
    """The same piece by piece: who stops asking gives up. The simulation has to stand still meanwhile.

    `found` is the cluster that it went on from, where others run that: there that decides what runs, as for `risk`.
    """
    now = simulation.now
    nothing = Ahead(time=now, until=now, runs=0)
    subject = simulation.workload(workload)
    stands = subject if found is None else found.workloads.get(workload)
    if stands is not None and phase(stands) in PLACED:
        standing = standing_on(found, simulation.policy) if found is not None else None
        yield from _endangered(simulation, workload, runs, seed, standing)
    elif subject is not None and phase(subject) in (Phase.PENDING, Phase.QUOTA_RESERVED):
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
