"""dra: what claims and device-backed resources cost, and which devices count."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuconsole.model.devices import CapacityPolicy, Device, DeviceClass, ResourceClaim, ResourceSlice
from gpuconsole.model.resources import amount
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.conditions import apply_refusal
from gpuconsole.scheduling.kueue.config import CapacitySource, ClassMap, CounterSource, DeviceClassMapping, KueueConfig
from gpuconsole.scheduling.kueue.dra.charges import (
    Charge,
    capacity_charge,
    charge_resources,
    counter_charge,
    needs_devices,
    round_up_to_range,
    round_up_to_values,
)
from gpuconsole.scheduling.kueue.dra.claims import (
    ClaimError,
    DeviceCatalogue,
    ProblemKind,
    count_devices,
    is_extended,
    newest_class,
    pools_of,
)
from gpuconsole.scheduling.kueue.pod_resources import WorkloadRequest
from gpuconsole.scheduling.kueue.workload_controller import reconcile
from tests.conformance import world
from tests.conformance.reconciling import comparable, unobserved
from tests.conformance.tables import Case, Check, Document, NotModelled, Table, compare

_TYPES = {
    ProblemKind.INVALID: "FieldValueInvalid",
    ProblemKind.NOT_FOUND: "FieldValueNotFound",
    ProblemKind.INTERNAL: "InternalError",
}
_API = "resource.k8s.io/v1"


def _bytes(quantity: str) -> int:
    return amount("memory", quantity)


def mappings(documents: Sequence[Document] | None) -> tuple[DeviceClassMapping, ...]:
    """resources.deviceClassMappings as the configuration has them."""
    return tuple(
        DeviceClassMapping(
            name=document["name"],
            device_class_names=tuple(document.get("deviceClassNames") or ()),
            counters=tuple(CounterSource(**_source(s["counter"])) for s in _sources(document) if s.get("counter")),
            capacities=tuple(CapacitySource(**_source(s["capacity"])) for s in _sources(document) if s.get("capacity")),
        )
        for document in documents or ()
    )


def _sources(document: Document) -> Sequence[Document]:
    sources: Sequence[Document] = document.get("sources") or ()
    return sources


def _source(document: Document) -> dict[str, str]:
    cel = (document.get("deviceSelector") or {}).get("cel") or {}
    return {
        "name": document.get("name", ""),
        "driver": document.get("driver", ""),
        "device_selector": cel.get("expression", ""),
    }


def devices(documents: Sequence[Document] | None) -> tuple[Device, ...]:
    """Devices as a ResourceSlice holds them."""
    spec = {"driver": "any", "pool": {"name": "any"}, "devices": list(documents or ())}
    body = {"apiVersion": _API, "kind": "ResourceSlice", "metadata": {"name": "any"}, "spec": spec}
    found = world.decode(body)
    assert isinstance(found, ResourceSlice)
    return found.devices


def _workload(document: Document) -> Workload:
    metadata = {"name": "any", "namespace": "any", **(document.get("metadata") or {})}
    return world.decode_workload({**document, "metadata": metadata})


def _classes(documents: Sequence[Document] | None) -> dict[str, DeviceClass]:
    return {thing.name: thing for thing in world.decode_all(documents) if isinstance(thing, DeviceClass)}


def check_values(table: Table, case: Case) -> Iterator[str]:
    """TestRoundToValidValues: the next of the allowed amounts."""
    got = round_up_to_values(_bytes(case.input["value"]), [_bytes(text) for text in case.input["validValues"]])
    yield from _rounded(got, case)


def check_range(table: Table, case: Case) -> Iterator[str]:
    """TestRoundToValidRange: the next step within bounds."""
    least, most, step = (_bytes(text) if (text := case.input.get(key)) else None for key in ("min", "max", "step"))
    policy = CapacityPolicy(least=least, most=most, step=step)
    yield from _rounded(round_up_to_range(_bytes(case.input["value"]), policy), case)


def _rounded(got: int | None, case: Case) -> Iterator[str]:
    yield from compare("want", got, None if case.want.get("wantErr") else _bytes(case.want["want"]))


def check_capacity(table: Table, case: Case) -> Iterator[str]:
    """TestComputeCapacityCharge: the charge, or the type of the error."""
    given = case.input
    name = table.shared["cfg"]["resourceName"]
    wanted = _bytes(given["explicitRequest"]) if given.get("explicitRequest") else None
    try:
        cost = capacity_charge(name, devices(given.get("matched")), given.get("count", 0), wanted, "test")
    except ClaimError as error:
        yield from compare("wantErrType", _TYPES[error.problems[0].kind], case.want["wantErrType"])
        return
    yield from compare("wantErrType", "", case.want["wantErrType"])
    yield from compare("wantCharge", cost, _bytes(case.want["wantCharge"]))


def check_counters(table: Table, case: Case) -> Iterator[str]:
    """TestComputeCounterCharges: quota resource → charge."""
    given = case.input
    cost = counter_charge(given["cc"]["counterName"], devices(given.get("matched")), given.get("count", 0))
    wanted = {name: _bytes(text) for name, text in (case.want.get("want") or {}).items()}
    yield from compare("want", {} if cost is None else {given["quotaResource"]: cost}, wanted)


def check_pools(table: Table, case: Case) -> Iterator[str]:
    """TestGroupSlicesByPool: how many pools, which are complete, and their generations."""
    slices = [thing for thing in world.decode_all(case.input.get("slices")) if isinstance(thing, ResourceSlice)]
    pools = {pool.name: pool for pool in pools_of(slices, case.input["driver"])}
    yield from compare("wantPools", len(pools), case.want.get("wantPools", 0))
    complete = case.want.get("wantComplete") or {}
    yield from compare("wantComplete", {name: pools[name].is_complete for name in complete}, complete)
    generations = case.want.get("wantGeneration") or {}
    yield from compare("wantGeneration", {name: pools[name].generation for name in generations}, generations)


def check_map(table: Table, case: Case) -> Iterator[str]:
    """TestCreateMapperFromConfiguration: the quota resource and the counters of each class."""
    found = ClassMap(mappings(case.input.get("deviceClassMappings")))
    lookup = case.want.get("wantDeviceLookup") or {}
    yield from compare("wantDeviceLookup", {name: found.resource_of(name) for name in lookup}, lookup)
    counters = case.want.get("wantCounterConfigsList") or {name: [] for name in lookup}
    for name, wanted in counters.items():
        got = [
            {"quotaResource": resource, "counterName": source.name, "driver": source.driver}
            for resource, source in found.counters.get(name, [])
        ]
        yield from compare(f"wantCounterConfigsList {name}", got, wanted)


def check_lookup(table: Table, case: Case) -> Iterator[str]:
    """TestDRAResourceMapper_Lookup, _PopulateFromConfiguration: look-ups in the latest configuration."""
    given = case.input
    latest = next((given[key] for key in ("updateConfig", "initialConfig", "config") if key in given), ())
    found = ClassMap(mappings(latest))
    key = "lookups" if "lookups" in given else "finalLookups"
    wanted = case.want.get(key) or [{} for _ in given.get(key) or ()]
    for lookup, want in zip(given.get(key) or (), wanted, strict=True):
        name = lookup["deviceClass"]
        expected = want.get("expectedRes", "") if want.get("expectedExists") else None
        yield from compare(name, found.resource_of(name), expected)


def check_extended_name(table: Table, case: Case) -> Iterator[str]:
    """TestIsExtendedResourceName."""
    yield from compare("want", is_extended(case.input["resource"]), case.want["want"])


def check_class(table: Table, case: Case) -> Iterator[str]:
    """TestSelectedDeviceClass: which of several classes stands behind a resource."""
    classes = [thing for thing in world.decode_all(case.input["items"]) if isinstance(thing, DeviceClass)]
    yield from compare("want", newest_class(classes).name, case.want["want"])


def check_needs(table: Table, case: Case) -> Iterator[str]:
    """TestNeedsDRAReconcile: does a workload have to be charged for devices?"""
    backed: Mapping[str, str] = case.input.get("cachedResources") or {}
    classes = {name: DeviceClass(name=name, extended_resource=resource) for resource, name in backed.items()}
    got = needs_devices(
        _workload(case.input["workload"]), DeviceCatalogue(classes=classes), KueueConfig(gates=case.gates)
    )
    yield from compare("want", got, case.want["want"])


def check_extended(table: Table, case: Case) -> Iterator[str]:
    """TestResolveExtendedResourceQuota: charges and replaced resources, or types and fields of errors."""
    catalogue = DeviceCatalogue(mappings(case.input.get("mapperMappings")), _classes(case.input.get("deviceClasses")))
    gates = KueueConfig(gates=case.gates)
    try:
        found = charge_resources(catalogue, _workload(case.input["workload"]), gates)
    except ClaimError as error:
        got = [(_TYPES[problem.kind], problem.field) for problem in error.problems]
        wanted = [(problem["type"], problem["field"]) for problem in case.want.get("wantErr") or ()]
        yield from compare("wantErr", got, wanted)
        return
    yield from compare("wantErr", None, case.want.get("wantErr") or None)
    wanted_costs = {name: world.amounts(costs) for name, costs in (case.want.get("want") or {}).items()}
    yield from compare("want", {name: dict(c.amounts) for name, c in found.items() if c.amounts}, wanted_costs)
    replaced = {name: sorted(charge.replaced_resources) for name, charge in found.items() if charge.replaced_resources}
    yield from compare("wantReplaced", replaced, case.want.get("wantReplaced") or {})


def check_count(table: Table, case: Case) -> Iterator[str]:
    """Test_countDevicesPerClass_overflow: devices of the class that all requests name."""
    spec = {"devices": {"requests": case.input["requests"]}}
    claim = world.decode({"apiVersion": _API, "kind": "ResourceClaim", "metadata": {"name": "any"}, "spec": spec})
    assert isinstance(claim, ResourceClaim)
    yield from compare("wantCount", sum(count_devices(claim.requests).values()), case.want["wantCount"])


def check_info(table: Table, case: Case) -> Iterator[str]:
    """TestWithPreprocessedDRAResources…: requests of a workload whose devices were charged."""
    replaced: Mapping[str, Any] = case.input.get("replacedExtendedResources") or {}
    costs: Mapping[str, Any] = case.input.get("draResources") or {}
    charged = {
        name: Charge(world.amounts(costs.get(name) or {}), frozenset(replaced.get(name) or ()))
        for name in costs.keys() | replaced.keys()
    }
    request = WorkloadRequest(_workload(case.input["workload"]), 0, "", KueueConfig(gates=case.gates), devices=charged)
    wanted = [
        (entry["Name"], entry.get("Count", 0), entry.get("Requests") or {})
        for entry in case.want["wantInfo"].get("TotalRequests") or ()
    ]
    got = [(part.pod_set.name, part.count, dict(part.total)) for part in request.pod_sets]
    yield from compare("TotalRequests", got, wanted)


def check_reconcile(table: Table, case: Case) -> Iterator[str]:
    """TestReconcileDRA: the Workload after one look of the controller, and whether it is queued with its devices."""
    if case.input.get("listErr"):
        raise NotModelled("reading devices never fails here")
    for variant in case.variants or ({},):
        yield from _look(table, case, {**case.gates, **variant})


def _look(table: Table, case: Case, gates: Mapping[str, bool]) -> Iterator[str]:
    now, given = world.clock(table.fixtures["fakeClock"]), case.input
    paid = tuple(DeviceClassMapping(name=n, device_class_names=(f"{n}.example.com",)) for n in ("foo", "gpu"))
    before = world.decode_workload(given["workload"])
    claims = any(pod_set.template.resource_claims for pod_set in before.pod_sets)
    config = KueueConfig(device_class_mappings=paid if claims else (), gates=gates)
    documents = [given["cq"], given["lq"], *(given.get("additionalObjects") or ())]
    documents += [*(given.get("resourceClaimTemplates") or ()), *(given.get("resourceClaims") or ())]
    session = world.session(config, [*world.decode_all(documents), before], now)
    outcome = reconcile(before, session.look_up_queues(before), config, now)
    refused = session.rejected_claims()
    got, told = outcome.with_deactivation(now), ""
    if refused:
        got, told = apply_refusal(before, refused[0], now, granular=config.has_granular_reasons), refused[0].message
    yield from compare("wantErrorMsg", case.want.get("wantErrorMsg", "") in told, True)
    if case.want.get("wantWorkload"):
        want = world.decode_workload(case.want["wantWorkload"])
        expected = want if config.has_granular_reasons else unobserved(want, before)
        yield from compare("wantWorkload", None if got is None else comparable(got), comparable(expected))
    if case.want.get("wantWorkloadsInQueue") is not None:
        yield from compare(
            "wantWorkloadsInQueue", len(session.pending_workloads("cq")), case.want["wantWorkloadsInQueue"]
        )
    if case.want.get("wantDRAResourceTotal") is not None:
        requested = next(iter(session.requests_of(before.key).values()), {})
        yield from compare("wantDRAResourceTotal", requested.get("gpu"), case.want["wantDRAResourceTotal"])


CHECKS: dict[str, Check] = {
    "controller_core/TestReconcileDRA": lambda table, case: list(check_reconcile(table, case)),
    "dra/TestComputeCapacityCharge": lambda table, case: list(check_capacity(table, case)),
    "dra/TestComputeCounterCharges": lambda table, case: list(check_counters(table, case)),
    "dra/TestCreateMapperFromConfiguration": lambda table, case: list(check_map(table, case)),
    "dra/TestDRAResourceMapper_Lookup": lambda table, case: list(check_lookup(table, case)),
    "dra/TestDRAResourceMapper_PopulateFromConfiguration": lambda table, case: list(check_lookup(table, case)),
    "dra/TestGroupSlicesByPool": lambda table, case: list(check_pools(table, case)),
    "dra/TestIsExtendedResourceName": lambda table, case: list(check_extended_name(table, case)),
    "dra/TestNeedsDRAReconcile": lambda table, case: list(check_needs(table, case)),
    "dra/TestResolveExtendedResourceQuota": lambda table, case: list(check_extended(table, case)),
    "dra/TestRoundToValidRange": lambda table, case: list(check_range(table, case)),
    "dra/TestRoundToValidValues": lambda table, case: list(check_values(table, case)),
    "dra/TestSelectedDeviceClass": lambda table, case: list(check_class(table, case)),
    "dra/Test_countDevicesPerClass_overflow": lambda table, case: list(check_count(table, case)),
    "workload/TestWithPreprocessedDRAResources": lambda table, case: list(check_info(table, case)),
    "workload/TestWithPreprocessedDRAResourcesReplacesExtendedResources": lambda table, case: list(
        check_info(table, case)
    ),
}
