"""The actions that place tasks without evictions: allocate, backfill and enqueue (Volcano 1.15 actions).

enqueue lets a job's pods be scheduled if its queue and the cluster may have capacity for its minResources. allocate
places pending tasks, queue by queue, job by job, and starts a job once its gang is ready; jobs with a network topology
or sub-jobs are tried domain by domain, see `domain_search`. backfill places best-effort tasks wherever they fit.
"""

from collections.abc import Iterator

from gpuconsole.scheduling.heap import Heap
from gpuconsole.scheduling.volcano.actions.domain_search import DomainSearch, TaskPlacement, Worksheet, worksheet
from gpuconsole.scheduling.volcano.api.hyper_nodes import TOP
from gpuconsole.scheduling.volcano.api.job import FitErrors, JobInfo
from gpuconsole.scheduling.volcano.api.task import TaskInfo, TaskStatus
from gpuconsole.scheduling.volcano.node_search import Finder, best_node
from gpuconsole.scheduling.volcano.session import VolcanoSession, VolcanoStatement

ALLOCATE = "allocate"


def allocate(session: VolcanoSession) -> None:
    """Place pending tasks, job by job in queue and job order, and bind those of jobs whose gang is ready.

    A queue found overused gets nothing more in this action.
    """
    sheets = {job.uid: sheet for job, sheet in _waiting(session)}
    jobs: dict[str, Heap[JobInfo]] = {}
    queues = Heap(session.queue_first)
    for uid in sheets:
        job = session.jobs[uid]
        if job.queue not in jobs:
            jobs[job.queue] = Heap(session.job_first)
            queues.push(session.queues[job.queue])
        jobs[job.queue].push(job)
    remembers = session.configuration.arguments_of(ALLOCATE).flag("predicateErrorCacheEnable", True)
    search = DomainSearch(session, TaskPlacement(session, remembers=remembers))
    while queues:
        queue = queues.pop()
        if session.overused(queue) or not jobs[queue.uid]:
            continue
        job = jobs[queue.uid].pop()
        if _try(session, search, job, sheets[job.uid]):
            jobs[queue.uid].push(job)
        queues.push(queue)


def _waiting(session: VolcanoSession) -> Iterator[tuple[JobInfo, Worksheet]]:
    """Jobs to try, with their tasks to place."""
    for job in session.jobs.values():
        if job.is_pending:
            if session.configured("enqueue"):
                continue
            # Without the enqueue action nothing else enqueues the job.
            job.phase = "Inqueue"
        if not job.of_status(TaskStatus.PENDING):
            continue
        if session.job_valid(job) is not None or job.queue not in session.queues:
            continue
        if not session.domains.ready and job.contains_network_topology:
            continue
        sheet = worksheet(session, job, _may_be_allocated)
        if sheet:
            yield job, sheet


def _may_be_allocated(task: TaskInfo) -> bool:
    return not task.gated and not task.request.is_empty()


def _try(session: VolcanoSession, search: DomainSearch, job: JobInfo, sheet: Worksheet) -> bool:
    """Place a job; True if it started or progressed and has tasks left."""
    if job.contains_hard_topology or job.contains_sub_job_policy:
        statement = search.for_job(job, sheet, session.hyper_nodes[TOP])
        if statement is None or not session.job_ready(job):
            return False
        statement.commit()
        search.decisions.carry_out(job)
        return bool(sheet)
    sub_job, tasks = job.sub_jobs.get(job.uid), sheet.tasks.get(job.uid)
    if sub_job is None or tasks is None:
        return False
    statement = None
    if sub_job.nominated_hyper_node:
        statement = search.from_nomination(sub_job, tasks, session.hyper_nodes[TOP])
    if statement is None:
        statement = search.placing.tasks(sub_job, tasks, TOP)
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
    """The best-effort tasks to place, in order; pipelined ones are taken off their node and included."""
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


def enqueue(session: VolcanoSession) -> None:
    """Let pending jobs be scheduled if queue and cluster may have capacity, one at a time in queue and job order."""
    jobs: dict[str, Heap[JobInfo]] = {}
    queues = Heap(session.queue_first)
    seen = set()
    for job in session.jobs.values():
        if job.queue not in session.queues:
            continue
        if job.queue not in seen:
            seen.add(job.queue)
            queues.push(session.queues[job.queue])
        if job.is_pending:
            jobs.setdefault(job.queue, Heap(session.job_first)).push(job)
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
