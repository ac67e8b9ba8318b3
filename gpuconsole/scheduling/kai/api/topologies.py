"""A topology: levels of the cluster as node labels, widest first (kai.scheduler/v1alpha1 Topology)."""

from msgspec import Struct


class TopologyInfo(Struct, frozen=True):
    """A topology, with the node labels of its levels, widest first."""

    name: str
    levels: tuple[str, ...] = ()
