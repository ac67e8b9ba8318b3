"""Lifecycle of Workloads: queued, admitted, pods created, finished (Kueue: workload controller, job reconciler).

`record_obstacle` records what keeps a pending Workload from being tried at all. `set_requeue_timer` sets the timer of
the workload controller: one per workload, at its next relevant moment.
"""

from msgspec.structs import replace

from gpuconsole.model.clock import Span, Time
from gpuconsole.model.devices import is_counted
from gpuconsole.model.events import Admit, HistoryEventKind, KueueEvent, Refuse
from gpuconsole.model.job import JobPhase
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import apply_decisions, conditions
from gpuconsole.scheduling.kueue.admissibility import inadmissible_reason
from gpuconsole.scheduling.kueue.conditions import all_checks_ready
from gpuconsole.scheduling.kueue.pod_resources import reserved_at
from gpuconsole.scheduling.kueue.podset import Conflict
from gpuconsole.scheduling.kueue.workload_controller import (
    ReconcileResult,
    reconcile,
    time_until_deletion,
    with_pods_ready_condition,
)
from gpuconsole.sim.controllers import job_lifecycle, pods
from gpuconsole.sim.controllers.pod_specs import started_pods
from gpuconsole.sim.kernel import CreateUnsuspendedPods, ReconcileWorkload
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
