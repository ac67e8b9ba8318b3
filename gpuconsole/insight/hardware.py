"""What is inside a node: its GPUs with their links, the MIG instances and the shares that they are given away in."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from gpuconsole.insight.bandwidth import Connection, connection
from gpuconsole.insight.gpumap import GpuCell, GpuRow, GpuState, gpu_map
from gpuconsole.insight.whereabouts import whereabouts
from gpuconsole.model.cluster import Node, Pod, PodPhase
from gpuconsole.model.gpus.instances import Division, division_of
from gpuconsole.model.gpus.mig import Instance
from gpuconsole.model.gpus.models import model_of
from gpuconsole.model.gpus.sharing import STRATEGY, client, device, replicas
from gpuconsole.model.gpus.wiring import Wiring, wiring_of
from gpuconsole.model.snapshot import Snapshot

WHOLE = "whole"


class Unit(Struct, frozen=True, kw_only=True):
    """What one pod can own: a GPU, a turn on one, or a MIG instance."""

    gpu: int
    """Which GPU of the node."""
    part: str = WHOLE
    """`whole`, a MIG profile, or `2/4`: the second of four turns."""
    start: int = 0
    span: int = 0
    """Memory slices that it covers; none where the GPU is not divided."""
    cell: GpuCell
    """Its state and its owner."""


class Inside(Struct, frozen=True, kw_only=True):
    """A node's GPUs."""

    model: str
    """As `prices.gpu_type` names it; empty if it is not known."""
    memory: int
    """MiB of each GPU; 0 if it is not known."""
    gpus: int
    """How many there are, divided or not."""
    units: tuple[Unit, ...]
    wiring: Wiring | None
    """None where nothing tells the GPUs apart."""
    slices: int = 0
    """Memory slices of each GPU; 0 where none is divided."""
    sharing: str = ""
    """How GPUs are shared: `MIG mixed`, `time-slicing ×4`, `MPS ×4, 20480 MiB and 25 % of the threads each`."""

    def on(self, gpu: int) -> list[Unit]:
        """The units of one GPU."""
        return [unit for unit in self.units if unit.gpu == gpu]


class Team(Struct, frozen=True):
    """Pods of one owner that work together, and how fast their GPUs talk to each other."""

    owner: str
    connection: Connection


def inside(snapshot: Snapshot, node: Node, row: GpuRow, pods: Iterable[Pod]) -> Inside:
    """Look into a node, whose pods these are."""
    division = division_of(node.allocatable, node.labels, node.annotations)
    among = replicas(node.labels)
    gpus = division.gpus if division is not None else max(1, row.gpus // among) if row.gpus else 0
    if division is not None:
        units = _divided(snapshot, row, division, list(pods))
    else:
        units = tuple(_turn(node, cell, among) for cell in row.cells)
    model = model_of(node.labels)
    return Inside(
        model=row.gpu_type,
        memory=_memory(node, model.memory if model is not None else 0),
        gpus=gpus,
        units=tuple(sorted(units, key=lambda unit: (unit.gpu, unit.start, unit.cell.index))),
        wiring=wiring_of(gpus, node.labels, node.annotations),
        slices=division.geometry.slices if division is not None else 0,
        sharing=_sharing(node, division, among),
    )


def _memory(node: Node, usual: int) -> int:
    text = node.labels.get("nvidia.com/gpu.memory", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else usual


def _sharing(node: Node, division: Division | None, among: int) -> str:
    if division is not None:
        return "MIG mixed, divided as pods come" if division.dynamic else "MIG mixed"
    if node.labels.get("nvidia.com/mig.strategy") == "single":
        return f"MIG single: each is {node.labels.get('nvidia.com/gpu.product', '').partition('-MIG-')[2] or 'equal'}"
    if among == 1:
        return ""
    limits = client(node.labels)
    each = f", {limits.memory} MiB and {limits.threads} % of the threads each" if limits is not None else ""
    return f"{node.labels.get(STRATEGY) or 'shared'} ×{among}{each}"


def _turn(node: Node, cell: GpuCell, among: int) -> Unit:
    """A GPU, or one of the turns on it."""
    gpu = device(cell.index, node.gpus, node.labels)
    if among == 1:
        return Unit(gpu=gpu, cell=cell)
    turn = cell.index // max(1, node.gpus // among) + 1
    return Unit(gpu=gpu, part=f"{turn}/{among}", cell=cell)


def _divided(snapshot: Snapshot, row: GpuRow, division: Division, pods: list[Pod]) -> tuple[Unit, ...]:
    """Instances with their owners, and the GPUs that are whole."""
    owners = {instance: pod for pod in pods for instance in pod.slices}
    instances = (*division.instances, *(one for one in owners if one not in division.instances))
    units = [_instance(snapshot, row, division, one, owners.get(one)) for one in instances]
    divided = {one.gpu for one in instances}
    whole = [gpu for gpu in range(division.gpus) if gpu not in divided]
    units += [
        Unit(gpu=gpu, cell=cell, span=division.geometry.slices) for gpu, cell in zip(whole, row.cells, strict=False)
    ]
    return tuple(units)


def _instance(snapshot: Snapshot, row: GpuRow, division: Division, one: Instance, pod: Pod | None) -> Unit:
    profile = division.geometry.by_name.get(one.profile)
    span = profile.span if profile is not None else 1
    state = GpuState.FAULT if not row.ready else GpuState.HELD if row.cordoned else gpu_map(snapshot).free
    cell = GpuCell(one.gpu, state)
    if pod is not None:
        held = GpuState.HELD if pod.phase == PodPhase.PENDING else GpuState.OWN
        workload = snapshot.workloads.get(pod.workload)
        queue = workload.cluster_queue if workload is not None else ""
        cell = GpuCell(one.gpu, held if row.ready else state, pod.key, pod.workload or pod.job, queue, pod.bound)
    return Unit(gpu=one.gpu, part=one.profile, start=one.start, span=span, cell=cell)


_kept: list[dict[str, tuple[Node, GpuRow, Inside]]] = [{}]


def look_inside(snapshot: Snapshot) -> Mapping[str, Inside]:
    """Every node with GPUs or MIG instances; those that look as before are the same objects."""
    rows, where = gpu_map(snapshot).by_node, whereabouts(snapshot)
    before, found = _kept[0], dict[str, tuple[Node, GpuRow, Inside]]()
    for name, row in rows.items():
        node = snapshot.nodes[name]
        known = before.get(name)
        if known is None or known[0] is not node or known[1] is not row:
            known = (node, row, inside(snapshot, node, row, where.on(name).values()))
        found[name] = known
    _kept[0] = found
    return {name: one for name, (_, _, one) in found.items() if one.units}


def teams(snapshot: Snapshot, node: str) -> tuple[Team, ...]:
    """Who has several GPUs, some of them on this node, and the link between them; those with most GPUs first."""
    here = {pod.workload or pod.job or pod.key for pod in whereabouts(snapshot).on(node).values() if pod.gpus}
    members: dict[str, list[Pod]] = {owner: [] for owner in here}
    if here:
        for pods in whereabouts(snapshot).by_node.values():
            for pod in pods.values():
                owner = pod.workload or pod.job or pod.key
                if owner in here:
                    members[owner].append(pod)
    found = ((owner, connection(snapshot, pods)) for owner, pods in members.items())
    known = [Team(owner, joined) for owner, joined in found if joined is not None]
    return tuple(sorted(known, key=lambda team: (-team.connection.gpus, team.owner)))
