"""Validates the custom metric labels of a Configuration."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from gpuconsole.model.documents import field_errors as syntax
from gpuconsole.model.documents.field_errors import FieldError, duplicate, invalid, too_many
from gpuconsole.model.documents.findings import Path
from gpuconsole.scheduling.kueue.configuration.manager import CustomLabel

MOST = 20
MOST_OF_KIND = {"Workload": 2, "LocalQueue": 6, "ClusterQueue": 6, "Cohort": 6}
MOST_VALUES = 16
MOST_WORKLOAD_VALUES = 12
_LABELS_ROOT: Path = ("metrics", "customLabels")
_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*")


def custom_labels(labels: Sequence[CustomLabel]) -> Iterator[FieldError]:
    """Yield the errors in `metrics.customLabels`."""
    if len(labels) > MOST:
        yield too_many(_LABELS_ROOT, MOST)
    seen: set[str] = set()
    for number, label in enumerate(labels):
        path = (*_LABELS_ROOT, number)
        if not _NAME.fullmatch(label.name):
            yield invalid((*path, "name"), "must match ^[a-zA-Z][a-zA-Z0-9_]*$")
        if label.name in seen:
            yield duplicate((*path, "name"))
        seen.add(label.name)
        yield from _source(label, path)
        yield from _values(label, path)
    yield from _by_kind(labels)


def _source(label: CustomLabel, path: Path) -> Iterator[FieldError]:
    if label.source_label_key and label.source_annotation_key:
        yield invalid(path, "sourceLabelKey and sourceAnnotationKey are mutually exclusive")
    if label.source_label_key:
        field, key = "sourceLabelKey", label.source_label_key
    elif label.source_annotation_key:
        field, key = "sourceAnnotationKey", label.source_annotation_key
    else:
        field, key = "name", label.name
    faults = syntax.label_key(key)
    if faults:
        yield invalid((*path, field), "; ".join(faults))


def _values(label: CustomLabel, path: Path) -> Iterator[FieldError]:
    values, place = label.tracked_values, (*path, "trackedValues")
    if _kind(label) == "Workload":
        if not values:
            yield invalid(place, "must not be empty when sourceKind is 'Workload'")
        if len(values) > MOST_WORKLOAD_VALUES:
            yield invalid(place, f"must not be greater than {MOST_WORKLOAD_VALUES} when sourceKind is 'Workload'")
    elif len(values) > MOST_VALUES:
        yield too_many(place, MOST_VALUES)
    if len(set(values)) < len(values):
        yield invalid(place, "must not contain duplicates")


def _by_kind(labels: Sequence[CustomLabel]) -> Iterator[FieldError]:
    for kind, count in sorted(Counter(map(_kind, labels)).items()):
        if kind not in MOST_OF_KIND:
            yield invalid(_LABELS_ROOT, f"unknown source kind: {kind}")
        elif count > MOST_OF_KIND[kind]:
            wanted = f"found {count}, expected <= {MOST_OF_KIND[kind]}"
            yield invalid(_LABELS_ROOT, f"too many custom labels for source kind {kind}: {wanted}")


def _kind(label: CustomLabel) -> str:
    return "ClusterQueue" if label.source_kind is None else label.source_kind
