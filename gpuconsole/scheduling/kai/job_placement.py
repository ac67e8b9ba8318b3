"""Placement of a job's tasks, sub-group by sub-group, each on the best set of nodes (KAI 0.13 actions/common).

A task that requests part of a GPU gets GPUs that others share, or new ones (`choose_gpus`, KAI 0.13 gpu_sharing).
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo, PodSetInfo, SubGroup
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo, fits_shared_now
from gpuconsole.scheduling.kai.api.tasks import DEFAULT_POD_SET, PodInfo
from gpuconsole.scheduling.kai.functions import NodeSet, NoNodes
from gpuconsole.scheduling.kai.messages import POD_ERRORS, JobError, TaskErrors
from gpuconsole.scheduling.kai.session import WHOLE_GPU, KaiSession
from gpuconsole.scheduling.kai.statement import KaiStatement


class Chosen(Struct, frozen=True):
    """The GPUs chosen for a task, by sharing group; `releasing` if it cannot start on all of them now."""

    groups: tuple[str, ...]
    releasing: bool


def choose_gpus(
    fitting: Sequence[str], node: KaiNodeInfo, task: PodInfo, new_group: Callable[[], str], *, waiting: bool
) -> Chosen | None:
    """Choose as many GPUs as the task needs from `fitting`, in order; None if there are not enough.

    Unused GPUs get a new group each, and count as releasing if `waiting` or if the task cannot start now.
    """
    groups: list[str] = []
    releasing = False
    for gpu in fitting:
        if gpu == WHOLE_GPU:
            releasing = releasing or waiting or not node.fits_idle(task)
            groups.append(new_group())
        else:
            now = fits_shared_now(node, task.request, gpu) and node.fits_idle(task)
            releasing = releasing or not now
            groups.append(gpu)
        if len(groups) == task.request.count:
            return Chosen(tuple(groups), releasing)
    return None


def place_on_shared(
    session: KaiSession, statement: KaiStatement, task: PodInfo, node: KaiNodeInfo, *, waiting: bool
) -> bool:
    """Place a task that requests part of a GPU; False if the node has too few GPUs for it."""
    chosen = choose_gpus(session.gpus_for(task, node), node, task, session.new_group, waiting=waiting)
    if chosen is None:
        return False
    task.groups = chosen.groups
    if waiting or chosen.releasing:
        statement.pipeline(task, node.name, False)
    else:
        statement.allocate(task, node.name)
    return True


class PlacementAttempt:
    """Tries to place a job in a statement; with `waiting`, tasks are only pipelined, as in trials."""

    def __init__(self, session: KaiSession, statement: KaiStatement, job: PodGroupInfo, *, waiting: bool) -> None:
        self._session, self._statement, self._job, self._waiting = session, statement, job, waiting

    def run(self, nodes: NodeSet) -> bool:
        """Place the job's next tasks; True if all that must be placed together were placed.

        If not, the statement is left as it was.
        """
        session, job = self._session, self._job
        for prepare in session.functions.before_job:
            prepare(job)
        tasks = session.choose(job, not self._waiting)
        over = session.over_capacity(job, tasks)
        if over is not None:
            if not self._waiting:
                job.errors.append(JobError(reason=over.reason, messages=(over.message,), sub_group=DEFAULT_POD_SET))
            return False
        return self._group(nodes, job.root, tasks)

    def _group(self, nodes: NodeSet, group: SubGroup, tasks: Sequence[PodInfo]) -> bool:
        return self._on_subsets(nodes, group, group.all_pod_sets(), tasks)

    def _on_subsets(
        self, nodes: NodeSet, group: SubGroup | PodSetInfo, pod_sets: Mapping[str, PodSetInfo], tasks: Sequence[PodInfo]
    ) -> bool:
        try:
            subsets = self._session.subsets(self._job, group, pod_sets, tasks, nodes)
        except NoNodes:
            return False
        for subset in subsets:
            checkpoint = self._statement.checkpoint()
            placed = self._children(subset, group, tasks) if isinstance(group, SubGroup) else self._tasks(subset, tasks)
            if placed:
                return True
            self._statement.rollback(checkpoint)
        return False

    def _children(self, nodes: NodeSet, group: SubGroup, tasks: Sequence[PodInfo]) -> bool:
        for child in sorted(group.groups, key=lambda child: child.name):
            below = child.all_pod_sets()
            if not self._group(nodes, child, [task for task in tasks if task.set_name in below]):
                return False
        for pod_set in self._by_order(group.pod_sets):
            own = [task for task in tasks if task.set_name == pod_set.name]
            if not self._on_subsets(nodes, pod_set, {pod_set.name: pod_set}, own):
                return False
        return True

    def _by_order(self, pod_sets: Sequence[PodSetInfo]) -> list[PodSetInfo]:
        ordered: list[PodSetInfo] = []
        for pod_set in pod_sets:
            at = next((i for i, o in enumerate(ordered) if self._session.pod_set_before(pod_set, o)), len(ordered))
            ordered.insert(at, pod_set)
        return ordered

    def _tasks(self, nodes: NodeSet, tasks: Sequence[PodInfo]) -> bool:
        for placed, task in enumerate(tasks):
            if not self._task(nodes, task):
                _note_failure(self._job, task, placed)
                return False
        return True

    def _task(self, nodes: NodeSet, task: PodInfo) -> bool:
        session = self._session
        job = session.jobs[task.job]
        refusal = session.refusal(task, job)
        if refusal is not None:
            job.note(task, TaskErrors(refusal))
            return False
        note = not self._waiting
        ranking = session.ranking(task, nodes)
        if any(session.fits(task, node, note) and self._on(task, node) for node in ranking.in_order()):
            return True
        if note:
            session.note_unfit(task, ranking)
        return False

    def _on(self, task: PodInfo, node: KaiNodeInfo) -> bool:
        if task.shares:
            return place_on_shared(self._session, self._statement, task, node, waiting=self._waiting)
        if not self._waiting and node.fits_idle(task):
            self._statement.allocate(task, node.name)
        else:
            self._statement.pipeline(task, node.name, not self._waiting)
        return True


def _note_failure(job: PodGroupInfo, task: PodInfo, placed: int) -> None:
    """Record on the job why its gang, or one more task, was not placed."""
    errors = job.task_errors.get(task.uid) or TaskErrors("Unable to schedule pod")
    job.errors.append(
        JobError(reason=POD_ERRORS, messages=(_failure(job, task, placed, errors.message),), sub_group=DEFAULT_POD_SET)
    )


def _failure(job: PodGroupInfo, task: PodInfo, placed: int, why: str) -> str:
    pod_set = job.pod_sets[task.set_name]
    gang = any(other.minimum > 1 for other in job.pod_sets.values())
    if not gang or pod_set.active_used >= pod_set.minimum:
        return f"Resources were not found for pod {task.namespace}/{task.name} due to: {why}"
    if len(job.pod_sets) == 1 and pod_set.name == DEFAULT_POD_SET:
        return (
            f"Resources were found for {placed} pods while {pod_set.minimum} are required for gang scheduling."
            f" Additional pods cannot be scheduled due to: {why}"
        )
    return (
        f"Resources were found for {placed} pods from all sub-groups while sub-group {pod_set.name} requires"
        f" {pod_set.minimum} pods for gang scheduling. Additional pods cannot be scheduled in this sub-group due to:"
        f" {why}"
    )
