"""PodGroup of a Volcano Job: gang size, minResources and sub-groups (Volcano createOrUpdatePodGroup)."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.job import Job
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.resources import Resources
from gpuconsole.model.volcano import PodGroup, SubGroupPolicy
from gpuconsole.scheduling.volcano.jobs.labels import PARTITION, TASK_SPEC
from gpuconsole.scheduling.volcano.jobs.quota import needs
from gpuconsole.scheduling.volcano.jobs.tasks import JobTask, spec_of, tasks_of


class Ranked(Struct, frozen=True):
    """A task and the value of its pods' priority class."""

    task: JobTask
    priority: int = 0


def group_name(job: Job) -> str:
    """The name of a job's PodGroup: the job's name and uid."""
    return f"{job.name}-{job.uid}"


def group_of(job: Job, priorities: Mapping[str, int]) -> PodGroup:
    """Build the PodGroup of a job; `priorities` maps priority classes to their values."""
    spec = spec_of(job)
    return PodGroup(
        namespace=job.namespace,
        name=group_name(job),
        labels=job.labels,
        annotations=job.annotations,
        min_member=spec.min_available,
        min_task_member={task.name: least_of_task(task) for task in tasks_of(job)},
        queue=spec.queue,
        priority_class=spec.priority_class,
        min_resources=min_resources(job, priorities),
        network_topology=spec.network_topology,
        sub_groups=tuple(sub_groups(job)),
    )


def updated(group: PodGroup, job: Job, priorities: Mapping[str, int]) -> PodGroup:
    """Update an existing PodGroup to match the job; the same object if nothing changes.

    minTaskMember keeps the tasks that the job no longer has.
    """
    spec, least = spec_of(job), min_resources(job, priorities)
    members = {task.name: least_of_task(task) for task in tasks_of(job)}
    wanted = tuple(sub_groups(job))
    parted = {policy.name for policy in wanted}
    was = {policy.name: policy for policy in group.sub_groups}
    changed = any(was.get(policy.name) != policy for policy in wanted)
    ended = any(task.name in was and task.name not in parted for task in tasks_of(job))
    after = replace(
        group,
        priority_class=spec.priority_class,
        min_member=spec.min_available,
        min_resources=least,
        min_task_member={**group.min_task_member, **members},
        sub_groups=wanted if changed or ended else group.sub_groups,
    )
    return group if after == group else after


def least_of_task(task: JobTask) -> int:
    """Pods of a task that the gang needs: its minAvailable, else minPartitions · partition size, else all replicas."""
    if task.spec.min_available is not None:
        return task.spec.min_available
    if task.partition is not None and task.partition.least * task.partition.size:
        return task.partition.least * task.partition.size
    return task.replicas


def sub_groups(job: Job) -> Iterator[SubGroupPolicy]:
    """The subGroupPolicy of each task with partitions."""
    return (sub_group(task) for task in tasks_of(job) if task.partition is not None)


def sub_group(task: JobTask) -> SubGroupPolicy:
    """The subGroupPolicy of a task with partitions."""
    assert task.partition is not None
    return SubGroupPolicy(
        name=task.name,
        size=task.partition.size,
        least=task.partition.least,
        network_topology=task.partition.network_topology,
        selector=LabelSelector(match_labels={TASK_SPEC: task.name}),
        match_label_keys=(PARTITION,),
    )


def min_resources(job: Job, priorities: Mapping[str, int]) -> Resources:
    """minResources of the gang as quota usage, counting the pods of tasks with the highest priority first.

    If the job's minAvailable is below the sum of its tasks' minimums, its first pods count; otherwise the tasks'
    minAvailable, then further pods up to the job's minAvailable.
    """
    ranked = [Ranked(task, priorities.get(task.spec.priority_class, 0)) for task in tasks_of(job)]
    least = spec_of(job).min_available
    if least < sum(entry.task.least for entry in ranked):
        return first_pods(ranked, least)
    return least_pods(ranked, least)


def by_priority(tasks: Sequence[Ranked]) -> list[Ranked]:
    """Tasks by descending priority; equal ones keep their order."""
    return sorted(tasks, key=lambda entry: -entry.priority)


def first_pods(tasks: Sequence[Ranked], count: int) -> dict[str, int]:
    """Quota usage of the first `count` pods, in order of priority."""
    parts = []
    for entry in by_priority(tasks):
        taken = min(count, entry.task.replicas)
        parts.append((entry.task.template, taken))
        count -= taken
        if count <= 0:
            break
    return needs(parts)


def least_pods(tasks: Sequence[Ranked], least: int) -> dict[str, int]:
    """Quota usage of the tasks' minAvailable, filled up to `least` pods with further pods in order of priority."""
    ordered, parts, count = by_priority(tasks), [], 0
    for task in (entry.task for entry in ordered):
        if task.spec.min_available is None:
            continue
        taken = min(task.spec.min_available, least - count)
        parts.append((task.template, taken))
        count += taken
        if count >= least:
            return needs(parts)
    if count >= least:
        return needs(parts)
    left = least - count
    for task in (entry.task for entry in ordered):
        beyond = task.replicas - (task.spec.min_available or 0)
        if task.spec.min_available == task.replicas:
            continue
        parts.append((task.template, min(left, beyond)))
        left -= min(left, beyond)
        if left <= 0:
            break
    return needs(parts)
