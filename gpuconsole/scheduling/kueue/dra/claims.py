"""Charges by device: how many devices of which class the claims of a pod ask for (Kueue 0.19 pkg/dra/claims.go).

A request with selectors is refused while the cluster does not have enough devices that they mean.
"""

from collections.abc import Sequence

from gpuconsole.model.devices import EXACT_COUNT, Device, DeviceRequest, ResourceSlice
from gpuconsole.model.quantity import MAX
from gpuconsole.scheduling.devices.cel.tree import Tree
from gpuconsole.scheduling.devices.cel.values import EvaluationError
from gpuconsole.scheduling.devices.selectors import selects
from gpuconsole.scheduling.kueue.dra.catalogue import DeviceCatalogue
from gpuconsole.scheduling.kueue.dra.problems import ClaimError, Problem, ProblemKind
from gpuconsole.scheduling.kueue.dra.selectors import compiled

Published = tuple[str, Device]
"""A driver and one of its devices."""


def count_devices(requests: Sequence[DeviceRequest]) -> dict[str, int]:
    """Class → number of devices; paths in problems start at `devices`. Raises ClaimError for what is not supported."""
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
    """Raise ClaimError unless the cluster has the devices that the selectors of the requests mean.

    A device that one request was given is not given to another; `path` leads to the claim.
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
    """What is published by the drivers that pay for these requests; everything, if one has no such drivers."""
    drivers: list[str] = []
    for _, request in selecting:
        counters = catalogue.map.counters.get(request.device_class, [])
        capacities = catalogue.map.capacities.get(request.device_class, [])
        if not counters and not capacities:
            return catalogue.slices
        drivers += [source.driver for _, source in counters] + [source.driver for source in capacities]
    return [part for driver in dict.fromkeys(drivers) for part in catalogue.slices_of(driver)]


def _give(catalogue: DeviceCatalogue, request: DeviceRequest, free: list[Published], path: str) -> list[Published]:
    """Return the devices left after the request got its own. Raises ClaimError."""
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
    """Positions of the first `count` devices that are selected."""
    found: set[int] = set()
    for number, (driver, device) in enumerate(free):
        if len(found) >= max(1, count):
            break
        if selects(trees, driver, device):
            found.add(number)
    return found
