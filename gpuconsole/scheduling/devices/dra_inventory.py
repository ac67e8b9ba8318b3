"""DRA inventory: devices that drivers publish, the claims on them, and allocations assumed in this pass."""

import heapq
from collections.abc import Collection, Iterator, Mapping
from operator import itemgetter

from msgspec import Struct, field

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.devices import Allocation, Device, DeviceClass, ResourceClaim, ResourceSlice
from gpuconsole.model.labels import NodeTerm

MAX_USERS = 256
"""Limit of pods that may use a claim (ResourceClaimReservedForMaxSize)."""
PoolKey = tuple[str, str]
"""(driver, name)."""
DeviceId = tuple[str, str, str]
"""(driver, pool, name) of a device."""
CounterKey = tuple[str, str, str, str]
"""(driver, pool, counter set, counter)."""


class PublishedDevice(Struct, frozen=True, eq=False):
    """A published device with the ResourceSlice that publishes it. Compared by identity."""

    device: Device
    resource_slice: ResourceSlice

    @property
    def id(self) -> DeviceId:
        """The device's identity in allocations: driver, pool and device name."""
        return self.resource_slice.driver, self.resource_slice.pool, self.device.name

    @property
    def consumed_counters(self) -> Iterator[tuple[CounterKey, int]]:
        """Yield the shared counters of its pool that the device consumes, with the amounts."""
        for name, amounts in zip(self.device.counter_sets, self.device.counters, strict=False):
            for counter, amount in amounts.items():
                yield (self.resource_slice.driver, self.resource_slice.pool, name, counter), amount

    @property
    def node(self) -> str:
        """The node that the device is local to; empty if it is not local to one node."""
        return self.device.node if self.resource_slice.each else self.resource_slice.node

    @property
    def nodes(self) -> tuple[NodeTerm, ...] | None:
        """Node selector terms of the nodes that can use the device; None if it has no selector."""
        return self.device.nodes if self.resource_slice.each else self.resource_slice.nodes

    def is_usable_on(self, node: Node) -> bool:
        """True if pods on the node can use the device."""
        if self.node:
            return self.node == node.name
        if self.device.everywhere if self.resource_slice.each else self.resource_slice.everywhere:
            return True
        return any(term.matches(node.labels, node.name) for term in self.nodes or ())


class DevicePool(Struct):
    """The slices of a pool's newest generation. Mutates while pools are gathered."""

    generation: int
    expected: int
    slices: list[ResourceSlice]

    @property
    def is_complete(self) -> bool:
        """True if all slices of the pool are published."""
        return len(self.slices) == self.expected


class SliceIndex(Struct, frozen=True):
    """Index of ResourceSlices by node; each has its position in the order in which devices are tried."""

    local: dict[str, list[tuple[int, ResourceSlice]]]
    """Node → slices whose devices are all local to it."""
    others: list[tuple[int, ResourceSlice]]
    """All other slices."""


class DraInventory(Struct, kw_only=True):
    """The DRA objects of a cluster, and the allocations assumed for pods in this pass. Mutates."""

    classes: Mapping[str, DeviceClass] = field(default_factory=dict)
    slices: Mapping[str, ResourceSlice] = field(default_factory=dict)
    claims: Mapping[str, ResourceClaim] = field(default_factory=dict)
    assumed: dict[str, Allocation] = field(default_factory=dict)
    """Claim → the allocation assumed for it, which its status need not have yet."""
    users: dict[str, set[str]] = field(default_factory=dict)
    """Claim → pods that are assumed to use it."""
    _pools: dict[PoolKey, DevicePool] | None = None
    _slice_index: SliceIndex | None = None
    _written_allocations: dict[PoolKey, set[DeviceId]] | None = None

    def assume(self, pod: str, allocations: Mapping[str, Allocation], shared: tuple[str, ...]) -> None:
        """Assume a pod's allocations: those of its unallocated claims, and its use of the others."""
        self.assumed.update(allocations)
        for key in (*allocations, *shared):
            self.users.setdefault(key, set()).add(pod)

    def forget_assumed(self, pod: str) -> None:
        """Undo a pod's assumed allocations; a claim that is also assumed for another pod keeps its devices."""
        for key, users in list(self.users.items()):
            users.discard(pod)
            if not users:
                del self.users[key]
                self.assumed.pop(key, None)

    def allocation_of(self, claim: ResourceClaim) -> Allocation | None:
        """The claim's allocation, in its status or assumed; None if it has none."""
        return claim.allocation or self.assumed.get(claim.key)

    def users_of(self, claim: ResourceClaim) -> set[str]:
        """Pods that the claim is reserved for, in its status or by an assumed allocation."""
        return {*claim.reserved, *self.users.get(claim.key, ())}

    def allocated_devices(self, pools: Collection[PoolKey]) -> set[DeviceId]:
        """Devices of these pools that are allocated to a claim exclusively, in its status or assumed."""
        if self._written_allocations is None:
            self._written_allocations = {}
            for claim in self.claims.values():
                for place in _exclusive_devices(claim.allocation):
                    self._written_allocations.setdefault(place[:2], set()).add(place)
        found = {place for pool in pools for place in self._written_allocations.get(pool, ())}
        for key, allocation in self.assumed.items():
            asking = self.claims.get(key)
            if asking is not None and asking.allocation is None:
                found.update(place for place in _exclusive_devices(allocation) if place[:2] in pools)
        return found

    def counters_left(self, pools: Collection[PoolKey], taken: Collection[DeviceId]) -> dict[CounterKey, int]:
        """Counter → its value minus what the `taken` devices of these pools consume."""
        left: dict[CounterKey, int] = {}
        for driver, name in pools:
            slices = self.pools()[driver, name].slices
            for resource_slice in slices:
                for of, amounts in resource_slice.counter_sets.items():
                    left.update({(driver, name, of, counter): amount for counter, amount in amounts.items()})
            for one in (
                PublishedDevice(device, resource_slice)
                for resource_slice in slices
                for device in resource_slice.devices
                if device.counters
            ):
                if one.id in taken:
                    for key, amount in one.consumed_counters:
                        left[key] = left.get(key, 0) - amount
        return left

    def pools(self) -> Mapping[PoolKey, DevicePool]:
        """Pools by (driver, name), in that order."""
        if self._pools is None:
            found: dict[PoolKey, DevicePool] = {}
            for _, resource_slice in sorted(self.slices.items()):
                key = resource_slice.driver, resource_slice.pool
                known = found.get(key)
                if known is None or resource_slice.generation > known.generation:
                    found[key] = DevicePool(resource_slice.generation, resource_slice.pool_slices, [resource_slice])
                elif resource_slice.generation == known.generation:
                    known.slices.append(resource_slice)
            self._pools = dict(sorted(found.items()))
        return self._pools

    def published(self, node: Node) -> Iterator[PublishedDevice]:
        """Yield the devices of complete pools that pods on the node can use."""
        index = self._slice_index = self._slice_index or self._index_slices()
        for _, resource_slice in heapq.merge(index.local.get(node.name, ()), index.others, key=itemgetter(0)):
            for device in resource_slice.devices:
                one = PublishedDevice(device, resource_slice)
                if one.is_usable_on(node):
                    yield one

    def _index_slices(self) -> SliceIndex:
        index = SliceIndex({}, [])
        complete = [
            resource_slice for pool in self.pools().values() if pool.is_complete for resource_slice in pool.slices
        ]
        for numbered in enumerate(complete):
            resource_slice = numbered[1]
            alone = resource_slice.node and not resource_slice.each
            (index.local.setdefault(resource_slice.node, []) if alone else index.others).append(numbered)
        return index


def _exclusive_devices(allocation: Allocation | None) -> Iterator[DeviceId]:
    """The devices of an allocation that are not shared with other claims."""
    for one in allocation.devices if allocation is not None else ():
        if not one.shared:
            yield one.driver, one.pool, one.device


def claim_keys(pod: Pod) -> tuple[str, ...]:
    """`namespace/name` of each claim of the pod: the one it names, or `POD-CLAIM`, created from a template."""
    named = ((one.claim or f"{pod.name}-{one.name}") for one in pod.template.resource_claims)
    return tuple(f"{pod.namespace}/{name}" for name in named)
