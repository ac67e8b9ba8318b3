"""Registry of the job kinds with known webhooks: their suspend field and validation functions."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from msgspec import Struct

from gpuconsole.model.apiserver.common_validation import NO_GATES, Gates, enabled
from gpuconsole.model.apiserver.jobs import applications, webhooks
from gpuconsole.model.apiserver.jobs.framework import Document, JobView, at, check_job_change, labels_of
from gpuconsole.model.apiserver.jobs.webhooks import defaulted, edited
from gpuconsole.model.documents.findings import FieldError
from gpuconsole.model.jobs.kubeflow import ALL, Replicas

STOPPING = "kueue.x-k8s.io/stopping"
"""Annotation of a Job that Kueue is stopping; while it has the annotation, the job counts as running."""


class JobCreateCheck(Protocol):
    """Function that validates a new job and yields its errors."""

    def __call__(self, document: Document, job: JobView, gates: Gates) -> Iterator[FieldError]: ...


class JobUpdateCheck(Protocol):
    """Function that validates the update of a job from `old` to `document` and yields its errors.

    `job` and `before` are the views of the new and the old document. `default_queue` means that the namespace has a
    default LocalQueue.
    """

    def __call__(
        self, document: Document, job: JobView, old: Document, before: JobView, gates: Gates, *, default_queue: bool
    ) -> Iterator[FieldError]: ...


class JobKind(Struct, frozen=True, kw_only=True):
    """Suspend field and webhooks of one job kind."""

    version: str
    """Group and version."""
    check: JobCreateCheck
    change: JobUpdateCheck
    suspend: tuple[str, ...] | None = ("spec", "suspend")
    """Path of its suspend field; None for kinds without one."""
    takes_elastic: bool = False
    """True if Kueue supports elastic jobs of this kind."""


def _kubeflow(replicas: Replicas) -> JobKind:
    rules, version = webhooks.KubeflowCheck(replicas), "v2beta1" if replicas.kind == "MPIJob" else "v1"
    return JobKind(
        version=f"kubeflow.org/{version}",
        check=rules.check,
        change=rules.change,
        suspend=("spec", "runPolicy", "suspend"),
    )


def _checked_if_managed(check: JobCreateCheck) -> JobUpdateCheck:
    """The webhook for updates of a Ray or Spark job: the rules of new jobs, if Kueue manages, or managed, the job."""

    def change(
        document: Document, job: JobView, old: Document, before: JobView, gates: Gates, *, default_queue: bool
    ) -> Iterator[FieldError]:
        if job.queue or (before.queue and enabled(gates, "ValidateRayAndSparkJobUpdates")):
            yield from check_job_change(job, before, gates, default_queue=default_queue)
            yield from check(document, job, gates)

    return change


JOB_KINDS: Mapping[tuple[str, str], JobKind] = {
    ("batch", "Job"): JobKind(
        version="batch/v1", check=webhooks.check, change=webhooks.check_change, takes_elastic=True
    ),
    ("jobset.x-k8s.io", "JobSet"): JobKind(
        version="jobset.x-k8s.io/v1alpha2", check=webhooks.check_job_set, change=webhooks.change_job_set
    ),
    **{("kubeflow.org", replicas.kind): _kubeflow(replicas) for replicas in ALL},
    ("trainer.kubeflow.org", "TrainJob"): JobKind(
        version="trainer.kubeflow.org/v1alpha1", check=webhooks.check_train_job, change=webhooks.change_train_job
    ),
    ("ray.io", "RayService"): JobKind(
        version="ray.io/v1",
        check=webhooks.check_ray_service,
        change=_checked_if_managed(webhooks.check_ray_service),
        suspend=("spec", "rayClusterConfig", "suspend"),
        takes_elastic=True,
    ),
    ("apps", "Deployment"): JobKind(
        version="apps/v1", check=webhooks.check_service, change=webhooks.change_deployment, suspend=None
    ),
    ("apps", "StatefulSet"): JobKind(
        version="apps/v1", check=webhooks.check_service, change=webhooks.change_stateful_set, suspend=None
    ),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): JobKind(
        version="leaderworkerset.x-k8s.io/v1",
        check=webhooks.check_worker_set,
        change=webhooks.change_worker_set,
        suspend=None,
    ),
    ("ray.io", "RayJob"): JobKind(
        version="ray.io/v1",
        check=webhooks.check_ray_job,
        change=_checked_if_managed(webhooks.check_ray_job),
        takes_elastic=True,
    ),
    ("sparkoperator.k8s.io", "SparkApplication"): JobKind(
        version="sparkoperator.k8s.io/v1beta2",
        check=applications.check_spark_application,
        change=_checked_if_managed(applications.check_spark_application),
        takes_elastic=True,
    ),
    ("workload.codeflare.dev", "AppWrapper"): JobKind(
        version="workload.codeflare.dev/v1beta2",
        check=applications.check_app_wrapper,
        change=applications.change_app_wrapper,
    ),
    ("", "Pod"): JobKind(version="/v1", check=webhooks.check_pod, change=webhooks.change_pod),
    ("ray.io", "RayCluster"): JobKind(
        version="ray.io/v1",
        check=webhooks.check_ray_cluster,
        change=_checked_if_managed(webhooks.check_ray_cluster),
        takes_elastic=True,
    ),
}
"""(group, kind) → webhook settings."""


def view(document: Document, kind: JobKind, name: str) -> JobView:
    """Return the fields of a job that all webhooks read; `name` is the name of its kind."""
    notes = labels_of(document, "annotations")
    return JobView(
        kind=f"{kind.version}, Kind={name}",
        labels=labels_of(document, "labels"),
        notes=notes,
        suspended=kind.suspend is not None and at(document, *kind.suspend) is True and notes.get(STOPPING) != "true",
        takes_elastic=kind.takes_elastic,
    )


def check_job(
    group: str,
    name: str,
    document: Mapping[str, Any],
    old: Mapping[str, Any] | None = None,
    *,
    gates: Gates = NO_GATES,
    default_queue: bool = False,
) -> list[FieldError]:
    """Return the errors of Kueue's webhook for a new job, or one that replaces `old`; none for unknown kinds.

    `group` and `name` are those of the kind. `default_queue`: the namespace has a default LocalQueue.
    """
    kind = JOB_KINDS.get((group, name))
    if kind is None:
        return []
    job = view(document, kind, name)
    if old is None:
        return list(kind.check(document, job, gates))
    return list(kind.change(document, job, old, view(old, kind, name), gates, default_queue=default_queue))


def as_stored(
    group: str,
    name: str,
    document: Document,
    old: Document | None = None,
    *,
    gates: Gates = NO_GATES,
    default_queue: bool = False,
    manage_all: bool = False,
) -> Document:
    """Return a job as stored after apply: a new one with a queue is suspended until Kueue admits it.

    An update that does not set the suspend field keeps the old value. Kinds without a suspend field (Deployment,
    StatefulSet, LeaderWorkerSet) are defaulted on updates, too. `default_queue` and `manage_all` as for `defaulted`.
    """
    kind = JOB_KINDS.get((group, name))
    if kind is None:
        return document
    if old is None or kind.suspend is None:
        return defaulted(
            group,
            name,
            document,
            gates,
            suspend=kind.suspend if name != "Pod" else None,
            default_queue=default_queue,
            manage_all=manage_all,
        )
    if at(document, *kind.suspend) is not None or at(old, *kind.suspend) is None:
        return document
    return edited(document, kind.suspend, at(old, *kind.suspend))
