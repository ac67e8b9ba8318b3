"""Quota charged per device: how many devices of each class a claim requests (Kueue 0.19 pkg/dra/claims.go).

A request with selectors is refused while the cluster has too few matching devices. A request for an extended resource
that a device class provides is charged like a claim (extended_resources.go).

`DeviceCatalogue` has the device classes, claim templates and published devices. Drivers publish a pool of devices as
ResourceSlices, with a higher generation after each change. Problems are reported by field, in the words of Kubernetes'
field errors.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from gpuconsole.model.devices import (
    EXACT_COUNT,
    Device,
    DeviceClass,
    DeviceRequest,
    ResourceClaimTemplate,
    ResourceSlice,
)
from gpuconsole.model.pod_template import Container, PodTemplate
from gpuconsole.model.resources import MAX, Resources, format_quantity
from gpuconsole.scheduling.devices.allocator import compile_selector, matches_device
from gpuconsole.scheduling.devices.cel.evaluation import EvaluationError
from gpuconsole.scheduling.devices.cel.parsing import Tree
from gpuconsole.scheduling.kueue.config import ClassMap, DeviceClassMapping


class ResourcePool(Struct, frozen=True):
    """The slices of a pool's newest generation."""

    name: str
    generation: int
    expected: int
    slices: tuple[ResourceSlice, ...]

    @property
    def is_complete(self) -> bool:
        """True if all slices are published; only then its devices count."""
        return len(self.slices) == self.expected

    @property
    def devices(self) -> list[Device]:
        """The devices of all slices."""
        return [device for part in self.slices for device in part.devices]


def pools_of(slices: Iterable[ResourceSlice], driver: str) -> list[ResourcePool]:
    """Return a driver's pools, in order of their first slices."""
    pools: dict[str, ResourcePool] = {}
    for part in slices:
        if part.driver != driver:
            continue
        known = pools.get(part.pool)
        if known is None or part.generation > known.generation:
            pools[part.pool] = ResourcePool(part.pool, part.generation, part.pool_slices, (part,))
        elif part.generation == known.generation:
            pools[part.pool] = ResourcePool(known.name, known.generation, known.expected, (*known.slices, part))
    return list(pools.values())


class ProblemKind(StrEnum):
    """Kind of a field error: how its text begins."""

    INVALID = "Invalid value"
    NOT_FOUND = "Not found"
    INTERNAL = "Internal error"
    """An error that may resolve itself: an object is missing, or too few devices are published yet."""


class Problem(Struct, frozen=True):
    """A field error. `value` is the rejected value, null in the text if None; internal errors show no value."""

    kind: ProblemKind
    field: str
    value: str | None = None
    detail: str = ""

    @property
    def text(self) -> str:
        """The error message, as Kubernetes writes it."""
        match self.kind:
            case ProblemKind.INTERNAL:
                intro = self.kind.value
            case ProblemKind.INVALID | ProblemKind.NOT_FOUND:
                intro = f"{self.kind.value}: {json.dumps('null' if self.value is None else self.value)}"
        return f"{self.field}: {intro}: {self.detail}" if self.detail else f"{self.field}: {intro}"


class ClaimError(Exception):
    """Error: a claim cannot be charged."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__(aggregate_problems(problems))
        self.problems = problems

    def __str__(self) -> str:
        return aggregate_problems(self.problems)

    def with_parent(self, field: str, context: str) -> "ClaimError":
        """Return the same problems with `field` as parent path, introduced by `context`."""
        return ClaimError(
            *(
                Problem(p.kind, f"{field}.{p.field}" if field else p.field, p.value, f"{context}: {p.detail}")
                for p in self.problems
            )
        )


def aggregate_problems(problems: Sequence[Problem]) -> str:
    """Join the problems into one text without duplicates (ErrorList.ToAggregate)."""
    texts = list(dict.fromkeys(problem.text for problem in problems))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def compile_selectors(selectors: Sequence[str], path: str, context: str, *, first_only: bool = False) -> list[Tree]:
    """Compile CEL expressions of selectors; empty ones (selectors without CEL) are skipped.

    Raises ClaimError with all problems, or only the first with `first_only`; `path` is the selectors' field path,
    `context` begins the messages.
    """
    trees: list[Tree] = []
    problems: list[Problem] = []
    for index, expression in enumerate(selectors):
        found = compile_selector(expression) if expression else None
        if isinstance(found, str):
            field = f"{path}[{index}].cel.expression"
            problems.append(Problem(ProblemKind.INVALID, field, expression, f"{context}: {found}"))
        elif found is not None:
            trees.append(found)
    if problems:
        raise ClaimError(*problems[: 1 if first_only else None])
    return trees


class DeviceCatalogue:
    """DRA objects by name. Frozen after construction; pools are computed on demand."""

    __slots__ = ("_pools", "classes", "extended", "map", "slices", "templates")

    def __init__(
        self,
        mappings: Sequence[DeviceClassMapping] = (),
        classes: Mapping[str, DeviceClass] | None = None,
        templates: Mapping[str, ResourceClaimTemplate] | None = None,
        slices: Iterable[ResourceSlice] = (),
    ) -> None:
        self.map = ClassMap(mappings)
        self.classes = classes or {}
        self.templates = templates or {}
        """By `namespace/name`."""
        self.slices = sorted(slices, key=lambda part: part.name)
        self.extended: dict[str, DeviceClass] = {}
        """Extended resource → the device class that provides it."""
        for known in self.classes.values():
            name = known.extended_resource
            if name:
                rival = self.extended.get(name)
                self.extended[name] = known if rival is None else newest_class((rival, known))
        self._pools: dict[str, list[ResourcePool]] = {}

    def slices_of(self, driver: str) -> list[ResourceSlice]:
        """The ResourceSlices of a driver, by name."""
        return [part for part in self.slices if part.driver == driver]

    def pools_of(self, driver: str) -> list[ResourcePool]:
        """A driver's pools by name, complete or not."""
        if driver not in self._pools:
            self._pools[driver] = sorted(pools_of(self.slices, driver), key=lambda pool: pool.name)
        return self._pools[driver]

    def requests_of(self, namespace: str, template: str, path: str, context: str = "") -> Sequence[DeviceRequest]:
        """The device requests of a claim template. Raises ClaimError, naming `path`, if it does not exist."""
        found = self.templates.get(f"{namespace}/{template}")
        if found is None:
            missing = f'resourceclaimtemplates.resource.k8s.io "{template}" not found'
            detail = f"failed to get claim spec for ResourceClaimTemplate {template}{context}: {missing}"
            raise ClaimError(Problem(ProblemKind.INTERNAL, path, detail=detail))
        return found.requests

    def class_selectors(self, name: str, path: str) -> list[Tree]:
        """The compiled selectors of a device class; none for an empty name. Raises ClaimError, naming `path`."""
        if not name:
            return []
        known = self.classes.get(name)
        if known is None:
            missing = f'deviceclasses.resource.k8s.io "{name}" not found'
            raise ClaimError(Problem(ProblemKind.INTERNAL, path, detail=f"failed to get DeviceClass {name}: {missing}"))
        context = f"DeviceClass {name} has invalid CEL selector"
        return compile_selectors(known.selectors, path, context, first_only=True)


def newest_class(classes: Sequence[DeviceClass]) -> DeviceClass:
    """Return the newest of the classes that offer the same extended resource; on ties the first by name."""
    newest = max(known.created for known in classes)
    return min((known for known in classes if known.created == newest), key=lambda known: known.name)


DriverDevice = tuple[str, Device]
"""A published device: (driver, device)."""


def count_devices(requests: Sequence[DeviceRequest]) -> dict[str, int]:
    """Class → number of devices. Raises ClaimError, with paths from `devices`, for invalid or unsupported requests."""
    counts: dict[str, int] = {}
    for index, request in enumerate(requests):
        _check_supported(request, f"devices.requests[{index}]")
        if request.device_class:
            counts[request.device_class] = min(MAX, counts.get(request.device_class, 0) + request.count)
    return counts


def _check_supported(request: DeviceRequest, path: str) -> None:
    if request.alternatives:
        raise _invalid(path, "FirstAvailable device selection is not supported")
    if not request.exactly:
        raise _invalid(path, "Exactly must be set if FirstAvailable is nil")
    selectors = f"{path}.exactly.selectors"
    try:
        compile_selectors(request.selectors, selectors, "CEL compilation failed")
    except ClaimError as error:
        raise _invalid(selectors, str(error)) from None
    if request.admin_access:
        raise _invalid(f"{path}.exactly.adminAccess", "AdminAccess is not supported")
    if request.mode != EXACT_COUNT:
        detail = "AllocationMode 'All' is not supported"
        detail = detail if request.mode == "All" else f"unsupported allocation mode: {request.mode}"
        raise ClaimError(Problem(ProblemKind.INVALID, f"{path}.exactly.allocationMode", request.mode, detail))


def _invalid(path: str, detail: str) -> ClaimError:
    return ClaimError(Problem(ProblemKind.INVALID, path, detail=detail))


def check_devices(catalogue: DeviceCatalogue, requests: Sequence[DeviceRequest], path: str) -> None:
    """Raise ClaimError if the cluster has too few devices that match the selectors of the requests.

    Each device counts for one request only; `path` is the field path of the claim.
    """
    selecting = [(number, request) for number, request in enumerate(requests) if any(request.selectors)]
    if not selecting:
        return
    free = [(part.driver, device) for part in _slices(catalogue, selecting) for device in part.devices]
    problems: list[Problem] = []
    for number, request in selecting:
        try:
            free = _assign_devices(catalogue, request, free, f"{path}.devices.requests[{number}]")
        except ClaimError as error:
            problems += error.problems
    if problems:
        raise ClaimError(*problems)


def _slices(catalogue: DeviceCatalogue, selecting: Sequence[tuple[int, DeviceRequest]]) -> list[ResourceSlice]:
    """Return the slices of the drivers in the sources of these requests; all slices if a class has no sources."""
    drivers: list[str] = []
    for _, request in selecting:
        counters = catalogue.map.counters.get(request.device_class, [])
        capacities = catalogue.map.capacities.get(request.device_class, [])
        if not counters and not capacities:
            return catalogue.slices
        drivers += [source.driver for _, source in counters] + [source.driver for source in capacities]
    return [part for driver in dict.fromkeys(drivers) for part in catalogue.slices_of(driver)]


def _assign_devices(
    catalogue: DeviceCatalogue, request: DeviceRequest, free: list[DriverDevice], path: str
) -> list[DriverDevice]:
    """Return the devices that are left after the request took its own. Raises ClaimError."""
    field, name = f"{path}.exactly.selectors", request.device_class
    by_class = catalogue.class_selectors(name, path)
    own = compile_selectors(request.selectors, field, "CEL compilation failed")
    try:
        given = _first_matching(free, (*by_class, *own), request.count)
    except EvaluationError as error:
        raise _invalid(field, f"CEL evaluation failed for DeviceClass {name}: {error}") from None
    if len(given) < request.count:
        detail = (
            f"insufficient matching devices for CEL selector in DeviceClass {name}:"
            f" {len(given)} device(s) match in the cluster but {request.count} requested"
        )
        raise ClaimError(Problem(ProblemKind.INTERNAL, field, detail=detail))
    return [published for number, published in enumerate(free) if number not in given]


def _first_matching(free: Sequence[DriverDevice], trees: Sequence[Tree], count: int) -> set[int]:
    """Return the positions of the first `count` devices that match, but at least of one."""
    found: set[int] = set()
    for number, (driver, device) in enumerate(free):
        if len(found) >= max(1, count):
            break
        if matches_device(trees, driver, device):
            found.add(number)
    return found


def is_extended(resource: str) -> bool:
    """True for a resource name with a domain, except `kubernetes.io/` and huge pages."""
    return "/" in resource and not resource.startswith(("kubernetes.io/", "hugepages-"))


def requests_extended_resource(template: PodTemplate, catalogue: DeviceCatalogue) -> bool:
    """True if a container requests an extended resource that a device class provides."""
    return any(
        amount and name in catalogue.extended and is_extended(name)
        for container in (*template.init_containers, *template.containers)
        for name, amount in container.requests.items()
    )


class _ExtendedRequest:
    """A pod's request for one extended resource: containers with their paths, and amounts."""

    __slots__ = ("places", "running", "starting")

    def __init__(self) -> None:
        self.places: list[tuple[str, Container]] = []
        self.starting = 0
        self.running = 0

    @property
    def total(self) -> int:
        """The pod's effective request."""
        return max(self.starting, self.running)


def charge_extended(
    catalogue: DeviceCatalogue, template: PodTemplate, path: str, *, counters: bool, capacities: bool
) -> tuple[dict[str, int], frozenset[str]]:
    """Return one pod's charges by quota resource, and the requested resources that they replace.

    The amount is that of all containers together or of the largest init container, whichever is larger. With `counters`
    and `capacities`, a class that has such sources cannot be requested as an extended resource. `path` is the field
    path of the pod's spec. Raises ClaimError with all problems.
    """
    charges: dict[str, int] = {}
    replaced: set[str] = set()
    problems: list[Problem] = []
    for name, asked in _extended_requests(template, path).items():
        try:
            key = _quota_key(catalogue, name, asked.places[0][0], counters=counters, capacities=capacities)
            if key:
                charges[key] = min(MAX, charges.get(key, 0) + _whole_amount(name, asked))
                replaced.add(name)
        except ClaimError as error:
            problems += error.problems
    if problems:
        raise ClaimError(*problems)
    return charges, frozenset(replaced)


def _extended_requests(template: PodTemplate, path: str) -> dict[str, _ExtendedRequest]:
    found: dict[str, _ExtendedRequest] = {}
    for place, container, requests in _containers(template.init_containers, f"{path}.initContainers"):
        for name, amount in requests.items():
            asked = found.setdefault(name, _ExtendedRequest())
            asked.places.append((place, container))
            asked.starting = max(asked.starting, amount)
    for place, container, requests in _containers(template.containers, f"{path}.containers"):
        for name, amount in requests.items():
            asked = found.setdefault(name, _ExtendedRequest())
            asked.places.append((place, container))
            asked.running += amount
    return dict(sorted(found.items()))


def _containers(containers: Sequence[Container], path: str) -> Iterator[tuple[str, Container, Resources]]:
    for index, container in enumerate(containers):
        effective = container.effective.items()
        yield f"{path}[{index}]", container, {n: amount for n, amount in effective if amount > 0 and is_extended(n)}


def _quota_key(catalogue: DeviceCatalogue, name: str, path: str, *, counters: bool, capacities: bool) -> str:
    """Return the quota resource charged for an extended resource: that of its class, or itself if not mapped.

    Empty if no class provides it. Raises ClaimError.
    """
    chosen = catalogue.extended.get(name)
    if chosen is None:
        return ""
    resource = catalogue.map.resource_of(chosen.name)
    if resource is None:
        return name
    if counters and catalogue.map.counters.get(chosen.name):
        source, remedy = "counters", "CEL selectors for counter-based quota"
    elif capacities and catalogue.map.capacities.get(chosen.name):
        source, remedy = "capacity sources", "capacity.requests for capacity-based quota"
    else:
        return resource
    detail = (
        f"extended resource {name} resolves to DeviceClass {chosen.name} with {source} configured;"
        f" use ResourceClaimTemplates with {remedy}"
    )
    raise ClaimError(Problem(ProblemKind.INVALID, path, name, detail))


def _whole_amount(name: str, asked: _ExtendedRequest) -> int:
    """Return the requested number of devices. Raises ClaimError if it is not an integer or too large."""
    broken = [
        Problem(ProblemKind.INVALID, f"{place}.resources.requests.{name}", container.fractions[name], _NO_INTEGER)
        for place, container in asked.places
        if name in container.fractions
    ]
    if broken:
        raise ClaimError(*broken)
    if asked.total > MAX:
        field = f"{asked.places[0][0]}.resources.requests.{name}"
        amount = format_quantity(name, asked.total)
        raise ClaimError(
            Problem(ProblemKind.INVALID, field, amount, "total extended resource quantity overflows int64")
        )
    return asked.total


_NO_INTEGER = "extended resource quantity must be an integer"
