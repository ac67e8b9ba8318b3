"""A simulation as a Snapshot file: its cluster at one moment, and how it goes on from there."""

import msgspec

from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.snapshot import SnapshotFile, encode
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy


def write(simulation: Simulation, recent: tuple[HistoryEvent, ...] | None = None, *, staged: bool = True) -> bytes:
    """Write the cluster of a simulation with its policy and seed, as JSON. What is under way begins anew.

    `recent` is its history, where more of it is known than the simulation keeps. What has gone on from a real cluster
    for no time is not `staged`.
    """
    policy = msgspec.Raw(msgspec.json.encode(simulation.policy))
    return encode(simulation.snapshot(), policy, simulation.seed, recent, staged=staged)


def policy_in(file: SnapshotFile) -> SimPolicy | None:
    """The policy of the simulation that a Snapshot was taken from; None for one of a live cluster.

    Raises msgspec.ValidationError with the path of what is wrong.
    """
    return msgspec.json.decode(file.policy, type=SimPolicy | None)
