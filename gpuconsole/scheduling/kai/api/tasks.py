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


class OfferedDevice(Struct, frozen=True):
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
    devices: tuple[OfferedDevice, ...] | None = None
    """None: nothing is allocated."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def gpu(self) -> bool:
        """True if it requests GPUs, by the name of the device class."""
        return any(gpu_class(request.device_class) for request in self.requests)


def gpu_class(name: str) -> bool:
    """True if the name of a device class or driver contains "gpu": KAI recognizes GPUs by it."""
    return "gpu" in name.lower()


class ClaimIndex:
    """The session's resource claims by `namespace/name`, and the devices that nodes offer. Mutates."""

    def __init__(
        self, claims: Sequence[ClaimInfo] = (), devices: Sequence[OfferedDevice] = (), classes: Sequence[str] = ()
    ) -> None:
        self.claims = {claim.key: claim for claim in claims}
        self.devices = tuple(devices)
        self.classes = frozenset(classes)

    def find(self, claim: ClaimInfo, node: str) -> tuple[OfferedDevice, ...] | None:
        """Free devices of the node for the claim; None if there are too few or a device class does not exist."""
        if any(request.device_class not in self.classes for request in claim.requests):
            return None
        taken = {device for held in self.claims.values() for device in held.devices or ()}
        free = [device for device in self.devices if device.node == node and device not in taken]
        needed = sum(request.count for request in claim.requests)
        return tuple(free[:needed]) if len(free) >= needed else None

    def reserve(self, key: str, pod: str, devices: tuple[OfferedDevice, ...]) -> None:
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
NO_OWNERS = Pod(name="")
"""Stands for the Pod object of a task that was created without one."""


class Sort(StrEnum):
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


class Spec(Struct, frozen=True, kw_only=True):
    """The parts of a pod that do not change while it is scheduled."""

    pod: Pod = NO_OWNERS
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


NOTHING = ResourceRequirements()
PLAIN = Spec()


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
        request: ResourceRequirements = NOTHING,
        sort: Sort = Sort.REGULAR,
        status: KaiPodStatus = KaiPodStatus.PENDING,
        node: str = "",
        groups: tuple[str, ...] = (),
        legacy_mig: bool = False,
        spec: Spec = PLAIN,
    ) -> None:
        self.uid, self.job, self.name, self.namespace = uid, job, name or uid, namespace
        self.pod_set = pod_set
        """Empty: the default pod set."""
        self.request, self.sort, self.status, self.node, self.spec = request, sort, status, node, spec
        self.accepted = NOTHING
        """The request that its node accounts for it."""
        self.received: Sort | None = None
        self.groups = groups
        """Sharing groups (GPUs) that it uses, by name."""
        self.legacy_mig = legacy_mig
        self.virtual = False
        """True while its status comes from a statement that is not committed."""
        self.devices: Mapping[str, tuple[OfferedDevice, ...]] = {}
        """Devices of its claims: reference name → devices."""

    def clone(self) -> "PodInfo":
        """A copy."""
        twin = PodInfo.__new__(PodInfo)
        twin.__dict__.update(self.__dict__)
        return twin

    @property
    def set_name(self) -> str:
        return self.pod_set or DEFAULT_POD_SET

    @cached_property
    def shape(self) -> Hashable:
        """Key that is equal for tasks that fit the same nodes, as far as the nodes' own resources and labels decide."""
        request, spec = self.request, self.spec
        return (
            *(request.cpu, request.memory, request.count, request.portion, request.gpu_memory),
            *(_items(request.scalars), _items(request.claims), _items(request.mig)),
            *(self.sort, self.legacy_mig, spec.nominated, _items(spec.node_selector), spec.affinity, spec.tolerations),
        )

    @property
    def choosy(self) -> bool:
        """True if the task selects nodes by name or label."""
        return bool(self.spec.nominated or self.spec.node_selector) or self.spec.affinity is not None

    @property
    def shares(self) -> bool:
        """True if it requests a portion of a GPU."""
        return self.sort in (Sort.FRACTION, Sort.MEMORY)

    @property
    def needs_gpu(self) -> bool:
        return self.request.gpus > 0 or self.request.claimed > 0 or self.sort is Sort.MEMORY or self.sort is Sort.MIG

    def to_allocate(self, really: bool) -> bool:
        """True if the task has to be placed: it is pending or, unless `really`, evicted by a trial."""
        return self.status is KaiPodStatus.PENDING or (
            not really and self.status is KaiPodStatus.RELEASING and self.virtual
        )


def _items(of: Mapping[str, int] | Mapping[str, str]) -> tuple[tuple[str, int | str], ...]:
    return tuple(sorted(of.items()))
