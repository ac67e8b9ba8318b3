"""batch/v1 Job and jobset.x-k8s.io JobSet: pods by parallelism and completions."""

from collections.abc import Mapping

from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.documents.names import unique
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.job import Job
from gpuconsole.model.jobs.batch_rules import backoff_limit, batch_rules, batch_status, min_member
from gpuconsole.model.jobs.common import MOST_PODS, job, phase, pod_set, pods
from gpuconsole.model.jobs.topology import whole
from gpuconsole.model.pod_sets import PodSet

MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
JOB_INDEX = "jobset.sigs.k8s.io/job-index"
_JOB_FIELDS = (
    *("activeDeadlineSeconds", "backoffLimit", "backoffLimitPerIndex", "completionMode", "completions", "managedBy"),
    *("manualSelector", "maxFailedIndexes", "parallelism", "podFailurePolicy", "podReplacementPolicy", "selector"),
    *("successPolicy", "suspend", "template", "ttlSecondsAfterFinished"),
)
_MADE_LABELS = ("job-name", "controller-uid", "batch.kubernetes.io/controller-uid")
_JOBSET_FIELDS = (
    *("coordinator", "failurePolicy", "managedBy", "network", "replicatedJobs", "startupPolicy", "successPolicy"),
    *("suspend", "ttlSecondsAfterFinished", "volumeClaimPolicies"),
)


def batch_job(reader: Reader, now: Time) -> Job:
    """Read a Job: min(parallelism, completions) pods at once (Kueue 0.19 job integration podsCount)."""
    spec, notes = reader.mapping("spec"), reader.down("metadata", "annotations")
    status, suspended = reader.mapping("status"), spec.flag("suspend")
    pods = job_pods(spec, notes)
    rules = batch_rules(spec, pods, notes)
    return job(
        reader,
        now,
        "Job",
        (pods,),
        rules=rules,
        batch=batch_status(status, rules),
        # It does not include failures that the podFailurePolicy ignores.
        failures=status.number("failed", 0, low=0),
        min_available=min_member(notes),
        suspended=suspended,
        backoff_limit=backoff_limit(spec),
        phase=phase(reader, suspended),
    )


def job_pods(spec: Reader, notes: Reader) -> PodSet:
    """Return the pods that a Job runs at once; `notes` are the annotations of the Job."""
    spec.only(*_JOB_FIELDS)
    count = _pods_at_once(spec)
    pods = pod_set(spec, "main", count, restarts=True, min_count=_min_count(notes, count), index=COMPLETION_INDEX)
    if not any(label in pods.template.labels for label in _MADE_LABELS):
        return pods
    return replace(pods, template=replace(pods.template, labels=clean_labels(pods.template.labels)))


def clean_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Remove the labels that the Job controller adds to a pod template, except the Job's name."""
    return {key: value for key, value in labels.items() if key not in _MADE_LABELS}


def _pods_at_once(spec: Reader) -> int:
    parallelism = pods(spec, "parallelism")
    completions = spec.optional("completions", low=0)
    # If both are missing, the API server sets both to 1 (batch/v1 SetDefaults_Job).
    if completions is None and spec.raw("completionMode") == "Indexed" and spec.raw("parallelism") is not None:
        spec.report.refused(
            spec.at("completions"), "completions is required when completionMode is Indexed", "set it", "required"
        )
    return parallelism if completions is None else min(parallelism, completions)


def _min_count(notes: Reader, count: int) -> int | None:
    if MIN_PARALLELISM not in notes:
        return None
    return whole(notes, MIN_PARALLELISM, 1, max(1, count - 1), f"should be between 0 and {count - 1}")


def jobset(reader: Reader, now: Time) -> Job:
    """Read a JobSet: one pod set per replicated job, with replicas × min(parallelism, completions) pods."""
    spec = reader.mapping("spec")
    spec.only(*_JOBSET_FIELDS)
    pod_sets = replicated_jobs(spec)
    if not pod_sets:
        spec.report.refused(
            spec.at("replicatedJobs"), "replicatedJobs is empty: there is nothing to run", "add a job", "required"
        )
    suspended = spec.flag("suspend")
    backoff = spec.mapping("failurePolicy").number("maxRestarts", 0, low=0)
    state = phase(reader, suspended)
    return job(reader, now, "JobSet", pod_sets, suspended=suspended, backoff_limit=backoff, phase=state)


def replicated_jobs(spec: Reader) -> tuple[PodSet, ...]:
    """Return the pod sets of a JobSet's spec.

    A template without a restartPolicy gets OnFailure (JobSet's mutating webhook, jobset_webhook.go Default); the
    trainer's runtimes become JobSets, too.
    """
    pod_sets = tuple(_replicated(place) for place in spec.items("replicatedJobs", 1000))
    unique(spec, "replicatedJobs", [pods.name for pods in pod_sets], "name", fatal=True)
    return pod_sets


def _replicated(place: Reader) -> PodSet:
    place.only("name", "template", "replicas", "groupName", "dependsOn")
    replicas = pods(place, "replicas")
    inner = place.down("template", "spec")
    inner.only(*_JOB_FIELDS)
    count = _pods_at_once(inner) * replicas
    if count > MOST_PODS:
        place.report.error(
            place.at("replicas"),
            f"{count} pods are more than can be simulated",
            f"ask for at most {MOST_PODS}",
            "too-many-pods",
        )
    return pod_set(
        inner,
        place.required("name"),
        min(count, MOST_PODS),
        restarts=True,
        default_restart_policy="OnFailure",
        index=COMPLETION_INDEX,
        subgroup=JOB_INDEX,
        subgroups=replicas,
    )
