"""What the idle GPUs are good for: slots that fit now, the largest gang, and the FGD measure of the cluster.

A slot of N GPUs is one pod where some node has so many GPUs, and else a gang of pods as large as the nodes allow, on as
many nodes. Idle is what a new pod could get: of ready nodes that take pods, and not kept for a preemptor. Only GPUs
are looked at; how cpu strands them is what the measure tells.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.gpumap import GpuRow, GpuState, gpu_rows
from gpuconsole.insight.once import once
from gpuconsole.insight.parts import part_of, takes
from gpuconsole.insight.whereabouts import whereabouts
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.labels import HOSTNAME
from gpuconsole.model.quantity import CPU, MEMORY
from gpuconsole.model.resources import is_mig
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.scheduling.kube.packed import typical_pods
from gpuconsole.scheduling.kube.packing.fragmentation import Fragmentation
from gpuconsole.scheduling.kube.packing.rooms import MILLI, Demand, Room, fits
from gpuconsole.scheduling.kube.shapes import Shapes

SIZES = (1, 2, 4, 8, 16, 64)


class Gang(Struct, frozen=True):
    """Equal pods that would all start at once."""

    pods: int
    gpus: int
    """Of each pod."""


class Slots(Struct, frozen=True, kw_only=True, rename="camel"):
    """What some nodes' idle GPUs are good for."""

    name: str
    """Of the flavor, or of the topology domain with its values from the top (`block-1/rack-3`)."""
    level: str = ""
    """The domain's level, a node label; empty for a flavor or the whole cluster."""
    nodes: int
    gpus: int
    idle: int
    largest_pod: int
    """The most GPUs that are idle on one node."""
    largest_gang: Gang | None
    """The one with the largest pods, and as many of them as fit; None where not even two pods of one GPU do."""
    slots: Mapping[int, int]
    """Size → how many slots of that size fit, if nothing else is placed."""


class TypicalPod(Struct, frozen=True, kw_only=True, rename="camel"):
    """A kind of pod that the cluster often runs."""

    gpus: int
    """Whole ones."""
    part: str = ""
    """The parts of GPUs that it asks for instead, `1 × mig-1g.10gb` or `0.5 GPU`."""
    cpu: int
    """Milli."""
    model: str
    """The GPU type that it asks for; empty for any."""
    percent: int
    """Of the typical pods."""
    nodes: int
    """How many nodes would take one now."""


class Fragments(Struct, frozen=True, kw_only=True, rename="camel"):
    """The FGD measure: how much of the idle GPUs is of no use to the pods that this cluster typically has."""

    idle: int
    fragment: float
    """GPUs, as a mean over the typical pods that do not ask for parts of GPUs."""
    typical: tuple[TypicalPod, ...]
    """The most frequent first."""

    @property
    def known(self) -> bool:
        """False where nothing is typical but pods that ask for parts of GPUs: the measure is of whole ones."""
        return any(not pod.part for pod in self.typical)

    @property
    def percent(self) -> float:
        """Of the idle GPUs; 0 where none is idle."""
        return 100 * self.fragment / self.idle if self.idle else 0.0


NO_FRAGMENTS = Fragments(idle=0, fragment=0.0, typical=())


class Usefulness(Struct, frozen=True, kw_only=True):
    """All answers together."""

    cluster: Slots
    flavors: tuple[Slots, ...]
    """By name; a node may be of several."""
    domains: tuple[Slots, ...]
    """By topology and level, from the top; hosts are left out. Where flavors share a topology, their nodes together."""
    fragments: Fragments
    divided: int = 0
    """Nodes that offer MIG instances and no whole GPU, so that nothing above counts them."""


@once("nodes", "pods", "flavors", "topologies", "workloads", "local_queues", "cluster_queues")
def usefulness(snapshot: Snapshot) -> Usefulness:
    """What the idle GPUs of a Snapshot are good for; those that are not known to be idle are not."""
    return _usefulness(snapshot, {row.node: row for row in gpu_rows(snapshot)})


def usefulness_at_most(snapshot: Snapshot) -> Usefulness:
    """The same if every GPU were idle that nobody is seen to have; of fragments nothing is known then."""
    return replace(_usefulness(snapshot, idle_at_most(snapshot)), fragments=NO_FRAGMENTS)


def idle_at_most(snapshot: Snapshot) -> dict[str, GpuRow]:
    """The nodes as they were if every GPU were idle that nobody is seen to have."""
    return {row.node: _at_most(row) for row in gpu_rows(snapshot)}


def _at_most(row: GpuRow) -> GpuRow:
    idle = row.counts[GpuState.IDLE] + row.counts[GpuState.UNKNOWN]
    return replace(row, counts={**row.counts, GpuState.IDLE: idle})


def _usefulness(snapshot: Snapshot, rows: Mapping[str, GpuRow]) -> Usefulness:
    nodes = [node for node in snapshot.nodes.all() if node.gpus]
    return Usefulness(
        cluster=slots_of("cluster", [rows[node.name] for node in nodes]),
        flavors=_flavors(snapshot, nodes, rows),
        domains=_domains(snapshot, nodes, rows),
        fragments=_fragments(snapshot, nodes, rows),
        divided=sum(
            not node.gpus and any(is_mig(name) and amount for name, amount in node.allocatable.items())
            for node in snapshot.nodes.all()
        ),
    )


def _flavors(snapshot: Snapshot, nodes: Sequence[Node], rows: Mapping[str, GpuRow]) -> tuple[Slots, ...]:
    found = []
    for flavor in sorted(snapshot.flavors.all(), key=lambda flavor: flavor.name):
        own = [rows[node.name] for node in nodes if flavor.node_labels.items() <= node.labels.items()]
        if own:
            found.append(slots_of(flavor.name, own))
    return tuple(found)


def _domains(snapshot: Snapshot, nodes: Sequence[Node], rows: Mapping[str, GpuRow]) -> tuple[Slots, ...]:
    found: dict[tuple[str, ...], list[GpuRow]] = {}
    for topology in snapshot.topologies.all():
        levels = [level for level in topology.levels if level != HOSTNAME]
        for depth in range(1, len(levels) + 1):
            above: dict[tuple[str, ...], list[GpuRow]] = {}
            for node in nodes:
                if all(level in node.labels for level in levels[:depth]):
                    values = tuple(node.labels[level] for level in levels[:depth])
                    above.setdefault((levels[depth - 1], *values), []).append(rows[node.name])
            # Two topologies may begin with the same levels: those domains are the same.
            found.update((key, above[key]) for key in sorted(above) if key not in found)
    return tuple(slots_of("/".join(values), own, level) for (level, *values), own in found.items())


def slots_of(name: str, rows: Sequence[GpuRow], level: str = "") -> Slots:
    """What the idle GPUs of these nodes are good for."""
    idle = [row.counts[GpuState.IDLE] for row in rows]
    widest = max((row.gpus for row in rows), default=0)
    return Slots(
        name=name,
        level=level,
        nodes=len(rows),
        gpus=sum(row.gpus for row in rows),
        idle=sum(idle),
        largest_pod=max(idle, default=0),
        largest_gang=_gang(idle, widest),
        slots={size: _count(size, idle, widest) for size in SIZES},
    )


def _gang(idle: Sequence[int], widest: int) -> Gang | None:
    for size in (widest, *reversed(SIZES)):
        pods = sum(free // size for free in idle) if 0 < size <= widest else 0
        if pods > 1:
            return Gang(pods, size)
    return None


def _count(size: int, idle: Iterable[int], widest: int) -> int:
    pod = next((part for part in range(min(size, widest), 0, -1) if size % part == 0), 0)
    return sum(free // pod for free in idle) // (size // pod) if pod else 0


def _fragments(snapshot: Snapshot, nodes: Sequence[Node], rows: Mapping[str, GpuRow]) -> Fragments:
    shapes, where = Shapes(), whereabouts(snapshot)
    partial: dict[str, list[Pod]] = {}
    for here in where.by_node.values():
        for pod in here.values():
            partial.setdefault(part_of(pod), []).append(pod)
    whole = partial.pop("", [])
    pods = typical_pods(shapes.of(pod.template) for pod in whole)
    measure = Fragmentation(pods)
    rooms = [_room(rows[node.name], node, where.on(node.name).values(), shapes) for node in nodes]
    total, every = sum(count for _, count in pods), len(whole) + sum(map(len, partial.values()))
    typical = [_typical(pod, round(100 * count / total * len(whole) / every), rooms) for pod, count in pods]
    for part, alike in partial.items():
        takers = sum(takes(node, tuple(where.on(node.name).values()), alike[0]) for node in snapshot.nodes.all())
        cpu = alike[0].template.requests.get(CPU, 0)
        percent = round(100 * len(alike) / every)
        typical.append(TypicalPod(gpus=0, part=part, cpu=cpu, model="", percent=percent, nodes=takers))
    return Fragments(
        idle=sum(room.idle for room in rooms) // MILLI,
        fragment=sum(measure.of(room) for room in rooms) / MILLI if pods else 0.0,
        typical=tuple(sorted(typical, key=lambda pod: -pod.percent)),
    )


def _room(row: GpuRow, node: Node, pods: Iterable[Pod], shapes: Shapes) -> Room:
    cpu, memory = node.allocatable.get(CPU, 0), node.allocatable.get(MEMORY, 0)
    for pod in pods:
        requests = shapes.of(pod.template).requests
        cpu -= requests.get(CPU, 0)
        memory -= requests.get(MEMORY, 0)
    gpus = tuple(MILLI if cell.state is GpuState.IDLE else 0 for cell in row.cells)
    return Room(cpu, memory, gpus, row.gpu_type)


def _typical(pod: Demand, percent: int, rooms: Iterable[Room]) -> TypicalPod:
    return TypicalPod(
        gpus=pod.gpus,
        cpu=pod.cpu,
        model="|".join(pod.models),
        percent=percent,
        nodes=sum(fits(room, pod) for room in rooms),
    )
