"""Actions of Volcano's job controller: run at once or after a timeout, and applied to pods and status."""

from msgspec.structs import replace

from gpuconsole.model.clock import MILLISECOND, Span
from gpuconsole.model.cluster import Pod
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.job import Job
from gpuconsole.model.volcano import JobAction, VolcanoPhase, VolcanoStatus
from gpuconsole.scheduling.volcano.jobs.controller_actions import action_message, initial, kill, sync
from gpuconsole.scheduling.volcano.jobs.pods import VolumeClaimMissing
from gpuconsole.scheduling.volcano.jobs.requests import (
    SYNC,
    Delayed,
    JobRequest,
    added,
    outlived,
    react,
    request_of_job,
    settled,
    target_of,
)
from gpuconsole.scheduling.volcano.jobs.states import ActionPlan, ControllerCall, course
from gpuconsole.scheduling.volcano.jobs.tasks import OUT_OF_SYNC
from gpuconsole.sim.controllers import pods, work
from gpuconsole.sim.controllers.limits import defaulted_sets
from gpuconsole.sim.controllers.volcano import claims, groups, phases
from gpuconsole.sim.controllers.volcano.event_requests import request_about
from gpuconsole.sim.controllers.volcano.members import enlist_pods, pods_of_job
from gpuconsole.sim.kernel import ActLater, Restart
from gpuconsole.sim.world import World

_ATTEMPTS: Span = 5 * MILLISECOND * (2**15 - 1)
"""Time from the first attempt of a request to its 15th retry; the delay begins at 5 ms and doubles."""
_EVICTING_ACTIONS = (
    *(JobAction.RESTART_JOB, JobAction.RESTART_TASK, JobAction.RESTART_POD, JobAction.RESTART_PARTITION),
    *(JobAction.ABORT_JOB, JobAction.TERMINATE_JOB),
)
"""Actions whose deletion of running pods is recorded as an eviction."""


def ask(world: World, request: JobRequest | None) -> None:
    """Add a request to the controller's queue."""
    if request is not None:
        world.requests.append(request)


def proceed(world: World) -> None:
    """Turn the next object change into a request; without changes, handle the next request."""
    if world.changes:
        ask(world, request_about(world, world.changes.pop(0)))
    else:
        _handle(world, world.requests.pop(0))


def start(world: World, job: Job) -> None:
    """Reconcile a new job."""
    ask(world, request_of_job(job))


def _handle(world: World, request: JobRequest) -> None:
    job = world.job(request.job)
    if job is None:
        world.delays.pop(request.job, None)
        return
    delays = outlived(world.delays.get(job.key, {}), request)
    reaction = react(job, request)
    if reaction.delay:
        delayed = Delayed(request=request, action=reaction.action, due=world.now + reaction.delay)
        later = added(delays, delayed)
        if later is not delays:
            world.kernel.at(delayed.due, ActLater(job.key, request.pod))
        world.delays[job.key] = dict(later)
        return
    if delays or job.key in world.delays:
        world.delays[job.key] = dict(delays)
    if not (reaction == SYNC and _syncs_next(world, job)):
        execute(world, job, reaction.action, request)


def _syncs_next(world: World, job: Job) -> bool:
    """True if the next request only syncs the same job: one sync is enough for both."""
    return bool(world.requests) and world.requests[0].job == job.key and react(job, world.requests[0]) == SYNC


def act(world: World, timer: ActLater) -> None:
    """Run an action whose timeout is over, unless it was cancelled or replaced."""
    delayed = world.delays.get(timer.job, {}).get(timer.pod)
    job = world.job(timer.job)
    if job is not None and delayed is not None and delayed.due == world.now:
        del world.delays[timer.job][timer.pod]
        execute(world, job, delayed.action, delayed.request)


def execute(world: World, job: Job, action: JobAction, request: JobRequest) -> None:
    """Run an action in the job's phase; delayed actions with the same target are cancelled."""
    chosen = course(job, action, target_of(action, request))
    if chosen.call is ControllerCall.SYNC:
        _sync(world, job, chosen)
    else:
        _kill(world, job, chosen, action)
    left = settled(world.delays.get(job.key, {}), action, request)
    if left:
        world.delays[job.key] = dict(left)
    else:
        world.delays.pop(job.key, None)


def _sync(world: World, job: Job, chosen: ActionPlan) -> None:
    begun = replace(job, volcano_status=initial(job, world.now))
    try:
        begun = claims.ensure_claims(world, begun)
    except VolumeClaimMissing as problem:
        if job.volcano_status.phase is VolcanoPhase.NEW:
            text = f"Failed to create PVC, err: {problem}"
            world.tell(HistoryEventKind.PENDING, workload=job.key, reason="PVCError", message=text)
        _write(world, job, begun.volcano_status)
        return
    group = groups.ensure_group(world, begun)
    whole = replace(begun, pod_sets=defaulted_sets(world, job.namespace, job.pod_sets))
    synced = sync(whole, pods_of_job(world, job), group.phase, world.now, chosen.update)
    try:
        complete = enlist_pods(world, whole, synced.create)
    except ValueError as problem:
        world.tell(HistoryEventKind.PENDING, workload=job.key, reason=pods.FAILED_CREATE, message=str(problem))
        return
    if not complete:
        _retry(world, job)
        return
    if synced.delete:
        work.interrupt(world, job.key)
        pods.remove(world, synced.delete, "ScaledDown")
    _write(world, world.job(job.key) or job, synced.status)


def _retry(world: World, job: Job) -> None:
    """Terminate a job after the last attempt to create pods (handleJobError, --max-requeue-num); before it, wait."""
    since = world.groups[job.key].refused_since
    if since is None:
        return
    if since == world.now:
        world.kernel.at(since + _ATTEMPTS, Restart(job.key))
    elif world.now >= since + _ATTEMPTS:
        text = f"Job failed on action {JobAction.SYNC_JOB} for retry limit reached"
        world.tell(HistoryEventKind.PENDING, workload=job.key, reason="ExecuteAction", message=text)
        execute(world, job, JobAction.TERMINATE_JOB, JobRequest(job=job.key))


def _kill(world: World, job: Job, chosen: ActionPlan, action: JobAction) -> None:
    members = pods_of_job(world, job)
    killing = kill(job, members, chosen, world.now)
    if killing is None:
        return
    if killing.delete:
        loss = work.interrupt(world, job.key)
        marked = [_marked(world, pod) for pod in killing.delete]
        if action in _EVICTING_ACTIONS and any(pod.node for pod in marked):
            world.tell(
                HistoryEventKind.EVICTED,
                workload=job.key,
                reason=action.value,
                message=action_message(action).strip(),
                **world.devices.held(marked),
                lost_gpu_seconds=loss.gpu_seconds,
                cost=loss.cost,
            )
        pods.remove(world, marked, action.value)
    groups.drop_group(world, job)
    _write(world, world.job(job.key) or job, killing.status)


def _marked(world: World, pod: Pod) -> Pod:
    marked = replace(pod, annotations={**pod.annotations, OUT_OF_SYNC: "true"})
    world.put(marked)
    return marked


def _write(world: World, job: Job, status: VolcanoStatus) -> None:
    """Update the status; a new phase triggers another reconcile."""
    before = job.volcano_status
    if status == before:
        return
    job = replace(job, volcano_status=status, failures=status.retry_count)
    world.put(job)
    if status.phase is not before.phase:
        phases.reach_phase(world, job)
        ask(world, request_of_job(job))
