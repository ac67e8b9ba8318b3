"""The GPU map: one cell a GPU, with the pod, the workload and the queue that own it, and what state it is in."""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct

from gpuconsole.insight.borrowing import borrowed_gpus
from gpuconsole.insight.demand import held_gpus, pod_gpus
from gpuconsole.insight.gangs import gang_key, waiting_gangs
from gpuconsole.insight.once import once
from gpuconsole.insight.seating import guessed_seats, known_seats, told_otherwise
from gpuconsole.insight.whereabouts import whereabouts
from gpuconsole.model.cluster import Node, Pod, PodPhase
from gpuconsole.model.prices import gpu_type, is_spot
from gpuconsole.model.resources import is_mig
from gpuconsole.model.scan import changes
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload

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
    UNKNOWN = "unknown"
    """Nobody is seen to have it, but not every pod is seen."""


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
        """GPUs that are seen to do work."""
        return self.counts[GpuState.OWN] + self.counts[GpuState.BORROWED]


def gpu_rows(snapshot: Snapshot) -> tuple[GpuRow, ...]:
    """Map every node, in the order in which they joined; nodes without GPUs have no cells.

    A live cluster does not tell which GPUs of its node a pod has. Where telemetry names the owner of a GPU, that is it;
    all other pods keep what was guessed if that is free, or are given the lowest free indices, and such cells say
    `assumed`. Of a workload that borrows some of its GPUs, the first pods' are drawn as own, the last as borrowed.
    Rows of nodes where nothing changed since the last call are the same objects.
    """
    return gpu_map(snapshot).rows


class GpuMap:
    """The map of one Snapshot, with what it was drawn from."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.nodes = snapshot.nodes
        self.telemetry = snapshot.telemetry
        self.workloads = snapshot.workloads
        self.where = whereabouts(snapshot)
        self.free = GpuState.IDLE if snapshot.seen.all_of(Pod) else GpuState.UNKNOWN
        """What GPUs are that no pod is seen to have."""
        self.own = _own_parts(snapshot)
        self.incomplete = frozenset(gang.key for gang in waiting_gangs(snapshot))
        """Gangs too few of whose pods have nodes."""
        self.nominated: Counter[str] = Counter()
        for pod in self.where.waiting.values():
            if pod.nominated_node:
                self.nominated[pod.nominated_node] += pod_gpus(pod.template)
        self.by_node: dict[str, GpuRow] = {}
        self.rows: tuple[GpuRow, ...] = ()

    def draw(self, old: "GpuMap | None") -> None:
        """Draw all rows; those that look as in an older map are taken from there."""
        kept = old.by_node if old is not None else {}
        stale = self._stale(old) if old is not None else set()
        if old is not None and old.nodes is self.nodes:
            self.by_node = {**kept, **{name: self._row(self.nodes[name]) for name in stale if name in kept}}
        else:
            for node in self.nodes.all():
                row = kept.get(node.name)
                self.by_node[node.name] = self._row(node) if row is None or node.name in stale else row
        self.rows = tuple(self.by_node.values())

    def _stale(self, old: "GpuMap") -> set[str]:
        """Nodes that look different: they changed, their pods did, or what their pods' cells are drawn from."""
        before, after = old.where.by_node, self.where.by_node
        if old.free is not self.free:
            return set(self.nodes)
        stale = {name for name, pods in after.items() if before.get(name) is not pods}
        stale |= {node.name for node in changes(old.nodes.rows, self.nodes.rows)[1]}
        stale |= {name for name in old.nominated | self.nominated if old.nominated[name] != self.nominated[name]}
        gangs = old.incomplete ^ self.incomplete
        gone, come = changes(old.workloads.rows, self.workloads.rows)
        # Of a workload the cells show who it is and its queue, and nothing else that changes while it waits and runs.
        owners = {key for key, _ in _queues(gone) ^ _queues(come)}
        stale |= told_otherwise(old.telemetry, self.telemetry)
        charged = {key for key, _ in old.own.items() ^ self.own.items()}
        known = [self.where.of(key) for key in owners if key in self.where.by_workload]
        stale |= {pod.node for pods in known for pod in pods.values()}
        if gangs or charged:
            for name, pods in after.items():
                if name not in stale and any(
                    pod.key in charged or (pod.gang and gang_key(pod) in gangs) for pod in pods.values()
                ):
                    stale.add(name)
        return stale

    def _row(self, node: Node) -> GpuRow:
        pods = self.where.on(node.name).values()
        cells: list[GpuCell | None] = [None] * min(node.gpus, MOST_CELLS)
        known = known_seats(pods, self.telemetry.get(node.name), len(cells))
        # Pods whose GPUs are known come first; guesses take what is left, always in the same order.
        for pod in sorted(pods, key=lambda pod: (not known[pod.key], not pod.gpus, pod.bound, pod.key)):
            self._place(pod, node, cells, known[pod.key])
        nominated = self.nominated[node.name]
        drawn = []
        for index, cell in enumerate(cells):
            if cell is None:
                cell = GpuCell(index, self._free(node, nominated > 0))
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

    def _place(self, pod: Pod, node: Node, cells: list[GpuCell | None], indices: tuple[int, ...]) -> None:
        assumed = not indices
        if assumed:
            indices = guessed_seats(pod, [index for index, cell in enumerate(cells) if cell is None])
        workload = self.workloads.get(pod.workload)
        queue = workload.cluster_queue if workload is not None else ""
        owner = pod.workload or pod.job
        own = self.own.get(pod.key, len(indices))
        for nth, index in enumerate(indices):
            if 0 <= index < len(cells):
                state = self._state(pod, node, nth < own)
                cells[index] = GpuCell(index, state, pod.key, owner, queue, pod.bound, assumed)

    def _state(self, pod: Pod, node: Node, own: bool) -> GpuState:
        if not node.ready:
            return GpuState.FAULT
        if gang_key(pod) in self.incomplete or pod.phase == PodPhase.PENDING:
            return GpuState.HELD
        return GpuState.OWN if own else GpuState.BORROWED

    def _free(self, node: Node, nominated: bool) -> GpuState:
        if not node.ready:
            return GpuState.FAULT
        return GpuState.HELD if node.unschedulable or nominated else self.free


_kept: list[GpuMap] = []


def gpu_map(snapshot: Snapshot) -> GpuMap:
    """The map of a Snapshot, drawn on top of the last one."""
    old = _kept[0] if _kept else None
    new = GpuMap(snapshot)
    if (
        old is not None
        and old.nodes is new.nodes
        and old.workloads is new.workloads
        and old.where is new.where
        and old.own is new.own
        and old.free is new.free
        and old.incomplete == new.incomplete
        and not told_otherwise(old.telemetry, new.telemetry)
    ):
        # What GPUs measure changes all the time, and is nothing to the map.
        old.telemetry = new.telemetry
        return old
    new.draw(old)
    _kept[:] = [new]
    return new


@once("pods", "workloads", "local_queues", "cluster_queues")
def _own_parts(snapshot: Snapshot) -> dict[str, int]:
    """Pod of a borrowing workload → how many of its GPUs are its queue's own; the first pods come first."""
    borrowed = borrowed_gpus(snapshot)
    if not borrowed:
        return {}
    where = whereabouts(snapshot)
    parts: dict[str, int] = {}
    for key, beyond in borrowed.items():
        left = held_gpus(snapshot.workloads[key]) - beyond
        members = [pod for pod in where.of(key).values() if pod.node]
        for pod in sorted(members, key=lambda pod: (pod.pod_set, pod.index, pod.key)):
            wanted = len(pod.gpus) or pod_gpus(pod.template)
            parts[pod.key] = max(0, min(left, wanted))
            left -= wanted
    return parts


def _queues(workloads: Iterable[Workload]) -> set[tuple[str, str]]:
    return {(workload.key, workload.cluster_queue) for workload in workloads}


def _mig(node: Node, pods: Iterable[Pod]) -> tuple[MigCount, ...]:
    totals = {name: amount for name, amount in node.allocatable.items() if is_mig(name)}
    if not totals:
        return ()
    used: Counter[str] = Counter()
    for pod in pods:
        used.update({name: amount for name, amount in pod.template.requests.items() if name in totals})
    return tuple(MigCount(name.partition("mig-")[2], total, used[name]) for name, total in sorted(totals.items()))
