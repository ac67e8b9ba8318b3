"""Volcano's queues, and the PodGroups of Volcano Jobs.

Volcano's queues: opened, closing, and closed when their last PodGroup is deleted.

The PodGroup of a Volcano Job: created and updated with the job, deleted when its pods are killed.
"""

from msgspec.structs import replace

from gpuconsole.model.apiserver.volcano.common import message_of
from gpuconsole.model.apiserver.volcano.jobs import check_queue
from gpuconsole.model.cluster import PriorityClass
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.job import Job
from gpuconsole.model.queues import StopPolicy
from gpuconsole.model.volcano import JobAction, PodGroup, VolcanoQueue
from gpuconsole.scheduling.volcano.jobs.pod_group import group_name, group_of, updated
from gpuconsole.scheduling.volcano.jobs.states import CLOSING, queue_command, queue_refusal
from gpuconsole.scheduling.volcano.jobs.tasks import spec_of
from gpuconsole.sim.controllers.admission_plugins import DONE, Refusal
from gpuconsole.sim.world import VOLCANO_JOB, World, first_group_phase

DEFAULT_QUEUE = "default"


def volcano_queue(world: World, name: str) -> VolcanoQueue | None:
    """The Volcano Queue of this name; None if it does not exist."""
    found: VolcanoQueue | None = world.state.get(VolcanoQueue, name)
    return found


def stop(world: World, queue: VolcanoQueue, policy: StopPolicy) -> Refusal:
    """Close or open a queue by a Command of bus.volcano.sh. Its jobs are not affected."""
    action = JobAction.OPEN_QUEUE if policy is StopPolicy.NONE else JobAction.CLOSE_QUEUE
    known = _known(world)
    problem = queue_refusal(queue, action, known)
    if problem:
        return problem
    _carry_out(world, queue.name, action)
    return DONE


def close_if_empty(world: World, name: str) -> None:
    """Close a closing queue once it is empty."""
    queue = volcano_queue(world, name)
    if queue is not None and queue.state == CLOSING:
        _carry_out(world, name, JobAction.SYNC_QUEUE)


def new_job_refusal(world: World, job: Job) -> Refusal:
    """Why a known queue rejects a new job; empty if it does not."""
    if volcano_queue(world, spec_of(job).queue or DEFAULT_QUEUE) is None:
        return DONE
    documents = {
        queue.name: {"spec": {"parent": queue.parent}, "status": {"state": queue.state}}
        for queue in _known(world).values()
    }
    return message_of(check_queue({"spec": {"queue": spec_of(job).queue or DEFAULT_QUEUE}}, documents)).strip()


def _carry_out(world: World, name: str, action: JobAction) -> None:
    busy = {group.queue or DEFAULT_QUEUE for group in world.state.table("pod_groups").all()}
    for changed in queue_command(name, action, _known(world), busy):
        world.put(changed)
        world.tell(HistoryEventKind.QUEUE_CHANGED, queue=changed.name, reason=changed.state)


def _known(world: World) -> dict[str, VolcanoQueue]:
    return {queue.name: queue for queue in world.state.table("volcano_queues").all()}


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
        close_if_empty(world, spec_of(job).queue or DEFAULT_QUEUE)


def _classes(world: World) -> list[PriorityClass]:
    return list(world.state.table("priority_classes").all())
