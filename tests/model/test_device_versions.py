"""Dynamic resource allocation in each of its served versions, every one read in its own form."""

import json
from typing import Any

import pytest

from gpuconsole.model.devices import (
    Device,
    DeviceCapacity,
    DeviceClass,
    DeviceRequest,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from gpuconsole.model.manifests import load_text
from tests.support.sample_manifests import errors_and_warnings

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
    offered = Device(name="gpu-0", attributes={"index": 3}, capacity={"memory": DeviceCapacity(80 * 2**30)})
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


KINDS: dict[str, Manifest] = {
    "ResourceClaim": {"devices": {"requests": []}},
    "ResourceClaimTemplate": {"spec": {"devices": {"requests": []}}},
    "DeviceClass": {},
    "ResourceSlice": {"driver": "d", "allNodes": True, "pool": {"name": "p"}, "devices": []},
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_removed_alpha_says_in_whose_form_it_is_read_and_which_versions_are(kind: str) -> None:
    (finding,) = load_text(document("v1alpha3", kind, KINDS[kind]), strict=True).findings
    known = "(known are v1beta1, v1beta2 and v1)"
    said = f"version v1alpha3 of {kind} was removed in Kubernetes 1.34 {known}; it is read in the form of v1beta1"
    assert (finding.code, finding.problem) == ("old-version", said)
    assert finding.remedy == "write apiVersion: resource.k8s.io/v1beta1"


def test_the_removed_alpha_is_read_in_the_form_in_which_it_was_written() -> None:
    (thing,) = load_text(claim("v1alpha3", {"name": "gpus", "deviceClassName": "c"})).objects
    assert isinstance(thing, ResourceClaim)
    assert [asked.device_class for asked in thing.requests] == ["c"]


OLDER = {
    "scheduling.k8s.io/v1beta1 PriorityClass": "scheduling.k8s.io/v1",
    "ray.io/v1beta1 RayCluster": "ray.io/v1",
    "scheduling.run.ai/v1 Queue": "scheduling.run.ai/v2",
    "scheduling.run.ai/v2alpha1 PodGroup": "scheduling.run.ai/v2alpha2",
    "kubeflow.org/v1alpha2 MPIJob": "kubeflow.org/v2beta1",
    "kubeflow.org/v1beta2 PyTorchJob": "kubeflow.org/v1",
    "kubeflow.org/v1 TrainJob": "kubeflow.org/v2alpha1",
    "autoscaling.x-k8s.io/v1alpha1 ProvisioningRequest": "autoscaling.x-k8s.io/v1",
    "apps/v1beta1 Deployment": "apps/v1",
}


@pytest.mark.parametrize(("old", "new"), OLDER.items(), ids=OLDER)
def test_an_older_version_is_pointed_to_the_newest_one_of_its_kind(old: str, new: str) -> None:
    version, kind = old.split()
    meta = {"name": "a", "namespace": "n"}
    loaded = load_text(json.dumps({"apiVersion": version, "kind": kind, "metadata": meta, "spec": {}}))
    remedies = [finding.remedy for finding in loaded.findings if finding.code == "old-version"]
    assert remedies == [f"write apiVersion: {new}"]
