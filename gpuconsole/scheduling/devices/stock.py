"""Devices that drivers publish, the claims on them, and what claims were given lately."""

from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from gpuconsole.model.cluster import Node, NodeTerm, Pod
from gpuconsole.model.devices import Allocation, Device, DeviceClass, ResourceClaim, ResourceSlice

MOST_USERS = 256
"""Pods that may share a claim."""


class Offered(Struct, frozen=True, eq=False):
    """A device, and the slice that offers it. Compared by identity."""

    device: Device
    part: ResourceSlice

    @property
    def place(self) -> tuple[str, str, str]:
        """(driver, pool, name) by which allocations know it."""
        return self.part.driver, self.part.pool, self.device.name

    @property
    def node(self) -> str:
        """The only node that has it; empty if others reach it."""
        return self.device.node if self.part.each else self.part.node

    @property
    def nodes(self) -> tuple[NodeTerm, ...] | None:
        return self.device.nodes if self.part.each else self.part.nodes

    def within(self, node: Node) -> bool:
        """True if the node has or reaches it."""
        if self.node:
            return self.node == node.name
        if self.device.everywhere if self.part.each else self.part.everywhere:
            return True
        return any(term.matches(node.labels, node.name) for term in self.nodes or ())


class Pool(Struct):
    """The slices of a pool's newest generation. Mutates while pools are gathered."""

    generation: int
    expected: int
    parts: list[ResourceSlice]

    @property
    def complete(self) -> bool:
        return len(self.parts) == self.expected


class Stock(Struct, kw_only=True):
    """Classes, slices and claims. Mutates by `hold` and `release`: what pods of this pass were promised."""

    classes: Mapping[str, DeviceClass] = field(default_factory=dict)
    slices: Mapping[str, ResourceSlice] = field(default_factory=dict)
    claims: Mapping[str, ResourceClaim] = field(default_factory=dict)
    given: dict[str, Allocation] = field(default_factory=dict)
    """Claim → what it was promised, before anybody wrote it down."""
    users: dict[str, set[str]] = field(default_factory=dict)
    """Claim → pods that were promised its use."""
    _pools: dict[tuple[str, str], Pool] | None = None

    def hold(self, pod: str, allocations: Mapping[str, Allocation], shared: tuple[str, ...]) -> None:
        """Take for granted what a pod was promised: allocations of its claims, and the use of others."""
        self.given.update(allocations)
        for key in (*allocations, *shared):
            self.users.setdefault(key, set()).add(pod)

    def release(self, pod: str) -> None:
        """Take the promise back; a claim that another pod was promised too keeps its devices."""
        for key, users in list(self.users.items()):
            users.discard(pod)
            if not users:
                del self.users[key]
                self.given.pop(key, None)

    def allocation_of(self, claim: ResourceClaim) -> Allocation | None:
        return claim.allocation or self.given.get(claim.key)

    def users_of(self, claim: ResourceClaim) -> set[str]:
        return {*claim.reserved, *self.users.get(claim.key, ())}

    def taken(self) -> set[tuple[str, str, str]]:
        """Devices that some claim has for itself."""
        return {
            (one.driver, one.pool, one.device)
            for claim in self.claims.values()
            for one in (self.allocation_of(claim) or Allocation()).devices
            if not one.shared
        }

    def pools(self) -> Mapping[tuple[str, str], Pool]:
        """Pools by (driver, name), in order."""
        if self._pools is None:
            found: dict[tuple[str, str], Pool] = {}
            for _, part in sorted(self.slices.items()):
                key = part.driver, part.pool
                known = found.get(key)
                if known is None or part.generation > known.generation:
                    found[key] = Pool(part.generation, part.pool_slices, [part])
                elif part.generation == known.generation:
                    known.parts.append(part)
            self._pools = dict(sorted(found.items()))
        return self._pools

    def offered(self, node: Node) -> Iterator[Offered]:
        """Devices that the node has or reaches, of pools that are complete."""
        for pool in self.pools().values():
            for part in pool.parts if pool.complete else ():
                for device in part.devices:
                    one = Offered(device, part)
                    if one.within(node):
                        yield one


def claim_keys(pod: Pod) -> tuple[str, ...]:
    """`namespace/name` of each claim of the pod: one that it names, or `POD-NAME`, which is made for it."""
    named = ((one.claim or f"{pod.name}-{one.name}") for one in pod.template.resource_claims)
    return tuple(f"{pod.namespace}/{name}" for name in named)
