"""priority plugin: orders jobs and tasks by priority; victims have a lower priority than the preemptor."""

from typing import TYPE_CHECKING, ClassVar

from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.sub_job import SubJobInfo
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.arguments import VolcanoArguments
from gpuconsole.scheduling.volcano.functions import PERMIT, EvictionContext, VictimRequester, Victims

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.session import VolcanoSession


class PriorityPlugin:
    """Volcano 1.15 plugins/priority."""

    name: ClassVar[str] = "priority"

    def __init__(self, arguments: VolcanoArguments) -> None:
        pass

    def on_session_open(self, session: "VolcanoSession") -> None:
        functions, name = session.functions, self.name
        functions.task_order[name] = _higher_first
        functions.job_order[name] = _higher_first
        functions.sub_job_order[name] = _higher_first

        def less_important(preemptor: TaskInfo, candidates: list[TaskInfo]) -> Victims:
            job = session.jobs.get(preemptor.job)
            return [task for task in candidates if job and _below(session, task, preemptor, job)], PERMIT

        def evictable(context: EvictionContext, candidates: list[TaskInfo]) -> Victims:
            if context.kind is VictimRequester.GANG_RECLAIM:
                # Between queues, shares decide instead of priorities.
                return candidates, PERMIT
            ours = context.job.priority
            return [task for task in candidates if session.jobs[task.job].priority < ours], PERMIT

        functions.preemptable[name] = less_important
        functions.unified_evictable[name] = evictable
        functions.job_starving[name] = _wants_more

    def on_session_close(self, session: "VolcanoSession") -> None:
        pass


def _higher_first(left: JobInfo | SubJobInfo | TaskInfo, right: JobInfo | SubJobInfo | TaskInfo) -> int:
    return (left.priority < right.priority) - (left.priority > right.priority)


def _below(session: "VolcanoSession", task: TaskInfo, preemptor: TaskInfo, job: JobInfo) -> bool:
    """True if the task's job has a lower priority or, within one job, the task itself."""
    other = session.jobs.get(task.job)
    if other is None:
        return False
    return task.priority < preemptor.priority if other is job else other.priority < job.priority


def _wants_more(job: JobInfo) -> bool:
    return job.ready_task_num + job.waiting_task_num < len(job.tasks)
