"""Transaction of placements and evictions that is committed as a whole or undone (KAI 0.13 framework/statement)."""

from collections.abc import Callable
from enum import Enum, auto

from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.tasks import KaiPodStatus, PodInfo, Sort
from gpuconsole.scheduling.kai.session import EvictedTask, KaiSession, Pipelined


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

    def _node(self, name: str) -> KaiNodeInfo:
        return self._session.nodes[name]

    # Changes

    def evict(self, evicted: EvictedTask) -> None:
        """Evict a task; its resources become releasing, not idle."""
        task = evicted.task
        node = self._node(task.node)
        status, groups, virtual, devices = task.status, task.groups, task.virtual, task.devices

        def undo() -> None:
            self._job(task).update(task, status)
            task.groups, task.virtual, task.devices = groups, virtual, devices
            if task.uid in node.tasks:
                node.update(task)
            else:
                node.add(task)
            self._session.tell(self._session.functions.allocated, task)

        self._job(task).update(task, KaiPodStatus.RELEASING)
        node.update(task)
        self._session.tell(self._session.functions.deallocated, task)
        self._append(OperationKind.EVICT, task, undo, lambda: self.evict(evicted), evicted)
        task.virtual = True

    def pipeline(self, task: PodInfo, name: str, renew: bool) -> None:
        """Pipeline a task to a node; if this statement evicted it from there, undo the eviction instead.

        The eviction stays with `renew`, or if the task would move to other shared GPUs of the node.
        """
        node = self._node(name)
        seated = node.tasks.get(task.uid)
        moves = seated is not None and _moves(task, seated)
        if seated is not None and not renew and not moves:
            task.groups = seated.groups
            self._unevict(task)
            return
        status, where, virtual, devices = task.status, task.node, task.virtual, task.devices
        groups = seated.groups if seated is not None and moves else task.groups

        def undo() -> None:
            self._job(task).update(task, status)
            there = self._node(task.node)
            task.node, task.groups, task.virtual, task.devices = where, groups, virtual, devices
            there.remove(task.uid)
            if seated is not None and moves:
                # The task is still releasing the GPUs that it was to move from; KAI drops it here.
                there.tasks[task.uid] = seated
            self._session.tell(self._session.functions.deallocated, task)

        self._job(task).update(task, KaiPodStatus.PIPELINED)
        task.node = name
        if moves:
            node.add(task, elsewhere=True)
        elif seated is not None:
            node.update(task)
        else:
            node.add(task)
        self._session.tell(self._session.functions.allocated, task)
        self._append(OperationKind.PIPELINE, task, undo, lambda: self.pipeline(task, name, True))
        task.virtual = True

    def allocate(self, task: PodInfo, name: str) -> None:
        """Place a task on idle resources."""
        virtual = task.virtual
        self._job(task).update(task, KaiPodStatus.ALLOCATED)
        task.node = name
        self._node(name).add(task)
        self._session.tell(self._session.functions.allocated, task)
        self._append(
            OperationKind.ALLOCATE, task, lambda: self._unallocate(task, virtual), lambda: self.allocate(task, name)
        )
        task.virtual = True

    def _unallocate(self, task: PodInfo, virtual: bool) -> None:
        self._job(task).update(task, KaiPodStatus.PENDING)
        self._node(task.node).remove(task.uid)
        task.node, task.virtual = "", virtual
        self._session.tell(self._session.functions.deallocated, task)

    def pipeline_all(self, job: str) -> None:
        """Pipeline all allocated tasks of a job, which cannot start before its pipelined ones."""
        placed = [op for op in self._operations if op.kind is OperationKind.ALLOCATE and op.task and op.task.job == job]
        for operation in placed:
            task = operation.task
            if task is not None:
                name = task.node
                self._unallocate(task, True)
                self.pipeline(task, name, True)
        self._operations = [operation for operation in self._operations if operation not in placed]
        self._undone = {}

    # Undoing

    def checkpoint(self) -> int:
        """Number of the current state, to which `rollback` can return."""
        return len(self._operations)

    def rollback(self, checkpoint: int) -> None:
        """Undo all changes since the checkpoint."""
        for index in range(len(self._operations) - 1, checkpoint - 1, -1):
            self._undo(index)
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

    def _undo(self, index: int) -> None:
        if not self._valid(index):
            return
        operation = self._operations[index]
        operation.undo()
        self._undone.setdefault(index, len(self._operations))
        self._operations.append(KaiOperation(OperationKind.UNDO, None, operation.redo, operation.undo))

    def _valid(self, index: int) -> bool:
        """True unless the operation was undone, and the undoing was not undone."""
        at = self._undone.get(index)
        return at is None or not self._valid(at)

    def _unevict(self, task: PodInfo) -> None:
        for index, operation in enumerate(self._operations):
            if operation.kind is OperationKind.EVICT and operation.task is task and self._valid(index):
                self._undo(index)
                return

    # Commit

    def commit(self) -> None:
        """Make the changes that were not undone decisions of the session."""
        for index, operation in enumerate(self._operations):
            if operation.kind is OperationKind.UNDO or not self._valid(index) or operation.task is None:
                continue
            self._commit(operation, operation.task)
        self._operations, self._undone = [], {}

    def _commit(self, operation: KaiOperation, task: PodInfo) -> None:
        match operation.kind:
            case OperationKind.EVICT:
                task.virtual = False
                if operation.evicted is not None:
                    self._session.decided.append(operation.evicted)
            case OperationKind.PIPELINE:
                self._session.decided.append(Pipelined(task))
            case OperationKind.ALLOCATE:
                self._session.bind(task)
            case OperationKind.UNDO:
                pass


def _moves(task: PodInfo, seated: PodInfo) -> bool:
    """True if a task would share other GPUs of the node than it did."""
    return bool(task.groups) and task.received is Sort.FRACTION and task.groups not in (("-1",), seated.groups)
