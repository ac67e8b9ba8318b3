"""Time limits of jobs: timers of activeDeadlineSeconds, and the value of ttlSecondsAfterFinished."""

from msgspec.structs import replace

from gpuconsole.model.clock import Span
from gpuconsole.model.job import BatchRules, Job, JobPhase, LaunchRules, TrainRules
from gpuconsole.sim.kernel import Deadline
from gpuconsole.sim.world import World

DEADLINE_EXCEEDED = "Job was active longer than specified deadline"


def begin_deadline(world: World, key: str) -> None:
    """If a job has an activeDeadlineSeconds, record that it is active from now on, and set the timer."""
    job = world.job(key) if key else None
    limit = deadline_of(job) if job is not None else None
    if job is not None and limit is not None:
        world.put(replace(job, batch=replace(job.batch, since=world.now)))
        world.kernel.at(world.now + limit, Deadline(key, world.now))


def resume_deadlines(world: World) -> None:
    """Resume the deadlines of jobs that were active before the simulation began.

    A job whose start is unknown counts as active from now on.
    """
    for job in list(world.state.table("jobs").all()):
        limit = deadline_of(job)
        if limit is None or job.ended or job.suspended:
            continue
        if job.batch.since is not None:
            world.kernel.at(max(world.now, job.batch.since + limit), Deadline(job.key, job.batch.since))
        elif job.phase is JobPhase.RUNNING:
            begin_deadline(world, job.key)


def deadline_of(job: Job) -> Span | None:
    """The activeDeadlineSeconds of a job; None without one."""
    match job.rules:
        case BatchRules(deadline=limit) | LaunchRules(deadline=limit) | TrainRules(deadline=limit):
            return limit
    return None


def ttl_of(job: Job) -> Span | None:
    """The ttlSecondsAfterFinished of a job; None without one."""
    match job.rules:
        case BatchRules(ttl=span) | LaunchRules(ttl=span):
            return span
    return None


def job_over_deadline(world: World, timer: Deadline) -> Job | None:
    """The job whose deadline has passed, if it was active since the timer was set."""
    job = world.job(timer.job)
    if job is None or job.ended or job.suspended or job.batch.since != timer.since:
        return None
    return job
