"""gang and priority plugins: minimum members of a gang, and the order of jobs and tasks by priority.

gang: a job starts when enough of its tasks can, and is not preempted below its gang's minimum. priority: victims have a
lower priority than the preemptor.
"""

from collections.abc import Iterable
from typing import ClassVar

from gpuconsole.scheduling.volcano.api.job import Gang, JobInfo, SubJobInfo
from gpuconsole.scheduling.volcano.api.task import ALLOCATED_STATUSES, TaskInfo, TaskStatus
from gpuconsole.scheduling.volcano.config import VolcanoArguments
from gpuconsole.scheduling.volcano.session import VolcanoPlugin, VolcanoSession
from gpuconsole.scheduling.volcano.session_plugins import (
    PERMIT,
    REJECT,
    EvictionContext,
    InvalidJob,
    PodGroupStatusCondition,
    VictimRequester,
    VictimsVote,
)

NOT_ENOUGH_PODS_OF_TASK = "NotEnoughPodsOfTask"
NOT_ENOUGH_PODS = "NotEnoughTasks"
NOT_ENOUGH_RESOURCES = "NotEnoughResources"


class GangPlugin:
    """gang plugin: starts a job when enough of its tasks can, and protects its minimum (Volcano 1.15)."""

    name: ClassVar[str] = "gang"

    def __init__(self, arguments: VolcanoArguments) -> None:
        pass

    def on_session_open(self, session: VolcanoSession) -> None:
        functions, name = session.functions, self.name

        def spared(_: TaskInfo, candidates: list[TaskInfo]) -> VictimsVote:
            return _above_minimum(session, candidates), PERMIT

        functions.job_valid[name] = _validate_job
        functions.preemptable[name] = functions.reclaimable[name] = spared
        functions.unified_evictable[name] = _all_candidates
        functions.job_order[name] = functions.sub_job_order[name] = _compare_readiness
        functions.job_ready[name] = _is_job_ready
        functions.sub_job_ready[name] = Gang.is_ready
        functions.job_pipelined[name] = lambda job: PERMIT if _is_job_pipelined(job) else REJECT
        functions.sub_job_pipelined[name] = lambda sub_job: PERMIT if sub_job.is_pipelined() else REJECT
        functions.job_starving[name] = JobInfo.is_starving

    def on_session_close(self, session: VolcanoSession) -> None:
        """Set a condition on each job with tasks: Scheduled if its gang is ready, else Unschedulable."""
        for job in session.jobs.values():
            if not job.tasks:
                continue
            if job.is_ready():
                reason = "tasks in gang are ready to be scheduled"
                session.conditions[job.uid] = PodGroupStatusCondition("Scheduled", reason, "")
                continue
            lacking = job.min_available - job.ready_task_num - _tasks_placed_in_trial(job)
            message = f"{lacking}/{len(job.tasks)} tasks in gang unschedulable: {job.fit_message}"
            session.conditions[job.uid] = PodGroupStatusCondition("Unschedulable", NOT_ENOUGH_RESOURCES, message)


def _validate_job(job: JobInfo) -> InvalidJob | None:
    if not job.role_minimums.are_valid():
        return InvalidJob(NOT_ENOUGH_PODS_OF_TASK, "Not enough valid pods of each task for gang-scheduling")
    if not job.check_sub_job_valid():
        return InvalidJob(NOT_ENOUGH_PODS_OF_TASK, "Not enough valid subGroups of each task for gang-scheduling")
    if job.valid_task_num < job.min_available:
        return InvalidJob(
            NOT_ENOUGH_PODS,
            f"Not enough valid tasks for gang-scheduling, valid: {job.valid_task_num}, min: {job.min_available}",
        )
    return None


def _above_minimum(session: VolcanoSession, candidates: Iterable[TaskInfo]) -> list[TaskInfo]:
    """Candidates above their gangs' minimum, in order."""
    left: dict[str, int] = {}
    spared = []
    for task in candidates:
        job = session.jobs.get(task.job)
        if job is None:
            continue
        ready = left.setdefault(job.uid, job.ready_task_num)
        if ready > job.min_available:
            left[job.uid] = ready - 1
            spared.append(task)
    return spared


def _all_candidates(_: EvictionContext, candidates: list[TaskInfo]) -> VictimsVote:
    # Bundles of victims already respect the minimum of their gangs.
    return candidates, PERMIT


def _compare_readiness(left: Gang, right: Gang) -> int:
    return int(left.is_ready()) - int(right.is_ready())


def _is_job_ready(job: JobInfo) -> bool:
    return job.is_ready() and job.role_minimums.are_ready() and job.check_sub_job_ready()


def _is_job_pipelined(job: JobInfo) -> bool:
    return job.is_pipelined() and job.role_minimums.are_pipelined() and job.check_sub_job_pipelined()


def _tasks_placed_in_trial(job: JobInfo) -> int:
    """Pending tasks that had a node until the rest of the gang was found not to fit."""
    pending = job.tasks_with_status(TaskStatus.PENDING).values()
    return sum(
        task.last_transaction is not None and task.last_transaction.status in ALLOCATED_STATUSES for task in pending
    )


class PriorityPlugin(VolcanoPlugin):
    """priority plugin: jobs and tasks of higher priority come first and preempt lower ones (Volcano 1.15)."""

    name: ClassVar[str] = "priority"

    def __init__(self, arguments: VolcanoArguments) -> None:
        pass

    def on_session_open(self, session: VolcanoSession) -> None:
        functions, name = session.functions, self.name
        functions.task_order[name] = _compare_priority
        functions.job_order[name] = _compare_priority
        functions.sub_job_order[name] = _compare_priority

        def less_important(preemptor: TaskInfo, candidates: list[TaskInfo]) -> VictimsVote:
            job = session.jobs.get(preemptor.job)
            return [task for task in candidates if job and _has_lower_priority(session, task, preemptor, job)], PERMIT

        def evictable(context: EvictionContext, candidates: list[TaskInfo]) -> VictimsVote:
            if context.kind is VictimRequester.GANG_RECLAIM:
                # Between queues, shares decide instead of priorities.
                return candidates, PERMIT
            ours = context.job.priority
            return [task for task in candidates if session.jobs[task.job].priority < ours], PERMIT

        functions.preemptable[name] = less_important
        functions.unified_evictable[name] = evictable
        functions.job_starving[name] = _is_starving


def _compare_priority(left: JobInfo | SubJobInfo | TaskInfo, right: JobInfo | SubJobInfo | TaskInfo) -> int:
    return (left.priority < right.priority) - (left.priority > right.priority)


def _has_lower_priority(session: VolcanoSession, task: TaskInfo, preemptor: TaskInfo, job: JobInfo) -> bool:
    """True if the task's job has a lower priority or, within one job, the task itself."""
    other = session.jobs.get(task.job)
    if other is None:
        return False
    return task.priority < preemptor.priority if other is job else other.priority < job.priority


def _is_starving(job: JobInfo) -> bool:
    return job.ready_task_num + job.waiting_task_num < len(job.tasks)
