"""Which devices a pod's claims get on a node (Kubernetes 1.35, DynamicResources and its allocator).

Claims, their requests and their devices are tried in order, and tried again where a choice leads nowhere; the first
that works is taken. What is not there: devices that several claims share by capacity (allowMultipleAllocations).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from gpuconsole.model.cluster import Node, NodeTerm, Pod, Requirement
from gpuconsole.model.devices import (
    EXACT_COUNT,
    Allocation,
    DeviceRequest,
    GivenDevice,
    Likeness,
    ResourceClaim,
)
from gpuconsole.scheduling.devices.cel.values import EvaluationError
from gpuconsole.scheduling.devices.selectors import compile_selector, selects
from gpuconsole.scheduling.devices.stock import MOST_USERS, Offered, Stock, claim_keys

CANNOT = "cannot allocate all claims"
ELSEWHERE = "resourceclaim not available on the node"
IN_USE = "resourceclaim in use"
KEEPS_AWAY = ("NoSchedule", "NoExecute")


class Broken(Exception):
    """A selector cannot be applied to a device: nothing is allocated while that is so."""


class Grant(Struct, frozen=True):
    """What the claims of a pod would get on a node, or why they cannot."""

    allocations: Mapping[str, Allocation] = {}
    """Of claims that have none yet, by `namespace/name`."""
    shared: tuple[str, ...] = ()
    """Claims that have their devices, and that the pod would use too."""
    reason: str = ""
    broken: bool = False
    """A selector failed: no node can be judged."""


def trouble(pod: Pod, stock: Stock) -> str:
    """Why no node will do, as things are (PreFilter)."""
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
    """What the pod's claims would get on the node. Ask only pods that have no `trouble`."""
    claims = [stock.claims[key] for key in dict.fromkeys(claim_keys(pod))]
    open_claims = [claim for claim in claims if stock.allocation_of(claim) is None]
    allocations: Mapping[str, Allocation] | None = {}
    if open_claims:
        try:
            allocations = _Search(stock, node).run(open_claims)
        except Broken as problem:
            return Grant(reason=str(problem), broken=True)
    if allocations is None:
        return Grant(reason=CANNOT)
    held = [claim for claim in claims if claim not in open_claims]
    if not all(usable(stock.allocation_of(claim), node) for claim in held):
        return Grant(reason=ELSEWHERE)
    return Grant(allocations, tuple(claim.key for claim in held))


def usable(allocation: Allocation | None, node: Node) -> bool:
    """True if pods on the node can use what was allocated."""
    nodes = allocation.nodes if allocation is not None else None
    return nodes is None or any(term.matches(node.labels, node.name) for term in nodes)


class _Search:
    """One allocation on one node. Mutates: picks are made and taken back."""

    def __init__(self, stock: Stock, node: Node) -> None:
        self._stock = stock
        self._offered = list(stock.offered(node))
        self._taken = stock.taken()
        self._left = _counters_left(stock, self._taken)
        self._picked: dict[str, list[tuple[DeviceRequest, str, Offered]]] = {}
        """Claim → (request, its name in full, device)."""
        self._suits: dict[tuple[int, int], bool] = {}

    def run(self, claims: Sequence[ResourceClaim]) -> dict[str, Allocation] | None:
        """Allocations by claim; None if there are not enough devices.

        Raises:
            Broken: a selector cannot be applied.
        """
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

    def _wanted(self, asked: DeviceRequest) -> int:
        """How many devices the request needs; all that suit it in mode All, of which there has to be one."""
        if asked.mode == EXACT_COUNT:
            return asked.count
        return max(1, sum(self._suited(asked, one) for one in self._offered))

    def _fill(
        self, claim: ResourceClaim, asked: DeviceRequest, name: str, count: int, start: int, rest: Callable[[], bool]
    ) -> bool:
        """Pick so many devices for a request, from one on, then see whether the rest works out."""
        if count == 0:
            return rest()
        for number in range(start, len(self._offered)):
            one = self._offered[number]
            if not self._free(claim, asked, name, one) or not self._suited(asked, one):
                continue
            self._pick(claim, asked, name, one)
            if self._fill(claim, asked, name, count - 1, number + 1, rest):
                return True
            self._put_back(claim)
        return False

    def _free(self, claim: ResourceClaim, asked: DeviceRequest, name: str, one: Offered) -> bool:
        mine = self._picked[claim.key]
        if any(other is one for _, _, other in mine):
            return False
        if not asked.admin_access and (one.place in self._taken or not self._affordable(one)):
            return False
        if any(taint.effect in KEEPS_AWAY and not _tolerated(asked, one) for taint in one.device.taints):
            return False
        return all(_alike(rule, name, one, mine) for rule in claim.likenesses)

    def _suited(self, asked: DeviceRequest, one: Offered) -> bool:
        """True if the class's selectors and the request's own mean the device."""
        key = id(asked), id(one)
        if key not in self._suits:
            own = self._stock.classes[asked.device_class].selectors
            self._suits[key] = _meant((*own, *asked.selectors), one)
        return self._suits[key]

    def _affordable(self, one: Offered) -> bool:
        return all(self._left.get(key, 0) >= amount for key, amount in _consumed(one))

    def _pick(self, claim: ResourceClaim, asked: DeviceRequest, name: str, one: Offered) -> None:
        self._picked[claim.key].append((asked, name, one))
        if not asked.admin_access:
            self._taken.add(one.place)
            for key, amount in _consumed(one):
                self._left[key] -= amount

    def _put_back(self, claim: ResourceClaim) -> None:
        asked, _, one = self._picked[claim.key].pop()
        if not asked.admin_access:
            self._taken.discard(one.place)
            for key, amount in _consumed(one):
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


Counter = tuple[str, str, str, str]
"""(driver, pool, counter set, counter)."""


def _consumed(one: Offered) -> Iterator[tuple[Counter, int]]:
    for name, amounts in zip(one.device.counter_sets, one.device.counters, strict=False):
        for counter, amount in amounts.items():
            yield (one.part.driver, one.part.pool, name, counter), amount


def _counters_left(stock: Stock, taken: set[tuple[str, str, str]]) -> dict[Counter, int]:
    """What is left of the counters of each pool, wherever its devices are."""
    left: dict[Counter, int] = {}
    for (driver, name), pool in stock.pools().items():
        for part in pool.parts:
            for of, amounts in part.counter_sets.items():
                left.update({(driver, name, of, counter): amount for counter, amount in amounts.items()})
    for pool in stock.pools().values():
        for one in (Offered(device, part) for part in pool.parts for device in part.devices):
            if one.place in taken:
                for key, amount in _consumed(one):
                    left[key] = left.get(key, 0) - amount
    return left


def _tolerated(asked: DeviceRequest, one: Offered) -> bool:
    return all(
        any(toleration.tolerates(taint) for toleration in asked.tolerations)
        for taint in one.device.taints
        if taint.effect in KEEPS_AWAY
    )


def _alike(rule: Likeness, name: str, one: Offered, picked: Sequence[tuple[DeviceRequest, str, Offered]]) -> bool:
    """True if the device may stand beside those that were picked for the requests of a constraint."""

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
    """An attribute by its full name; one without a domain is the driver's."""
    known = one.device.attributes
    domain, _, short = name.rpartition("/")
    return known.get(name, known.get(short) if domain == one.part.driver else None)


def _allocation(picked: Sequence[tuple[DeviceRequest, str, Offered]]) -> Allocation:
    devices = tuple(GivenDevice(name, *one.place, shared=asked.admin_access) for asked, name, one in picked)
    node = next((one.node for _, _, one in picked if one.node), "")
    if node:
        return Allocation(devices, (NodeTerm(fields=(Requirement("metadata.name", "In", (node,)),)),))
    return Allocation(devices, next((one.nodes for _, _, one in picked if one.nodes is not None), None))
