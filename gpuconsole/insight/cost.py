"""What GPUs cost: a node's price, what a workload burns an hour, and what an eviction now would waste."""

from msgspec import Struct

from gpuconsole.insight.demand import held, pod_gpus, unsaved_work
from gpuconsole.insight.whereabouts import whereabouts
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
    """USD an hour for the GPUs that a workload holds: by the nodes of its pods, as evictions are priced.

    What has no node yet is priced by the labels of its flavors.
    """
    total, quota = 0.0, 0
    for (name, resource), amount in held(workload):
        if is_gpu(resource):
            flavor = snapshot.flavors.get(name)
            total += amount * prices.hourly(flavor.node_labels if flavor is not None else {}, name)
            quota += amount
    placed, gpus = 0.0, 0
    for pod in whereabouts(snapshot).of(workload.key).values():
        node = snapshot.nodes.get(pod.node)
        if node is not None:
            own = len(pod.gpus) or pod_gpus(pod.template)
            placed += own * gpu_hourly(node, prices)
            gpus += own
    return placed + total * max(0, quota - gpus) / quota if quota else placed


def loss_if_evicted(snapshot: Snapshot, workload: Workload, prices: Prices) -> Loss:
    """What evicting a running workload now would waste: its work since it began or since its last checkpoint."""
    hours = unsaved_work(workload, snapshot.jobs.get(workload.owner), snapshot.time) / HOUR
    return Loss(hours * workload.gpus, hours * hourly(snapshot, workload, prices))
