"""Tasks that a job still has to place: its sub-jobs in order, and the tasks of each."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cmp_to_key

from gpuconsole.scheduling.heap import Heap
from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.status import TaskStatus
from gpuconsole.scheduling.volcano.api.sub_job import SubJobInfo
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.session import VolcanoSession


class Worksheet:
    """Sub-jobs with tasks to place, and these tasks by sub-job. Mutates as they are taken out."""

    def __init__(self, sub_jobs: Heap[SubJobInfo], tasks: dict[str, Heap[TaskInfo]]) -> None:
        self.sub_jobs = sub_jobs
        self.tasks = tasks

    def __bool__(self) -> bool:
        return bool(self.sub_jobs)

    def clone(self) -> "Worksheet":
        """An independent copy."""
        return Worksheet(self.sub_jobs.clone(), {uid: tasks.clone() for uid, tasks in self.tasks.items()})

    def take(self, other: "Worksheet") -> None:
        """Continue from the state of another worksheet."""
        self.sub_jobs, self.tasks = other.sub_jobs, other.tasks


def worksheet(session: VolcanoSession, job: JobInfo, wanted: Callable[[TaskInfo], bool]) -> Worksheet:
    """The worksheet of a job's pending tasks that are `wanted`.

    The sub-jobs that the job still needs to run come first (organizeJobWorksheet).
    """
    required = _required(session, job)

    def first(left: SubJobInfo, right: SubJobInfo) -> bool:
        if (left.uid in required) != (right.uid in required):
            return left.uid in required
        return session.sub_job_first(left, right)

    sub_jobs: Heap[SubJobInfo] = Heap(first)
    tasks: dict[str, Heap[TaskInfo]] = {}
    for uid, sub_job in sorted(job.sub_jobs.items()):
        pending = [task for _, task in sorted(sub_job.of_status(TaskStatus.PENDING).items()) if wanted(task)]
        if pending:
            sub_jobs.push(sub_job)
            tasks[uid] = Heap(session.task_first, pending)
    return Worksheet(sub_jobs, tasks)


def drained(tasks: Heap[TaskInfo]) -> Iterator[TaskInfo]:
    """The tasks in order, without removing them."""
    copy = tasks.clone()
    while copy:
        yield copy.pop()


def _required(session: VolcanoSession, job: JobInfo) -> set[str]:
    ready: Counter[str] = Counter()
    open_ones = []
    for _, sub_job in sorted(job.sub_jobs.items()):
        if session.sub_job_ready(job, sub_job):
            ready[sub_job.gid] += 1
        else:
            open_ones.append(sub_job)
    open_ones.sort(key=cmp_to_key(lambda left, right: -1 if session.sub_job_first(left, right) else 1))
    required = set()
    for sub_job in open_ones:
        if ready[sub_job.gid] < job.min_sub_jobs.get(sub_job.gid, 0):
            required.add(sub_job.uid)
            ready[sub_job.gid] += 1
    return required
