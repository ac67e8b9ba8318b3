"""Volcano's queues: opened, closing, and closed when their last PodGroup is deleted."""

from gpuconsole.model.apiserver.volcano.common import message_of
from gpuconsole.model.apiserver.volcano.jobs import check_queue
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.job import Job
from gpuconsole.model.queues import StopPolicy
from gpuconsole.model.volcano import JobAction, VolcanoQueue
from gpuconsole.scheduling.volcano.jobs.states import CLOSING, queue_command, queue_refusal
from gpuconsole.scheduling.volcano.jobs.tasks import spec_of
from gpuconsole.sim.controllers.refusals import DONE, Refusal
from gpuconsole.sim.world import World

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
