"""A node of a session: idle, releasing and used resources, its tasks, and its shared GPUs (KAI 0.13 api/node_info).

GPUs that several tasks share are accounted by memory in MiB (`SharedGpus`, gpu_sharing_node_info); `add_shared` and
`remove_shared` keep them consistent with the node's whole GPUs. The last functions match nodes by labels, taints and
conditions, as in kube-scheduler.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping

from msgspec.structs import replace

from gpuconsole.model.cluster import Node
from gpuconsole.model.labels import Taint
from gpuconsole.scheduling.kai.api.tasks import (
    ACTIVE_USED,
    MIG_PREFIX,
    GpuRequestType,
    KaiPodStatus,
    PodInfo,
    ResourceAmounts,
    ResourceRequirements,
    TaskSpec,
    fits_whole_devices,
    fits_without_gpus,
    mig_slices,
    new_request,
)


def add_shared(node: KaiNodeInfo, task: PodInfo) -> None:
    """Allocate a task's portion of each of its shared GPUs; the first user of a GPU takes it from the idle GPUs."""
    if task.received_type is not GpuRequestType.FRACTION:
        return
    memory = node.memory_of(task.request)
    for group in task.groups:
        _add_memory(node, task.status, group, memory)


def _add_memory(node: KaiNodeInfo, status: KaiPodStatus, group: str, memory: int) -> None:
    shared = node.shared
    shared.add_memory(shared.used, group, memory)
    match status:
        case KaiPodStatus.RELEASING:
            shared.add_memory(shared.releasing, group, memory)
            shared.add_memory(shared.allocated, group, memory)
            if shared.used[group] == shared.releasing[group]:
                if group not in shared.counted_releasing:
                    node.releasing.gpus += 1
                    shared.counted_releasing.add(group)
                if _is_overbooked(node):
                    node.idle.gpus -= 1
        case KaiPodStatus.PIPELINED:
            shared.add_memory(shared.releasing, group, -memory)
            if shared.used[group] - memory == shared.releasing[group] + memory:
                node.releasing.gpus -= 1
        case _:
            shared.add_memory(shared.allocated, group, memory)
            if shared.used[group] <= memory and _is_overbooked(node):
                node.idle.gpus -= 1
            if group in shared.counted_releasing:
                node.releasing.gpus -= 1
                shared.counted_releasing.discard(group)


def remove_shared(node: KaiNodeInfo, task: PodInfo) -> None:
    """Release a task's portion of each of its shared GPUs; the last user of a GPU leaves it idle."""
    if task.received_type is not GpuRequestType.FRACTION:
        return
    memory = node.memory_of(task.request)
    for group in task.groups:
        _remove_memory(node, task.status, group, memory)


def _remove_memory(node: KaiNodeInfo, status: KaiPodStatus, group: str, memory: int) -> None:
    shared = node.shared
    shared.add_memory(shared.used, group, -memory)
    match status:
        case KaiPodStatus.RELEASING:
            shared.add_memory(shared.releasing, group, -memory)
            shared.add_memory(shared.allocated, group, -memory)
            if shared.used[group] <= 0:
                if not _is_overbooked(node):
                    node.idle.gpus += 1
                if group in shared.counted_releasing:
                    node.releasing.gpus -= 1
                    shared.counted_releasing.discard(group)
        case KaiPodStatus.PIPELINED:
            shared.add_memory(shared.releasing, group, memory)
            if _was_pipelined_to_whole_gpu(node, group, memory):
                node.releasing.gpus += 1
        case _:
            shared.add_memory(shared.allocated, group, -memory)
            if shared.used[group] <= 0 and not _is_overbooked(node):
                node.idle.gpus += 1
            if shared.is_releasing(group) and group not in shared.counted_releasing:
                node.releasing.gpus += 1
                shared.counted_releasing.add(group)


def _was_pipelined_to_whole_gpu(node: KaiNodeInfo, group: str, memory: int) -> bool:
    """True if the pipelined task had the whole GPU's release to itself."""
    used, releasing = node.shared.used[group], node.shared.releasing[group]
    return used + memory == releasing - memory or (used == 0 and releasing == 0)


def _is_overbooked(node: KaiNodeInfo) -> bool:
    """True if idle and used GPUs exceed the node's GPU count."""
    return node.gpu_count < int(node.idle.gpus) + int(node.used.gpus) + node.shared.count


def count_fitting_shared(node: KaiNodeInfo, request: ResourceRequirements) -> int:
    """How many shared GPUs fit the request, at most as many as it needs."""
    return min(sum(fits_shared(node, request, group) for group in node.shared.used), request.count)


def fits_shared(node: KaiNodeInfo, request: ResourceRequirements, group: str) -> bool:
    """True if the shared GPU stays in use and has enough memory left once all terminating tasks are gone."""
    shared = node.shared
    allocated, releasing = shared.allocated.get(group, 0), shared.releasing.get(group, 0)
    return (
        shared.used.get(group, 0) != 0
        and node.gpu_memory - allocated + releasing - node.memory_of(request) >= 0
        and allocated != releasing
    )


def fits_shared_idle(node: KaiNodeInfo, request: ResourceRequirements, group: str) -> bool:
    """True if the shared GPU has enough memory left for the request now."""
    allocated = node.shared.allocated.get(group)
    return allocated is not None and node.gpu_memory - allocated - node.memory_of(request) >= 0


def idle_shared_gpus(node: KaiNodeInfo) -> float:
    """Unallocated part of the node's shared GPUs, in GPUs."""
    return sum(1 - node.fraction_of_gpu(memory) for memory in node.shared.allocated.values() if memory > 0)


def idle_shared_gpu_memory(node: KaiNodeInfo) -> int:
    """Unallocated memory of the node's shared GPUs, in MiB."""
    return sum(node.gpu_memory - memory for memory in node.shared.allocated.values() if memory > 0)


def releasing_shared_gpus(node: KaiNodeInfo) -> float:
    """Releasing part of shared GPUs that stay in use, in GPUs."""
    return sum(node.fraction_of_gpu(memory) for memory in _releasing_memory(node))


def releasing_shared_gpu_memory(node: KaiNodeInfo) -> int:
    """Releasing memory of shared GPUs that stay in use, in MiB."""
    return sum(_releasing_memory(node))


def _releasing_memory(node: KaiNodeInfo) -> list[int]:
    shared = node.shared
    return [memory for group, memory in shared.releasing.items() if memory > 0 and not shared.is_releasing(group)]


class SharedGpus:
    """The memory of each shared GPU of a node that is used, releasing and allocated, in MiB. Mutates.

    A GPU is identified by the name of its sharing group. `used` counts all its tasks, `allocated` all but pipelined
    ones, `releasing` the terminating ones less the pipelined ones. `counted_releasing` has GPUs that count as wholly
    releasing.
    """

    def __init__(self) -> None:
        self.used: dict[str, int] = {}
        self.releasing: dict[str, int] = {}
        self.allocated: dict[str, int] = {}
        self.counted_releasing: set[str] = set()

    @property
    def count(self) -> int:
        """Number of shared GPUs in use."""
        return sum(memory > 0 for memory in self.used.values())

    def is_releasing(self, group: str) -> bool:
        """True if everything in use on the GPU is being released, so that the GPU will be idle."""
        used = self.used.get(group, 0)
        return used != 0 and self.releasing.get(group) == used

    def add_memory(self, ledger: dict[str, int], group: str, memory: int) -> None:
        """Add memory, perhaps negative, to a GPU's entry in one of the three dictionaries."""
        ledger[group] = ledger.get(group, 0) + memory


DEFAULT_GPU_MEMORY = 100
"""MiB assumed for a GPU of a node without a readable label."""
GPU_MEMORY_LABEL = "nvidia.com/gpu.memory"
GPU_COUNT_LABEL = "nvidia.com/gpu.count"
MIG_ENABLED_LABEL = "node-role.kubernetes.io/mig-enabled"
MIG_STRATEGY_LABEL = "nvidia.com/mig.strategy"
RESERVATION_APP = "kai-resource-reservation"
"""Value of the label `app` on KAI's pods that reserve a GPU for sharing."""
_TIB_IN_MIB = 1024 * 1024


class KaiNodeInfo:
    """A node: its idle, releasing and used resources, its tasks by uid, and its shared GPUs. Mutates."""

    def __init__(self, node: Node, allocatable: ResourceAmounts, *, gpu_memory: int | None = None) -> None:
        self.node = node
        self.name = node.name
        self.allocatable = allocatable
        self.idle = allocatable.copy()
        self.releasing = ResourceAmounts()
        self.used = ResourceAmounts()
        self.tasks: dict[str, PodInfo] = {}
        read = gpu_memory_of(node.labels) if gpu_memory is None else gpu_memory
        self.has_gpu_memory_label = read is not None
        self.gpu_memory = DEFAULT_GPU_MEMORY if read is None else read
        """MiB of each GPU, a multiple of 100; `DEFAULT_GPU_MEMORY` if unknown."""
        self.legacy_mig: dict[str, str] = {}
        self.dra_gpus = False
        """True if the node's GPUs are offered only by ResourceSlices."""
        self.shared = SharedGpus()
        self.changes: list[str] = []
        """Names of changed nodes in order, one entry for each change; a session shares the list among its nodes."""
        self._cached_key: Hashable = None

    def add_dra_gpus(self, gpus: float) -> None:
        """Add GPUs that ResourceSlices offer to the node's resources."""
        if gpus > 0:
            self.allocatable.gpus += gpus
            self.idle.gpus += gpus

    @property
    def equivalence_key(self) -> Hashable:
        """Key that is equal for equal nodes: a task without a node or label selection fits all of them or none."""
        if self._cached_key is None:
            self._cached_key = self._equivalence_key()
        return self._cached_key

    def _equivalence_key(self) -> Hashable:
        if self.shared.used or self.legacy_mig:
            return self.name, len(self.changes)
        node, labels = self.node, self.node.labels
        return (
            *(self.allocatable.key, self.idle.key, self.releasing.key),
            *(self.gpu_memory, self.has_gpu_memory_label, self.dra_gpus, node.taints, node.unschedulable, node.ready),
            *(labels.get(GPU_COUNT_LABEL), labels.get(MIG_ENABLED_LABEL), labels.get(MIG_STRATEGY_LABEL)),
            tuple(node.conditions.items()),
        )

    # Free resources

    def idle_or_releasing(self) -> ResourceAmounts:
        """Idle and releasing resources together."""
        amounts = self.idle.copy()
        amounts.add(self.releasing)
        return amounts

    def idle_or_releasing_of(self, name: str) -> float:
        """Idle and releasing amount of one resource."""
        return self.idle.get(name) + self.releasing.get(name)

    def idle_gpus(self) -> float:
        """Idle GPUs, including MIG slices and the remaining portions of shared GPUs."""
        return idle_shared_gpus(self) + self.idle.gpus + mig_slices(self.idle.scalars)

    def releasing_gpus(self) -> float:
        """Releasing GPUs, including MIG slices and portions of shared GPUs."""
        return releasing_shared_gpus(self) + self.releasing.gpus + mig_slices(self.releasing.scalars)

    def idle_gpu_memory(self) -> int:
        """Memory in MiB of the idle GPUs, including MIG slices and the remaining portions of shared GPUs."""
        whole = self.idle.gpus + mig_slices(self.idle.scalars)
        return idle_shared_gpu_memory(self) + int(whole) * self.gpu_memory

    def releasing_gpu_memory(self) -> int:
        """Memory in MiB of the releasing GPUs, including MIG slices and portions of shared GPUs."""
        whole = self.releasing.gpus + mig_slices(self.releasing.scalars)
        return releasing_shared_gpu_memory(self) + int(whole) * self.gpu_memory

    def is_allocatable(self, task: PodInfo) -> bool:
        """True if the task could start now; best-effort tasks always can."""
        if task.request.is_empty and task.gpu_request_type is not GpuRequestType.MEMORY:
            return True
        return self._fits_in(task, self.idle)

    def is_allocatable_or_pipelinable(self, task: PodInfo) -> bool:
        """True if the task fits idle and releasing resources together, so that it can be pipelined."""
        return self._fits_in(task, self.idle if self.releasing.is_empty else self.idle_or_releasing())

    def _fits_in(self, task: PodInfo, free: ResourceAmounts) -> bool:
        if task.is_fractional:
            return self.fits_devices(task.request, free)
        return self.is_valid_portion(task.request) and fits_whole_devices(free, task.request)

    def fits_devices(self, request: ResourceRequirements, free: ResourceAmounts) -> bool:
        """True if `free` and the shared GPUs have enough devices with the requested portion of each."""
        if not self.is_valid_portion(request) or not fits_without_gpus(free, request):
            return False
        return math.floor(free.gpus) + count_fitting_shared(self, request) >= request.count

    # GPU sizes

    def memory_of(self, request: ResourceRequirements) -> int:
        """MiB that the request takes on each of its GPUs on this node."""
        return request.gpu_memory if request.gpu_memory > 0 else int(request.portion * self.gpu_memory)

    def fraction_of_gpu(self, memory: int) -> float:
        """This memory in MiB as a fraction of one GPU of this node, rounded up to hundredths."""
        return math.ceil(memory / self.gpu_memory * 100) / 100

    def portion_of(self, request: ResourceRequirements) -> float:
        """Fraction that the request takes of each of its GPUs on this node."""
        return self.fraction_of_gpu(request.gpu_memory) if request.gpu_memory > 0 else request.portion

    def is_valid_portion(self, request: ResourceRequirements) -> bool:
        """True if the request's fraction of each GPU is at most 1 or a whole number."""
        portion = self.portion_of(request)
        return portion <= 1 or portion == int(portion)

    def quota_of(self, request: ResourceRequirements) -> float:
        """GPU quota that a request would use on this node; as in KAI, several GPUs count like one."""
        return request_quota(request) if request.mig else self.fraction_of_gpu(self.memory_of(request))

    @property
    def gpu_count(self) -> int:
        """Number of GPUs by the node's label, else by its allocatable GPUs."""
        try:
            return int(self.node.labels[GPU_COUNT_LABEL])
        except (KeyError, ValueError):
            return int(self.allocatable.gpus)

    @property
    def is_mig_enabled(self) -> bool:
        """True if the node's label says so or, without the label, if it has MIG resources."""
        label = self.node.labels.get(MIG_ENABLED_LABEL)
        if label is not None:
            return label in ("1", "t", "T", "TRUE", "true", "True")
        return any(name.startswith(MIG_PREFIX) for name in self.allocatable.scalars)

    @property
    def mig_strategy(self) -> str:
        """The label's `mixed` or `single` on a node with MIG enabled; else `none`."""
        strategy = self.node.labels.get(MIG_STRATEGY_LABEL, "")
        return strategy if self.is_mig_enabled and strategy in ("mixed", "single") else "none"

    @property
    def is_cpu_only(self) -> bool:
        return not self.is_mig_enabled and self.allocatable.gpus <= 0 and not self.dra_gpus

    # Accounting of tasks

    def add_task(self, task: PodInfo, *, allow_more_gpus: bool = False) -> None:
        """Add a task. Raises AlreadyOnNode if it is here, unless it shares GPUs and `allow_more_gpus` is True."""
        self._set_accepted_request(task)
        if task.uid in self.tasks and not (allow_more_gpus and task.received_type is GpuRequestType.FRACTION):
            raise AlreadyOnNode(f"task <{task.namespace}/{task.name}> already on node <{self.name}>")
        if task.legacy_mig:
            self.legacy_mig[task.uid] = f"{task.namespace}/{task.name}"
        self.tasks.pop(task.uid, None)
        self.tasks[task.uid] = task.copy()
        self._account_task(task, 1)
        add_shared(self, task)

    def remove_task(self, uid: str) -> None:
        """Remove a task, with the status and request that it was added with. Raises KeyError if it is not here."""
        task = self.tasks.pop(uid)
        self._account_task(task, -1)
        remove_shared(self, task)

    def update_task(self, task: PodInfo) -> None:
        """Account for a task's new status."""
        self.remove_task(task.uid)
        self.add_task(task)

    def _account_task(self, task: PodInfo, sign: int) -> None:
        self.changes.append(self.name)
        self._cached_key = None
        held = _whole_gpu_resources(task)
        _add_signed(self.used, held, sign)
        match task.status:
            case KaiPodStatus.RELEASING:
                _add_signed(self.releasing, held, sign)
                _add_signed(self.idle, held, -sign)
            case KaiPodStatus.PIPELINED:
                _add_signed(self.releasing, held, -sign)
            case _:
                _add_signed(self.idle, held, -sign)

    def _set_accepted_request(self, task: PodInfo) -> None:
        """Set how the task receives GPUs on this node, and the request that the node accounts for it."""
        if task.status not in ACTIVE_USED:
            return
        request = task.request
        if task.gpu_request_type is GpuRequestType.MIG:
            task.received_type = GpuRequestType.MIG
            task.accepted_request = replace(request, count=0, portion=0, gpu_memory=0, claims={})
        elif task.is_fractional:
            task.received_type = GpuRequestType.FRACTION
            portion, memory = self.portion_of(request), self.memory_of(request)
            task.accepted_request = replace(request, portion=portion, gpu_memory=memory, claims={}, mig={})
        else:
            task.received_type = GpuRequestType.REGULAR
            plain = new_request(request.gpus)
            task.accepted_request = replace(request, count=plain.count, portion=plain.portion, gpu_memory=0, mig={})


class AlreadyOnNode(ValueError):
    """The task is on the node already."""


def request_quota(request: ResourceRequirements) -> float:
    """GPUs of quota that a request takes: MIG slices, devices of claims and GPUs."""
    return mig_slices(dict(request.mig)) + request.dra_gpus + request.gpus


def _whole_gpu_resources(task: PodInfo) -> ResourceAmounts:
    """The part of the accepted request that is not on shared GPUs."""
    accepted = task.accepted_request
    holds_none = task.received_type is GpuRequestType.FRACTION or task.spec.labels.get("app") == RESERVATION_APP
    gpus = 0.0 if holds_none else accepted.gpus + accepted.dra_gpus
    return ResourceAmounts(accepted.cpu, accepted.memory, gpus, {**accepted.mig, **accepted.scalars})


def _add_signed(amounts: ResourceAmounts, other: ResourceAmounts, sign: int) -> None:
    if sign > 0:
        amounts.add(other)
    else:
        amounts.subtract(other)


def gpu_memory_of(labels: Mapping[str, str]) -> int | None:
    """Memory of one GPU in MiB by the node's label, rounded down to 100; None without a readable label.

    Values of at least 1024² are taken as bytes.
    """
    try:
        memory = int(labels.get(GPU_MEMORY_LABEL, ""))
    except ValueError:
        return None
    if memory >= _TIB_IN_MIB:
        memory //= _TIB_IN_MIB
    return memory - memory % 100


_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")


def node_matches_selector(spec: TaskSpec, node: Node) -> bool:
    """True if the node has every label of the selector and, where there is an affinity, matches one of its terms."""
    if any(node.labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    return spec.affinity is None or any(term.matches(node.labels, node.name) for term in spec.affinity)


def untolerated_taint(spec: TaskSpec, node: Node) -> Taint | None:
    """The first NoSchedule or NoExecute taint that the pod does not tolerate; None if there is none."""
    for taint in node.taints:
        if taint.keeps_pods_away and not any(t.tolerates(taint) for t in spec.tolerations):
            return taint
    return None


def is_node_ready(node: Node) -> bool:
    """True if the node is ready, not cordoned, and has no pressure or network condition."""
    return node.ready and not node.unschedulable and not (node.conditions and not_ready_conditions(node))


def not_ready_conditions(node: Node) -> tuple[str, ...]:
    """Why the node is not ready for any pod; empty if it is ready."""
    reasons = []
    if node.unschedulable:
        reasons.append("node is unschedulable")
    if not node.ready:
        reasons.append("node has NotReady condition")
    reasons += [f"node has {name} condition" for name in _PRESSURES if node.conditions.get(name)]
    return tuple(reasons)
