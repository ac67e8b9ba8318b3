"""allocate action: places pending jobs on idle or releasing resources (KAI 0.13 actions/allocate)."""

from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.api.statuses import ALLOCATED
from gpuconsole.scheduling.kai.job_placement import PlacementAttempt
from gpuconsole.scheduling.kai.order import pending_jobs
from gpuconsole.scheduling.kai.session import KaiSession
from gpuconsole.scheduling.kai.statement import KaiStatement


def allocate(session: KaiSession) -> None:
    """Try every pending job; one that was placed and has pending tasks left is queued again."""
    jobs = pending_jobs(session, "allocate")
    while jobs:
        job = jobs.pop()
        statement = KaiStatement(session)
        fresh = job.count(ALLOCATED) == 0
        if not PlacementAttempt(session, statement, job, waiting=False).run(session.all_nodes):
            statement.discard()
            continue
        waits = job.must_pipeline
        if waits:
            statement.pipeline_all(job.uid)
        statement.commit()
        if fresh and not waits:
            job.started = session.now
        if _has_more(job):
            jobs.push(job)


def _has_more(job: PodGroupInfo) -> bool:
    return any(task.to_allocate(True) for task in job.tasks())
