"""The actions of a session: allocate, consolidation, preempt, reclaim and stalegangeviction (KAI 0.13 actions).

allocate places pending jobs on idle or releasing resources. consolidation, preempt and reclaim try the pending jobs as
well, and let a `Solver` look for victims: consolidation moves preemptible jobs, all of which are placed again; preempt
evicts jobs of lower priority in the same queue; reclaim takes resources that other queues hold above their fair share.
stalegangeviction evicts gangs that run below their minimum for too long.
"""

from collections.abc import Iterator
from functools import partial

from gpuconsole.scheduling.kai import messages
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo, requested_gpus
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo, is_node_ready
from gpuconsole.scheduling.kai.api.tasks import ACTIVE_ALLOCATED, ALLOCATED, DEFAULT_POD_SET, KaiPodStatus, PodInfo
from gpuconsole.scheduling.kai.functions import SolverScenario
from gpuconsole.scheduling.kai.job_placement import KaiStatement, PlacementAttempt
from gpuconsole.scheduling.kai.session import EvictedTask, JobFilter, JobsByQueue, KaiSession, pending_jobs
from gpuconsole.scheduling.kai.solving.solver import FailedJobs, Solver, victim_order


def allocate(session: KaiSession) -> None:
    """Place pending jobs on idle or releasing resources; a job with pending tasks left is tried again."""
    jobs = pending_jobs(session, "allocate")
    while jobs:
        job = jobs.pop()
        statement = KaiStatement(session)
        fresh = job.count_with_status(ALLOCATED) == 0
        if not PlacementAttempt(session, statement, job, only_pipeline=False).run(session.all_nodes):
            statement.discard()
            continue
        waits = job.must_pipeline
        if waits:
            statement.pipeline_all(job.uid)
        statement.commit()
        if fresh and not waits:
            job.started = session.now
        if _has_tasks_to_allocate(job):
            jobs.push(job)


def _has_tasks_to_allocate(job: PodGroupInfo) -> bool:
    return any(task.should_allocate(True) for task in job.tasks())


def evict_stale_gangs(session: KaiSession) -> None:
    """Record when gangs became stale, and evict those whose grace period is over."""
    for job in session.jobs.values():
        if job.is_stale:
            _evict_if_grace_over(session, job)
        else:
            job.stale_since = None


def _evict_if_grace_over(session: KaiSession, job: PodGroupInfo) -> None:
    if job.stale_since is None:
        job.stale_since = session.now
    grace = session.parameters.staleness_grace
    if grace < 0 or session.now - job.stale_since < grace:
        return
    evicted = [task for task in job.tasks() if task.status in ACTIVE_ALLOCATED]
    for task in evicted:
        session.evict(
            EvictedTask(task=task, message=_stale_message(job, task), action="stalegangeviction", gang=len(evicted))
        )


def _stale_message(job: PodGroupInfo, task: PodInfo) -> str:
    pod = f"{task.namespace}/{task.name}"
    if list(job.pod_sets) == [DEFAULT_POD_SET]:
        return messages.stale_gang_message(pod, job.pod_sets[DEFAULT_POD_SET].minimum)
    return messages.stale_gang_message(pod, job.pod_sets[task.set_name].minimum, task.set_name)


def feasible_nodes(nodes: list[KaiNodeInfo], job: PodGroupInfo) -> list[KaiNodeInfo]:
    """The nodes to try for a job; if all its tasks need GPUs, those with idle or releasing ones (actions/common)."""
    if any(not task.needs_gpu for task in job.tasks()):
        return nodes
    return [node for node in nodes if node.idle_gpus() > 0 or node.releasing_gpus() > 0]


def consolidate(session: KaiSession) -> None:
    """Place preemptible pending jobs for which all nodes together have enough GPUs, by moving preemptible jobs."""
    if session.parameters.max_consolidation_victims == 0:
        return
    jobs = pending_jobs(session, "consolidation", preemptible=True)
    failures = FailedJobs(session.parameters.use_scheduling_signatures)
    while jobs:
        job = jobs.pop()
        if failures.has_failed_before(job):
            continue
        if not _has_enough_gpus(session, job) or not _solve_consolidation(session, job):
            failures.add(job)


def _solve_consolidation(session: KaiSession, job: PodGroupInfo) -> bool:
    solver = Solver(
        session,
        action="consolidation",
        nodes=feasible_nodes(list(session.nodes.values()), job),
        allowed=all_victims_placed,
        victims=lambda: _consolidation_victims(session, job),
    )
    return solver.solve_and_commit(job)


def all_victims_placed(scenario: SolverScenario) -> bool:
    """True if every task that the scenario evicted was placed again."""
    return all(task.status is not KaiPodStatus.RELEASING for v in scenario.victims().values() for task in v.tasks)


def _consolidation_victims(session: KaiSession, job: PodGroupInfo) -> JobsByQueue:
    return victim_order(session, _consolidation_candidates(session, job))


def _consolidation_candidates(session: KaiSession, job: PodGroupInfo) -> Iterator[PodGroupInfo]:
    """Running preemptible jobs, up to one more than the configured limit."""
    most, found = session.parameters.max_consolidation_victims, 0
    for other in session.jobs.values():
        if other.preemptible and other.uid != job.uid and other.active_allocated_tasks > 0:
            if most != -1 and found > most:
                return
            found += 1
            yield other


def _has_enough_gpus(session: KaiSession, job: PodGroupInfo) -> bool:
    """True if all ready nodes together have enough idle and releasing GPUs for the job's next tasks."""
    gpus, memory = requested_gpus(session.tasks_to_allocate(job, False))
    nodes = [node for node in session.nodes.values() if is_node_ready(node.node)]
    return (
        sum(node.idle_gpus() + node.releasing_gpus() for node in nodes) >= gpus
        and sum(node.idle_gpu_memory() + node.releasing_gpu_memory() for node in nodes) >= memory
    )


def preempt(session: KaiSession) -> None:
    """Evict jobs of lower priority in the same queue to place pending jobs; non-preemptible ones only within quota."""
    jobs = pending_jobs(session, "preempt")
    failures: dict[str, FailedJobs] = {}
    while jobs:
        job = jobs.pop()
        known = failures.setdefault(job.queue, FailedJobs(session.parameters.use_scheduling_signatures))
        if known.has_failed_before(job):
            continue
        if session.find_exceeded_quota(job, session.tasks_to_allocate(job, False)) is not None or not _solve_preemption(
            session, job
        ):
            known.add(job)


def _solve_preemption(session: KaiSession, job: PodGroupInfo) -> bool:
    solver = Solver(
        session,
        action="preempt",
        nodes=feasible_nodes(list(session.nodes.values()), job),
        allowed=session.is_preempt_allowed,
        victims=lambda: _preemption_victims(session, job),
    )
    return solver.solve_and_commit(job)


def _preemption_victims(session: KaiSession, job: PodGroupInfo) -> JobsByQueue:
    """Running preemptible jobs of the same queue and of lower priority."""
    return victim_order(
        session,
        (
            other
            for other in session.jobs.values()
            if other.preemptible
            and other.priority < job.priority
            and other.queue == job.queue
            and other.uid != job.uid
            and other.active_allocated_tasks > 0
            and session.is_preempt_victim(job, other)
        ),
    )


def reclaim(session: KaiSession) -> None:
    """Evict jobs of other queues to place pending jobs whose queue stays within its fair share."""
    jobs = pending_jobs(session, "reclaim")
    failures: dict[str, FailedJobs] = {}
    while jobs:
        job = jobs.pop()
        if not session.may_reclaim(job):
            continue
        known = failures.setdefault(job.queue, FailedJobs(session.parameters.use_scheduling_signatures))
        if known.has_failed_before(job):
            continue
        session.notify_solution_start()
        solver = Solver(
            session,
            action="reclaim",
            nodes=feasible_nodes(list(session.nodes.values()), job),
            allowed=session.is_reclaim_allowed,
            victims=partial(_reclaim_victims, session, job),
        )
        if not solver.solve_and_commit(job):
            known.add(job)


def _reclaim_victims(session: KaiSession, job: PodGroupInfo) -> JobsByQueue:
    """Running preemptible jobs of other queues that plugins accept as victims."""
    others = (o for o in session.jobs.values() if o.queue != job.queue and session.is_reclaim_victim(job, o))
    return JobsByQueue(session, JobFilter(preemptible=True, with_allocated=True, victims=True), others)
