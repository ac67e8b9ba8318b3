"""When all that waits starts, by the same runs of the cluster: for a table, and for the memory of estimates."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.calibration import Experience
from gpuconsole.insight.estimates import Estimate, corrected, estimate
from gpuconsole.insight.eta import starting
from gpuconsole.insight.past import past
from gpuconsole.model.clock import DAY, Span, Time
from gpuconsole.model.workloads import Phase, phase

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation

RUNS = 9
"""With fewer, no run stands for 10 or 90 %."""


class Outlook(Struct, frozen=True, kw_only=True):
    """The estimates of a moment, by workload."""

    time: Time = 0
    estimates: Mapping[str, Estimate] = {}
    """Empty as long as the runs go on."""
    whole: bool = False


def outlook(simulation: "Simulation", *, runs: int = RUNS, seed: int = 0, horizon: Span = DAY) -> Iterator[Outlook]:
    """Foretell the start of everything that waits, piece by piece: who stops asking gives up.

    As long as no work has ended nothing is foretold: how long it lasts would be anybody's guess. The simulation is not
    touched, and has to stand still meanwhile.
    """
    snapshot = simulation.snapshot()
    keys = [one.key for one in snapshot.workloads.all() if phase(one) in (Phase.PENDING, Phase.QUOTA_RESERVED)]
    known = past(snapshot)
    if not keys or not any(run.ended for run in known.runs):
        yield Outlook(time=snapshot.time, whole=True)
        return
    for piece in starting(simulation, keys, known, runs=runs, seed=seed, horizon=horizon):
        estimates = {key: estimate(found) for key, found in (piece.starts or {}).items()}
        yield Outlook(time=snapshot.time, estimates=estimates, whole=piece.starts is not None)


def calibrated(found: Outlook, learned: Experience) -> Outlook:
    """The same, stretched by what earlier estimates teach."""
    return replace(found, estimates={key: corrected(one, learned) for key, one in found.estimates.items()})
