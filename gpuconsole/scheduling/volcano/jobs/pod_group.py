"""PodGroups that Volcano's controllers create: gang size, minResources and sub-groups.

`group_of` builds that of a Volcano Job (createOrUpdatePodGroup), `group_of_pod` that of pods that belong to no Volcano
Job: plain pods and those of ReplicaSets, StatefulSets and Jobs. minResources is the quota usage of pods, as Kubernetes'
quota evaluator counts it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.cluster import Pod
from gpuconsole.model.job import Job
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Resources, add, scale
from gpuconsole.model.volcano import NetworkTopology, PodGroup, SubGroupPolicy
from gpuconsole.scheduling.volcano.api.task import JDB_MAX_UNAVAILABLE, JDB_MIN_AVAILABLE, TASK_SPEC
from gpuconsole.scheduling.volcano.jobs.states import (
    COPIED_ANNOTATIONS,
    COPIED_LABELS,
    PARTITION,
    JobTask,
    spec_of,
    tasks_of,
)

_NATIVE = (CPU, MEMORY, EPHEMERAL_STORAGE)
_HUGE = "hugepages-"


def quota_usage(template: PodTemplate) -> dict[str, int]:
    """Quota usage of one pod, in base units: `pods`, `count/pods`, `requests.cpu`, `limits.cpu` and plain names such as
    `cpu`.
    """
    usage = {"count/pods": 1, PODS: 1}
    for name, amount in template.requests.items():
        if name == PODS:
            continue
        if name in _NATIVE or name.startswith(_HUGE) or "/" in name:
            usage[f"requests.{name}"] = amount
            usage[name] = amount
    for name, amount in _total_limits(template).items():
        if name in _NATIVE:
            usage[f"limits.{name}"] = amount
    return usage


def _total_limits(template: PodTemplate) -> dict[str, int]:
    return add(*(container.limits for container in template.containers))


def total_quota_usage(templates_with_counts: Iterable[tuple[PodTemplate, int]]) -> dict[str, int]:
    """Total quota usage of (pod template, number of pods); empty for no pods."""
    return add(*(scale(quota_usage(template), count) for template, count in templates_with_counts if count > 0))


class TaskWithPriority(Struct, frozen=True):
    """A task with its priority, the value of its pods' priority class."""

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
        min_task_member={task.name: min_available_of_task(task) for task in tasks_of(job)},
        queue=spec.queue,
        priority_class=spec.priority_class,
        min_resources=min_resources(job, priorities),
        network_topology=spec.network_topology,
        sub_groups=tuple(sub_groups(job)),
    )


def updated_group(group: PodGroup, job: Job, priorities: Mapping[str, int]) -> PodGroup:
    """The existing PodGroup brought up to date with the job; the same object if nothing changes.

    minTaskMember keeps the tasks that the job no longer has.
    """
    spec, min_member = spec_of(job), min_resources(job, priorities)
    members = {task.name: min_available_of_task(task) for task in tasks_of(job)}
    wanted = tuple(sub_groups(job))
    parted = {policy.name for policy in wanted}
    was = {policy.name: policy for policy in group.sub_groups}
    changed = any(was.get(policy.name) != policy for policy in wanted)
    ended = any(task.name in was and task.name not in parted for task in tasks_of(job))
    after = replace(
        group,
        priority_class=spec.priority_class,
        min_member=spec.min_available,
        min_resources=min_member,
        min_task_member={**group.min_task_member, **members},
        sub_groups=wanted if changed or ended else group.sub_groups,
    )
    return group if after == group else after


def min_available_of_task(task: JobTask) -> int:
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
    """The PodGroup's minResources: quota usage of the gang's pods, of tasks with the highest priority first.

    If the job's minAvailable is below the sum of its tasks' minimums, its first pods count; otherwise the tasks'
    minAvailable, then further pods up to the job's minAvailable.
    """
    ranked = [TaskWithPriority(task, priorities.get(task.spec.priority_class, 0)) for task in tasks_of(job)]
    min_member = spec_of(job).min_available
    if min_member < sum(entry.task.min_available for entry in ranked):
        return usage_of_first_pods(ranked, min_member)
    return usage_of_minimum(ranked, min_member)


def sort_by_priority(tasks: Sequence[TaskWithPriority]) -> list[TaskWithPriority]:
    """Tasks by descending priority; equal ones keep their order."""
    return sorted(tasks, key=lambda entry: -entry.priority)


def usage_of_first_pods(tasks: Sequence[TaskWithPriority], count: int) -> dict[str, int]:
    """Quota usage of the first `count` pods, in order of priority."""
    templates_with_counts = []
    for entry in sort_by_priority(tasks):
        taken = min(count, entry.task.replicas)
        templates_with_counts.append((entry.task.template, taken))
        count -= taken
        if count <= 0:
            break
    return total_quota_usage(templates_with_counts)


def usage_of_minimum(tasks: Sequence[TaskWithPriority], min_member: int) -> dict[str, int]:
    """Quota usage of the tasks' minAvailable, filled up to `min_member` pods with further pods in order of priority."""
    ordered, templates_with_counts, count = sort_by_priority(tasks), [], 0
    for task in (entry.task for entry in ordered):
        if task.spec.min_available is None:
            continue
        taken = min(task.spec.min_available, min_member - count)
        templates_with_counts.append((task.template, taken))
        count += taken
        if count >= min_member:
            return total_quota_usage(templates_with_counts)
    if count >= min_member:
        return total_quota_usage(templates_with_counts)
    left = min_member - count
    for task in (entry.task for entry in ordered):
        beyond = task.replicas - (task.spec.min_available or 0)
        if task.spec.min_available == task.replicas:
            continue
        templates_with_counts.append((task.template, min(left, beyond)))
        left -= min(left, beyond)
        if left <= 0:
            break
    return total_quota_usage(templates_with_counts)


MIN_MEMBER = "scheduling.volcano.sh/group-min-member"
QUEUE_NAME = "scheduling.volcano.sh/queue-name"
PREFIX = "podgroup-"
"""Prefix of the names of PodGroups that Volcano creates, before the uid of the pod's owner or of the pod."""
_DOMAIN = "volcano.sh/"
_MODE = "volcano.sh/network-topology-mode"
_HIGHEST_TIER = "volcano.sh/network-topology-highest-tier"
_MODES = ("hard", "soft")


def group_of_pod(pod: Pod, name: str, owner: Mapping[str, str], min_member: int | None = None) -> PodGroup:
    """The PodGroup that Volcano creates for a pod; `owner` are the annotations of the pod's owner.

    minMember is `min_member`, else the owner's group-min-member annotation, else 1; minResources is the quota usage of
    that many such pods. The pod's annotations take precedence over its owner's.
    """
    members = _owner_min_member(owner) if min_member is None else min_member
    notes = {key: value for key, value in owner.items() if key.startswith(_DOMAIN)}
    budget = JDB_MIN_AVAILABLE if JDB_MIN_AVAILABLE in pod.annotations else JDB_MAX_UNAVAILABLE
    own = {key: pod.annotations[key] for key in (*COPIED_ANNOTATIONS, budget) if key in pod.annotations}
    marks = {key: pod.labels[key] for key in COPIED_LABELS if key in pod.labels}
    return PodGroup(
        namespace=pod.namespace,
        name=name,
        labels=marks,
        annotations={**notes, **own},
        min_member=members,
        queue=pod.annotations.get(QUEUE_NAME, ""),
        priority_class=pod.template.priority_class,
        min_resources=total_quota_usage([(pod.template, members)]),
        network_topology=_network_topology(pod),
        phase="Pending",
    )


def _owner_min_member(owner: Mapping[str, str]) -> int:
    text = owner.get(MIN_MEMBER, "")
    return int(text) if text.isdecimal() else 1


def _network_topology(pod: Pod) -> NetworkTopology | None:
    """The network topology in the pod's annotations; its mode is hard unless a valid mode is named."""
    mode, tier = pod.annotations.get(_MODE), pod.annotations.get(_HIGHEST_TIER)
    if mode is None and tier is None:
        return None
    known = (mode or "").lower()
    highest = int(tier) if tier is not None and tier.removeprefix("-").isdecimal() else None
    return NetworkTopology(mode=known if known in _MODES else "hard", highest_tier=highest)
