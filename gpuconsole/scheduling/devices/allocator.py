"""Allocation of devices to a pod's ResourceClaims on a node: Kubernetes' structured allocator (1.35, DynamicResources).

`grant` finds them: an allocated claim keeps its devices, and a `DeviceSearch` looks for devices on the node that
satisfy all other claims at once. Claims, their requests and the node's devices are tried in order, with backtracking;
the first allocation that works is taken. Not supported: devices that several claims share by capacity
(allowMultipleAllocations).

Device selectors are CEL expressions over `device.driver`, and `device.attributes` and `device.capacity` by domain; a
domain that the device does not have is empty (k8s.io/dynamic-resource-allocation/cel).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

from msgspec import Struct

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.devices import (
    EXACT_COUNT,
    AllocatedDevice,
    Allocation,
    Attribute,
    Device,
    DeviceConstraint,
    DeviceRequest,
    ResourceClaim,
    Version,
)
from gpuconsole.model.labels import NodeTerm, Requirement
from gpuconsole.scheduling.devices.cel.evaluation import FUNCTIONS, EvaluationError, Quantity, Semver, evaluate
from gpuconsole.scheduling.devices.cel.parsing import SyntaxProblem, Tree, parse
from gpuconsole.scheduling.devices.dra_inventory import MOST_USERS, Offered, Stock, claim_keys

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


def fault(expression: str) -> str:
    """The compile error of an expression; empty if there is none."""
    found = compile_selector(expression)
    return found if isinstance(found, str) else ""


def selects(trees: Iterable[Tree], driver: str, device: Device) -> bool:
    """True if all expressions match the device, or if there are none. Raises EvaluationError, for example for a missing
    attribute.
    """
    values: dict[str, Any] | None = None
    for tree in trees:
        if values is None:
            values = {"device": _seen(driver, device)}
        answer = evaluate(tree, values)
        if not isinstance(answer, bool):
            raise EvaluationError("must evaluate to bool")
        if not answer:
            return False
    return True


def _seen(driver: str, device: Device) -> dict[str, Any]:
    """The fields of the `device` variable of an expression."""
    attributes, capacity = DomainValues(), DomainValues()
    for name, value in device.attributes.items():
        domain, short = _qualified(driver, name)
        attributes.setdefault(domain, {})[short] = _plain(f"{domain}/{short}", value)
    for name, offered in device.capacity.items():
        domain, short = _qualified(driver, name)
        capacity.setdefault(domain, {})[short] = Quantity(Fraction(offered.value))
    return {"driver": driver, "attributes": attributes, "capacity": capacity, "allowMultipleAllocations": False}


def _qualified(driver: str, name: str) -> tuple[str, str]:
    domain, slash, short = name.rpartition("/")
    return (domain, short) if slash else (driver, name)


def _plain(name: str, value: Attribute) -> Any:
    if value is None:
        raise EvaluationError(f"attribute {name}: unsupported attribute value")
    return Semver.parse(value.version) if isinstance(value, Version) else value


MOST_DEVICES = 32
"""Limit of devices per claim (AllocationResultsMaxSize)."""
MOST_TRIES = 20_000
"""Limit of device picks on one node; the search then ends as Kubernetes' does after its filterTimeout."""
KEEPS_AWAY = ("NoSchedule", "NoExecute")


class Broken(Exception):
    """Error: a selector cannot be applied to a device, or a claim asks for too many devices; no node is feasible until
    that is fixed.
    """


class TooLong(Exception):
    """Error: the search on a node exceeded its limit of tries."""


class DeviceSearch:
    """One allocation on one node. Mutates: devices are picked, and released on backtracking."""

    def __init__(self, stock: Stock, node: Node) -> None:
        self._stock = stock
        self._offered = list(stock.offered(node))
        pools = {one.place[:2] for one in self._offered}
        self._taken = stock.taken(pools)
        self._left = stock.left(pools, self._taken)
        self._tries = 0
        self._picked: dict[str, list[tuple[DeviceRequest, str, Offered]]] = {}
        """Claim → (request, its name with that of its parent request, device)."""
        self._suits: dict[tuple[int, int], bool] = {}

    def run(self, claims: Sequence[ResourceClaim]) -> dict[str, Allocation] | None:
        """Return the allocations by claim; None if no combination of devices satisfies all claims.

        Raises:
            Broken: a selector fails, or a claim asks for more devices than the limit per claim.
            TooLong: the search exceeds its limit of tries.
        """
        for claim in claims:
            least = sum(self._least(request) for request in claim.requests)
            if least > MOST_DEVICES:
                text = f"number of requested devices {least} exceeds the claim limit of {MOST_DEVICES}"
                raise Broken(f"claim {claim.key}: {text}")
        steps = [(claim, request) for claim in claims for request in claim.requests]
        self._picked = {claim.key: [] for claim in claims}
        if not self._next(steps, 0):
            return None
        return {key: _allocation(picked) for key, picked in self._picked.items()}

    def _next(self, steps: Sequence[tuple[ResourceClaim, DeviceRequest]], at: int) -> bool:
        if at == len(steps):
            return True
        claim, request = steps[at]
        for asked in request.options or (request,):
            name = f"{request.name}/{asked.name}" if request.options else request.name
            if self._fill(claim, asked, name, self._wanted(asked), 0, lambda: self._next(steps, at + 1)):
                return True
        return False

    def _least(self, request: DeviceRequest) -> int:
        """The fewest devices that any alternative of the request needs."""
        return min(self._wanted(asked) for asked in request.options or (request,))

    def _wanted(self, asked: DeviceRequest) -> int:
        """The number of devices that the request needs; in mode All every matching device, and at least one."""
        if asked.mode == EXACT_COUNT:
            return asked.count
        return max(1, sum(self._suited(asked, one) for one in self._offered))

    def _fill(
        self, claim: ResourceClaim, asked: DeviceRequest, name: str, count: int, start: int, rest: Callable[[], bool]
    ) -> bool:
        """Pick the devices that a request still needs, such that the remaining requests can be satisfied."""
        if count == 0:
            return rest()
        for number in range(start, len(self._offered) - count + 1):
            one = self._offered[number]
            if not self._free(claim, asked, name, one) or not self._suited(asked, one):
                continue
            self._tries += 1
            if self._tries > MOST_TRIES:
                raise TooLong
            self._pick(claim, asked, name, one)
            if self._fill(claim, asked, name, count - 1, number + 1, rest):
                return True
            self._put_back(claim)
        return False

    def _free(self, claim: ResourceClaim, asked: DeviceRequest, name: str, one: Offered) -> bool:
        mine = self._picked[claim.key]
        if len(mine) == MOST_DEVICES or any(other is one for _, _, other in mine):
            return False
        if not asked.admin_access and (one.place in self._taken or not self._affordable(one)):
            return False
        if any(taint.effect in KEEPS_AWAY and not _tolerated(asked, one) for taint in one.device.taints):
            return False
        return all(_meets_constraint(rule, name, one, mine) for rule in claim.constraints)

    def _suited(self, asked: DeviceRequest, one: Offered) -> bool:
        """True if the selectors of the device class and of the request match the device."""
        key = id(asked), id(one)
        if key not in self._suits:
            own = self._stock.classes[asked.device_class].selectors
            self._suits[key] = _meant((*own, *asked.selectors), one)
        return self._suits[key]

    def _affordable(self, one: Offered) -> bool:
        return all(self._left.get(key, 0) >= amount for key, amount in one.consumed)

    def _pick(self, claim: ResourceClaim, asked: DeviceRequest, name: str, one: Offered) -> None:
        self._picked[claim.key].append((asked, name, one))
        if not asked.admin_access:
            self._taken.add(one.place)
            for key, amount in one.consumed:
                self._left[key] -= amount

    def _put_back(self, claim: ResourceClaim) -> None:
        asked, _, one = self._picked[claim.key].pop()
        if not asked.admin_access:
            self._taken.discard(one.place)
            for key, amount in one.consumed:
                self._left[key] += amount


def _meant(selectors: Sequence[str], one: Offered) -> bool:
    trees = []
    for number, text in enumerate(selectors):
        tree = compile_selector(text)
        if isinstance(tree, str):
            raise Broken(f"selector #{number}: CEL compile error: {tree}")
        trees.append(tree)
    try:
        return selects(trees, one.part.driver, one.device)
    except EvaluationError as problem:
        raise Broken(f"device {'/'.join(one.place)}: CEL runtime error: {problem}") from None


def _tolerated(asked: DeviceRequest, one: Offered) -> bool:
    return all(
        any(toleration.tolerates(taint) for toleration in asked.tolerations)
        for taint in one.device.taints
        if taint.effect in KEEPS_AWAY
    )


def _meets_constraint(
    rule: DeviceConstraint, name: str, one: Offered, picked: Sequence[tuple[DeviceRequest, str, Offered]]
) -> bool:
    """True if the device satisfies a constraint together with the devices already picked."""

    def meant(request: str) -> bool:
        return not rule.requests or request in rule.requests or request.partition("/")[0] in rule.requests

    if not meant(name):
        return True
    value = _attribute(one, rule.same or rule.distinct)
    others = [_attribute(other, rule.same or rule.distinct) for _, request, other in picked if meant(request)]
    if value is None:
        return False
    return all(other == value for other in others) if rule.same else value not in others


def _attribute(one: Offered, name: str) -> object:
    """The value of an attribute by its full name, where a name without domain has the driver's; None if missing."""
    known = one.device.attributes
    domain, _, short = name.rpartition("/")
    return known.get(name, known.get(short) if domain == one.part.driver else None)


def _allocation(picked: Sequence[tuple[DeviceRequest, str, Offered]]) -> Allocation:
    devices = tuple(AllocatedDevice(name, *one.place, shared=asked.admin_access) for asked, name, one in picked)
    node = next((one.node for _, _, one in picked if one.node), "")
    if node:
        return Allocation(devices, (NodeTerm(fields=(Requirement("metadata.name", "In", (node,)),)),))
    return Allocation(devices, next((one.nodes for _, _, one in picked if one.nodes is not None), None))


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
    """True if pods on the node can use the allocation, or if there is none (None)."""
    nodes = allocation.nodes if allocation is not None else None
    return nodes is None or any(term.matches(node.labels, node.name) for term in nodes)
