"""Node pools: size, use, cost rate and accrued cost of each autoscaled group."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from msgspec import Struct

from gpuconsole.insight.gpu_allocations import gpu_allocations
from gpuconsole.insight.gpumap import gpu_map
from gpuconsole.insight.pods_by_node import Pods, pods_by_node
from gpuconsole.model.autoscaling import SPOT, NodeGroup, ProvisionedInstance
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.device_units import WHOLE_GPU, added, in_one_unit
from gpuconsole.model.gpus.sharing import device
from gpuconsole.model.snapshot import Snapshot


class MachinePool(Struct, frozen=True, kw_only=True):
    """A NodePool or a node group of an autoscaler."""

    name: str
    autoscaler: str
    nodes: int
    """Instances whose nodes have joined."""
    starting: int
    leaving: int
    spot: int
    gpus: int
    """GPUs, or what `unit` names."""
    used: int
    """GPUs that are allocated, wholly or in part."""
    unit: str = WHOLE_GPU.noun
    """Unit that the nodes offer; pools with MIG, shared GPUs or DRA are counted in these."""
    hourly: float
    """USD per hour for all instances, starting and terminating ones included."""
    idle_hourly: float
    """USD per hour of that for unallocated GPUs, or for instances without GPUs and pods."""
    saved_hourly: float
    """USD per hour that spot saves compared with on demand."""
    spent: float
    """Accrued cost in USD."""
    launched: int
    gone: int
    interrupted: int


def pools(snapshot: Snapshot) -> tuple[MachinePool, ...]:
    """Every pool, by name."""
    groups = sorted(snapshot.node_groups.all(), key=lambda group: group.name)
    return tuple(_pool(snapshot, group) for group in groups)


def _devices(node: Node | None, pod: Pod) -> Iterable[str]:
    """Yield the GPUs of its node that a pod uses, as a whole or in part."""
    if node is None:
        return
    yield from (f"divided {one.gpu}" for one in pod.slices)
    yield from (f"whole {device(index, node.gpus, node.labels)}" for index in pod.gpus)


class DeviceUse(NamedTuple):
    """Accelerators of some nodes: total, allocated, and their unit."""

    total: int
    used: int
    unit: str


def device_use(snapshot: Snapshot, nodes: Collection[str]) -> DeviceUse:
    """Count the accelerators of nodes in their units; a shared GPU counts by its allocated part."""
    rows = gpu_map(snapshot).by_node
    total, unit = in_one_unit(added(*(rows[name].units for name in nodes if name in rows)))
    held = gpu_allocations(snapshot)
    pods = [one for name in nodes for one in held.get(name, ())]
    return DeviceUse(total, round(sum(one.gpus for one in pods)) + sum(sum(one.parts.values()) for one in pods), unit)


def _pool(snapshot: Snapshot, group: NodeGroup) -> MachinePool:
    where = pods_by_node(snapshot)
    offered = device_use(snapshot, [one.name for one in group.instances])
    whole = offered.unit == WHOLE_GPU.noun
    held = {one.name: _held(snapshot, one.name, where.on(one.name)) for one in group.instances}
    ready = [one for one in group.instances if one.ready is not None and one.leaving is None]
    return MachinePool(
        name=group.name,
        autoscaler=group.autoscaler,
        nodes=len(ready),
        starting=sum(one.ready is None for one in group.instances),
        leaving=sum(one.leaving is not None for one in group.instances),
        spot=sum(one.capacity_type == SPOT for one in group.instances),
        gpus=sum(one.gpus for one in group.instances) if whole else offered.total,
        used=sum(held[one.name] for one in group.instances) if whole else offered.used,
        unit=offered.unit,
        hourly=group.hourly,
        idle_hourly=sum(_idle(one, held[one.name], where.on(one.name)) for one in group.instances),
        saved_hourly=sum(max(0.0, one.list_price - one.price) for one in group.instances),
        spent=group.cost(snapshot.time),
        launched=group.launched,
        gone=group.gone,
        interrupted=group.interrupted,
    )


def _held(snapshot: Snapshot, name: str, pods: Pods) -> int:
    """Return the number of GPUs of an instance that these pods use, as a whole or in part."""
    node = snapshot.nodes.get(name)
    return len({gpu for pod in pods.values() for gpu in _devices(node, pod)})


def _idle(one: ProvisionedInstance, held: int, pods: Pods) -> float:
    if not one.gpus:
        return 0.0 if pods else one.price
    return one.price * max(0, one.gpus - held) / one.gpus
