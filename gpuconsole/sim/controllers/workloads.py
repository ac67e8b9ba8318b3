"""Lifecycle of Workloads: queued, admitted, pods created, finished (Kueue: workload controller, job reconciler).

`record_obstacle` records what keeps a pending Workload from being tried at all. `set_requeue_timer` sets the timer of
the workload controller: one per workload, at its next relevant moment.

A running group ends when its work completes (`complete_group`), when it fails for good, or when its owner is deleted.
"""

from msgspec.structs import replace

from gpuconsole.model.clock import Span, Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.devices import is_counted
from gpuconsole.model.events import Admit, HistoryEventKind, KueueEvent, Refuse
from gpuconsole.model.job import Job, JobPhase, LaunchRules
from gpuconsole.model.volcano import JobAction
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import apply_decisions, conditions
from gpuconsole.scheduling.kueue.admissibility import inadmissible_reason
from gpuconsole.scheduling.kueue.conditions import all_checks_ready
from gpuconsole.scheduling.kueue.pod_resources import reserved_at
from gpuconsole.scheduling.kueue.podset import ELASTIC, Conflict
from gpuconsole.scheduling.kueue.slices import unfinished_slices
from gpuconsole.scheduling.kueue.workload_controller import (
    ReconcileResult,
    reconcile,
    time_until_deletion,
    with_pods_ready_condition,
)
from gpuconsole.scheduling.volcano.jobs.states import request_of_command
from gpuconsole.sim.controllers import job_lifecycle, pods, volcano_jobs, work
from gpuconsole.sim.controllers.pod_specs import started_pods
from gpuconsole.sim.controllers.work import BACKOFF_EXCEEDED, JobEnding
from gpuconsole.sim.kernel import CreateUnsuspendedPods, JobDeadline, ReconcileWorkload, WorkEnds
from gpuconsole.sim.world import RunningGroup, World


def cluster_queue_of(world: World, workload: Workload) -> str:
    """The ClusterQueue of a Workload: that of its quota, else that of its LocalQueue."""
    if workload.admission is not None:
        return workload.admission.cluster_queue
    queue = world.local_queue(workload.local_queue)
    return queue.cluster_queue if queue is not None else ""


def record_obstacle(world: World, workload: Workload) -> None:
    """Record in a pending Workload why Kueue does not try it, such as a stopped queue (Kueue: workload controller)."""
    current = world.workload(workload.key)
    if current is None or current.reserved or current.finished:
        return
    reason, message = obstacle_of(world, current)
    if not message:
        return
    granular = world.session is not None and world.session.config.has_granular_reasons
    changed = conditions.set_pending_reason(current, reason, message, world.now, granular=granular)
    if changed is current:
        return
    world.put(replace(changed, inadmissible=False))
    world.record_event(
        HistoryEventKind.PENDING,
        workload=current.key,
        queue=cluster_queue_of(world, current),
        reason=reason,
        message=message,
        priority=current.priority,
        **world.devices.of_workload(current),
    )


def obstacle_of(world: World, workload: Workload) -> tuple[str, str]:
    """Reason and message why Kueue does not try a Workload, such as a missing queue; empty strings if it does."""
    session = world.session
    if session is None:
        return "", ""
    if not workload.active and not session.config.has_granular_reasons:
        return conditions.INADMISSIBLE, "The workload is deactivated"
    return inadmissible_reason(workload, session.look_up_queues(workload), session.config)


def with_pods_ready(workload: Workload, now: Time) -> Workload:
    """The workload with PodsReady true: all its pods run."""
    return with_pods_ready_condition(workload, True, now)


def with_pods_not_ready(workload: Workload, now: Time) -> Workload:
    """The workload with PodsReady false: pods do not run yet, or no longer."""
    return with_pods_ready_condition(workload, False, now)


def set_requeue_timer(world: World, workload: Workload, reconciled: ReconcileResult | None = None) -> None:
    """Set the timer of a workload's next change by time alone, unless an earlier timer is set.

    `reconciled` is the result of a reconcile just now, if any.
    """
    left = time_until_requeue(world, workload, reconciled)
    if left is None:
        return
    due = world.now + left
    set_already = world.reconcile_timers.get(workload.key)
    if set_already is None or not world.now < set_already <= due:
        world.reconcile_timers[workload.key] = due
        world.kernel.set_timer(due, ReconcileWorkload(workload.key))


def time_until_requeue(world: World, workload: Workload, reconciled: ReconcileResult | None = None) -> Span | None:
    """The time until a workload's next change by time alone: 0 = now; None = never. See `set_requeue_timer`."""
    session = world.session
    if session is None:
        return None
    retention = session.config.object_retention
    if retention.after_deactivated_by_kueue is not None and not workload.reserved:
        left = time_until_deletion(workload, retention.after_deactivated_by_kueue, world.now)
        if left is not None:
            return left
    if not (workload.reserved or workload.finished):
        return None
    outcome = reconciled or reconcile(workload, session.look_up_queues(workload), session.config, world.now)
    if outcome.workload is not workload:
        return 0
    return outcome.reconcile_after or None


FAILED_TO_START = "FailedToStart"
SUCCEEDED = "Job finished successfully"


def submit_workload(world: World, workload: Workload) -> None:
    """Add a new Workload to its queue, with the history event."""
    world.put(workload)
    world.record_event(
        HistoryEventKind.SUBMITTED,
        workload=workload.key,
        queue=cluster_queue_of(world, workload),
        priority=workload.priority,
        **world.devices.of_workload(workload),
    )
    record_obstacle(world, workload)


def reserve_quota(world: World, decision: Admit, at: Time) -> None:
    """Reserve quota; without pending admission checks the workload is admitted and its pods are created."""
    waiting = world.workload(decision.workload)
    if waiting is None or waiting.reserved:
        return
    kueue_events = apply_decisions.quota_reserved_event(decision, waiting, at)
    queue = world.cluster_queue(decision.admission.cluster_queue)
    workload = replace(apply_decisions.with_reservation(waiting, decision, queue, at), inadmissible=False)
    if all_checks_ready(workload):
        admit_workload(world, workload, kueue_events)
    else:
        world.put(workload)
        record_event(world, HistoryEventKind.RESERVED, workload, told=(kueue_events,))
        world.workloads_with_checks_due[workload.key] = None


def admit_workload(world: World, workload: Workload, *kueue_events: KueueEvent) -> None:
    """Admit a workload with quota and without pending checks, and create its pods.

    `kueue_events` are the Events of its quota reservation, if it reserved quota at this moment.
    """
    workload = conditions.sync_admitted(workload, world.now, granular=world.granular)
    workload = with_pods_not_ready(workload, world.now) if workload.admitted else workload
    world.put(workload)
    if not workload.admitted:
        return  # It still needs topology assignments, which the second pass finds.
    if workload.parent:
        return  # The job belongs to its parent, which is admitted with it.
    record_event(
        world,
        HistoryEventKind.ADMITTED,
        workload,
        borrowed=_borrowed_accelerators(world, workload),
        waited=world.now - apply_decisions.queued_since(workload),
        told=(
            *kueue_events,
            apply_decisions.admitted_event(workload, max(0, world.now - reserved_at(workload, world.now))),
        ),
    )
    unsuspended = world.draw_latency("job_unsuspend", "pod_creation", of=(workload.key, workload.uid))
    if unsuspended:
        world.kernel.set_timer(world.now + unsuspended, CreateUnsuspendedPods(workload.key, world.now))
    else:
        unsuspend_job(world, workload)
    set_requeue_timer(world, workload)


def create_unsuspended_pods(world: World, timer: CreateUnsuspendedPods) -> None:
    """Create the pods of an admitted workload, unless it lost its quota or finished meanwhile."""
    workload = world.workload(timer.workload)
    if workload is None or not workload.admitted or workload.finished or workload.is_true(conditions.EVICTED):
        return
    admitted = workload.condition(conditions.ADMITTED)
    if admitted is not None and admitted.since == timer.admitted:
        unsuspend_job(world, workload)


def unsuspend_job(world: World, workload: Workload) -> None:
    """Unsuspend an admitted workload's job: its pods are created. One that can never start is finished.

    If a worker cluster runs it, the pods are created there.
    """
    if workload.cluster:
        job_lifecycle.set_phase(world, workload.owner, JobPhase.PENDING, suspended=False)
        return
    try:
        made = started_pods(world, workload)
    except Conflict as problem:
        finish_workload(world, workload, FAILED_TO_START, str(problem))
        return
    taken_over = world.groups.get(workload.key)
    if taken_over is not None and taken_over.is_independent:
        world.groups_to_reconcile[taken_over.key] = None
        return
    if taken_over is not None:
        pods.create_missing(world, taken_over, made)
        return
    job_lifecycle.set_phase(world, workload.owner, JobPhase.PENDING, suspended=False)
    job_lifecycle.start_deadline(world, workload.owner)
    job = world.job(workload.owner) if workload.owner else None
    group = RunningGroup(
        key=workload.key, workload=workload.key, job=workload.owner, pods_needed=len(made), created=world.now
    )
    if job is not None and job.solo:
        pods.create_group(world, replace(group, is_independent=True), ())
    else:
        pods.create_group(world, group, made)


def record_refusal(world: World, decision: Refuse) -> None:
    """Keep a workload pending after a scheduling cycle, and record why it was not admitted."""
    workload = world.workload(decision.workload)
    if workload is None or world.session is None:
        return
    changed = conditions.apply_refusal(workload, decision, world.now, granular=world.granular)
    if changed is workload and workload.key in world.possibly_inadmissible:
        return  # If it is inadmissible now, that is recorded after the cycles.
    inadmissible = world.session.is_inadmissible(workload.key)
    if changed is not workload:
        world.record_event(
            HistoryEventKind.PENDING,
            workload=workload.key,
            queue=cluster_queue_of(world, workload),
            reason=decision.requeue or decision.reason,
            message=decision.message,
            priority=workload.priority,
            told=(apply_decisions.rejection_event(decision),),
            **world.devices.of_workload(workload),
        )
    if changed is not workload or workload.inadmissible != inadmissible:
        world.put(replace(changed, inadmissible=inadmissible))


def finish_workload(world: World, workload: Workload, reason: str, message: str) -> None:
    """Finish a workload: its quota is released at once."""
    finished = conditions.mark_finished(workload, reason, message, world.now)
    if finished is workload:
        return
    world.put(finished)
    set_requeue_timer(world, finished)
    if workload.checks:
        world.workloads_with_checks_due[workload.key] = None
    what = HistoryEventKind.FAILED if reason == "Failed" else HistoryEventKind.FINISHED
    record_event(world, what, workload, reason=reason, message=message)


def _borrowed_accelerators(world: World, workload: Workload) -> int:
    """The number of just admitted accelerators above the nominal quota of its ClusterQueue."""
    queue = world.cluster_queue(workload.cluster_queue)
    if queue is None or world.session is None or workload.admission is None:
        return 0
    asked: dict[tuple[str, str], int] = {}
    claimed = {one.name for one in world.session.config.device_class_mappings}
    for assignment in workload.admission.pod_sets:
        for resource, flavor in assignment.flavors.items():
            if is_counted(resource) or resource in claimed:
                key = (flavor, resource)
                asked[key] = asked.get(key, 0) + assignment.usage.get(resource, 0)
    quotas, usage = queue.quotas(), world.session.usage_tree
    node, columns = usage.tree.queues[queue.name], usage.tree.numbers
    return sum(
        min(amount, max(0, usage.usage_of(node, columns[key]) - quotas[key].nominal)) for key, amount in asked.items()
    )


def record_event(world: World, what: HistoryEventKind, workload: Workload, **more: object) -> None:
    """Add an event about a workload to the history."""
    world.record_event(
        what,
        workload=workload.key,
        queue=workload.cluster_queue or cluster_queue_of(world, workload),
        flavor=workload.flavor,
        priority=workload.priority,
        **world.devices.of_workload(workload),
        **more,
    )


def complete_work(world: World, timer: WorkEnds) -> None:
    """Complete the work, unless it was interrupted since the timer was set."""
    group = world.groups.get(timer.group)
    if group is not None and group.start == timer.start:
        complete_group(world, group)


def complete_group(world: World, group: RunningGroup, *, by_command: bool = False) -> None:
    """All pods of a running group succeed, its job and its Workload finish, and its quota is released.

    Of a Volcano Job only running pods complete; pending ones run later, unless a command ended the job (`by_command`).
    """
    job = world.job(group.job) if group.job else None
    if job is not None and job.volcano is not None and not group.workload:
        ran = volcano_jobs.complete_work(world, job)
        if not ran or (by_command and not all(pod.done for pod in pods.pods_of(world, group))):
            volcano_jobs.queue_request(world, request_of_command(job.key, JobAction.COMPLETE_JOB))
        return
    members = pods.pods_of(world, group)
    _delete_non_deciding_pods(world, job, members)
    pods.complete_group(world, group)
    _finish_group(world, group, JobPhase.SUCCEEDED, "Succeeded", SUCCEEDED, members)


def _delete_non_deciding_pods(world: World, job: Job | None, members: list[Pod]) -> None:
    """Delete the pods that do not decide how a job ends (a launcher's workers, parameter servers)."""
    if job is not None and isinstance(job.rules, LaunchRules) and job.rules.deciders:
        pods.delete_pods(world, [pod for pod in members if pod.pod_set not in job.rules.deciders], "JobEnded")


def end_job(world: World, group: RunningGroup, ending: JobEnding) -> None:
    """End a running group's job as `ending` says, and delete its remaining pods."""
    members = pods.pods_of(world, group)
    loss = work.interrupt_work(world, group.key) if not ending.succeeded else work.NO_LOSS
    pods.delete_pods(world, [pod for pod in members if not pod.done], ending.reason)
    pods.delete_group(world, group)
    if ending.succeeded:
        _finish_group(world, group, JobPhase.SUCCEEDED, "Succeeded", SUCCEEDED, members)
    else:
        _finish_group(world, group, JobPhase.FAILED, "Failed", ending.message, members, loss)


def fail_over_deadline(world: World, timer: JobDeadline) -> None:
    """Fail a job that exceeded its activeDeadlineSeconds."""
    job = job_lifecycle.job_over_deadline(world, timer)
    group = None if job is None else next((c for c in world.groups.values() if c.job == job.key), None)
    if group is not None:
        end_job(world, group, JobEnding(False, "DeadlineExceeded", job_lifecycle.DEADLINE_EXCEEDED))


def fail_over_backoff_limit(world: World, group: RunningGroup) -> None:
    """Fail a job that exceeded its backoffLimit and has no pods left."""
    members = pods.pods_of(world, group)
    pods.delete_group(world, group)
    _finish_group(world, group, JobPhase.FAILED, "Failed", BACKOFF_EXCEEDED, members)


def finish_pending(world: World, workload: Workload) -> None:
    """Finish a pending workload and its job; it has no pods."""
    job_lifecycle.set_phase(world, workload.owner, JobPhase.SUCCEEDED)
    finish_workload(world, workload, "Succeeded", SUCCEEDED)
    job_lifecycle.schedule_removal(world, (world.workload(workload.key), world.job(workload.owner)))


def delete_owner(world: World, kind: type[Workload] | type[Job], key: str) -> None:
    """Delete a Workload with its job, or a job without a Workload; their pods terminate in their grace period."""
    workload = world.workload(key) if kind is Workload else None
    job = world.job(key) if kind is Job else world.job(workload.owner) if workload is not None else None
    group = world.groups.get(key)
    members = _pods_of_group(world, key, group)
    if group is not None:
        # Work under way must not complete while its pods terminate.
        work.interrupt_work(world, key)
        world.groups_to_reconcile[key] = None
    if job is not None:
        world.drop(Job, job.key)
        if job.volcano is not None:
            volcano_jobs.delete_group(world, job)
    if workload is not None:
        queue, priority, amount = workload.cluster_queue, workload.priority, world.devices.of_workload(workload)
        world.drop(Workload, key)
        if workload.checks:
            world.workloads_with_checks_due[key] = None
        world.record_event(HistoryEventKind.DELETED, workload=key, queue=queue, priority=priority, **amount)
    else:
        world.record_event(HistoryEventKind.DELETED, workload=key)
    pods.delete_pods(world, members, "Deleted")
    for other in _other_slices(world, workload) if workload is not None and job is not None else ():
        delete_owner(world, Workload, other.key)


def _other_slices(world: World, workload: Workload) -> list[Workload]:
    """Other unfinished slices of the same elastic job, such as one that waits to replace this one."""
    if ELASTIC not in workload.annotations:
        return []
    slices = unfinished_slices(world.state.table("workloads").all(), workload.owner)
    return [other for other in slices if other.key != workload.key]


def _pods_of_group(world: World, key: str, group: RunningGroup | None) -> list[Pod]:
    """The pods of a running group, including those left behind when it or a wave of its pods finished."""
    if group is not None and not group.is_independent:
        return pods.pods_of(world, group)
    return [pod for pod in world.state.table("pods").all() if key in (pod.workload, pod.job)]


def _finish_group(
    world: World,
    group: RunningGroup,
    phase: JobPhase,
    reason: str,
    message: str,
    members: list[Pod],
    loss: work.WorkLoss = work.NO_LOSS,
) -> None:
    job = group.job
    job_lifecycle.set_phase(world, job, phase)
    workload = world.workload(group.workload) if group.workload else None
    if workload is not None:
        finish_workload(world, workload, reason, message)
        for other in _other_slices(world, workload):
            finish_workload(world, other, reason, message)
    else:
        what = HistoryEventKind.FAILED if phase is JobPhase.FAILED else HistoryEventKind.FINISHED
        subject = job or members[0].key
        # The requested GPUs: on a live cluster the assigned ones are a guess, and may be fewer.
        world.record_event(
            what,
            workload=subject,
            reason=reason,
            message=message,
            lost_gpu_seconds=loss.gpu_seconds,
            cost=loss.cost,
            **world.devices.requested(members),
        )
    present = job_lifecycle.finished_pods_of(world, world.job(job), members)
    job_lifecycle.schedule_removal(world, (world.workload(group.workload), world.job(job), *present))
    job_lifecycle.schedule_ttl_removal(world, world.job(job), (world.workload(group.workload), *present))
