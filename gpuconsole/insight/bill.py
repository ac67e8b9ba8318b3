"""What the cluster costs: pool by pool, and in whose name: queues, teams, workloads, and what nobody holds."""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct

from gpuconsole.insight.holdings import Holding, holdings, queue_of
from gpuconsole.insight.losses import Losses
from gpuconsole.insight.pools import Pool, pools
from gpuconsole.model.autoscaling import Instance, machine_hourly
from gpuconsole.model.cluster import Node
from gpuconsole.model.gpus.instances import division_of
from gpuconsole.model.prices import Prices, is_spot
from gpuconsole.model.resources import EMPTY, Resources
from gpuconsole.model.snapshot import Snapshot

FIXED = "fixed nodes"


class By(StrEnum):
    """Whose cost."""

    QUEUE = "queue"
    TEAM = "team"
    """A namespace."""
    WORKLOAD = "workload"


class Cost(Struct, frozen=True, kw_only=True):
    """What runs in one name; an empty name is what nobody holds."""

    name: str
    gpus: int = 0
    hourly: float = 0.0
    """USD an hour, of the machines' prices."""
    lost_gpu_hours: float = 0.0
    """Work that evictions took."""
    lost: float = 0.0
    """USD of that work."""


class PoolCost(Struct, frozen=True, kw_only=True):
    """A pool of machines and what it costs."""

    pool: Pool
    spot_hourly: float = 0.0
    """USD an hour of the spot machines."""
    limits: Resources = EMPTY
    """What all its nodes may have together."""
    weight: int = 0

    @property
    def on_demand_hourly(self) -> float:
        return self.pool.hourly - self.spot_hourly


class Bill(Struct, frozen=True, kw_only=True):
    """The whole."""

    pools: tuple[PoolCost, ...]
    """Autoscaled pools by name, then the nodes that belong to none."""
    by: Mapping[By, tuple[Cost, ...]]
    """Dearest first."""
    lost: float
    lost_gpu_hours: float

    @property
    def hourly(self) -> float:
        return sum(one.pool.hourly for one in self.pools)

    @property
    def idle_hourly(self) -> float:
        return sum(one.pool.idle_hourly for one in self.pools)

    @property
    def saved_hourly(self) -> float:
        return sum(one.pool.saved_hourly for one in self.pools)

    @property
    def spent(self) -> float:
        return sum(one.pool.spent for one in self.pools)

    @property
    def interrupted(self) -> int:
        return sum(one.pool.interrupted for one in self.pools)


def bill(snapshot: Snapshot, prices: Prices, lost: Losses) -> Bill:
    """Sum up what machines cost an hour now, and what evictions have cost."""
    held = holdings(snapshot)
    machines = {one.name: one for group in snapshot.node_groups.all() for one in group.instances}
    fixed = {node.name: _price(node, prices) for node in snapshot.nodes.all() if node.name not in machines}
    hourly = {**{name: one.price for name, one in machines.items()}, **fixed}
    return Bill(
        pools=(*_autoscaled(snapshot, machines), *_fixed(snapshot, fixed, held)),
        by={by: _shares(snapshot, by, hourly, held, lost) for by in By},
        lost=sum(cost for _, cost in lost.values()),
        lost_gpu_hours=sum(hours for hours, _ in lost.values()),
    )


def _price(node: Node, prices: Prices) -> float:
    """USD an hour for a node that no autoscaler bought: by its annotation, else by the price table of its GPUs."""
    said = machine_hourly(node)
    if said is not None:
        return said
    division = division_of(node.allocatable, node.labels, node.annotations)
    gpus = division.gpus if division is not None else node.gpus
    return gpus * prices.hourly(node.labels)


def _autoscaled(snapshot: Snapshot, machines: Mapping[str, Instance]) -> Iterable[PoolCost]:
    for pool in pools(snapshot):
        group = snapshot.node_groups[pool.name]
        rules = snapshot.node_pools.get(pool.name)
        yield PoolCost(
            pool=pool,
            spot_hourly=sum(one.price for one in group.instances if one.capacity_type == "spot"),
            limits=rules.limits if rules is not None else EMPTY,
            weight=rules.weight if rules is not None else 0,
        )


def _fixed(
    snapshot: Snapshot, fixed: Mapping[str, float], held: Mapping[str, tuple[Holding, ...]]
) -> Iterable[PoolCost]:
    nodes = [snapshot.nodes[name] for name in fixed]
    if not nodes:
        return
    spot = [node for node in nodes if is_spot(node.labels)]
    parts = {node.name: sum(one.part for one in held.get(node.name, ())) for node in nodes}
    idle = sum(fixed[node.name] * max(0.0, 1.0 - _taken(node, parts[node.name], held)) for node in nodes)
    pool = Pool(
        name=FIXED,
        autoscaler="",
        nodes=len(nodes),
        starting=0,
        leaving=0,
        spot=len(spot),
        gpus=sum(node.gpus for node in nodes),
        used=sum(one.gpus for node in nodes for one in held.get(node.name, ())),
        hourly=sum(fixed.values()),
        idle_hourly=idle,
        saved_hourly=0.0,
        spent=0.0,
        launched=0,
        gone=0,
        interrupted=0,
    )
    yield PoolCost(pool=pool, spot_hourly=sum(fixed[node.name] for node in spot))


def _taken(node: Node, part: float, held: Mapping[str, tuple[Holding, ...]]) -> float:
    """The part of a node that is held; of one without GPUs all or nothing."""
    return part if part or node.gpus else float(bool(held.get(node.name)))


def _shares(
    snapshot: Snapshot, by: By, hourly: Mapping[str, float], held: Mapping[str, tuple[Holding, ...]], lost: Losses
) -> tuple[Cost, ...]:
    sums: dict[str, list[float]] = {}

    def add(name: str, gpus: float = 0.0, cost: float = 0.0, hours: float = 0.0, dollars: float = 0.0) -> None:
        row = sums.setdefault(name, [0.0, 0.0, 0.0, 0.0])
        for index, value in enumerate((gpus, cost, hours, dollars)):
            row[index] += value

    for node, price in hourly.items():
        pods = held.get(node, ())
        whole = any(one.part for one in pods)
        left = 1.0
        for one in pods:
            # Without GPUs on it, or none that anybody holds, a machine is shared in equal parts by its pods.
            part = one.part if whole or _has_gpus(snapshot, node) else 1.0 / len(pods)
            left -= part
            if part or one.gpus:
                add(_name(snapshot, by, one), one.gpus, price * part)
        if left > 1e-9 and price:
            add("", 0.0, price * left)
    for (queue, workload), (hours, dollars) in lost.items():
        add({By.QUEUE: queue, By.TEAM: _namespace(workload), By.WORKLOAD: workload}[by], 0.0, 0.0, hours, dollars)
    rows = (
        Cost(name=name, gpus=round(gpus), hourly=cost, lost_gpu_hours=hours, lost=dollars)
        for name, (gpus, cost, hours, dollars) in sums.items()
    )
    return tuple(sorted(rows, key=lambda row: (-row.hourly, -row.lost, row.name)))


def _has_gpus(snapshot: Snapshot, node: str) -> bool:
    known = snapshot.nodes.get(node)
    return known is not None and known.gpus > 0


def _name(snapshot: Snapshot, by: By, one: Holding) -> str:
    match by:
        case By.QUEUE:
            return queue_of(snapshot, one) or "(no queue)"
        case By.TEAM:
            return one.namespace
        case By.WORKLOAD:
            return one.owner


def _namespace(workload: str) -> str:
    return workload.split("/")[-2] if "/" in workload else ""
