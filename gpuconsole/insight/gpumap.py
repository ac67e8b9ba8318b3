"""The GPU map: one cell a GPU, with the pod, the workload and the queue that own it, and what state it is in."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from gpuconsole.insight.borrowing import borrowed_gpus
from gpuconsole.insight.demand import held_gpus, pod_gpus
from gpuconsole.insight.once import once
from gpuconsole.model.cluster import Node, Pod, PodPhase
from gpuconsole.model.prices import gpu_type, is_spot
from gpuconsole.model.resources import is_mig
from gpuconsole.model.snapshot import Snapshot

MOST_CELLS = 1024
"""No machine has more; a node that claims more is drawn with so many."""


class GpuState(StrEnum):
    OWN = "own"
    """In use, inside its queue's own quota (or by a pod that no queue manages)."""
    BORROWED = "borrowed"
    """In use on quota that its queue borrows, or holds beyond its nominal quota."""
    IDLE = "idle"
    """Free for a new pod."""
    HELD = "held"
    """Does no work and is not free: its gang is not complete, a preemptor waits for it, or the node is cordoned."""
    FAULT = "fault"
    """Its node is not ready."""


class GpuCell(Struct, frozen=True):
    """One GPU. The names are empty where nobody owns it."""

    index: int
    state: GpuState
    pod: str = ""
    workload: str = ""
    """`ns/name` of the Workload, or the job's key where no Workload stands for it."""
    queue: str = ""
    """ClusterQueue."""
    since: int = 0
    """When the pod was bound."""
    assumed: bool = False
    """The index is a guess: the cluster does not tell which of the node's GPUs the pod owns."""


class MigCount(Struct, frozen=True):
    """MIG slices of one profile on a node; `profile` as in the resource's name, such as `1g.10gb`."""

    profile: str
    total: int
    used: int


class GpuRow(Struct, frozen=True, kw_only=True):
    """One node with its GPUs."""

    node: str
    gpu_type: str
    """As `model.prices.gpu_type` names it; empty if unknown."""
    spot: bool
    cordoned: bool
    ready: bool
    cells: tuple[GpuCell, ...]
    counts: Mapping[GpuState, int]
    """How many cells are in each state; every state is there."""
    mig: tuple[MigCount, ...]
    pods: int
    """Pods on the node, those without GPUs included."""

    @property
    def gpus(self) -> int:
        return len(self.cells)

    @property
    def used(self) -> int:
        """GPUs that do work."""
        return self.counts[GpuState.OWN] + self.counts[GpuState.BORROWED]


@once("nodes", "pods", "workloads", "local_queues", "cluster_queues")
def gpu_rows(snapshot: Snapshot) -> tuple[GpuRow, ...]:
    """Map every node, in the order in which they joined; nodes without GPUs have no cells.

    Pods that do not name their GPUs (a live cluster does not tell) are given the lowest free indices, and such cells
    say `assumed`. A workload that borrows only some of its GPUs is drawn as own first, then as borrowed.
    """
    drawing = _Drawing(snapshot)
    return tuple(drawing.row(node) for node in snapshot.nodes.all())


class _Drawing:
    """What is known of all nodes while one after the other is drawn."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.workloads = snapshot.workloads
        self.own = {key: held_gpus(self.workloads[key]) - part for key, part in borrowed_gpus(snapshot).items()}
        """Borrowing workload → how many of its GPUs are its queue's own; counted down while cells are drawn."""
        self.pods: dict[str, list[Pod]] = defaultdict(list)
        self.nominated: Counter[str] = Counter()
        self.incomplete: set[str] = set()
        """Gangs some of whose pods have no node."""
        for pod in snapshot.pods.all():
            if pod.done:
                continue
            if pod.node:
                self.pods[pod.node].append(pod)
                continue
            self.incomplete.add(pod.gang)
            if pod.nominated_node:
                self.nominated[pod.nominated_node] += pod_gpus(pod.template)
        self.incomplete.discard("")

    def row(self, node: Node) -> GpuRow:
        pods = self.pods.get(node.name, [])
        cells: list[GpuCell | None] = [None] * min(node.gpus, MOST_CELLS)
        for pod in pods:
            self.place(pod, node, cells)
        nominated = self.nominated[node.name]
        drawn = []
        for index, cell in enumerate(cells):
            if cell is None:
                cell = GpuCell(index, _free(node, nominated > 0))
                nominated -= 1
            drawn.append(cell)
        counts = Counter(cell.state for cell in drawn)
        return GpuRow(
            node=node.name,
            gpu_type=gpu_type(node.labels),
            spot=is_spot(node.labels),
            cordoned=node.unschedulable,
            ready=node.ready,
            cells=tuple(drawn),
            counts={state: counts[state] for state in GpuState},
            mig=_mig(node, pods),
            pods=len(pods),
        )

    def place(self, pod: Pod, node: Node, cells: list[GpuCell | None]) -> None:
        indices, assumed = pod.gpus, False
        if not indices:
            wanted = pod_gpus(pod.template)
            if not wanted:
                return
            indices, assumed = tuple(index for index, cell in enumerate(cells) if cell is None)[:wanted], True
        workload = self.workloads.get(pod.workload)
        queue = workload.cluster_queue if workload is not None else ""
        owner = pod.workload or pod.job
        for index in indices:
            if 0 <= index < len(cells):
                cells[index] = GpuCell(index, self.state(pod, node), pod.key, owner, queue, pod.bound, assumed)

    def state(self, pod: Pod, node: Node) -> GpuState:
        own = self.own.get(pod.workload)
        if own is not None:
            self.own[pod.workload] = own - 1
        if not node.ready:
            return GpuState.FAULT
        if pod.gang in self.incomplete or pod.phase == PodPhase.PENDING:
            return GpuState.HELD
        return GpuState.BORROWED if own is not None and own <= 0 else GpuState.OWN


def _free(node: Node, nominated: bool) -> GpuState:
    if not node.ready:
        return GpuState.FAULT
    return GpuState.HELD if node.unschedulable or nominated else GpuState.IDLE


def _mig(node: Node, pods: list[Pod]) -> tuple[MigCount, ...]:
    totals = {name: amount for name, amount in node.allocatable.items() if is_mig(name)}
    if not totals:
        return ()
    used: Counter[str] = Counter()
    for pod in pods:
        used.update({name: amount for name, amount in pod.template.requests.items() if name in totals})
    return tuple(MigCount(name.partition("mig-")[2], total, used[name]) for name, total in sorted(totals.items()))
