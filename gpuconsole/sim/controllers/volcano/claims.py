"""Claims of Volcano Jobs: created and deleted with their job; a job whose claim is missing waits for it."""

import hashlib

from msgspec.structs import replace

from gpuconsole.model.job import Job
from gpuconsole.model.storage import PersistentVolumeClaim
from gpuconsole.model.volcano import VolcanoPhase
from gpuconsole.scheduling.volcano.jobs.pods import with_claims
from gpuconsole.scheduling.volcano.jobs.requests import JobRequest, request_of_job
from gpuconsole.scheduling.volcano.jobs.tasks import spec_of
from gpuconsole.sim.world import World

_SUFFIX = 12


def ensure_claims(world: World, job: Job) -> Job:
    """The job, with the claims that it owns created.

    Raises:
        VolumeClaimMissing: a claim that it names does not exist.
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


def tidy_claims(world: World) -> list[JobRequest]:
    """Delete claims with their jobs; reconcile jobs whose missing claim exists now."""
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
