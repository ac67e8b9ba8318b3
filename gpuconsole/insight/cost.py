"""GPU costs: node price, cost rate of a workload, and cost of the work that an eviction now would lose."""

from collections.abc import Sequence
from itertools import repeat

from msgspec import Struct

from gpuconsole.insight.demand import held, pod_accelerators, pod_gpus
from gpuconsole.insight.device_demand import device_counter, quota_accelerators
from gpuconsole.insight.gpu_time import dra_devices_of
from gpuconsole.insight.gpumap import GpuRow, gpu_rows
from gpuconsole.insight.pods_by_node import pods_by_node
from gpuconsole.insight.uncheckpointed import UncheckpointedWork, gpu_time, uncheckpointed_now
from gpuconsole.model.autoscaling import machine_hourly
from gpuconsole.model.clock import HOUR
from gpuconsole.model.cluster import Node
from gpuconsole.model.device_requests import pod_hourly
from gpuconsole.model.device_units import ANY_DEVICE, DRA_DEVICE, DeviceUnit, is_counted
from gpuconsole.model.gpus.mig_resources import division_of, part_of_gpu
from gpuconsole.model.prices import Prices, gpu_hourly, gpu_type
from gpuconsole.model.resources import MIG_PREFIX, is_mig
from gpuconsole.model.snapshot import Snapshot, different
from gpuconsole.model.workloads import Workload

__all__ = ["EvictionLoss", "gpu_type", "hourly", "loss_if_evicted", "node_hourly"]


class EvictionLoss(Struct, frozen=True):
    """Lost work."""

    gpu_hours: float | None
    """None if unknown."""
    cost: float | None
    """USD."""


UNKNOWN = EvictionLoss(None, None)


def node_hourly(node: Node, prices: Prices) -> float:
    """USD per hour for all GPUs of a node, used or not; GPUs with MIG instances count as whole GPUs."""
    division = division_of(node.allocatable, node.labels, node.annotations)
    machine = machine_hourly(node)
    if division is not None:
        return machine if machine is not None else division.gpus * prices.hourly(node.labels)
    return node.gpus * gpu_hourly(node, prices)


Priced = tuple[Sequence[Node | None], Prices | None, list[float]]
"""GPU rows of nodes, the prices, and the cost of each row."""
NOTHING_PRICED: Priced = ((), None, [])
_hourly: list[Priced] = []


def nodes_hourly(snapshot: Snapshot, prices: Prices) -> float:
    """USD per hour for the GPUs of all nodes; only nodes that changed since the last sum are priced again."""
    rows = snapshot.nodes.rows
    # Replaced as one tuple, so that threads do the same work twice at worst.
    before, known, costs = _hourly[0] if _hourly else NOTHING_PRICED
    if known is not prices:
        before, costs = (), []
    costs = [*costs[: len(rows)], *repeat(0.0, len(rows) - len(costs))]
    for place in (*different(before, rows), *range(len(before), len(rows))):
        node = rows[place]
        costs[place] = node_hourly(node, prices) if node is not None else 0.0
    _hourly[:] = [(rows, prices, costs)]
    return sum(costs)


def unit_hourly(snapshot: Snapshot, unit: str, prices: Prices, node: str = "") -> float:
    """USD per hour for one accelerator of a unit (`GPU`, `MIG 1g.10gb instance`): mean over a node, or over all.

    For unit `MIG instance` the mean is over all profiles, for unit `device` over all units.
    """
    total, count = 0.0, 0
    for row in gpu_rows(snapshot):
        for one, number in row.units.items() if node in ("", row.node) else ():
            if unit in (one.noun, one.kind.value, ANY_DEVICE):
                part = dra_devices_of(snapshot).get(row.node, number) / number if one == DRA_DEVICE else 1.0
                total += part * number * _one_hourly(snapshot.nodes[row.node], row, one, prices)
                count += number
    return total / count if count else 0.0


def _one_hourly(node: Node, row: GpuRow, unit: DeviceUnit, prices: Prices) -> float:
    """USD per hour for one unit of a node."""
    if unit == row.unit:
        return gpu_hourly(node, prices)
    part = part_of_gpu(f"{MIG_PREFIX}{unit.profile}", node.labels) if unit.profile else 1.0
    return part * prices.hourly(node.labels)


def hourly(snapshot: Snapshot, workload: Workload, prices: Prices) -> float:
    """USD per hour for the accelerators of a workload, by the nodes of its pods, like lost work.

    Pods without a node are priced by the labels of their flavors.
    """
    total, quota = 0.0, 0
    for (name, resource), amount in held(workload):
        if is_counted(resource) or resource in quota_accelerators(snapshot):
            flavor = snapshot.flavors.get(name)
            labels = flavor.node_labels if flavor is not None else {}
            part = part_of_gpu(resource, labels) if is_mig(resource) else 1.0
            total += amount * part * prices.hourly(labels, name)
            quota += amount
    placed, units, counter = 0.0, 0, device_counter(snapshot)
    for pod in pods_by_node(snapshot).of(workload.key).values():
        node = snapshot.nodes.get(pod.node)
        if node is not None:
            devices = counter.devices(pod)
            placed += pod_hourly(pod, node, prices, counter.claimed_gpus(pod))
            mig = sum(amount for name, amount in pod_accelerators(pod.template).items() if is_mig(name))
            units += (len(pod.gpus) or pod_gpus(pod.template)) + mig + devices
    return placed + total * max(0, quota - units) / quota if quota else placed


def loss_if_evicted(snapshot: Snapshot, workload: Workload, prices: Prices) -> EvictionLoss:
    """Return the work that an eviction now would lose: since the start of the pods, or their last checkpoint."""
    return priced(snapshot, uncheckpointed_now(snapshot, workload), prices, workload)


def priced(
    snapshot: Snapshot, lost: Sequence[UncheckpointedWork] | None, prices: Prices, workload: Workload | None = None
) -> EvictionLoss:
    """Lost work at the prices of the pods' nodes; for pods that are not visible, by the quota of `workload`."""
    if lost is None:
        return UNKNOWN
    cost, counter = 0.0, device_counter(snapshot)
    for one in lost:
        if one.pod is not None:
            node = snapshot.nodes.get(one.pod.node)
            cost += one.span / HOUR * pod_hourly(one.pod, node, prices, counter.claimed_gpus(one.pod))
        elif workload is not None:
            cost += one.span / HOUR * hourly(snapshot, workload, prices)
    return EvictionLoss(gpu_time(lost) / HOUR, cost)
