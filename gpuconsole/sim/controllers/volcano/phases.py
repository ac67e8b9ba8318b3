"""Effects of a Volcano Job's new phase: history, the simulated job's status, cleanup."""

from msgspec.structs import replace

from gpuconsole.model.cluster import Pod
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.job import Job, JobPhase
from gpuconsole.model.jobs.volcano import job_phase
from gpuconsole.model.objects import TABLES
from gpuconsole.model.volcano import JobAction, JobEvent, VolcanoPhase
from gpuconsole.scheduling.volcano.jobs.tasks import spec_of, task_of_pod, tasks_of
from gpuconsole.sim.controllers import jobphases, pods, ttl_after_finished, work
from gpuconsole.sim.controllers.volcano.members import pods_of_job
from gpuconsole.sim.kernel import Retire
from gpuconsole.sim.world import World

_ENDINGS = {
    VolcanoPhase.COMPLETED: (HistoryEventKind.FINISHED, "Completed"),
    VolcanoPhase.FAILED: (HistoryEventKind.FAILED, "Failed"),
    VolcanoPhase.TERMINATED: (HistoryEventKind.FAILED, "Terminated"),
}


def reach_phase(world: World, job: Job) -> None:
    """Handle a job's new phase."""
    phase = job.volcano_status.phase
    ending = _ENDINGS.get(phase)
    if ending is not None:
        _end(world, job, *ending)
    elif phase is VolcanoPhase.ABORTED:
        world.tell(
            HistoryEventKind.EVICTED,
            workload=job.key,
            reason="Aborted",
            message="the job is aborted until it is resumed",
        )
        jobphases.mark_phase(world, job.key, JobPhase.SUSPENDED, suspended=True)
    elif phase is VolcanoPhase.RUNNING:
        # The job is marked as running only when its work begins.
        world.dirty[job.key] = None
    else:
        jobphases.mark_phase(world, job.key, job_phase(phase))


def _end(world: World, job: Job, what: HistoryEventKind, reason: str) -> None:
    members = pods_of_job(world, job)
    retries = job.volcano_status.retry_count
    loss = work.interrupt(world, job.key) if what is HistoryEventKind.FAILED else work.NOTHING
    world.tell(
        what,
        workload=job.key,
        reason=reason,
        message=f"phase {reason} after {retries} retries" if retries else f"phase {reason}",
        **world.devices.held(members),
        lost_gpu_seconds=loss.gpu_seconds,
        cost=loss.cost,
    )
    jobphases.mark_phase(world, job.key, job_phase(job.volcano_status.phase))
    _clean_up_later(world, job, members)


def _clean_up_later(world: World, job: Job, members: list[Pod]) -> None:
    """Delete a job with ttlSecondsAfterFinished, and its pods, after that time (garbage collector)."""
    ended = world.job(job.key)
    ttl = spec_of(job).ttl
    if ttl is None:
        ttl_after_finished.retire_later(world, (ended, *members))
        return
    pods_too = tuple((TABLES[Pod], pod.key, pod.uid) for pod in members)
    world.kernel.at(world.now + ttl, Retire((*pods_too, (TABLES[Job], job.key, job.uid))))


def complete_work(world: World, job: Job) -> bool:
    """Complete the running pods of the tasks that complete the job, or else all running ones; False if none runs."""
    group = world.groups.get(job.key)
    if group is not None:
        world.groups[job.key] = replace(group, start=None)
    running = [pod for pod in pods_of_job(world, job) if pod.started and not pod.done and not pod.deleted]
    deciding = _deciding(job)
    for pod in [pod for pod in running if task_of_pod(pod) in deciding] or running:
        pods.end(world, pod)
    return bool(running)


def _deciding(job: Job) -> set[str]:
    return {
        task.name
        for task in tasks_of(job)
        for policy in task.policies
        if policy.action is JobAction.COMPLETE_JOB and JobEvent.TASK_COMPLETED in policy.events
    }
