"""A cluster as it stands, with an admission engine that can be asked about it and has decided nothing of its own.

A simulation that goes on from somebody else's cluster has had its first cycle: what it admitted or evicted there is no
fact. Answers about what is take this instead.
"""

from typing import TYPE_CHECKING, NamedTuple

from gpuconsole.insight.why import rehearsal_on
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.scheduling.kueue.session import Session
from gpuconsole.sim.policy import SimPolicy

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation


class Standing(NamedTuple):
    """One moment of a cluster."""

    snapshot: Snapshot
    session: Session | None
    """It may be asked at will; None without Kueue."""
    policy: SimPolicy


def standing_of(simulation: "Simulation") -> Standing:
    """A simulated cluster, where what the engine decided is what is."""
    return Standing(simulation.snapshot(), simulation.session, simulation.policy)


def standing_on(snapshot: Snapshot, policy: SimPolicy) -> Standing:
    """A cluster that others run, by their rules as far as they are known."""
    rehearsal = rehearsal_on(snapshot, policy.kueue)
    return Standing(snapshot, rehearsal.session if rehearsal is not None else None, policy)
