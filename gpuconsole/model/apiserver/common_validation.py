"""Validation common to many kinds, and Kueue's feature gates that change what its API accepts (defaults of 0.19).

Metadata, labels, annotations, label selectors and conditions follow k8s.io/apimachinery (ValidateObjectMeta,
ValidateLabelSelector, ValidateConditions). The annotation admission-gated-by lists gates that must be removed before
admission (Kueue 0.19 validation_admissiongatedby).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuconsole.model.apiserver.schema import (
    INT_64,
    LABELS,
    MOMENT,
    REASON,
    Empty,
    a_flag,
    a_text,
    domain_path,
    duplicate,
    forbidden,
    invalid,
    listed,
    not_supported,
    record,
    required,
    too_long,
)
from gpuconsole.model.documents.findings import FieldError, MapKey, Path, label, label_key, label_value, subdomain

Gates = Mapping[str, bool]
"""Kueue's feature gates that differ from their defaults, by name."""

NO_GATES: Gates = {}
DEFAULTS: Gates = {
    "AdmissionGatedBy": True,
    "ConcurrentAdmission": False,
    "ElasticJobsViaWorkloadSlices": True,
    "LWSImmutableGroupSize": True,
    "PartialAdmission": True,
    "PriorityBoost": False,
    "RejectUpdatesToCQWithInvalidOnFlavors": False,
    "TASMultiLayerTopology": True,
    "TASValidateWorkloadSliceSize": True,
    "TopologyAwareScheduling": True,
    "ValidateRayAndSparkJobUpdates": True,
    "WorkloadIdentifierAnnotations": True,
    "WorkloadValidateResourcesAreNonNegative": True,
    "WorkloadValidationForPodSetMetadata": True,
}
"""Kueue's feature gates that change what its API accepts, with their defaults."""


def enabled(gates: Gates, name: str) -> bool:
    """True if a feature gate is on: its value in `gates`, or else its default."""
    return gates.get(name, DEFAULTS[name])


MOST_ANNOTATIONS = 256 * 1024
"""Most bytes that all annotations of an object may have together."""


def check_labels(labels: Mapping[str, str] | None, path: Path) -> Iterator[FieldError]:
    """Validate the keys and values of labels or of a node selector; the path of each error is that of the whole map."""
    for key, value in (labels or {}).items():
        for message in label_key(key):
            yield invalid(path, key, message, "write the key as example.com/name", "bad-label")
        for message in label_value(value):
            yield invalid(path, value, message, "use at most 63 letters, digits, '-', '_' and '.'", "bad-label")


def check_annotations(annotations: Mapping[str, str] | None, path: Path) -> Iterator[FieldError]:
    """Validate the keys of annotations, ignoring case, and their total size."""
    found = annotations or {}
    for key in found:
        for message in label_key(key.lower()):
            yield invalid(path, key, message, "write the key as example.com/name", "bad-label")
    if sum(len(key.encode()) + len(value.encode()) for key, value in found.items()) > MOST_ANNOTATIONS:
        yield too_long(path, MOST_ANNOTATIONS)


def check_selector(selector: Mapping[str, Any] | None, path: Path) -> Iterator[FieldError]:
    """Validate a label selector (k8s.io/apimachinery ValidateLabelSelector)."""
    if selector is None:
        return
    yield from check_labels(selector.get("matchLabels"), (*path, "matchLabels"))
    for n, expression in enumerate(selector.get("matchExpressions") or ()):
        place = (*path, "matchExpressions", n)
        operator, values = expression.get("operator", ""), expression.get("values") or ()
        if operator in ("In", "NotIn"):
            if not values:
                yield required((*place, "values"), "must be specified when `operator` is 'In' or 'NotIn'", "name one")
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                yield forbidden((*place, "values"), detail, "leave the values out")
        else:
            remedy = "it takes In, NotIn, Exists, DoesNotExist"
            yield invalid((*place, "operator"), operator, "not a valid selector operator", remedy)
        key = expression.get("key", "")
        for message in label_key(key):
            yield invalid((*place, "key"), key, message, "write the key as example.com/name", "bad-label")
        for v, value in enumerate(values):
            for message in label_value(value):
                yield invalid((*place, "values", v), value, message, "write it as a label's value", "bad-label")


_META: Path = ("metadata",)
_OWNER = record({"controller": a_flag(), "blockOwnerDeletion": a_flag()}, text="apiVersion kind name uid")
METADATA = record(
    {
        **dict.fromkeys(("labels", "annotations"), LABELS),
        **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), MOMENT),
        **dict.fromkeys(("generation", "deletionGracePeriodSeconds"), INT_64),
        "finalizers": listed(a_text()),
        "ownerReferences": listed(_OWNER),
        "managedFields": listed(record({"time": MOMENT}, text="manager operation apiVersion fieldsType subresource")),
    },
    text="name generateName namespace uid resourceVersion selfLink",
    empty=Empty.KEPT,
)


def check_metadata(document: Mapping[str, Any], *, namespaced: bool) -> Iterator[FieldError]:
    """Report errors in an object's name, namespace, labels, annotations and finalizers."""
    meta = document.get("metadata") or {}
    yield from _check_name(meta)
    namespace = meta.get("namespace") or ""
    path: Path = (*_META, "namespace")
    if not namespaced and namespace:
        yield forbidden(path, "not allowed on this type", "remove it: the object is not namespaced")
    elif namespaced and not namespace:
        yield required(path, "", "name a namespace")
    elif namespace:
        for message in label(namespace):
            yield invalid(path, namespace, message, "use lower-case letters, digits and '-'", "bad-name")
    yield from check_labels(meta.get("labels"), (*_META, "labels"))
    yield from check_annotations(meta.get("annotations"), (*_META, "annotations"))
    for finalizer in meta.get("finalizers") or ():
        for message in label_key(finalizer):
            yield invalid((*_META, "finalizers"), finalizer, message, "write it as example.com/name")


def _check_name(meta: Mapping[str, Any]) -> Iterator[FieldError]:
    remedy = "use lower-case letters, digits, '-' and '.', at most 253 of them"
    prefix = meta.get("generateName")
    if prefix:
        for message in subdomain(prefix.rstrip("-")):
            yield invalid((*_META, "generateName"), prefix, message, remedy, "bad-name")
    name = meta.get("name")
    if not name:
        detail = "name or generateName is required"
        yield required((*_META, "name"), detail, "give it a metadata.name", "no-name")
        return
    for message in subdomain(name):
        yield invalid((*_META, "name"), name, message, remedy, "bad-name")


def check_change(document: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[FieldError]:
    """Report changes of immutable metadata between the old document and the new one."""
    meta, before = document.get("metadata") or {}, old.get("metadata") or {}
    for key in ("name", "namespace", "uid"):
        if key in meta and key in before and meta[key] != before[key]:
            yield invalid((*_META, key), meta[key], "field is immutable", f"leave it {before[key]}", "immutable")


LONGEST_REASON = 1024
LONGEST_MESSAGE = 32 * 1024
_STATUSES = ("False", "True", "Unknown")


def check_conditions(conditions: Sequence[Mapping[str, Any]], path: Path) -> Iterator[FieldError]:
    """Validate that types are unique, and that each condition has a status, a reason and a transition time."""
    seen: set[str] = set()
    for n, condition in enumerate(conditions):
        kind = condition.get("type", "")
        if kind in seen:
            yield duplicate((*path, n, "type"), kind)
        seen.add(kind)
        yield from _check_condition(condition, (*path, n))


def _check_condition(condition: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    for message in label_key(condition.get("type", "")):
        yield invalid((*path, "type"), condition.get("type", ""), message, "write it in CamelCase")
    if condition.get("status", "") not in _STATUSES:
        yield not_supported((*path, "status"), condition.get("status", ""), _STATUSES)
    if condition.get("observedGeneration", 0) < 0:
        where = (*path, "observedGeneration")
        yield invalid(where, condition["observedGeneration"], "must be greater than or equal to zero", "drop it")
    if not condition.get("lastTransitionTime"):
        yield required((*path, "lastTransitionTime"), "must be set", "write it as 2026-01-05T08:00:00Z")
    reason = condition.get("reason", "")
    if not reason:
        yield required((*path, "reason"), "must be set", "name a reason in CamelCase")
    elif not REASON.fullmatch(reason):
        detail = (
            "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
            "characters or '_,:', and must end with an alphanumeric character or '_'"
        )
        yield invalid((*path, "reason"), reason, detail, "write it in CamelCase")
    for key, most in (("reason", LONGEST_REASON), ("message", LONGEST_MESSAGE)):
        if len(condition.get(key, "")) > most:
            yield too_long((*path, key), most)


ADMISSION_GATED_BY = "kueue.x-k8s.io/admission-gated-by"
LONGEST_GATE = 63
_PATH: Path = ("metadata", "annotations", MapKey(ADMISSION_GATED_BY))


def gates_of(text: str) -> list[str]:
    """Split the annotation admission-gated-by, a comma-separated list of admission gates."""
    return [gate.strip() for gate in text.split(",")] if text.strip() else []


def check_gates(annotations: Mapping[str, str]) -> Iterator[FieldError]:
    """Validate the annotation admission-gated-by: unique gates, each a domain-prefixed path of up to 63 characters."""
    text = annotations.get(ADMISSION_GATED_BY, "")
    seen: set[str] = set()
    for gate in gates_of(text):
        if not gate:
            yield invalid(_PATH, text, "cannot contain empty gate names", "drop a comma")
        elif gate in seen:
            yield invalid(_PATH, text, f"duplicate gate name: {gate}", "name it once")
        else:
            seen.add(gate)
            for part, message in domain_path(gate):
                yield invalid(_PATH, part, message, "write it as example.com/gate")
            if len(gate) > LONGEST_GATE:
                yield too_long(_PATH, LONGEST_GATE)


def check_gates_change(annotations: Mapping[str, str], before: Mapping[str, str]) -> Iterator[FieldError]:
    """Validate that an update only removes admission gates; `before` are the old annotations."""
    text, old = annotations.get(ADMISSION_GATED_BY, ""), before.get(ADMISSION_GATED_BY, "")
    if text and not old:
        yield forbidden(_PATH, "cannot add admission gate after creation", "name its gates when you create it")
    elif text and not set(gates_of(text)) <= set(gates_of(old)):
        yield forbidden(_PATH, "can only remove gates, not add new ones", f"keep some of {old}")
