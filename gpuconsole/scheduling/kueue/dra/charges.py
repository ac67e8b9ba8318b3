"""Computes the quota that a workload's devices need, or why it cannot be queued (Kueue 0.19 pkg/dra).

Devices are charged one by one (`dra.claims`), or by what they consume if their class has such sources:

- counters: as much as the largest matching device consumes (counters.go);
- capacity: what a claim takes of shared devices, rounded by their request policies (capacity.go; gate
  KueueDRAIntegrationConsumableCapacity).

A device matches if its pool is complete and it matches the source, the class and the request.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from gpuconsole.model.devices import CapacityPolicy, Device, DeviceCapacity, DeviceRequest
from gpuconsole.model.pod_template import PodSet, PodTemplate
from gpuconsole.model.resources import EMPTY, MAX, Resources, add
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.devices.allocator import matches_device
from gpuconsole.scheduling.devices.cel.evaluation import EvaluationError
from gpuconsole.scheduling.devices.cel.parsing import Tree
from gpuconsole.scheduling.kueue.conditions import is_on_hold
from gpuconsole.scheduling.kueue.config import CapacitySource, CounterSource
from gpuconsole.scheduling.kueue.dra.claims import (
    ClaimError,
    DeviceCatalogue,
    Problem,
    ProblemKind,
    charge_extended,
    check_devices,
    compile_selectors,
    count_devices,
    requests_extended_resource,
)

Selectors = tuple[list[Tree], list[Tree]]
"""(selectors of the class, selectors of the request)"""


def selectors_of(catalogue: DeviceCatalogue, request: DeviceRequest, path: str) -> Selectors:
    """Compile the selectors of a request and of its class. Raises ClaimError, naming `path`."""
    by_class = catalogue.class_selectors(request.device_class, path)
    return by_class, compile_selectors(request.selectors, f"{path}.exactly.selectors", "CEL compilation failed")


def matching_devices(
    catalogue: DeviceCatalogue, source: CounterSource | CapacitySource, selectors: Selectors, path: str
) -> list[Device]:
    """Return the devices of a source's driver, in complete pools, that match all selectors. Raises ClaimError."""
    own = compile_selectors([source.device_selector], path, "deviceSelector CEL compilation failed")
    stages = (("deviceSelector", own), ("DeviceClass selector", selectors[0]), ("request selector", selectors[1]))
    return [
        device
        for pool in catalogue.pools_of(source.driver)
        if pool.is_complete
        for device in pool.devices
        if all(_selected(trees, source.driver, device, stage, path) for stage, trees in stages)
    ]


def _selected(trees: Sequence[Tree], driver: str, device: Device, stage: str, path: str) -> bool:
    try:
        return matches_device(trees, driver, device)
    except EvaluationError as error:
        detail = f"CEL evaluation error in {stage} for device {device.name}: {error}"
        raise ClaimError(Problem(ProblemKind.INTERNAL, path, detail=detail)) from None


def require_count(matched: Sequence[Device], count: int, kind: str, path: str) -> None:
    """Raise ClaimError if fewer devices match than are requested: more may be published later."""
    if len(matched) < count:
        detail = (
            f"insufficient matching devices for {kind} driver: {len(matched)} device(s) match but {count} requested"
        )
        raise ClaimError(Problem(ProblemKind.INTERNAL, path, detail=detail))


def total_charge(value: int, count: int) -> int:
    """The charge for `count` devices, but at least one, at `value` each: never negative, at most MaxInt64."""
    return min(MAX, max(0, value) * max(1, count))


def counter_charge(counter: str, matched: Sequence[Device], count: int) -> int | None:
    """The charge for `count` devices by one counter, each at the maximum of any; None if no device consumes it."""
    consumed = [counters[counter] for device in matched for counters in device.counters if counter in counters]
    return total_charge(max(consumed), count) if consumed else None


def charge_by_counters(catalogue: DeviceCatalogue, request: DeviceRequest, path: str) -> dict[str, int]:
    """Quota resource → charge for a request, by the counters of its device class. Raises ClaimError, naming `path`.

    Empty if the class has no counter sources.
    """
    sources = catalogue.map.counters.get(request.device_class, [])
    costs: dict[str, int] = {}
    selectors = selectors_of(catalogue, request, path) if sources else ([], [])
    for resource, source in sources:
        matched = matching_devices(catalogue, source, selectors, path)
        require_count(matched, request.count, "counter", path)
        cost = counter_charge(source.name, matched, request.count)
        if cost is None:
            detail = f'matched devices have no consumesCounters entry for counter "{source.name}"'
            raise ClaimError(Problem(ProblemKind.INTERNAL, path, detail=detail))
        costs[resource] = min(MAX, costs.get(resource, 0) + cost)
    return costs


def round_up_to_values(amount: int, values: Sequence[int]) -> int | None:
    """Return the smallest of the ascending values that is at least the amount; None if there is none."""
    return next((value for value in values if value >= amount), None)


def round_up_to_range(amount: int, policy: CapacityPolicy) -> int | None:
    """Round the amount up to the policy's minimum plus a whole number of steps; None if it exceeds the maximum.

    A policy without a minimum rounds nothing.
    """
    if policy.least is not None:
        amount = max(amount, policy.least)
        if policy.step is not None and policy.step > 0:
            steps = -(-(amount - policy.least) // policy.step)
            amount = min(MAX, policy.least + steps * policy.step)
    return None if policy.most is not None and amount > policy.most else amount


def device_charge(capacity: DeviceCapacity, requested: int | None) -> int | None:
    """Return what a claim takes of one device: its request, else the policy's default, else the whole capacity.

    Rounded up by the policy; None if the policy does not allow that much.
    """
    policy = capacity.policy
    if requested is None:
        requested = policy.default if policy is not None and policy.default is not None else capacity.value
    if policy is None:
        return requested
    return round_up_to_values(requested, policy.values) if policy.values else round_up_to_range(requested, policy)


def capacity_charge(name: str, matched: Sequence[Device], count: int, requested: int | None, path: str) -> int:
    """The charge for `count` devices by one capacity, each at the maximum of any. Raises ClaimError, naming `path`."""
    offered = [device.capacity[name] for device in matched if name in device.capacity]
    if not offered:
        detail = f'matched devices have no capacity dimension "{name}"'
        raise ClaimError(Problem(ProblemKind.INTERNAL, path, detail=detail))
    possible = [cost for capacity in offered if (cost := device_charge(capacity, requested)) is not None]
    if not possible:
        detail = f'capacity request cannot be satisfied by any matched device\'s RequestPolicy for dimension "{name}"'
        raise ClaimError(Problem(ProblemKind.INVALID, path, detail=detail))
    return total_charge(max(possible), count)


def charge_by_capacities(catalogue: DeviceCatalogue, request: DeviceRequest, path: str) -> dict[str, int]:
    """Quota resource → charge for a request, by the capacities of its device class. Raises ClaimError, naming `path`.

    Empty if the class has no capacity sources or is not mapped.
    """
    sources = catalogue.map.capacities.get(request.device_class, [])
    resource = catalogue.map.resource_of(request.device_class)
    if not sources or resource is None:
        return {}
    selectors = selectors_of(catalogue, request, path)
    total = 0
    for source in sources:
        matched = matching_devices(catalogue, source, selectors, path)
        require_count(matched, request.count, "capacity", path)
        total += capacity_charge(source.name, matched, request.count, request.capacity.get(source.name), path)
    return {resource: min(MAX, total)}


INTEGRATION = "KueueDRAIntegration"
EXTENDED = "KueueDRAIntegrationExtendedResource"
PARTITIONABLE = "KueueDRAIntegrationPartitionableDevices"
CONSUMABLE = "KueueDRAIntegrationConsumableCapacity"
REJECTION = "KueueDRARejectWorkloadsWhenDRADisabled"

NOT_ENABLED = f"Workload uses DRA resources but the {INTEGRATION} feature gate is not enabled"
NO_CLAIMS = f"{INTEGRATION} feature does not support use of resource claims"


class FeatureGates(Protocol):
    """Interface to the feature gates."""

    def enabled(self, gate: str) -> bool: ...


class Charge(Struct, frozen=True):
    """The quota charge for one pod's devices, and the requested resources that it replaces."""

    amounts: Resources = EMPTY
    replaced_resources: frozenset[str] = frozenset()


class ChargeRefusal(Struct, frozen=True):
    """Why a workload cannot be queued: the messages of its QuotaReserved (`message`) and Requeued condition."""

    message: str
    requeued_message: str


Charges = Mapping[str, Charge]
"""Pod set → its charge per pod; pod sets without a charge are omitted."""

NO_CHARGES: Charges = {}


def needs_devices(workload: Workload, catalogue: DeviceCatalogue, gates: FeatureGates) -> bool:
    """True if the workload's devices must be charged before it is queued (NeedsDRAReconcile)."""
    if not _may_need(workload, catalogue) or is_on_hold(workload):
        return False
    if _has_claims(workload):
        return gates.enabled(INTEGRATION) or gates.enabled(REJECTION)
    return (
        gates.enabled(INTEGRATION)
        and gates.enabled(EXTENDED)
        and any(requests_extended_resource(pod_set.template, catalogue) for pod_set in workload.pod_sets)
    )


def _may_need(workload: Workload, catalogue: DeviceCatalogue) -> bool:
    return bool(catalogue.extended) or any(pod_set.template.resource_claims for pod_set in workload.pod_sets)


def _has_claims(workload: Workload) -> bool:
    return any(claim.template or claim.claim for p in workload.pod_sets for claim in p.template.resource_claims)


def device_charges(workload: Workload, catalogue: DeviceCatalogue, gates: FeatureGates) -> Charges | ChargeRefusal:
    """Return the device charges of each pod set; only for a workload for which `needs_devices` is true."""
    if not gates.enabled(INTEGRATION):
        return ChargeRefusal(NOT_ENABLED, NOT_ENABLED)
    if any(claim.claim for pod_set in workload.pod_sets for claim in pod_set.template.resource_claims):
        return ChargeRefusal(NO_CLAIMS, "DRA resource claims not supported")
    try:
        return _charges(workload, catalogue, gates)
    except ClaimError as error:
        return ChargeRefusal(str(error), str(error))


def _charges(workload: Workload, catalogue: DeviceCatalogue, gates: FeatureGates) -> Charges:
    """Compute the charges kind by kind, each for all pod sets: the first kind with a problem is reported."""
    totals: dict[str, Charge] = {}
    for by_kind in (charge_devices, charge_resources, charge_counters, charge_capacities):
        for name, charge in by_kind(catalogue, workload, gates).items():
            known = totals.get(name, Charge())
            totals[name] = Charge(
                add(known.amounts, charge.amounts), known.replaced_resources | charge.replaced_resources
            )
    return totals


def _pod_sets(workload: Workload) -> Iterator[tuple[PodSet, str]]:
    """Yield the pod sets with the field paths of their pod specs."""
    for index, pod_set in enumerate(workload.pod_sets):
        yield pod_set, f"spec.podSets[{index}].template.spec"


def charge_devices(catalogue: DeviceCatalogue, workload: Workload, gates: FeatureGates) -> Charges:
    """Charge devices of classes without enabled counter or capacity sources. Raises ClaimError at the first problem."""
    costs = {
        pod_set.name: _devices_of(catalogue, workload.namespace, pod_set, path, gates)
        for pod_set, path in _pod_sets(workload)
    }
    return {name: Charge(amounts) for name, amounts in costs.items() if amounts}


def charge_resources(catalogue: DeviceCatalogue, workload: Workload, gates: FeatureGates) -> Charges:
    """Charge extended resources that device classes provide. Raises ClaimError with all problems."""
    if not gates.enabled(EXTENDED):
        return NO_CHARGES
    found: dict[str, Charge] = {}
    problems: list[Problem] = []
    counters, capacities = gates.enabled(PARTITIONABLE), gates.enabled(CONSUMABLE)
    for pod_set, path in _pod_sets(workload):
        try:
            amounts, replaced = charge_extended(
                catalogue, pod_set.template, path, counters=counters, capacities=capacities
            )
            found[pod_set.name] = Charge(amounts, replaced)
        except ClaimError as error:
            problems += error.problems
    if problems:
        raise ClaimError(*problems)
    return {name: charge for name, charge in found.items() if charge.replaced_resources}


def charge_counters(catalogue: DeviceCatalogue, workload: Workload, gates: FeatureGates) -> Charges:
    """Charge requests by shared counters, if that gate is enabled. Raises ClaimError at the first problem."""
    return _charge_requests(catalogue, workload, charge_by_counters) if gates.enabled(PARTITIONABLE) else NO_CHARGES


def charge_capacities(catalogue: DeviceCatalogue, workload: Workload, gates: FeatureGates) -> Charges:
    """Charge requests by capacities, if that gate is enabled. Raises ClaimError at the first problem."""
    return _charge_requests(catalogue, workload, charge_by_capacities) if gates.enabled(CONSUMABLE) else NO_CHARGES


def _charge_requests(
    catalogue: DeviceCatalogue,
    workload: Workload,
    by_source: Callable[[DeviceCatalogue, DeviceRequest, str], dict[str, int]],
) -> Charges:
    costs: dict[str, dict[str, int]] = {}
    for pod_set, path in _pod_sets(workload):
        for name, place in _claim_templates(pod_set.template, path):
            for index, request in enumerate(catalogue.requests_of(workload.namespace, name, place)):
                if request.exactly:
                    cost = by_source(catalogue, request, f"{place}.devices.requests[{index}]")
                    costs[pod_set.name] = add(costs.get(pod_set.name, {}), cost)
    return {name: Charge(amounts) for name, amounts in costs.items() if amounts}


def _claim_templates(template: PodTemplate, path: str) -> Iterator[tuple[str, str]]:
    """Yield the claim templates that a pod names, with the field paths of its claims."""
    for index, claim in enumerate(template.resource_claims):
        if claim.template:
            yield claim.template, f"{path}.resourceClaims[{index}]"


def _devices_of(
    catalogue: DeviceCatalogue, namespace: str, pod_set: PodSet, path: str, gates: FeatureGates
) -> dict[str, int]:
    costs: dict[str, int] = {}
    for name, place in _claim_templates(pod_set.template, path):
        counts = _charge_claim(catalogue, namespace, pod_set.name, name, place)
        for device_class, count in sorted(counts.items()):
            resource = catalogue.map.resource_of(device_class)
            if resource is None:
                detail = f"DeviceClass {device_class} is not mapped in DRA configuration for podset {pod_set.name}"
                raise ClaimError(Problem(ProblemKind.NOT_FOUND, f"{place}.resourceClaimTemplateName", detail))
            by_counters = gates.enabled(PARTITIONABLE) and catalogue.map.counters.get(device_class)
            by_capacities = gates.enabled(CONSUMABLE) and catalogue.map.capacities.get(device_class)
            if not by_counters and not by_capacities:
                costs = add(costs, {resource: count})
    return costs


def _charge_claim(
    catalogue: DeviceCatalogue, namespace: str, pod_set: str, template: str, place: str
) -> dict[str, int]:
    """Class → devices that a claim template requests. Raises ClaimError if too few devices match its selectors."""
    requests = catalogue.requests_of(namespace, template, place, f" in podset {pod_set}")
    context = f"ResourceClaimTemplate {template}"
    try:
        counts = count_devices(requests)
    except ClaimError as error:
        raise error.with_parent(place, context) from None
    try:
        check_devices(catalogue, requests, place)
    except ClaimError as error:
        raise error.with_parent("", context) from None
    return counts
