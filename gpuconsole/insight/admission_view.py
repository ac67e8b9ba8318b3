"""Present state of a cluster with an admission engine that has not decided anything yet.

A simulation that starts from a live or saved cluster has already run a cycle, whose decisions are not facts. Answers
about the present use this state instead.
"""

from typing import TYPE_CHECKING, NamedTuple

from gpuconsole.insight.why import rehearsal_on
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.scheduling.kueue.session import KueueSession
from gpuconsole.sim.policy import SimPolicy

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation


class AdmissionView(NamedTuple):
    """A Snapshot of a cluster with the admission engine and the settings at that time."""

    snapshot: Snapshot
    session: KueueSession | None
    """None without Kueue."""
    policy: SimPolicy


def view_of(simulation: "Simulation") -> AdmissionView:
    """Return the state of a simulated cluster, with the decisions of the engine."""
    return AdmissionView(simulation.snapshot(), simulation.session, simulation.policy)


def view_on(snapshot: Snapshot, policy: SimPolicy) -> AdmissionView:
    """Return the state of a live or saved cluster, with its settings as far as they are known."""
    rehearsal = rehearsal_on(snapshot, policy.kueue)
    return AdmissionView(snapshot, rehearsal.session if rehearsal is not None else None, policy)
