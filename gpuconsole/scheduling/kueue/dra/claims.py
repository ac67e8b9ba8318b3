"""Quota charged per device: how many devices of each class a claim requests (Kueue 0.19 pkg/dra/claims.go).

A request with selectors is refused while the cluster has too few matching devices.

Extended resources that a device class provides: a request for one is charged like a claim.

Kueue 0.19 pkg/dra/extended_resources.go.
"""

from collections.abc import Iterator, Sequence

from gpuconsole.model.devices import EXACT_COUNT, Device, DeviceRequest, ResourceSlice
from gpuconsole.model.pod_template import Container, PodTemplate
from gpuconsole.model.resources import MAX, Resources, format_quantity
from gpuconsole.scheduling.devices.cel.evaluation import EvaluationError
from gpuconsole.scheduling.devices.cel.parsing import Tree
from gpuconsole.scheduling.devices.selectors import selects
from gpuconsole.scheduling.kueue.dra.catalogue import ClaimError, DeviceCatalogue, Problem, ProblemKind, compiled

Published = tuple[str, Device]
"""(driver, device)"""


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
        compiled(request.selectors, selectors, "CEL compilation failed")
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
            free = _give(catalogue, request, free, f"{path}.devices.requests[{number}]")
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


def _give(catalogue: DeviceCatalogue, request: DeviceRequest, free: list[Published], path: str) -> list[Published]:
    """Return the devices that are left after the request took its own. Raises ClaimError."""
    field, name = f"{path}.exactly.selectors", request.device_class
    by_class = catalogue.class_selectors(name, path)
    own = compiled(request.selectors, field, "CEL compilation failed")
    try:
        given = _first(free, (*by_class, *own), request.count)
    except EvaluationError as error:
        raise _invalid(field, f"CEL evaluation failed for DeviceClass {name}: {error}") from None
    if len(given) < request.count:
        detail = (
            f"insufficient matching devices for CEL selector in DeviceClass {name}:"
            f" {len(given)} device(s) match in the cluster but {request.count} requested"
        )
        raise ClaimError(Problem(ProblemKind.INTERNAL, field, detail=detail))
    return [published for number, published in enumerate(free) if number not in given]


def _first(free: Sequence[Published], trees: Sequence[Tree], count: int) -> set[int]:
    """Return the positions of the first `count` devices that match, but at least of one."""
    found: set[int] = set()
    for number, (driver, device) in enumerate(free):
        if len(found) >= max(1, count):
            break
        if selects(trees, driver, device):
            found.add(number)
    return found


def is_extended(resource: str) -> bool:
    """True for a resource name with a domain, except `kubernetes.io/` and huge pages."""
    return "/" in resource and not resource.startswith(("kubernetes.io/", "hugepages-"))


def asks_for(template: PodTemplate, catalogue: DeviceCatalogue) -> bool:
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
    for name, asked in _asked(template, path).items():
        try:
            key = _quota_key(catalogue, name, asked.places[0][0], counters=counters, capacities=capacities)
            if key:
                charges[key] = min(MAX, charges.get(key, 0) + _whole(name, asked))
                replaced.add(name)
        except ClaimError as error:
            problems += error.problems
    if problems:
        raise ClaimError(*problems)
    return charges, frozenset(replaced)


def _asked(template: PodTemplate, path: str) -> dict[str, _ExtendedRequest]:
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
    resource = catalogue.map.resource(chosen.name)
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


def _whole(name: str, asked: _ExtendedRequest) -> int:
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
