"""Schema of the Workload, and its webhook for new and changed Workloads (Kueue 0.19 workload_webhook).

While a Workload holds quota, some fields are immutable and some may only grow: `RULES` are the schema's rules for this,
`check_changes` has the webhook's.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gpuconsole.model.apiserver.common_validation import (
    Gates,
    check_annotations,
    check_conditions,
    check_gates,
    check_gates_change,
    check_labels,
    enabled,
)
from gpuconsole.model.apiserver.kueue_webhooks import TOLERATIONS, check_toleration_keys
from gpuconsole.model.apiserver.pod_schema import CONDITIONS, POD_TEMPLATE, exactly_one, named, pod_set_name
from gpuconsole.model.apiserver.schema import (
    AMOUNTS,
    INT_32,
    LABELS,
    MOMENT,
    Schema,
    SchemaRule,
    Transition,
    a_flag,
    a_text,
    forbidden,
    invalid,
    listed,
    mapped,
    not_found,
    not_supported,
    one_of,
    record,
    required,
    whole,
    written_back,
)
from gpuconsole.model.documents.findings import FieldError, MapKey, Path
from gpuconsole.model.resources import PODS, amount, capped

_MOST_PODS = 100_000
_LEVEL_TEXT = a_text(most=63)
_VALUES = record(
    {
        "universal": _LEVEL_TEXT,
        "individual": record(
            {"roots!": listed(_LEVEL_TEXT, least=1, most=_MOST_PODS), "prefix": _LEVEL_TEXT, "suffix": _LEVEL_TEXT}
        ),
    },
    rules=(exactly_one("universal", "individual"),),
)
_COUNTS = record(
    {"universal": whole(1), "individual": listed(whole(1), least=1, most=_MOST_PODS)},
    rules=(exactly_one("universal", "individual"),),
)


def _has_count_each(piece: Mapping[str, Any]) -> bool:
    counts = piece["podCounts"]
    return "individual" not in counts or len(counts["individual"]) == piece["domainCount"]


def _has_root_each(piece: Mapping[str, Any]) -> bool:
    levels = piece["valuesPerLevel"]
    return all(
        "individual" not in level or len(level["individual"]["roots"]) == piece["domainCount"] for level in levels
    )


_SLICE = record(
    {
        "domainCount!": whole(1),
        "valuesPerLevel!": listed(_VALUES, least=1, most=16),
        "podCounts!": _COUNTS,
    },
    rules=(
        SchemaRule(
            "podCounts.individual must have length equal to domainCount",
            _has_count_each,
            "write one count a domain",
        ),
        SchemaRule(
            "valuesPerLevel.individual, if set, must have roots of length equal to domainCount of this "
            "TopologyAssignmentSlice",
            _has_root_each,
            "write one root a domain",
        ),
    ),
)
_TOPOLOGY_ASSIGNMENT = record(
    {
        "levels!": listed(a_text(most=317), least=1, most=16),
        "slices!": listed(_SLICE, most=1000),
    },
    rules=(
        SchemaRule(
            "valuesPerLevel must have the same length as the number of levels in this TopologyAssignment",
            lambda place: all(len(piece["valuesPerLevel"]) == len(place["levels"]) for piece in place["slices"]),
            "write the values of each level",
        ),
    ),
)
_ASSIGNMENT = record(
    {
        "name": pod_set_name(default="main"),
        "flavors": mapped(named()),
        "resourceUsage": AMOUNTS,
        "count": whole(0),
        "topologyAssignment": _TOPOLOGY_ASSIGNMENT,
        "delayedTopologyRequest": one_of("Pending", "Ready", most=7),
    }
)
_POD_SET_UPDATE = record(
    {
        "name!": pod_set_name(),
        "labels": LABELS,
        "annotations": LABELS,
        "nodeSelector": LABELS,
        "tolerations": TOLERATIONS,
    }
)
_CHECK = record(
    {
        "name!": a_text(least=1, most=316),
        "state!": one_of("Pending", "Ready", "Retry", "Rejected"),
        "lastTransitionTime!": MOMENT,
        "message!": a_text(most=32768),
        "podSetUpdates": listed(_POD_SET_UPDATE, most=18),
        "requeueAfterSeconds": whole(0),
        "retryCount": whole(0),
    }
)
_EVICTION = record({"reason!": a_text(most=316), "underlyingCause!": a_text(most=316), "count!": whole(0)})
_CLUSTER = a_text(most=256)
STATUS = record(
    {
        "conditions": CONDITIONS,
        "admission": record({"clusterQueue": named(), "podSetAssignments": listed(_ASSIGNMENT, most=18, by=("name",))}),
        "requeueState": record({"count": whole(0), "requeueAt": MOMENT}),
        "reclaimablePods": listed(record({"name!": pod_set_name(), "count!": whole(0)}), most=18, by=("name",)),
        "admissionChecks": listed(_CHECK, most=8, by=("name",)),
        "resourceRequests": listed(record({"name!": pod_set_name(), "resources": AMOUNTS}), most=18, by=("name",)),
        "accumulatedPastExecutionTimeSeconds": INT_32,
        "schedulingStats": record({"evictions": listed(_EVICTION, most=256, by=("reason", "underlyingCause"))}),
        "nominatedClusterNames": listed(_CLUSTER, most=20),
        "clusterName": _CLUSTER,
        "unhealthyNodes": listed(record({"name!": a_text(most=63)}), most=8, by=("name",)),
        "preemptionGates": listed(
            record(
                {
                    "name!": a_text(least=1, most=63),
                    "position!": one_of("Closed", "Open"),
                    "lastTransitionTime!": MOMENT,
                }
            ),
            most=8,
            by=("name",),
        ),
    },
    rules=(
        Transition(
            "clusterName is immutable once set",
            lambda new, old: (
                "clusterName" not in old or "clusterName" not in new or bool(new["clusterName"] == old["clusterName"])
            ),
            "leave it as it was",
        ),
        SchemaRule(
            "clusterName and nominatedClusterNames are mutually exclusive",
            lambda status: "clusterName" not in status or not status.get("nominatedClusterNames"),
            "drop nominatedClusterNames once the cluster is chosen",
        ),
    ),
)


Object = Mapping[str, Any]
MOST_POD_SETS = 18
_TOPOLOGY_REQUEST = record(
    {
        **dict.fromkeys(("required", "preferred", "podSetSliceRequiredTopology"), a_text(most=63)),
        **dict.fromkeys(("podIndexLabel", "subGroupIndexLabel"), a_text(most=317)),
        "podSetGroupName": a_text(most=256),
        "podsetSliceRequiredTopologyConstraints": listed(
            record({"topology!": a_text(least=1, most=63), "size!": whole(1)}), most=3
        ),
    },
    flag="unconstrained",
    int32="subGroupCount podSetSliceSize",
)
_MIN_COUNT = SchemaRule(
    "minCount should be positive and less or equal to count",
    lambda pod_set: "minCount" not in pod_set or pod_set["minCount"] <= pod_set["count"],
    lambda pod_set: f"write {pod_set['count']} or less",
    "bad-min-count",
    lambda pod_set: ("minCount",),
)
POD_SET = record(
    {
        "name": pod_set_name(default="main"),
        "template!": POD_TEMPLATE,
        "count": whole(0, default=1),
        "minCount": whole(1),
        "topologyRequest": _TOPOLOGY_REQUEST,
    },
    rules=(_MIN_COUNT,),
)
_CLASSES = {"kueue.x-k8s.io": "WorkloadPriorityClass", "scheduling.k8s.io": "PriorityClass"}


def _kind_of_group(group: str) -> SchemaRule:
    kind = _CLASSES[group]
    return SchemaRule(
        f"only the {kind} kind is allowed for the {group} group",
        lambda place: place["group"] != group or place["kind"] == kind,
        f"write kind: {kind}",
    )


_PRIORITY_CLASS = record(
    {"group!": one_of(*_CLASSES), "kind!": one_of(*_CLASSES.values()), "name!": named(least=1)},
    rules=(_kind_of_group("scheduling.k8s.io"), _kind_of_group("kueue.x-k8s.io")),
)
_SPEC = record(
    {
        "podSets": listed(POD_SET, least=1, most=MOST_POD_SETS, by=("name",)),
        "queueName": named(),
        "priorityClassRef": _PRIORITY_CLASS,
        "priority": INT_32,
        "active": a_flag(True),
        "maximumExecutionTimeSeconds": whole(1),
        "preemptionGates": listed(record({"name!": a_text(least=1, most=63)}), most=8, by=("name",)),
    },
    rules=(
        SchemaRule(
            "priority should not be nil when priorityClassRef is set",
            lambda spec: "priorityClassRef" not in spec or "priority" in spec,
            "write the value of the class",
            "required",
            lambda spec: ("priority",),
        ),
    ),
)


def is_true(workload: Object, condition: str) -> bool:
    """True if a condition of the workload is true."""
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return any(found.get("type") == condition and found.get("status") == "True" for found in conditions)


def reserves(workload: Object) -> bool:
    """True if the workload has a quota reservation."""
    return is_true(workload, "QuotaReserved")


def _reference(workload: Object) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = workload["spec"].get("priorityClassRef")
    return found


def _while_reserved(message: str, same: Callable[[Object, Object], bool]) -> Transition:
    """Rule for a field that is immutable while the old workload holds quota."""
    return Transition(
        message,
        lambda new, old: not reserves(old) or same(new, old),
        "leave it as it was until the quota is released",
    )


def _kept(key: str, *, of: Callable[[Object], bool] = bool) -> Callable[[Object, Object], bool]:
    """Condition that a field of priorityClassRef is unchanged.

    It holds for a reference that is new or removed, and for one for which `of` is false.
    """

    def same(new: Object, old: Object) -> bool:
        now, before = _reference(new), _reference(old)
        return now is None or before is None or not of(now) or now[key] == before[key]

    return same


def _same_queue(new: Object, old: Object) -> bool:
    return not reserves(new) or new["spec"].get("queueName") == old["spec"].get("queueName")


def _same_limit(new: Object, old: Object) -> bool:
    if not (is_true(old, "Admitted") and is_true(new, "Admitted")):
        return True
    now, before = (one["spec"].get("maximumExecutionTimeSeconds", 0) for one in (new, old))
    return bool(now == before)


def _assigns_each(workload: Object) -> bool:
    admission = (workload.get("status") or {}).get("admission")
    if admission is None or not reserves(workload):
        return True
    return len(workload["spec"]["podSets"]) == len(admission["podSetAssignments"])


RULES: tuple[SchemaRule | Transition, ...] = (
    SchemaRule(
        "podSetAssignments must have the same number of podSets as the spec", _assigns_each, "assign each pod set once"
    ),
    _while_reserved(
        "priorityClassRef is immutable while workload quota reserved",
        lambda new, old: (_reference(new) is None) == (_reference(old) is None),
    ),
    _while_reserved("priorityClassRef.group is immutable while workload quota reserved", _kept("group")),
    _while_reserved("priorityClassRef.kind is immutable while workload quota reserved", _kept("kind")),
    _while_reserved(
        "priorityClassRef.name is immutable for scheduling.k8s.io/priorityclass while workload quota reserved",
        _kept("name", of=lambda ref: (ref["group"], ref["kind"]) == ("scheduling.k8s.io", "PriorityClass")),
    ),
    _while_reserved("queueName is immutable while workload quota reserved", _same_queue),
    Transition(
        "maximumExecutionTimeSeconds is immutable while workload quota reserved",
        _same_limit,
        "leave it as it was while the workload is admitted",
    ),
)
"""Rules that need a Workload's spec and its status."""
WORKLOAD: Mapping[str, Schema] = {"spec": _SPEC, "status": STATUS}


ELASTIC = "kueue.x-k8s.io/elastic-job"
"""Annotation of a job whose size may change while it runs; also the name of the scheduling gate of its pods."""
REPLACEMENT = "kueue.x-k8s.io/workload-slice-replacement-for"
"""Annotation of a workload slice: the slice that it replaces."""
_IMMUTABLE = "field is immutable"
_RECLAIMABLE: Path = ("status", "reclaimablePods")


def is_elastic(workload: Object, gates: Gates) -> bool:
    """True if the workload's job may change its size while it runs."""
    annotations = (workload.get("metadata") or {}).get("annotations") or {}
    return enabled(gates, "ElasticJobsViaWorkloadSlices") and annotations.get(ELASTIC) == "true"


def check_changes(workload: Object, old: Object, gates: Gates) -> Iterator[FieldError]:
    """Validate a Workload against the one that it replaces."""
    if reserves(old):
        yield from _check_pod_sets_change(workload, old, gates)
        if reserves(workload):
            yield from _check_reclaimable_change(workload, old, gates)
    new_status, old_status = workload.get("status") or {}, old.get("status") or {}
    yield from _check_admission_change(new_status.get("admission"), old_status.get("admission"), gates)
    yield from _check_updates_change(new_status, old_status)
    annotations = (workload.get("metadata") or {}).get("annotations") or {}
    if not (enabled(gates, "ElasticJobsViaWorkloadSlices") and REPLACEMENT in annotations):
        yield from _check_cluster(new_status, old_status)


def _frozen(path: Path, value: object, remedy: str = "leave it as it was") -> FieldError:
    return invalid(path, value, _IMMUTABLE, remedy, "immutable")


def _check_pod_sets_change(workload: Object, old: Object, gates: Gates) -> Iterator[FieldError]:
    """Validate that pod sets with reserved quota change only by elastic scale-down."""
    path: Path = ("spec", "podSets")
    now, before = _pod_sets(workload), _pod_sets(old)
    if len(now) != len(before):
        yield _frozen(path, now)
        return
    shrinks = enabled(gates, "ElasticJobsViaWorkloadSlices")
    for n, (new, known) in enumerate(zip(now, before, strict=True)):
        count = known.get("count", 0)
        same = {**new, "count": count} if shrinks and new.get("count", 0) < count else new
        if written_back(POD_SET, same) != written_back(POD_SET, known):
            yield _frozen((*path, str(n)), new, "leave it as it was until the quota is released")


def _check_reclaimable_change(workload: Object, old: Object, gates: Gates) -> Iterator[FieldError]:
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
    sizes = {pods.get("name", ""): pods.get("count", 0) for pods in _pod_sets(workload)}
    admission = (workload.get("status") or {}).get("admission") or {}
    admitted = {place.get("name", ""): place.get("count", 0) for place in admission.get("podSetAssignments") or ()}
    return {name for name, count in admitted.items() if count > sizes.get(name, 0)}


def _check_admission_change(new: Object | None, old: Object | None, gates: Gates) -> Iterator[FieldError]:
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


def _check_updates_change(new: Object, old: Object) -> Iterator[FieldError]:
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
    """Yield the deprecation warnings that the webhook returns for a Workload."""
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
