"""Minimum members of a job's roles: minTaskMember applies besides minMember, unless minMember is smaller than its
sum.
"""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gpuconsole.scheduling.volcano.api.status import READY_STATUS, VALID_STATUS, TaskStatus

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.api.job import JobInfo


class Roles:
    """Checks of one job's roles against its current tasks."""

    __slots__ = ("job",)

    def __init__(self, job: "JobInfo") -> None:
        self.job = job

    @property
    def judged(self) -> bool:
        """False if the job's minimum is below the sum of its roles' minimums: then only the job's counts."""
        return self.job.min_available >= self.job.task_min_available_total

    def valid(self) -> bool:
        """True if there are enough tasks of each role (CheckTaskValid)."""
        return not self.judged or self._enough(self._count(VALID_STATUS))

    def ready(self) -> bool:
        """True if enough tasks of each role are ready or best effort (CheckTaskReady)."""
        return not self.judged or self._enough(self._count(READY_STATUS) + self._best_effort())

    def pipelined(self) -> bool:
        """True if enough tasks of each role are ready, pipelined or best effort (CheckTaskPipelined)."""
        statuses = READY_STATUS | {TaskStatus.PIPELINED}
        return not self.judged or self._enough(self._count(statuses) + self._best_effort())

    def starving(self) -> bool:
        """True if a role has too few ready or pipelined tasks, or if roles are not judged (CheckTaskStarving)."""
        return not self.judged or not self._enough(self._count(READY_STATUS | {TaskStatus.PIPELINED}))

    def continue_allocating(self, sub_job: str) -> bool:
        """True if the job can still become ready after a task that fits no node (NeedContinueAllocating)."""
        job = self.job
        if job.min_available == len(job.tasks):
            return False
        part = job.sub_jobs.get(sub_job)
        if part is not None and part.min_available >= len(part.tasks):
            return False
        if job.contains_sub_job_policy:
            return True
        failed = job.failed_roles(sub_job)
        if not self.judged:
            left = sum(task.role not in failed for task in job.of_status(TaskStatus.PENDING).values())
            return job.ready_task_num + left >= job.min_available
        placed = self._count(READY_STATUS) + self._best_effort()
        return all(placed[role] >= job.task_min_available.get(role, 0) for role in failed)

    def _count(self, statuses: Iterable[TaskStatus]) -> Counter[str]:
        return Counter(task.role for status in statuses for task in self.job.of_status(status).values())

    def _best_effort(self) -> Counter[str]:
        return Counter(task.role for task in self.job.of_status(TaskStatus.PENDING).values() if task.best_effort)

    def _enough(self, counts: Counter[str]) -> bool:
        return all(counts[role] >= least for role, least in self.job.task_min_available.items())
