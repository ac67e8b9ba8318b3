"""Cost of the cluster by node pool, queue, team and workload, idle GPUs included."""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct

from gpuconsole.insight.gpu_allocations import GpuAllocation, gpu_allocations, queue_of
from gpuconsole.insight.gpu_time import dra_devices_of
from gpuconsole.insight.losses import NOTHING_LOST, Losses, LostWork
from gpuconsole.insight.pools import MachinePool, device_use, pools
from gpuconsole.model.autoscaling import SPOT, ProvisionedInstance, machine_hourly
from gpuconsole.model.cluster import Node
from gpuconsole.model.gpus.mig_resources import division_of
from gpuconsole.model.prices import Prices, is_spot
from gpuconsole.model.resources import EMPTY, Resources
from gpuconsole.model.snapshot import Snapshot

FIXED = "static nodes"


class By(StrEnum):
    """Grouping of the cost."""

    QUEUE = "queue"
    TEAM = "team"
    """A namespace."""
    WORKLOAD = "workload"


class Cost(Struct, frozen=True, kw_only=True):
    """Cost of one queue, team or workload; an empty name is the unallocated part."""

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
    """Compute the current cost per hour, and the cost of lost work."""
    held = gpu_allocations(snapshot)
    machines = {one.name: one for group in snapshot.node_groups.all() for one in group.instances}
    fixed = _fixed_prices(snapshot, prices, machines)
    hourly = {**{name: one.price for name, one in machines.items()}, **fixed}
    return CostReport(
        pools=(*_autoscaled(snapshot), *_fixed(snapshot, fixed, held)),
        by=_shares(snapshot, hourly, held, lost),
        lost=sum(lost.values(), NOTHING_LOST),
    )


_priced: list[tuple[object, Prices, Mapping[str, ProvisionedInstance], dict[str, float]]] = []


def _fixed_prices(snapshot: Snapshot, prices: Prices, machines: Mapping[str, ProvisionedInstance]) -> dict[str, float]:
    """Prices of the static nodes; cached while no node changes."""
    if _priced and _priced[0][0] is snapshot.nodes and _priced[0][1] is prices and _priced[0][2] == machines:
        return _priced[0][3]
    found = {node.name: _price(snapshot, node, prices) for node in snapshot.nodes.all() if node.name not in machines}
    _priced[:] = [(snapshot.nodes, prices, machines, found)]
    return found


def _price(snapshot: Snapshot, node: Node, prices: Prices) -> float:
    """USD per hour for a static node: by its annotation, else by the price table of its GPUs."""
    said = machine_hourly(node)
    if said is not None:
        return said
    division = division_of(node.allocatable, node.labels, node.annotations)
    gpus = division.gpus if division is not None else node.gpus or dra_devices_of(snapshot).get(node.name, 0)
    return gpus * prices.hourly(node.labels)


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
    parts = {node.name: sum(one.part for one in held.get(node.name, ())) for node in nodes}
    idle = sum(fixed[node.name] * max(0.0, 1.0 - _taken(node, parts[node.name], held)) for node in nodes)
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


def _taken(node: Node, part: float, held: Mapping[str, tuple[GpuAllocation, ...]]) -> float:
    """Allocated fraction of a node; 0 or 1 for a node without GPUs."""
    return part if part or node.gpus else float(bool(held.get(node.name)))


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
        # The cost of a node without GPUs is split equally among its pods.
        each = 0.0 if not pods or any(one.part for one in pods) or _has_gpus(snapshot, node) else 1.0 / len(pods)
        left = 1.0
        for one in pods:
            part = one.part or each
            left -= part
            if part or one.gpus or one.devices:
                cost = price * part
                for row in (
                    queues.row(queue_of(snapshot, one) or "(no queue)"),
                    teams.row(one.namespace),
                    owners.row(one.owner),
                ):
                    row[0] += one.gpus or one.devices
                    row[1] += cost
        unallocated += price * left if left > 1e-9 else 0.0
    for sums, name in ((queues, 0), (teams, 1), (owners, 2)):
        if unallocated:
            sums.row("")[1] += unallocated
        for (queue, workload), work in lost.items():
            sums.lose((queue, _namespace(workload), workload)[name], work)
    return {By.QUEUE: queues.costs(), By.TEAM: teams.costs(), By.WORKLOAD: owners.costs()}


def _has_gpus(snapshot: Snapshot, node: str) -> bool:
    known = snapshot.nodes.get(node)
    return known is not None and known.gpus > 0


def _namespace(workload: str) -> str:
    return workload.split("/")[-2] if "/" in workload else ""
