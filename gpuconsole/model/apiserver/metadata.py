"""Validation of metadata common to all objects (k8s.io/apimachinery ValidateObjectMeta)."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuconsole.model.apiserver.labels import check_annotations, check_labels
from gpuconsole.model.apiserver.refusals import forbidden, invalid, required
from gpuconsole.model.apiserver.schema import INT_64, LABELS, MOMENT, Empty, a_flag, a_text, listed, record
from gpuconsole.model.documents.fields import FieldError
from gpuconsole.model.documents.findings import Path
from gpuconsole.model.documents.syntax import label, label_key, subdomain

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
    """Report changes of immutable metadata."""
    meta, before = document.get("metadata") or {}, old.get("metadata") or {}
    for key in ("name", "namespace", "uid"):
        if key in meta and key in before and meta[key] != before[key]:
            yield invalid((*_META, key), meta[key], "field is immutable", f"leave it {before[key]}", "immutable")
