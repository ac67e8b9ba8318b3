"""Allocation of devices to a pod's ResourceClaims on a node: Kubernetes' structured allocator (1.35, DynamicResources).

`allocate_claims` finds them: an allocated claim keeps its devices, and a `DeviceSearch` looks for devices on the node
that satisfy all other claims at once. Claims, their requests and the node's devices are tried in order, with
backtracking; the first allocation that works is taken. Not supported: devices that several claims share by capacity
(allowMultipleAllocations).

Device selectors are CEL expressions over `device.driver`, and `device.attributes` and `device.capacity` by domain; a
domain that the device does not have is empty (k8s.io/dynamic-resource-allocation/cel).

`DraInventory` has the devices that drivers publish, the claims on them, and the allocations assumed in this pass.
"""

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from operator import itemgetter
from typing import Any

from msgspec import Struct, field

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.devices import (
    EXACT_COUNT,
    AllocatedDevice,
    Allocation,
    Attribute,
    Device,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    ResourceClaim,
    ResourceSlice,
    Version,
)
from gpuconsole.model.labels import NodeTerm, Requirement
from gpuconsole.scheduling.devices.cel.evaluation import FUNCTIONS, EvaluationError, Quantity, Semver, evaluate
from gpuconsole.scheduling.devices.cel.parsing import SyntaxProblem, Tree, parse

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


_NAMES = frozenset({"device"})


class DomainValues(dict[str, dict[str, Any]]):
    """A device's attributes or capacities in a CEL expression, by domain and name; a missing domain is empty."""

    def __missing__(self, key: str) -> dict[str, Any]:
        return {}


@lru_cache(maxsize=1024)
def compile_selector(expression: str) -> Tree | str:
    """Compile an expression: its tree, or the error message as a string."""
    try:
        return parse(expression, _NAMES, FUNCTIONS)
    except SyntaxProblem as problem:
        before = expression[: problem.column]
        line, column = before.count("\n") + 1, problem.column - (before.rfind("\n") + 1) + 1
        shown = (expression.split("\n") or [""])[line - 1][:200]
        place = f"<input>:{line}:{column}"
        return f"compilation failed: ERROR: {place}: {problem}\n | {shown}\n | {'.' * min(column - 1, 200)}^"


def compile_error(expression: str) -> str:
    """The compile error of an expression; empty if there is none."""
    found = compile_selector(expression)
    return found if isinstance(found, str) else ""


def matches_device(trees: Iterable[Tree], driver: str, device: Device) -> bool:
    """True if all expressions match the device, or if there are none. Raises EvaluationError, for example for a missing
    attribute.
    """
    values: dict[str, Any] | None = None
    for tree in trees:
        if values is None:
            values = {"device": _device_variable(driver, device)}
        answer = evaluate(tree, values)
        if not isinstance(answer, bool):
            raise EvaluationError("must evaluate to bool")
        if not answer:
            return False
    return True


def _device_variable(driver: str, device: Device) -> dict[str, Any]:
    """The fields of the `device` variable of an expression."""
    attributes, capacity = DomainValues(), DomainValues()
    for name, value in device.attributes.items():
        domain, short = _qualified_name(driver, name)
        attributes.setdefault(domain, {})[short] = _attribute_value(f"{domain}/{short}", value)
    for name, offered in device.capacity.items():
        domain, short = _qualified_name(driver, name)
        capacity.setdefault(domain, {})[short] = Quantity(Fraction(offered.value))
    return {"driver": driver, "attributes": attributes, "capacity": capacity, "allowMultipleAllocations": False}


def _qualified_name(driver: str, name: str) -> tuple[str, str]:
    domain, slash, short = name.rpartition("/")
    return (domain, short) if slash else (driver, name)


def _attribute_value(name: str, value: Attribute) -> Any:
    if value is None:
        raise EvaluationError(f"attribute {name}: unsupported attribute value")
    return Semver.parse(value.version) if isinstance(value, Version) else value


MAX_DEVICES = 32
"""Limit of devices per claim (AllocationResultsMaxSize)."""
MAX_TRIES = 20_000
"""Limit of device picks on one node; the search then ends as Kubernetes' does after its filterTimeout."""
EXCLUDING_EFFECTS = ("NoSchedule", "NoExecute")


class ClaimError(Exception):
    """Error: a selector cannot be applied to a device, or a claim asks for too many devices; no node is feasible until
    that is fixed.
    """


class SearchTooLong(Exception):
    """Error: the search on a node exceeded its limit of tries."""


class DeviceSearch:
    """One allocation on one node. Mutates: devices are picked, and released on backtracking."""

    def __init__(self, inventory: DraInventory, node: Node) -> None:
        self._inventory = inventory
        self._published = list(inventory.published(node))
        pools = {device.id[:2] for device in self._published}
        self._allocated = inventory.allocated_devices(pools)
        self._counters_left = inventory.counters_left(pools, self._allocated)
        self._tries = 0
        self._picked: dict[str, list[tuple[DeviceRequest, str, PublishedDevice]]] = {}
        """Claim → (request, its name with that of its parent request, device)."""
        self._selector_results: dict[tuple[int, int], bool] = {}

    def run(self, claims: Sequence[ResourceClaim]) -> dict[str, Allocation] | None:
        """Return the allocations by claim; None if no combination of devices satisfies all claims.

        Raises:
            Broken: a selector fails, or a claim asks for more devices than the limit per claim.
            TooLong: the search exceeds its limit of tries.
        """
        for claim in claims:
            least = sum(self._fewest_devices(request) for request in claim.requests)
            if least > MAX_DEVICES:
                text = f"number of requested devices {least} exceeds the claim limit of {MAX_DEVICES}"
                raise ClaimError(f"claim {claim.key}: {text}")
        steps = [(claim, request) for claim in claims for request in claim.requests]
        self._picked = {claim.key: [] for claim in claims}
        if not self._search_from(steps, 0):
            return None
        return {key: _allocation(picked) for key, picked in self._picked.items()}

    def _search_from(self, steps: Sequence[tuple[ResourceClaim, DeviceRequest]], at: int) -> bool:
        if at == len(steps):
            return True
        claim, request = steps[at]
        for subrequest in request.options or (request,):
            name = f"{request.name}/{subrequest.name}" if request.options else request.name
            if self._pick_devices(
                claim, subrequest, name, self._device_count(subrequest), 0, lambda: self._search_from(steps, at + 1)
            ):
                return True
        return False

    def _fewest_devices(self, request: DeviceRequest) -> int:
        """The fewest devices that any alternative of the request needs."""
        return min(self._device_count(subrequest) for subrequest in request.options or (request,))

    def _device_count(self, subrequest: DeviceRequest) -> int:
        """The number of devices that the request needs; in mode All every matching device, and at least one."""
        if subrequest.mode == EXACT_COUNT:
            return subrequest.count
        return max(1, sum(self._matches_selectors(subrequest, device) for device in self._published))

    def _pick_devices(
        self,
        claim: ResourceClaim,
        subrequest: DeviceRequest,
        name: str,
        count: int,
        start: int,
        rest: Callable[[], bool],
    ) -> bool:
        """Pick the devices that a request still needs, such that the remaining requests can be satisfied."""
        if count == 0:
            return rest()
        for number in range(start, len(self._published) - count + 1):
            device = self._published[number]
            if not self._is_free(claim, subrequest, name, device) or not self._matches_selectors(subrequest, device):
                continue
            self._tries += 1
            if self._tries > MAX_TRIES:
                raise SearchTooLong
            self._pick(claim, subrequest, name, device)
            if self._pick_devices(claim, subrequest, name, count - 1, number + 1, rest):
                return True
            self._release_last(claim)
        return False

    def _is_free(self, claim: ResourceClaim, subrequest: DeviceRequest, name: str, device: PublishedDevice) -> bool:
        mine = self._picked[claim.key]
        if len(mine) == MAX_DEVICES or any(other is device for _, _, other in mine):
            return False
        if not subrequest.admin_access and (device.id in self._allocated or not self._counters_suffice(device)):
            return False
        if any(
            taint.effect in EXCLUDING_EFFECTS and not _tolerates_taints(subrequest, device)
            for taint in device.device.taints
        ):
            return False
        return all(_meets_constraint(rule, name, device, mine) for rule in claim.constraints)

    def _matches_selectors(self, subrequest: DeviceRequest, device: PublishedDevice) -> bool:
        """True if the selectors of the device class and of the request match the device."""
        key = id(subrequest), id(device)
        if key not in self._selector_results:
            own = self._inventory.classes[subrequest.device_class].selectors
            self._selector_results[key] = _compile_selectors((*own, *subrequest.selectors), device)
        return self._selector_results[key]

    def _counters_suffice(self, device: PublishedDevice) -> bool:
        return all(self._counters_left.get(key, 0) >= amount for key, amount in device.consumed_counters)

    def _pick(self, claim: ResourceClaim, subrequest: DeviceRequest, name: str, device: PublishedDevice) -> None:
        self._picked[claim.key].append((subrequest, name, device))
        if not subrequest.admin_access:
            self._allocated.add(device.id)
            for key, amount in device.consumed_counters:
                self._counters_left[key] -= amount

    def _release_last(self, claim: ResourceClaim) -> None:
        subrequest, _, device = self._picked[claim.key].pop()
        if not subrequest.admin_access:
            self._allocated.discard(device.id)
            for key, amount in device.consumed_counters:
                self._counters_left[key] += amount


def _compile_selectors(selectors: Sequence[str], device: PublishedDevice) -> bool:
    trees = []
    for number, text in enumerate(selectors):
        tree = compile_selector(text)
        if isinstance(tree, str):
            raise ClaimError(f"selector #{number}: CEL compile error: {tree}")
        trees.append(tree)
    try:
        return matches_device(trees, device.resource_slice.driver, device.device)
    except EvaluationError as problem:
        raise ClaimError(f"device {'/'.join(device.id)}: CEL runtime error: {problem}") from None


def _tolerates_taints(subrequest: DeviceRequest, device: PublishedDevice) -> bool:
    return all(
        any(toleration.tolerates(taint) for toleration in subrequest.tolerations)
        for taint in device.device.taints
        if taint.effect in EXCLUDING_EFFECTS
    )


def _meets_constraint(
    rule: DeviceConstraint,
    name: str,
    device: PublishedDevice,
    picked: Sequence[tuple[DeviceRequest, str, PublishedDevice]],
) -> bool:
    """True if the device satisfies a constraint together with the devices already picked."""

    def meant(request: str) -> bool:
        return not rule.requests or request in rule.requests or request.partition("/")[0] in rule.requests

    if not meant(name):
        return True
    value = _attribute(device, rule.same or rule.distinct)
    others = [_attribute(other, rule.same or rule.distinct) for _, request, other in picked if meant(request)]
    if value is None:
        return False
    return all(other == value for other in others) if rule.same else value not in others


def _attribute(device: PublishedDevice, name: str) -> object:
    """The value of an attribute by its full name, where a name without domain has the driver's; None if missing."""
    known = device.device.attributes
    domain, _, short = name.rpartition("/")
    return known.get(name, known.get(short) if domain == device.resource_slice.driver else None)


def _allocation(picked: Sequence[tuple[DeviceRequest, str, PublishedDevice]]) -> Allocation:
    devices = tuple(
        AllocatedDevice(name, *device.id, shared=subrequest.admin_access) for subrequest, name, device in picked
    )
    node = next((device.node for _, _, device in picked if device.node), "")
    if node:
        return Allocation(devices, (NodeTerm(fields=(Requirement("metadata.name", "In", (node,)),)),))
    return Allocation(devices, next((device.nodes for _, _, device in picked if device.nodes is not None), None))


CANNOT_ALLOCATE = "cannot allocate all claims"
TIMED_OUT = "timed out trying to allocate devices"
NOT_AVAILABLE_ON_NODE = "resourceclaim not available on the node"
IN_USE = "resourceclaim in use"


class ClaimAllocations(Struct, frozen=True):
    """Devices that the claims of a pod would get on a node, or why they cannot be allocated."""

    allocations: Mapping[str, Allocation] = {}
    """New allocations, by the claim's `namespace/name`."""
    shared: tuple[str, ...] = ()
    """Keys of allocated claims that the pod would use too."""
    reason: str = ""
    is_error: bool = False
    """True for an error, not a lack of devices: a selector failed, or a claim requests too many devices."""


def prefilter_rejection(pod: Pod, inventory: DraInventory) -> str:
    """Return why the pod's claims make every node infeasible (PreFilter); empty if they do not."""
    for named, key in zip(pod.template.resource_claims, claim_keys(pod), strict=True):
        name = key.partition("/")[2]
        claim = inventory.claims.get(key)
        if claim is None:
            made = not named.claim
            return "ResourceClaim not created yet" if made else f'resourceclaim.resource.k8s.io "{name}" not found'
        if claim.deleted:
            return f'resourceclaim "{name}" is being deleted'
        users = inventory.users_of(claim)
        if inventory.allocation_of(claim) is not None and len(users) >= MAX_USERS and pod.key not in users:
            return IN_USE
        for request in claim.requests if inventory.allocation_of(claim) is None else ():
            text = _device_class_error(request, inventory)
            if text:
                return text
    return ""


def _device_class_error(request: DeviceRequest, inventory: DraInventory) -> str:
    for subrequest in request.options or (request,):
        name = f"{request.name}/{subrequest.name}" if request.options else subrequest.name
        if not subrequest.device_class:
            return f"request {name}: unsupported request type"
        if subrequest.device_class not in inventory.classes:
            return f"request {name}: device class {subrequest.device_class} does not exist"
    return ""


def allocate_claims(pod: Pod, node: Node, inventory: DraInventory) -> ClaimAllocations:
    """Find devices on the node for the pod's claims. Call it only if `prefilter_rejection` returns an empty string."""
    claims = [inventory.claims[key] for key in dict.fromkeys(claim_keys(pod))]
    open_claims = [claim for claim in claims if inventory.allocation_of(claim) is None]
    allocations: Mapping[str, Allocation] | None = {}
    if open_claims:
        try:
            allocations = DeviceSearch(inventory, node).run(open_claims)
        except ClaimError as problem:
            return ClaimAllocations(reason=str(problem), is_error=True)
        except SearchTooLong:
            return ClaimAllocations(reason=TIMED_OUT)
    if allocations is None:
        return ClaimAllocations(reason=CANNOT_ALLOCATE)
    held = [claim for claim in claims if claim not in open_claims]
    if not all(is_usable(inventory.allocation_of(claim), node) for claim in held):
        return ClaimAllocations(reason=NOT_AVAILABLE_ON_NODE)
    return ClaimAllocations(allocations, tuple(claim.key for claim in held))


def is_usable(allocation: Allocation | None, node: Node) -> bool:
    """True if pods on the node can use the allocation, or if there is none (None)."""
    nodes = allocation.nodes if allocation is not None else None
    return nodes is None or any(term.matches(node.labels, node.name) for term in nodes)
