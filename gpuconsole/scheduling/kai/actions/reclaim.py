"""reclaim action: reclaims resources that other queues hold above their fair share (KAI 0.13 actions/reclaim)."""

from functools import partial

from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.order import JobsByQueue, Wanted, pending_jobs
from gpuconsole.scheduling.kai.session import KaiSession
from gpuconsole.scheduling.kai.solving.feasible import feasible_nodes
from gpuconsole.scheduling.kai.solving.minimal_job_comparison import FailedJobs
from gpuconsole.scheduling.kai.solving.solver import Solver


def reclaim(session: KaiSession) -> None:
    """Try every pending job with which its queue stays within its fair share."""
    jobs = pending_jobs(session, "reclaim")
    failures: dict[str, FailedJobs] = {}
    while jobs:
        job = jobs.pop()
        if not session.may_reclaim(job):
            continue
        known = failures.setdefault(job.queue, FailedJobs(session.parameters.signatures))
        if known.would_fail(job):
            continue
        session.solution_starts()
        solver = Solver(
            session,
            action="reclaim",
            nodes=feasible_nodes(list(session.nodes.values()), job),
            allowed=session.reclaim_allowed,
            victims=partial(_reclaim_victims, session, job),
        )
        if not solver.carry_out(job):
            known.add(job)


def _reclaim_victims(session: KaiSession, job: PodGroupInfo) -> JobsByQueue:
    """Running preemptible jobs of other queues that plugins accept as victims."""
    others = (o for o in session.jobs.values() if o.queue != job.queue and session.reclaim_victim(job, o))
    return JobsByQueue(session, Wanted(preemptible=True, active=True, victims=True), others)
