"""What Kueue makes of a job: its Workload."""

from gpuconsole.model.clock import Time
from gpuconsole.model.jobs.naming import workload_name
from gpuconsole.model.workloads import Job, Workload

JOB_UID = "kueue.x-k8s.io/job-uid"
PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"
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
        annotations={key: value for key, value in job.annotations.items() if key.startswith(_COPIED)},
        owner=job.key,
        job_uid=job.uid,
        queue=job.queue,
        priority=priority,
        priority_class=priority_class,
        priority_kind=_class_kind(job, priority_class),
        pod_sets=job.pod_sets,
        max_execution_time=job.max_execution_time,
    )


def _class_kind(job: Job, priority_class: str) -> str:
    if job.workload_priority_class:
        return "WorkloadPriorityClass"
    return "PriorityClass" if priority_class else ""
