"""What GPUs cost: a node's price, what a workload burns an hour, and what an eviction now would waste."""

from msgspec import Struct

from gpuconsole.insight.demand import held, unsaved_work
from gpuconsole.model.clock import HOUR
from gpuconsole.model.cluster import Node
from gpuconsole.model.prices import Prices, gpu_hourly, gpu_type
from gpuconsole.model.resources import is_gpu
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload

__all__ = ["Loss", "gpu_type", "hourly", "loss_if_evicted", "node_hourly"]


class Loss(Struct, frozen=True):
    """Work that would have to be done again."""

    gpu_hours: float
    cost: float
    """USD."""


def node_hourly(node: Node, prices: Prices) -> float:
    """USD an hour for all GPUs of a node, used or not."""
    return node.gpus * gpu_hourly(node, prices)


def hourly(snapshot: Snapshot, workload: Workload, prices: Prices) -> float:
    """USD an hour for the GPUs that a workload holds, by the labels of their flavors."""
    total = 0.0
    for (name, resource), amount in held(workload):
        if is_gpu(resource):
            flavor = snapshot.flavors.get(name)
            total += amount * prices.hourly(flavor.node_labels if flavor is not None else {}, name)
    return total


def loss_if_evicted(snapshot: Snapshot, workload: Workload, prices: Prices) -> Loss:
    """What evicting a running workload now would waste: its work since it began or since its last checkpoint."""
    hours = unsaved_work(workload, snapshot.jobs.get(workload.owner), snapshot.time) / HOUR
    return Loss(hours * workload.gpus, hours * hourly(snapshot, workload, prices))
