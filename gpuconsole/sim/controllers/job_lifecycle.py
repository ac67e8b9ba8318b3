"""A job's phase, its active deadline, and its removal after it finished.

A finished job is removed with its Workload and pods, after its ttlSecondsAfterFinished or the policy's `keep_finished`.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from gpuconsole.model.clock import Span
from gpuconsole.model.cluster import Pod
from gpuconsole.model.documents.reader import INT32
from gpuconsole.model.job import BatchRules, Job, JobPhase, LaunchRules, TrainRules
from gpuconsole.model.jobs.batch import count_numbers
from gpuconsole.model.objects import TABLES
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.controllers import pods
from gpuconsole.sim.kernel import JobDeadline, RemoveFinished
from gpuconsole.sim.world import World

DEADLINE_EXCEEDED = "Job was active longer than specified deadline"


def start_deadline(world: World, key: str) -> None:
    """Start the activeDeadlineSeconds of a job, if it has one, now."""
    job = world.job(key) if key else None
    limit = deadline_of(job) if job is not None else None
    if job is not None and limit is not None:
        world.put(replace(job, batch=replace(job.batch, since=world.now)))
        world.kernel.set_timer(world.now + limit, JobDeadline(key, world.now))


def resume_deadlines(world: World) -> None:
    """Resume the deadlines of jobs that were active before the simulation began.

    A job whose start is unknown counts as active from now on.
    """
    for job in list(world.state.table("jobs").all()):
        limit = deadline_of(job)
        if limit is None or job.ended or job.suspended:
            continue
        if job.batch.since is not None:
            world.kernel.set_timer(max(world.now, job.batch.since + limit), JobDeadline(job.key, job.batch.since))
        elif job.phase is JobPhase.RUNNING:
            start_deadline(world, job.key)


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


def job_over_deadline(world: World, timer: JobDeadline) -> Job | None:
    """The job whose deadline has passed, if it was active since the timer was set."""
    job = world.job(timer.job)
    if job is None or job.ended or job.suspended or job.batch.since != timer.since:
        return None
    return job


_REMOVED_KINDS: dict[str, type[Pod] | type[Job] | type[Workload]] = {
    TABLES[kind]: kind for kind in (Pod, Job, Workload)
}


def schedule_removal(world: World, objs: Iterable[Workload | Job | Pod | None]) -> None:
    """Set the timer that removes these finished objects, if the policy has `keep_finished`."""
    if world.policy.keep_finished is None:
        return
    objects = tuple((TABLES[type(obj)], obj.key, obj.uid) for obj in objs if obj is not None)
    world.kernel.set_timer(world.now + world.policy.keep_finished, RemoveFinished(objects))


def schedule_ttl_removal(world: World, job: Job | None, others: Iterable[Workload | Pod | None]) -> None:
    """Set the timer of a finished job with ttlSecondsAfterFinished.

    The objects in `others` are removed with it.
    """
    kept = None if job is None else ttl_of(job)
    if job is None or kept is None:
        return
    objects = tuple((TABLES[type(obj)], obj.key, obj.uid) for obj in (job, *others) if obj is not None)
    world.kernel.set_timer(world.now + kept, RemoveFinished(objects))


def finished_pods_of(world: World, job: Job | None, last: Iterable[Pod]) -> list[Pod]:
    """The finished pods of a job: those of its `last` wave and of earlier ones, which no running group has any more."""
    found = {pod.key: pod for one in last if (pod := world.pod(one.key)) is not None}
    if job is not None and isinstance(job.rules, BatchRules) and job.solo:
        over = count_numbers((job.batch.completed, job.batch.failed), INT32)
        if over > len(found):
            found |= {pod.key: pod for pod in world.state.table("pods").all() if pod.job == job.key}
    return list(found.values())


def remove_finished(world: World, timer: RemoveFinished) -> None:
    """Remove finished objects."""
    for table, key, uid in timer.objects:
        obj = world.state.table(table).get(key)
        if obj is not None and obj.uid == uid:
            world.drop(_REMOVED_KINDS[table], key)


def set_phase(world: World, key: str, phase: JobPhase, *, suspended: bool = False) -> None:
    """Set a job's phase and its timestamp. An unknown key changes nothing."""
    job = world.job(key) if key else None
    if job is None or (job.phase is phase and job.suspended == suspended):
        return
    started = job.started or (world.now if phase is JobPhase.RUNNING else 0)
    ended = phase in (JobPhase.SUCCEEDED, JobPhase.FAILED)
    finished = world.now if ended else 0
    world.put(replace(job, phase=phase, suspended=suspended, started=started, finished=finished))
    if ended:
        pods.release_ray_group(world, job)
