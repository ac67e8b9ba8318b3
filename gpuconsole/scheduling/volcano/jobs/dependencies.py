"""Task dependencies: whether a task's pods may be created yet (Volcano 1.15 waitDependsOnTaskMeetCondition)."""

from collections.abc import Mapping

from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.job import Job
from gpuconsole.scheduling.volcano.jobs.tasks import JobTask, pod_names, tasks_of


def may_start(job: Job, task: JobTask, pods: Mapping[str, Pod]) -> bool:
    """True if the tasks that this one depends on are ready: all, or one if dependsOn says `any`; `pods` is by name."""
    wanted = task.depends_on
    if wanted is None:
        return True
    ready = [is_up(job, name, pods) for name in wanted.tasks]
    return any(ready) if wanted.any and len(ready) > 1 else all(ready)


def is_up(job: Job, name: str, pods: Mapping[str, Pod]) -> bool:
    """True if at least minAvailable pods of a task are ready or have succeeded, or if it has no minAvailable; False if
    there is no such task.
    """
    task = next((task for task in tasks_of(job) if task.name == name), None)
    if task is None:
        return False
    found = (pods.get(pod) for pod in pod_names(job, name))
    running = sum(pod is not None and _counts(pod) for pod in found)
    return task.spec.min_available is None or running >= task.spec.min_available


def _counts(pod: Pod) -> bool:
    return pod.phase is PodPhase.SUCCEEDED or (pod.phase is PodPhase.RUNNING and not pod.unready)
