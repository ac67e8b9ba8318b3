"""GPU costs of workloads, node pools, queues and teams, and of lost work.

Costs are in USD, rates in USD per hour. The price of a node is split among its pods; idle GPUs are a row of their own.
Pools are NodePools and node groups of an autoscaler, with size, use, cost rate and accrued cost; static nodes are one
more pool.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import repeat
from typing import NamedTuple

from msgspec import Struct

from gpuconsole.insight.derived import incremental
from gpuconsole.insight.index.demand import device_counter, held, pod_accelerators, pod_gpus, quota_accelerators
from gpuconsole.insight.index.gpu_map import GpuRow, gpu_map, gpu_rows
from gpuconsole.insight.index.gpu_time import (
    GpuAllocation,
    UncheckpointedWork,
    dra_devices_of,
    gpu_allocations,
    gpu_time,
    queue_of,
    uncheckpointed_now,
)
from gpuconsole.insight.index.pods import Pods, pods_by_node
from gpuconsole.insight.preemption.history import NOTHING_LOST, Losses, LostWork
from gpuconsole.model.autoscaling import SPOT, NodeGroup, ProvisionedInstance, machine_hourly
from gpuconsole.model.clock import HOUR
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.device_requests import gpus_of_node, pod_hourly
from gpuconsole.model.devices import ANY_DEVICE, DRA_DEVICE, WHOLE_GPU, DeviceUnit, added, in_one_unit, is_counted
from gpuconsole.model.gpus.mig_reconfiguration import division_of, part_of_gpu
from gpuconsole.model.gpus.sharing import device
from gpuconsole.model.prices import Prices, gpu_hourly, is_spot
from gpuconsole.model.resources import EMPTY, MIG_PREFIX, Resources, is_mig
from gpuconsole.model.snapshot import Snapshot, different
from gpuconsole.model.workloads import Workload


class EvictionLoss(Struct, frozen=True):
    """Work that an eviction would lose: GPU-hours and their cost."""

    gpu_hours: float | None
    """None if unknown."""
    cost: float | None
    """USD."""


UNKNOWN = EvictionLoss(None, None)


class NodePrice(NamedTuple):
    """Price of a whole node, and what it saves as a spot node, in USD per hour."""

    hourly: float
    saved: float = 0.0
    """0 for a node with a price of its own, whose price on demand is unknown."""


NO_PRICE = NodePrice(0.0)


def node_price(node: Node, prices: Prices, devices: int = 0) -> NodePrice:
    """Return the price of a static node: by its annotation, else by the price table of its GPUs, used or not.

    GPUs with MIG instances count as whole GPUs. `devices` is the number of GPUs that the node offers by DRA.
    """
    machine = machine_hourly(node)
    if machine is not None:
        return NodePrice(machine)
    division = division_of(node.allocatable, node.labels, node.annotations)
    gpus = division.gpus if division is not None else node.gpus or devices
    hourly = gpus * prices.hourly(node.labels)
    return NodePrice(hourly, gpus * prices.on_demand_hourly(node.labels) - hourly)


def instance_price(instance: ProvisionedInstance) -> NodePrice:
    """Return the price of an instance of an autoscaler."""
    return NodePrice(instance.price, max(0.0, instance.list_price - instance.price))


def node_hourly(node: Node, prices: Prices) -> float:
    """USD per hour for all GPUs of a node, used or not; 0 for a node without GPUs."""
    return node_price(node, prices).hourly if gpus_of_node(node) else 0.0


def node_shares(parts: Sequence[float], *, has_gpus: bool) -> tuple[Sequence[float], float]:
    """Divide a node among its pods: return the share of each pod, and the idle share; all add up to 1.

    `parts` are the fractions of its GPUs that the pods hold. Without GPUs, it is shared equally by its pods. Parts that
    add up to more than 1, as when pods were moved by force, are reduced in proportion.
    """
    total = sum(parts)
    if not total and parts and not has_gpus:
        return [1 / len(parts)] * len(parts), 0.0
    if total > 1.0:
        return [part / total for part in parts], 0.0
    return parts, 1.0 - total


Priced = tuple[Sequence[Node | None], Prices | None, list[float]]
"""The nodes, the prices, and the cost of each node in USD per hour."""
NOTHING_PRICED: Priced = ((), None, [])


def nodes_hourly(snapshot: Snapshot, prices: Prices) -> float:
    """USD per hour for the GPUs of all nodes; only nodes that changed since the last sum are priced again."""
    return sum(_priced(snapshot, prices)[-1])


@incremental(NOTHING_PRICED)
def _priced(snapshot: Snapshot, priced: Priced, prices: Prices) -> Priced:
    rows = snapshot.nodes.rows
    before, known, costs = priced
    if known is not prices:
        before, costs = (), []
    costs = [*costs[: len(rows)], *repeat(0.0, len(rows) - len(costs))]
    for place in (*different(before, rows), *range(len(before), len(rows))):
        node = rows[place]
        costs[place] = node_hourly(node, prices) if node is not None else 0.0
    return rows, prices, costs


def unit_hourly(snapshot: Snapshot, unit: str, prices: Prices, node: str = "") -> float:
    """Return the price of one accelerator of a unit (`GPU`, `MIG 1g.10gb instance`), in USD per hour.

    It is the mean over the named node, or over all nodes if `node` is empty. For unit `MIG instance` the mean is over
    all profiles, for unit `device` over all units.
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
    """Return the cost rate of a workload's accelerators in USD per hour, at the prices of its pods' nodes.

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
    """Return the cost of lost work (None: unknown), at the prices of its pods' nodes.

    Pods that are not visible are priced by the quota of `workload`.
    """
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


class MachinePool(Struct, frozen=True, kw_only=True):
    """A NodePool or a node group of an autoscaler, or all static nodes together."""

    name: str
    autoscaler: str
    nodes: int
    """Instances whose nodes have joined and are not terminating."""
    starting: int
    leaving: int
    spot: int
    gpus: int
    """GPUs, or what `unit` names."""
    used: int
    """GPUs that are allocated, wholly or in part."""
    unit: str = WHOLE_GPU.noun
    """Unit of `gpus` and `used`: MIG instances, replicas or DRA devices, if the nodes offer these instead of GPUs."""
    hourly: float
    """USD per hour for all instances, starting and terminating ones included."""
    idle_hourly: float
    """Part of `hourly` that pays for unallocated GPUs, or for instances without GPUs and pods."""
    saved_hourly: float
    """USD per hour that spot saves compared with on demand."""
    spent: float
    """Accrued cost in USD."""
    launched: int
    gone: int
    interrupted: int


def pools(snapshot: Snapshot) -> tuple[MachinePool, ...]:
    """Return the pools of all autoscalers, sorted by name."""
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
    """Count the total and allocated accelerators of the named nodes; a shared GPU counts by its allocated part."""
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
        saved_hourly=sum(instance_price(one).saved for one in group.instances),
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


FIXED = "static nodes"
"""Name of the pool of nodes that no autoscaler manages."""


class By(StrEnum):
    """What costs are grouped by."""

    QUEUE = "queue"
    TEAM = "team"
    """A namespace."""
    WORKLOAD = "workload"


class Cost(Struct, frozen=True, kw_only=True):
    """Cost of one queue, team or workload; the one with an empty name is the cost of unallocated GPUs."""

    name: str
    gpus: int = 0
    """GPUs; MIG instances or DRA devices if it has no GPUs."""
    hourly: float = 0.0
    """USD per hour, from node prices."""
    lost: LostWork = NOTHING_LOST
    """Work lost by evictions."""


class PoolCost(Struct, frozen=True, kw_only=True):
    """A node pool and its cost."""

    pool: MachinePool
    spot_hourly: float = 0.0
    """USD per hour for spot nodes."""
    limits: Resources = EMPTY
    """Resource limits of the pool."""

    @property
    def on_demand_hourly(self) -> float:
        """USD per hour for nodes that are not spot."""
        return self.pool.hourly - self.spot_hourly


class CostReport(Struct, frozen=True, kw_only=True):
    """Cost of the whole cluster."""

    pools: tuple[PoolCost, ...]
    """Autoscaled pools by name, then the static nodes."""
    by: Mapping[By, tuple[Cost, ...]]
    """Most expensive first."""
    lost: LostWork

    @property
    def hourly(self) -> float:
        """USD per hour for all nodes."""
        return sum(one.pool.hourly for one in self.pools)

    @property
    def idle_hourly(self) -> float:
        """USD per hour for idle GPUs."""
        return sum(one.pool.idle_hourly for one in self.pools)

    @property
    def saved_hourly(self) -> float:
        """USD per hour saved by spot nodes."""
        return sum(one.pool.saved_hourly for one in self.pools)

    @property
    def spent(self) -> float:
        """Accrued cost in USD."""
        return sum(one.pool.spent for one in self.pools)

    @property
    def interrupted(self) -> int:
        """Number of spot interruptions."""
        return sum(one.pool.interrupted for one in self.pools)


def cost_report(snapshot: Snapshot, prices: Prices, lost: Losses) -> CostReport:
    """Compute the present cost rate of each pool, queue, team and workload; `lost` has the losses by evictions."""
    held = gpu_allocations(snapshot)
    machines = {one.name: one for group in snapshot.node_groups.all() for one in group.instances}
    fixed = _fixed_prices(snapshot, prices, machines)[-1]
    hourly = {**{name: one.price for name, one in machines.items()}, **fixed}
    return CostReport(
        pools=(*_autoscaled(snapshot), *_fixed(snapshot, fixed, held)),
        by=_shares(snapshot, hourly, held, lost),
        lost=sum(lost.values(), NOTHING_LOST),
    )


Machines = Mapping[str, ProvisionedInstance]
FixedPrices = tuple[object, object, Prices | None, Machines, dict[str, float]]
"""Nodes, ResourceSlices, prices, machines of an autoscaler, and the price of each other node in USD per hour."""
_NO_FIXED_PRICES: FixedPrices = (None, None, None, {}, {})


@incremental(_NO_FIXED_PRICES)
def _fixed_prices(snapshot: Snapshot, known: FixedPrices, prices: Prices, machines: Machines) -> FixedPrices:
    """Prices of the static nodes; computed again only when a node or a ResourceSlice changes."""
    nodes, slices, used_prices, other_machines, _ = known
    unchanged = nodes is snapshot.nodes and slices is snapshot.resource_slices
    if unchanged and used_prices is prices and other_machines == machines:
        return known
    devices = dra_devices_of(snapshot)
    found = {
        node.name: node_price(node, prices, devices.get(node.name, 0)).hourly
        for node in snapshot.nodes.all()
        if node.name not in machines
    }
    return snapshot.nodes, snapshot.resource_slices, prices, machines, found


def _autoscaled(snapshot: Snapshot) -> Iterable[PoolCost]:
    if not len(snapshot.node_groups):
        return
    for pool in pools(snapshot):
        group = snapshot.node_groups[pool.name]
        rules = snapshot.node_pools.get(pool.name)
        yield PoolCost(
            pool=pool,
            spot_hourly=sum(one.price for one in group.instances if one.capacity_type == SPOT),
            limits=rules.limits if rules is not None else EMPTY,
        )


def _fixed(
    snapshot: Snapshot, fixed: Mapping[str, float], held: Mapping[str, tuple[GpuAllocation, ...]]
) -> Iterable[PoolCost]:
    nodes = [snapshot.nodes[name] for name in fixed]
    if not nodes:
        return
    spot = [node for node in nodes if is_spot(node.labels)]
    idle = sum(fixed[node.name] * _idle_share(snapshot, node, held.get(node.name, ())) for node in nodes)
    offered = device_use(snapshot, list(fixed))
    pool = MachinePool(
        name=FIXED,
        autoscaler="",
        nodes=len(nodes),
        starting=0,
        leaving=0,
        spot=len(spot),
        gpus=offered.total,
        used=offered.used,
        unit=offered.unit,
        hourly=sum(fixed.values()),
        idle_hourly=idle,
        saved_hourly=0.0,
        spent=0.0,
        launched=0,
        gone=0,
        interrupted=0,
    )
    yield PoolCost(pool=pool, spot_hourly=sum(fixed[node.name] for node in spot))


def _idle_share(snapshot: Snapshot, node: Node, held: Sequence[GpuAllocation]) -> float:
    return node_shares([one.part for one in held], has_gpus=_has_gpus(snapshot, node.name))[1]


class _Sums:
    """GPUs, USD per hour and lost work, by name. Mutates."""

    def __init__(self) -> None:
        self._rows: dict[str, list[float]] = {}
        self._lost: dict[str, LostWork] = {}

    def row(self, name: str) -> list[float]:
        row = self._rows.get(name)
        if row is None:
            row = self._rows[name] = [0.0, 0.0]
        return row

    def lose(self, name: str, lost: LostWork) -> None:
        self.row(name)
        self._lost[name] = self._lost.get(name, NOTHING_LOST) + lost

    def costs(self) -> tuple[Cost, ...]:
        rows = (
            Cost(name=name, gpus=round(gpus), hourly=cost, lost=self._lost.get(name, NOTHING_LOST))
            for name, (gpus, cost) in self._rows.items()
        )
        return tuple(sorted(rows, key=lambda row: (-row.hourly, -row.lost.cost, row.name)))


def _shares(
    snapshot: Snapshot, hourly: Mapping[str, float], held: Mapping[str, tuple[GpuAllocation, ...]], lost: Losses
) -> dict[By, tuple[Cost, ...]]:
    """Sum by queue, team and workload in one pass: there may be tens of thousands of pods."""
    queues, teams, owners = _Sums(), _Sums(), _Sums()
    unallocated = 0.0
    for node, price in hourly.items():
        pods = held.get(node, ())
        shares, idle = node_shares([one.part for one in pods], has_gpus=_has_gpus(snapshot, node))
        for one, share in zip(pods, shares, strict=True):
            if share or one.gpus or one.devices:
                for row in (
                    queues.row(queue_of(snapshot, one) or "(no queue)"),
                    teams.row(one.namespace),
                    owners.row(one.owner),
                ):
                    row[0] += one.gpus or one.devices
                    row[1] += price * share
        unallocated += price * idle if idle > 1e-9 else 0.0
    for sums, name in ((queues, 0), (teams, 1), (owners, 2)):
        if unallocated:
            sums.row("")[1] += unallocated
        for (queue, workload), work in lost.items():
            sums.lose((queue, _namespace(workload), workload)[name], work)
    return {By.QUEUE: queues.costs(), By.TEAM: teams.costs(), By.WORKLOAD: owners.costs()}


def _has_gpus(snapshot: Snapshot, node: str) -> bool:
    known = snapshot.nodes.get(node)
    return known is not None and (gpus_of_node(known) > 0 or node in dra_devices_of(snapshot))


def _namespace(workload: str) -> str:
    return workload.split("/")[-2] if "/" in workload else ""
