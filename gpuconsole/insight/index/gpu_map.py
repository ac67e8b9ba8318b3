"""The GPU map: one cell for each GPU, MIG instance, replica of a GPU and DRA device, with its owner and state.

The GPU indices of a pod come from the pod, from telemetry, or are guessed. Rows are kept from Snapshot to Snapshot and
drawn again only if their node changed.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.derived import incremental, memoized
from gpuconsole.insight.index.demand import CLAIMED, counted_as, pod_gpus
from gpuconsole.insight.index.demand import held as held_quota
from gpuconsole.insight.index.pods import gang_key, pods_by_node, waiting_gangs
from gpuconsole.insight.sharing.fair_shares import borrowed_parts
from gpuconsole.model.cluster import Node, Pod, PodPhase
from gpuconsole.model.device_requests import NO_DEVICES
from gpuconsole.model.devices import DRA_DEVICE, WHOLE_GPU, DeviceUnit, Units, unit_of
from gpuconsole.model.gpus.mig_reconfiguration import Division, division_of
from gpuconsole.model.prices import gpu_type, is_spot
from gpuconsole.model.resources import is_gpu, is_mig
from gpuconsole.model.snapshot import Snapshot, TableView, row_changes
from gpuconsole.model.telemetry import NodeTelemetry
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.devices.allocator import DraInventory, PublishedDevice

GpuIndices = tuple[int, ...]


def known_gpu_indices(pods: Iterable[Pod], reported: NodeTelemetry | None, gpus: int) -> Mapping[str, GpuIndices]:
    """Map pods to the indices of their whole GPUs on a node with `gpus` GPUs; empty if the indices are unknown.

    The pod's own indices are used, unless they were guessed. Telemetry is used if it names as many GPUs as the pod has:
    a sample taken while a pod starts or ends may name fewer.
    """
    owned: dict[str, GpuIndices] = {}
    for device in reported.devices if reported is not None else ():
        if device.pod and device.instance < 0 and 0 <= device.gpu < gpus:
            owned[device.pod] = (*owned.get(device.pod, ()), device.gpu)
    return {pod.key: _known(pod, owned.get(pod.key, ())) for pod in pods}


def _known(pod: Pod, reported: GpuIndices) -> GpuIndices:
    if pod.gpus and not pod.guessed:
        return pod.gpus
    wanted = _gpu_count(pod)
    return reported if wanted and len(reported) == wanted else ()


def guessed_gpu_indices(pod: Pod, free: Sequence[int]) -> GpuIndices:
    """Guess unknown indices of a pod: the previous guess, so that the pod does not move on the map, then the lowest
    free ones."""
    kept = [index for index in pod.gpus if index in free]
    return tuple(sorted([*kept, *(index for index in free if index not in kept)][: _gpu_count(pod)]))


def _gpu_count(pod: Pod) -> int:
    """Return the number of GPUs that a pod has, or requests if it has none yet."""
    return len(pod.gpus) or pod_gpus(pod.template)


def nodes_with_new_owners(old: TableView[NodeTelemetry], new: TableView[NodeTelemetry]) -> set[str]:
    """Return the nodes whose GPU owners changed in telemetry."""
    if old is new:
        return set()
    gone, come = row_changes(old.rows, new.rows)
    before = {reported.name: reported.devices for reported in gone}
    changed = {reported.name for reported in come if before.pop(reported.name, None) is not reported.devices}
    return changed | before.keys()


CLAIMS = ("device_classes", "resource_claim_templates", "resource_claims")
"""Tables of a Snapshot that the claims of pods depend on (DRA)."""
MOST_CELLS = 1024
"""Maximum GPUs per node; a node that reports more is drawn with this many."""


MOST_SHARED = 4096
"""Maximum different combinations of states of a node's cells that are kept to save memory."""


class GpuState(StrEnum):
    """State of one cell of the GPU map."""

    OWN = "own"
    """In use within nominal quota, or by an unqueued pod."""
    BORROWED = "borrowed"
    """In use above the queue's nominal quota (borrowed)."""
    IDLE = "idle"
    """Available to a new pod."""
    HELD = "held"
    """Not used and not available: its pod is not running yet or its gang is incomplete, it is reserved for a nominated
    pod, or its node is cordoned."""
    FAULT = "fault"
    """Its node is NotReady."""
    UNKNOWN = "unknown"
    """No visible pod has it, but not every pod is visible."""


class GpuCell(Struct, frozen=True):
    """One GPU, or another unit that pods are allocated. The names are empty if it is unallocated."""

    index: int
    """Index of the GPU (or replica) on its node; for other units a number from 0 within the unit."""
    state: GpuState
    pod: str = ""
    workload: str = ""
    """`ns/name` of the Workload, or the key of a job without one."""
    queue: str = ""
    """ClusterQueue."""
    since: int = 0
    """Time at which the pod was bound."""
    assumed: bool = False
    """True if the index is a guess: the cluster does not report which GPUs of the node the pod has."""
    unit: DeviceUnit = WHOLE_GPU
    device: str = ""
    """Name of a DRA device in its pool."""


class MigCount(Struct, frozen=True):
    """MIG instances of one profile on a node; `profile` as in the resource's name, such as `1g.10gb`."""

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
    """GPUs, or what the node offers as GPUs: replicas of shared GPUs, instances under MIG strategy single."""
    counts: Mapping[GpuState, int]
    """Number of `cells` in each state; every state is a key."""
    unit: DeviceUnit = WHOLE_GPU
    """Unit of `cells`."""
    devices: tuple[GpuCell, ...] = ()
    """MIG instances under strategy mixed, and DRA devices."""
    mig: tuple[MigCount, ...]
    pods: int
    """Pods on the node, those without GPUs included."""

    @property
    def gpus(self) -> int:
        """Number of GPUs of the node."""
        return len(self.cells)

    @property
    def used(self) -> int:
        """GPUs that visible pods use."""
        return self.counts[GpuState.OWN] + self.counts[GpuState.BORROWED]

    @property
    def all_cells(self) -> tuple[GpuCell, ...]:
        """All cells that pods of this node can be allocated."""
        return self.cells + self.devices if self.devices else self.cells

    @property
    def by_unit(self) -> Mapping[DeviceUnit, Mapping[GpuState, int]]:
        """Count of devices by unit and state; only units that the node has."""
        if not self.devices:
            return {self.unit: self.counts} if self.cells else {}
        found: dict[DeviceUnit, Counter[GpuState]] = {}
        for cell in self.all_cells:
            found.setdefault(cell.unit, Counter())[cell.state] += 1
        return found

    @property
    def states(self) -> Mapping[GpuState, int]:
        """State → number of units of any kind; every state is a key."""
        if not self.devices:
            return self.counts
        found = Counter(cell.state for cell in self.all_cells)
        return {state: found[state] for state in GpuState}

    @property
    def units(self) -> Units:
        """Number of devices of each unit."""
        return {unit: sum(states.values()) for unit, states in self.by_unit.items()}


def used_of(states: Mapping[GpuState, int]) -> int:
    """Return the number of devices that visible pods use."""
    return states.get(GpuState.OWN, 0) + states.get(GpuState.BORROWED, 0)


def gpu_rows(snapshot: Snapshot) -> tuple[GpuRow, ...]:
    """Draw the row of every node, in the order in which they joined; nodes without accelerators have no cells.

    A live cluster does not report which GPUs of its node a pod has. If telemetry names the owner of a GPU, that is
    used; other pods keep their previous guess if it is free, or get the lowest free indices, and their cells are
    `assumed`. If a workload borrows some of its GPUs, those of its first pods are drawn as nominal, the last as
    borrowed. Rows of unchanged nodes are the same objects as in the last call.
    """
    return gpu_map(snapshot).rows


def dra_devices(snapshot: Snapshot, node: str) -> int:
    """Return the number of DRA devices of a node."""
    if not len(snapshot.resource_slices):
        return 0
    row = gpu_map(snapshot).by_node.get(node)
    return sum(cell.unit == DRA_DEVICE for cell in row.devices) if row is not None else 0


class GpuMapIndex:
    """The GPU map of one Snapshot, with the tables and indexes that it is drawn from."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.nodes = snapshot.nodes
        self.telemetry = snapshot.telemetry
        self.workloads = snapshot.workloads
        self.where = pods_by_node(snapshot)
        self.free = GpuState.IDLE if snapshot.seen.all_of(Pod) else GpuState.UNKNOWN
        """State of GPUs that no visible pod has."""
        self.own = _own_parts(snapshot)
        """(Pod, resource) of a borrowing workload → its amount within nominal quota; whole GPUs are under ``""``."""
        self.incomplete = frozenset(gang.key for gang in waiting_gangs(snapshot))
        """Gangs of which too few pods are scheduled."""
        self.nominated: Counter[tuple[str, str]] = Counter()
        """(Node, resource) → amount reserved for nominated pods; whole GPUs are under ``""``."""
        for pod in self.where.waiting.values():
            if pod.nominated_node:
                self.nominated[pod.nominated_node, ""] += pod_gpus(pod.template)
                for resource, amount in _mig_requests(pod):
                    self.nominated[pod.nominated_node, resource] += amount
        self.slices = snapshot.resource_slices
        self.claims = snapshot.resource_claims
        self.by_node: dict[str, GpuRow] = {}
        self.rows: tuple[GpuRow, ...] = ()
        self._free_cells: dict[tuple[int, GpuState, DeviceUnit], GpuCell] = {}
        """Each unallocated cell once, as most nodes of a cluster have the same ones."""
        self._counts: dict[tuple[GpuState, ...], Mapping[GpuState, int]] = {}
        """States of a node's cells → number of cells in each state."""

    def draw(self, old: "GpuMapIndex | None") -> None:
        """Draw all rows; unchanged rows are taken from the old map."""
        kept = old.by_node if old is not None else {}
        stale = self._stale(old) if old is not None else set()
        if old is not None and len(old._counts) < MOST_SHARED:
            self._free_cells, self._counts = old._free_cells, old._counts
        if old is not None and old.nodes is self.nodes:
            self.by_node = {**kept, **{name: self._row(self.nodes[name]) for name in stale if name in kept}}
        else:
            for node in self.nodes.all():
                row = kept.get(node.name)
                self.by_node[node.name] = self._row(node) if row is None or node.name in stale else row
        self.rows = tuple(self.by_node.values())

    def _stale(self, old: "GpuMapIndex") -> set[str]:
        """Return the nodes to redraw: the node, its pods, or the inputs of their cells changed."""
        before, after = old.where.by_node, self.where.by_node
        if old.free is not self.free:
            return set(self.nodes)
        if old.slices is not self.slices or (len(self.slices) and old.claims is not self.claims):
            return set(self.nodes)
        stale = {name for name, pods in after.items() if before.get(name) is not pods}
        stale |= {node.name for node in row_changes(old.nodes.rows, self.nodes.rows)[1]}
        nominated = old.nominated | self.nominated
        stale |= {key[0] for key in nominated if old.nominated[key] != self.nominated[key]}
        gangs = old.incomplete ^ self.incomplete
        gone, come = row_changes(old.workloads.rows, self.workloads.rows)
        # Cells show only the name and the queue of a workload, which do not change while it is pending or running.
        owners = {key for key, _ in _queues(gone) ^ _queues(come)}
        stale |= nodes_with_new_owners(old.telemetry, self.telemetry)
        charged = {pod for (pod, _), _ in old.own.items() ^ self.own.items()}
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
        unit = _gpu_unit(node)
        known = known_gpu_indices(pods, self.telemetry.get(node.name), len(cells))
        # Pods with known GPUs come first; guesses take the remaining GPUs, always in the same order.
        for pod in sorted(pods, key=lambda pod: (not known[pod.key], not pod.gpus, pod.bound, pod.key)):
            self._place(pod, node, cells, known[pod.key], unit)
        nominated = self.nominated[node.name, ""]
        drawn = []
        for index, cell in enumerate(cells):
            if cell is None:
                state = self._free(node, nominated > 0)
                nominated -= 1
                cell = self._free_cells.get((index, state, unit))
                if cell is None:
                    cell = self._free_cells[index, state, unit] = GpuCell(index, state, unit=unit)
            drawn.append(cell)
        return GpuRow(
            node=node.name,
            gpu_type=gpu_type(node.labels),
            spot=is_spot(node.labels),
            cordoned=node.unschedulable,
            ready=node.ready,
            cells=tuple(drawn),
            counts=self._count(tuple([cell.state for cell in drawn])),
            unit=unit,
            devices=(*self._instances(node, pods), *self._dra_devices(node)),
            mig=_mig(node, pods),
            pods=len(pods),
        )

    def _count(self, states: tuple[GpuState, ...]) -> Mapping[GpuState, int]:
        known = self._counts.get(states)
        if known is None:
            counts = Counter(states)
            known = self._counts[states] = {state: counts[state] for state in GpuState}
        return known

    def _place(
        self, pod: Pod, node: Node, cells: list[GpuCell | None], indices: tuple[int, ...], unit: DeviceUnit
    ) -> None:
        assumed = not indices
        if assumed:
            indices = guessed_gpu_indices(pod, [index for index, cell in enumerate(cells) if cell is None])
        own = self.own.get((pod.key, ""), len(indices))
        for nth, index in enumerate(indices):
            if 0 <= index < len(cells):
                cells[index] = self._owned(index, pod, node, nth < own, assumed, unit)

    def _owned(self, index: int, pod: Pod, node: Node, own: bool, assumed: bool, unit: DeviceUnit) -> GpuCell:
        workload = self.workloads.get(pod.workload)
        queue = workload.cluster_queue if workload is not None else ""
        owner = pod.workload or pod.job
        return GpuCell(index, self._state(pod, node, own), sys.intern(pod.key), owner, queue, pod.bound, assumed, unit)

    def _instances(self, node: Node, pods: Iterable[Pod]) -> Iterator[GpuCell]:
        """The MIG instances that the node offers by profile; their owners are known by the pods' requests."""
        offered = {name: amount for name, amount in node.allocatable.items() if is_mig(name) and amount}
        if not offered:
            return
        held: dict[str, list[tuple[Pod, int]]] = {name: [] for name in offered}
        for pod in sorted(pods, key=lambda pod: (pod.bound, pod.key)):
            for resource, amount in _mig_requests(pod):
                if resource in held:
                    held[resource] += [(pod, nth) for nth in range(amount)]
        division = division_of(node.allocatable, node.labels, node.annotations)
        if division is not None and division.dynamic:
            offered = _dividable(division, {name: len(owners) for name, owners in held.items()})
        for resource, total in sorted(offered.items()):
            owners, unit = held[resource], unit_of(resource, node.labels)
            nominated = self.nominated[node.name, resource]
            for index in range(min(max(total, len(owners)), MOST_CELLS)):
                if index < len(owners):
                    pod, nth = owners[index]
                    own = self.own.get((pod.key, resource), MOST_CELLS)
                    yield self._owned(index, pod, node, nth < own, assumed=True, unit=unit)
                else:
                    yield GpuCell(index, self._free(node, index - len(owners) < nominated), unit=unit)

    @cached_property
    def _stock(self) -> DraInventory:
        return DraInventory(slices=self.slices, claims=self.claims)

    @cached_property
    def _claimed(self) -> Mapping[tuple[str, str, str], Pod]:
        """(Driver, pool, device) → the first pod that uses it."""
        pods = {pod.key: pod for pods in self.where.by_node.values() for pod in pods.values()}
        return {
            (one.driver, one.pool, one.device): pods[claim.reserved[0]]
            for claim in self.claims.all()
            if claim.allocation is not None and claim.reserved and claim.reserved[0] in pods
            for one in claim.allocation.devices
            if not one.shared
        }

    def _dra_devices(self, node: Node) -> Iterator[GpuCell]:
        """The devices of the node's own ResourceSlices; of partitions, those that fit at the same time."""
        if not len(self.slices):
            return
        here = [
            one
            for one in self._stock.published(node)
            if one.node == node.name and one.resource_slice.driver not in NO_DEVICES
        ]
        taken = [one for one in here if one.id in self._claimed]
        seen: Counter[str] = Counter()
        for index, one in enumerate((*taken, *_unallocated(self._stock, here, taken))):
            if index >= MOST_CELLS:
                return
            pod = self._claimed.get(one.id)
            if pod is None:
                cell = GpuCell(index, self._free(node, nominated=False), unit=DRA_DEVICE)
            else:
                own = self.own.get((pod.key, CLAIMED), MOST_CELLS)
                cell = self._owned(index, pod, node, seen[pod.key] < own, assumed=False, unit=DRA_DEVICE)
                seen[pod.key] += 1
            yield replace(cell, device=one.device.name)

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


_NO_MAP: GpuMapIndex | None = None


@incremental(_NO_MAP)
def _gpu_map(snapshot: Snapshot, old: GpuMapIndex | None) -> GpuMapIndex | None:
    new = GpuMapIndex(snapshot)
    if (
        old is not None
        and old.nodes is new.nodes
        and old.workloads is new.workloads
        and old.where is new.where
        and old.own is new.own
        and old.slices is new.slices
        and old.claims is new.claims
        and old.free is new.free
        and old.incomplete == new.incomplete
        and not nodes_with_new_owners(old.telemetry, new.telemetry)
    ):
        # GPU metrics change with every scrape and do not affect the map.
        old.telemetry = new.telemetry
        return old
    new.draw(old)
    return new


def gpu_map(snapshot: Snapshot) -> GpuMapIndex:
    """Return the map of a Snapshot, updated from the previous map."""
    found = _gpu_map(snapshot)
    assert found is not None
    return found


@memoized("pods", "workloads", "local_queues", "cluster_queues", "cohorts", "nodes", *CLAIMS)
def _own_parts(snapshot: Snapshot) -> dict[tuple[str, str], int]:
    """(Pod, resource) of a borrowing workload → its amount within nominal quota; the first pods come first."""
    borrowed = borrowed_parts(snapshot)
    if not borrowed:
        return {}
    where = pods_by_node(snapshot)
    devices = Counter[str]()
    for claim in snapshot.resource_claims.all():
        if claim.allocation is not None and claim.reserved:
            devices[claim.reserved[0]] += len(claim.allocation.devices)
    parts: dict[tuple[str, str], int] = {}
    for key, beyond in borrowed.items():
        workload = snapshot.workloads[key]
        lent = Counter[str]()
        for (_, resource), amount in beyond.items():
            lent[counted_as(resource)] += amount
        members = [pod for pod in where.of(key).values() if pod.node]
        members.sort(key=lambda pod: (pod.pod_set, pod.index, pod.key))
        for name, amount in lent.items():
            left = sum(held for (_, resource), held in held_quota(workload) if counted_as(resource) == name) - amount
            for pod in members:
                wanted = devices[pod.key] if name == CLAIMED else _wanted(pod, name)
                parts[pod.key, name] = max(0, min(left, wanted))
                left -= wanted
    return parts


def _wanted(pod: Pod, name: str) -> int:
    return dict(_mig_requests(pod)).get(name, 0) if name else _gpu_count(pod)


def _mig_requests(pod: Pod) -> list[tuple[str, int]]:
    return [(name, amount) for name, amount in pod.template.requests.items() if is_mig(name)]


def _gpu_unit(node: Node) -> DeviceUnit:
    """Unit of a GPU of this node: whole GPU, replica, or MIG instance."""
    offered = (name for name, amount in node.allocatable.items() if amount and is_gpu(name))
    return next((unit_of(name, node.labels) for name in offered), WHOLE_GPU)


def _dividable(division: Division, owned: Mapping[str, int]) -> dict[str, int]:
    """Return the instances of GPUs with on-demand MIG: those that pods own, and the rest as the smallest profile."""
    geometry = division.geometry
    smallest = min(geometry.plain, key=lambda profile: profile.compute)
    used = sum(
        count * profile.compute for name, count in owned.items() if (profile := geometry.profile_of(name)) is not None
    )
    free = max(0, division.gpus * geometry.compute - used) // smallest.compute
    found = {name: count for name, count in owned.items() if count}
    found[smallest.resource] = found.get(smallest.resource, 0) + free
    return found


def _unallocated(
    stock: DraInventory, here: Sequence[PublishedDevice], taken: Sequence[PublishedDevice]
) -> Iterator[PublishedDevice]:
    """The devices that can still be allocated, those that consume most counters first."""
    pools = {one.id[:2] for one in here}
    places = {one.id for one in taken}
    left = stock.counters_left(pools, places)
    free = [one for one in here if one.id not in places and one.id not in stock.allocated_devices(pools)]
    for one in sorted(free, key=lambda one: -sum(amount for _, amount in one.consumed_counters)):
        consumed = dict(one.consumed_counters)
        if all(left.get(counter, 0) >= amount for counter, amount in consumed.items()):
            for counter, amount in consumed.items():
                left[counter] = left.get(counter, 0) - amount
            yield one


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
