"""Plugins that order jobs, pod sets and tasks: elastic, priority, kubeflow, ray, subgrouporder, taskorder (KAI 0.13).

elastic plugin: jobs below their minimum come first, then those at it, then those above (KAI 0.13).

priority plugin: jobs of higher priority come first (KAI 0.13 plugins/priority).

kubeflow and ray plugins: the leader pod of a job comes first (KAI 0.13 plugins/kubeflow, plugins/ray).

subgrouporder plugin: pod sets below their minimum come first, then those the least above it (KAI 0.13).

taskorder plugin: orders tasks by the number in a label, highest first (KAI 0.13).
"""

from enum import IntEnum

from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo, PodSetInfo
from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.config import KaiPluginArguments
from gpuconsole.scheduling.kai.session import KaiSession


class Size(IntEnum):
    """Number of a job's placed tasks compared with its minimum."""

    BELOW = 0
    EXACT = 1
    ABOVE = 2


class Elastic:
    """Registers the job order."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.job_order.append(compare_elasticity)


def compare_elasticity(one: PodGroupInfo, other: PodGroupInfo) -> int:
    """Negative if the first job comes first, 0 if both are of the same size."""
    return gang_size(one) - gang_size(other)


def gang_size(job: PodGroupInfo) -> Size:
    """Whether the job is below, at or above its minimum; below if one of its pod sets is."""
    placed = [(pod_set.active_allocated, pod_set.minimum) for pod_set in job.pod_sets.values()]
    if any(count < minimum for count, minimum in placed):
        return Size.BELOW
    return Size.ABOVE if any(count > minimum for count, minimum in placed) else Size.EXACT


class Priority:
    """Registers the job order."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.job_order.append(lambda one, other: other.priority - one.priority)


def leads_by_kubeflow(task: PodInfo) -> bool:
    """True for the master or launcher pod of a Kubeflow job."""
    return task.spec.labels.get("training.kubeflow.org/job-role") in ("master", "launcher")


def leads_by_ray(task: PodInfo) -> bool:
    """True for the head pod of a Ray cluster."""
    return task.spec.labels.get("ray.io/node-type") == "head"


class Kubeflow:
    """Registers the task order of the kubeflow plugin."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.task_order.append(lambda one, other: leads_by_kubeflow(other) - leads_by_kubeflow(one))


class Ray:
    """Registers the task order of the ray plugin."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.task_order.append(lambda one, other: leads_by_ray(other) - leads_by_ray(one))


class SubGroupOrder:
    """Registers the order of pod sets."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.pod_set_order.append(compare_sub_groups)


def compare_sub_groups(one: PodSetInfo, other: PodSetInfo) -> int:
    """Negative if the first pod set comes first, 0 if undecided, as between two below their minimum."""
    mine, theirs = one.active_allocated >= one.minimum, other.active_allocated >= other.minimum
    if not mine or not theirs:
        return mine - theirs
    ratio, other_ratio = _ratio(one), _ratio(other)
    return (ratio > other_ratio) - (ratio < other_ratio)


def _ratio(pod_set: PodSetInfo) -> float:
    return pod_set.active_allocated / pod_set.minimum if pod_set.minimum else float("inf")


TASK_PRIORITY_LABEL = "kai.scheduler/task-priority"


class TaskOrder:
    """Registers the task order."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.task_order.append(compare_task_labels)


def compare_task_labels(one: PodInfo, other: PodInfo) -> int:
    """Negative if the first task comes first: tasks with the label before others, values that are no integer last."""
    mine, theirs = one.spec.labels.get(TASK_PRIORITY_LABEL), other.spec.labels.get(TASK_PRIORITY_LABEL)
    if mine is None or theirs is None:
        return (mine is None) - (theirs is None)
    rank, other_rank = _number(mine), _number(theirs)
    if rank is None:
        return 1
    if other_rank is None:
        return -1
    return (rank < other_rank) - (rank > other_rank)


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
