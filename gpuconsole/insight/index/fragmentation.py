"""Schedulable capacity of idle GPUs: slots that fit now, the largest gang, and the FGD fragmentation measure.

A slot of N GPUs is one pod if a node has N GPUs, otherwise a gang of the largest pods that nodes allow. Idle GPUs are
those that a new pod could get: on ready, schedulable nodes, and not reserved for a preemptor. Slots consider only GPUs;
the FGD measure includes cpu and memory. Pods that request parts of GPUs (MIG instances, or fractions as KAI reads them
from the pod annotations gpu-fraction and gpu-memory) are typical pods, too, but not part of the measure.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import asdict, replace

from gpuconsole.insight.derived import memoized
from gpuconsole.insight.index.gpu_map import CLAIMS, GpuCell, GpuRow, GpuState, gpu_rows
from gpuconsole.insight.index.largest_gang import SIZES, GangLimits, LargestGang, gang_limits, largest
from gpuconsole.insight.index.pods import pods_by_node
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.devices import WHOLE_GPU, DeviceUnit, UnitKind, order_of
from gpuconsole.model.labels import HOSTNAME
from gpuconsole.model.resources import CPU, MEMORY, is_mig
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.scheduling.kai.cluster_info import node_of, request_of
from gpuconsole.scheduling.kube.packing.policies import MILLI, Fragmentation, FreeCapacity, PodDemand, fits
from gpuconsole.scheduling.kube.pod_classes import PodClasses
from gpuconsole.scheduling.kube.scores import typical_pods

_WHOLE = 1.0
_ROUNDING = 1e-9
"""Tolerance: portions are sums of floats."""


def gpu_slice_of(pod: Pod) -> str:
    """Format the parts of GPUs that a pod requests, `1 × mig-1g.10gb` or `0.5 GPU`; empty if it requests none."""
    mig = {name: count for name, count in pod.template.requests.items() if is_mig(name) and count}
    if mig:
        return ", ".join(f"{count} × {name.rpartition('/')[2]}" for name, count in sorted(mig.items()))
    request, _ = request_of(pod)
    if not request.is_fractional:
        return ""
    one = f"{request.gpu_memory} MiB of a GPU" if request.gpu_memory else f"{request.portion:g} GPU"
    return one if request.count == 1 else f"{request.count} × {one}"


def takes(node: Node, here: Sequence[Pod], pod: Pod) -> bool:
    """True if a node with these pods has enough parts, cpu and memory left for one more such pod."""
    if not node.ready or node.unschedulable:
        return False
    needs = {name: amount for name, amount in pod.template.requests.items() if name in (CPU, MEMORY) or is_mig(name)}
    used = {name: sum(one.template.requests.get(name, 0) for one in here) for name in needs}
    if any(node.allocatable.get(name, 0) - used[name] < amount for name, amount in needs.items()):
        return False
    request, _ = request_of(pod)
    if not request.is_fractional:
        return True
    portion = node_of(node).portion_of(request)
    return sum(left + _ROUNDING >= portion for left in _left(node, here)) >= request.count


def _left(node: Node, here: Sequence[Pod]) -> list[float]:
    """Return the free fraction of each GPU of a node; 0 if a pod has the whole GPU."""
    left = [_WHOLE] * node.gpus
    state = node_of(node)
    for pod in here:
        request, _ = request_of(pod)
        portion = state.portion_of(request) if request.is_fractional else _WHOLE
        for index in pod.gpus:
            if index < len(left):
                left[index] -= portion
    return left


class Slots(Struct, frozen=True, kw_only=True, rename="camel"):
    """Slots that fit on the idle GPUs of some nodes."""

    name: str
    """Name of the flavor, or of the topology domain with its values from the top (`block-1/rack-3`)."""
    level: str = ""
    """The domain's level, a node label; empty for a flavor or the whole cluster."""
    unit: str = WHOLE_GPU.noun
    """Unit of the counts: `GPU`, `MIG 1g.10gb instance`, `time-sliced replica`, `DRA device` …"""
    nodes: int
    """Number of nodes with such units."""
    gpus: int
    idle: int
    largest_pod: int
    """Most idle units on one node; at most 1 for replicas of shared GPUs, as more do not give a pod more compute."""
    slots: Mapping[int, int]
    """Size → number of slots of that size that fit, if nothing else is scheduled."""


class FlavorSlots(Slots, frozen=True, kw_only=True, rename="camel"):
    """The slots of a flavor, a domain or the cluster, with the largest gang that fits there now."""

    largest_gang: LargestGang | None


class TypicalPod(Struct, frozen=True, kw_only=True, rename="camel"):
    """A typical pod of the cluster, by its requests, with its frequency."""

    gpus: int
    """Whole GPUs."""
    part: str = ""
    """Parts of GPUs that it requests instead, `1 × mig-1g.10gb` or `0.5 GPU`."""
    cpu: int
    """Milli."""
    model: str
    """The requested GPU type; empty for any."""
    percent: int
    """Share of such pods among all typical pods, in percent."""
    nodes: int
    """Number of nodes that have room for one more such pod."""


class Fragments(Struct, frozen=True, kw_only=True, rename="camel"):
    """The FGD measure: idle GPUs that the cluster's typical pods cannot use."""

    idle: int
    fragment: float
    """Number of these GPUs, as a mean over the typical pods that do not request parts of GPUs."""
    typical: tuple[TypicalPod, ...]
    """The most frequent first."""

    @property
    def known(self) -> bool:
        """False if all typical pods request parts of GPUs: the measure is of whole GPUs."""
        return any(not pod.part for pod in self.typical)

    @property
    def percent(self) -> float:
        """Percentage of the idle GPUs that typical pods cannot use; 0 if none is idle."""
        return 100 * self.fragment / self.idle if self.idle else 0.0


NO_FRAGMENTS = Fragments(idle=0, fragment=0.0, typical=())


class Usefulness(Struct, frozen=True, kw_only=True):
    """Schedulable capacity of a cluster."""

    cluster: FlavorSlots
    """Slots of whole GPUs, or of the first unit of the cluster."""
    others: tuple[FlavorSlots, ...] = ()
    """Slots of the cluster's other units."""
    flavors: tuple[FlavorSlots, ...]
    """Slots of each flavor, by name and unit; a node may be of several flavors."""
    domains: tuple[FlavorSlots, ...]
    """Slots of each domain except hosts, by topology and level; flavors that share a topology count together."""
    fragments: Fragments


@memoized(
    *("nodes", "pods", "flavors", "topologies", "workloads", "local_queues", "cluster_queues", "cohorts", "seen"),
    *("resource_slices", "admission_checks", "volcano_queues", "kai_queues", "pod_groups", "kai_pod_groups", "jobs"),
    *("namespaces", *CLAIMS),
)
def usefulness(snapshot: Snapshot) -> Usefulness:
    """Compute the schedulable capacity; GPUs that are not known to be idle count as used."""
    return _usefulness(snapshot, {row.node: row for row in gpu_rows(snapshot)})


def usefulness_at_most(snapshot: Snapshot) -> Usefulness:
    """Compute an upper bound: GPUs without a visible pod count as idle; fragments are unknown then."""
    return replace(_usefulness(snapshot, idle_at_most(snapshot)), fragments=NO_FRAGMENTS)


def idle_at_most(snapshot: Snapshot) -> dict[str, GpuRow]:
    """Return the rows of the GPU map by node, with every GPU as idle that no visible pod has."""
    return {row.node: _at_most(row) for row in gpu_rows(snapshot)}


def _at_most(row: GpuRow) -> GpuRow:
    idle = row.counts[GpuState.IDLE] + row.counts[GpuState.UNKNOWN]
    return replace(
        row,
        counts={**row.counts, GpuState.IDLE: idle, GpuState.UNKNOWN: 0},
        cells=_unknown_as_idle(row.cells),
        devices=_unknown_as_idle(row.devices),
    )


def _unknown_as_idle(cells: Sequence[GpuCell]) -> tuple[GpuCell, ...]:
    return tuple(replace(cell, state=GpuState.IDLE) if cell.state is GpuState.UNKNOWN else cell for cell in cells)


def _usefulness(snapshot: Snapshot, rows: Mapping[str, GpuRow]) -> Usefulness:
    nodes = [node for node in snapshot.nodes.all() if rows[node.name].cells or rows[node.name].devices]
    limits = gang_limits(snapshot)
    first, *others = _by_unit("cluster", [rows[node.name] for node in nodes], limits) or (_NOTHING,)
    return Usefulness(
        cluster=first,
        others=tuple(others),
        flavors=_flavors(snapshot, nodes, rows, limits),
        domains=_domains(snapshot, nodes, rows, limits),
        fragments=_fragments(snapshot, [node for node in nodes if node.gpus], rows),
    )


def _flavors(
    snapshot: Snapshot, nodes: Sequence[Node], rows: Mapping[str, GpuRow], limits: GangLimits
) -> tuple[FlavorSlots, ...]:
    found: list[FlavorSlots] = []
    for flavor in sorted(snapshot.flavors.all(), key=lambda flavor: flavor.name):
        own = [rows[node.name] for node in nodes if flavor.node_labels.items() <= node.labels.items()]
        found += _by_unit(flavor.name, own, limits.of_flavor(flavor.name))
    return tuple(found)


def _domains(
    snapshot: Snapshot, nodes: Sequence[Node], rows: Mapping[str, GpuRow], limits: GangLimits
) -> tuple[FlavorSlots, ...]:
    found: dict[tuple[str, ...], list[GpuRow]] = {}
    for topology in snapshot.topologies.all():
        levels = [level for level in topology.levels if level != HOSTNAME]
        for depth in range(1, len(levels) + 1):
            above: dict[tuple[str, ...], list[GpuRow]] = {}
            for node in nodes:
                if all(level in node.labels for level in levels[:depth]):
                    values = tuple(node.labels[level] for level in levels[:depth])
                    above.setdefault((levels[depth - 1], *values), []).append(rows[node.name])
            # Two topologies may begin with the same levels, which are the same domains.
            found.update((key, above[key]) for key in sorted(above) if key not in found)
    return tuple(
        slots for (level, *values), own in found.items() for slots in _by_unit("/".join(values), own, limits, level)
    )


def units_of(rows: Sequence[GpuRow]) -> list[DeviceUnit]:
    """Units of these nodes, whole GPUs first."""
    return sorted({unit for row in rows for unit in row.by_unit}, key=order_of)


def _by_unit(name: str, rows: Sequence[GpuRow], limits: GangLimits, level: str = "") -> list[FlavorSlots]:
    """Compute the slots of these nodes in each of their units."""
    gangs = limits.gangs(rows)
    return [
        FlavorSlots(
            **asdict(slots_of(name, rows, level, unit)),
            largest_gang=largest([gang for gang in gangs if gang.unit == unit.noun]),
        )
        for unit in units_of(rows)
    ]


def slots_of(name: str, rows: Sequence[GpuRow], level: str = "", unit: DeviceUnit | None = None) -> Slots:
    """Count the slots that fit on the idle GPUs of these nodes: places for one pod, or one gang, of 1 to 64 GPUs.

    `rows` are the nodes' rows of the GPU map. `name` and `level` only describe this group of nodes in the result (see
    `Slots`). `unit` is what to count, such as MIG instances; None for whole GPUs, or the nodes' first other unit.
    """
    if unit is None:
        unit = next(iter(units_of(rows)), WHOLE_GPU)
    states = [row.by_unit[unit] for row in rows if unit in row.by_unit]
    idle = [counts.get(GpuState.IDLE, 0) for counts in states]
    sizes = [sum(counts.values()) for counts in states]
    # A pod that requests several replicas of a shared GPU does not get more compute.
    many = unit.kind in (UnitKind.GPU, UnitKind.MIG, UnitKind.DRA)
    widest = max(sizes, default=0) if many else 1
    return Slots(
        name=name,
        level=level,
        unit=unit.noun,
        nodes=len(states),
        gpus=sum(sizes),
        idle=sum(idle),
        largest_pod=min(widest, max(idle, default=0)),
        slots={size: _count(size, idle, widest) for size in SIZES},
    )


_NOTHING = FlavorSlots(
    name="cluster", nodes=0, gpus=0, idle=0, largest_pod=0, slots=dict.fromkeys(SIZES, 0), largest_gang=None
)


def _count(size: int, idle: Iterable[int], widest: int) -> int:
    pod = next((part for part in range(min(size, widest), 0, -1) if size % part == 0), 0)
    return sum(free // pod for free in idle) // (size // pod) if pod else 0


def _fragments(snapshot: Snapshot, nodes: Sequence[Node], rows: Mapping[str, GpuRow]) -> Fragments:
    shapes, where = PodClasses(), pods_by_node(snapshot)
    partial: dict[str, list[Pod]] = {}
    for here in where.by_node.values():
        for pod in here.values():
            partial.setdefault(gpu_slice_of(pod), []).append(pod)
    whole = partial.pop("", [])
    pods = typical_pods(shapes.of(pod.template) for pod in whole)
    measure = Fragmentation(pods)
    rooms = [_room(rows[node.name], node, where.on(node.name).values(), shapes) for node in nodes]
    total, every = sum(count for _, count in pods), len(whole) + sum(map(len, partial.values()))
    typical = [_typical(pod, round(100 * count / total * len(whole) / every), rooms) for pod, count in pods]
    for part, similar in partial.items():
        takers = sum(takes(node, tuple(where.on(node.name).values()), similar[0]) for node in snapshot.nodes.all())
        cpu = similar[0].template.requests.get(CPU, 0)
        percent = round(100 * len(similar) / every)
        typical.append(TypicalPod(gpus=0, part=part, cpu=cpu, model="", percent=percent, nodes=takers))
    return Fragments(
        idle=sum(room.idle for room in rooms) // MILLI,
        fragment=sum(measure.of(room) for room in rooms) / MILLI if pods else 0.0,
        typical=tuple(sorted(typical, key=lambda pod: -pod.percent)),
    )


def _room(row: GpuRow, node: Node, pods: Iterable[Pod], shapes: PodClasses) -> FreeCapacity:
    cpu, memory = node.allocatable.get(CPU, 0), node.allocatable.get(MEMORY, 0)
    for pod in pods:
        requests = shapes.of(pod.template).requests
        cpu -= requests.get(CPU, 0)
        memory -= requests.get(MEMORY, 0)
    gpus = tuple(MILLI if cell.state is GpuState.IDLE else 0 for cell in row.cells)
    return FreeCapacity(cpu, memory, gpus, row.gpu_type)


def _typical(pod: PodDemand, percent: int, rooms: Iterable[FreeCapacity]) -> TypicalPod:
    return TypicalPod(
        gpus=pod.gpus,
        cpu=pod.cpu,
        model="|".join(pod.models),
        percent=percent,
        nodes=sum(fits(room, pod) for room in rooms),
    )
