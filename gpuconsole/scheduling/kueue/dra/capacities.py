"""Quota charged for consumable capacity: what a claim takes of shared devices, rounded by their request policies.

Kueue 0.19 pkg/dra/capacity.go (gate KueueDRAIntegrationConsumableCapacity).
"""

from collections.abc import Sequence

from gpuconsole.model.devices import CapacityPolicy, Device, DeviceCapacity, DeviceRequest
from gpuconsole.model.resources import MAX
from gpuconsole.scheduling.kueue.dra.catalogue import DeviceCatalogue
from gpuconsole.scheduling.kueue.dra.counters import charge
from gpuconsole.scheduling.kueue.dra.matching import enough, matching, selectors_of
from gpuconsole.scheduling.kueue.dra.problems import ClaimError, Problem, ProblemKind


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
