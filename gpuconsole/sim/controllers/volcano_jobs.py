"""Volcano's job controller: changes of pods and PodGroups become requests, requests become actions.

`request_of_change` turns a change into a request, `run_step` handles one request, and `execute_action` runs its action,
at once or after the timeout of the job's policy: it creates or deletes pods, PodGroup and claims, and writes the job's
status. `apply_phase_change` carries out the effects of a new phase. Volcano's queues are opened and closed here as
well; a closing queue is closed when its last PodGroup is deleted. The rules are in `scheduling.volcano.jobs`.
"""

import hashlib
from collections.abc import Sequence

from msgspec.structs import replace

from gpuconsole.model.apiserver.volcano.jobs import check_queue
from gpuconsole.model.apiserver.volcano.queues_and_pod_groups import message_of
from gpuconsole.model.clock import MILLISECOND, Span
from gpuconsole.model.cluster import PersistentVolumeClaim, Pod, PodPhase, PriorityClass
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.job import Job, JobPhase
from gpuconsole.model.jobs.volcano import job_phase
from gpuconsole.model.objects import TABLES
from gpuconsole.model.queues import StopPolicy
from gpuconsole.model.volcano import JobAction, JobEvent, PodGroup, VolcanoPhase, VolcanoQueue, VolcanoStatus
from gpuconsole.scheduling.volcano.jobs.job_plugins import apply_plugins
from gpuconsole.scheduling.volcano.jobs.pod_group import group_name, group_of, updated_group
from gpuconsole.scheduling.volcano.jobs.pods import (
    VolumeClaimMissing,
    action_message,
    initial_status,
    plan_kill,
    plan_sync,
    with_claims,
)
from gpuconsole.scheduling.volcano.jobs.states import (
    CLOSING,
    OUT_OF_SYNC,
    SYNC,
    ActionPlan,
    ControllerCall,
    DelayedAction,
    JobRequest,
    add_delayed,
    cancel_obsolete,
    cancel_replaced,
    choose_action,
    event_of_change,
    is_outdated,
    plan_action,
    queue_command,
    queue_refusal,
    request_of,
    request_of_group,
    request_of_job,
    spec_of,
    target_of,
    task_of_pod,
    tasks_of,
)
from gpuconsole.sim.controllers import job_lifecycle, pods, work
from gpuconsole.sim.controllers.admission_plugins import CARRIED_OUT, Refusal, pod_priority, pod_sets_with_defaults
from gpuconsole.sim.controllers.pods import create_pods
from gpuconsole.sim.kernel import RecreatePods, RemoveFinished, VolcanoActionDue
from gpuconsole.sim.world import VOLCANO_JOB, RunningGroup, VolcanoChange, World, first_group_phase

DEFAULT_QUEUE = "default"


def volcano_queue(world: World, name: str) -> VolcanoQueue | None:
    """The Volcano Queue of this name; None if it does not exist."""
    found: VolcanoQueue | None = world.state.get(VolcanoQueue, name)
    return found


def set_queue_state(world: World, queue: VolcanoQueue, policy: StopPolicy) -> Refusal:
    """Close or open a Volcano queue by a Command of bus.volcano.sh. Its jobs are not affected."""
    action = JobAction.OPEN_QUEUE if policy is StopPolicy.NONE else JobAction.CLOSE_QUEUE
    known = _queues_by_name(world)
    problem = queue_refusal(queue, action, known)
    if problem:
        return problem
    _run_queue_command(world, queue.name, action)
    return CARRIED_OUT


def close_if_empty(world: World, name: str) -> None:
    """Close a closing Volcano queue once it has no PodGroup."""
    queue = volcano_queue(world, name)
    if queue is not None and queue.state == CLOSING:
        _run_queue_command(world, name, JobAction.SYNC_QUEUE)


def new_job_refusal(world: World, job: Job) -> Refusal:
    """Why its queue rejects a new Volcano Job; empty if it does not, or if the queue does not exist."""
    if volcano_queue(world, spec_of(job).queue or DEFAULT_QUEUE) is None:
        return CARRIED_OUT
    documents = {
        queue.name: {"spec": {"parent": queue.parent}, "status": {"state": queue.state}}
        for queue in _queues_by_name(world).values()
    }
    return message_of(check_queue({"spec": {"queue": spec_of(job).queue or DEFAULT_QUEUE}}, documents)).strip()


def _run_queue_command(world: World, name: str, action: JobAction) -> None:
    busy = {group.queue or DEFAULT_QUEUE for group in world.state.table("pod_groups").all()}
    for changed in queue_command(name, action, _queues_by_name(world), busy):
        world.put(changed)
        world.record_event(HistoryEventKind.QUEUE_CHANGED, queue=changed.name, reason=changed.state)


def _queues_by_name(world: World) -> dict[str, VolcanoQueue]:
    return {queue.name: queue for queue in world.state.table("volcano_queues").all()}


def pod_group_key(job: Job) -> str:
    """The key of a Volcano Job's PodGroup."""
    return f"{job.namespace}/{group_name(job)}"


def ensure_pod_group(world: World, job: Job) -> PodGroup:
    """Create or update the PodGroup of a Volcano Job. Without Volcano's scheduler it starts as Inqueue."""
    classes: dict[str, int] = {known.name: known.value for known in _priority_classes(world)}
    found: PodGroup | None = world.state.get(PodGroup, pod_group_key(job))
    if found is not None:
        wanted = updated_group(found, job, classes)
    else:
        fresh = group_of(job, classes)
        uid, phase = world.uid("PodGroup", fresh.key), first_group_phase(world.policy)
        wanted = replace(fresh, uid=uid, created=world.now, phase=phase)
    if wanted is not found:
        world.put(wanted)
    return wanted


def job_of_pod_group(world: World, key: str) -> str:
    """The key of the Volcano Job that a PodGroup belongs to, by the PodGroup's name; empty without one."""
    namespace, _, name = key.partition("/")
    parts = name.split("-")
    for length in range(len(parts) - 1, 0, -1):
        job = world.job(f"{VOLCANO_JOB}{namespace}/{'-'.join(parts[:length])}")
        if job is not None and pod_group_key(job) == key:
            return job.key
    return ""


def delete_group(world: World, job: Job) -> None:
    """Delete the PodGroup of a Volcano Job; the next one has to be enqueued again."""
    if world.state.get(PodGroup, pod_group_key(job)) is not None:
        world.drop(PodGroup, pod_group_key(job))
        close_if_empty(world, spec_of(job).queue or DEFAULT_QUEUE)


def _priority_classes(world: World) -> list[PriorityClass]:
    return list(world.state.table("priority_classes").all())


_SUFFIX = 12


def ensure_claims(world: World, job: Job) -> Job:
    """The Volcano Job, with the PersistentVolumeClaims that it owns created.

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

    named, new_pods = with_claims(job, exists, name_for)
    for claim in new_pods:
        world.put(replace(claim, uid=world.uid("PersistentVolumeClaim", claim.key), created=world.now))
    if named is not job:
        world.put(named)
    return named


def delete_orphaned_claims(world: World) -> list[JobRequest]:
    """Delete claims whose Volcano Job is deleted; returns requests for jobs whose missing claims exist now."""
    for claim in list(world.state.table("persistent_volume_claims").all()):
        if claim.job and world.job(claim.job) is None:
            world.drop(PersistentVolumeClaim, claim.key)
    asked = (request_of_job(job) for job in world.state.table("jobs").all() if _waits_for_claims(world, job))
    return [request for request in asked if request is not None]


def _waits_for_claims(world: World, job: Job) -> bool:
    if job.volcano is None or not job.volcano.volumes or job.key in world.groups:
        return False
    if job.volcano_status.phase is not VolcanoPhase.PENDING:
        return False
    names = (volume.claim for volume in job.volcano.volumes if volume.claim)
    return all(world.state.get(PersistentVolumeClaim, f"{job.namespace}/{name}") is not None for name in names)


def pods_of_job(world: World, job: Job) -> list[Pod]:
    """The pods of a Volcano Job, including terminating and finished ones."""
    group = world.groups.get(job.key)
    return [pod for key in (group.pods if group else ()) if (pod := world.pod(key)) is not None]


def create_job_pods(world: World, job: Job, new_pods: Sequence[Pod]) -> bool:
    """Create these pods of a Volcano Job, with the additions of its plugins; False if the API server refuses some."""
    group = world.groups.get(job.key) or RunningGroup(key=job.key, job=job.key)
    fresh = [_complete_pod_spec(world, job, pod) for pod in new_pods]
    # A recreated pod has the name of the previous one, which the group may still list.
    keys = tuple(dict.fromkeys((*group.pods, *(pod.key for pod in fresh))))
    world.put_group(replace(group, pods=keys, is_reported=False))
    return not create_pods(world, group.key, fresh)


def _complete_pod_spec(world: World, job: Job, pod: Pod) -> Pod:
    whole = apply_plugins(job, pod)
    return replace(
        whole,
        uid=world.uid("Pod", pod.key),
        created=world.now,
        priority=pod_priority(world, pod.template),
        gang=group_name(job),
    )


def recount_pods(world: World, job: Job, group: RunningGroup) -> RunningGroup:
    """Count the pods of a Volcano Job again; ended ones count as missing."""
    pods = pods_of_job(world, job)
    counted = replace(
        group,
        pods=tuple(pod.key for pod in pods),
        pods_needed=max(spec_of(job).min_available, 1),
        running=sum(bool(pod.node) and not pod.deleted and not pod.done for pod in pods),
        starting=sum(bool(pod.node) and not (pod.deleted or pod.done or pod.started) for pod in pods),
        terminating=sum(bool(pod.node) and pod.deleted > 0 and not pod.done for pod in pods),
        missing=sum(pod.done for pod in pods),
    )
    world.groups[group.key] = counted
    return counted


EXIT_CODE = 1
"""Exit code of the containers when a simulated pod fails by itself; there is none when a node is lost."""
_BY_ITSELF = "Error"


def request_of_change(world: World, change: VolcanoChange) -> JobRequest | None:
    """The request caused by a change of a pod or PodGroup; None if it does not affect a Volcano Job."""
    obj = change.new or change.old
    if isinstance(obj, PodGroup):
        return _request_of_group_change(world, change.old, change.new)
    assert isinstance(obj, Pod)
    job = world.job(obj.job)
    if job is None:
        return None
    old, new = change.old, change.new
    assert not isinstance(old, PodGroup)
    assert not isinstance(new, PodGroup)
    if new is None:
        return request_of(obj, job, JobEvent.POD_EVICTED)
    if old is None:
        return request_of(new, job, JobEvent.POD_PENDING)
    if (old.phase, old.deleted > 0, is_outdated(old)) == (new.phase, new.deleted > 0, is_outdated(new)):
        return None
    exit_code = EXIT_CODE if new.reason == _BY_ITSELF else 0
    # The other pods matter only when this one has succeeded.
    others = pods_of_job(world, job) if new.phase is PodPhase.SUCCEEDED else ()
    event = event_of_change(old, new, job, others)
    return request_of(new, job, event, exit_code if event is JobEvent.POD_FAILED else 0)


def _request_of_group_change(world: World, old: object, new: object) -> JobRequest | None:
    """The request for a PodGroup that became Inqueue or Unknown."""
    if not isinstance(old, PodGroup) or not isinstance(new, PodGroup):
        return None
    job = job_of_pod_group(world, new.key)
    return request_of_group(job, new, old) if job else None


_ENDINGS = {
    VolcanoPhase.COMPLETED: (HistoryEventKind.FINISHED, "Completed"),
    VolcanoPhase.FAILED: (HistoryEventKind.FAILED, "Failed"),
    VolcanoPhase.TERMINATED: (HistoryEventKind.FAILED, "Terminated"),
}


def apply_phase_change(world: World, job: Job) -> None:
    """Carry out the effects of a Volcano Job's new phase: history, the simulated job's status, cleanup."""
    phase = job.volcano_status.phase
    ending = _ENDINGS.get(phase)
    if ending is not None:
        _end_job(world, job, *ending)
    elif phase is VolcanoPhase.ABORTED:
        world.record_event(
            HistoryEventKind.EVICTED,
            workload=job.key,
            reason="Aborted",
            message="the job is aborted until it is resumed",
        )
        job_lifecycle.set_phase(world, job.key, JobPhase.SUSPENDED, suspended=True)
    elif phase is VolcanoPhase.RUNNING:
        # The job is marked as running only when its work begins.
        world.groups_to_reconcile[job.key] = None
    else:
        job_lifecycle.set_phase(world, job.key, job_phase(phase))


def _end_job(world: World, job: Job, what: HistoryEventKind, reason: str) -> None:
    members = pods_of_job(world, job)
    retries = job.volcano_status.retry_count
    loss = work.interrupt_work(world, job.key) if what is HistoryEventKind.FAILED else work.NO_LOSS
    world.record_event(
        what,
        workload=job.key,
        reason=reason,
        message=f"phase {reason} after {retries} retries" if retries else f"phase {reason}",
        **world.devices.held(members),
        lost_gpu_seconds=loss.gpu_seconds,
        cost=loss.cost,
    )
    job_lifecycle.set_phase(world, job.key, job_phase(job.volcano_status.phase))
    _schedule_cleanup(world, job, members)


def _schedule_cleanup(world: World, job: Job, members: list[Pod]) -> None:
    """Delete a job with ttlSecondsAfterFinished, and its pods, after that time (garbage collector)."""
    ended = world.job(job.key)
    ttl = spec_of(job).ttl
    if ttl is None:
        job_lifecycle.schedule_removal(world, (ended, *members))
        return
    pods_too = tuple((TABLES[Pod], pod.key, pod.uid) for pod in members)
    world.kernel.set_timer(world.now + ttl, RemoveFinished((*pods_too, (TABLES[Job], job.key, job.uid))))


def complete_work(world: World, job: Job) -> bool:
    """Complete the running pods of the tasks that complete the job, or else all running ones; False if none runs."""
    group = world.groups.get(job.key)
    if group is not None:
        world.groups[job.key] = replace(group, start=None)
    running = [pod for pod in pods_of_job(world, job) if pod.started and not pod.done and not pod.deleted]
    deciding = _deciding_tasks(job)
    for pod in [pod for pod in running if task_of_pod(pod) in deciding] or running:
        pods.complete_pod(world, pod)
    return bool(running)


def _deciding_tasks(job: Job) -> set[str]:
    return {
        task.name
        for task in tasks_of(job)
        for policy in task.policies
        if policy.action is JobAction.COMPLETE_JOB and JobEvent.TASK_COMPLETED in policy.events
    }


_ATTEMPTS: Span = 5 * MILLISECOND * (2**15 - 1)
"""Time from the first attempt of a request to its 15th retry; the delay begins at 5 ms and doubles."""
_EVICTING_ACTIONS = (
    *(JobAction.RESTART_JOB, JobAction.RESTART_TASK, JobAction.RESTART_POD, JobAction.RESTART_PARTITION),
    *(JobAction.ABORT_JOB, JobAction.TERMINATE_JOB),
)
"""Actions whose deletion of running pods is recorded as an eviction."""


def queue_request(world: World, request: JobRequest | None) -> None:
    """Queue a request, if any, for Volcano's job controller."""
    if request is not None:
        world.volcano_requests.append(request)


def run_step(world: World) -> None:
    """Do one step of Volcano's job controller: turn an object change into a request, else handle a request."""
    if world.volcano_changes:
        queue_request(world, request_of_change(world, world.volcano_changes.pop(0)))
    else:
        _handle_request(world, world.volcano_requests.pop(0))


def start_job(world: World, job: Job) -> None:
    """Let Volcano's job controller reconcile a new Volcano Job."""
    queue_request(world, request_of_job(job))


def _handle_request(world: World, request: JobRequest) -> None:
    job = world.job(request.job)
    if job is None:
        world.delayed_actions.pop(request.job, None)
        return
    delays = cancel_obsolete(world.delayed_actions.get(job.key, {}), request)
    reaction = choose_action(job, request)
    if reaction.delay:
        delayed = DelayedAction(request=request, action=reaction.action, due=world.now + reaction.delay)
        later = add_delayed(delays, delayed)
        if later is not delays:
            world.kernel.set_timer(delayed.due, VolcanoActionDue(job.key, request.pod))
        world.delayed_actions[job.key] = dict(later)
        return
    if delays or job.key in world.delayed_actions:
        world.delayed_actions[job.key] = dict(delays)
    if not (reaction == SYNC and _is_followed_by_sync(world, job)):
        execute_action(world, job, reaction.action, request)


def _is_followed_by_sync(world: World, job: Job) -> bool:
    """True if the next request only syncs the same job: one sync is enough for both."""
    return (
        bool(world.volcano_requests)
        and world.volcano_requests[0].job == job.key
        and choose_action(job, world.volcano_requests[0]) == SYNC
    )


def run_delayed_action(world: World, timer: VolcanoActionDue) -> None:
    """Run an action whose timeout is over, unless it was cancelled or replaced."""
    delayed = world.delayed_actions.get(timer.job, {}).get(timer.pod)
    job = world.job(timer.job)
    if job is not None and delayed is not None and delayed.due == world.now:
        del world.delayed_actions[timer.job][timer.pod]
        execute_action(world, job, delayed.action, delayed.request)


def execute_action(world: World, job: Job, action: JobAction, request: JobRequest) -> None:
    """Run an action in the job's phase; delayed actions with the same target are cancelled."""
    action_plan = plan_action(job, action, target_of(action, request))
    if action_plan.call is ControllerCall.SYNC:
        _sync_job(world, job, action_plan)
    else:
        _kill_job(world, job, action_plan, action)
    left = cancel_replaced(world.delayed_actions.get(job.key, {}), action, request)
    if left:
        world.delayed_actions[job.key] = dict(left)
    else:
        world.delayed_actions.pop(job.key, None)


def _sync_job(world: World, job: Job, action_plan: ActionPlan) -> None:
    begun = replace(job, volcano_status=initial_status(job, world.now))
    try:
        begun = ensure_claims(world, begun)
    except VolumeClaimMissing as problem:
        if job.volcano_status.phase is VolcanoPhase.NEW:
            text = f"Failed to create PVC, err: {problem}"
            world.record_event(HistoryEventKind.PENDING, workload=job.key, reason="PVCError", message=text)
        _write_status(world, job, begun.volcano_status)
        return
    group = ensure_pod_group(world, begun)
    whole = replace(begun, pod_sets=pod_sets_with_defaults(world, job.namespace, job.pod_sets))
    synced = plan_sync(whole, pods_of_job(world, job), group.phase, world.now, action_plan.update)
    try:
        complete = create_job_pods(world, whole, synced.create)
    except ValueError as problem:
        world.record_event(HistoryEventKind.PENDING, workload=job.key, reason=pods.FAILED_CREATE, message=str(problem))
        return
    if not complete:
        _terminate_after_retries(world, job)
        return
    if synced.delete:
        work.interrupt_work(world, job.key)
        pods.delete_pods(world, synced.delete, "ScaledDown")
    _write_status(world, world.job(job.key) or job, synced.status)


def _terminate_after_retries(world: World, job: Job) -> None:
    """Terminate a job after the last attempt to create pods (handleJobError, --max-requeue-num); before it, wait."""
    since = world.groups[job.key].refused_since
    if since is None:
        return
    if since == world.now:
        world.kernel.set_timer(since + _ATTEMPTS, RecreatePods(job.key))
    elif world.now >= since + _ATTEMPTS:
        text = f"Job failed on action {JobAction.SYNC_JOB} for retry limit reached"
        world.record_event(HistoryEventKind.PENDING, workload=job.key, reason="ExecuteAction", message=text)
        execute_action(world, job, JobAction.TERMINATE_JOB, JobRequest(job=job.key))


def _kill_job(world: World, job: Job, action_plan: ActionPlan, action: JobAction) -> None:
    members = pods_of_job(world, job)
    killing = plan_kill(job, members, action_plan, world.now)
    if killing is None:
        return
    if killing.delete:
        loss = work.interrupt_work(world, job.key)
        marked = [_mark_out_of_sync(world, pod) for pod in killing.delete]
        if action in _EVICTING_ACTIONS and any(pod.node for pod in marked):
            world.record_event(
                HistoryEventKind.EVICTED,
                workload=job.key,
                reason=action.value,
                message=action_message(action).strip(),
                **world.devices.held(marked),
                lost_gpu_seconds=loss.gpu_seconds,
                cost=loss.cost,
            )
        pods.delete_pods(world, marked, action.value)
    delete_group(world, job)
    _write_status(world, world.job(job.key) or job, killing.status)


def _mark_out_of_sync(world: World, pod: Pod) -> Pod:
    marked = replace(pod, annotations={**pod.annotations, OUT_OF_SYNC: "true"})
    world.put(marked)
    return marked


def _write_status(world: World, job: Job, status: VolcanoStatus) -> None:
    """Update the status; a new phase triggers another reconcile."""
    before = job.volcano_status
    if status == before:
        return
    job = replace(job, volcano_status=status, failures=status.retry_count)
    world.put(job)
    if status.phase is not before.phase:
        apply_phase_change(world, job)
        queue_request(world, request_of_job(job))
