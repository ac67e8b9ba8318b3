"""The PodGroup of a Volcano Job: created and updated with the job, deleted when its pods are killed."""

from msgspec.structs import replace

from gpuconsole.model.cluster import PriorityClass
from gpuconsole.model.job import Job
from gpuconsole.model.volcano import PodGroup
from gpuconsole.scheduling.volcano.jobs.pod_group import group_name, group_of, updated
from gpuconsole.scheduling.volcano.jobs.tasks import spec_of
from gpuconsole.sim.controllers.volcano import queues
from gpuconsole.sim.engines import first_group_phase
from gpuconsole.sim.world import VOLCANO_JOB, World


def group_key(job: Job) -> str:
    """The key of a job's PodGroup."""
    return f"{job.namespace}/{group_name(job)}"


def ensure_group(world: World, job: Job) -> PodGroup:
    """Create or update the PodGroup of a job. Without Volcano's scheduler it starts as Inqueue."""
    classes: dict[str, int] = {known.name: known.value for known in _classes(world)}
    found: PodGroup | None = world.state.get(PodGroup, group_key(job))
    if found is not None:
        wanted = updated(found, job, classes)
    else:
        fresh = group_of(job, classes)
        uid, phase = world.uid("PodGroup", fresh.key), first_group_phase(world.policy)
        wanted = replace(fresh, uid=uid, created=world.now, phase=phase)
    if wanted is not found:
        world.put(wanted)
    return wanted


def group_owner(world: World, key: str) -> str:
    """The key of the PodGroup's job; empty without one. Its name begins with the job's."""
    namespace, _, name = key.partition("/")
    parts = name.split("-")
    for length in range(len(parts) - 1, 0, -1):
        job = world.job(f"{VOLCANO_JOB}{namespace}/{'-'.join(parts[:length])}")
        if job is not None and group_key(job) == key:
            return job.key
    return ""


def drop_group(world: World, job: Job) -> None:
    """Delete the PodGroup; the next one has to be enqueued again."""
    if world.state.get(PodGroup, group_key(job)) is not None:
        world.drop(PodGroup, group_key(job))
        queues.close_if_empty(world, spec_of(job).queue or queues.DEFAULT_QUEUE)


def _classes(world: World) -> list[PriorityClass]:
    return list(world.state.table("priority_classes").all())
