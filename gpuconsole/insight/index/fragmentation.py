"""Schedulable capacity of idle GPUs: slots that fit now, the largest gang, and the FGD fragmentation measure.

A gang is a number of equal pods that start together, all in one flavor and on one GPU model. Its size is limited by the
idle GPUs of nodes, and by the available quota (without preemption) of the ClusterQueue that has most of it in that
flavor. Of several pod sizes (a whole node's GPUs, then 64, 16, 8, 4, 2, 1) the largest one is used of which at least
two pods would start: one pod is not a gang. Each pod requests one MIG instance, replica of a shared GPU or DRA device.

A slot of N GPUs is one pod if a node has N GPUs, otherwise a gang of the largest pods that nodes allow. Idle GPUs are
those that a new pod could get: on ready, schedulable nodes, and not reserved for a preemptor. Slots consider only GPUs;
the FGD measure includes cpu and memory. Pods that request parts of GPUs (MIG instances, or fractions as KAI reads them
from the pod annotations gpu-fraction and gpu-memory) are typical pods, too, but not part of the measure.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import asdict, replace

from gpuconsole.insight.data_gaps import missing_for_admission
from gpuconsole.insight.derived import memoized
from gpuconsole.insight.index.demand import CLAIMED, counted_as, quota_accelerators
from gpuconsole.insight.index.engine_queues import ENGINES, queues
from gpuconsole.insight.index.gpu_map import CLAIMS, GpuCell, GpuRow, GpuState, gpu_rows
from gpuconsole.insight.index.pods import pods_by_node
from gpuconsole.insight.index.quota_tree import NodeKind, QuotaNode, leaves_available, no_start_reason, queues_below
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.devices import WHOLE_GPU, DeviceUnit, UnitKind, order_of
from gpuconsole.model.labels import HOSTNAME
from gpuconsole.model.resources import CPU, MEMORY, MIG_PREFIX, is_mig
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.scheduling.kai.cluster_info import node_of, request_of
from gpuconsole.scheduling.kube.packing.policies import MILLI, Fragmentation, FreeCapacity, PodDemand, fits
from gpuconsole.scheduling.kube.pod_classes import PodClasses
from gpuconsole.scheduling.kube.scores import typical_pods

SIZES = (1, 2, 4, 8, 16, 64)
"""Slot sizes in GPUs."""


class GpuKind(Struct, frozen=True, order=True):
    """Flavor, model and unit that all pods of a gang share."""

    flavor: str
    """Empty where Kueue has no flavors."""
    model: str
    """As `prices.gpu_type` names it; empty if unknown."""
    unit: DeviceUnit = WHOLE_GPU
    resource: str = ""
    """Counted resource, as `demand.counted_as` names it."""


class LargestGang(Struct, frozen=True, kw_only=True, rename="camel"):
    """The largest gang of one flavor and GPU model."""

    flavor: str
    model: str
    unit: str
    """Unit that the pods request: `GPU`, `MIG 1g.10gb instance` …"""
    pods: int
    """Number of pods: the smaller of the two limits."""
    gpus: int
    """Units per pod."""
    by_nodes: int
    """Pods that fit on idle GPUs of nodes."""
    by_quota: int | None
    """Pods that the available quota of one queue allows; None if no queue limits them, or unknown."""
    queue: str = ""
    """The queue with that quota."""

    @property
    def total(self) -> int:
        """GPUs of all pods together."""
        return self.pods * self.gpus


class AdmittableQuota(Struct, frozen=True):
    """The queue with the largest available quota of a flavor, and that amount."""

    available: int
    queue: str


class Idle:
    """Counts nodes by kind of GPU and by their total and idle units, to size gangs. Mutates by `count`."""

    def __init__(self) -> None:
        self.free: dict[GpuKind, Counter[int]] = {}
        """Kind → idle units of a node → number of nodes."""
        self.sizes: dict[GpuKind, Counter[int]] = {}
        """Kind → units of a node → number of nodes."""

    def copy(self) -> "Idle":
        """Return an independent copy."""
        twin = Idle()
        twin.free = {kind: nodes.copy() for kind, nodes in self.free.items()}
        twin.sizes = {kind: nodes.copy() for kind, nodes in self.sizes.items()}
        return twin

    def count(self, row: GpuRow, flavors: Iterable[str], sign: int = 1) -> None:
        """Add a node (sign 1), or remove it (-1)."""
        for flavor in flavors:
            if row.cells:
                self._count(GpuKind(flavor, row.gpu_type, row.unit), row.gpus, row.counts[GpuState.IDLE], sign)
            for unit, states in row.by_unit.items() if row.devices else ():
                if unit != row.unit or not row.cells:
                    total, idle = sum(states.values()), states.get(GpuState.IDLE, 0)
                    self._count(GpuKind(flavor, row.gpu_type, unit, _resource(unit)), total, idle, sign)

    def _count(self, kind: GpuKind, total: int, idle: int, sign: int) -> None:
        self.sizes.setdefault(kind, Counter())[total] += sign
        self.free.setdefault(kind, Counter())[idle] += sign


def _resource(unit: DeviceUnit) -> str:
    """Return the counted resource of a unit: the MIG resource, CLAIMED for DRA devices, empty for GPUs."""
    if unit.kind is UnitKind.MIG:
        return f"{MIG_PREFIX}{unit.profile}"
    return CLAIMED if unit.kind is UnitKind.DRA else ""


class GangLimits(Struct, frozen=True, eq=False):
    """Limits of gangs in one Snapshot: node flavors and available quota."""

    flavors: Mapping[str, tuple[str, ...]]
    """Node → its flavors; one empty name where there are no flavors."""
    quota: Mapping[tuple[str, str], AdmittableQuota] | None
    """(Flavor, counted resource) → largest available quota; None if quota does not limit gangs, or unknown."""

    def of_flavor(self, flavor: str) -> "GangLimits":
        """Return the limits of gangs in this flavor alone."""
        return GangLimits({node: (flavor,) for node, flavors in self.flavors.items() if flavor in flavors}, self.quota)

    def gangs(self, rows: Iterable[GpuRow]) -> tuple[LargestGang, ...]:
        """Return the largest gang of each kind on these nodes."""
        idle = Idle()
        for row in rows:
            idle.count(row, self.flavors.get(row.node, ()))
        return self.each(idle)

    def each(self, idle: Idle) -> tuple[LargestGang, ...]:
        """Return the largest gang of each kind, by flavor and model; `idle` counts the nodes."""
        return tuple(self._of(kind, idle) for kind in sorted(idle.free) if +idle.sizes[kind])

    def _of(self, kind: GpuKind, idle: Idle) -> LargestGang:
        quota = self.quota.get((kind.flavor, kind.resource), NO_QUOTA) if self.quota is not None else None
        found = [_fit(kind, size, idle.free[kind], quota) for size in _sizes(kind, idle.sizes[kind])]
        return next((fit for fit in found if fit.pods > 1), found[-1])


NO_QUOTA = AdmittableQuota(0, "")
NO_LIMITS = GangLimits({}, None)
"""Initial limits: no node has a flavor, so no gang fits."""


def _sizes(kind: GpuKind, nodes: Counter[int]) -> list[int]:
    """Return the pod sizes to try, in GPUs, descending."""
    if kind.unit != WHOLE_GPU:
        return [1]
    widest = max((+nodes), default=1)
    return sorted({widest, *(size for size in SIZES if size <= widest)}, reverse=True)


def _fit(kind: GpuKind, size: int, free: Counter[int], quota: AdmittableQuota | None) -> LargestGang:
    by_nodes = sum(idle // size * nodes for idle, nodes in free.items())
    by_quota = quota.available // size if quota is not None else None
    return LargestGang(
        flavor=kind.flavor,
        model=kind.model,
        unit=kind.unit.noun,
        pods=by_nodes if by_quota is None else min(by_nodes, by_quota),
        gpus=size,
        by_nodes=by_nodes,
        by_quota=by_quota,
        queue=quota.queue if quota is not None else "",
    )


def largest(gangs: Sequence[LargestGang]) -> LargestGang | None:
    """Return the gang with most GPUs; of equal ones the one with larger pods, then the first. None without two pods."""
    return max((gang for gang in gangs if gang.pods > 1), key=lambda gang: (gang.total, gang.gpus), default=None)


def gang_limits(snapshot: Snapshot) -> GangLimits:
    """Compute the limits of gangs: the flavors of nodes, and the available quota."""
    return GangLimits(node_flavors(snapshot), None if missing_for_admission(snapshot) else _quota(snapshot))


@memoized("nodes", "flavors", "volcano_queues", "kai_queues")
def node_flavors(snapshot: Snapshot) -> Mapping[str, tuple[str, ...]]:
    """Map each node to the flavors whose labels and GPUs it has; to one empty name without Kueue."""
    flavors = sorted(snapshot.flavors.all(), key=lambda flavor: flavor.name)
    everywhere = ("",) if not flavors or len(snapshot.volcano_queues) or len(snapshot.kai_queues) else ()
    return {
        node.name: (
            *(flavor.name for flavor in flavors if flavor.node_labels.items() <= node.labels.items()),
            *everywhere,
        )
        for node in snapshot.nodes.all()
    }


@memoized(
    *("workloads", "local_queues", "cluster_queues", "cohorts", "flavors", "admission_checks", "topologies", "seen"),
    *("volcano_queues", "kai_queues", "pods", "pod_groups", "kai_pod_groups", "jobs", "nodes", "namespaces"),
    *("resource_quotas", "device_classes", "resource_claim_templates"),
)
def _quota(snapshot: Snapshot) -> Mapping[tuple[str, str], AdmittableQuota] | None:
    """Return the largest available quota of an active queue by (flavor, counted resource); None without queueing."""
    found: dict[tuple[str, str], AdmittableQuota] = {}
    limited = False
    counted = quota_accelerators(snapshot)
    for node in queues_below(queues(snapshot)):
        if node.kind is NodeKind.CLUSTER_QUEUE:
            limited = True
            if not no_start_reason(snapshot, node):
                for (flavor, resource), available in _available(node, counted).items():
                    _keep(found, (flavor, resource), AdmittableQuota(available, node.name))
        elif node.kind in ENGINES:
            limited = True
            for leaf, use in leaves_available(node):
                quota = AdmittableQuota(0 if leaf.shut else use.available, leaf.name)
                _keep(found, ("", counted_as(use.resource)), quota)
    return found if limited else None


def _available(node: QuotaNode, counted: Iterable[str]) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for use in node.flavors:
        if use.resource in counted:
            key = use.flavor, counted_as(use.resource)
            found[key] = found.get(key, 0) + use.available
    return found


def _keep(found: dict[tuple[str, str], AdmittableQuota], key: tuple[str, str], quota: AdmittableQuota) -> None:
    known = found.get(key, NO_QUOTA)
    if (-quota.available, quota.queue) < (-known.available, known.queue):
        found[key] = quota


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
