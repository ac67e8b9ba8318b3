"""reclaim and shuffle actions: evictions in other queues, and evictions independent of pending jobs.

Volcano 1.15 actions/reclaim: a starving job reclaims its queue's deserved resources from jobs of other queues. Nodes
are tried by name; Volcano's order is that of its parallel search.

Volcano 1.15 actions/shuffle: evicts running tasks that plugins name as victims.
"""

from gpuconsole.scheduling.heap import Heap
from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.queue import QueueInfo
from gpuconsole.scheduling.volcano.api.resource import ZERO
from gpuconsole.scheduling.volcano.api.task import TaskInfo, TaskStatus
from gpuconsole.scheduling.volcano.node_search import NodeFinder, victims_suffice
from gpuconsole.scheduling.volcano.session import PlacementRejected, VolcanoSession, VolcanoStatement


def starving_jobs_by_queue(session: VolcanoSession) -> tuple[Heap[QueueInfo], dict[str, Heap[JobInfo]]]:
    """The queues with valid enqueued jobs, and the starving jobs of each, as heaps in queue and job order."""
    queues = Heap(session.queue_precedes)
    starving: dict[str, Heap[JobInfo]] = {}
    seen = set()
    for job in session.jobs.values():
        if job.is_not_enqueued or session.job_valid(job) is not None or job.queue not in session.queues:
            continue
        if job.queue not in seen:
            seen.add(job.queue)
            queues.push(session.queues[job.queue])
        if session.job_starving(job):
            starving.setdefault(job.queue, Heap(session.job_precedes)).push(job)
    return queues, starving


RECLAIM = "reclaim"


def reclaim(session: VolcanoSession) -> None:
    """Let the starving jobs of queues that are not overused evict tasks of other queues, in queue order."""
    queues, starving = starving_jobs_by_queue(session)
    while queues:
        queue = queues.pop()
        if session.overused(queue):
            continue
        jobs = starving.get(queue.uid)
        while jobs:
            _reclaim_for_job(session, queue, jobs.pop())


def _reclaim_for_job(session: VolcanoSession, queue: QueueInfo, job: JobInfo) -> None:
    """Reclaim task by task until the job no longer starves; everything is undone if that does not start it."""
    pending = (task for _, task in sorted(job.tasks_with_status(TaskStatus.PENDING).items()) if not task.gated)
    tasks = Heap(session.task_precedes, pending)
    statement = VolcanoStatement(session)
    finder_remembers = session.configuration.arguments_of(RECLAIM).flag("predicateErrorCacheEnable", True)
    while session.job_starving(job) and tasks:
        task = tasks.pop()
        if task.pod.template.preemption_policy == "Never" or not session.preemptive(queue, [task]):
            continue
        if session.pre_predicate(task) is None:
            _reclaim_for_task(session, statement, task, job, NodeFinder(session, remembers=finder_remembers))
    if session.job_pipelined(job):
        statement.commit()
    else:
        statement.discard()


def _reclaim_for_task(
    session: VolcanoSession, statement: VolcanoStatement, task: TaskInfo, job: JobInfo, finder: NodeFinder
) -> None:
    """Pipeline the task to the first node with enough victims of other queues."""
    nodes, _ = finder.find_feasible(task, session.nodes_where_preemption_may_help(task), session.predicate_for_preempt)
    own, others = session.split_by_shard(nodes)
    for node in (*own, *others):
        candidates = _reclaimees(session, node, job)
        if not candidates:
            continue
        victims = session.reclaimable(task, candidates) or []
        if not victims_suffice(task, node, victims):
            continue
        trial = VolcanoStatement(session)
        order = session.victims_heap(victims, task)
        room, evicted = node.future_idle(), False
        while order and not task.init_request.less_equal(room, ZERO):
            victim = order.pop()
            trial.evict(victim, RECLAIM, task.key)
            room.add(victim.request)
            evicted = True
        if task.init_request.less_equal(room, ZERO):
            try:
                trial.pipeline(task, node.name, eviction_occurred=evicted)
            except PlacementRejected:
                pass
            else:
                statement.merge_from(trial)
                return
        trial.discard()


def _reclaimees(session: VolcanoSession, node: NodeInfo, job: JobInfo) -> list[TaskInfo]:
    """Running tasks of reclaimable queues other than the job's."""
    found = []
    for _, task in sorted(node.tasks.items()):
        other = session.jobs.get(task.job)
        if other is None or task.status is not TaskStatus.RUNNING or not task.preemptable:
            continue
        if other.queue != job.queue and session.queues[other.queue].is_reclaimable:
            found.append(task.copy())
    return found


SHUFFLE = "shuffle"


def shuffle(session: VolcanoSession) -> None:
    """Evict the running tasks that plugins name as victims: those of the first tier that names any."""
    running = [
        task for job in session.jobs.values() for _, task in sorted(job.tasks_with_status(TaskStatus.RUNNING).items())
    ]
    for victim in session.victim_tasks(running):
        session.evict(victim, SHUFFLE)
