"""Validation of labels and annotations common to all job kinds (Kueue 0.19 jobframework validation)."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from gpuconsole.model.apiserver.gated_by import check_gates, check_gates_change
from gpuconsole.model.apiserver.gates import Gates, enabled
from gpuconsole.model.apiserver.jobs.numbers import not_whole, whole
from gpuconsole.model.apiserver.refusals import forbidden, invalid
from gpuconsole.model.apiserver.workload_changes import ELASTIC
from gpuconsole.model.documents.fields import FieldError
from gpuconsole.model.documents.findings import MapKey, Path
from gpuconsole.model.documents.syntax import subdomain
from gpuconsole.model.jobs.labels import MAX_EXECUTION, PRIORITY_CLASS, QUEUE

PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"
"""Label or annotation with the name of a prebuilt Workload; a name that is too long for a label needs the
annotation.
"""
LONGEST_LABEL = 63
_LABELS: Path = ("metadata", "labels")
_NOTES: Path = ("metadata", "annotations")
_IMMUTABLE = "field is immutable"


class JobView(Struct, frozen=True):
    """View of a job for the webhooks of all kinds."""

    kind: str
    """As Go prints it: `batch/v1, Kind=Job`."""
    labels: Mapping[str, str]
    notes: Mapping[str, str]
    suspended: bool
    takes_elastic: bool
    """Kueue supports elastic jobs of this kind."""

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
    """Validate that the kind supports elastic jobs."""
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
    """Validate immutable fields; `default_queue` means that the namespace has a default LocalQueue."""
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
    """Report a change of an immutable field."""
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
    """Validate that a priority class is never removed, and added only while the job is suspended."""
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
    """Return the labels or annotations of a document whose values are strings."""
    meta = document.get("metadata")
    found = meta.get(key) if isinstance(meta, dict) else None
    return {k: v for k, v in found.items() if isinstance(v, str)} if isinstance(found, dict) else {}
