"""Placement of a job's tasks, sub-group by sub-group, each on the best set of nodes (KAI 0.13 actions/common).

A task that requests part of a GPU gets GPUs that others share, or new ones (`choose_gpus`, KAI 0.13 gpu_sharing).
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo, PodSetInfo, SubGroup
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo, fits_shared_idle
from gpuconsole.scheduling.kai.api.tasks import DEFAULT_POD_SET, PodInfo
from gpuconsole.scheduling.kai.functions import NodeSet, NoSuitableNodes
from gpuconsole.scheduling.kai.messages import POD_ERRORS, JobError, TaskErrors
from gpuconsole.scheduling.kai.session import WHOLE_GPU, KaiSession
from gpuconsole.scheduling.kai.statement import KaiStatement


class ChosenGpus(Struct, frozen=True):
    """The GPUs chosen for a task, by sharing group; `releasing` if it cannot start on all of them now."""

    groups: tuple[str, ...]
    releasing: bool


def choose_gpus(
    fitting: Sequence[str], node: KaiNodeInfo, task: PodInfo, new_group: Callable[[], str], *, only_pipeline: bool
) -> ChosenGpus | None:
    """Choose as many GPUs as the task needs from `fitting`, in order; None if there are not enough.

    Unused GPUs get a new group each, and count as releasing if `only_pipeline` or if the task cannot start now.
    """
    groups: list[str] = []
    releasing = False
    for gpu in fitting:
        if gpu == WHOLE_GPU:
            releasing = releasing or only_pipeline or not node.is_allocatable(task)
            groups.append(new_group())
        else:
            now = fits_shared_idle(node, task.request, gpu) and node.is_allocatable(task)
            releasing = releasing or not now
            groups.append(gpu)
        if len(groups) == task.request.count:
            return ChosenGpus(tuple(groups), releasing)
    return None


def place_fractional_task(
    session: KaiSession, statement: KaiStatement, task: PodInfo, node: KaiNodeInfo, *, only_pipeline: bool
) -> bool:
    """Place a task that requests part of a GPU; False if the node has too few GPUs for it."""
    chosen = choose_gpus(
        session.gpus_for_sharing(task, node), node, task, session.new_gpu_group, only_pipeline=only_pipeline
    )
    if chosen is None:
        return False
    task.groups = chosen.groups
    if only_pipeline or chosen.releasing:
        statement.pipeline(task, node.name, False)
    else:
        statement.allocate(task, node.name)
    return True


class PlacementAttempt:
    """Tries to place a job in a statement; with `only_pipeline`, tasks are only pipelined, as in trials."""

    def __init__(self, session: KaiSession, statement: KaiStatement, job: PodGroupInfo, *, only_pipeline: bool) -> None:
        self._session, self._statement, self._job, self._only_pipeline = session, statement, job, only_pipeline

    def run(self, nodes: NodeSet) -> bool:
        """Place the job's next tasks; True if all that must be placed together were placed.

        If not, the statement is left as it was.
        """
        session, job = self._session, self._job
        for prepare in session.functions.on_job_placement_start:
            prepare(job)
        tasks = session.tasks_to_allocate(job, not self._only_pipeline)
        over = session.find_exceeded_capacity(job, tasks)
        if over is not None:
            if not self._only_pipeline:
                job.errors.append(JobError(reason=over.reason, messages=(over.message,), sub_group=DEFAULT_POD_SET))
            return False
        return self._place_group(nodes, job.root, tasks)

    def _place_group(self, nodes: NodeSet, group: SubGroup, tasks: Sequence[PodInfo]) -> bool:
        return self._place_on_subsets(nodes, group, group.all_pod_sets(), tasks)

    def _place_on_subsets(
        self, nodes: NodeSet, group: SubGroup | PodSetInfo, pod_sets: Mapping[str, PodSetInfo], tasks: Sequence[PodInfo]
    ) -> bool:
        try:
            subsets = self._session.subset_nodes(self._job, group, pod_sets, tasks, nodes)
        except NoSuitableNodes:
            return False
        for subset in subsets:
            checkpoint = self._statement.checkpoint()
            placed_count = (
                self._place_children(subset, group, tasks)
                if isinstance(group, SubGroup)
                else self._place_tasks(subset, tasks)
            )
            if placed_count:
                return True
            self._statement.rollback(checkpoint)
        return False

    def _place_children(self, nodes: NodeSet, group: SubGroup, tasks: Sequence[PodInfo]) -> bool:
        for child in sorted(group.groups, key=lambda child: child.name):
            below = child.all_pod_sets()
            if not self._place_group(nodes, child, [task for task in tasks if task.set_name in below]):
                return False
        for pod_set in self._sorted_pod_sets(group.pod_sets):
            own = [task for task in tasks if task.set_name == pod_set.name]
            if not self._place_on_subsets(nodes, pod_set, {pod_set.name: pod_set}, own):
                return False
        return True

    def _sorted_pod_sets(self, pod_sets: Sequence[PodSetInfo]) -> list[PodSetInfo]:
        ordered: list[PodSetInfo] = []
        for pod_set in pod_sets:
            at = next((i for i, o in enumerate(ordered) if self._session.pod_set_before(pod_set, o)), len(ordered))
            ordered.insert(at, pod_set)
        return ordered

    def _place_tasks(self, nodes: NodeSet, tasks: Sequence[PodInfo]) -> bool:
        for placed_count, task in enumerate(tasks):
            if not self._place_task(nodes, task):
                _record_failure(self._job, task, placed_count)
                return False
        return True

    def _place_task(self, nodes: NodeSet, task: PodInfo) -> bool:
        session = self._session
        job = session.jobs[task.job]
        refusal = session.prefilter_refusal(task, job)
        if refusal is not None:
            job.add_task_errors(task, TaskErrors(refusal))
            return False
        note = not self._only_pipeline
        ranking = session.ranking(task, nodes)
        if any(session.fits_node(task, node, note) and self._place_on(task, node) for node in ranking.nodes_in_order()):
            return True
        if note:
            session.record_lacking_nodes(task, ranking)
        return False

    def _place_on(self, task: PodInfo, node: KaiNodeInfo) -> bool:
        if task.is_fractional:
            return place_fractional_task(self._session, self._statement, task, node, only_pipeline=self._only_pipeline)
        if not self._only_pipeline and node.is_allocatable(task):
            self._statement.allocate(task, node.name)
        else:
            self._statement.pipeline(task, node.name, not self._only_pipeline)
        return True


def _record_failure(job: PodGroupInfo, task: PodInfo, placed_count: int) -> None:
    """Record on the job why its gang, or one more task, was not placed."""
    errors = job.task_errors.get(task.uid) or TaskErrors("Unable to schedule pod")
    job.errors.append(
        JobError(
            reason=POD_ERRORS,
            messages=(_failure_message(job, task, placed_count, errors.message),),
            sub_group=DEFAULT_POD_SET,
        )
    )


def _failure_message(job: PodGroupInfo, task: PodInfo, placed_count: int, why: str) -> str:
    pod_set = job.pod_sets[task.set_name]
    gang = any(other.minimum > 1 for other in job.pod_sets.values())
    if not gang or pod_set.active_used_tasks >= pod_set.minimum:
        return f"Resources were not found for pod {task.namespace}/{task.name} due to: {why}"
    if len(job.pod_sets) == 1 and pod_set.name == DEFAULT_POD_SET:
        return (
            f"Resources were found for {placed_count} pods while {pod_set.minimum} are required for gang scheduling."
            f" Additional pods cannot be scheduled due to: {why}"
        )
    return (
        f"Resources were found for {placed_count} pods from all sub-groups while sub-group {pod_set.name} requires"
        f" {pod_set.minimum} pods for gang scheduling. Additional pods cannot be scheduled in this sub-group due to:"
        f" {why}"
    )
