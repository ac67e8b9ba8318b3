"""Workloads that Kueue creates for jobs."""

from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.job import Job
from gpuconsole.model.job_rules import MemberRules
from gpuconsole.model.jobs.naming import LWS_GROUP, workload_name
from gpuconsole.model.pod_sets import PodSet
from gpuconsole.model.workloads import Workload

JOB_UID = "kueue.x-k8s.io/job-uid"
PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"
OWNER_KIND, OWNER_NAME = "kueue.x-k8s.io/job-owner-gvk", "kueue.x-k8s.io/job-owner-name"
COMPONENT = "kueue.x-k8s.io/component-workload-index"
"""Annotation of a Workload with the index of its group in a LeaderWorkerSet."""
_COPIED = "provreq.kueue.x-k8s.io/"


def workload_of(job: Job, *, now: Time, priority: int = 0, priority_class: str = "") -> Workload:
    """Build the Workload that Kueue creates for a job (0.19 jobframework NewWorkload, ConstructWorkload).

    The caller resolves the priority and gives the Workload its uid. A job's Workload always has the same name.
    """
    return Workload(
        namespace=job.namespace,
        name=job.labels.get(PREBUILT) or workload_name(job.kind, job.name, job.uid),
        created=now,
        labels={JOB_UID: job.uid} if job.uid else {},
        annotations={**_copied(job), **_owner_notes(job)},
        owner=job.key,
        job_uid=job.uid,
        queue=job.queue,
        priority=priority,
        priority_class=priority_class,
        priority_kind=_class_kind(job, priority_class),
        pod_sets=job.pod_sets,
        max_execution_time=job.max_execution_time,
    )


def without_topology(pod_sets: tuple[PodSet, ...]) -> tuple[PodSet, ...]:
    """Return the pod sets without topology requests (feature gate TopologyAwareScheduling off)."""
    return tuple(pods if pods.topology is None else replace(pods, topology=None) for pods in pod_sets)


def _copied(job: Job) -> dict[str, str]:
    return {key: value for key, value in job.annotations.items() if key.startswith(_COPIED)}


def _owner_notes(job: Job) -> dict[str, str]:
    """Return the annotations that name the Workload's owner, for kinds that Kueue turns into pod groups
    (StatefulSet, LeaderWorkerSet).
    """
    if job.kind == "StatefulSet":
        return {OWNER_KIND: "apps/v1, Kind=StatefulSet", OWNER_NAME: job.name}
    if job.kind == LWS_GROUP and isinstance(job.rules, MemberRules):
        kind, name = "leaderworkerset.x-k8s.io/v1, Kind=LeaderWorkerSet", job.owner.rpartition("/")[2]
        return {OWNER_KIND: kind, OWNER_NAME: name, COMPONENT: str(job.rules.index)}
    return {}


def _class_kind(job: Job, priority_class: str) -> str:
    if job.workload_priority_class:
        return "WorkloadPriorityClass"
    return "PriorityClass" if priority_class else ""
