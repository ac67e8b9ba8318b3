"""What a workload's devices cost in quota, or why it cannot be charged (Kueue 0.19 workload_controller.go)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from gpuconsole.model.cluster import PodTemplate
from gpuconsole.model.devices import DeviceRequest
from gpuconsole.model.resources import EMPTY, Resources, add
from gpuconsole.model.workloads import PodSet, Workload
from gpuconsole.scheduling.kueue.dra.capacities import charge_by_capacities
from gpuconsole.scheduling.kueue.dra.catalogue import Catalogue
from gpuconsole.scheduling.kueue.dra.claims import check_devices, count_devices
from gpuconsole.scheduling.kueue.dra.counters import charge_by_counters
from gpuconsole.scheduling.kueue.dra.extended import asks_for, charge_extended
from gpuconsole.scheduling.kueue.dra.problems import ClaimError, Kind, Problem

INTEGRATION = "KueueDRAIntegration"
EXTENDED = "KueueDRAIntegrationExtendedResource"
PARTITIONABLE = "KueueDRAIntegrationPartitionableDevices"
CONSUMABLE = "KueueDRAIntegrationConsumableCapacity"
REJECTION = "KueueDRARejectWorkloadsWhenDRADisabled"

NOT_ENABLED = f"Workload uses DRA resources but the {INTEGRATION} feature gate is not enabled"
NO_CLAIMS = f"{INTEGRATION} feature does not support use of resource claims"


class Gated(Protocol):
    """What knows the feature gates."""

    def enabled(self, gate: str) -> bool: ...


class Charge(Struct, frozen=True):
    """What one pod's devices cost, and the requested resources that this stands for."""

    amounts: Resources = EMPTY
    replaced: frozenset[str] = frozenset()


class Refusal(Struct, frozen=True):
    """The workload cannot be queued; `requeued` is the text of its condition Requeued."""

    message: str
    requeued: str


Charges = Mapping[str, Charge]
"""By pod set; those that cost nothing are left out."""

NO_CHARGES: Charges = {}


def needs_devices(workload: Workload, catalogue: Catalogue, gates: Gated) -> bool:
    """True if the workload's devices have to be charged (or refused) before it is queued (NeedsDRAReconcile)."""
    if any(pod_set.template.resource_claims for pod_set in workload.pod_sets) and _has_claims(workload):
        return gates.enabled(INTEGRATION) or gates.enabled(REJECTION)
    return (
        bool(catalogue.extended)
        and gates.enabled(INTEGRATION)
        and gates.enabled(EXTENDED)
        and any(asks_for(pod_set.template, catalogue) for pod_set in workload.pod_sets)
    )


def _has_claims(workload: Workload) -> bool:
    return any(claim.template or claim.claim for p in workload.pod_sets for claim in p.template.resource_claims)


def charges(workload: Workload, catalogue: Catalogue, gates: Gated) -> Charges | Refusal:
    """What every pod of each pod set costs beside its ordinary requests; only for one that `needs_devices`."""
    if not gates.enabled(INTEGRATION):
        return Refusal(NOT_ENABLED, NOT_ENABLED)
    if any(claim.claim for pod_set in workload.pod_sets for claim in pod_set.template.resource_claims):
        return Refusal(NO_CLAIMS, "DRA resource claims not supported")
    try:
        return _charges(workload, catalogue, gates)
    except ClaimError as error:
        return Refusal(str(error), str(error))


def _charges(workload: Workload, catalogue: Catalogue, gates: Gated) -> Charges:
    """Kind after kind of charge, each for all pod sets: the first kind with a problem is the one that is told."""
    paths = [(pod_set, f"spec.podSets[{i}].template.spec") for i, pod_set in enumerate(workload.pod_sets)]
    counters, capacities = gates.enabled(PARTITIONABLE), gates.enabled(CONSUMABLE)
    totals = {
        pod_set.name: charge_devices(
            catalogue, workload.namespace, pod_set, path, counters=counters, capacities=capacities
        )
        for pod_set, path in paths
    }
    replaced: dict[str, frozenset[str]] = {}
    if gates.enabled(EXTENDED):
        for name, (costs, names) in _extended(catalogue, paths, counters, capacities).items():
            totals[name] = add(totals[name], costs)
            replaced[name] = names
    for reads, by_source in ((counters, charge_by_counters), (capacities, charge_by_capacities)):
        if reads:
            for pod_set, path in paths:
                for request, place in _device_requests(catalogue, workload.namespace, pod_set.template, path):
                    totals[pod_set.name] = add(totals[pod_set.name], by_source(catalogue, request, place))
    return {
        name: Charge(total, replaced.get(name, frozenset()))
        for name, total in totals.items()
        if total or replaced.get(name)
    }


def _extended(
    catalogue: Catalogue, paths: Sequence[tuple[PodSet, str]], counters: bool, capacities: bool
) -> dict[str, tuple[dict[str, int], frozenset[str]]]:
    found: dict[str, tuple[dict[str, int], frozenset[str]]] = {}
    problems: list[Problem] = []
    for pod_set, path in paths:
        try:
            found[pod_set.name] = charge_extended(
                catalogue, pod_set.template, path, counters=counters, capacities=capacities
            )
        except ClaimError as error:
            problems += error.problems
    if problems:
        raise ClaimError(*problems)
    return found


def _claim_templates(template: PodTemplate, path: str) -> Iterator[tuple[str, str]]:
    """The claim templates that a pod names, and the places where it does."""
    for index, claim in enumerate(template.resource_claims):
        if claim.template:
            yield claim.template, f"{path}.resourceClaims[{index}]"


def _device_requests(
    catalogue: Catalogue, namespace: str, template: PodTemplate, path: str
) -> Iterator[tuple[DeviceRequest, str]]:
    for name, place in _claim_templates(template, path):
        for index, request in enumerate(catalogue.requests_of(namespace, name, place)):
            if request.exactly:
                yield request, f"{place}.devices.requests[{index}]"


def charge_devices(
    catalogue: Catalogue, namespace: str, pod_set: PodSet, path: str, *, counters: bool, capacities: bool
) -> dict[str, int]:
    """Quota resource → devices of the classes that are paid for one by one. Raises ClaimError."""
    costs: dict[str, int] = {}
    for name, place in _claim_templates(pod_set.template, path):
        requests = catalogue.requests_of(namespace, name, place, f" in podset {pod_set.name}")
        context = f"ResourceClaimTemplate {name}"
        try:
            counts = count_devices(requests)
        except ClaimError as error:
            raise error.within(place, context) from None
        try:
            check_devices(catalogue, requests, place)
        except ClaimError as error:
            raise error.within("", context) from None
        for device_class, count in sorted(counts.items()):
            resource = catalogue.map.resource(device_class)
            if resource is None:
                told = f"DeviceClass {device_class} is not mapped in DRA configuration for podset {pod_set.name}"
                raise ClaimError(Problem(Kind.NOT_FOUND, f"{place}.resourceClaimTemplateName", told))
            if counters and catalogue.map.counters.get(device_class):
                continue
            if capacities and catalogue.map.capacities.get(device_class):
                continue
            costs = add(costs, {resource: count})
    return costs
