"""backfill action: places best-effort tasks wherever they fit."""

from gpuconsole.scheduling.heap import Heap
from gpuconsole.scheduling.volcano.api.fit_errors import FitErrors
from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.status import TaskStatus
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.search import Finder, best_node
from gpuconsole.scheduling.volcano.session import VolcanoSession
from gpuconsole.scheduling.volcano.statement import VolcanoStatement

BACKFILL = "backfill"

WAITING = (TaskStatus.PENDING, TaskStatus.PIPELINED)


def backfill(session: VolcanoSession) -> None:
    """Place best-effort tasks one by one; pipelined ones are tried again."""
    remembers = session.configuration.arguments_of(BACKFILL).flag("predicateErrorCacheEnable", True)
    for task in pending_tasks(session):
        job = session.jobs[task.job]
        error = session.pre_predicate(task)
        if error is not None:
            errors = FitErrors()
            for node in session.node_list:
                errors.put(node.name, error)
            job.node_fit_errors[task.uid] = errors
            continue
        finder = Finder(session, remembers=remembers)
        nodes, errors = finder.fitting(task, session.node_list, session.predicate_for_allocate)
        if not nodes:
            job.node_fit_errors[task.uid] = errors
            continue
        own, others = session.by_shard(nodes)
        chosen = best_node(session, task, own) or best_node(session, task, others)
        if chosen is not None:
            session.allocate(task, chosen)


def pending_tasks(session: VolcanoSession) -> list[TaskInfo]:
    """Best-effort tasks in placement order; pipelined ones lose their node."""
    queues = Heap(session.queue_first)
    jobs: dict[str, Heap[JobInfo]] = {}
    tasks: dict[str, Heap[TaskInfo]] = {}
    for job in session.jobs.values():
        if not any(task.best_effort for status in WAITING for task in job.of_status(status).values()):
            continue
        if job.is_pending or job.queue not in session.queues or session.job_valid(job) is not None:
            continue
        waiting = [task for task in _by_uid(job, TaskStatus.PENDING) if task.best_effort and not task.gated]
        for task in [task for task in _by_uid(job, TaskStatus.PIPELINED) if task.best_effort]:
            VolcanoStatement(session).take_back(task)
            waiting.append(task)
        if not waiting:
            continue
        tasks[job.uid] = Heap(session.task_first, waiting)
        if job.queue not in jobs:
            jobs[job.queue] = Heap(session.job_first)
            queues.push(session.queues[job.queue])
        jobs[job.queue].push(job)
    result = []
    while queues:
        queue = queues.pop()
        while jobs[queue.uid]:
            job = jobs[queue.uid].pop()
            while tasks[job.uid]:
                result.append(tasks[job.uid].pop())
    return result


def _by_uid(job: JobInfo, status: TaskStatus) -> list[TaskInfo]:
    return [task for _, task in sorted(job.of_status(status).items())]
