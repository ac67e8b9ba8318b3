"""DRA claims in a session: the GPUs that they count as, and the devices that they get on a node.

Devices come from the allocator that all engines share (devices/claims.py), as KAI uses Kubernetes' DRA plugin.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.devices import AllocatedDevice, Allocation, ResourceClaim, ResourceSlice
from gpuconsole.model.pod_template import PodClaim, PodTemplate
from gpuconsole.scheduling.devices.allocator import grant
from gpuconsole.scheduling.devices.dra_inventory import Stock, claim_keys
from gpuconsole.scheduling.kai.api.claims import ClaimDeviceRequest, ClaimIndex, ClaimInfo, OfferedDevice, gpu_class
from gpuconsole.scheduling.kai.api.tasks import ClaimRef, PodInfo


class InventoryClaimIndex(ClaimIndex):
    """Claims over the published inventory: classes, selectors, counters. Mutates."""

    def __init__(self, stock: Stock, nodes: Mapping[str, Node]) -> None:
        super().__init__(claims=[claim_of(claim) for claim in stock.claims.values()], classes=list(stock.classes))
        unallocated = {key: replace(claim, allocation=None) for key, claim in stock.claims.items()}
        self._stock = Stock(classes=stock.classes, slices=stock.slices, claims=unallocated)
        """The inventory with all claims unallocated; `find` adds the allocations that claims hold now."""
        self._nodes = nodes
        self.allocations = {key: c.allocation for key, c in stock.claims.items() if c.allocation is not None}
        """The latest allocation of each claim, in this session or before."""

    def find(self, claim: ClaimInfo, node: str) -> tuple[OfferedDevice, ...] | None:
        """Devices of the node that Kubernetes' allocator picks for the claim; None if it finds none."""
        if claim.key not in self._stock.claims or node not in self._nodes:
            return None
        self._stock.given = {
            key: self.allocations[key]
            for key, known in self.claims.items()
            if known.devices is not None and key in self.allocations
        }
        found = grant(_user(claim), self._nodes[node], self._stock)
        allocation = found.allocations.get(claim.key)
        if found.reason or allocation is None:
            return None
        self.allocations[claim.key] = allocation
        return devices_of(allocation, node)


def _user(claim: ClaimInfo) -> Pod:
    """A pod that uses only this claim."""
    template = PodTemplate(resource_claims=(PodClaim(name="claim", claim=claim.name),))
    return Pod(namespace=claim.namespace, name="trial", template=template)


def claim_of(claim: ResourceClaim) -> ClaimInfo:
    """KAI's claim for a ResourceClaim object."""
    return ClaimInfo(
        namespace=claim.namespace,
        name=claim.name,
        labels=claim.labels,
        requests=tuple(ClaimDeviceRequest(request.device_class, request.count) for request in claim.requests),
        reserved=claim.reserved,
        devices=None if claim.allocation is None else devices_of(claim.allocation),
    )


def devices_of(allocation: Allocation, node: str = "") -> tuple[OfferedDevice, ...]:
    """Devices of an allocation, on `node` or else on the only node that it permits."""
    return tuple(_device(given, node or _node(allocation)) for given in allocation.devices)


def _device(given: AllocatedDevice, node: str) -> OfferedDevice:
    return OfferedDevice(node, given.driver, given.pool, given.device)


def _node(allocation: Allocation) -> str:
    """The only node on which the devices can be used; empty if there are several."""
    fields = [field for term in allocation.nodes or () for field in term.fields]
    return fields[0].values[0] if len(fields) == 1 and len(fields[0].values) == 1 else ""


def references(pod: Pod) -> tuple[ClaimRef, ...]:
    """The claims that the pod names, or that are created for it from templates."""
    named = zip(pod.template.resource_claims, claim_keys(pod), strict=True)
    return tuple(ClaimRef(one.name, key.partition("/")[2], not one.claim) for one, key in named)


def claimed_gpus(pod: Pod, claims: Mapping[str, ResourceClaim]) -> dict[str, int]:
    """GPUs that the pod requests through its claims, by device class."""
    counts: dict[str, int] = {}
    for key in claim_keys(pod):
        for request in claims[key].requests if key in claims else ():
            if gpu_class(request.device_class):
                counts[request.device_class] = counts.get(request.device_class, 0) + request.count
    return counts


def offered_gpus(slices: Iterable[ResourceSlice]) -> dict[str, int]:
    """GPUs that drivers offer, by node; KAI recognizes them by the driver's name."""
    counts: dict[str, int] = {}
    for part in slices:
        if part.node and gpu_class(part.driver):
            counts[part.node] = counts.get(part.node, 0) + len(part.devices)
    return counts


def granted(index: ClaimIndex, task: PodInfo) -> tuple[tuple[str, Allocation], ...]:
    """(claim key, allocation) of the task's claims; empty without a device inventory."""
    if not isinstance(index, InventoryClaimIndex):
        return ()
    keys = {f"{task.namespace}/{reference.claim}" for reference in task.spec.claims}
    return tuple((key, index.allocations[key]) for key in sorted(keys) if key in index.allocations)
