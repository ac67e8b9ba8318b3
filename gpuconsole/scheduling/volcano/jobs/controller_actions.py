"""Synchronization and killing of a job's pods, and the resulting status (Volcano 1.15 job_controller_actions.go).

Synchronization of a job's pods with its spec: pods to create and delete, and the resulting status (Volcano 1.15
syncJob).

Selection of pods to delete when a job, or a part of it, restarts or ends (Volcano 1.15 killPods).

Job status: counts of pods by phase, and conditions for phase changes.

Task dependencies: whether a task's pods may be created yet (Volcano 1.15 waitDependsOnTaskMeetCondition).

Event messages of the job controller.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.job import Job
from gpuconsole.model.volcano import JobAction, VolcanoPhase, VolcanoStatus
from gpuconsole.scheduling.volcano.jobs.pods import pod_of
from gpuconsole.scheduling.volcano.jobs.requests import is_outdated, partition_of
from gpuconsole.scheduling.volcano.jobs.states import (
    ENDED,
    ActionPlan,
    ControllerCall,
    PodTarget,
    TargetType,
    Update,
    unchanged,
)
from gpuconsole.scheduling.volcano.jobs.tasks import TASK_SPEC, JobTask, pod_name, pod_names, spec_of, tasks_of

Conditions = tuple[tuple[VolcanoPhase, Time], ...]


def counted(status: VolcanoStatus, pods: Iterable[Pod], terminating: int) -> VolcanoStatus:
    """The status with the pods counted by phase and by task, and with this number of terminating pods."""
    phases = dict.fromkeys(PodPhase, 0)
    tasks: dict[str, dict[str, int]] = {}
    for pod in pods:
        phases[pod.phase] += 1
        task = pod.annotations.get(TASK_SPEC)
        if task is not None:
            by_phase = tasks.setdefault(task, {})
            by_phase[pod.phase.value] = by_phase.get(pod.phase.value, 0) + 1
    return replace(
        status,
        pending=phases[PodPhase.PENDING],
        running=phases[PodPhase.RUNNING],
        succeeded=phases[PodPhase.SUCCEEDED],
        failed=phases[PodPhase.FAILED],
        terminating=terminating,
        tasks=tasks,
    )


def with_condition(conditions: Conditions, phase: VolcanoPhase, now: Time) -> Conditions:
    """Append the condition of a phase, and remove an earlier one of the same phase."""
    return (*((known, since) for known, since in conditions if known is not phase), (phase, now))


def in_phase(status: VolcanoStatus, now: Time) -> VolcanoStatus:
    """The status with its transition time and the condition of its current phase set to now."""
    return replace(status, transition=now, conditions=with_condition(status.conditions, status.phase, now))


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


PENDING = "Pending"


class Syncing(Struct, frozen=True):
    """Pods to create and delete, and the job's status afterwards."""

    create: tuple[Pod, ...]
    delete: tuple[Pod, ...]
    status: VolcanoStatus


def sync(job: Job, pods: Sequence[Pod], group_phase: str, now: Time, update: Update = unchanged) -> Syncing:
    """Find pods to create and delete; `pods` are all pods of the job.

    No pods are created or deleted while the PodGroup waits to be enqueued (its phase is Pending, or empty).
    """
    job = replace(job, volcano_status=initial(job, now))
    if group_phase in ("", PENDING):
        after = update(job, job.volcano_status)
        return Syncing((), (), after if after == job.volcano_status else in_phase(after, now))
    return _with_pods(job, pods, now, update)


def initial(job: Job, now: Time) -> VolcanoStatus:
    """The job's status; that of a new job becomes Pending."""
    status = job.volcano_status
    if status.phase is not VolcanoPhase.NEW:
        return status
    begun = replace(status, phase=VolcanoPhase.PENDING, min_available=spec_of(job).min_available)
    return in_phase(begun, now)


def _with_pods(job: Job, pods: Sequence[Pod], now: Time, update: Update) -> Syncing:
    named = {pod.name: pod for pod in pods}
    create: list[Pod] = []
    delete: list[Pod] = []
    kept: list[Pod] = []
    leaving = 0
    wanted: set[str] = set()
    for task in tasks_of(job):
        missing = []
        for index in range(task.replicas):
            name = pod_name(job.name, task.name, index)
            wanted.add(name)
            old = named.get(name)
            if old is None:
                missing.append(index)
            elif old.deleted:
                leaving += 1
            else:
                kept.append(old)
                delete += [old] if is_outdated(old) else []
        if missing and may_start(job, task, named):
            create += [pod_of(job, task, index) for index in missing]
    surplus = [pod for pod in pods if pod.name not in wanted]
    delete += surplus
    least = replace(job.volcano_status, min_available=spec_of(job).min_available)
    status = counted(least, [*kept, *create], leaving + len(delete))
    after = update(job, status)
    return Syncing(tuple(create), tuple(delete), after if after == job.volcano_status else in_phase(after, now))


def action_message(action: JobAction, delay: str = "") -> str:
    """The event message of an action on a job; `delay` is empty if it runs at once."""
    return f"Execute action {action} after {delay}" if delay else f"Start to execute action {action} "
