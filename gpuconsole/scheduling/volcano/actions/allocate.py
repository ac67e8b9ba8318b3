"""allocate action: places pending tasks, queue by queue, job by job, and starts a job once its gang is ready.

Volcano 1.15 actions/allocate. Jobs with a network topology or sub-jobs are tried domain by domain; see `domain_search`.
"""

from collections.abc import Iterator

from gpuconsole.scheduling.heap import Heap
from gpuconsole.scheduling.volcano.actions.domain_search import DomainSearch
from gpuconsole.scheduling.volcano.actions.pending_sub_jobs import Worksheet, worksheet
from gpuconsole.scheduling.volcano.actions.task_placement import TaskPlacement
from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.status import TaskStatus
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.domains import TOP
from gpuconsole.scheduling.volcano.session import VolcanoSession

ALLOCATE = "allocate"


def allocate(session: VolcanoSession) -> None:
    """Try one job at a time, from the first queue in queue order; an overused queue is dropped for the rest of the
    action.
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
