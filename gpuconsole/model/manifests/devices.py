"""Dynamic resource allocation: DeviceClass, ResourceClaimTemplate, ResourceClaim, ResourceSlice (resource.k8s.io).

v1 and v1beta2 have the same form. In v1beta1 the fields of an exact request are in the request itself, and those of a
device are below `basic` (k8s.io/api/resource/v1beta1 types.go). Each document is read in the form of its version;
fields of the other form are unknown fields, which the API server drops.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.devices import (
    EXACT_COUNT,
    AllocatedDevice,
    Allocation,
    Attribute,
    CapacityPolicy,
    Device,
    DeviceCapacity,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
    Version,
)
from gpuconsole.model.documents.metadata import metadata, spec_of
from gpuconsole.model.documents.pods_and_selectors import node_term, taints, tolerations
from gpuconsole.model.documents.reader import INT64, Reader, quantity
from gpuconsole.model.labels import NodeTerm
from gpuconsole.model.text import clean

LONGEST_EXPRESSION = 10_240
MOST_REQUESTS = 32
MOST_SELECTORS = 32
MOST_DEVICES = 128
MOST_OPTIONS = 8
_LONGEST_NAME = 96
_MODES = (EXACT_COUNT, "All")
_FLAT_VERSIONS = ("v1beta1", "v1alpha3")
"""Versions in which an exact request has no `exactly`, and the fields of a device are below `basic`."""
_OPTION_FIELDS = ("deviceClassName", "selectors", "allocationMode", "count", "tolerations", "capacity")
_REQUEST_FIELDS = (*_OPTION_FIELDS, "adminAccess")
_DEVICE_FIELDS = (
    *("allNodes", "allowMultipleAllocations", "attributes", "bindingConditions", "bindingFailureConditions"),
    *("bindsToNode", "capacity", "consumesCounters", "nodeAllocatableResourceMappings", "nodeAllocatableResources"),
    *("nodeName", "nodeSelector", "taints"),
)


def device_class(reader: Reader, now: Time) -> DeviceClass:
    """Read a DeviceClass."""
    meta = metadata(reader, now, namespaced=False)
    spec = spec_of(reader, "selectors", "config", "extendedResourceName", "suitableNodes")
    return DeviceClass(
        name=meta.name,
        uid=meta.uid,
        created=meta.created,
        selectors=_selectors(spec),
        extended_resource=spec.text("extendedResourceName"),
    )


def claim_template(reader: Reader, now: Time) -> ResourceClaimTemplate:
    """Read a ResourceClaimTemplate."""
    meta = metadata(reader, now)
    spec = spec_of(reader, "metadata", "spec")
    return ResourceClaimTemplate(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        requests=_requests(spec.mapping("spec"), is_flat=_is_flat(reader)),
        constraints=_constraints(spec.mapping("spec")),
    )


def claim(reader: Reader, now: Time) -> ResourceClaim:
    """Read a ResourceClaim with its allocation and the pods for which it is reserved."""
    meta = metadata(reader, now)
    spec = spec_of(reader, "devices", "controller")
    status = reader.mapping("status")
    return ResourceClaim(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        labels=meta.labels,
        requests=_requests(spec, is_flat=_is_flat(reader)),
        constraints=_constraints(spec),
        pod=_made_for(reader, meta.namespace),
        allocation=_allocation(status.mapping("allocation")) if "allocation" in status else None,
        reserved=tuple(f"{meta.namespace}/{place.text('name')}" for place in status.items("reservedFor")),
        deleted=reader.mapping("metadata").moment("deletionTimestamp") or 0,
    )


def _made_for(reader: Reader, namespace: str) -> str:
    for owner in reader.mapping("metadata").items("ownerReferences"):
        if owner.text("kind") == "Pod" and owner.flag("controller"):
            return f"{namespace}/{owner.text('name')}"
    return ""


def _allocation(place: Reader) -> Allocation:
    given = tuple(
        AllocatedDevice(
            one.text("request"), one.text("driver"), one.text("pool"), one.text("device"), one.flag("adminAccess")
        )
        for one in place.mapping("devices").items("results", MOST_DEVICES)
    )
    return Allocation(given, _nodes(place))


def _nodes(place: Reader) -> tuple[NodeTerm, ...] | None:
    if "nodeSelector" not in place:
        return None
    return tuple(node_term(term) for term in place.mapping("nodeSelector").items("nodeSelectorTerms"))


def resource_slice(reader: Reader, now: Time) -> ResourceSlice:
    """Read a ResourceSlice with its devices and shared counters."""
    meta = metadata(reader, now, namespaced=False)
    spec = spec_of(
        reader,
        *("driver", "pool", "nodeName", "nodeSelector", "allNodes", "devices", "perDeviceNodeSelection"),
        *("sharedCounters", "partitionTypeAttribute", "skipNodeOperations"),
    )
    is_flat = _is_flat(reader)
    pool = spec.mapping("pool")
    return ResourceSlice(
        name=meta.name,
        uid=meta.uid,
        driver=spec.required("driver"),
        pool=pool.required("name"),
        generation=pool.number("generation", 0, high=INT64),
        pool_slices=pool.number("resourceSliceCount", 1, high=INT64),
        devices=tuple(_device(place, is_flat) for place in spec.items("devices", MOST_DEVICES)),
        node=spec.text("nodeName"),
        nodes=_nodes(spec),
        everywhere=spec.flag("allNodes"),
        each=spec.flag("perDeviceNodeSelection"),
        counter_sets={place.text("name"): _counters(place) for place in spec.items("sharedCounters", MOST_DEVICES)},
    )


def _selectors(place: Reader) -> tuple[str, ...]:
    found = place.items("selectors", MOST_SELECTORS)
    return tuple(entry.mapping("cel").text("expression", limit=LONGEST_EXPRESSION) for entry in found)


def _is_flat(reader: Reader) -> bool:
    return reader.text("apiVersion").rpartition("/")[2] in _FLAT_VERSIONS


def _requests(spec: Reader, *, is_flat: bool) -> tuple[DeviceRequest, ...]:
    devices = spec.mapping("devices")
    devices.only("requests", "constraints", "config")
    read = _flat_request if is_flat else _request
    return tuple(read(place) for place in devices.items("requests", MOST_REQUESTS))


def _constraints(spec: Reader) -> tuple[DeviceConstraint, ...]:
    return tuple(
        DeviceConstraint(
            requests=place.texts("requests"),
            same=place.text("matchAttribute"),
            distinct=place.text("distinctAttribute"),
        )
        for place in spec.mapping("devices").items("constraints", MOST_REQUESTS)
    )


def _request(place: Reader) -> DeviceRequest:
    place.only("name", "exactly", "firstAvailable")
    body = place.mapping("exactly")
    body.only(*_REQUEST_FIELDS)
    return _checked(place, body, is_exact="exactly" in place)


def _flat_request(place: Reader) -> DeviceRequest:
    """Read a request of v1beta1: exact if it has any field of an exact request, or no alternatives."""
    place.only("name", "firstAvailable", *_REQUEST_FIELDS)
    is_exact = any(field in place for field in _REQUEST_FIELDS)
    return _checked(place, place, is_exact=is_exact or "firstAvailable" not in place)


def _checked(place: Reader, body: Reader, *, is_exact: bool) -> DeviceRequest:
    """Read a request; report it unless it is either exact or has alternatives (resource validation,
    validateDeviceRequest).
    """
    options = tuple(_option(option) for option in place.items("firstAvailable", MOST_OPTIONS))
    if is_exact == bool(options):
        problem = "exactly one of `exactly` or `firstAvailable` is required"
        remedy = "drop one of them" if is_exact else "write exactly: with a deviceClassName (v1beta1: without exactly)"
        place.report.refused(place.path, problem, remedy, "required")
    elif is_exact:
        _check_class(body)
    found = _asked(body, place.required("name"), exactly=is_exact)
    return replace(found, alternatives="firstAvailable" in place, options=options)


def _option(place: Reader) -> DeviceRequest:
    place.only("name", *_OPTION_FIELDS)
    _check_class(place)
    return _asked(place, place.required("name"), exactly=True)


def _check_class(body: Reader) -> None:
    if not body.text("deviceClassName"):
        path = body.at("deviceClassName")
        body.report.refused(path, "the request names no device class", "write deviceClassName", "required")


def _asked(body: Reader, name: str, *, exactly: bool) -> DeviceRequest:
    return DeviceRequest(
        name=name,
        exactly=exactly,
        device_class=body.text("deviceClassName"),
        mode=body.one_of("allocationMode", "", _MODES) or EXACT_COUNT,
        count=body.number("count", 1, low=0, high=INT64),
        admin_access=body.flag("adminAccess"),
        selectors=_selectors(body),
        capacity=_amounts(body.mapping("capacity"), "requests"),
        tolerations=tolerations(body, "tolerations", checked=False),
    )


def _amounts(place: Reader, key: str) -> Mapping[str, int]:
    found = place.mapping(key)
    amounts = ((clean(str(name), _LONGEST_NAME), quantity(found, str(name), "memory")) for name in found.value)
    return {name: amount for name, amount in amounts if amount is not None}


def _device(place: Reader, is_flat: bool) -> Device:
    body = place.mapping("basic") if is_flat else place
    if is_flat:
        place.only("name", "basic")
        body.only(*_DEVICE_FIELDS)
    else:
        place.only("name", *_DEVICE_FIELDS)
    attributes, capacity = body.mapping("attributes"), body.mapping("capacity")
    return Device(
        name=place.required("name"),
        attributes={clean(str(name), _LONGEST_NAME): _attribute(attributes, str(name)) for name in attributes.value},
        capacity={clean(str(name), _LONGEST_NAME): _capacity(capacity.mapping(str(name))) for name in capacity.value},
        counters=tuple(_counters(entry) for entry in body.items("consumesCounters", MOST_DEVICES)),
        counter_sets=tuple(entry.text("counterSet") for entry in body.items("consumesCounters", MOST_DEVICES)),
        taints=taints(body, "taints"),
        node=body.text("nodeName"),
        nodes=_nodes(body),
        everywhere=body.flag("allNodes"),
    )


def _attribute(place: Reader, key: str) -> Attribute:
    value = place.mapping(key)
    if "bool" in value:
        return value.flag("bool")
    if "int" in value:
        return value.number("int", 0, low=-INT64, high=INT64)
    if "version" in value:
        return Version(value.text("version"))
    return value.text("string") if "string" in value else None


def _capacity(place: Reader) -> DeviceCapacity:
    policy = place.mapping("requestPolicy") if "requestPolicy" in place else None
    return DeviceCapacity(quantity(place, "value", "memory") or 0, None if policy is None else _policy(policy))


def _policy(place: Reader) -> CapacityPolicy:
    bounds = place.mapping("validRange")
    texts = {str(number): text for number, text in enumerate(place.texts("validValues", MOST_DEVICES))}
    listed = Reader(texts, place.report, place, "validValues")
    return CapacityPolicy(
        default=quantity(place, "default", "memory"),
        values=tuple(amount for key in texts if (amount := quantity(listed, key, "memory")) is not None),
        least=quantity(bounds, "min", "memory"),
        most=quantity(bounds, "max", "memory"),
        step=quantity(bounds, "step", "memory"),
    )


def _counters(place: Reader) -> Mapping[str, int]:
    counters = place.mapping("counters")
    amounts = {str(name): quantity(counters.mapping(str(name)), "value", "memory") for name in counters.value}
    return {clean(name, _LONGEST_NAME): amount for name, amount in amounts.items() if amount is not None}
