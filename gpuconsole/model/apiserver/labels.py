"""Validation of labels, annotations and label selectors (k8s.io/apimachinery)."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuconsole.model.apiserver.refusals import forbidden, invalid, required, too_long
from gpuconsole.model.documents.fields import FieldError
from gpuconsole.model.documents.findings import Path
from gpuconsole.model.documents.syntax import label_key, label_value

MOST_ANNOTATIONS = 256 * 1024
"""Bytes of all annotations of an object."""


def check_labels(labels: Mapping[str, str] | None, path: Path) -> Iterator[FieldError]:
    """Validate keys and values of labels or of a node selector; the errors name the whole map."""
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
