"""Placement of a job's tasks, sub-group by sub-group, each on the best set of nodes (KAI 0.13 actions/common).

A task that requests part of a GPU gets GPUs that others share, or new ones (`choose_gpus`, KAI 0.13 gpu_sharing).

A `KaiStatement` is a transaction of placements and evictions that is committed as a whole or undone (KAI 0.13
framework/statement).
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto

from msgspec import Struct

from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo, PodSetInfo, SubGroup
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo, fits_shared_idle
from gpuconsole.scheduling.kai.api.tasks import DEFAULT_POD_SET, GpuRequestType, KaiPodStatus, PodInfo
from gpuconsole.scheduling.kai.functions import NodeSet, NoSuitableNodes
from gpuconsole.scheduling.kai.messages import POD_ERRORS, JobError, TaskErrors
from gpuconsole.scheduling.kai.session import WHOLE_GPU, EvictedTask, KaiSession, PipelinedTask


class OperationKind(Enum):
    """Kind of a change in a statement; UNDO undoes an earlier one."""

    EVICT = auto()
    PIPELINE = auto()
    ALLOCATE = auto()
    UNDO = auto()


class KaiOperation:
    """One change in a statement, with functions that undo and redo it."""

    def __init__(
        self,
        kind: OperationKind,
        task: PodInfo | None,
        undo: Callable[[], None],
        redo: Callable[[], None],
        evicted: EvictedTask | None = None,
    ) -> None:
        self.kind, self.task, self.undo, self.redo, self.evicted = kind, task, undo, redo, evicted


class KaiStatement:
    """Evictions and placements of tasks that are committed or undone together. Mutates the session at once."""

    def __init__(self, session: KaiSession) -> None:
        self._session = session
        self._operations: list[KaiOperation] = []
        self._undone: dict[int, int] = {}
        """Index of an operation → index of the UNDO operation that first undid it."""

    def _job(self, task: PodInfo) -> PodGroupInfo:
        return self._session.jobs[task.job]

    def _node(self, node_name: str) -> KaiNodeInfo:
        return self._session.nodes[node_name]

    # Changes

    def evict(self, evicted: EvictedTask) -> None:
        """Evict a task; its resources become releasing, not idle."""
        task = evicted.task
        node = self._node(task.node)
        status, groups, virtual, devices = task.status, task.groups, task.is_virtual_status, task.devices

        def undo() -> None:
            self._job(task).update_status(task, status)
            task.groups, task.is_virtual_status, task.devices = groups, virtual, devices
            if task.uid in node.tasks:
                node.update_task(task)
            else:
                node.add_task(task)
            self._session.call_handlers(self._session.functions.on_allocate, task)

        self._job(task).update_status(task, KaiPodStatus.RELEASING)
        node.update_task(task)
        self._session.call_handlers(self._session.functions.on_deallocate, task)
        self._append(OperationKind.EVICT, task, undo, lambda: self.evict(evicted), evicted)
        task.is_virtual_status = True

    def pipeline(self, task: PodInfo, node_name: str, keep_eviction: bool) -> None:
        """Pipeline a task to a node; if this statement evicted it from there, undo the eviction instead.

        The eviction stays with `keep_eviction`, or if the task would move to other shared GPUs of the node.
        """
        node = self._node(node_name)
        on_node = node.tasks.get(task.uid)
        moves = on_node is not None and _would_change_gpus(task, on_node)
        if on_node is not None and not keep_eviction and not moves:
            task.groups = on_node.groups
            self._undo_evict(task)
            return
        status, where, virtual, devices = task.status, task.node, task.is_virtual_status, task.devices
        groups = on_node.groups if on_node is not None and moves else task.groups

        def undo() -> None:
            self._job(task).update_status(task, status)
            there = self._node(task.node)
            task.node, task.groups, task.is_virtual_status, task.devices = where, groups, virtual, devices
            there.remove_task(task.uid)
            if on_node is not None and moves:
                # The task is still releasing the GPUs that it was to move from; KAI drops it here.
                there.tasks[task.uid] = on_node
            self._session.call_handlers(self._session.functions.on_deallocate, task)

        self._job(task).update_status(task, KaiPodStatus.PIPELINED)
        task.node = node_name
        if moves:
            node.add_task(task, allow_more_gpus=True)
        elif on_node is not None:
            node.update_task(task)
        else:
            node.add_task(task)
        self._session.call_handlers(self._session.functions.on_allocate, task)
        self._append(OperationKind.PIPELINE, task, undo, lambda: self.pipeline(task, node_name, True))
        task.is_virtual_status = True

    def allocate(self, task: PodInfo, node_name: str) -> None:
        """Place a task on idle resources."""
        virtual = task.is_virtual_status
        self._job(task).update_status(task, KaiPodStatus.ALLOCATED)
        task.node = node_name
        self._node(node_name).add_task(task)
        self._session.call_handlers(self._session.functions.on_allocate, task)
        self._append(
            OperationKind.ALLOCATE,
            task,
            lambda: self._undo_allocate(task, virtual),
            lambda: self.allocate(task, node_name),
        )
        task.is_virtual_status = True

    def _undo_allocate(self, task: PodInfo, virtual: bool) -> None:
        self._job(task).update_status(task, KaiPodStatus.PENDING)
        self._node(task.node).remove_task(task.uid)
        task.node, task.is_virtual_status = "", virtual
        self._session.call_handlers(self._session.functions.on_deallocate, task)

    def pipeline_all(self, job: str) -> None:
        """Pipeline all allocated tasks of a job, which cannot start before its pipelined ones."""
        placed = [op for op in self._operations if op.kind is OperationKind.ALLOCATE and op.task and op.task.job == job]
        for operation in placed:
            task = operation.task
            if task is not None:
                node_name = task.node
                self._undo_allocate(task, True)
                self.pipeline(task, node_name, True)
        self._operations = [operation for operation in self._operations if operation not in placed]
        self._undone = {}

    # Undoing

    def checkpoint(self) -> int:
        """Number of the current state, to which `rollback` can return."""
        return len(self._operations)

    def rollback(self, checkpoint: int) -> None:
        """Undo all changes since the checkpoint."""
        for index in range(len(self._operations) - 1, checkpoint - 1, -1):
            self._undo_operation(index)
        del self._operations[checkpoint:]
        self._undone = {index: at for index, at in self._undone.items() if at < checkpoint}

    def discard(self) -> None:
        """Undo everything."""
        self.rollback(0)

    def _append(
        self,
        kind: OperationKind,
        task: PodInfo,
        undo: Callable[[], None],
        redo: Callable[[], None],
        evicted: EvictedTask | None = None,
    ) -> None:
        self._operations.append(KaiOperation(kind, task, undo, redo, evicted))

    def _undo_operation(self, index: int) -> None:
        if not self._is_valid(index):
            return
        operation = self._operations[index]
        operation.undo()
        self._undone.setdefault(index, len(self._operations))
        self._operations.append(KaiOperation(OperationKind.UNDO, None, operation.redo, operation.undo))

    def _is_valid(self, index: int) -> bool:
        """True unless the operation was undone, and the undoing was not undone."""
        at = self._undone.get(index)
        return at is None or not self._is_valid(at)

    def _undo_evict(self, task: PodInfo) -> None:
        for index, operation in enumerate(self._operations):
            if operation.kind is OperationKind.EVICT and operation.task is task and self._is_valid(index):
                self._undo_operation(index)
                return

    # Commit

    def commit(self) -> None:
        """Make the changes that were not undone decisions of the session."""
        for index, operation in enumerate(self._operations):
            if operation.kind is OperationKind.UNDO or not self._is_valid(index) or operation.task is None:
                continue
            self._commit(operation, operation.task)
        self._operations, self._undone = [], {}

    def _commit(self, operation: KaiOperation, task: PodInfo) -> None:
        match operation.kind:
            case OperationKind.EVICT:
                task.is_virtual_status = False
                if operation.evicted is not None:
                    self._session.decisions.append(operation.evicted)
            case OperationKind.PIPELINE:
                self._session.decisions.append(PipelinedTask(task))
            case OperationKind.ALLOCATE:
                self._session.bind(task)
            case OperationKind.UNDO:
                pass


def _would_change_gpus(task: PodInfo, on_node: PodInfo) -> bool:
    """True if a task would share other GPUs of the node than it did."""
    return (
        bool(task.groups)
        and task.received_type is GpuRequestType.FRACTION
        and task.groups not in (("-1",), on_node.groups)
    )


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
