"""Requests to the job controller: events of jobs, pods and PodGroups, and commands."""

from collections.abc import Collection

from msgspec import Struct

from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.job import Job
from gpuconsole.model.volcano import JobAction, JobEvent, PodGroup
from gpuconsole.scheduling.volcano.jobs.labels import JOB_NAME, JOB_VERSION, OUT_OF_SYNC, PARTITION, TASK_SPEC
from gpuconsole.scheduling.volcano.jobs.tasks import task_replicas


class JobRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event or a command for the job controller (Volcano 1.15 apis.Request)."""

    job: str = ""
    """`Kind/namespace/name`"""
    job_uid: str = ""
    task: str = ""
    pod: str = ""
    """The pod's name."""
    pod_uid: str = ""
    partition: str = ""
    event: JobEvent | None = None
    exit_code: int = 0
    action: JobAction | None = None
    """The action of a command, which overrides all policies."""
    version: int = 0
    """The job's version when the pod was created."""


def is_outdated(pod: Pod) -> bool:
    """True if the pod is to be recreated, so that its events are ignored."""
    return OUT_OF_SYNC in pod.annotations


def partition_of(pod: Pod) -> str:
    """The partition id of a pod; empty if it has none."""
    return pod.labels.get(PARTITION, "")


def request_of(pod: Pod, job: Job, event: JobEvent, exit_code: int = 0) -> JobRequest | None:
    """The controller's request for an event of a pod; None if its annotations name no Volcano Job.

    A pod marked as out of sync only causes the event OutOfSync.
    """
    version = pod.annotations.get(JOB_VERSION, "")
    if not version.isdecimal() or JOB_NAME not in pod.annotations or TASK_SPEC not in pod.annotations:
        return None
    return JobRequest(
        job=job.key,
        job_uid=job.uid,
        task=pod.annotations[TASK_SPEC],
        pod=pod.name,
        pod_uid=pod.uid,
        partition=partition_of(pod),
        event=JobEvent.OUT_OF_SYNC if is_outdated(pod) else event,
        exit_code=exit_code,
        version=int(version),
    )


def request_of_job(job: Job, old: Job | None = None) -> JobRequest | None:
    """The request for a new job, or one whose pods, spec or phase changed; None otherwise."""
    same = old is not None and (old.pod_sets, old.volcano, old.volcano_status.phase) == (
        job.pod_sets,
        job.volcano,
        job.volcano_status.phase,
    )
    return None if same else JobRequest(job=job.key, event=JobEvent.OUT_OF_SYNC)


def request_of_group(job: str, group: PodGroup, old: PodGroup) -> JobRequest | None:
    """The request for a PodGroup of a job (by key) whose phase changed; None otherwise.

    Phase Unknown is an event on which the job's policies can act.
    """
    if group.phase == old.phase:
        return None
    return JobRequest(job=job, event=JobEvent.UNKNOWN if group.phase == "Unknown" else None)


def request_of_command(job: str, action: JobAction) -> JobRequest:
    """The request for a command on a job (by key), such as abort or resume."""
    return JobRequest(job=job, event=JobEvent.COMMAND_ISSUED, action=action)


def event_of_change(old: Pod, new: Pod, job: Job, pods: Collection[Pod]) -> JobEvent:
    """The event for a changed pod, OutOfSync if no other applies; `pods` are all pods of the job, after the change."""
    changed = old.phase is not new.phase
    match new.phase:
        case PodPhase.FAILED if changed:
            return JobEvent.POD_FAILED
        case PodPhase.SUCCEEDED if changed and is_completed(job, new.annotations.get(TASK_SPEC, ""), pods):
            return JobEvent.TASK_COMPLETED
        case PodPhase.RUNNING if changed:
            return JobEvent.POD_RUNNING
        case PodPhase.PENDING if changed:
            return JobEvent.POD_PENDING
        case _:
            return JobEvent.OUT_OF_SYNC


def is_completed(job: Job, task: str, pods: Collection[Pod]) -> bool:
    """True if at least as many pods of a task have succeeded as it has replicas."""
    replicas = task_replicas(job, task)
    done = sum(pod.annotations.get(TASK_SPEC) == task and pod.phase is PodPhase.SUCCEEDED for pod in pods)
    return 0 < replicas <= done
