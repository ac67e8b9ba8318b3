"""Quota charged per device: how many devices of each class a claim requests (Kueue 0.19 pkg/dra/claims.go).

A request with selectors is refused while the cluster has too few matching devices.
"""

from collections.abc import Sequence

from gpuconsole.model.devices import EXACT_COUNT, Device, DeviceRequest, ResourceSlice
from gpuconsole.model.resources import MAX
from gpuconsole.scheduling.devices.cel.tree import Tree
from gpuconsole.scheduling.devices.cel.values import EvaluationError
from gpuconsole.scheduling.devices.selectors import selects
from gpuconsole.scheduling.kueue.dra.catalogue import DeviceCatalogue
from gpuconsole.scheduling.kueue.dra.problems import ClaimError, Problem, ProblemKind
from gpuconsole.scheduling.kueue.dra.selectors import compiled

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
