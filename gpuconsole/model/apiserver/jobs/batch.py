"""Webhook of batch/v1 Job: partial admission, and completions synchronized with parallelism (Kueue 0.19
job_webhook).
"""

from collections.abc import Iterator

from gpuconsole.model.apiserver.gates import Gates, enabled
from gpuconsole.model.apiserver.jobs.framework import JobView, check_job, check_job_change, is_elastic
from gpuconsole.model.apiserver.jobs.numbers import not_truth, not_whole, truth, whole
from gpuconsole.model.apiserver.jobs.parts import Document, at, at_once, number, pods_of
from gpuconsole.model.apiserver.jobs.topology import check_bound, check_request
from gpuconsole.model.apiserver.refusals import forbidden, invalid
from gpuconsole.model.documents.fields import FieldError
from gpuconsole.model.documents.findings import MapKey, Path
from gpuconsole.model.jobs.topology import PREFERRED, REQUIRED

MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"
SYNC_COMPLETIONS = "kueue.x-k8s.io/job-completions-equal-parallelism"
_NOTES: Path = ("metadata", "annotations")
_MINIMUM: Path = (*_NOTES, MapKey(MIN_PARALLELISM))
_SYNC: Path = (*_NOTES, MapKey(SYNC_COMPLETIONS))


def check(document: Document, job: JobView, gates: Gates) -> Iterator[FieldError]:
    """Validate a new Job."""
    yield from check_job(job, gates)
    yield from _check_minimum(document, job, gates)
    yield from _check_sync(document, job)
    yield from _check_topology(document, job, gates)


def check_change(
    document: Document, job: JobView, old: Document, before: JobView, gates: Gates, *, default_queue: bool
) -> Iterator[FieldError]:
    """Validate a Job that replaces `old`."""
    yield from check_job(job, gates)
    if job.notes.get(MIN_PARALLELISM) != before.notes.get(MIN_PARALLELISM):
        yield from _check_minimum(document, job, gates)
    yield from _check_sync(document, job)
    yield from check_job_change(job, before, gates, default_queue=default_queue)
    started = MIN_PARALLELISM in before.notes and not at(old, "spec", "suspend")
    if started and number(document, "spec", "parallelism") != number(old, "spec", "parallelism"):
        detail = "cannot change when partial admission is enabled and the job is not suspended"
        yield forbidden(("spec", "parallelism"), detail, "suspend the job first")
    if not before.suspended and not job.suspended and _synced(before) != _synced(job):
        yield forbidden(_SYNC, "field is immutable while the job is not suspended", "suspend the job first")
    yield from _check_topology(document, job, gates)


def _check_minimum(document: Document, job: JobView, gates: Gates) -> Iterator[FieldError]:
    text = job.notes.get(MIN_PARALLELISM)
    if text is None:
        return
    least, most = whole(text), at_once(at(document, "spec")) - 1
    if least is None:
        yield invalid(_MINIMUM, text, not_whole(text), 'write a number, such as "4"', "bad-number")
    elif least > most or least <= 0:
        yield invalid(_MINIMUM, least, f"should be between 0 and {most}", f"write 1 to {most}", "bad-number")
    if is_elastic(job, gates):
        detail = "partial admission and elastic job cannot be used together"
        yield invalid(_MINIMUM, text, detail, "drop one of the two annotations")


def _check_sync(document: Document, job: JobView) -> Iterator[FieldError]:
    text = job.notes.get(SYNC_COMPLETIONS)
    if text is None:
        return
    if truth(text) is None:
        yield invalid(_SYNC, text, not_truth(text), 'write "true" or "false"')
    elif truth(text):
        spec = at(document, "spec")
        if at(spec, "completionMode") in (None, "NonIndexed"):
            detail = "should not be enabled for NonIndexed jobs"
            yield invalid(_SYNC, text, detail, "write completionMode: Indexed, or drop it")
        completions, parallelism = number(spec, "completions"), number(spec, "parallelism")
        if completions != parallelism:
            detail = f"should be equal to parallelism when {SYNC_COMPLETIONS} annotation is true"
            yield invalid(("spec", "completions"), completions, detail, f"write {parallelism}")


def _synced(job: JobView) -> bool:
    return truth(job.notes.get(SYNC_COMPLETIONS, "")) is True


def _check_topology(document: Document, job: JobView, gates: Gates) -> Iterator[FieldError]:
    if not enabled(gates, "TopologyAwareScheduling"):
        return
    spec = at(document, "spec")
    pods = pods_of(at(spec, "template"), "main", at_once(spec), ("spec", "template"))
    wrong = list(check_request(pods.notes, pods.path, gates))
    asked = [key for key in (REQUIRED, PREFERRED) if key in pods.notes]
    if wrong:
        yield from wrong
    elif asked and is_elastic(job, gates):
        word = "required" if asked[0] == REQUIRED else "preferred"
        detail = f"{word} topology is not supported with elastic jobs"
        yield forbidden((*pods.path, asked[0]), detail, "ask for podset-unconstrained-topology")
    else:
        yield from check_bound(pods)
