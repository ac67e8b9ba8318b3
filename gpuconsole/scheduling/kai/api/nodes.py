"""A node in a session: idle and releasing resources, and its tasks (KAI 0.13 api/node_info)."""

import math
from collections.abc import Hashable, Mapping

from msgspec.structs import replace

from gpuconsole.model.cluster import Node
from gpuconsole.scheduling.kai.api import node_sharing
from gpuconsole.scheduling.kai.api.amounts import MIG_PREFIX, ResourceAmounts, accommodates, mig_slices, plain_part_fits
from gpuconsole.scheduling.kai.api.requests import ResourceRequirements, asking
from gpuconsole.scheduling.kai.api.sharing import SharedGpus
from gpuconsole.scheduling.kai.api.statuses import ACTIVE_USED, KaiPodStatus
from gpuconsole.scheduling.kai.api.tasks import PodInfo, Sort

DEFAULT_GPU_MEMORY = 100
GPU_MEMORY_LABEL = "nvidia.com/gpu.memory"
GPU_COUNT_LABEL = "nvidia.com/gpu.count"
MIG_ENABLED_LABEL = "node-role.kubernetes.io/mig-enabled"
MIG_STRATEGY_LABEL = "nvidia.com/mig.strategy"
RESERVATION = "kai-resource-reservation"
"""Value of the label `app` on KAI's pods that reserve a GPU for sharing."""
_TIB_IN_MIB = 1024 * 1024


class KaiNodeInfo:
    """Idle, releasing and used resources, the tasks by uid, and the GPUs that are shared. Mutates."""

    def __init__(self, node: Node, allocatable: ResourceAmounts, *, gpu_memory: int | None = None) -> None:
        self.node = node
        self.name = node.name
        self.allocatable = allocatable
        self.idle = allocatable.clone()
        self.releasing = ResourceAmounts()
        self.used = ResourceAmounts()
        self.tasks: dict[str, PodInfo] = {}
        read = gpu_memory_of(node.labels) if gpu_memory is None else gpu_memory
        self.gpu_memory_known = read is not None
        self.gpu_memory = DEFAULT_GPU_MEMORY if read is None else read
        """MiB of each GPU, a multiple of 100; `DEFAULT_GPU_MEMORY` if unknown."""
        self.legacy_mig: dict[str, str] = {}
        self.claimed_gpus = False
        """True if the node's GPUs are offered only by ResourceSlices."""
        self.shared = SharedGpus()
        self.changes: list[str] = []
        """Names of changed nodes in order, one entry for each change; a session shares the list among its nodes."""
        self._kind: Hashable = None

    def offer_claimed(self, gpus: float) -> None:
        """Add GPUs that ResourceSlices offer to the node's resources."""
        if gpus > 0:
            self.allocatable.gpus += gpus
            self.idle.gpus += gpus

    @property
    def kind(self) -> Hashable:
        """Key of equal nodes: a task that does not select nodes by name or label fits all of them or none."""
        if self._kind is None:
            self._kind = self._describe()
        return self._kind

    def _describe(self) -> Hashable:
        if self.shared.used or self.legacy_mig:
            return self.name, len(self.changes)
        node, labels = self.node, self.node.labels
        return (
            *(self.allocatable.key, self.idle.key, self.releasing.key),
            *(self.gpu_memory, self.gpu_memory_known, self.claimed_gpus, node.taints, node.unschedulable, node.ready),
            *(labels.get(GPU_COUNT_LABEL), labels.get(MIG_ENABLED_LABEL), labels.get(MIG_STRATEGY_LABEL)),
            tuple(node.conditions.items()),
        )

    # Free resources

    def free(self) -> ResourceAmounts:
        """Idle and releasing resources together."""
        amounts = self.idle.clone()
        amounts.add(self.releasing)
        return amounts

    def free_of(self, name: str) -> float:
        """Idle and releasing amount of one resource."""
        return self.idle.get(name) + self.releasing.get(name)

    def idle_gpus(self) -> float:
        """Idle GPUs, including MIG slices and the remaining portions of shared GPUs."""
        return node_sharing.rest_of_shared(self) + self.idle.gpus + mig_slices(self.idle.scalars)

    def releasing_gpus(self) -> float:
        """Releasing GPUs, including MIG slices and portions of shared GPUs."""
        return node_sharing.releasing_of_shared(self) + self.releasing.gpus + mig_slices(self.releasing.scalars)

    def idle_gpu_memory(self) -> int:
        """Memory in MiB of the idle GPUs, including MIG slices and the remaining portions of shared GPUs."""
        whole = self.idle.gpus + mig_slices(self.idle.scalars)
        return node_sharing.rest_memory_of_shared(self) + int(whole) * self.gpu_memory

    def releasing_gpu_memory(self) -> int:
        """Memory in MiB of the releasing GPUs, including MIG slices and portions of shared GPUs."""
        whole = self.releasing.gpus + mig_slices(self.releasing.scalars)
        return node_sharing.releasing_memory_of_shared(self) + int(whole) * self.gpu_memory

    def fits_idle(self, task: PodInfo) -> bool:
        """True if the task could start now; best-effort tasks always can."""
        if task.request.empty and task.sort is not Sort.MEMORY:
            return True
        return self._fits(task, self.idle)

    def fits(self, task: PodInfo) -> bool:
        """True if the task fits idle and releasing resources."""
        return self._fits(task, self.idle if self.releasing.nothing else self.free())

    def _fits(self, task: PodInfo, free: ResourceAmounts) -> bool:
        if task.shares:
            return self.fits_by_devices(task.request, free)
        return self.valid_portion(task.request) and accommodates(free, task.request)

    def fits_by_devices(self, request: ResourceRequirements, free: ResourceAmounts) -> bool:
        """True if enough devices, whole or shared, have the requested portion free."""
        if not self.valid_portion(request) or not plain_part_fits(free, request):
            return False
        return math.floor(free.gpus) + node_sharing.fitting_shared(self, request) >= request.count

    # GPU sizes

    def memory_of(self, request: ResourceRequirements) -> int:
        """MiB that the request takes on each of its GPUs on this node."""
        return request.gpu_memory if request.gpu_memory > 0 else int(request.portion * self.gpu_memory)

    def fraction(self, memory: int) -> float:
        """This memory in MiB as a fraction of one GPU of this node, rounded up to hundredths."""
        return math.ceil(memory / self.gpu_memory * 100) / 100

    def portion_of(self, request: ResourceRequirements) -> float:
        """Fraction that the request takes of each of its GPUs on this node."""
        return self.fraction(request.gpu_memory) if request.gpu_memory > 0 else request.portion

    def valid_portion(self, request: ResourceRequirements) -> bool:
        """True if that fraction is at most 1 or a whole number."""
        portion = self.portion_of(request)
        return portion <= 1 or portion == int(portion)

    def quota_of(self, request: ResourceRequirements) -> float:
        """GPU quota that the task would use on this node; as in KAI, several GPUs count like one."""
        return request_quota(request) if request.mig else self.fraction(self.memory_of(request))

    @property
    def gpu_count(self) -> int:
        """Number of GPUs by the node's label, else by its allocatable GPUs."""
        try:
            return int(self.node.labels[GPU_COUNT_LABEL])
        except (KeyError, ValueError):
            return int(self.allocatable.gpus)

    @property
    def mig_enabled(self) -> bool:
        """True if the node's label says so or, without the label, if it has MIG resources."""
        label = self.node.labels.get(MIG_ENABLED_LABEL)
        if label is not None:
            return label in ("1", "t", "T", "TRUE", "true", "True")
        return any(name.startswith(MIG_PREFIX) for name in self.allocatable.scalars)

    @property
    def mig_strategy(self) -> str:
        """The label's `mixed` or `single` on a node with MIG enabled; else `none`."""
        strategy = self.node.labels.get(MIG_STRATEGY_LABEL, "")
        return strategy if self.mig_enabled and strategy in ("mixed", "single") else "none"

    @property
    def cpu_only(self) -> bool:
        return not self.mig_enabled and self.allocatable.gpus <= 0 and not self.claimed_gpus

    # Accounting of tasks

    def add(self, task: PodInfo, *, elsewhere: bool = False) -> None:
        """Add a task. Raises AlreadySeated if it is here, unless it shares GPUs and `elsewhere` lets it hold more."""
        self._accept(task)
        if task.uid in self.tasks and not (elsewhere and task.received is Sort.FRACTION):
            raise AlreadySeated(f"task <{task.namespace}/{task.name}> already on node <{self.name}>")
        if task.legacy_mig:
            self.legacy_mig[task.uid] = f"{task.namespace}/{task.name}"
        self.tasks.pop(task.uid, None)
        self.tasks[task.uid] = task.clone()
        self._account(task, 1)
        node_sharing.add_shared(self, task)

    def remove(self, uid: str) -> None:
        """Remove a task, with the status and request that it was added with. Raises KeyError if it is not here."""
        task = self.tasks.pop(uid)
        self._account(task, -1)
        node_sharing.remove_shared(self, task)

    def update(self, task: PodInfo) -> None:
        """Account for a task's new status."""
        self.remove(task.uid)
        self.add(task)

    def _account(self, task: PodInfo, sign: int) -> None:
        self.changes.append(self.name)
        self._kind = None
        held = _whole_part(task)
        _shift(self.used, held, sign)
        match task.status:
            case KaiPodStatus.RELEASING:
                _shift(self.releasing, held, sign)
                _shift(self.idle, held, -sign)
            case KaiPodStatus.PIPELINED:
                _shift(self.releasing, held, -sign)
            case _:
                _shift(self.idle, held, -sign)

    def _accept(self, task: PodInfo) -> None:
        """Set how the task receives GPUs on this node, and the request that the node accounts for it."""
        if task.status not in ACTIVE_USED:
            return
        request = task.request
        if task.sort is Sort.MIG:
            task.received = Sort.MIG
            task.accepted = replace(request, count=0, portion=0, gpu_memory=0, claims={})
        elif task.shares:
            task.received = Sort.FRACTION
            portion, memory = self.portion_of(request), self.memory_of(request)
            task.accepted = replace(request, portion=portion, gpu_memory=memory, claims={}, mig={})
        else:
            task.received = Sort.REGULAR
            plain = asking(request.gpus)
            task.accepted = replace(request, count=plain.count, portion=plain.portion, gpu_memory=0, mig={})


class AlreadySeated(ValueError):
    """The task is on the node already."""


def request_quota(request: ResourceRequirements) -> float:
    """GPUs of quota that a request takes: MIG slices, devices of claims and GPUs."""
    return mig_slices(dict(request.mig)) + request.claimed + request.gpus


def _whole_part(task: PodInfo) -> ResourceAmounts:
    """The part of the accepted request that is not on shared GPUs."""
    accepted = task.accepted
    holds_none = task.received is Sort.FRACTION or task.spec.labels.get("app") == RESERVATION
    gpus = 0.0 if holds_none else accepted.gpus + accepted.claimed
    return ResourceAmounts(accepted.cpu, accepted.memory, gpus, {**accepted.mig, **accepted.scalars})


def _shift(amounts: ResourceAmounts, by: ResourceAmounts, sign: int) -> None:
    if sign > 0:
        amounts.add(by)
    else:
        amounts.subtract(by)


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
