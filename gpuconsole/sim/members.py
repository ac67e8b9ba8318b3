"""Worker clusters of a simulated MultiKueue manager: separate simulations on its clock."""

from typing import Protocol

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.commands import Command
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload


class WorkerCluster(Protocol):
    """The interface of a worker cluster to its manager; a Simulation implements it."""

    @property
    def next_time(self) -> Time | None: ...
    def workload(self, key: str) -> Workload | None: ...
    def snapshot(self) -> Snapshot: ...
    def submit(self, command: Command) -> None: ...
    def advance(self, until: Time) -> None: ...
    def fork(self) -> "WorkerCluster": ...
    def save(self) -> bytes: ...


class MultiKueueMember(Struct, frozen=True, kw_only=True):
    """A worker cluster, and the time since which the manager cannot reach it."""

    cluster: WorkerCluster
    lost: Time | None = None


class Dispatch(Struct, frozen=True, kw_only=True):
    """The manager's state of a dispatched workload."""

    started: Time | None = None
    """When the current round of nominations began."""
    sent: tuple[str, ...] = ()
    """Clusters that have a copy."""
    runs: str = ""
    """The cluster whose copy was admitted, until the workload's quota is released."""
