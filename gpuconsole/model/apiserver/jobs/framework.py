"""Validation common to all job kinds: labels, annotations, topology requests (Kueue 0.19 jobframework).

`JobView` has the fields that all webhooks need, `Pods` those of one pod set (jobframework tas_validation). Integers and
booleans in labels and annotations are parsed, and their errors reported, as in Go. `at`, `entries` and `number` read
optional fields of a document, which may be absent or of the wrong type.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct

from gpuconsole.model.apiserver.common_validation import Gates, check_gates, check_gates_change, enabled
from gpuconsole.model.apiserver.schema import duplicate, forbidden, invalid, required
from gpuconsole.model.apiserver.workload_webhook import ELASTIC
from gpuconsole.model.documents.findings import FieldError, Key, MapKey, Path, label_key, path_text, subdomain
from gpuconsole.model.jobs.common import (
    GROUP,
    MOST_LAYERS,
    PREFERRED,
    REQUIRED,
    SLICE_CONSTRAINTS,
    SLICE_REQUIRED,
    SLICE_SIZE,
    TRUE,
    UNCONSTRAINED,
)
from gpuconsole.model.jobs.workloads import MAX_EXECUTION, PRIORITY_CLASS, QUEUE

_WHOLE = re.compile(r"[+-]?[0-9]+")
FALSE = ("0", "f", "F", "FALSE", "false", "False")


def whole(text: str, bits: int = 64) -> int | None:
    """Parse an integer of `bits` bits; None if invalid."""
    if len(text) > 40 or not _WHOLE.fullmatch(text):
        return None
    number = int(text)
    return number if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else None


def not_whole(text: str) -> str:
    """Go's error for an invalid integer."""
    problem = "value out of range" if _WHOLE.fullmatch(text[:100]) else "invalid syntax"
    return f'strconv.Atoi: parsing "{text}": {problem}'


def truth(text: str) -> bool | None:
    """Parse a boolean; None if invalid."""
    return True if text in TRUE else False if text in FALSE else None


def not_truth(text: str) -> str:
    """Go's error for an invalid boolean."""
    return f'strconv.ParseBool: parsing "{text}": invalid syntax'


PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"
"""Label or annotation with the name of a prebuilt Workload; a name that is too long for a label needs the
annotation.
"""
LONGEST_LABEL = 63
_LABELS: Path = ("metadata", "labels")
_NOTES: Path = ("metadata", "annotations")
_IMMUTABLE = "field is immutable"


class JobView(Struct, frozen=True):
    """Fields of a job that the webhooks of all job kinds read."""

    kind: str
    """Group, version and kind of the job as Go prints them: `batch/v1, Kind=Job`."""
    labels: Mapping[str, str]
    notes: Mapping[str, str]
    """Annotations."""
    suspended: bool
    takes_elastic: bool
    """True if Kueue supports elastic jobs of this kind."""

    @property
    def queue(self) -> str:
        return self.labels.get(QUEUE, "")


def is_elastic(job: JobView, gates: Gates) -> bool:
    """True if the job is annotated as elastic (workload slices), and the feature gate is on."""
    return enabled(gates, "ElasticJobsViaWorkloadSlices") and job.notes.get(ELASTIC) == "true"


def check_job(job: JobView, gates: Gates) -> Iterator[FieldError]:
    """Validate the fields common to all jobs, new or changed."""
    yield from check_queue_name(job)
    yield from _check_prebuilt(job, gates)
    yield from _check_limit(job)
    yield from check_elastic(job, gates)
    if enabled(gates, "AdmissionGatedBy"):
        yield from check_gates(job.notes)


def check_queue_name(job: JobView) -> Iterator[FieldError]:
    """Validate that the queue label is a valid name."""
    yield from _name(job.labels, QUEUE, _LABELS)


def check_elastic(job: JobView, gates: Gates) -> Iterator[FieldError]:
    """Validate that a job annotated as elastic is of a kind for which Kueue supports it."""
    if is_elastic(job, gates) and not job.takes_elastic:
        detail = f'elastic job is not supported for "{job.kind}"'
        yield forbidden((*_NOTES, MapKey(ELASTIC)), detail, "drop it")


def _name(place: Mapping[str, str], key: str, path: Path) -> Iterator[FieldError]:
    """Validate a label or annotation that names an object."""
    wrong = subdomain(place[key]) if key in place else ()
    if wrong:
        remedy = "use lower-case letters, digits, '-' and '.', at most 253 of them"
        yield invalid((*path, MapKey(key)), place[key], ",".join(wrong), remedy, "bad-name")


def _noted(job: JobView, gates: Gates) -> bool:
    """True if the annotation, not the label, names the prebuilt Workload."""
    note = job.notes.get(PREBUILT, "")
    return bool(note) and (enabled(gates, "WorkloadIdentifierAnnotations") or len(note) > LONGEST_LABEL)


def _prebuilt(job: JobView, gates: Gates) -> str:
    label, note = job.labels.get(PREBUILT, ""), job.notes.get(PREBUILT, "")
    if enabled(gates, "WorkloadIdentifierAnnotations"):
        return note or label
    return label or (note if len(note) > LONGEST_LABEL else "")


def _prebuilt_path(job: JobView, gates: Gates) -> Path:
    return (*(_NOTES if _noted(job, gates) else _LABELS), MapKey(PREBUILT))


def _check_prebuilt(job: JobView, gates: Gates) -> Iterator[FieldError]:
    yield from _name(job.notes, PREBUILT, _NOTES) if _noted(job, gates) else _name(job.labels, PREBUILT, _LABELS)


def _check_limit(job: JobView) -> Iterator[FieldError]:
    text = job.labels.get(MAX_EXECUTION)
    if text is None:
        return
    path, seconds = (*_LABELS, MapKey(MAX_EXECUTION)), whole(text)
    if seconds is None:
        yield invalid(path, text, not_whole(text), 'write seconds, such as "3600"', "bad-number")
    elif seconds <= 0:
        yield invalid(path, seconds, "should be greater than 0", "write 1 or more", "bad-number")


def check_job_change(job: JobView, old: JobView, gates: Gates, *, default_queue: bool) -> Iterator[FieldError]:
    """Validate an updated job against the old one: immutable fields, prebuilt Workload, admission gates.

    `default_queue` means that the namespace has a default LocalQueue.
    """
    yield from _check_queue(job, old, default_queue)
    yield from _check_prebuilt_change(job, old, gates)
    if not (job.suspended and old.suspended):
        yield from _same(job.labels.get(MAX_EXECUTION, ""), old.labels.get(MAX_EXECUTION, ""), MAX_EXECUTION)
    yield from check_class_change(job, old, suspended=job.suspended)
    if is_elastic(job, gates) != is_elastic(old, gates):
        value = "true" if is_elastic(job, gates) else "false"
        yield invalid((*_NOTES, MapKey(ELASTIC)), value, _IMMUTABLE, "leave it as it was", "immutable")
    if enabled(gates, "AdmissionGatedBy"):
        yield from check_gates_change(job.notes, old.notes)
        yield from check_gates(job.notes)


def immutable(path: Path, new: object, old: object, remedy: str) -> Iterator[FieldError]:
    """Report the change of an immutable field, if the new value differs from the old one."""
    if new != old:
        yield invalid(path, new, _IMMUTABLE, remedy, "immutable")


def _same(new: str, old: str, label: str) -> Iterator[FieldError]:
    if new != old:
        yield invalid((*_LABELS, MapKey(label)), new, _IMMUTABLE, f"leave it {old}, or suspend the job", "immutable")


def _check_queue(job: JobView, old: JobView, default_queue: bool) -> Iterator[FieldError]:
    if not job.suspended:
        yield from _same(job.queue, old.queue, QUEUE)
    if not job.queue and old.queue and default_queue:
        detail = "queue-name must not be empty in namespace with default queue"
        yield invalid((*_LABELS, MapKey(QUEUE)), "", detail, f"leave it {old.queue}")


def _check_prebuilt_change(job: JobView, old: JobView, gates: Gates) -> Iterator[FieldError]:
    if job.suspended or is_elastic(old, gates):
        yield from _check_prebuilt(job, gates)
    elif _prebuilt(job, gates) != _prebuilt(old, gates):
        path, name = _prebuilt_path(job, gates), _prebuilt(job, gates)
        yield invalid(path, name, _IMMUTABLE, "leave it as it was, or suspend the job", "immutable")


def check_class_change(job: JobView, old: JobView, *, suspended: bool) -> Iterator[FieldError]:
    """Validate that the WorkloadPriorityClass is never removed, and added only while the job is suspended."""
    new, before = job.labels.get(PRIORITY_CLASS, ""), old.labels.get(PRIORITY_CLASS, "")
    path = (*_LABELS, MapKey(PRIORITY_CLASS))
    if new and not before and not suspended:
        detail = "WorkloadPriorityClass cannot be added to a non-suspended workload"
        yield invalid(path, new, detail, "suspend the job first", "immutable")
    elif before and not new:
        yield invalid(
            path, "", "WorkloadPriorityClass cannot be removed from a workload", f"leave it {before}", "immutable"
        )


def labels_of(document: Mapping[str, Any], key: str) -> Mapping[str, str]:
    """Return the labels or annotations of a document (`key` says which), without values that are not strings."""
    meta = document.get("metadata")
    found = meta.get(key) if isinstance(meta, dict) else None
    return {k: v for k, v in found.items() if isinstance(v, str)} if isinstance(found, dict) else {}


Notes = Mapping[str, str]
"""Annotations."""
_CODE = "bad-topology"
_LEVEL = "name a level of the flavor's topology"
_ONE = "drop one of them"


class Pods(Struct, frozen=True):
    """A pod set as the topology validation reads it: its pod count, and the annotations of its template."""

    name: str
    count: int
    notes: Notes
    """Annotations of its template."""
    path: Path
    """Path of these annotations."""


def check_request(notes: Notes, path: Path, gates: Gates) -> Iterator[FieldError]:
    """Report contradictory or incomplete topology annotations of a pod template."""
    modes = (REQUIRED, PREFERRED, UNCONSTRAINED)
    if sum(mode in notes for mode in modes) > 1:
        listed = ", ".join(f'"{mode}"' for mode in modes)
        detail = f"must not contain more than one topology annotation: [{listed}]"
        yield invalid(path, {}, detail, "keep one of them", _CODE)
    for key in (REQUIRED, PREFERRED, SLICE_REQUIRED):
        for message in label_key(notes[key]) if key in notes else ():
            yield invalid((*path, MapKey(key)), notes[key], message, _LEVEL, _CODE)
    yield from _check_group(notes, path)
    if UNCONSTRAINED in notes and truth(notes[UNCONSTRAINED]) is None:
        where = (*path, MapKey(UNCONSTRAINED))
        yield invalid(where, notes[UNCONSTRAINED], "must be a boolean value", 'write "true"', _CODE)
    yield from _check_slice(notes, path)
    if SLICE_CONSTRAINTS in notes:
        yield from _check_constraints(notes, path, gates)


def _check_group(notes: Notes, path: Path) -> Iterator[FieldError]:
    if GROUP not in notes:
        return
    where, name = (*path, MapKey(GROUP)), notes[GROUP]
    if name.isascii() and name.isdigit() and int(name[:30]) < 2**64:
        yield invalid(where, name, "must not be a number", "name the group with letters", _CODE)
    for key in (SLICE_SIZE, SLICE_REQUIRED):
        if key in notes:
            yield forbidden(where, f"may not be set when '{key}' is specified", _ONE)
    if PREFERRED not in notes and REQUIRED not in notes:
        detail = f"may not be set when neither '{PREFERRED}' nor '{REQUIRED}' is specified"
        yield forbidden(where, detail, f"set {REQUIRED} as well")


def _check_slice(notes: Notes, path: Path) -> Iterator[FieldError]:
    where = (*path, MapKey(SLICE_SIZE))
    if SLICE_SIZE in notes:
        size = whole(notes[SLICE_SIZE], 32)
        if size is None:
            yield invalid(
                where, notes[SLICE_SIZE], "must be a numeric value", 'write a number, such as "4"', "bad-number"
            )
        elif size < 1:
            yield invalid(
                where, notes[SLICE_SIZE], "must be greater than or equal to 1", "write 1 or more", "bad-number"
            )
        if SLICE_REQUIRED not in notes:
            detail = f"may not be set when '{SLICE_REQUIRED}' is not specified"
            yield forbidden(where, detail, f"set {SLICE_REQUIRED}, or drop it")
    elif SLICE_REQUIRED in notes:
        detail = f"must be set when '{SLICE_REQUIRED}' is specified"
        yield required(where, detail, "say how many pods a slice has", _CODE)


def _check_constraints(notes: Notes, path: Path, gates: Gates) -> Iterator[FieldError]:
    """Validate slice layers, from coarsest to finest: each size divides the one above."""
    text, where = notes[SLICE_CONSTRAINTS], (*path, MapKey(SLICE_CONSTRAINTS))
    if not enabled(gates, "TASMultiLayerTopology"):
        detail = "the TASMultiLayerTopology feature gate must be enabled to use this annotation"
        yield forbidden(where, detail, "drop it")
        return
    for key in (SLICE_REQUIRED, SLICE_SIZE):
        if key in notes:
            yield forbidden(where, f"may not be set when '{key}' is specified", _ONE)
    if GROUP in notes:
        yield forbidden((*path, MapKey(GROUP)), f"may not be set when '{SLICE_CONSTRAINTS}' is specified", _ONE)
    remedy = 'write [{"topology": "LABEL", "size": N}, …]'
    layers = parse_constraints(text)
    if layers is None:
        yield invalid(where, text, "must be a valid JSON array", remedy, _CODE)
    elif not 0 < len(layers) <= MOST_LAYERS:
        detail = f"topology constraints must contain between 1 and {MOST_LAYERS} entries"
        yield invalid(where, text, detail, remedy, _CODE)
    else:
        yield from _check_layers(layers, where)


def _check_layers(layers: Sequence[tuple[str, int]], path: Path) -> Iterator[FieldError]:
    for n, (level, size) in enumerate(layers):
        for message in label_key(level):
            yield invalid((*path, n, "topology"), level, message, _LEVEL, _CODE)
        if size < 1:
            yield invalid((*path, n, "size"), size, "must be greater than or equal to 1", "write 1 or more", _CODE)
    names = [level for level, _ in layers]
    for n, level in enumerate(names):
        if level in names[:n]:
            yield duplicate((*path, n, "topology"), f"{level} (also at index {names.index(level)})")
    for n, ((_, above), (_, below)) in enumerate(pairwise(layers), start=1):
        if below > 0 and above % below:
            detail = f"must evenly divide the parent layer size {above}"
            yield invalid((*path, n, "size"), below, detail, f"write a divisor of {above}", _CODE)


def parse_constraints(text: str) -> list[tuple[str, int]] | None:
    """Parse the annotation for slices in several layers: topology level and slice size of each; None if invalid."""
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return None
    found = [(entry.get("topology", ""), entry.get("size", 0)) for entry in entries]
    return found if all(isinstance(level, str) and _is_size(size) for level, size in found) else None


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def check_bound(pods: Pods) -> Iterator[FieldError]:
    """Validate that the slice size of a topology request is not larger than the number of pods."""
    detail = f"must not be greater than pod set count {pods.count}"
    remedy = f"write {pods.count} or less"
    if SLICE_SIZE in pods.notes:
        where, size = (*pods.path, MapKey(SLICE_SIZE)), whole(pods.notes[SLICE_SIZE], 32)
        if size is not None and size > pods.count:
            yield invalid(where, pods.notes[SLICE_SIZE], detail, remedy, "bad-number")
    layers = parse_constraints(pods.notes.get(SLICE_CONSTRAINTS, "")) or ()
    if layers and layers[0][1] > pods.count:
        yield invalid((*pods.path, MapKey(SLICE_CONSTRAINTS)), layers[0][1], detail, remedy, _CODE)


def check_groups(pod_sets: Sequence[Pods]) -> Iterator[FieldError]:
    """Validate the pod sets with a podset-group-name: exactly two, one with a single pod, with the same topology
    request.
    """
    groups: dict[str, list[Pods]] = {}
    for pods in pod_sets:
        if GROUP in pods.notes and (REQUIRED in pods.notes or PREFERRED in pods.notes):
            groups.setdefault(pods.notes[GROUP], []).append(pods)
    for name, members in groups.items():
        if len(members) != 2:
            detail = f"can only define groups of exactly 2 pod sets, got: {len(members)} pod set(s)"
            for pods in members:
                yield invalid((*pods.path, MapKey(GROUP)), name, detail, "name it in two pod sets", _CODE)
        else:
            yield from _check_pair(name, *members)


def _check_pair(name: str, one: Pods, other: Pods) -> Iterator[FieldError]:
    if one.count != 1 and other.count != 1:
        detail = (
            f"can only define groups where at least one pod set has only 1 replica, got: {one.count} replica(s) and "
            f"{other.count} replica(s) in the group"
        )
        for pods in (one, other):
            yield invalid((*pods.path, MapKey(GROUP)), name, detail, "give one of them a single pod", _CODE)
    if _topology_level(one) != _topology_level(other):
        for pods, fellow in ((one, other), (other, one)):
            detail = (
                f"must specify '{REQUIRED}' or '{PREFERRED}' topology consistent with '{path_text(fellow.path)}' in "
                f"group '{name}'"
            )
            yield invalid(pods.path, {}, detail, "ask for the same level in both", _CODE)


def _topology_level(pods: Pods) -> tuple[str, str]:
    """Return a pod set's effective topology annotation and level."""
    key = REQUIRED if REQUIRED in pods.notes else PREFERRED
    return key, pods.notes[key]


Document = Mapping[str, Any]


def at(document: Any, *keys: Key) -> Any:
    """Return the value at a path of keys, or None."""
    for key in keys:
        if isinstance(key, int):
            document = document[key] if isinstance(document, list) and key < len(document) else None
        else:
            document = document.get(key) if isinstance(document, dict) else None
    return document


def entries(document: Any, *keys: Key) -> list[Any]:
    """Return the list at a path of keys, or an empty one."""
    found = at(document, *keys)
    return found if isinstance(found, list) else []


def number(document: Any, *keys: Key, default: int = 1) -> int:
    """Return the number at a path of keys; the default if there is none."""
    found = at(document, *keys)
    return found if isinstance(found, int) and not isinstance(found, bool) else default


def pods_of(template: Any, name: str, count: int, path: Path) -> Pods:
    """Return a pod set of `count` pods; its annotations are those of the template."""
    notes = at(template, "metadata", "annotations")
    found = {k: v for k, v in notes.items() if isinstance(v, str)} if isinstance(notes, dict) else {}
    return Pods(name, count, found, (*path, "metadata", "annotations"))


def at_once(spec: Any) -> int:
    """Number of pods of a batch job that run at the same time."""
    parallelism = number(spec, "parallelism")
    return min(parallelism, number(spec, "completions", default=parallelism))
