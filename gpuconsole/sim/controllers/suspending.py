"""Suspension of jobs without a Workload, by their own field (spec.suspend)."""

from msgspec.structs import replace

from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.job import CronRules, Job, JobPhase
from gpuconsole.sim.controllers import jobphases, jobs, pods, work
from gpuconsole.sim.controllers.making import cron
from gpuconsole.sim.controllers.refusals import DONE, NoChange, Refusal
from gpuconsole.sim.world import World

_KINDS = ("Job", "CronJob", "JobSet", "PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob", "TrainJob")
_OTHERS = (
    *("RayCronJob", "VolcanoCronJob", "ScheduledSparkApplication"),
    *("RayJob", "RayCluster", "RayService", "SparkApplication", "AppWrapper"),
)


def job_named(world: World, key: str) -> Job | None:
    """The unfinished job with this `namespace/name` or full key."""
    found = (world.job(name) for name in (key, *(f"{kind}/{key}" for kind in (*_KINDS, *_OTHERS))))
    return next((job for job in found if job is not None and not job.ended), None)


def set_job_active(world: World, job: Job, active: bool) -> Refusal:
    """Suspend a job, which deletes its pods, or resume it."""
    if job.kind not in (*_KINDS, *_OTHERS):
        return f"a {job.kind} cannot be suspended; scale it to 0"
    if jobs.managed(world, job):
        return f"job {job.key} is Kueue's to suspend; stop its workload"
    if job.suspended is not active:
        return NoChange(f"job {job.key} is {'active' if active else 'suspended'} already")
    if isinstance(job.rules, CronRules):
        resumed = replace(job, suspended=not active, phase=JobPhase.PENDING if active else JobPhase.SUSPENDED)
        world.put(resumed)
        world.parents[job.key] = None
        cron.arm_cron(world, resumed)
    elif active:
        if job.key in world.groups:
            return f"pods of {job.key} are still terminating; retry in a moment"
        jobphases.mark_phase(world, job.key, JobPhase.PENDING)
        jobs.start_unmanaged(world, replace(job, suspended=False))
    else:
        _suspend(world, job)
    return DONE


def _suspend(world: World, job: Job) -> None:
    loss = work.interrupt(world, job.key)
    jobphases.mark_phase(world, job.key, JobPhase.SUSPENDED, suspended=True)
    group = world.groups.get(job.key)
    members = pods.pods_of(world, group) if group is not None else []
    world.tell(
        HistoryEventKind.EVICTED,
        workload=job.key,
        reason="Suspended",
        message="Job suspended",
        **world.devices.held(members),
        lost_gpu_seconds=loss.gpu_seconds,
        cost=loss.cost,
    )
    pods.remove(world, [pod for pod in members if not pod.done], "Suspended")
    if group is not None:
        world.dirty[group.key] = None
