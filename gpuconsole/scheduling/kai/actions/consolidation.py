"""consolidation action: moves preemptible jobs so that a pending job fits; every moved job is placed again (KAI 0.13
actions/consolidation).
"""

from collections.abc import Iterator

from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.api.statuses import KaiPodStatus
from gpuconsole.scheduling.kai.choosing import gpus_of
from gpuconsole.scheduling.kai.functions import SolverScenario
from gpuconsole.scheduling.kai.matching import ready
from gpuconsole.scheduling.kai.order import JobsByQueue, pending_jobs
from gpuconsole.scheduling.kai.session import KaiSession
from gpuconsole.scheduling.kai.solving.feasible import feasible_nodes
from gpuconsole.scheduling.kai.solving.minimal_job_comparison import FailedJobs
from gpuconsole.scheduling.kai.solving.solver import Solver
from gpuconsole.scheduling.kai.solving.victims import victim_queue


def consolidate(session: KaiSession) -> None:
    """Try every preemptible pending job for which the cluster has enough GPUs in total."""
    if session.parameters.max_consolidation_victims == 0:
        return
    jobs = pending_jobs(session, "consolidation", preemptible=True)
    failures = FailedJobs(session.parameters.signatures)
    while jobs:
        job = jobs.pop()
        if failures.would_fail(job):
            continue
        if not _enough(session, job) or not _solve(session, job):
            failures.add(job)


def _solve(session: KaiSession, job: PodGroupInfo) -> bool:
    solver = Solver(
        session,
        action="consolidation",
        nodes=feasible_nodes(list(session.nodes.values()), job),
        allowed=all_placed_again,
        victims=lambda: _victims(session, job),
    )
    return solver.carry_out(job)


def all_placed_again(scenario: SolverScenario) -> bool:
    """True if every task that the scenario evicted was placed again."""
    return all(task.status is not KaiPodStatus.RELEASING for v in scenario.victims().values() for task in v.tasks)


def _victims(session: KaiSession, job: PodGroupInfo) -> JobsByQueue:
    return victim_queue(session, _movable(session, job))


def _movable(session: KaiSession, job: PodGroupInfo) -> Iterator[PodGroupInfo]:
    """Running preemptible jobs, up to one more than the configured limit."""
    most, found = session.parameters.max_consolidation_victims, 0
    for other in session.jobs.values():
        if other.preemptible and other.uid != job.uid and other.active_allocated > 0:
            if most != -1 and found > most:
                return
            found += 1
            yield other


def _enough(session: KaiSession, job: PodGroupInfo) -> bool:
    """True if all nodes together have the GPUs that the job requests."""
    gpus, memory = gpus_of(session.choose(job, False))
    nodes = [node for node in session.nodes.values() if ready(node.node)]
    return (
        sum(node.idle_gpus() + node.releasing_gpus() for node in nodes) >= gpus
        and sum(node.idle_gpu_memory() + node.releasing_gpu_memory() for node in nodes) >= memory
    )
