"""Transaction of evictions, allocations and pipelined tasks in a session, to be committed or discarded."""

from collections.abc import Iterable
from enum import Enum, auto
from typing import TYPE_CHECKING

from msgspec import Struct

from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.task import TaskInfo, TaskStatus

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.session import VolcanoSession


class Doing(Enum):
    """Kind of a step."""

    EVICT = auto()
    PIPELINE = auto()
    ALLOCATE = auto()


class StatementStep(Struct, frozen=True):
    """One step of a statement."""

    doing: Doing
    task: TaskInfo
    reason: str = ""
    """The action that evicts the task."""
    by: str = ""
    """Key of the preempting task; empty if the eviction is for a gang."""


class CommittedEviction(Struct, frozen=True):
    """An eviction that was committed."""

    task: TaskInfo
    action: str
    by: str = ""


class CannotPlace(Exception):
    """The node rejects the task; its placement was undone."""


class VolcanoStatement:
    """Steps that are committed or undone together. Mutates the session at once; `commit` makes steps final, `discard`
    undoes them.

    Volcano 1.15 framework/statement.go.
    """

    def __init__(self, session: "VolcanoSession") -> None:
        self._session = session
        self.operations: list[StatementStep] = []

    def evict(self, task: TaskInfo, reason: str, by: str = "") -> None:
        """Evict the task for the task `by`; its resources are releasing from now on."""
        self._session.move(task, TaskStatus.RELEASING)
        self._session.deallocated(task)
        self.operations.append(StatementStep(Doing.EVICT, task, reason, by))

    def pipeline(self, task: TaskInfo, node: str, *, eviction_occurred: bool) -> None:
        """Reserve releasing resources of a node for the task.

        Raises:
            CannotPlace: the node rejects the task.
        """
        task.eviction_occurred = eviction_occurred
        self._place(task, node, TaskStatus.PIPELINED)
        self.operations.append(StatementStep(Doing.PIPELINE, task))

    def allocate(self, task: TaskInfo, node: NodeInfo) -> None:
        """Allocate the task to a node.

        Raises:
            CannotPlace: the node rejects the task.
        """
        self._place(task, node.name, TaskStatus.ALLOCATED)
        self.operations.append(StatementStep(Doing.ALLOCATE, task))

    def _place(self, task: TaskInfo, node: str, status: TaskStatus) -> None:
        problem = self._session.settle(task, node, status)
        self._session.allocated(task)
        if problem:
            self.take_back(task)
            raise CannotPlace(problem)

    def take_back(self, task: TaskInfo) -> None:
        """Undo the task's placement."""
        session = self._session
        session.update_status(task, TaskStatus.PENDING)
        node = session.nodes.get(task.node_name)
        if node is not None:
            node.remove_task(task)
        session.deallocated(task)
        task.node_name = task.hyper_node = ""

    def discard(self) -> None:
        """Undo the steps, the last first; the tasks keep what was tried as their last transaction."""
        for operation in reversed(self.operations):
            operation.task.remember()
            if operation.doing is Doing.EVICT:
                self._session.move(operation.task, TaskStatus.RUNNING)
                self._session.allocated(operation.task)
            else:
                self.take_back(operation.task)
        self.operations = []

    def commit(self) -> None:
        """Make the steps final: evict victims and bind allocated tasks. Reservations last for this session only."""
        for operation in self.operations:
            operation.task.last_transaction = None
            if operation.doing is Doing.EVICT:
                self._session.evictions.append(CommittedEviction(operation.task, operation.reason, operation.by))
            elif operation.doing is Doing.ALLOCATE:
                self._session.bind(operation.task)
        self.operations = []

    def merge(self, other: "VolcanoStatement") -> None:
        """Move the steps of another statement to this one."""
        self.operations += other.operations
        other.operations = []

    def recover(self, saved: Iterable[StatementStep]) -> None:
        """Repeat saved steps.

        Raises:
            CannotPlace: a node rejects its task now.
        """
        for operation in saved:
            task = operation.task
            match operation.doing:
                case Doing.EVICT:
                    self.evict(task, operation.reason, operation.by)
                case Doing.PIPELINE:
                    self.pipeline(task, task.node_name, eviction_occurred=task.eviction_occurred)
                case Doing.ALLOCATE:
                    self.allocate(task, self._session.nodes[task.node_name])


def saved(statements: Iterable[VolcanoStatement]) -> list[StatementStep]:
    """The steps of statements, with copies of their tasks as they are now."""
    result = []
    for operation in (operation for statement in statements for operation in statement.operations):
        task = operation.task.clone()
        task.eviction_occurred = operation.task.eviction_occurred
        result.append(StatementStep(operation.doing, task, operation.reason, operation.by))
    return result
