"""Quota charged for devices by what they consume: counters and consumable capacity (Kueue 0.19 pkg/dra).

Quota charged for consumable capacity: what a claim takes of shared devices, rounded by their request policies.

Kueue 0.19 pkg/dra/capacity.go (gate KueueDRAIntegrationConsumableCapacity).

Quota charged for counters: as much as the largest matching device consumes (Kueue 0.19 pkg/dra/counters.go).

Finds the devices for a request: those in complete pools that match the source, the class and the request.
"""

from collections.abc import Sequence

from gpuconsole.model.devices import CapacityPolicy, Device, DeviceCapacity, DeviceRequest
from gpuconsole.model.resources import MAX
from gpuconsole.scheduling.devices.cel.evaluation import EvaluationError
from gpuconsole.scheduling.devices.cel.parsing import Tree
from gpuconsole.scheduling.devices.selectors import selects
from gpuconsole.scheduling.kueue.config import CapacitySource, CounterSource
from gpuconsole.scheduling.kueue.dra.catalogue import ClaimError, DeviceCatalogue, Problem, ProblemKind, compiled

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


def charge(value: int, count: int) -> int:
    """The charge for `count` devices at `value` each: never negative, at most MaxInt64."""
    return min(MAX, max(0, value) * max(1, count))


def counter_charge(counter: str, matched: Sequence[Device], count: int) -> int | None:
    """The charge for `count` devices by one counter, each at the maximum of any; None if no device consumes it."""
    consumed = [counters[counter] for device in matched for counters in device.counters if counter in counters]
    return charge(max(consumed), count) if consumed else None


def charge_by_counters(catalogue: DeviceCatalogue, request: DeviceRequest, path: str) -> dict[str, int]:
    """Quota resource → charge for a request, by the counters of its device class. Raises ClaimError, naming `path`.

    Empty if the class has no counter sources.
    """
    sources = catalogue.map.counters.get(request.device_class, [])
    costs: dict[str, int] = {}
    selectors = selectors_of(catalogue, request, path) if sources else ([], [])
    for resource, source in sources:
        matched = matching(catalogue, source, selectors, path)
        enough(matched, request.count, "counter", path)
        cost = counter_charge(source.name, matched, request.count)
        if cost is None:
            detail = f'matched devices have no consumesCounters entry for counter "{source.name}"'
            raise ClaimError(Problem(ProblemKind.INTERNAL, path, detail=detail))
        costs[resource] = min(MAX, costs.get(resource, 0) + cost)
    return costs


def rounded_to_values(amount: int, values: Sequence[int]) -> int | None:
    """Return the smallest of the ascending values that is at least the amount; None if there is none."""
    return next((value for value in values if value >= amount), None)


def rounded_to_range(amount: int, policy: CapacityPolicy) -> int | None:
    """Round the amount up to the policy's minimum plus a whole number of steps; None if it exceeds the maximum.

    A policy without a minimum rounds nothing.
    """
    if policy.least is not None:
        amount = max(amount, policy.least)
        if policy.step is not None and policy.step > 0:
            steps = -(-(amount - policy.least) // policy.step)
            amount = min(MAX, policy.least + steps * policy.step)
    return None if policy.most is not None and amount > policy.most else amount


def device_charge(capacity: DeviceCapacity, wanted: int | None) -> int | None:
    """Return what a claim takes of one device: its request, else the policy's default, else the whole capacity.

    Rounded up by the policy; None if the policy does not allow that much.
    """
    policy = capacity.policy
    if wanted is None:
        wanted = policy.default if policy is not None and policy.default is not None else capacity.value
    if policy is None:
        return wanted
    return rounded_to_values(wanted, policy.values) if policy.values else rounded_to_range(wanted, policy)


def capacity_charge(name: str, matched: Sequence[Device], count: int, wanted: int | None, path: str) -> int:
    """The charge for `count` devices by one capacity, each at the maximum of any. Raises ClaimError, naming `path`."""
    offered = [device.capacity[name] for device in matched if name in device.capacity]
    if not offered:
        detail = f'matched devices have no capacity dimension "{name}"'
        raise ClaimError(Problem(ProblemKind.INTERNAL, path, detail=detail))
    possible = [cost for capacity in offered if (cost := device_charge(capacity, wanted)) is not None]
    if not possible:
        detail = f'capacity request cannot be satisfied by any matched device\'s RequestPolicy for dimension "{name}"'
        raise ClaimError(Problem(ProblemKind.INVALID, path, detail=detail))
    return charge(max(possible), count)


def charge_by_capacities(catalogue: DeviceCatalogue, request: DeviceRequest, path: str) -> dict[str, int]:
    """Quota resource → charge for a request, by the capacities of its device class. Raises ClaimError, naming `path`.

    Empty if the class has no capacity sources or is not mapped.
    """
    sources = catalogue.map.capacities.get(request.device_class, [])
    resource = catalogue.map.resource(request.device_class)
    if not sources or resource is None:
        return {}
    selectors = selectors_of(catalogue, request, path)
    total = 0
    for source in sources:
        matched = matching(catalogue, source, selectors, path)
        enough(matched, request.count, "capacity", path)
        total += capacity_charge(source.name, matched, request.count, request.capacity.get(source.name), path)
    return {resource: min(MAX, total)}
