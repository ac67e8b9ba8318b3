"""The pods of a Volcano Job: how they are built, when they are created and deleted, and the job's resulting status.

Volcano 1.15 job_controller_actions.go: createJobPod (names, labels, annotations), createJobIOIfNotExist (volumes: the
PersistentVolumeClaims, existing or created for the job, that all its pods mount), waitDependsOnTaskMeetCondition,
syncJob and killPods. The status counts pods by phase and has a condition for each change of the job's phase.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import PersistentVolumeClaim, Pod, PodPhase
from gpuconsole.model.job import Job
from gpuconsole.model.pod_template import PodTemplate, PodVolume
from gpuconsole.model.volcano import JobAction, VolcanoPhase, VolcanoStatus
from gpuconsole.scheduling.volcano.api.task import (
    GROUP_NAME,
    JDB_MAX_UNAVAILABLE,
    JDB_MIN_AVAILABLE,
    NUMA_POLICY,
    TASK_SPEC,
)
from gpuconsole.scheduling.volcano.jobs.pod_group import group_name
from gpuconsole.scheduling.volcano.jobs.states import (
    COPIED_ANNOTATIONS,
    COPIED_LABELS,
    DEFAULT_TASK,
    FINISHED_PHASES,
    JOB_NAME,
    JOB_NAMESPACE,
    JOB_RETRY_COUNT,
    JOB_VERSION,
    PARTITION,
    QUEUE_NAME,
    TASK_INDEX,
    TEMPLATE,
    ActionPlan,
    ControllerCall,
    JobTask,
    PodTarget,
    StatusUpdate,
    TargetType,
    is_outdated,
    keep_status,
    partition_of,
    pod_name,
    pod_names,
    spec_of,
    tasks_of,
)


class VolumeClaimMissing(Exception):
    """A claim that the job names does not exist: the job waits until it is created."""


def with_claims(
    job: Job, exists: Callable[[str], bool], name_for: Callable[[int], str]
) -> tuple[Job, list[PersistentVolumeClaim]]:
    """Name a claim for each volume of a job; returns the job with these names, and the claims to create.

    `exists` gets `namespace/name`; `name_for` names the claim of the n-th volume.

    Raises:
        VolumeClaimMissing: a claim that the job names does not exist; the message is Volcano's.
    """
    spec, made, volumes = spec_of(job), [], []
    for number, volume in enumerate(spec.volumes):
        if volume.claim:
            if not exists(f"{job.namespace}/{volume.claim}"):
                text = f"pvc {volume.claim} is not found, the job will be in the Pending state until the PVC is created"
                raise VolumeClaimMissing(text)
        else:
            volume = replace(volume, claim=name_for(number))
            if volume.makes:
                made.append(
                    PersistentVolumeClaim(
                        namespace=job.namespace,
                        name=volume.claim,
                        storage_class=volume.storage_class,
                        storage=volume.storage,
                        access_modes=volume.access_modes,
                        volume=volume.volume,
                        job=job.key,
                    )
                )
        volumes.append(volume)
    if tuple(volumes) == spec.volumes:
        return job, made
    return replace(job, volcano=replace(spec, volumes=tuple(volumes))), made


def with_volumes(job: Job, template: PodTemplate) -> PodTemplate:
    """The template with the job's volumes added, each claim once."""
    claims = dict.fromkeys(volume.claim for volume in spec_of(job).volumes if volume.claim)
    added = tuple(PodVolume(name=f"{job.name}-{number}", claim=claim) for number, claim in enumerate(claims))
    return replace(template, volumes=(*template.volumes, *added)) if added else template


def pod_of(job: Job, task: JobTask, index: int, **own: Any) -> Pod:
    """Build the pod of a task with this index; `own` are further fields of the pod.

    Its priority class is the job's if the template names none, and the job's volumes are mounted.
    """
    spec, template = spec_of(job), task.template
    template = replace(template, priority_class=template.priority_class or spec.priority_class)
    template = with_volumes(job, template)
    return Pod(
        namespace=job.namespace,
        name=pod_name(job.name, task.name, index),
        job=job.key,
        pod_set=task.name,
        index=index,
        labels={**template.labels, **pod_labels(job, task, index)},
        annotations={**template.annotations, **pod_annotations(job, task, index)},
        template=template,
        **own,
    )


def pod_annotations(job: Job, task: JobTask, index: int) -> dict[str, str]:
    """Annotations that Volcano sets on a pod; of the two disruption budgets only jdb-min-available is copied if both
    are set.
    """
    notes = job.annotations
    own = {
        TASK_INDEX: str(index),
        TASK_SPEC: task.name or DEFAULT_TASK,
        GROUP_NAME: group_name(job),
        JOB_NAME: job.name,
        QUEUE_NAME: spec_of(job).queue,
        JOB_VERSION: str(job.volcano_status.version),
        TEMPLATE: f"{job.name}-{task.name}",
        JOB_RETRY_COUNT: str(job.volcano_status.retry_count),
    }
    if task.spec.topology_policy:
        own[NUMA_POLICY] = task.spec.topology_policy
    own |= _copy_keys(notes, COPIED_ANNOTATIONS)
    budget = JDB_MIN_AVAILABLE if JDB_MIN_AVAILABLE in notes else JDB_MAX_UNAVAILABLE
    return own | _copy_keys(notes, (budget,))


def pod_labels(job: Job, task: JobTask, index: int) -> dict[str, str]:
    """Labels that Volcano sets on a pod, with the partition id if its task has partitions."""
    own = {
        TASK_INDEX: str(index),
        JOB_NAME: job.name,
        TASK_SPEC: task.name or DEFAULT_TASK,
        JOB_NAMESPACE: job.namespace,
        QUEUE_NAME: spec_of(job).queue,
        **_copy_keys(job.labels, COPIED_LABELS),
    }
    if task.partition is not None:
        own[PARTITION] = str(int(index / task.partition.size) if task.partition.size > 0 else 0)
    return own


def _copy_keys(source: Mapping[str, str], keys: tuple[str, ...]) -> dict[str, str]:
    return {key: source[key] for key in keys if key in source}


Conditions = tuple[tuple[VolcanoPhase, Time], ...]
"""(phase, since when) of the phases that a job was in, in order."""


def with_pod_counts(status: VolcanoStatus, pods: Iterable[Pod], terminating: int) -> VolcanoStatus:
    """The status with current counts: `pods` by phase and by task, and this number of terminating pods."""
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


def with_phase_condition(status: VolcanoStatus, now: Time) -> VolcanoStatus:
    """The status after a change to its current phase at `now`: transition time and condition are set."""
    return replace(status, transition=now, conditions=with_condition(status.conditions, status.phase, now))


class KillResult(Struct, frozen=True):
    """Result of `plan_kill`: the pods to delete, and the job's status afterwards."""

    delete: tuple[Pod, ...]
    """The pods to delete. The caller marks them as out of sync first, so that their events are ignored, and deletes the
    PodGroup.
    """
    status: VolcanoStatus


def plan_kill(job: Job, pods: Sequence[Pod], action_plan: ActionPlan, now: Time) -> KillResult | None:
    """Select the pods that an action plan deletes; None if it targets a partition that does not exist.

    The job's version rises only if the whole job is killed. The status counts only terminating pods, not retained ones.
    """
    status = job.volcano_status
    if action_plan.call is ControllerCall.KILL:
        status = replace(status, version=status.version + 1)
        chosen = _pods_to_kill(job, pods, action_plan)
        leaving = sum(pod.deleted > 0 for pod in pods)
    else:
        assert action_plan.target is not None
        chosen = _target_pods(pods, action_plan.target)
        leaving = 0
        if action_plan.target.type is TargetType.PARTITION and not _is_missing_partition(
            job, action_plan.target, chosen
        ):
            return None
        leaving = sum(pod.deleted > 0 for pod in chosen)
    delete = tuple(pod for pod in chosen if not pod.deleted)
    left = with_pod_counts(status, (), leaving + len(delete))
    after = action_plan.update(job, left)
    return KillResult(delete, after if after is left else with_phase_condition(after, now))


def _pods_to_kill(job: Job, pods: Sequence[Pod], action_plan: ActionPlan) -> list[Pod]:
    """Pods that are not in a retained phase; on the last retry, succeeded and failed pods are always retained."""
    last = job.volcano_status.retry_count >= spec_of(job).max_retry - 1
    retain = FINISHED_PHASES if last else action_plan.retain
    return [pod for pod in pods if not pod.deleted and pod.phase not in retain]


def _target_pods(pods: Sequence[Pod], target: PodTarget) -> list[Pod]:
    mine = [pod for pod in pods if pod.annotations.get(TASK_SPEC) == target.task]
    match target.type:
        case TargetType.TASK:
            return mine
        case TargetType.POD:
            return [pod for pod in mine if pod.name == target.pod]
        case TargetType.PARTITION:
            return [pod for pod in mine if partition_of(pod) == target.partition]


def _is_missing_partition(job: Job, target: PodTarget, chosen: Sequence[Pod]) -> bool:
    parted = any(task.name == target.task and task.partition is not None for task in tasks_of(job))
    return parted and bool(target.partition) and bool(chosen)


def dependencies_ready(job: Job, task: JobTask, pods: Mapping[str, Pod]) -> bool:
    """True if the tasks that this one depends on are ready: all, or one if dependsOn says `any`; `pods` is by name."""
    wanted = task.depends_on
    if wanted is None:
        return True
    ready = [is_task_ready(job, name, pods) for name in wanted.tasks]
    return any(ready) if wanted.any and len(ready) > 1 else all(ready)


def is_task_ready(job: Job, name: str, pods: Mapping[str, Pod]) -> bool:
    """True if at least minAvailable pods of a task are ready or succeeded, or if it has no minAvailable.

    False if there is no task of this name.
    """
    task = next((task for task in tasks_of(job) if task.name == name), None)
    if task is None:
        return False
    found = (pods.get(pod) for pod in pod_names(job, name))
    running = sum(pod is not None and _is_ready_or_succeeded(pod) for pod in found)
    return task.spec.min_available is None or running >= task.spec.min_available


def _is_ready_or_succeeded(pod: Pod) -> bool:
    return pod.phase is PodPhase.SUCCEEDED or (pod.phase is PodPhase.RUNNING and not pod.unready)


PENDING = "Pending"


class SyncResult(Struct, frozen=True):
    """Result of `plan_sync`: pods to create and delete, and the job's status afterwards."""

    create: tuple[Pod, ...]
    delete: tuple[Pod, ...]
    status: VolcanoStatus


def plan_sync(
    job: Job, pods: Sequence[Pod], group_phase: str, now: Time, update: StatusUpdate = keep_status
) -> SyncResult:
    """Find pods to create and delete; `pods` are all pods of the job.

    No pods are created or deleted while the PodGroup waits to be enqueued (its phase is Pending, or empty).
    """
    job = replace(job, volcano_status=initial_status(job, now))
    if group_phase in ("", PENDING):
        after = update(job, job.volcano_status)
        return SyncResult((), (), after if after == job.volcano_status else with_phase_condition(after, now))
    return _sync_pods(job, pods, now, update)


def initial_status(job: Job, now: Time) -> VolcanoStatus:
    """The status from which a job continues; that of a new job becomes Pending."""
    status = job.volcano_status
    if status.phase is not VolcanoPhase.NEW:
        return status
    begun = replace(status, phase=VolcanoPhase.PENDING, min_available=spec_of(job).min_available)
    return with_phase_condition(begun, now)


def _sync_pods(job: Job, pods: Sequence[Pod], now: Time, update: StatusUpdate) -> SyncResult:
    named = {pod.name: pod for pod in pods}
    create: list[Pod] = []
    delete: list[Pod] = []
    last_runs: list[Pod] = []
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
                last_runs.append(old)
                delete += [old] if is_outdated(old) else []
        if missing and dependencies_ready(job, task, named):
            create += [pod_of(job, task, index) for index in missing]
    surplus = [pod for pod in pods if pod.name not in wanted]
    delete += surplus
    least = replace(job.volcano_status, min_available=spec_of(job).min_available)
    status = with_pod_counts(least, [*last_runs, *create], leaving + len(delete))
    after = update(job, status)
    return SyncResult(
        tuple(create), tuple(delete), after if after == job.volcano_status else with_phase_condition(after, now)
    )


def action_message(action: JobAction, delay: str = "") -> str:
    """The event message of an action on a job; `delay` is empty if it runs at once."""
    return f"Execute action {action} after {delay}" if delay else f"Start to execute action {action} "
