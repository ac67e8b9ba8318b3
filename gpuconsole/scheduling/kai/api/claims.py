"""Resource claims in a session: the pods that they are reserved for, and their allocated devices. Mutates."""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace


class OfferedDevice(Struct, frozen=True):
    """A device that a node offers, by the pool and driver that it belongs to."""

    node: str
    driver: str
    pool: str
    name: str


class ClaimDeviceRequest(Struct, frozen=True):
    """A number of devices of one class."""

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
    """Claims by `namespace/name`, and the devices of the nodes."""

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
