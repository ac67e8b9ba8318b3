"""Accelerators that a job can request, for the submit form: extended resources and DRA device classes."""

from msgspec import Struct

from gpuconsole.insight.derived import memoized
from gpuconsole.insight.device_demand import CLAIMED, counted_as, quota_accelerators, quota_unit
from gpuconsole.insight.gpumap import dra_devices
from gpuconsole.model.device_requests import NO_ACCELERATORS
from gpuconsole.model.device_units import DRA_DEVICE, WHOLE_GPU, DeviceUnit, is_counted, order_of
from gpuconsole.model.resources import GPU
from gpuconsole.model.snapshot import Snapshot


class DeviceChoice(Struct, frozen=True):
    """One kind of accelerator that pods can request: an extended resource, or devices of a DeviceClass (DRA)."""

    resource: str = GPU
    """Extended resource; empty for devices of a class."""
    device_class: str = ""
    unit: DeviceUnit = WHOLE_GPU
    total: int = 0
    """Number that all nodes offer; for a DeviceClass all DRA devices, as it may select any of them."""
    largest: int = 0
    """Number on the node with most of them."""

    @property
    def key(self) -> str:
        """`nvidia.com/mig-1g.10gb`, `DeviceClass gpu.nvidia.com`."""
        return f"DeviceClass {self.device_class}" if self.device_class else self.resource

    def counts(self, resource: str) -> bool:
        """True if quota of this resource counts such devices; the resource name of DRA devices is configurable."""
        return counted_as(resource) == CLAIMED if self.device_class else resource == self.resource


@memoized("nodes", "cluster_queues", "cohorts", "device_classes", "resource_claim_templates", "resource_slices")
def device_choices(snapshot: Snapshot) -> tuple[DeviceChoice, ...]:
    """List the accelerators of nodes, whole GPUs first, then those only in quotas; `nvidia.com/gpu` if none."""
    amounts: dict[str, list[int]] = {name: [] for name in quota_accelerators(snapshot) if is_counted(name)}
    for node in snapshot.nodes.all():
        for name, amount in node.allocatable.items():
            if amount and is_counted(name):
                amounts.setdefault(name, []).append(amount)
    found = [
        DeviceChoice(name, "", quota_unit(snapshot, name), sum(all_nodes), max(all_nodes, default=0))
        for name, all_nodes in amounts.items()
    ]
    classes = [one.name for one in snapshot.device_classes.all() if not one.name.startswith(NO_ACCELERATORS)]
    devices = [dra_devices(snapshot, node.name) for node in snapshot.nodes.all()] if classes else []
    most = max(devices, default=0)
    found += [DeviceChoice("", name, DRA_DEVICE, sum(devices), most) for name in classes]
    found.sort(key=lambda one: (not one.total, order_of(one.unit), one.key))
    return tuple(found) or (DeviceChoice(),)


def choice_of(snapshot: Snapshot, resource: str, device_class: str = "") -> DeviceChoice:
    """Return the choice for this resource or DeviceClass, also if no node offers it."""
    wanted = DeviceChoice("", device_class, DRA_DEVICE) if device_class else DeviceChoice(resource)
    known = {one.key: one for one in device_choices(snapshot)}
    return known.get(wanted.key) or DeviceChoice(
        wanted.resource, device_class, DRA_DEVICE if device_class else quota_unit(snapshot, resource)
    )
