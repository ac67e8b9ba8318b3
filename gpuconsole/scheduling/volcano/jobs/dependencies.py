"""Task dependencies: whether a task's pods may be created yet (Volcano 1.15 waitDependsOnTaskMeetCondition)."""

from collections.abc import Iterator, Mapping

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


def order_of(dependencies: Mapping[str, tuple[str, ...]]) -> list[str] | None:
    """Sort names by dependency; None if there is a cycle or an unknown name.

    Among names whose dependencies are done, the last to become free comes next.
    """
    waits = {name: len(before) for name, before in dependencies.items()}
    free = [name for name, count in waits.items() if not count]
    done: list[str] = []
    while free:
        done.append(free.pop())
        for name in _followers(dependencies, done[-1]):
            waits[name] -= 1
            if not waits[name]:
                free.append(name)
    return done if len(done) == len(dependencies) else None


def _followers(dependencies: Mapping[str, tuple[str, ...]], name: str) -> Iterator[str]:
    return (other for other, before in dependencies.items() for one in before if one == name)
