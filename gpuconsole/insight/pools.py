"""Node pools: what each autoscaled group of machines is, does and costs, now and so far."""

from collections.abc import Iterable, Mapping
from fractions import Fraction

from msgspec import Struct

from gpuconsole.insight.whereabouts import Pods, whereabouts
from gpuconsole.model.autoscaling import SPOT, Instance, NodeGroup
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.events import Happened, What
from gpuconsole.model.gpus.instances import division_of
from gpuconsole.model.gpus.sharing import device, replicas
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
    used: int
    """GPUs that pods hold, or a part of which they hold."""
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


class Losses(Struct, frozen=True):
    """What interruptions have cost: work that has to be done again."""

    gpu_hours: float
    cost: float
    """USD."""


def pools(snapshot: Snapshot) -> tuple[Pool, ...]:
    """Every pool, by name."""
    groups = sorted(snapshot.node_groups.all(), key=lambda group: group.name)
    return tuple(_pool(snapshot, group) for group in groups)


def total_hourly(rows: Iterable[Pool]) -> float:
    """USD an hour for all pools."""
    return sum(pool.hourly for pool in rows)


def by_team(snapshot: Snapshot) -> dict[str, float]:
    """USD an hour of all machines, by namespace; what nobody holds is under an empty name.

    A machine's price is shared by the GPUs that pods hold (a turn on a shared one counts by its part, a MIG instance by
    its memory); of a machine without GPUs by pods in equal parts.
    """
    holders: dict[str, dict[str, Fraction]] = {}
    for pod in snapshot.pods.all():
        if pod.node and not pod.done:
            own = holders.setdefault(pod.node, {})
            own[pod.namespace] = own.get(pod.namespace, Fraction(0)) + _gpus_of(snapshot.nodes.get(pod.node), pod)
    found: dict[str, float] = {}
    for group in snapshot.node_groups.all():
        for one in group.instances:
            for team, part in _parts(one, holders.get(one.name, {})):
                found[team] = found.get(team, 0.0) + one.price * part
    return dict(sorted(found.items()))


def _devices(node: Node | None, pod: Pod) -> Iterable[str]:
    """Which GPUs of its node a pod has something of."""
    if node is None:
        return
    yield from (f"divided {one.gpu}" for one in pod.slices)
    yield from (f"whole {device(index, node.gpus, node.labels)}" for index in pod.gpus)


def _gpus_of(node: Node | None, pod: Pod) -> Fraction:
    """How many GPUs a pod has, in parts of them."""
    if node is None:
        return Fraction(0)
    whole = Fraction(len(pod.gpus), replicas(node.labels))
    if not pod.slices:
        return whole
    division = division_of(node.allocatable, node.labels, node.annotations)
    if division is None:
        return whole
    spans = sum(division.geometry.by_name[one.profile].span for one in pod.slices)
    return whole + Fraction(spans, division.geometry.slices)


def _parts(one: Instance, holders: Mapping[str, Fraction]) -> Iterable[tuple[str, float]]:
    """Who holds which part of a machine."""
    if not one.gpus:
        share = 1 / len(holders) if holders else 0.0
        return [*((team, share) for team in holders), *([] if holders else [("", 1.0)])]
    parts = [(team, min(1.0, float(count / one.gpus))) for team, count in holders.items() if count]
    return [*parts, ("", max(0.0, 1.0 - sum(part for _, part in parts)))]


def losses(lines: Iterable[Happened], reason: str = "") -> Losses:
    """Work that was lost by evictions for this reason (or all), by history; a PREEMPTED line only repeats another."""
    chosen = [line for line in lines if line.what is not What.PREEMPTED and reason in ("", line.reason)]
    return Losses(sum(line.lost_gpu_seconds for line in chosen) / 3600, sum(line.cost for line in chosen))


def _pool(snapshot: Snapshot, group: NodeGroup) -> Pool:
    where = whereabouts(snapshot)
    held = {one.name: _held(snapshot, one.name, where.on(one.name)) for one in group.instances}
    ready = [one for one in group.instances if one.ready is not None and one.leaving is None]
    return Pool(
        name=group.name,
        autoscaler=group.autoscaler,
        nodes=len(ready),
        starting=sum(one.ready is None for one in group.instances),
        leaving=sum(one.leaving is not None for one in group.instances),
        spot=sum(one.capacity_type == SPOT for one in group.instances),
        gpus=sum(one.gpus for one in group.instances),
        used=sum(held[one.name] for one in group.instances),
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
