"""Devices of Kubernetes' dynamic resource allocation: classes, claims, and what drivers offer (resource.k8s.io/v1).

Amounts are integers in base units, rounded up.
"""

from collections.abc import Mapping

from msgspec import Struct, field

from gpuconsole.model.clock import Time
from gpuconsole.model.labels import NO_LABELS, NodeTerm, Taint, Toleration

EXACT_COUNT = "ExactCount"
NO_COUNTERS: Mapping[str, int] = {}


class Version(Struct, frozen=True):
    """Attribute that is a semantic version; others are strings, numbers or booleans."""

    version: str


Attribute = bool | int | str | Version | None
"""None is a value of a type that selectors cannot read."""


class DeviceClass(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Class of devices, selected by CEL expressions; an empty one stands for a selector that is not CEL."""

    name: str
    uid: str = ""
    created: Time = 0
    selectors: tuple[str, ...] = ()
    extended_resource: str = ""
    """Pods that request this extended resource get devices of the class."""

    @property
    def key(self) -> str:
        return self.name


class DeviceRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request of a claim."""

    name: str = ""
    exactly: bool = True
    """False if it has no fields of an exact request."""
    alternatives: bool = False
    """True if it has alternatives (firstAvailable)."""
    device_class: str = ""
    mode: str = EXACT_COUNT
    count: int = 1
    admin_access: bool = False
    selectors: tuple[str, ...] = ()
    capacity: Mapping[str, int] = NO_COUNTERS
    """Requested amount of each capacity of a device that several claims share."""
    tolerations: tuple[Toleration, ...] = ()
    """Device taints that it tolerates."""
    options: "tuple[DeviceRequest, ...]" = ()
    """Alternatives, in order of preference."""


class DeviceConstraint(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Attributes that the devices of some requests must share, or in which they must differ."""

    requests: tuple[str, ...] = ()
    """Names of requests; empty means all."""
    same: str = ""
    """Attribute that must have the same value in all devices (matchAttribute)."""
    distinct: str = ""
    """Attribute that must have different values in all devices (distinctAttribute)."""


class AllocatedDevice(Struct, frozen=True):
    """A device allocated to a request of a claim."""

    request: str
    driver: str
    pool: str
    device: str
    shared: bool = False
    """Allocated with admin access: other claims may have it, too."""


class Allocation(Struct, frozen=True):
    """Devices allocated to a claim."""

    devices: tuple[AllocatedDevice, ...] = ()
    nodes: tuple[NodeTerm, ...] | None = None
    """Terms for the nodes that can use the devices, any of which must match; None for all nodes."""


class ResourceClaimTemplate(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Template of a claim that is created for each pod."""

    namespace: str
    name: str
    uid: str = ""
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = field(default=(), name="likenesses")

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class ResourceClaim(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A claim that pods share by name, or that was created for one pod."""

    namespace: str
    name: str
    uid: str = ""
    labels: Mapping[str, str] = NO_LABELS
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = field(default=(), name="likenesses")
    pod: str = ""
    """Pod for which it was created, and with which it is deleted."""
    allocation: Allocation | None = None
    reserved: tuple[str, ...] = ()
    """Pods that use it, `namespace/name`; without any, its devices are free again."""
    deleted: Time = 0

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class CapacityPolicy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Amounts of a capacity that can be requested: one of `values`, or a range in steps."""

    default: int | None = None
    values: tuple[int, ...] = ()
    """In ascending order."""
    least: int | None = None
    most: int | None = None
    step: int | None = None


class DeviceCapacity(Struct, frozen=True, omit_defaults=True):
    """Amount of one capacity of a device, and the policy for requests of it."""

    value: int
    policy: CapacityPolicy | None = None


class Device(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One device, or one partition of a device."""

    name: str
    attributes: Mapping[str, Attribute] = {}
    """By `domain/name`, or by name alone for the driver's domain."""
    capacity: Mapping[str, DeviceCapacity] = {}
    counters: tuple[Mapping[str, int], ...] = ()
    """What it consumes of each counter set that it shares with other devices."""
    counter_sets: tuple[str, ...] = ()
    """Names of those sets, in the same order."""
    taints: tuple[Taint, ...] = ()
    node: str = ""
    nodes: tuple[NodeTerm, ...] | None = None
    """Terms for its nodes, if its slice leaves them to each device."""
    everywhere: bool = False


class ResourceSlice(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Devices of a driver's pool, or a part of them: the pool is complete when all its slices exist."""

    name: str
    uid: str = ""
    driver: str = ""
    pool: str = ""
    generation: int = 0
    pool_slices: int = 1
    devices: tuple[Device, ...] = ()
    node: str = ""
    """Node that has the devices."""
    nodes: tuple[NodeTerm, ...] | None = None
    """Or terms for the nodes that can use them, any of which must match."""
    everywhere: bool = False
    """Or all nodes can use them."""
    each: bool = False
    """Or each device states its nodes."""
    counter_sets: Mapping[str, Mapping[str, int]] = {}
    """Counters that devices of the pool share, by set, with their totals."""

    @property
    def key(self) -> str:
        return self.name
