"""Validation of Workload updates: immutable fields, and fields that may only grow (Kueue 0.19 workload_webhook)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuconsole.model.apiserver.defaulting import written_back
from gpuconsole.model.apiserver.gates import Gates, enabled
from gpuconsole.model.apiserver.refusals import invalid, required
from gpuconsole.model.apiserver.workload import POD_SET, reserves
from gpuconsole.model.documents.fields import FieldError
from gpuconsole.model.documents.findings import MapKey, Path

Object = Mapping[str, Any]
ELASTIC = "kueue.x-k8s.io/elastic-job"
REPLACEMENT = "kueue.x-k8s.io/workload-slice-replacement-for"
_IMMUTABLE = "field is immutable"
_RECLAIMABLE: Path = ("status", "reclaimablePods")


def is_elastic(workload: Object, gates: Gates) -> bool:
    """True if the workload's job may change its size while it runs."""
    annotations = (workload.get("metadata") or {}).get("annotations") or {}
    return enabled(gates, "ElasticJobsViaWorkloadSlices") and annotations.get(ELASTIC) == "true"


def check_changes(workload: Object, old: Object, gates: Gates) -> Iterator[FieldError]:
    """Validate a Workload against the one that it replaces."""
    if reserves(old):
        yield from _workload_changes_check_pod_sets(workload, old, gates)
        if reserves(workload):
            yield from _workload_changes_check_reclaimable(workload, old, gates)
    new_status, old_status = workload.get("status") or {}, old.get("status") or {}
    yield from _workload_changes_check_admission(new_status.get("admission"), old_status.get("admission"), gates)
    yield from _workload_changes_check_updates(new_status, old_status)
    annotations = (workload.get("metadata") or {}).get("annotations") or {}
    if not (enabled(gates, "ElasticJobsViaWorkloadSlices") and REPLACEMENT in annotations):
        yield from _check_cluster(new_status, old_status)


def _workload_changes_pod_sets(workload: Object) -> Sequence[Object]:
    return (workload.get("spec") or {}).get("podSets") or ()


def _frozen(path: Path, value: object, remedy: str = "leave it as it was") -> FieldError:
    return invalid(path, value, _IMMUTABLE, remedy, "immutable")


def _workload_changes_check_pod_sets(workload: Object, old: Object, gates: Gates) -> Iterator[FieldError]:
    """Validate that pod sets with reserved quota change only by elastic scale-down."""
    path: Path = ("spec", "podSets")
    now, before = _workload_changes_pod_sets(workload), _workload_changes_pod_sets(old)
    if len(now) != len(before):
        yield _frozen(path, now)
        return
    shrinks = enabled(gates, "ElasticJobsViaWorkloadSlices")
    for n, (new, known) in enumerate(zip(now, before, strict=True)):
        count = known.get("count", 0)
        same = {**new, "count": count} if shrinks and new.get("count", 0) < count else new
        if written_back(POD_SET, same) != written_back(POD_SET, known):
            yield _frozen((*path, str(n)), new, "leave it as it was until the quota is released")


def _workload_changes_check_reclaimable(workload: Object, old: Object, gates: Gates) -> Iterator[FieldError]:
    """Validate that reclaimable pods do not decrease, unless an elastic job scaled down."""
    before, now = _reclaimable(old), _reclaimable(workload)
    if not before or now == before:
        return
    shrunk = _scaled_down(workload) if is_elastic(workload, gates) else set()
    for name, count in now.items():
        if count < before.get(name, 0) and name not in shrunk:
            path = (*_RECLAIMABLE, MapKey(name), "count")
            yield invalid(path, count, f"cannot be less than {before[name]}", f"write {before[name]} or more")
    for name in sorted(before.keys() - now.keys() - shrunk):
        yield required((*_RECLAIMABLE, MapKey(name)), "cannot be removed", "keep it")


def _reclaimable(workload: Object) -> dict[str, int]:
    listed = (workload.get("status") or {}).get("reclaimablePods") or ()
    return {place.get("name", ""): place.get("count", 0) for place in listed}


def _scaled_down(workload: Object) -> set[str]:
    """Return the pod sets with fewer pods than were admitted."""
    sizes = {pods.get("name", ""): pods.get("count", 0) for pods in _workload_changes_pod_sets(workload)}
    admission = (workload.get("status") or {}).get("admission") or {}
    admitted = {place.get("name", ""): place.get("count", 0) for place in admission.get("podSetAssignments") or ()}
    return {name for name, count in admitted.items() if count > sizes.get(name, 0)}


def _workload_changes_check_admission(new: Object | None, old: Object | None, gates: Gates) -> Iterator[FieldError]:
    """Validate that an admission is only set, removed, or completed with its topology assignment."""
    if new is None or old is None:
        return
    if enabled(gates, "TopologyAwareScheduling"):
        now, before = _without_topology(new), _without_topology(old)
    else:
        now, before = new, old
    if now != before:
        yield _frozen(("status", "admission"), new, "unset it first")


def _without_topology(admission: Object) -> Object:
    later = ("topologyAssignment", "delayedTopologyRequest")
    assignments = admission.get("podSetAssignments") or ()
    return {
        **admission,
        "podSetAssignments": [{k: v for k, v in place.items() if k not in later} for place in assignments],
    }


def _workload_changes_check_updates(new: Object, old: Object) -> Iterator[FieldError]:
    """Validate that a check that stays ready keeps its pod set updates."""
    now = {check.get("name", ""): check for check in new.get("admissionChecks") or ()}
    for n, check in enumerate(old.get("admissionChecks") or ()):
        found = now.get(check.get("name", ""))
        if found is None or not found.get("state") == check.get("state") == "Ready":
            continue
        if (found.get("podSetUpdates") or []) != (check.get("podSetUpdates") or []):
            yield _frozen(("status", "admissionChecks", n, "podSetUpdates"), found.get("podSetUpdates"))


def _check_cluster(new: Object, old: Object) -> Iterator[FieldError]:
    cluster = new.get("clusterName")
    if cluster is not None and "clusterName" not in old and cluster not in (old.get("nominatedClusterNames") or ()):
        detail = "when setting clusterName it must be one of the nominatedClusterNames"
        yield invalid(("status", "clusterName"), cluster, detail, "nominate the cluster first")
