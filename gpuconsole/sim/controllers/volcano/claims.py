"""The claims of Volcano Jobs: made with their job, gone with it; a job whose claim is not there waits for it."""

import hashlib

from msgspec.structs import replace

from gpuconsole.model.job import Job
from gpuconsole.model.storage import PersistentVolumeClaim
from gpuconsole.model.volcano_jobs import VolcanoPhase
from gpuconsole.scheduling.volcano.jobs.requests import JobRequest, request_of_job
from gpuconsole.scheduling.volcano.jobs.tasks import spec_of
from gpuconsole.scheduling.volcano.jobs.volumes import with_claims
from gpuconsole.sim.world import World

_SUFFIX = 12


def ensure(world: World, job: Job) -> Job:
    """The job with its claims, those that it makes made.

    Raises:
        ClaimMissing: a claim that it names is not there.
    """
    if not spec_of(job).volumes:
        return job

    def exists(key: str) -> bool:
        return world.state.get(PersistentVolumeClaim, key) is not None

    def name_for(number: int) -> str:
        drawn = hashlib.sha256(f"{job.uid} {number}".encode()).hexdigest()[:_SUFFIX]
        return f"{job.name}-pvc-{drawn}"

    named, made = with_claims(job, exists, name_for)
    for claim in made:
        world.put(replace(claim, uid=world.uid("PersistentVolumeClaim", claim.key), created=world.now))
    if named is not job:
        world.put(named)
    return named


def tidy(world: World) -> list[JobRequest]:
    """Claims go with their jobs; jobs that wait for a claim are looked at again when it is there."""
    for claim in list(world.state.table("persistent_volume_claims").all()):
        if claim.job and world.job(claim.job) is None:
            world.drop(PersistentVolumeClaim, claim.key)
    asked = (request_of_job(job) for job in world.state.table("jobs").all() if _waits(world, job))
    return [request for request in asked if request is not None]


def _waits(world: World, job: Job) -> bool:
    if job.volcano is None or not job.volcano.volumes or job.key in world.groups:
        return False
    if job.volcano_status.phase is not VolcanoPhase.PENDING:
        return False
    names = (volume.claim for volume in job.volcano.volumes if volume.claim)
    return all(world.state.get(PersistentVolumeClaim, f"{job.namespace}/{name}") is not None for name in names)
