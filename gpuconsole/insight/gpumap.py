"""The GPU map: one cell a GPU, with the pod, the workload and the queue that own it, and what state it is in."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from gpuconsole.insight.borrowing import borrowed_gpus
from gpuconsole.insight.demand import pod_gpus
from gpuconsole.insight.once import once
from gpuconsole.model.cluster import Node, Pod, PodPhase
from gpuconsole.model.prices import gpu_type, is_spot
from gpuconsole.model.resources import is_mig
from gpuconsole.model.snapshot import Snapshot


class GpuState(StrEnum):
    OWN = "own"
    """In use, inside its queue's own quota (or by a pod that no queue manages)."""
    BORROWED = "borrowed"
    """In use on quota that its queue borrows, or holds beyond its nominal quota."""
    IDLE = "idle"
    """Free for a new pod."""
    HELD = "held"
    """Does no work and is not free: its pod has not started, a preemptor is nominated, or the node is cordoned."""
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


@once
def gpu_rows(snapshot: Snapshot) -> tuple[GpuRow, ...]:
    """Map every node, in the order in which they joined; nodes without GPUs have no cells.

    Pods that do not name their GPUs (a live cluster does not tell) are given the lowest free indices, and such cells
    say `assumed`. Of a workload that borrows some of its GPUs, the last ones (by node and index) are shown as borrowed.
    """
    by_node: dict[str, list[Pod]] = defaultdict(list)
    nominated: Counter[str] = Counter()
    for pod in snapshot.pods.all():
        if pod.node:
            if not pod.done:
                by_node[pod.node].append(pod)
        elif pod.nominated_node and not pod.done:
            nominated[pod.nominated_node] += pod_gpus(pod.template)
    owned = _own_part(snapshot)
    return tuple(
        _row(node, by_node.get(node.name, []), nominated[node.name], owned, snapshot) for node in snapshot.nodes.all()
    )


def _own_part(snapshot: Snapshot) -> dict[str, int]:
    """Borrowing workload → how many of its GPUs are not borrowed; counted down while cells are drawn."""
    return {key: snapshot.workloads[key].gpus - borrowed for key, borrowed in borrowed_gpus(snapshot).items()}


def _row(node: Node, pods: list[Pod], nominated: int, owned: dict[str, int], snapshot: Snapshot) -> GpuRow:
    cells: list[GpuCell | None] = [None] * node.gpus
    for pod in pods:
        _place(pod, cells, node, owned, snapshot)
    for index, cell in enumerate(cells):
        if cell is None:
            cells[index] = _free(index, node, nominated > 0)
            nominated -= 1
    drawn = tuple(cell for cell in cells if cell is not None)
    counts = Counter(cell.state for cell in drawn)
    return GpuRow(
        node=node.name,
        gpu_type=gpu_type(node.labels),
        spot=is_spot(node.labels),
        cordoned=node.unschedulable,
        ready=node.ready,
        cells=drawn,
        counts={state: counts[state] for state in GpuState},
        mig=_mig(node, pods),
        pods=len(pods),
    )


def _place(pod: Pod, cells: list[GpuCell | None], node: Node, owned: dict[str, int], snapshot: Snapshot) -> None:
    indices, assumed = pod.gpus, False
    if not indices:
        wanted = pod_gpus(pod.template)
        if not wanted:
            return
        indices, assumed = tuple(i for i, cell in enumerate(cells) if cell is None)[:wanted], True
    workload = snapshot.workloads.get(pod.workload)
    queue = workload.cluster_queue if workload is not None else ""
    for index in indices:
        if 0 <= index < len(cells):
            state = _state(pod, node, owned)
            cells[index] = GpuCell(index, state, pod.key, pod.workload or pod.job, queue, pod.bound, assumed)


def _state(pod: Pod, node: Node, owned: dict[str, int]) -> GpuState:
    borrowed = False
    if pod.workload in owned:
        owned[pod.workload] -= 1
        borrowed = owned[pod.workload] < 0
    if not node.ready:
        return GpuState.FAULT
    if pod.phase == PodPhase.PENDING:
        return GpuState.HELD
    return GpuState.BORROWED if borrowed else GpuState.OWN


def _free(index: int, node: Node, nominated: bool) -> GpuCell:
    if not node.ready:
        return GpuCell(index, GpuState.FAULT)
    return GpuCell(index, GpuState.HELD if node.unschedulable or nominated else GpuState.IDLE)


def _mig(node: Node, pods: list[Pod]) -> tuple[MigCount, ...]:
    totals = {name: amount for name, amount in node.allocatable.items() if is_mig(name)}
    if not totals:
        return ()
    used: Counter[str] = Counter()
    for pod in pods:
        used.update({name: amount for name, amount in pod.template.requests.items() if name in totals})
    return tuple(MigCount(name.partition("mig-")[2], total, used[name]) for name, total in sorted(totals.items()))
