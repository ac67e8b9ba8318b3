"""preempt action: evicts jobs of lower priority in the same queue (KAI 0.13 actions/preempt)."""

from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.order import JobsByQueue, pending_jobs
from gpuconsole.scheduling.kai.session import KaiSession
from gpuconsole.scheduling.kai.solving.feasible import feasible_nodes
from gpuconsole.scheduling.kai.solving.minimal_job_comparison import FailedJobs
from gpuconsole.scheduling.kai.solving.solver import Solver
from gpuconsole.scheduling.kai.solving.victims import victim_queue


def preempt(session: KaiSession) -> None:
    """Try every pending job; a non-preemptible one must stay within its queue's quota."""
    jobs = pending_jobs(session, "preempt")
    failures: dict[str, FailedJobs] = {}
    while jobs:
        job = jobs.pop()
        known = failures.setdefault(job.queue, FailedJobs(session.parameters.signatures))
        if known.would_fail(job):
            continue
        if session.over_quota(job, session.choose(job, False)) is not None or not _solve_preemption(session, job):
            known.add(job)


def _solve_preemption(session: KaiSession, job: PodGroupInfo) -> bool:
    solver = Solver(
        session,
        action="preempt",
        nodes=feasible_nodes(list(session.nodes.values()), job),
        allowed=session.preempt_allowed,
        victims=lambda: _preemption_victims(session, job),
    )
    return solver.carry_out(job)


def _preemption_victims(session: KaiSession, job: PodGroupInfo) -> JobsByQueue:
    """Running preemptible jobs of the same queue and of lower priority."""
    return victim_queue(
        session,
        (
            other
            for other in session.jobs.values()
            if other.preemptible
            and other.priority < job.priority
            and other.queue == job.queue
            and other.uid != job.uid
            and other.active_allocated > 0
            and session.preempt_victim(job, other)
        ),
    )
