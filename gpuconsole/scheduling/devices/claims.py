"""Allocation of devices to a pod's ResourceClaims on a node (Kubernetes 1.35, DynamicResources).

An allocated claim keeps its devices; for the other claims, `search` looks for devices on the node.
"""

from collections.abc import Mapping

from msgspec import Struct

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.devices import Allocation, DeviceRequest
from gpuconsole.scheduling.devices.dra_inventory import MOST_USERS, Stock, claim_keys
from gpuconsole.scheduling.devices.search import Broken, DeviceSearch, TooLong

CANNOT = "cannot allocate all claims"
TIMED_OUT = "timed out trying to allocate devices"
ELSEWHERE = "resourceclaim not available on the node"
IN_USE = "resourceclaim in use"


class Grant(Struct, frozen=True):
    """Devices that the claims of a pod would get on a node, or why they cannot be allocated."""

    allocations: Mapping[str, Allocation] = {}
    """New allocations, by the claim's `namespace/name`."""
    shared: tuple[str, ...] = ()
    """Keys of allocated claims that the pod would use too."""
    reason: str = ""
    broken: bool = False
    """True for an error, not a lack of devices: a selector failed, or a claim requests too many devices."""


def trouble(pod: Pod, stock: Stock) -> str:
    """Return why the pod's claims make every node infeasible (PreFilter); empty if they do not."""
    for named, key in zip(pod.template.resource_claims, claim_keys(pod), strict=True):
        name = key.partition("/")[2]
        claim = stock.claims.get(key)
        if claim is None:
            made = not named.claim
            return "ResourceClaim not created yet" if made else f'resourceclaim.resource.k8s.io "{name}" not found'
        if claim.deleted:
            return f'resourceclaim "{name}" is being deleted'
        users = stock.users_of(claim)
        if stock.allocation_of(claim) is not None and len(users) >= MOST_USERS and pod.key not in users:
            return IN_USE
        for request in claim.requests if stock.allocation_of(claim) is None else ():
            text = _unknown_class(request, stock)
            if text:
                return text
    return ""


def _unknown_class(request: DeviceRequest, stock: Stock) -> str:
    for asked in request.options or (request,):
        name = f"{request.name}/{asked.name}" if request.options else asked.name
        if not asked.device_class:
            return f"request {name}: unsupported request type"
        if asked.device_class not in stock.classes:
            return f"request {name}: device class {asked.device_class} does not exist"
    return ""


def grant(pod: Pod, node: Node, stock: Stock) -> Grant:
    """Find devices on the node for the pod's claims. Call it only if `trouble` returns an empty string."""
    claims = [stock.claims[key] for key in dict.fromkeys(claim_keys(pod))]
    open_claims = [claim for claim in claims if stock.allocation_of(claim) is None]
    allocations: Mapping[str, Allocation] | None = {}
    if open_claims:
        try:
            allocations = DeviceSearch(stock, node).run(open_claims)
        except Broken as problem:
            return Grant(reason=str(problem), broken=True)
        except TooLong:
            return Grant(reason=TIMED_OUT)
    if allocations is None:
        return Grant(reason=CANNOT)
    held = [claim for claim in claims if claim not in open_claims]
    if not all(usable(stock.allocation_of(claim), node) for claim in held):
        return Grant(reason=ELSEWHERE)
    return Grant(allocations, tuple(claim.key for claim in held))


def usable(allocation: Allocation | None, node: Node) -> bool:
    """True if pods on the node can use the allocation; None can be used everywhere."""
    nodes = allocation.nodes if allocation is not None else None
    return nodes is None or any(term.matches(node.labels, node.name) for term in nodes)
