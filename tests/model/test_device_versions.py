"""Dynamic resource allocation in each of its served versions, every one read in its own form."""

import json
from typing import Any

import pytest

from gpuconsole.model.devices import (
    Capacity,
    Device,
    DeviceClass,
    DeviceRequest,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from gpuconsole.model.manifests import load_text
from tests.model.samples import errors_and_warnings

Manifest = dict[str, Any]
ASKED: Manifest = {
    "deviceClassName": "gpu.nvidia.com",
    "allocationMode": "ExactCount",
    "count": 2,
    "adminAccess": True,
    "selectors": [{"cel": {"expression": "true"}}],
    "capacity": {"requests": {"memory": "10Gi"}},
}
READ = DeviceRequest(
    name="gpus",
    device_class="gpu.nvidia.com",
    count=2,
    admin_access=True,
    selectors=("true",),
    capacity={"memory": 10 * 2**30},
)
OPTION: Manifest = {"name": "small", "deviceClassName": "mig.nvidia.com"}
ALTERNATIVES: Manifest = {"name": "any", "firstAvailable": [OPTION]}
READ_ALTERNATIVES = DeviceRequest(
    name="any",
    exactly=False,
    alternatives=True,
    options=(DeviceRequest(name="small", device_class="mig.nvidia.com"),),
)
NEWER = ("v1beta2", "v1")
VERSIONS = ("v1beta1", *NEWER)


def document(version: str, kind: str, spec: Manifest) -> str:
    meta = {"name": "a"} if kind in ("DeviceClass", "ResourceSlice") else {"name": "a", "namespace": "n"}
    return json.dumps({"apiVersion": f"resource.k8s.io/{version}", "kind": kind, "metadata": meta, "spec": spec})


def request(version: str, **fields: Any) -> Manifest:
    return {"name": "gpus", **fields} if version == "v1beta1" else {"name": "gpus", "exactly": fields}


def claim(version: str, *requests: Manifest) -> str:
    return document(version, "ResourceClaim", {"devices": {"requests": list(requests)}})


@pytest.mark.parametrize("version", VERSIONS)
def test_a_claim_and_a_template_ask_for_the_same_in_every_version(version: str) -> None:
    devices = {"devices": {"requests": [request(version, **ASKED), ALTERNATIVES]}}
    texts = document(version, "ResourceClaim", devices), document(version, "ResourceClaimTemplate", {"spec": devices})
    assert [errors_and_warnings(text) for text in texts] == [[], []]
    assert [load_text(text).objects for text in texts] == [
        (ResourceClaim(namespace="n", name="a", requests=(READ, READ_ALTERNATIVES)),),
        (ResourceClaimTemplate(namespace="n", name="a", requests=(READ, READ_ALTERNATIVES)),),
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_slice_offers_the_same_in_every_version(version: str) -> None:
    body = {"attributes": {"index": {"int": 3}}, "capacity": {"memory": {"value": "80Gi"}}}
    device = {"name": "gpu-0", "basic": body} if version == "v1beta1" else {"name": "gpu-0", **body}
    pool = {"name": "node-1", "generation": 1, "resourceSliceCount": 1}
    text = document(version, "ResourceSlice", {"driver": "d", "nodeName": "n", "pool": pool, "devices": [device]})
    offered = Device(name="gpu-0", attributes={"index": 3}, capacity={"memory": Capacity(80 * 2**30)})
    assert errors_and_warnings(text) == []
    assert load_text(text).objects == (
        ResourceSlice(name="a", driver="d", pool="node-1", generation=1, devices=(offered,), node="n"),
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_device_class_is_the_same_in_every_version(version: str) -> None:
    text = document(version, "DeviceClass", {"selectors": [{"cel": {"expression": "true"}}]})
    assert errors_and_warnings(text) == []
    assert load_text(text).objects == (DeviceClass(name="a", selectors=("true",)),)


@pytest.mark.parametrize("version", NEWER)
def test_a_request_in_the_older_form_is_dropped_and_refused_in_newer_versions(version: str) -> None:
    place = "spec.devices.requests[0]"
    assert errors_and_warnings(claim(version, {"name": "gpus", "deviceClassName": "c", "count": 2})) == [
        ("error", f"{place}.deviceClassName", "unknown-field"),
        ("error", f"{place}.count", "unknown-field"),
        ("error", place, "required"),
    ]


def test_a_request_in_the_newer_form_is_dropped_and_refused_in_the_older_version() -> None:
    place = "spec.devices.requests[0]"
    assert errors_and_warnings(claim("v1beta1", {"name": "gpus", "exactly": {"deviceClassName": "c"}})) == [
        ("error", f"{place}.exactly", "unknown-field"),
        ("error", f"{place}.deviceClassName", "required"),
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_is_exact_or_has_alternatives_but_not_both(version: str) -> None:
    both = {**request(version, deviceClassName="c"), "firstAvailable": [OPTION]}
    assert errors_and_warnings(claim(version, both)) == [("error", "spec.devices.requests[0]", "required")]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_names_a_class(version: str) -> None:
    place = "spec.devices.requests[0]" + ("" if version == "v1beta1" else ".exactly")
    assert errors_and_warnings(claim(version, request(version, count=1))) == [
        ("error", f"{place}.deviceClassName", "required")
    ]


def test_a_device_stands_in_the_form_of_its_version() -> None:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d", "allNodes": True, "pool": pool}
    flat, deep = {"name": "g", "attributes": {}}, {"name": "g", "basic": {}}
    older = document("v1beta1", "ResourceSlice", {**spec, "devices": [flat]})
    newer = document("v1", "ResourceSlice", {**spec, "devices": [deep]})
    assert errors_and_warnings(older) == [("error", "spec.devices[0].attributes", "unknown-field")]
    assert errors_and_warnings(newer) == [("error", "spec.devices[0].basic", "unknown-field")]


def test_a_version_that_is_no_longer_served_is_pointed_to_the_newest() -> None:
    text = claim("v1alpha3", {"name": "gpus", "deviceClassName": "c"})
    (finding,) = load_text(text, strict=True).findings
    assert (finding.code, finding.remedy) == ("old-version", "write apiVersion: resource.k8s.io/v1")
    (thing,) = load_text(text).objects
    assert isinstance(thing, ResourceClaim)
    assert [asked.device_class for asked in thing.requests] == ["c"]
