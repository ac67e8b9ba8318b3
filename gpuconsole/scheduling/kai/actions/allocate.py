"""Place pending jobs on what is idle or being released (KAI 0.13 actions/allocate)."""

from gpuconsole.scheduling.kai.api.jobs import Job
from gpuconsole.scheduling.kai.api.statuses import ALLOCATED
from gpuconsole.scheduling.kai.order import pending_jobs
from gpuconsole.scheduling.kai.placing import Attempt
from gpuconsole.scheduling.kai.session import Session
from gpuconsole.scheduling.kai.statement import Statement


def allocate(session: Session) -> None:
    """Try every job once; one that was placed in part, being elastic, comes again."""
    jobs = pending_jobs(session, "allocate")
    while jobs:
        job = jobs.pop()
        statement = Statement(session)
        fresh = job.count(ALLOCATED) == 0
        if not Attempt(session, statement, job, waiting=False).run(session.all_nodes):
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


def _has_more(job: Job) -> bool:
    return any(task.to_allocate(True) for task in job.tasks())
