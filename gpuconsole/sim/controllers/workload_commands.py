"""Commands on one workload or job: stop, resume, requeue, set the priority, move, finish.

Each returns why it was refused, or nothing. Jobs without a Workload are suspended by their own field (spec.suspend),
Volcano Jobs by a Command of bus.volcano.sh.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from gpuconsole.model.events import Evict, HistoryEventKind
from gpuconsole.model.job import CronRules, Job, JobPhase
from gpuconsole.model.volcano import JobAction, VolcanoPhase
from gpuconsole.model.workloads import RequeueState, Workload
from gpuconsole.scheduling.kueue import apply_decisions, conditions
from gpuconsole.scheduling.kueue.slices import latest_active_slice
from gpuconsole.scheduling.volcano.jobs.states import (
    request_of_command,
    request_of_job,
    spec_of,
    tasks_of,
    total_replicas,
)
from gpuconsole.sim.controllers import eviction, job_lifecycle, jobs, pods, volcano_jobs, work, workloads
from gpuconsole.sim.controllers.admission_plugins import CARRIED_OUT, NoChange, Refusal
from gpuconsole.sim.world import RunningGroup, World

_SUSPENDABLE_KINDS = (
    "Job",
    "CronJob",
    "JobSet",
    "PyTorchJob",
    "TFJob",
    "MPIJob",
    "XGBoostJob",
    "PaddleJob",
    "JAXJob",
    "TrainJob",
)
_OTHER_KINDS = (
    *("RayCronJob", "VolcanoCronJob", "ScheduledSparkApplication"),
    *("RayJob", "RayCluster", "RayService", "SparkApplication", "AppWrapper"),
)


def job_named(world: World, key: str) -> Job | None:
    """The unfinished job that can be suspended with this `namespace/name` or full key."""
    found = (world.job(name) for name in (key, *(f"{kind}/{key}" for kind in (*_SUSPENDABLE_KINDS, *_OTHER_KINDS))))
    return next((job for job in found if job is not None and not job.ended), None)


def set_job_active(world: World, job: Job, active: bool) -> Refusal:
    """Suspend a job without a Workload (spec.suspend), which deletes its pods, or resume it."""
    if job.kind not in (*_SUSPENDABLE_KINDS, *_OTHER_KINDS):
        return f"a {job.kind} cannot be suspended; scale it to 0"
    if jobs.is_managed(world, job):
        return f"job {job.key} is Kueue's to suspend; stop its workload"
    if job.suspended is not active:
        return NoChange(f"job {job.key} is {'active' if active else 'suspended'} already")
    if isinstance(job.rules, CronRules):
        resumed = replace(job, suspended=not active, phase=JobPhase.PENDING if active else JobPhase.SUSPENDED)
        world.put(resumed)
        world.creators_to_reconcile[job.key] = None
        jobs.set_cron_timer(world, resumed)
    elif active:
        if job.key in world.groups:
            return f"pods of {job.key} are still terminating; retry in a moment"
        job_lifecycle.set_phase(world, job.key, JobPhase.PENDING)
        jobs.start_unmanaged(world, replace(job, suspended=False))
    else:
        _suspend_job(world, job)
    return CARRIED_OUT


def _suspend_job(world: World, job: Job) -> None:
    loss = work.interrupt_work(world, job.key)
    job_lifecycle.set_phase(world, job.key, JobPhase.SUSPENDED, suspended=True)
    group = world.groups.get(job.key)
    members = pods.pods_of(world, group) if group is not None else []
    world.record_event(
        HistoryEventKind.EVICTED,
        workload=job.key,
        reason="Suspended",
        message="Job suspended",
        **world.devices.held(members),
        lost_gpu_seconds=loss.gpu_seconds,
        cost=loss.cost,
    )
    pods.delete_pods(world, [pod for pod in members if not pod.done], "Suspended")
    if group is not None:
        world.groups_to_reconcile[group.key] = None


_STOPPED = (VolcanoPhase.ABORTING, VolcanoPhase.ABORTED)


def volcano_job_named(world: World, key: str) -> Job | None:
    """The unfinished Volcano Job with this `namespace/name` or full key."""
    job = world.job(key) or world.job(f"VolcanoJob/{key}")
    return job if job is not None and job.volcano is not None and not job.ended else None


def scaled_volcano_job(world: World, before: Job, job: Job) -> Refusal:
    """Scale the tasks of a Volcano Job from `before` to `job`, as far as Volcano's webhook allows."""
    for task in tasks_of(job):
        if task.min_available > task.replicas:
            return f"'minAvailable' must be <= 'replicas' in task: {task.name}"
    if spec_of(job).min_available > total_replicas(job):
        return "job 'minAvailable' must not be greater than total replicas"
    world.put(job)
    volcano_jobs.queue_request(world, request_of_job(job, before))
    return CARRIED_OUT


def set_volcano_job_active(world: World, job: Job, active: bool) -> Refusal:
    """Abort a Volcano Job, or resume an aborted one (a Command of bus.volcano.sh)."""
    stopped = job.volcano_status.phase in _STOPPED
    if active is not stopped:
        return NoChange(f"job {job.key} is {'active' if active else 'stopped'} already")
    if active:
        job = replace(job, suspended=False)
        world.put(job)
    action = JobAction.RESUME_JOB if active else JobAction.ABORT_JOB
    volcano_jobs.queue_request(world, request_of_command(job.key, action))
    return CARRIED_OUT


def set_active(world: World, key: str, active: bool, cause: str = "", why: str = "") -> Refusal:
    """Deactivate a workload (which evicts it if it holds quota) or activate it; `why` is named in the message.

    `cause` is the underlying cause of the eviction. A Volcano Job without a Workload is aborted or resumed; any other
    such job is suspended.
    """
    workload, job = world.workload(key), volcano_job_named(world, key)
    if workload is None and job is not None:
        return set_volcano_job_active(world, job, active)
    plain = job_named(world, key) if workload is None else None
    if plain is not None:
        return set_job_active(world, plain, active)
    if workload is None or workload.finished:
        return _missing_workload(world, workload, key)
    if workload.active == active:
        return NoChange(f"workload {key} is {'active' if active else 'stopped'} already")
    if not active:
        _deactivate(world, workload, cause, why)
        return CARRIED_OUT
    changed = replace(workload, active=True)
    if not workload.reserved:
        changed = conditions.mark_reactivated(changed, world.now)
    world.put(changed)
    workloads.record_obstacle(world, changed)
    return CARRIED_OUT


def _deactivate(world: World, workload: Workload, cause: str, why: str) -> None:
    """Evict a workload for good and reset its requeue state. One without quota gets the condition, too."""
    stopped = replace(workload, active=False, requeue=RequeueState())
    message = f"The workload is deactivated due to {why}" if why else "The workload is deactivated"
    decision = Evict(workload.key, conditions.DEACTIVATED, message, cause=cause)
    if workload.is_true(conditions.EVICTED):
        world.put(stopped)
    elif workload.reserved:
        eviction.evict(world, stopped, decision)
    else:
        world.put(apply_decisions.with_eviction(stopped, decision, world.now))
    workloads.record_obstacle(world, stopped)


def requeue_workload(world: World, key: str) -> Refusal:
    """Evict a workload and requeue it."""
    workload = world.workload(key)
    if workload is None or workload.finished:
        return _missing_workload(world, workload, key)
    if workload.is_true(conditions.EVICTED) and workload.reserved:
        return NoChange(f"workload {key} is already being requeued: its pods are terminating")
    if not workload.reserved:
        return NoChange(f"workload {key} is already pending; only workloads with reserved quota can be requeued")
    eviction.evict_for(world, workload, conditions.DEACTIVATED, "The workload is requeued by an operator")
    return CARRIED_OUT


def set_priority(world: World, key: str, priority: int, class_name: str = "") -> Refusal:
    """Change the priority of a pending or running workload; its class as well if one is named."""
    workload = world.workload(key)
    if workload is None or workload.finished:
        return _missing_workload(world, workload, key)
    if not -(2**31) <= priority < 2**31:
        return f"priority {priority} is outside the 32-bit range that Kubernetes allows"
    if class_name:
        workload = replace(workload, priority_class=class_name, priority_kind="WorkloadPriorityClass")
    if workload == world.workload(key) and workload.priority == priority:
        return NoChange(f"workload {key} has priority {priority} already")
    world.put(replace(workload, priority=priority))
    return CARRIED_OUT


def move_to_queue(world: World, key: str, queue: str) -> Refusal:
    """Move a pending workload to another LocalQueue of its namespace."""
    workload = world.workload(key)
    if workload is None or workload.finished:
        return _missing_workload(world, workload, key)
    if workload.reserved:
        return f"workload {key} holds quota in {workload.cluster_queue}; stop it first, then move it, then resume it"
    if world.local_queue(f"{workload.namespace}/{queue}") is None:
        names = sorted(q.name for q in world.state.table("local_queues").all() if q.namespace == workload.namespace)
        known = ", ".join(names) or "none"
        return f"namespace {workload.namespace} has no LocalQueue {queue}; it has: {known}"
    if workload.queue == queue:
        return NoChange(f"workload {key} is in {queue} already")
    job = world.job(workload.owner) if workload.owner else None
    if job is not None:
        world.put(replace(job, queue=queue))
    moved = replace(workload, queue=queue, inadmissible=False)
    world.put(moved)
    workloads.record_obstacle(world, moved)
    return CARRIED_OUT


def finish_work(world: World, key: str) -> Refusal:
    """Finish a workload, a lone pod or (by `namespace/name`) a job now, whether or not it ran."""
    workload = world.workload(key) or _workload_of(world, key)
    if workload is not None and workload.finished:
        return _missing_workload(world, workload, key)
    group = world.groups.get(workload.key) if workload is not None else _group_of(world, key)
    if group is not None:
        workloads.complete_group(world, group, by_command=True)
    elif workload is not None:
        workloads.finish_pending(world, workload)
    else:
        return f"there is no unfinished workload, job or pod {key}"
    return CARRIED_OUT


def _workload_of(world: World, key: str) -> Workload | None:
    """The Workload of the job with this `namespace/name` or `Kind/namespace/name`.

    An elastic job may have several: the one with quota, else the first unfinished one.
    """
    everything: Iterable[Workload] = world.state.table("workloads").all()
    owned = [w for w in everything if w.owner and key in (w.owner, w.owner.partition("/")[2])]
    waiting = [workload for workload in owned if not workload.finished]
    return latest_active_slice(waiting) or next(iter(waiting or owned), None)


def _group_of(world: World, key: str) -> RunningGroup | None:
    """The running group of a lone pod or of a job without a Workload."""
    return next((group for group in world.groups.values() if key in (group.key, group.key.partition("/")[2])), None)


def resolve_workload_key(world: World, key: str) -> str:
    """Return the key of the Workload that a command names by its own key or by its job's name; else `key` itself."""
    workload = None if world.workload(key) is not None else _workload_of(world, key)
    return key if workload is None else workload.key


def _missing_workload(world: World, workload: Workload | None, key: str) -> Refusal:
    if workload is None and _group_of(world, key) is not None:
        return f"{key} has no Workload object, which this command needs"
    return f"there is no workload {key}" if workload is None else f"workload {key} is finished"
