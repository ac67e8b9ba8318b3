"""Saves a simulation as a Snapshot file: its cluster at one moment, and its policy."""

import msgspec

from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.snapshot import SnapshotFile, encode
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy


def write_snapshot(
    simulation: Simulation, recent: tuple[HistoryEvent, ...] | None = None, *, staged: bool = True
) -> bytes:
    """Write the cluster of a simulation with its policy and seed, as JSON.

    Timers are not written: when it is loaded, work resumes from the start of its pods, and scheduled commands are lost.
    `recent` is its history, if more of it is known than the simulation keeps. A simulation of a real cluster that has
    not advanced is not `staged`.
    """
    policy = msgspec.Raw(msgspec.json.encode(simulation.policy))
    return encode(simulation.snapshot(), policy, simulation.seed, recent, staged=staged)


def policy_of_snapshot(file: SnapshotFile) -> SimPolicy | None:
    """The policy of the simulation that a Snapshot was taken from; None for one of a live cluster.

    Raises msgspec.ValidationError with the path of what is wrong.
    """
    return msgspec.json.decode(file.policy, type=SimPolicy | None)
