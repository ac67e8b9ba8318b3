"""Commands on a Volcano Job: scale a task, abort and resume by a Command of bus.volcano.sh."""

from msgspec.structs import replace

from gpuconsole.model.job import Job
from gpuconsole.model.volcano import JobAction, VolcanoPhase
from gpuconsole.scheduling.volcano.jobs.requests import request_of_command, request_of_job
from gpuconsole.scheduling.volcano.jobs.tasks import spec_of, tasks_of, total_replicas
from gpuconsole.sim.controllers.refusals import DONE, NoChange, Refusal
from gpuconsole.sim.controllers.volcano import actions
from gpuconsole.sim.world import World

_STOPPED = (VolcanoPhase.ABORTING, VolcanoPhase.ABORTED)


def volcano_job_named(world: World, key: str) -> Job | None:
    """The unfinished Volcano Job with this `namespace/name` or full key."""
    job = world.job(key) or world.job(f"VolcanoJob/{key}")
    return job if job is not None and job.volcano is not None and not job.ended else None


def scaled_volcano_job(world: World, before: Job, job: Job) -> Refusal:
    """Scale the tasks of a job, as far as Volcano's webhook allows."""
    for task in tasks_of(job):
        if task.least > task.replicas:
            return f"'minAvailable' must be <= 'replicas' in task: {task.name}"
    if spec_of(job).min_available > total_replicas(job):
        return "job 'minAvailable' must not be greater than total replicas"
    world.put(job)
    actions.ask(world, request_of_job(job, before))
    return DONE


def set_volcano_job_active(world: World, job: Job, active: bool) -> Refusal:
    """Abort a job, or resume an aborted one (a Command of bus.volcano.sh)."""
    stopped = job.volcano_status.phase in _STOPPED
    if active is not stopped:
        return NoChange(f"job {job.key} is {'active' if active else 'stopped'} already")
    if active:
        job = replace(job, suspended=False)
        world.put(job)
    action = JobAction.RESUME_JOB if active else JobAction.ABORT_JOB
    actions.ask(world, request_of_command(job.key, action))
    return DONE
