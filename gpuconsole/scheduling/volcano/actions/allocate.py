"""The actions that place tasks without evictions: allocate, backfill and enqueue (Volcano 1.15 actions).

enqueue lets a job's pods be scheduled if its queue and the cluster may have capacity for its minResources. allocate
places pending tasks, queue by queue, job by job, and starts a job once its gang is ready; jobs with a network topology
or sub-jobs are tried domain by domain, see `domain_search`. backfill places best-effort tasks wherever they fit.
"""

from collections.abc import Iterator

from gpuconsole.scheduling.heap import Heap
from gpuconsole.scheduling.volcano.actions.domain_search import DomainSearch, JobWorksheet, TaskPlacement, new_worksheet
from gpuconsole.scheduling.volcano.api.hyper_nodes import ROOT_NAME
from gpuconsole.scheduling.volcano.api.job import FitErrors, JobInfo
from gpuconsole.scheduling.volcano.api.task import TaskInfo, TaskStatus
from gpuconsole.scheduling.volcano.node_search import NodeFinder, best_node
from gpuconsole.scheduling.volcano.session import VolcanoSession, VolcanoStatement

ALLOCATE = "allocate"


def allocate(session: VolcanoSession) -> None:
    """Place pending tasks, job by job in queue and job order, and bind those of jobs whose gang is ready.

    A queue found overused gets nothing more in this action.
    """
    sheets = {job.uid: sheet for job, sheet in _jobs_with_pending_tasks(session)}
    jobs: dict[str, Heap[JobInfo]] = {}
    queues = Heap(session.queue_precedes)
    for uid in sheets:
        job = session.jobs[uid]
        if job.queue not in jobs:
            jobs[job.queue] = Heap(session.job_precedes)
            queues.push(session.queues[job.queue])
        jobs[job.queue].push(job)
    remembers = session.configuration.arguments_of(ALLOCATE).flag("predicateErrorCacheEnable", True)
    search = DomainSearch(session, TaskPlacement(session, remembers=remembers))
    while queues:
        queue = queues.pop()
        if session.overused(queue) or not jobs[queue.uid]:
            continue
        job = jobs[queue.uid].pop()
        if _allocate_job(session, search, job, sheets[job.uid]):
            jobs[queue.uid].push(job)
        queues.push(queue)


def _jobs_with_pending_tasks(session: VolcanoSession) -> Iterator[tuple[JobInfo, JobWorksheet]]:
    """Jobs to try, with their tasks to place."""
    for job in session.jobs.values():
        if job.is_not_enqueued:
            if session.is_configured("enqueue"):
                continue
            # Without the enqueue action nothing else enqueues the job.
            job.phase = "Inqueue"
        if not job.tasks_with_status(TaskStatus.PENDING):
            continue
        if session.job_valid(job) is not None or job.queue not in session.queues:
            continue
        if not session.domains.ready and job.contains_network_topology:
            continue
        sheet = new_worksheet(session, job, _is_allocatable)
        if sheet:
            yield job, sheet


def _is_allocatable(task: TaskInfo) -> bool:
    return not task.gated and not task.request.is_empty()


def _allocate_job(session: VolcanoSession, search: DomainSearch, job: JobInfo, sheet: JobWorksheet) -> bool:
    """Place a job; True if it started or progressed and has tasks left."""
    if job.contains_hard_topology or job.contains_sub_job_policy:
        statement = search.allocate_job(job, sheet, session.hyper_nodes[ROOT_NAME])
        if statement is None or not session.job_ready(job):
            return False
        statement.commit()
        search.recorder.apply_to_job(job)
        return bool(sheet)
    sub_job, tasks = job.sub_jobs.get(job.uid), sheet.tasks.get(job.uid)
    if sub_job is None or tasks is None:
        return False
    statement = None
    if sub_job.nominated_hyper_node:
        statement = search.allocate_nominated(sub_job, tasks, session.hyper_nodes[ROOT_NAME])
    if statement is None:
        statement = search.task_placement.place_tasks(sub_job, tasks, ROOT_NAME)
    if statement is None or not session.job_ready(job):
        # Reservations are not undone: later jobs of this session see them.
        return False
    statement.commit()
    sub_job.nominated_hyper_node = ""
    return bool(tasks)


BACKFILL = "backfill"

WAITING = (TaskStatus.PENDING, TaskStatus.PIPELINED)


def backfill(session: VolcanoSession) -> None:
    """Place best-effort tasks one by one, also those that were pipelined before."""
    remembers = session.configuration.arguments_of(BACKFILL).flag("predicateErrorCacheEnable", True)
    for task in pending_tasks(session):
        job = session.jobs[task.job]
        error = session.pre_predicate(task)
        if error is not None:
            errors = FitErrors()
            for node in session.node_list:
                errors.set_error(node.name, error)
            job.node_fit_errors[task.uid] = errors
            continue
        finder = NodeFinder(session, remembers=remembers)
        nodes, errors = finder.find_feasible(task, session.node_list, session.predicate_for_allocate)
        if not nodes:
            job.node_fit_errors[task.uid] = errors
            continue
        own, others = session.split_by_shard(nodes)
        chosen = best_node(session, task, own) or best_node(session, task, others)
        if chosen is not None:
            session.allocate(task, chosen)


def pending_tasks(session: VolcanoSession) -> list[TaskInfo]:
    """The best-effort tasks to place, in order; pipelined ones are taken off their node and included."""
    queues = Heap(session.queue_precedes)
    jobs: dict[str, Heap[JobInfo]] = {}
    tasks: dict[str, Heap[TaskInfo]] = {}
    for job in session.jobs.values():
        if not any(task.best_effort for status in WAITING for task in job.tasks_with_status(status).values()):
            continue
        if job.is_not_enqueued or job.queue not in session.queues or session.job_valid(job) is not None:
            continue
        waiting = [task for task in _by_uid(job, TaskStatus.PENDING) if task.best_effort and not task.gated]
        for task in [task for task in _by_uid(job, TaskStatus.PIPELINED) if task.best_effort]:
            VolcanoStatement(session).undo_placement(task)
            waiting.append(task)
        if not waiting:
            continue
        tasks[job.uid] = Heap(session.task_precedes, waiting)
        if job.queue not in jobs:
            jobs[job.queue] = Heap(session.job_precedes)
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
    return [task for _, task in sorted(job.tasks_with_status(status).items())]


def enqueue(session: VolcanoSession) -> None:
    """Let pending jobs be scheduled if queue and cluster may have capacity, one at a time in queue and job order."""
    jobs: dict[str, Heap[JobInfo]] = {}
    queues = Heap(session.queue_precedes)
    seen = set()
    for job in session.jobs.values():
        if job.queue not in session.queues:
            continue
        if job.queue not in seen:
            seen.add(job.queue)
            queues.push(session.queues[job.queue])
        if job.is_not_enqueued:
            jobs.setdefault(job.queue, Heap(session.job_precedes)).push(job)
    while queues:
        queue = queues.pop()
        if not jobs.get(queue.uid):
            continue
        job = jobs[queue.uid].pop()
        group = job.pod_group
        if group is None or group.min_resources is None or session.job_enqueueable(job):
            session.job_enqueued(job)
            job.phase = "Inqueue"
        queues.push(queue)
