"""Volumes and devices that pods claim, and those that are assumed for pods of this pass. Mutates."""

from typing import Any

from msgspec import Struct

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.devices import Allocation, DeviceClass, ResourceClaim, ResourceSlice
from gpuconsole.model.objects import Object
from gpuconsole.model.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from gpuconsole.scheduling.devices import claims
from gpuconsole.scheduling.devices.dra_inventory import Stock
from gpuconsole.scheduling.kube import volumes
from gpuconsole.scheduling.kube.storage import Storage

Promises = tuple[dict[str, str], dict[str, str], dict[str, Allocation], dict[str, set[str]]]


class AssumedClaims(Struct, frozen=True):
    """Volumes and devices that a pod's claims get on its node."""

    volumes: tuple[tuple[str, str], ...] = ()
    """(claim, volume); the volume is empty if one has to be provisioned."""
    devices: tuple[tuple[str, Allocation], ...] = ()


NOTHING = AssumedClaims()


class ClaimsAndVolumes:
    """Storage and DRA objects by table; `storage` and `stock` show them with what one pass assumes."""

    TABLES = (
        *("storage_classes", "csi_nodes", "persistent_volumes", "persistent_volume_claims"),
        *("device_classes", "resource_slices", "resource_claims"),
    )

    def __init__(self) -> None:
        self._tables: dict[str, dict[str, Any]] = {table: {} for table in self.TABLES}
        self.open()

    def fork(self) -> "ClaimsAndVolumes":
        """An independent copy."""
        twin = ClaimsAndVolumes()
        twin._tables = {name: table.copy() for name, table in self._tables.items()}
        twin.open()
        return twin

    def open(self) -> None:
        """Begin a pass: drop earlier assumptions, which the objects contain by now."""
        tables = self._tables
        self.storage = Storage(
            claims=tables["persistent_volume_claims"],
            volumes=tables["persistent_volumes"],
            classes=tables["storage_classes"],
            limits=tables["csi_nodes"],
        )
        self.stock = Stock(
            classes=tables["device_classes"], slices=tables["resource_slices"], claims=tables["resource_claims"]
        )

    def take_in(self, obj: Object) -> bool:
        """Apply an object that appeared or changed; False if its kind does not belong here."""
        table = _table(obj)
        if table:
            self._tables[table][obj.key] = obj
            self.open()
        return bool(table)

    def forget(self, table: str, key: str) -> bool:
        """Apply the deletion of an object; False if it was not known here."""
        if table in self._tables and self._tables[table].pop(key, None) is not None:
            self.open()
            return True
        return False

    def hold(self, pod: Pod, node: Node) -> AssumedClaims:
        """Assume the volumes and devices that the pod's claims get on the node."""
        if not pod.template.volumes and not pod.template.resource_claims:
            return NOTHING
        binding = volumes.plan(pod, node, self.storage)
        grant = claims.grant(pod, node, self.stock)
        self.storage.hold(binding)
        self.stock.hold(pod.key, grant.allocations, grant.shared)
        return AssumedClaims(binding.volumes, tuple(sorted(grant.allocations.items())))

    def promises(self) -> Promises:
        """The assumed claims, to be restored after a trial."""
        users = {key: set(pods) for key, pods in self.stock.users.items()}
        return self.storage.held.copy(), self.storage.chosen.copy(), self.stock.given.copy(), users

    def put_back(self, promises: Promises) -> None:
        """Restore the assumed claims that `promises` returned."""
        self.storage.held, self.storage.chosen, self.stock.given, self.stock.users = promises


def _table(obj: Object) -> str:
    match obj:
        case StorageClass():
            return "storage_classes"
        case CSINode():
            return "csi_nodes"
        case PersistentVolume():
            return "persistent_volumes"
        case PersistentVolumeClaim():
            return "persistent_volume_claims"
        case DeviceClass():
            return "device_classes"
        case ResourceSlice():
            return "resource_slices"
        case ResourceClaim():
            return "resource_claims"
        case _:
            return ""
