"""The usage during a cycle: quota used, and pods placed in the topologies.

`CycleSnapshot` mutates; `revertible` undoes the changes made inside it.
"""

from collections.abc import Iterable

from gpuconsole.scheduling.kueue.requests import Holding
from gpuconsole.scheduling.kueue.topology.tas_usage import TasUsage
from gpuconsole.scheduling.kueue.usage import UsageTree


class CycleSnapshot:
    """Quota usage and topology occupancy together."""

    __slots__ = ("sites", "usage")

    def __init__(self, usage: UsageTree, sites: TasUsage) -> None:
        self.usage = usage
        self.sites = sites

    def fork(self) -> "CycleSnapshot":
        """Return a copy for a fork of the session."""
        return CycleSnapshot(self.usage.copy(), self.sites.fork())

    def copy(self) -> "CycleSnapshot":
        """Return an independent copy for trials."""
        return CycleSnapshot(self.usage.copy(), self.sites.copy())

    def for_cycle(self, *, overlapping: bool) -> "CycleSnapshot":
        """Return a copy for one cycle's trials; with `overlapping`, flavors that share nodes see each other's pods."""
        return CycleSnapshot(self.usage.copy(), self.sites.shared() if overlapping else self.sites.copy())

    def revertible(self) -> "RevertOnExit":
        """Return a context manager that undoes the changes made in its block."""
        return RevertOnExit(self)

    def add(self, holding: Holding) -> None:
        """Count what a workload holds, unless its ClusterQueue is not in the tree."""
        node = self.usage.tree.queues.get(holding.cluster_queue)
        if node is not None:
            self.usage.add(node, holding.uses)
            self.sites.add(holding.places)

    def remove(self, holding: Holding) -> None:
        """The inverse of `add`."""
        node = self.usage.tree.queues.get(holding.cluster_queue)
        if node is not None:
            self.usage.remove(node, holding.uses)
            self.sites.add(holding.places, -1)

    def remove_all(self, holdings: Iterable[Holding]) -> None:
        """Remove what these workloads hold."""
        for holding in holdings:
            self.remove(holding)


class RevertOnExit:
    """Context manager that undoes changes of the usage; a class, as a generator is slower and there are thousands a
    second.
    """

    __slots__ = ("_accounts", "_sites", "_used")

    def __init__(self, accounts: CycleSnapshot) -> None:
        self._accounts = accounts

    def __enter__(self) -> None:
        sites = self._accounts.sites
        self._used = self._accounts.usage.usage[:]
        self._sites = sites.copy() if sites.topologies else None

    def __exit__(self, *_: object) -> None:
        self._accounts.usage.usage[:] = self._used
        if self._sites is not None:
            self._accounts.sites.restore(self._sites)
