"""Dynamic resource allocation: DeviceClass, ResourceClaimTemplate, ResourceClaim, ResourceSlice (resource.k8s.io)."""

from collections.abc import Mapping

from gpuconsole.model.clock import Time
from gpuconsole.model.devices import (
    EXACT_COUNT,
    Attribute,
    Capacity,
    CapacityPolicy,
    Device,
    DeviceClass,
    DeviceRequest,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
    Version,
)
from gpuconsole.model.documents.amounts import quantity
from gpuconsole.model.documents.metadata import metadata, spec_of
from gpuconsole.model.documents.reader import INT64, Reader
from gpuconsole.model.text import clean

LONGEST_EXPRESSION = 10_240
MOST_REQUESTS = 32
MOST_SELECTORS = 32
MOST_DEVICES = 128
_LONGEST_NAME = 96
_MODES = (EXACT_COUNT, "All")


def device_class(reader: Reader, now: Time) -> DeviceClass:
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
    meta = metadata(reader, now)
    spec = spec_of(reader, "metadata", "spec")
    return ResourceClaimTemplate(
        namespace=meta.namespace, name=meta.name, uid=meta.uid, requests=_requests(spec.mapping("spec"))
    )


def claim(reader: Reader, now: Time) -> ResourceClaim:
    meta = metadata(reader, now)
    spec = spec_of(reader, "devices", "controller")
    return ResourceClaim(namespace=meta.namespace, name=meta.name, uid=meta.uid, requests=_requests(spec))


def resource_slice(reader: Reader, now: Time) -> ResourceSlice:
    meta = metadata(reader, now, namespaced=False)
    spec = spec_of(
        reader,
        *("driver", "pool", "nodeName", "nodeSelector", "allNodes", "devices", "perDeviceNodeSelection"),
        "sharedCounters",
    )
    pool = spec.mapping("pool")
    return ResourceSlice(
        name=meta.name,
        uid=meta.uid,
        driver=spec.required("driver"),
        pool=pool.required("name"),
        generation=pool.number("generation", 0, high=INT64),
        pool_slices=pool.number("resourceSliceCount", 1, high=INT64),
        devices=tuple(_device(place) for place in spec.items("devices", MOST_DEVICES)),
    )


def _selectors(place: Reader) -> tuple[str, ...]:
    found = place.items("selectors", MOST_SELECTORS)
    return tuple(entry.mapping("cel").text("expression", limit=LONGEST_EXPRESSION) for entry in found)


def _requests(spec: Reader) -> tuple[DeviceRequest, ...]:
    devices = spec.mapping("devices")
    devices.only("requests", "constraints", "config")
    return tuple(_request(place) for place in devices.items("requests", MOST_REQUESTS))


def _request(place: Reader) -> DeviceRequest:
    place.only("name", "exactly", "firstAvailable")
    body = place.mapping("exactly")
    body.only("deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity")
    return DeviceRequest(
        name=place.required("name"),
        exactly="exactly" in place,
        alternatives="firstAvailable" in place,
        device_class=body.text("deviceClassName"),
        mode=body.one_of("allocationMode", "", _MODES) or EXACT_COUNT,
        count=body.number("count", 1, low=0, high=INT64),
        admin_access=body.flag("adminAccess"),
        selectors=_selectors(body),
        capacity=_amounts(body.mapping("capacity"), "requests"),
    )


def _amounts(place: Reader, key: str) -> Mapping[str, int]:
    found = place.mapping(key)
    amounts = ((clean(str(name), _LONGEST_NAME), quantity(found, str(name), "memory")) for name in found.value)
    return {name: amount for name, amount in amounts if amount is not None}


def _device(place: Reader) -> Device:
    body = place.mapping("basic") if "basic" in place else place
    attributes, capacity = body.mapping("attributes"), body.mapping("capacity")
    return Device(
        name=place.required("name"),
        attributes={clean(str(name), _LONGEST_NAME): _attribute(attributes, str(name)) for name in attributes.value},
        capacity={clean(str(name), _LONGEST_NAME): _capacity(capacity.mapping(str(name))) for name in capacity.value},
        counters=tuple(_counters(entry) for entry in body.items("consumesCounters", MOST_DEVICES)),
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


def _capacity(place: Reader) -> Capacity:
    policy = place.mapping("requestPolicy") if "requestPolicy" in place else None
    return Capacity(quantity(place, "value", "memory") or 0, None if policy is None else _policy(policy))


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
