"""Device layout of a node: GPUs with their links, MIG instances, replicas and DRA devices, each with its owner.

Also the bandwidth between the GPUs of a job (the slowest link between any two of them), and the changes of a MIG
reconfiguration: instances that are removed, and pods that must be evicted first.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.derived import incremental
from gpuconsole.insight.index.gpu_map import GpuCell, GpuRow, GpuState, gpu_map
from gpuconsole.insight.index.pods import pods_by_node
from gpuconsole.model.cluster import Node, Pod, PodPhase
from gpuconsole.model.devices import DRA_DEVICE, WHOLE_GPU, DeviceUnit, UnitKind
from gpuconsole.model.gpus.mig import MigInstance
from gpuconsole.model.gpus.mig_reconfiguration import Config as MigPartedConfig
from gpuconsole.model.gpus.mig_reconfiguration import (
    Division,
    MigGpuChange,
    MigNodeChange,
    division_of,
    mig_node_changes,
)
from gpuconsole.model.gpus.models import (
    NETWORK,
    NETWORK_BANDWIDTH,
    PCIE,
    Wiring,
    bandwidth,
    model_of,
    nvlink_bandwidth,
    wiring_of,
)
from gpuconsole.model.gpus.sharing import STRATEGY, client, device, replicas
from gpuconsole.model.resources import MIG_PREFIX
from gpuconsole.model.snapshot import Snapshot

__all__ = [
    "NO_PLACE",
    "WHOLE",
    "GpuConnection",
    "GpuUnit",
    "Link",
    "MigGpuChange",
    "MigNodeChange",
    "NodeDeviceUse",
    "NodeGpus",
    "PodGroupGpus",
    "all_node_gpus",
    "connection",
    "guessed_uses",
    "mig_changes",
    "node_gpus",
    "pod_group_gpus",
]


class Link(StrEnum):
    """Kinds of link between GPUs, the fastest first."""

    NVLINK = "NVLink"
    PCIE = "PCIe"
    NETWORK = "network"


class GpuConnection(Struct, frozen=True):
    """The slowest link between the GPUs of a job."""

    link: Link
    gigabytes: int
    """GB per second."""
    gpus: int
    nodes: int

    @property
    def text(self) -> str:
        """The connection as text: `8 GPUs in one NVLink domain, 600 GB/s`."""
        match self.link:
            case Link.NVLINK:
                where, about = "in one NVLink domain", ""
            case Link.PCIE:
                where, about = "on one node, connected by PCIe", "about "
            case Link.NETWORK:
                where, about = f"on {self.nodes} nodes", "about "
        return f"{self.gpus} GPUs {where}, {about}{self.gigabytes} GB/s"


def connection(snapshot: Snapshot, pods: Iterable[Pod]) -> GpuConnection | None:
    """Find the slowest link between the GPUs of these pods; None for fewer than two. MIG instances have no links."""
    homes: dict[str, set[int]] = {}
    for pod in pods:
        node: Node | None = snapshot.nodes.get(pod.node) if pod.gpus and not pod.done else None
        if node is not None:
            homes.setdefault(node.name, set()).update(device(i, node.gpus, node.labels) for i in pod.gpus)
    total = sum(map(len, homes.values()))
    if total < 2:
        return None
    nodes = [snapshot.nodes[name] for name in homes]
    if len(nodes) > 1:
        slowest = min(bandwidth(node.annotations, NETWORK_BANDWIDTH, NETWORK) for node in nodes)
        return GpuConnection(Link.NETWORK, slowest, total, len(nodes))
    (node,) = nodes
    if _joined(node, homes[node.name]):
        return GpuConnection(Link.NVLINK, nvlink_bandwidth(node.labels, node.annotations), total, 1)
    return GpuConnection(Link.PCIE, PCIE, total, 1)


def _joined(node: Node, gpus: set[int]) -> bool:
    """True if one NVLink domain has all of these GPUs; a node with unknown topology is assumed to have one domain."""
    wiring = wiring_of(node.gpus, node.labels, node.annotations)
    return wiring is None or len({wiring.nvlink[gpu] for gpu in gpus}) == 1


WHOLE = "whole"
NO_PLACE = -1
"""GPU index of devices whose GPU is unknown."""


class GpuUnit(Struct, frozen=True, kw_only=True):
    """One allocatable device with its owner: a GPU, a replica of one, a MIG instance, or a DRA device."""

    gpu: int
    """GPU index on the node; NO_PLACE if unknown."""
    part: str = WHOLE
    """`whole`, a MIG profile, the name of a DRA device, or `2/4`: the second of four replicas."""
    start: int = 0
    span: int = 0
    """Number of MIG memory slices that it covers; 0 without MIG."""
    cell: GpuCell
    """State and owner."""


class NodeGpus(Struct, frozen=True, kw_only=True):
    """Device layout of one node."""

    model: str
    """As `prices.gpu_type` names it; empty if unknown."""
    memory: int
    """MiB of each GPU; 0 if unknown."""
    gpus: int
    """Number of physical GPUs."""
    units: tuple[GpuUnit, ...]
    wiring: Wiring | None
    """None if the GPUs cannot be told apart."""
    slices: int = 0
    """MIG memory slices of each GPU; 0 without MIG."""
    sharing: str = ""
    """Sharing mode: `MIG mixed`, `time-slicing ×4`, `MPS ×4, 20480 MiB and 25% of the threads each`."""

    def on(self, gpu: int) -> list[GpuUnit]:
        """Return the devices of one GPU."""
        return [unit for unit in self.units if unit.gpu == gpu]


class PodGroupGpus(Struct, frozen=True):
    """Pods of one owner that work together, and the slowest link between their GPUs."""

    owner: str
    connection: GpuConnection


def node_gpus(snapshot: Snapshot, node: Node, row: GpuRow, pods: Iterable[Pod]) -> NodeGpus:
    """Build the device layout of a node from its pods."""
    division = division_of(node.allocatable, node.labels, node.annotations)
    among = replicas(node.labels)
    devices = [cell for cell in row.devices if division is None or cell.unit == DRA_DEVICE]
    gpus = division.gpus if division is not None else max(1, row.gpus // among) if row.gpus else 0
    if division is not None:
        units = _divided(snapshot, row, division, list(pods))
    else:
        units = tuple(_turn(node, cell, among) for cell in row.cells)
    units += tuple(GpuUnit(gpu=NO_PLACE, part=cell.device or cell.unit.profile, cell=cell) for cell in devices)
    model = model_of(node.labels)
    return NodeGpus(
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
        return "MIG mixed, created on demand" if division.dynamic else "MIG mixed"
    if node.labels.get("nvidia.com/mig.strategy") == "single":
        return f"MIG single, each {node.labels.get('nvidia.com/gpu.product', '').partition('-MIG-')[2] or 'equal'}"
    if among == 1:
        return ""
    limits = client(node.labels)
    each = f", {limits.memory} MiB and {limits.threads}% of the threads each" if limits is not None else ""
    return f"{node.labels.get(STRATEGY) or 'shared'} ×{among}{each}"


def _turn(node: Node, cell: GpuCell, among: int) -> GpuUnit:
    """Return the device of a GPU map cell: a GPU, or one of its replicas."""
    gpu = device(cell.index, node.gpus, node.labels)
    if among == 1:
        return GpuUnit(gpu=gpu, cell=cell)
    turn = cell.index // max(1, node.gpus // among) + 1
    return GpuUnit(gpu=gpu, part=f"{turn}/{among}", cell=cell)


def _divided(snapshot: Snapshot, row: GpuRow, division: Division, pods: list[Pod]) -> tuple[GpuUnit, ...]:
    """Return the MIG instances with their owners, and the GPUs without MIG."""
    seats = _InstanceAllocator(snapshot, row, division)
    for pod in pods:
        seats.take_known(pod)
    units = [*seats.guess(), *(seats.unit(one) for one in seats.instances)]
    divided = {one.gpu for one in seats.instances}
    whole = [gpu for gpu in range(division.gpus) if gpu not in divided]
    units += [
        GpuUnit(gpu=gpu, cell=cell, span=division.geometry.slices) for gpu, cell in zip(whole, row.cells, strict=False)
    ]
    return tuple(units)


class _InstanceAllocator:
    """Assigns the MIG instances of one node to its pods, by the GPU map. Mutates as instances are assigned."""

    def __init__(self, snapshot: Snapshot, row: GpuRow, division: Division) -> None:
        self.snapshot, self.row, self.division = snapshot, row, division
        self.instances = list(division.instances)
        self.owned: dict[MigInstance, GpuCell] = {}
        self._cells = [cell for cell in row.devices if cell.pod and cell.unit.kind is UnitKind.MIG]
        """Cells of pods without an assigned instance, in the order of the map."""

    def take_known(self, pod: Pod) -> None:
        """Assign the instances that a pod is known to have; on-demand instances are added."""
        for one in pod.slices:
            if one not in self.instances:
                self.instances.append(one)
            drawn = next((cell for cell in self._cells if cell.pod == pod.key and self._is(one, cell)), None)
            if drawn is None:
                self.owned[one] = self._bare(one, pod)
            else:
                self._cells.remove(drawn)
                self.owned[one] = replace(drawn, index=one.gpu, assumed=False)

    def _bare(self, one: MigInstance, pod: Pod) -> GpuCell:
        """Return the cell of an instance that a pod has and did not request."""
        held = GpuState.HELD if pod.phase == PodPhase.PENDING else GpuState.OWN
        workload = self.snapshot.workloads.get(pod.workload)
        queue = workload.cluster_queue if workload is not None else ""
        state = held if self.row.ready else GpuState.FAULT
        return GpuCell(one.gpu, state, pod.key, pod.workload or pod.job, queue, pod.bound)

    def guess(self) -> list[GpuUnit]:
        """Assign the first free instances of the requested profile to all other pods; return cells without an instance.

        A live cluster reports the number of instances of a pod, but not their UUIDs; telemetry may name their GPU.
        """
        measured = self._measured_gpus()
        self._cells.sort(key=lambda cell: not measured.get((cell.pod, cell.unit.profile)))
        left: list[GpuUnit] = []
        for cell in self._cells:
            free = [one for one in self.instances if one not in self.owned and self._is(one, cell)]
            gpus = measured.get((cell.pod, cell.unit.profile))
            gpu = gpus.pop(0) if gpus else NO_PLACE
            exact = [one for one in free if one.gpu == gpu]
            for one in (exact or free)[:1]:
                self.owned[one] = replace(cell, index=one.gpu, assumed=not exact)
            if not free:
                left.append(GpuUnit(gpu=NO_PLACE, part=cell.unit.profile, cell=cell))
        return left

    def _measured_gpus(self) -> dict[tuple[str, str], list[int]]:
        """Return the GPUs of a pod's instances by (pod, profile), if telemetry names as many as the pod has."""
        found: dict[tuple[str, str], list[int]] = {}
        measured = self.snapshot.telemetry.get(self.row.node)
        for one in measured.devices if measured is not None else ():
            profile = self.division.geometry.by_name.get(one.profile)
            if one.pod and one.instance >= 0 and profile is not None:
                found.setdefault((one.pod, _suffix(profile.resource)), []).append(one.gpu)
        wanted = Counter((cell.pod, cell.unit.profile) for cell in self._cells)
        return {key: gpus for key, gpus in found.items() if len(gpus) == wanted[key]}

    def _is(self, one: MigInstance, cell: GpuCell) -> bool:
        profile = self.division.geometry.by_name.get(one.profile)
        return profile is not None and _suffix(profile.resource) == cell.unit.profile

    def unit(self, one: MigInstance) -> GpuUnit:
        """Return a MIG instance with its owner."""
        profile = self.division.geometry.by_name.get(one.profile)
        span = profile.span if profile is not None else 1
        row = self.row
        free = GpuState.FAULT if not row.ready else GpuState.HELD if row.cordoned else gpu_map(self.snapshot).free
        unit = DeviceUnit(UnitKind.MIG, _suffix(profile.resource) if profile is not None else one.profile)
        cell = self.owned.get(one) or GpuCell(one.gpu, free, unit=unit)
        return GpuUnit(gpu=one.gpu, part=one.profile, start=one.start, span=span, cell=cell)


def _suffix(resource: str) -> str:
    return resource.removeprefix(MIG_PREFIX)


class NodeDeviceUse(Struct, frozen=True):
    """Devices of one unit on a node: their number, and how many each owner has."""

    unit: DeviceUnit
    total: int
    used: int
    owners: Mapping[str, int]
    """Workload, or pod without one → number of devices."""


def guessed_uses(inside: NodeGpus) -> tuple[NodeDeviceUse, ...]:
    """Count the devices of each owner, by unit, where it is unknown which device an owner has; else empty."""
    found: dict[DeviceUnit, list[GpuCell]] = {}
    for unit in inside.units:
        if unit.cell.unit != WHOLE_GPU:
            found.setdefault(unit.cell.unit, []).append(unit.cell)
    return tuple(
        NodeDeviceUse(unit, len(cells), sum(map(bool, owners)), Counter(filter(None, owners)))
        for unit, cells in sorted(found.items())
        if any(cell.assumed for cell in cells)
        for owners in [[cell.workload or cell.pod for cell in cells]]
    )


Layouts = Mapping[str, tuple[Node, GpuRow, NodeGpus]]
_NO_LAYOUTS: Layouts = {}


def all_node_gpus(snapshot: Snapshot) -> Mapping[str, NodeGpus]:
    """Return the layout of every node with GPUs or MIG instances; unchanged layouts are the same objects."""
    return {name: one for name, (_, _, one) in _layouts(snapshot).items() if one.units}


@incremental(_NO_LAYOUTS)
def _layouts(snapshot: Snapshot, before: Layouts) -> Layouts:
    rows, where = gpu_map(snapshot).by_node, pods_by_node(snapshot)
    found = dict[str, tuple[Node, GpuRow, NodeGpus]]()
    for name, row in rows.items():
        node = snapshot.nodes[name]
        known = before.get(name)
        if known is None or known[0] is not node or known[1] is not row:
            known = (node, row, node_gpus(snapshot, node, row, where.on(name).values()))
        found[name] = known
    return found


def pod_group_gpus(snapshot: Snapshot, node: str) -> tuple[PodGroupGpus, ...]:
    """Return the owners of several GPUs, some of them on this node, with their slowest link; most GPUs first."""
    here = {pod.workload or pod.job or pod.key for pod in pods_by_node(snapshot).on(node).values() if pod.gpus}
    members: dict[str, list[Pod]] = {owner: [] for owner in here}
    if here:
        for pods in pods_by_node(snapshot).by_node.values():
            for pod in pods.values():
                owner = pod.workload or pod.job or pod.key
                if owner in here:
                    members[owner].append(pod)
    found = ((owner, connection(snapshot, pods)) for owner, pods in members.items())
    known = [PodGroupGpus(owner, joined) for owner, joined in found if joined is not None]
    return tuple(sorted(known, key=lambda team: (-team.connection.gpus, team.owner)))


_NO_CONFIGS: Mapping[str, MigPartedConfig] = {}


def mig_changes(
    snapshot: Snapshot, name: str, configs: Mapping[str, MigPartedConfig] = _NO_CONFIGS
) -> tuple[MigNodeChange, ...]:
    """Return what the mig-parted configuration `name` would change on every node with MIG, by node name.

    `configs` takes precedence over mig-parted's own configurations.
    """
    here = pods_by_node(snapshot)
    found = [(node, model_of(node.labels)) for node in snapshot.nodes.all()]
    return tuple(
        mig_node_changes(node, model, tuple(here.on(node.name).values()), name, configs)
        for node, model in sorted(found, key=lambda pair: pair[0].name)
        if model is not None and model.mig is not None
    )
