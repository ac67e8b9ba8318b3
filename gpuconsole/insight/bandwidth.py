"""Bandwidth between the GPUs of a job: the slowest link between any two of them."""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.gpus.models import (
    NETWORK,
    NETWORK_BANDWIDTH,
    PCIE,
    bandwidth,
    nvlink_bandwidth,
    wiring_of,
)
from gpuconsole.model.gpus.sharing import device
from gpuconsole.model.snapshot import Snapshot


class Link(StrEnum):
    """Kinds of link between GPUs, the fastest first."""

    NVLINK = "NVLink"
    PCIE = "PCIe"
    NETWORK = "network"


class GpuConnection(Struct, frozen=True):
    """The slowest link between the GPUs of a job."""

    link: Link
    gigabytes: int
    """GB per second."""
    gpus: int
    nodes: int

    @property
    def text(self) -> str:
        """The connection as text: `8 GPUs in one NVLink domain, 600 GB/s`."""
        match self.link:
            case Link.NVLINK:
                where, about = "in one NVLink domain", ""
            case Link.PCIE:
                where, about = "on one node, connected by PCIe", "about "
            case Link.NETWORK:
                where, about = f"on {self.nodes} nodes", "about "
        return f"{self.gpus} GPUs {where}, {about}{self.gigabytes} GB/s"


def connection(snapshot: Snapshot, pods: Iterable[Pod]) -> GpuConnection | None:
    """Find the slowest link between the GPUs of these pods; None for fewer than two. MIG instances have no links."""
    homes: dict[str, set[int]] = {}
    for pod in pods:
        node: Node | None = snapshot.nodes.get(pod.node) if pod.gpus and not pod.done else None
        if node is not None:
            homes.setdefault(node.name, set()).update(device(i, node.gpus, node.labels) for i in pod.gpus)
    total = sum(map(len, homes.values()))
    if total < 2:
        return None
    nodes = [snapshot.nodes[name] for name in homes]
    if len(nodes) > 1:
        slowest = min(bandwidth(node.annotations, NETWORK_BANDWIDTH, NETWORK) for node in nodes)
        return GpuConnection(Link.NETWORK, slowest, total, len(nodes))
    (node,) = nodes
    if _joined(node, homes[node.name]):
        return GpuConnection(Link.NVLINK, nvlink_bandwidth(node.labels, node.annotations), total, 1)
    return GpuConnection(Link.PCIE, PCIE, total, 1)


def _joined(node: Node, gpus: set[int]) -> bool:
    """True if one NVLink domain has all of these GPUs; a node with unknown topology is assumed to have one domain."""
    wiring = wiring_of(node.gpus, node.labels, node.annotations)
    return wiring is None or len({wiring.nvlink[gpu] for gpu in gpus}) == 1
