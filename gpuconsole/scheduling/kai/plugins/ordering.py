"""Plugins that order jobs, pod sets and tasks, and minruntime, which protects running jobs (KAI 0.13 plugins).

An order is a function that compares two items: negative if the first comes first, 0 if the next plugin decides.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from enum import IntEnum

from gpuconsole.model.clock import Span
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo, PodSetInfo
from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.config import KaiPluginArguments
from gpuconsole.scheduling.kai.fair_share.division import QueueState
from gpuconsole.scheduling.kai.functions import SolverScenario, VictimJob
from gpuconsole.scheduling.kai.session import KaiSession


class GangSize(IntEnum):
    """How many tasks of a job are placed, compared with its minimum."""

    BELOW = 0
    EXACT = 1
    ABOVE = 2


class Elastic:
    """elastic plugin: jobs below their minimum come first, then those at it, then those above."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.job_order.append(compare_elasticity)


def compare_elasticity(one: PodGroupInfo, other: PodGroupInfo) -> int:
    """Negative if the first job comes first, 0 if both are of the same size."""
    return gang_size(one) - gang_size(other)


def gang_size(job: PodGroupInfo) -> GangSize:
    """Whether the job is below, at or above its minimum; below if one of its pod sets is."""
    placed = [(pod_set.active_allocated_tasks, pod_set.minimum) for pod_set in job.pod_sets.values()]
    if any(count < minimum for count, minimum in placed):
        return GangSize.BELOW
    return GangSize.ABOVE if any(count > minimum for count, minimum in placed) else GangSize.EXACT


class Priority:
    """priority plugin: jobs of higher priority come first."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.job_order.append(lambda one, other: other.priority - one.priority)


def is_kubeflow_leader(task: PodInfo) -> bool:
    """True for the master or launcher pod of a Kubeflow job."""
    return task.spec.labels.get("training.kubeflow.org/job-role") in ("master", "launcher")


def is_ray_head(task: PodInfo) -> bool:
    """True for the head pod of a Ray cluster."""
    return task.spec.labels.get("ray.io/node-type") == "head"


class Kubeflow:
    """kubeflow plugin: the master or launcher pod comes first among the tasks of a job."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.task_order.append(lambda one, other: is_kubeflow_leader(other) - is_kubeflow_leader(one))


class Ray:
    """ray plugin: the head pod of a Ray cluster comes first among the tasks of a job."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.task_order.append(lambda one, other: is_ray_head(other) - is_ray_head(one))


class SubGroupOrder:
    """subgrouporder plugin: pod sets below their minimum come first, then those the least above it."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.pod_set_order.append(compare_sub_groups)


def compare_sub_groups(one: PodSetInfo, other: PodSetInfo) -> int:
    """Negative if the first pod set comes first, 0 if undecided, as between two below their minimum."""
    reclaiming_queue, victim_queue = (
        one.active_allocated_tasks >= one.minimum,
        other.active_allocated_tasks >= other.minimum,
    )
    if not reclaiming_queue or not victim_queue:
        return reclaiming_queue - victim_queue
    ratio, other_ratio = _allocated_ratio(one), _allocated_ratio(other)
    return (ratio > other_ratio) - (ratio < other_ratio)


def _allocated_ratio(pod_set: PodSetInfo) -> float:
    return pod_set.active_allocated_tasks / pod_set.minimum if pod_set.minimum else float("inf")


TASK_PRIORITY_LABEL = "kai.scheduler/task-priority"


class TaskOrder:
    """taskorder plugin: orders tasks by the number in a label, highest first."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.task_order.append(compare_task_labels)


def compare_task_labels(one: PodInfo, other: PodInfo) -> int:
    """Negative if the first task comes first: tasks with the label before others, values that are no integer last."""
    reclaiming_queue, victim_queue = (
        one.spec.labels.get(TASK_PRIORITY_LABEL),
        other.spec.labels.get(TASK_PRIORITY_LABEL),
    )
    if reclaiming_queue is None or victim_queue is None:
        return (reclaiming_queue is None) - (victim_queue is None)
    rank, other_rank = _parse_integer(reclaiming_queue), _parse_integer(victim_queue)
    if rank is None:
        return 1
    if other_rank is None:
        return -1
    return (rank < other_rank) - (rank > other_rank)


def _parse_integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


LCA, QUEUE = "lca", "queue"
"""Methods by which reclaim finds the minimum runtime; see `reclaim_min_runtime`."""


class MinRuntime:
    """minruntime plugin: protects jobs from eviction for their queue's minimum runtime.

    Elastic jobs may lose tasks above their minimum at any time.
    """

    def __init__(self, arguments: KaiPluginArguments) -> None:
        self.reclaim = arguments.duration("defaultReclaimMinRuntime")
        self.preempt = arguments.duration("defaultPreemptMinRuntime")
        method = arguments.text("reclaimResolveMethod", LCA)
        self.method = method if method in (LCA, QUEUE) else LCA

    def open(self, session: KaiSession) -> None:
        self._session = session
        functions = session.functions
        functions.reclaim_victims.append(
            lambda job, victim: victim.is_elastic or not self._is_protected_from_reclaim(job, victim)
        )
        functions.preempt_victims.append(
            lambda job, victim: victim.is_elastic or not self._is_protected_from_preempt(victim)
        )
        functions.reclaim_scenarios.append(
            lambda scenario: self._allows_scenario(
                scenario, lambda victim: self._is_protected_from_reclaim(scenario.preemptor, victim)
            )
        )
        functions.preempt_scenarios.append(
            lambda scenario: self._allows_scenario(scenario, self._is_protected_from_preempt)
        )

    def _is_protected_from_reclaim(self, job: PodGroupInfo, victim: PodGroupInfo) -> bool:
        """True if the victim is still protected against reclaim."""
        queues = self._session.queues
        reclaiming_queue, victim_queue = queues.get(job.queue), queues.get(victim.queue)
        span = self.reclaim
        if reclaiming_queue is not None and victim_queue is not None:
            span = reclaim_min_runtime(queues, reclaiming_queue, victim_queue, self.method, self.reclaim)
        return self._is_protected(victim, span)

    def _is_protected_from_preempt(self, victim: PodGroupInfo) -> bool:
        queue = self._session.queues.get(victim.queue)
        span = self.preempt if queue is None else preempt_min_runtime(self._session.queues, queue, self.preempt)
        return self._is_protected(victim, span)

    def _is_protected(self, victim: PodGroupInfo, span: Span) -> bool:
        return victim.started is not None and self._session.now < victim.started + span

    def _allows_scenario(self, scenario: SolverScenario, protected: Callable[[PodGroupInfo], bool]) -> bool:
        return all(
            keeps_gang_minimum(victim)
            for victim in scenario.victims().values()
            if victim.job.is_elastic and protected(victim.job)
        )


def keeps_gang_minimum(victim: VictimJob) -> bool:
    """True if every pod set keeps its minimum although it loses the victim's tasks."""
    losses = Counter(task.set_name for task in victim.tasks)
    sets = victim.job.pod_sets
    return all(sets[name].minimum <= sets[name].active_used_tasks - lost for name, lost in losses.items())


def queue_path(queues: Mapping[str, QueueState], queue: QueueState) -> list[QueueState]:
    """The queues from the top of the tree down to this one."""
    path = [queue]
    while (above := queues.get(path[-1].parent)) is not None:
        path.append(above)
    return path[::-1]


def preempt_min_runtime(queues: Mapping[str, QueueState], queue: QueueState, default: Span) -> Span:
    """The minimum runtime of the queue, or of the nearest one above that sets it; `default` if none does."""
    for above in reversed(queue_path(queues, queue)):
        if above.preempt_min_runtime is not None:
            return above.preempt_min_runtime
    return default


def reclaim_min_runtime(
    queues: Mapping[str, QueueState], reclaiming_queue: QueueState, victim_queue: QueueState, method: str, default: Span
) -> Span:
    """The minimum runtime that protects a job of the victim queue from a reclaiming queue; `default` if none is set.

    Method queue: that of the victim's queue or the nearest above. Method lca: that of the victim's ancestor just below
    the lowest common ancestor, or the nearest above; of the top queue only, if they have no common ancestor.
    """
    path = queue_path(queues, victim_queue)
    if method == LCA:
        common = sum(
            1 for one, other in zip(queue_path(queues, reclaiming_queue), path, strict=False) if one.uid == other.uid
        )
        path = path[: common + 1]
    for queue in reversed(path):
        if queue.reclaim_min_runtime is not None:
            return queue.reclaim_min_runtime
    return default
