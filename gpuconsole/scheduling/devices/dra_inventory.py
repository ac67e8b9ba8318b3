"""DRA inventory: devices that drivers publish, the claims on them, and allocations assumed in this pass."""

import heapq
from collections.abc import Collection, Iterator, Mapping
from operator import itemgetter

from msgspec import Struct, field

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.devices import Allocation, Device, DeviceClass, ResourceClaim, ResourceSlice
from gpuconsole.model.labels import NodeTerm

MOST_USERS = 256
"""Limit of pods that may use a claim (ResourceClaimReservedForMaxSize)."""
PoolKey = tuple[str, str]
"""(driver, name)."""
Place = tuple[str, str, str]
"""(driver, pool, name) of a device."""
Counter = tuple[str, str, str, str]
"""(driver, pool, counter set, counter)."""


class Offered(Struct, frozen=True, eq=False):
    """A published device with the ResourceSlice that publishes it. Compared by identity."""

    device: Device
    part: ResourceSlice

    @property
    def place(self) -> Place:
        """The device's identity in allocations: driver, pool and device name."""
        return self.part.driver, self.part.pool, self.device.name

    @property
    def consumed(self) -> Iterator[tuple[Counter, int]]:
        """Yield the shared counters of its pool that the device consumes, with the amounts."""
        for name, amounts in zip(self.device.counter_sets, self.device.counters, strict=False):
            for counter, amount in amounts.items():
                yield (self.part.driver, self.part.pool, name, counter), amount

    @property
    def node(self) -> str:
        """The node that the device is local to; empty if it is not local to one node."""
        return self.device.node if self.part.each else self.part.node

    @property
    def nodes(self) -> tuple[NodeTerm, ...] | None:
        """Node selector terms of the nodes that can use the device; None if it has no selector."""
        return self.device.nodes if self.part.each else self.part.nodes

    def within(self, node: Node) -> bool:
        """True if pods on the node can use the device."""
        if self.node:
            return self.node == node.name
        if self.device.everywhere if self.part.each else self.part.everywhere:
            return True
        return any(term.matches(node.labels, node.name) for term in self.nodes or ())


class DevicePool(Struct):
    """The slices of a pool's newest generation. Mutates while pools are gathered."""

    generation: int
    expected: int
    parts: list[ResourceSlice]

    @property
    def complete(self) -> bool:
        """True if all slices of the pool are published."""
        return len(self.parts) == self.expected


class DevicePositions(Struct, frozen=True):
    """Index of ResourceSlices by node; each has its position in the order in which devices are tried."""

    here: dict[str, list[tuple[int, ResourceSlice]]]
    """Node → slices whose devices are all local to it."""
    wide: list[tuple[int, ResourceSlice]]
    """All other slices."""


class Stock(Struct, kw_only=True):
    """The DRA objects of a cluster, and the allocations assumed for pods in this pass (`hold`, `release`). Mutates."""

    classes: Mapping[str, DeviceClass] = field(default_factory=dict)
    slices: Mapping[str, ResourceSlice] = field(default_factory=dict)
    claims: Mapping[str, ResourceClaim] = field(default_factory=dict)
    given: dict[str, Allocation] = field(default_factory=dict)
    """Claim → the allocation assumed for it, which its status need not have yet."""
    users: dict[str, set[str]] = field(default_factory=dict)
    """Claim → pods that are assumed to use it."""
    _pools: dict[PoolKey, DevicePool] | None = None
    _places: DevicePositions | None = None
    _written: dict[PoolKey, set[Place]] | None = None

    def hold(self, pod: str, allocations: Mapping[str, Allocation], shared: tuple[str, ...]) -> None:
        """Assume a pod's allocations: those of its unallocated claims, and its use of the others."""
        self.given.update(allocations)
        for key in (*allocations, *shared):
            self.users.setdefault(key, set()).add(pod)

    def release(self, pod: str) -> None:
        """Undo a pod's assumed allocations; a claim that is also assumed for another pod keeps its devices."""
        for key, users in list(self.users.items()):
            users.discard(pod)
            if not users:
                del self.users[key]
                self.given.pop(key, None)

    def allocation_of(self, claim: ResourceClaim) -> Allocation | None:
        """The claim's allocation, in its status or assumed; None if it has none."""
        return claim.allocation or self.given.get(claim.key)

    def users_of(self, claim: ResourceClaim) -> set[str]:
        """Pods that the claim is reserved for, in its status or by an assumed allocation."""
        return {*claim.reserved, *self.users.get(claim.key, ())}

    def taken(self, pools: Collection[PoolKey]) -> set[Place]:
        """Devices of these pools that are allocated to a claim exclusively, in its status or assumed."""
        if self._written is None:
            self._written = {}
            for claim in self.claims.values():
                for place in _own(claim.allocation):
                    self._written.setdefault(place[:2], set()).add(place)
        found = {place for pool in pools for place in self._written.get(pool, ())}
        for key, allocation in self.given.items():
            asking = self.claims.get(key)
            if asking is not None and asking.allocation is None:
                found.update(place for place in _own(allocation) if place[:2] in pools)
        return found

    def left(self, pools: Collection[PoolKey], taken: Collection[Place]) -> dict[Counter, int]:
        """Counter → its value minus what the `taken` devices of these pools consume."""
        left: dict[Counter, int] = {}
        for driver, name in pools:
            parts = self.pools()[driver, name].parts
            for part in parts:
                for of, amounts in part.counter_sets.items():
                    left.update({(driver, name, of, counter): amount for counter, amount in amounts.items()})
            for one in (Offered(device, part) for part in parts for device in part.devices if device.counters):
                if one.place in taken:
                    for key, amount in one.consumed:
                        left[key] = left.get(key, 0) - amount
        return left

    def pools(self) -> Mapping[PoolKey, DevicePool]:
        """Pools by (driver, name), in that order."""
        if self._pools is None:
            found: dict[PoolKey, DevicePool] = {}
            for _, part in sorted(self.slices.items()):
                key = part.driver, part.pool
                known = found.get(key)
                if known is None or part.generation > known.generation:
                    found[key] = DevicePool(part.generation, part.pool_slices, [part])
                elif part.generation == known.generation:
                    known.parts.append(part)
            self._pools = dict(sorted(found.items()))
        return self._pools

    def offered(self, node: Node) -> Iterator[Offered]:
        """Yield the devices of complete pools that pods on the node can use."""
        places = self._places = self._places or self._by_place()
        for _, part in heapq.merge(places.here.get(node.name, ()), places.wide, key=itemgetter(0)):
            for device in part.devices:
                one = Offered(device, part)
                if one.within(node):
                    yield one

    def _by_place(self) -> DevicePositions:
        places = DevicePositions({}, [])
        complete = [part for pool in self.pools().values() if pool.complete for part in pool.parts]
        for numbered in enumerate(complete):
            part = numbered[1]
            alone = part.node and not part.each
            (places.here.setdefault(part.node, []) if alone else places.wide).append(numbered)
        return places


def _own(allocation: Allocation | None) -> Iterator[Place]:
    """The devices of an allocation that are not shared with other claims."""
    for one in allocation.devices if allocation is not None else ():
        if not one.shared:
            yield one.driver, one.pool, one.device


def claim_keys(pod: Pod) -> tuple[str, ...]:
    """`namespace/name` of each claim of the pod: the one it names, or `POD-CLAIM`, created from a template."""
    named = ((one.claim or f"{pod.name}-{one.name}") for one in pod.template.resource_claims)
    return tuple(f"{pod.namespace}/{name}" for name in named)
