"""Tasks by status with gang conditions: the common part of jobs and sub-jobs."""

from collections.abc import Iterable, Mapping

from gpuconsole.scheduling.volcano.api.status import READY_STATUS, VALID_STATUS, TaskStatus
from gpuconsole.scheduling.volcano.api.task import TaskInfo

NONE: Mapping[str, TaskInfo] = {}


class Gang:
    """Tasks of which `min_available` have to run together. Mutates by `index` and `unindex`."""

    __slots__ = ("min_available", "task_status_index", "tasks")

    def __init__(self) -> None:
        self.min_available = 0
        self.tasks: dict[str, TaskInfo] = {}
        """Task by uid."""
        self.task_status_index: dict[TaskStatus, dict[str, TaskInfo]] = {}
        """Task by status and uid; only statuses that some task has."""

    def of_status(self, status: TaskStatus) -> Mapping[str, TaskInfo]:
        """The tasks of one status."""
        return self.task_status_index.get(status, NONE)

    def index(self, task: TaskInfo) -> None:
        """Add a task under its current status."""
        self.tasks[task.uid] = task
        self.task_status_index.setdefault(task.status, {})[task.uid] = task

    def unindex(self, task: TaskInfo) -> None:
        """Remove a task, which must still have the status that it was added with."""
        self.tasks.pop(task.uid, None)
        tasks = self.task_status_index.get(task.status)
        if tasks is not None:
            tasks.pop(task.uid, None)
            if not tasks:
                del self.task_status_index[task.status]

    def count(self, statuses: Iterable[TaskStatus]) -> int:
        """How many tasks have one of the statuses."""
        index = self.task_status_index
        return sum(len(index[status]) for status in statuses if status in index)

    @property
    def ready_task_num(self) -> int:
        """Number of tasks that are allocated, being bound, bound, running or succeeded."""
        return self.count(READY_STATUS)

    @property
    def waiting_task_num(self) -> int:
        """Number of tasks that are pipelined to releasing resources."""
        return len(self.of_status(TaskStatus.PIPELINED))

    @property
    def pending_best_effort_num(self) -> int:
        """Number of pending best-effort tasks, which backfill places."""
        return sum(task.best_effort for task in self.of_status(TaskStatus.PENDING).values())

    @property
    def valid_task_num(self) -> int:
        """Number of tasks that count towards the minimum now or may later."""
        return self.count(VALID_STATUS)

    def is_ready(self) -> bool:
        """True if ready tasks and pending best-effort ones reach the minimum (IsReady)."""
        return self.ready_task_num + self.pending_best_effort_num >= self.min_available

    def is_pipelined(self) -> bool:
        """True if ready, pipelined and pending best-effort tasks reach the minimum (IsPipelined)."""
        return self.waiting_task_num + self.ready_task_num + self.pending_best_effort_num >= self.min_available
