"""Devices of dynamic resource allocation (resource.k8s.io/v1), and the units in which accelerators are counted.

First the objects: device classes, claims, and the devices that drivers offer in ResourceSlices; amounts are integers in
base units, rounded up. Then `DeviceUnit`: whole GPUs, MIG instances, replicas of shared GPUs, DRA devices.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct, field

from gpuconsole.model.clock import Time
from gpuconsole.model.gpus.sharing import SharingKind, replicas
from gpuconsole.model.labels import NO_LABELS, ClusterScopedObject, NamespacedObject, NodeTerm, Taint, Toleration
from gpuconsole.model.resources import GPU_RESOURCES, MIG_PREFIX, is_mig

EXACT_COUNT = "ExactCount"
NO_COUNTERS: Mapping[str, int] = {}


class Version(Struct, frozen=True):
    """Semantic version, as the value of a device attribute."""

    version: str


Attribute = bool | int | str | Version | None
"""Value of a device attribute; None if it is of a type that selectors cannot read."""


class DeviceClass(ClusterScopedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Class of devices: those that match its CEL expressions. An empty expression stands for a selector that is not
    CEL.
    """

    name: str
    uid: str = ""
    created: Time = 0
    selectors: tuple[str, ...] = ()
    extended_resource: str = ""
    """Pods that request this extended resource get devices of the class."""


class DeviceRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request of a claim: a number of devices of a class, or alternatives of such requests."""

    name: str = ""
    exactly: bool = True
    """True if it has an exact request (`exactly`; in v1beta1 the fields of one)."""
    alternatives: bool = False
    """True if it states alternatives (firstAvailable), even if their list is empty."""
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


class ResourceClaimTemplate(NamespacedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Template of a claim that is created for each pod."""

    namespace: str
    name: str
    uid: str = ""
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = field(default=(), name="likenesses")


class ResourceClaim(NamespacedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
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
    """Amounts that it consumes of each counter set that it shares with other devices."""
    counter_sets: tuple[str, ...] = ()
    """Names of these counter sets, in the same order."""
    taints: tuple[Taint, ...] = ()
    node: str = ""
    nodes: tuple[NodeTerm, ...] | None = None
    """Terms for its nodes, if its slice leaves them to each device."""
    everywhere: bool = False


class ResourceSlice(ClusterScopedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Devices of a driver's pool, or a part of them: the pool is complete when all its slices exist."""

    name: str
    uid: str = ""
    driver: str = ""
    pool: str = ""
    generation: int = 0
    pool_slices: int = 1
    devices: tuple[Device, ...] = ()
    node: str = ""
    """Node that has the devices; empty if one of the next three fields states the nodes."""
    nodes: tuple[NodeTerm, ...] | None = None
    """Terms for the nodes that can use the devices, any of which must match (nodeSelector)."""
    everywhere: bool = False
    """True if all nodes can use them (allNodes)."""
    each: bool = False
    """True if each device states its own nodes (perDeviceNodeSelection)."""
    counter_sets: Mapping[str, Mapping[str, int]] = {}
    """Counters that devices of the pool share, by set, with their totals."""


SHARED_SUFFIX = ".shared"
"""Suffix of resources that the device plugin renames because they are shared (`renameByDefault`)."""


class UnitKind(StrEnum):
    """Kind of accelerator unit; the value is its name in messages, in the singular."""

    GPU = "GPU"
    MIG = "MIG instance"
    TIME_SLICED = "time-sliced replica"
    MPS = "MPS replica"
    SHARED = "shared replica"
    """The cluster does not say whether by time-slicing or MPS."""
    DRA = "DRA device"


class DeviceUnit(Struct, frozen=True, order=True):
    """Unit of accelerators that a pod is allocated as a whole."""

    kind: UnitKind
    profile: str = ""
    """Profile of a MIG instance, such as `1g.10gb`; else empty."""

    @property
    def noun(self) -> str:
        """The unit in the singular: `GPU`, `MIG 1g.10gb instance`, `time-sliced replica`; a plural adds an s."""
        return f"MIG {self.profile} instance" if self.profile else self.kind.value

    @property
    def short(self) -> str:
        """The unit in a narrow column: `GPU`, `1g.10gb`, `replica`, `device`."""
        return self.profile or self.kind.value.rpartition(" ")[2]


WHOLE_GPU = DeviceUnit(UnitKind.GPU)
DRA_DEVICE = DeviceUnit(UnitKind.DRA)
ANY_DEVICE = "device"
"""Name for units of several kinds together."""
Units = Mapping[DeviceUnit, int]
NO_UNITS: Units = {}


def is_counted(resource: str) -> bool:
    """True for extended resources whose amounts are accelerators: GPUs, replicas of them, MIG instances."""
    return resource in GPU_RESOURCES or is_mig(resource)


def accelerators(amounts: Mapping[str, int]) -> int:
    """Return the total of GPUs, replicas and MIG instances."""
    return sum(amount for name, amount in amounts.items() if is_counted(name))


def unit_of(resource: str, labels: Mapping[str, str] = NO_LABELS) -> DeviceUnit:
    """Return the unit of an accelerator resource on a node with these labels.

    The labels are those of NVIDIA's GPU feature discovery: under the MIG strategy `single` instances are offered as
    `nvidia.com/gpu`, and shared GPUs keep that name unless they are renamed.
    """
    base = resource.removesuffix(SHARED_SUFFIX)
    if resource != base or replicas(labels, resource) > 1:
        return DeviceUnit(_sharing(labels.get(f"{base}.sharing-strategy", "")))
    if is_mig(resource):
        return DeviceUnit(UnitKind.MIG, resource.removeprefix(MIG_PREFIX))
    product = labels.get(f"{resource}.product", "")
    if labels.get("nvidia.com/mig.strategy") == "single" and "-MIG-" in product:
        return DeviceUnit(UnitKind.MIG, product.partition("-MIG-")[2].removesuffix("-SHARED"))
    return WHOLE_GPU


def _sharing(strategy: str) -> UnitKind:
    match strategy:
        case SharingKind.TIME_SLICING:
            return UnitKind.TIME_SLICED
        case SharingKind.MPS:
            return UnitKind.MPS
        case _:
            return UnitKind.SHARED


def added(*amounts: Units) -> dict[DeviceUnit, int]:
    """Add amounts up by unit; units with amount 0 are left out."""
    total: dict[DeviceUnit, int] = {}
    for amount in amounts:
        for unit, count in amount.items():
            if count:
                total[unit] = total.get(unit, 0) + count
    return total


def described(amounts: Units) -> str:
    """Format amounts with their units, whole GPUs first: `8 GPUs, 3 MIG 1g.10gb instances`; `0 GPUs` for nothing.

    If there are more than three units, MIG instances of all profiles are added up.
    """
    found = {unit: count for unit, count in amounts.items() if count}
    if len(found) > MOST_UNITS:
        found = by_kind(found)
    return ", ".join(counted_units(found[unit], unit) for unit in sorted(found, key=order_of)) or "0 GPUs"


def in_one_unit(amounts: Units) -> tuple[int, str]:
    """Return the total and its common unit: `8, "GPU"`, `3, "MIG 1g.10gb instance"`.

    The unit is `MIG instance` for several MIG profiles, `device` for several kinds, and `GPU` for nothing.
    """
    found = [unit for unit, count in amounts.items() if count]
    one = common(found) or common(DeviceUnit(unit.kind) for unit in found)
    return sum(amounts.values()), one.noun if one is not None else ANY_DEVICE if found else WHOLE_GPU.noun


def short_plural(noun: str) -> str:
    """Return the plural of a unit for a narrow column: `GPUs`, `MIG`, `replicas`, `devices`."""
    return "MIG" if noun.startswith("MIG ") else f"{noun.rpartition(' ')[2]}s"


def short_amount(count: int, noun: str) -> str:
    """Format an amount for a column of GPUs: `8`, `4 MIG`, `2 rep`, `1 dev`; GPUs have no unit."""
    return str(count) if noun == WHOLE_GPU.noun else f"{count} {short_plural(noun)[:3]}"


def device_cell(count: int, noun: str) -> int | str:
    """Format an amount for a table column: a number for GPUs, so that the column sorts by number, else a string."""
    return count if noun == WHOLE_GPU.noun else short_amount(count, noun)


def order_of(unit: DeviceUnit) -> tuple[int, str]:
    """Sort key of units: whole GPUs first, then the other kinds, by profile."""
    return list(UnitKind).index(unit.kind), unit.profile


MOST_UNITS = 3
"""Most units that `described` lists one by one."""


def counted_units(count: int, unit: DeviceUnit) -> str:
    """Format an amount with its unit: `1 GPU`, `8 GPUs`, `3 MIG 1g.10gb instances`."""
    return f"{count:,} {unit.noun}{'' if count == 1 else 's'}"


def by_kind(amounts: Units) -> dict[DeviceUnit, int]:
    """Add amounts of all MIG profiles up, so that there is one amount for each kind of unit."""
    return added(*({DeviceUnit(unit.kind): count} for unit, count in amounts.items()))


def common(units: Iterable[DeviceUnit]) -> DeviceUnit | None:
    """Return the unit if all are the same; None if they differ or there are none."""
    found = set(units)
    return next(iter(found)) if len(found) == 1 else None
