"""Node pools: what each autoscaled group of machines is, does and costs, now and so far."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from msgspec import Struct

from gpuconsole.insight.gpumap import gpu_map
from gpuconsole.insight.holdings import holdings
from gpuconsole.insight.whereabouts import Pods, whereabouts
from gpuconsole.model.autoscaling import SPOT, Instance, NodeGroup
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.device_units import WHOLE_GPU, added, in_one_unit
from gpuconsole.model.gpus.sharing import device
from gpuconsole.model.snapshot import Snapshot


class Pool(Struct, frozen=True, kw_only=True):
    """A NodePool or a scaling group."""

    name: str
    autoscaler: str
    nodes: int
    """Machines whose nodes take part."""
    starting: int
    leaving: int
    spot: int
    gpus: int
    """GPUs, or what `unit` names."""
    used: int
    """Those that pods hold, or a part of which they hold."""
    unit: str = WHOLE_GPU.noun
    """What the nodes offer: a pool of divided, shared or claimed GPUs is counted in these."""
    hourly: float
    """USD an hour for all machines, those that start or leave included."""
    idle_hourly: float
    """USD an hour of that for GPUs that nobody holds; of a machine without GPUs, if no pod is on it."""
    saved_hourly: float
    """USD an hour that spot costs less than the same machines on demand."""
    spent: float
    """USD so far."""
    launched: int
    gone: int
    interrupted: int


def pools(snapshot: Snapshot) -> tuple[Pool, ...]:
    """Every pool, by name."""
    groups = sorted(snapshot.node_groups.all(), key=lambda group: group.name)
    return tuple(_pool(snapshot, group) for group in groups)


def _devices(node: Node | None, pod: Pod) -> Iterable[str]:
    """Which GPUs of its node a pod has something of."""
    if node is None:
        return
    yield from (f"divided {one.gpu}" for one in pod.slices)
    yield from (f"whole {device(index, node.gpus, node.labels)}" for index in pod.gpus)


class DeviceUse(NamedTuple):
    """Accelerators of some nodes: how many there are, how many pods hold, and what is counted."""

    total: int
    used: int
    unit: str


def device_use(snapshot: Snapshot, nodes: Collection[str]) -> DeviceUse:
    """Count the accelerators of nodes in the units that they offer; a GPU that pods share counts by what they hold."""
    rows = gpu_map(snapshot).by_node
    total, unit = in_one_unit(added(*(rows[name].units for name in nodes if name in rows)))
    held = holdings(snapshot)
    pods = [one for name in nodes for one in held.get(name, ())]
    return DeviceUse(total, round(sum(one.gpus for one in pods)) + sum(sum(one.parts.values()) for one in pods), unit)


def _pool(snapshot: Snapshot, group: NodeGroup) -> Pool:
    where = whereabouts(snapshot)
    offered = device_use(snapshot, [one.name for one in group.instances])
    whole = offered.unit == WHOLE_GPU.noun
    held = {one.name: _held(snapshot, one.name, where.on(one.name)) for one in group.instances}
    ready = [one for one in group.instances if one.ready is not None and one.leaving is None]
    return Pool(
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
    """How many GPUs of a machine these pods have something of."""
    node = snapshot.nodes.get(name)
    return len({gpu for pod in pods.values() for gpu in _devices(node, pod)})


def _idle(one: Instance, held: int, pods: Pods) -> float:
    if not one.gpus:
        return 0.0 if pods else one.price
    return one.price * max(0, one.gpus - held) / one.gpus
