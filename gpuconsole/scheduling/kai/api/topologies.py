"""A topology: levels of the cluster as node labels, widest first (kai.scheduler/v1alpha1 Topology)."""

from msgspec import Struct


class TopologyInfo(Struct, frozen=True):
    name: str
    levels: tuple[str, ...] = ()
