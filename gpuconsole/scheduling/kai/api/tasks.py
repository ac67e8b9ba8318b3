"""Tasks of a session, and resources: a task is a pod with its request, status and node (KAI 0.13 api/pod_info).

`ClaimIndex` has the session's resource claims: the pods that they are reserved for, and their allocated devices.

`ResourceRequirements` is the request of one task (KAI 0.13 api/resource_info). `ResourceAmounts` are the free resources
of a node or the allocated resources of a job.
"""

import math
import re
from collections.abc import Hashable, Mapping, Sequence
from enum import IntEnum, StrEnum
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.labels import NodeTerm, Toleration

MIN_GPUS = 0.01
_MIN_CPU, _MIN_MEMORY, _MIN_SCALAR = 10, 10 * 1024 * 1024, 10


def gpu_sum(portion: float, count: int) -> float:
    """GPUs that `count` devices with this portion each add up to; the portion is rounded to hundredths."""
    return math.floor(portion * 100 + 0.5) * count / 100


class ResourceRequirements(Struct, frozen=True, kw_only=True):
    """A task's request: CPU in milli, memory in bytes, `count` devices of `portion` GPU or `gpu_memory` MiB each."""

    cpu: float = 0
    memory: float = 0
    scalars: Mapping[str, int] = {}
    count: int = 0
    portion: float = 0
    gpu_memory: int = 0
    claims: Mapping[str, int] = {}
    """Devices by device class, from resource claims."""
    mig: Mapping[str, int] = {}

    @property
    def gpus(self) -> float:
        return gpu_sum(self.portion, self.count)

    @property
    def dra_gpus(self) -> int:
        """GPUs that come from resource claims."""
        return sum(self.claims.values())

    @property
    def is_fractional(self) -> bool:
        return self.gpu_memory > 0 or (self.count > 0 and self.portion < 1)

    @property
    def is_empty(self) -> bool:
        """True if the request is negligible: such a task is best effort."""
        return (
            self.gpus <= MIN_GPUS
            and not any(n > 0 for n in self.claims.values())
            and not any(n > 0 for n in self.mig.values())
            and self.cpu < _MIN_CPU
            and self.memory < _MIN_MEMORY
            and not any(n >= _MIN_SCALAR for n in self.scalars.values())
        )

    def is_within(self, other: "ResourceRequirements") -> bool:
        """True if no part of the request is larger than in `other`; portions may differ by less than a hundredth.

        GPU memory and claims are not compared.
        """
        return (
            self.cpu <= other.cpu
            and self.memory <= other.memory
            and _counts_within(self.scalars, other.scalars)
            and self.count <= other.count
            and (self.portion < other.portion or abs(self.portion - other.portion) < MIN_GPUS)
            and _counts_within(self.mig, other.mig)
        )


def _counts_within(counts: Mapping[str, int], others: Mapping[str, int]) -> bool:
    return all(name in others and n <= others[name] for name, n in counts.items())


class DifferentGpuPortions(ValueError):
    """Requests for different fractions of a GPU have no common maximum."""


def largest_request(one: ResourceRequirements, other: ResourceRequirements) -> ResourceRequirements:
    """The larger of two requests, part by part, with the GPU memory of `one`. Raises PortionsDiffer."""
    if one.portion and other.portion and one.portion != other.portion:
        raise DifferentGpuPortions(f"{one.portion} and {other.portion} of a GPU")
    wider = other if other.gpus > one.gpus else one
    return ResourceRequirements(
        cpu=max(one.cpu, other.cpu),
        memory=max(one.memory, other.memory),
        scalars=_largest(one.scalars, other.scalars),
        count=wider.count,
        portion=wider.portion,
        gpu_memory=one.gpu_memory,
        claims=_largest(one.claims, other.claims),
        mig=_largest(one.mig, other.mig),
    )


def _largest(counts: Mapping[str, int], others: Mapping[str, int]) -> dict[str, int]:
    return {name: max(counts.get(name, n), n) for name, n in (*counts.items(), *others.items())} | {
        name: max(n, others[name]) for name, n in counts.items() if name in others
    }


def new_request(gpus: float, *, cpu: float = 0, memory: float = 0, gpu_memory: int = 0) -> ResourceRequirements:
    """Create a request for this many GPUs: whole ones as devices, less than one as a portion of one device."""
    if gpus >= 1:
        return ResourceRequirements(cpu=cpu, memory=memory, count=int(gpus), portion=1, gpu_memory=gpu_memory)
    count = 1 if gpus > 0 or gpu_memory > 0 else 0
    return ResourceRequirements(cpu=cpu, memory=memory, count=count, portion=gpus, gpu_memory=gpu_memory)


PODS = "pods"
GPU = "nvidia.com/gpu"
CPU = "cpu"
MIG_PREFIX = "nvidia.com/mig-"
_PROFILE = re.compile(r"nvidia\.com/mig-(\d+)g\.(\d+)gb")


def mig_profile(name: str) -> tuple[int, int] | None:
    """(GPU slices, gigabytes) from a MIG resource's name; None if KAI cannot parse it, as with 1g.10gb+me."""
    found = _PROFILE.fullmatch(name)
    return (int(found[1]), int(found[2])) if found else None


def mig_slices(amounts: dict[str, int]) -> float:
    """GPU slices of all MIG resources among these: KAI counts one slice as one GPU of quota."""
    if not any(name.startswith(MIG_PREFIX) for name in amounts):
        return 0.0
    return float(sum(profile[0] * n for name, n in amounts.items() if (profile := mig_profile(name))))


class ResourceAmounts:
    """Resources of a node or job: CPU in milli, memory in bytes, GPUs as a number, others by name. Mutates."""

    __slots__ = ("cpu", "gpus", "memory", "scalars")

    def __init__(
        self, cpu: float = 0, memory: float = 0, gpus: float = 0, scalars: dict[str, int] | None = None
    ) -> None:
        self.cpu, self.memory, self.gpus = cpu, memory, gpus
        self.scalars: dict[str, int] = {} if scalars is None else scalars

    def copy(self) -> "ResourceAmounts":
        """An independent copy."""
        return ResourceAmounts(self.cpu, self.memory, self.gpus, self.scalars.copy())

    @property
    def key(self) -> Hashable:
        return (self.cpu, self.memory, self.gpus, *self.scalars.items())

    @property
    def is_empty(self) -> bool:
        return not (self.cpu or self.memory or self.gpus or self.scalars)

    def add(self, other: "ResourceAmounts") -> None:
        """Add amounts, resource by resource."""
        self._add_signed(other, 1)

    def subtract(self, other: "ResourceAmounts") -> None:
        """Subtract amounts, resource by resource; results may be negative."""
        self._add_signed(other, -1)

    def _add_signed(self, other: "ResourceAmounts", sign: int) -> None:
        self.cpu += sign * other.cpu
        self.memory += sign * other.memory
        self.gpus += sign * other.gpus
        for name, amount in other.scalars.items():
            total = self.scalars.get(name, 0) + sign * amount
            if total:
                self.scalars[name] = total
            else:
                self.scalars.pop(name, None)

    def add_request(self, request: ResourceRequirements, sign: int = 1) -> None:
        """Add a task's request, or subtract it (`sign` -1): MIG instances by name, devices of claims as GPUs."""
        self._add_signed(
            ResourceAmounts(request.cpu, request.memory, request.gpus + request.dra_gpus, dict(request.scalars)), sign
        )
        for name, count in request.mig.items():
            self.scalars[name] = self.scalars.get(name, 0) + sign * count

    def get(self, name: str) -> float:
        """The amount of a resource by its Kubernetes name; 0 if there is none."""
        match name:
            case "cpu":
                return self.cpu
            case "memory":
                return self.memory
            case "nvidia.com/gpu" | "amd.com/gpu":
                return self.gpus
        return float(self.scalars.get(name, 0))

    def is_within(self, other: "ResourceAmounts") -> bool:
        """True if no amount is more than in `other`."""
        return (
            self.gpus <= other.gpus
            and self.cpu <= other.cpu
            and self.memory <= other.memory
            and all(name in other.scalars and n <= other.scalars[name] for name, n in self.scalars.items())
        )

    def set_max(self, other: "ResourceAmounts") -> None:
        """Raise each amount to that in `other`, if that is more."""
        self.cpu, self.memory = max(self.cpu, other.cpu), max(self.memory, other.memory)
        self.gpus = max(self.gpus, other.gpus)
        for name, amount in other.scalars.items():
            self.scalars[name] = max(self.scalars.get(name, amount), amount)

    @property
    def gpu_quota(self) -> float:
        """GPUs and MIG slices together."""
        return self.gpus + mig_slices(self.scalars)

    @property
    def mig(self) -> dict[str, int]:
        return {name: n for name, n in self.scalars.items() if name.startswith(MIG_PREFIX)}


def fits_whole_devices(free: ResourceAmounts, request: ResourceRequirements) -> bool:
    """True if a request for whole GPUs, MIG instances or no GPU at all fits what is free."""
    return (
        fits_without_gpus(free, request)
        and request.gpus + request.dra_gpus <= free.gpus
        and all(name in free.scalars and n <= free.scalars[name] for name, n in request.mig.items())
    )


def fits_without_gpus(free: ResourceAmounts, request: ResourceRequirements) -> bool:
    """True if CPU, memory and other resources fit; GPUs are checked separately."""
    return (
        request.cpu <= free.cpu
        and request.memory <= free.memory
        and all(name in free.scalars and n <= free.scalars[name] for name, n in request.scalars.items())
    )


class KaiPodStatus(IntEnum):
    """Status of a task; KAI derives it from the pod and from the session's decisions."""

    PENDING = 1
    GATED = 2
    ALLOCATED = 3
    """Placed by a statement that is not committed yet."""
    PIPELINED = 4
    """Placed on resources that are still being released."""
    BINDING = 5
    BOUND = 6
    RUNNING = 7
    RELEASING = 8
    SUCCEEDED = 9
    FAILED = 10
    UNKNOWN = 11
    DELETED = 12


ALLOCATED = frozenset({KaiPodStatus.ALLOCATED, KaiPodStatus.BOUND, KaiPodStatus.BINDING, KaiPodStatus.RUNNING})
"""Statuses of tasks that count as their queue's allocation."""
ACTIVE_ALLOCATED = ALLOCATED | {KaiPodStatus.PIPELINED}
"""Statuses of tasks that count towards the minimum of their gang."""
ACTIVE_USED = ACTIVE_ALLOCATED | {KaiPodStatus.RELEASING}
"""Statuses of tasks that hold resources of a node."""
ALIVE = ACTIVE_ALLOCATED | {KaiPodStatus.PENDING, KaiPodStatus.GATED}
"""Statuses of tasks that are neither finished nor terminating."""


class DraDevice(Struct, frozen=True):
    """A device that a node offers through a driver's pool (DRA)."""

    node: str
    driver: str
    pool: str
    name: str


class ClaimDeviceRequest(Struct, frozen=True):
    """A request of a claim: a number of devices of one class."""

    device_class: str
    count: int = 1


class ClaimInfo(Struct, frozen=True, kw_only=True):
    """A ResourceClaim: its requests, the pods it is reserved for, and its allocated devices."""

    namespace: str = ""
    name: str
    labels: Mapping[str, str] = {}
    requests: tuple[ClaimDeviceRequest, ...] = ()
    reserved: tuple[str, ...] = ()
    devices: tuple[DraDevice, ...] | None = None
    """None: nothing is allocated."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def is_gpu_claim(self) -> bool:
        """True if it requests GPUs, by the name of the device class."""
        return any(is_gpu_class(request.device_class) for request in self.requests)


def is_gpu_class(name: str) -> bool:
    """True if the name of a device class or driver contains "gpu": KAI recognizes GPUs by it."""
    return "gpu" in name.lower()


class ClaimIndex:
    """The session's resource claims by `namespace/name`, and the devices that nodes offer. Mutates."""

    def __init__(
        self, claims: Sequence[ClaimInfo] = (), devices: Sequence[DraDevice] = (), classes: Sequence[str] = ()
    ) -> None:
        self.claims = {claim.key: claim for claim in claims}
        self.devices = tuple(devices)
        self.classes = frozenset(classes)

    def find(self, claim: ClaimInfo, node: str) -> tuple[DraDevice, ...] | None:
        """Free devices of the node for the claim; None if there are too few or a device class does not exist."""
        if any(request.device_class not in self.classes for request in claim.requests):
            return None
        taken = {device for held in self.claims.values() for device in held.devices or ()}
        free = [device for device in self.devices if device.node == node and device not in taken]
        needed = sum(request.count for request in claim.requests)
        return tuple(free[:needed]) if len(free) >= needed else None

    def reserve(self, key: str, pod: str, devices: tuple[DraDevice, ...]) -> None:
        """Reserve the claim for a pod, and allocate these devices to it."""
        claim = self.claims[key]
        reserved = claim.reserved if pod in claim.reserved else (*claim.reserved, pod)
        self.claims[key] = replace(claim, reserved=reserved, devices=devices)

    def release(self, key: str, pod: str) -> None:
        """Remove a pod's reservation of the claim; the last one deallocates its devices."""
        claim = self.claims[key]
        reserved = tuple(name for name in claim.reserved if name != pod)
        self.claims[key] = replace(claim, reserved=reserved, devices=claim.devices if reserved else None)


DEFAULT_POD_SET = "default"
NO_OWNER_REFERENCES = Pod(name="")
"""Stands for the Pod object of a task that was created without one."""


class GpuRequestType(StrEnum):
    """How a task requests GPUs."""

    REGULAR = "Regular"
    FRACTION = "Fraction"
    MEMORY = "GpuMemory"
    MIG = "MigInstance"


class ClaimRef(Struct, frozen=True):
    """A resource claim that the pod names; `claim` is the object's name, empty while it does not exist."""

    name: str
    claim: str
    template: bool = False


class TaskSpec(Struct, frozen=True, kw_only=True):
    """The parts of a pod that do not change while it is scheduled."""

    pod: Pod = NO_OWNER_REFERENCES
    """The Pod object, for kube-scheduler's filters that KAI runs: pod affinity, volumes, host ports."""
    labels: Mapping[str, str] = {}
    node_selector: Mapping[str, str] = {}
    affinity: tuple[NodeTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    claims: tuple[ClaimRef, ...] = ()
    nominated: str = ""
    scheduler: str = "kai-scheduler"
    priority_class: str = ""
    priority: int | None = None
    created: Time = 0


NO_POD = ResourceRequirements()
NO_CONSTRAINTS = TaskSpec()


class PodInfo:
    """A task: one pod with its request, status, node and GPUs. Mutates."""

    def __init__(
        self,
        uid: str,
        *,
        job: str = "",
        name: str = "",
        namespace: str = "",
        pod_set: str = "",
        request: ResourceRequirements = NO_POD,
        sort: GpuRequestType = GpuRequestType.REGULAR,
        status: KaiPodStatus = KaiPodStatus.PENDING,
        node: str = "",
        groups: tuple[str, ...] = (),
        legacy_mig: bool = False,
        spec: TaskSpec = NO_CONSTRAINTS,
    ) -> None:
        self.uid, self.job, self.name, self.namespace = uid, job, name or uid, namespace
        self.pod_set = pod_set
        """Empty: the default pod set."""
        self.request, self.gpu_request_type, self.status, self.node, self.spec = request, sort, status, node, spec
        self.accepted_request = NO_POD
        """The request that its node accounts for it."""
        self.received_type: GpuRequestType | None = None
        self.groups = groups
        """Sharing groups (GPUs) that it uses, by name."""
        self.legacy_mig = legacy_mig
        self.is_virtual_status = False
        """True while its status comes from a statement that is not committed."""
        self.devices: Mapping[str, tuple[DraDevice, ...]] = {}
        """Devices of its claims: reference name → devices."""

    def copy(self) -> "PodInfo":
        """A copy."""
        copied = PodInfo.__new__(PodInfo)
        copied.__dict__.update(self.__dict__)
        return copied

    @property
    def set_name(self) -> str:
        return self.pod_set or DEFAULT_POD_SET

    @cached_property
    def equivalence_key(self) -> Hashable:
        """Key that is equal for tasks that fit the same nodes, as far as the nodes' own resources and labels decide."""
        request, spec = self.request, self.spec
        return (
            *(request.cpu, request.memory, request.count, request.portion, request.gpu_memory),
            *(_sorted_items(request.scalars), _sorted_items(request.claims), _sorted_items(request.mig)),
            *(
                self.gpu_request_type,
                self.legacy_mig,
                spec.nominated,
                _sorted_items(spec.node_selector),
                spec.affinity,
                spec.tolerations,
            ),
        )

    @property
    def selects_nodes(self) -> bool:
        """True if the task selects nodes by name or label."""
        return bool(self.spec.nominated or self.spec.node_selector) or self.spec.affinity is not None

    @property
    def is_fractional(self) -> bool:
        """True if it requests a portion of a GPU."""
        return self.gpu_request_type in (GpuRequestType.FRACTION, GpuRequestType.MEMORY)

    @property
    def needs_gpu(self) -> bool:
        return (
            self.request.gpus > 0
            or self.request.dra_gpus > 0
            or self.gpu_request_type is GpuRequestType.MEMORY
            or self.gpu_request_type is GpuRequestType.MIG
        )

    def should_allocate(self, only_pending: bool) -> bool:
        """True if the task has to be placed: it is pending or, unless `only_pending`, evicted by a trial."""
        return self.status is KaiPodStatus.PENDING or (
            not only_pending and self.status is KaiPodStatus.RELEASING and self.is_virtual_status
        )


def _sorted_items(of: Mapping[str, int] | Mapping[str, str]) -> tuple[tuple[str, int | str], ...]:
    return tuple(sorted(of.items()))
