"""Validation of new and changed Workloads (Kueue 0.19 workload_webhook)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuconsole.model.apiserver.capacity import check_toleration_keys
from gpuconsole.model.apiserver.conditions import check_conditions
from gpuconsole.model.apiserver.gated_by import check_gates, check_gates_change
from gpuconsole.model.apiserver.gates import Gates, enabled
from gpuconsole.model.apiserver.labels import check_annotations, check_labels
from gpuconsole.model.apiserver.refusals import forbidden, invalid, not_found, not_supported, required
from gpuconsole.model.apiserver.workload import reserves
from gpuconsole.model.apiserver.workload_changes import check_changes, is_elastic
from gpuconsole.model.documents.fields import FieldError
from gpuconsole.model.documents.findings import MapKey, Path
from gpuconsole.model.quantity import PODS, amount, capped

Object = Mapping[str, Any]
BOOST = "kueue.x-k8s.io/priority-boost"
_INTEGER = re.compile(r"[+-]?[0-9]+")
_POD_SETS: Path = ("spec", "podSets")


def default(workload: Object, gates: Gates) -> Object:
    """Apply the mutating webhook to a new Workload: without partial admission, minCount is removed."""
    pod_sets = (workload.get("spec") or {}).get("podSets")
    if enabled(gates, "PartialAdmission") or not pod_sets:
        return workload
    whole = [{key: value for key, value in pods.items() if key != "minCount"} for pods in pod_sets]
    return {**workload, "spec": {**workload["spec"], "podSets": whole}}


def warn(workload: Object) -> Iterator[str]:
    """Yield the webhook's deprecation warnings."""
    for n, pods in enumerate(_pod_sets(workload)):
        count = (pods.get("topologyRequest") or {}).get("subGroupCount", 0)
        if count < 0:
            path = f"spec.podSets[{n}].topologyRequest.subGroupCount"
            yield f"{path}: negative value {count} is deprecated and will be rejected in a future release"


def validate(workload: Object, old: Object | None, gates: Gates) -> Iterator[FieldError]:
    """Yield the webhook's errors for a new Workload, or one that replaces `old`."""
    elastic = is_elastic(workload, gates)
    yield from _check_pod_sets(workload, elastic, gates)
    if reserves(workload):
        yield from _check_admission(workload, old)
    yield from check_conditions((workload.get("status") or {}).get("conditions") or (), ("status", "conditions"))
    yield from _check_reclaimable(workload, old if elastic else None)
    yield from _check_updates(workload)
    annotations = _annotations(workload)
    if enabled(gates, "AdmissionGatedBy"):
        yield from check_gates(annotations)
    if enabled(gates, "PriorityBoost"):
        yield from _check_boost(annotations)
    if old is not None:
        yield from check_changes(workload, old, gates)
        if enabled(gates, "AdmissionGatedBy"):
            yield from check_gates_change(annotations, _annotations(old))


def _pod_sets(workload: Object) -> Sequence[Object]:
    return (workload.get("spec") or {}).get("podSets") or ()


def _annotations(workload: Object) -> Mapping[str, str]:
    return (workload.get("metadata") or {}).get("annotations") or {}


def _check_pod_sets(workload: Object, elastic: bool, gates: Gates) -> Iterator[FieldError]:
    pod_sets = _pod_sets(workload)
    for n, pods in enumerate(pod_sets):
        yield from _check_template(pods.get("template") or {}, (*_POD_SETS, n, "template"), gates)
        if enabled(gates, "TASValidateWorkloadSliceSize"):
            yield from _check_slices(pods.get("topologyRequest") or {}, (*_POD_SETS, n, "topologyRequest"))
    variable = sum("minCount" in pods for pods in pod_sets)
    if variable > 1:
        detail = "at most one podSet can use minCount"
        yield invalid(_POD_SETS, variable, detail, "keep the minCount of one", "bad-min-count")
    if variable and elastic:
        detail = "partial admission and elastic job cannot be used together"
        yield invalid(_POD_SETS, variable, detail, "drop minCount, or the annotation", "bad-min-count")


def _check_template(template: Object, path: Path, gates: Gates) -> Iterator[FieldError]:
    meta, spec = template.get("metadata") or {}, template.get("spec") or {}
    if enabled(gates, "WorkloadValidationForPodSetMetadata"):
        yield from check_labels(meta.get("labels"), (*path, "metadata", "labels"))
        yield from check_annotations(meta.get("annotations"), (*path, "metadata", "annotations"))
    for key in ("initContainers", "containers"):
        for n, container in enumerate(spec.get(key) or ()):
            yield from _check_resources(container, (*path, "spec", key, n), gates)
    yield from _check_resources(spec, (*path, "spec"), gates)


def _check_resources(place: Object, path: Path, gates: Gates) -> Iterator[FieldError]:
    """Validate requests and limits of a container or pod: no `pods` resource, nothing negative."""
    needs = place.get("resources") or {}
    for part in ("requests", "limits"):
        for name, value in sorted((needs.get(part) or {}).items()):
            where = (*path, "resources", part, MapKey(name))
            if name == PODS:
                detail = "the key is reserved for internal kueue use"
                yield invalid(where, name, detail, "drop it: pods are counted by themselves", "reserved")
            if enabled(gates, "WorkloadValidateResourcesAreNonNegative") and capped(value) < 0:
                yield invalid(where, value, "must be greater than or equal to 0", "write 0 or more", "negative")


def _check_slices(request: Object, path: Path) -> Iterator[FieldError]:
    size, place = request.get("podSetSliceSize"), (*path, "podSetSliceSize")
    wanted = "podSetSliceRequiredTopology" in request
    if wanted and size is None:
        detail = "must be set when podSetSliceRequiredTopology is specified"
        yield required(place, detail, "say how many pods a slice has")
    elif wanted and size is not None and size <= 0:
        yield invalid(place, size, "must be greater than 0", "write 1 or more", "bad-topology")
    elif size is not None and not wanted:
        detail = "may not be set when podSetSliceRequiredTopology is not specified"
        yield forbidden(place, detail, "name the topology, or drop it")
    for n, constraint in enumerate(request.get("podsetSliceRequiredTopologyConstraints") or ()):
        if constraint.get("size", 0) <= 0:
            where = (*path, "podsetSliceRequiredTopologyConstraints", n, "size")
            yield invalid(where, constraint.get("size", 0), "must be greater than 0", "write 1 or more", "bad-topology")


def _check_admission(workload: Object, old: Object | None) -> Iterator[FieldError]:
    """Validate the admission of a workload with reserved quota.

    It must be set, its pod sets must exist, and their usage must be a multiple of their pods.
    """
    path: Path = ("status", "admission")
    admission = workload["status"].get("admission")
    if admission is None:
        if old is None or not reserves(old) or "admission" in old["status"]:
            yield required(path, "must be set while the QuotaReserved condition is true", "write the admission")
        return
    names = {pods.get("name", "") for pods in _pod_sets(workload)}
    for n, assignment in enumerate(admission.get("podSetAssignments") or ()):
        place = (*path, "podSetAssignments", n)
        name, count = assignment.get("name", ""), assignment.get("count", 0)
        if name not in names:
            yield not_found((*place, "name"), name)
        for resource, used in sorted((assignment.get("resourceUsage") or {}).items()):
            if count > 0 and amount(resource, used) % count:
                where = (*place, "resourceUsage", MapKey(resource))
                yield invalid(where, used, f"is not a multiple of {count}", "write count times what a pod uses")


def _check_reclaimable(workload: Object, old: Object | None) -> Iterator[FieldError]:
    """Validate that reclaimable pods do not exceed the count; an elastic job may keep an old value that does."""
    sizes = {pods.get("name", ""): pods.get("count", 0) for pods in _pod_sets(workload)}
    given = (workload.get("status") or {}).get("reclaimablePods") or ()
    earlier = ((old or {}).get("status") or {}).get("reclaimablePods") or ()
    before = {place.get("name", ""): place.get("count", 0) for place in earlier}
    for place in given:
        name, count = place.get("name", ""), place.get("count", 0)
        path: Path = ("status", "reclaimablePods", MapKey(name))
        if name not in sizes:
            yield not_supported((*path, "name"), name, tuple(sizes))
        elif count > sizes[name] and before.get(name) != count:
            yield invalid((*path, "count"), count, f"should be less or equal to {sizes[name]}", "write no more")


def _check_updates(workload: Object) -> Iterator[FieldError]:
    """Validate the pod set updates of admission checks."""
    names = tuple(sorted({pods.get("name", "") for pods in _pod_sets(workload)}))
    for c, check in enumerate((workload.get("status") or {}).get("admissionChecks") or ()):
        for n, update in enumerate(check.get("podSetUpdates") or ()):
            path: Path = ("status", "admissionChecks", c, "podSetUpdates", n)
            if update.get("name", "") not in names:
                yield not_supported((*path, "name"), update.get("name", ""), names)
            yield from check_toleration_keys(update.get("tolerations") or (), (*path, "tolerations"))
            yield from check_annotations(update.get("annotations"), (*path, "annotations"))
            yield from check_labels(update.get("nodeSelector"), (*path, "nodeSelector"))
            yield from check_labels(update.get("labels"), (*path, "labels"))


def _check_boost(annotations: Mapping[str, str]) -> Iterator[FieldError]:
    value = annotations.get(BOOST)
    if value is None:
        return
    path: Path = ("metadata", "annotations", MapKey(BOOST))
    if not value:
        detail = 'must be a valid signed integer; use "0" explicitly, empty string is not allowed'
        yield invalid(path, value, detail, 'write "0"')
    elif not _INTEGER.fullmatch(value) or not -(2**31) <= int(value) < 2**31:
        yield invalid(path, value, "must be a valid signed integer", "write a whole number")
