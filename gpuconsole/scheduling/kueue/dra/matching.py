"""Finds the devices for a request: those in complete pools that match the source, the class and the request."""

from collections.abc import Sequence

from gpuconsole.model.devices import Device, DeviceRequest
from gpuconsole.scheduling.devices.cel.tree import Tree
from gpuconsole.scheduling.devices.cel.values import EvaluationError
from gpuconsole.scheduling.devices.selectors import selects
from gpuconsole.scheduling.kueue.dra.catalogue import DeviceCatalogue
from gpuconsole.scheduling.kueue.dra.mapping import CapacitySource, CounterSource
from gpuconsole.scheduling.kueue.dra.problems import ClaimError, Problem, ProblemKind
from gpuconsole.scheduling.kueue.dra.selectors import compiled

Selectors = tuple[list[Tree], list[Tree]]
"""(selectors of the class, selectors of the request)"""


def selectors_of(catalogue: DeviceCatalogue, request: DeviceRequest, path: str) -> Selectors:
    """Compile the selectors of a request and of its class. Raises ClaimError, naming `path`."""
    by_class = catalogue.class_selectors(request.device_class, path)
    return by_class, compiled(request.selectors, f"{path}.exactly.selectors", "CEL compilation failed")


def matching(
    catalogue: DeviceCatalogue, source: CounterSource | CapacitySource, selectors: Selectors, path: str
) -> list[Device]:
    """Return the devices of a source's driver, in complete pools, that match all selectors. Raises ClaimError."""
    own = compiled([source.device_selector], path, "deviceSelector CEL compilation failed")
    stages = (("deviceSelector", own), ("DeviceClass selector", selectors[0]), ("request selector", selectors[1]))
    return [
        device
        for pool in catalogue.pools_of(source.driver)
        if pool.complete
        for device in pool.devices
        if all(_selected(trees, source.driver, device, stage, path) for stage, trees in stages)
    ]


def _selected(trees: Sequence[Tree], driver: str, device: Device, stage: str, path: str) -> bool:
    try:
        return selects(trees, driver, device)
    except EvaluationError as error:
        detail = f"CEL evaluation error in {stage} for device {device.name}: {error}"
        raise ClaimError(Problem(ProblemKind.INTERNAL, path, detail=detail)) from None


def enough(matched: Sequence[Device], count: int, kind: str, path: str) -> None:
    """Raise ClaimError if fewer devices match than are requested: more may be published later."""
    if len(matched) < count:
        detail = (
            f"insufficient matching devices for {kind} driver: {len(matched)} device(s) match but {count} requested"
        )
        raise ClaimError(Problem(ProblemKind.INTERNAL, path, detail=detail))
