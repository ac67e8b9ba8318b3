"""The phase in a job's status: suspended, pending, running, finished."""

from msgspec.structs import replace

from gpuconsole.model.job import JobPhase
from gpuconsole.sim.controllers import pod_groups
from gpuconsole.sim.world import World


def mark_phase(world: World, key: str, phase: JobPhase, *, suspended: bool = False) -> None:
    """Set a job's phase and its timestamp. An unknown key changes nothing."""
    job = world.job(key) if key else None
    if job is None or (job.phase is phase and job.suspended == suspended):
        return
    started = job.started or (world.now if phase is JobPhase.RUNNING else 0)
    ended = phase in (JobPhase.SUCCEEDED, JobPhase.FAILED)
    finished = world.now if ended else 0
    world.put(replace(job, phase=phase, suspended=suspended, started=started, finished=finished))
    if ended:
        pod_groups.release_ray_group(world, job)
