"""Selection of pods to delete when a job, or a part of it, restarts or ends (Volcano 1.15 killPods)."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.job import Job
from gpuconsole.model.volcano import VolcanoStatus
from gpuconsole.scheduling.volcano.jobs.counts import counted, in_phase
from gpuconsole.scheduling.volcano.jobs.labels import TASK_SPEC
from gpuconsole.scheduling.volcano.jobs.requests import partition_of
from gpuconsole.scheduling.volcano.jobs.states import ENDED, ActionPlan, ControllerCall, PodTarget, TargetType
from gpuconsole.scheduling.volcano.jobs.tasks import spec_of, tasks_of


class Killing(Struct, frozen=True):
    """The pods to delete, and the job's status afterwards."""

    delete: tuple[Pod, ...]
    """The caller marks them as out of sync first, so that their later events are ignored, and deletes the PodGroup."""
    status: VolcanoStatus


def kill(job: Job, pods: Sequence[Pod], course: ActionPlan, now: Time) -> Killing | None:
    """Select the pods that an action plan deletes; None if it targets a partition that does not exist.

    The job's version rises only if the whole job is killed. The status counts only terminating pods, not retained ones.
    """
    status = job.volcano_status
    if course.call is ControllerCall.KILL:
        status = replace(status, version=status.version + 1)
        chosen = _of_job(job, pods, course)
        leaving = sum(pod.deleted > 0 for pod in pods)
    else:
        assert course.target is not None
        chosen = _of_target(pods, course.target)
        leaving = 0
        if course.target.type is TargetType.PARTITION and not _has_partition(job, course.target, chosen):
            return None
        leaving = sum(pod.deleted > 0 for pod in chosen)
    delete = tuple(pod for pod in chosen if not pod.deleted)
    left = counted(status, (), leaving + len(delete))
    after = course.update(job, left)
    return Killing(delete, after if after is left else in_phase(after, now))


def _of_job(job: Job, pods: Sequence[Pod], course: ActionPlan) -> list[Pod]:
    """Pods that are not in a retained phase; on the last retry, succeeded and failed pods are always retained."""
    last = job.volcano_status.retry_count >= spec_of(job).max_retry - 1
    retain = ENDED if last else course.retain
    return [pod for pod in pods if not pod.deleted and pod.phase not in retain]


def _of_target(pods: Sequence[Pod], target: PodTarget) -> list[Pod]:
    mine = [pod for pod in pods if pod.annotations.get(TASK_SPEC) == target.task]
    match target.type:
        case TargetType.TASK:
            return mine
        case TargetType.POD:
            return [pod for pod in mine if pod.name == target.pod]
        case TargetType.PARTITION:
            return [pod for pod in mine if partition_of(pod) == target.partition]


def _has_partition(job: Job, target: PodTarget, chosen: Sequence[Pod]) -> bool:
    parted = any(task.name == target.task and task.partition is not None for task in tasks_of(job))
    return parted and bool(target.partition) and bool(chosen)
