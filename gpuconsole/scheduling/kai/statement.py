"""Transaction of placements and evictions that is committed as a whole or undone (KAI 0.13 framework/statement)."""

from collections.abc import Callable
from enum import Enum, auto

from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.tasks import GpuRequestType, KaiPodStatus, PodInfo
from gpuconsole.scheduling.kai.session import EvictedTask, KaiSession, PipelinedTask


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
