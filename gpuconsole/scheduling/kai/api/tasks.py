"""A task of a session: a pod with its request, status and node (KAI 0.13 api/pod_info, api/pod_status).

`ClaimIndex` has the session's resource claims: the pods that they are reserved for, and their allocated devices.
"""

from collections.abc import Hashable, Mapping, Sequence
from enum import IntEnum, StrEnum
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.labels import NodeTerm, Toleration
from gpuconsole.scheduling.kai.api.resources import ResourceRequirements


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
