"""Devices by Kubernetes' dynamic resource allocation: classes, claims, and what drivers offer (resource.k8s.io/v1).

Amounts are integers in base units, rounded up.
"""

from collections.abc import Mapping

from msgspec import Struct, field

from gpuconsole.model.clock import Time
from gpuconsole.model.labels import NO_LABELS, NodeTerm, Taint, Toleration

EXACT_COUNT = "ExactCount"
NO_COUNTERS: Mapping[str, int] = {}


class Version(Struct, frozen=True):
    """An attribute that is a semantic version; any other is a text, a number or a boolean."""

    version: str


Attribute = bool | int | str | Version | None
"""None is a value of a kind that selectors cannot read."""


class DeviceClass(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A kind of device, chosen by CEL selectors; an empty one stands for a selector that is not CEL."""

    name: str
    uid: str = ""
    created: Time = 0
    selectors: tuple[str, ...] = ()
    extended_resource: str = ""
    """Pods that request this resource are given devices of the class."""

    @property
    def key(self) -> str:
        return self.name


class DeviceRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request of a claim."""

    name: str = ""
    exactly: bool = True
    """False where nothing says which devices."""
    alternatives: bool = False
    """Any of several (firstAvailable) instead of exactly this."""
    device_class: str = ""
    mode: str = EXACT_COUNT
    count: int = 1
    admin_access: bool = False
    selectors: tuple[str, ...] = ()
    capacity: Mapping[str, int] = NO_COUNTERS
    """How much of each capacity of a device that several claims share."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints of devices that it puts up with."""
    options: "tuple[DeviceRequest, ...]" = ()
    """The alternatives, the best first."""


class DeviceConstraint(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Attributes that the devices of some requests must share, or in which they must differ."""

    requests: tuple[str, ...] = ()
    """By name; none is all."""
    same: str = ""
    """An attribute of which all have one value (matchAttribute)."""
    distinct: str = ""
    """An attribute of which no two have the same value (distinctAttribute)."""


class AllocatedDevice(Struct, frozen=True):
    """A device allocated to a request of a claim."""

    request: str
    driver: str
    pool: str
    device: str
    shared: bool = False
    """For administrators: others may have it too."""


class Allocation(Struct, frozen=True):
    """Devices allocated to a claim."""

    devices: tuple[AllocatedDevice, ...] = ()
    nodes: tuple[NodeTerm, ...] | None = None
    """Where they can be used: any of the terms; None is everywhere."""


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
    """The pod that it was made for and goes with."""
    allocation: Allocation | None = None
    reserved: tuple[str, ...] = ()
    """The pods that use it, `namespace/name`; without any its devices are free again."""
    deleted: Time = 0

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class CapacityPolicy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Amounts of a capacity that can be requested: one of `values`, or a range in steps."""

    default: int | None = None
    values: tuple[int, ...] = ()
    """Ascending."""
    least: int | None = None
    most: int | None = None
    step: int | None = None


class DeviceCapacity(Struct, frozen=True, omit_defaults=True):
    value: int
    policy: CapacityPolicy | None = None


class Device(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One device, or one partition of a device."""

    name: str
    attributes: Mapping[str, Attribute] = {}
    """By `domain/name`, or by a bare name, whose domain is the driver's."""
    capacity: Mapping[str, DeviceCapacity] = {}
    counters: tuple[Mapping[str, int], ...] = ()
    """What it consumes of each of the counter sets that it shares with other devices."""
    counter_sets: tuple[str, ...] = ()
    """The names of those sets, in the same order."""
    taints: tuple[Taint, ...] = ()
    node: str = ""
    nodes: tuple[NodeTerm, ...] | None = None
    """Where it is, if its slice leaves that to each device."""
    everywhere: bool = False


class ResourceSlice(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Devices of one driver's pool, or a part of them: the pool is complete when all its slices are there."""

    name: str
    uid: str = ""
    driver: str = ""
    pool: str = ""
    generation: int = 0
    pool_slices: int = 1
    devices: tuple[Device, ...] = ()
    node: str = ""
    """The node that has the devices."""
    nodes: tuple[NodeTerm, ...] | None = None
    """Or nodes that reach them: any of the terms."""
    everywhere: bool = False
    """Or all nodes do."""
    each: bool = False
    """Or every device says it itself."""
    counter_sets: Mapping[str, Mapping[str, int]] = {}
    """What devices of the pool share, of each set as much as there is."""

    @property
    def key(self) -> str:
        return self.name
