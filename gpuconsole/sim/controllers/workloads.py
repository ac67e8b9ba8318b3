"""Lifecycle of Workloads: queued, admitted, pods created, finished (Kueue: workload controller, job reconciler).

`record_obstacle` records what keeps a pending Workload from being tried at all. `watch_requeue` sets the timer of the
workload controller: one per workload, at its next relevant moment.
"""

from msgspec.structs import replace

from gpuconsole.model.clock import Span, Time
from gpuconsole.model.devices import is_counted
from gpuconsole.model.events import Admit, HistoryEventKind, KueueEvent, Refuse
from gpuconsole.model.job import JobPhase
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import apply_decisions, conditions
from gpuconsole.scheduling.kueue.admissibility import inadmissible_reason
from gpuconsole.scheduling.kueue.conditions import all_ready
from gpuconsole.scheduling.kueue.pod_resources import reserved_at
from gpuconsole.scheduling.kueue.podset import Conflict
from gpuconsole.scheduling.kueue.workload_controller import (
    ReconcileResult,
    deactivation_left,
    reconcile,
    with_readiness,
)
from gpuconsole.sim.controllers import job_lifecycle, pods
from gpuconsole.sim.controllers.pod_specs import started_pods
from gpuconsole.sim.kernel import MakePods, ReconcileWorkload
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
    granular = world.session is not None and world.session.config.granular
    changed = conditions.refuse(current, reason, message, world.now, granular=granular)
    if changed is current:
        return
    world.put(replace(changed, inadmissible=False))
    world.tell(
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
    if not workload.active and not session.config.granular:
        return conditions.INADMISSIBLE, "The workload is deactivated"
    return inadmissible_reason(workload, session.look_up_queues(workload), session.config)


def with_pods_ready(workload: Workload, now: Time) -> Workload:
    """The workload with PodsReady true: all its pods run."""
    return with_readiness(workload, True, now)


def with_pods_not_ready(workload: Workload, now: Time) -> Workload:
    """The workload with PodsReady false: pods do not run yet, or no longer."""
    return with_readiness(workload, False, now)


def watch_requeue(world: World, workload: Workload, looked: ReconcileResult | None = None) -> None:
    """Set the timer of a workload's next change by time alone, unless an earlier timer is set.

    `looked` is the result of a reconcile just now, if any.
    """
    left = time_until_requeue(world, workload, looked)
    if left is None:
        return
    due = world.now + left
    set_already = world.reconcile_timers.get(workload.key)
    if set_already is None or not world.now < set_already <= due:
        world.reconcile_timers[workload.key] = due
        world.kernel.at(due, ReconcileWorkload(workload.key))


def time_until_requeue(world: World, workload: Workload, looked: ReconcileResult | None = None) -> Span | None:
    """The time until a workload's next change by time alone: 0 = now; None = never. `looked` as for `watch_requeue`."""
    session = world.session
    if session is None:
        return None
    retention = session.config.object_retention
    if retention.after_deactivated_by_kueue is not None and not workload.reserved:
        left = deactivation_left(workload, retention.after_deactivated_by_kueue, world.now)
        if left is not None:
            return left
    if not (workload.reserved or workload.finished):
        return None
    outcome = looked or reconcile(workload, session.look_up_queues(workload), session.config, world.now)
    if outcome.workload is not workload:
        return 0
    return outcome.again or None


FAILED_TO_START = "FailedToStart"
SUCCEEDED = "Job finished successfully"


def submit(world: World, workload: Workload) -> None:
    """Add a new Workload to its queue, with the history event."""
    world.put(workload)
    world.tell(
        HistoryEventKind.SUBMITTED,
        workload=workload.key,
        queue=cluster_queue_of(world, workload),
        priority=workload.priority,
        **world.devices.of_workload(workload),
    )
    record_obstacle(world, workload)


def admit(world: World, decision: Admit, at: Time) -> None:
    """Reserve quota; without pending admission checks the workload is admitted and its pods are created."""
    waiting = world.workload(decision.workload)
    if waiting is None or waiting.reserved:
        return
    kueue_events = apply_decisions.quota_reserved_event(decision, waiting, at)
    queue = world.cluster_queue(decision.admission.cluster_queue)
    workload = replace(apply_decisions.reserved(waiting, decision, queue, at), inadmissible=False)
    if all_ready(workload):
        start(world, workload, kueue_events)
    else:
        world.put(workload)
        tell(world, HistoryEventKind.RESERVED, workload, told=(kueue_events,))
        world.unchecked[workload.key] = None


def start(world: World, workload: Workload, *kueue_events: KueueEvent) -> None:
    """Admit a workload with quota and without pending checks, and create its pods.

    `kueue_events` are the Events of its quota reservation, if it reserved quota at this moment.
    """
    workload = conditions.admit(workload, world.now, granular=world.granular)
    workload = with_pods_not_ready(workload, world.now) if workload.admitted else workload
    world.put(workload)
    if not workload.admitted:
        return  # It still needs topology assignments, which the second pass finds.
    if workload.parent:
        return  # The job belongs to its parent, which is admitted with it.
    tell(
        world,
        HistoryEventKind.ADMITTED,
        workload,
        borrowed=_borrowed(world, workload),
        waited=world.now - apply_decisions.queued_since(workload),
        told=(
            *kueue_events,
            apply_decisions.admitted_event(workload, max(0, world.now - reserved_at(workload, world.now))),
        ),
    )
    unsuspended = world.latency("job_unsuspend", "pod_creation", of=(workload.key, workload.uid))
    if unsuspended:
        world.kernel.at(world.now + unsuspended, MakePods(workload.key, world.now))
    else:
        make_pods(world, workload)
    watch_requeue(world, workload)


def job_unsuspended(world: World, timer: MakePods) -> None:
    """Create the pods of an admitted workload, unless it lost its quota or finished meanwhile."""
    workload = world.workload(timer.workload)
    if workload is None or not workload.admitted or workload.finished or workload.is_true(conditions.EVICTED):
        return
    admitted = workload.condition(conditions.ADMITTED)
    if admitted is not None and admitted.since == timer.admitted:
        make_pods(world, workload)


def make_pods(world: World, workload: Workload) -> None:
    """Unsuspend an admitted workload's job: its pods are created. One that can never start is finished.

    If a worker cluster runs it, the pods are created there.
    """
    if workload.cluster:
        job_lifecycle.mark_phase(world, workload.owner, JobPhase.PENDING, suspended=False)
        return
    try:
        made = started_pods(world, workload)
    except Conflict as problem:
        finish(world, workload, FAILED_TO_START, str(problem))
        return
    taken_over = world.groups.get(workload.key)
    if taken_over is not None and taken_over.solo:
        world.dirty[taken_over.key] = None
        return
    if taken_over is not None:
        pods.reinforce(world, taken_over, made)
        return
    job_lifecycle.mark_phase(world, workload.owner, JobPhase.PENDING, suspended=False)
    job_lifecycle.begin_deadline(world, workload.owner)
    job = world.job(workload.owner) if workload.owner else None
    group = RunningGroup(key=workload.key, workload=workload.key, job=workload.owner, need=len(made), formed=world.now)
    if job is not None and job.solo:
        pods.form(world, replace(group, solo=True), ())
    else:
        pods.form(world, group, made)


def refuse(world: World, decision: Refuse) -> None:
    """Keep a workload pending after a scheduling cycle, and record why it was not admitted."""
    workload = world.workload(decision.workload)
    if workload is None or world.session is None:
        return
    changed = conditions.take_refusal(workload, decision, world.now, granular=world.granular)
    if changed is workload and workload.key in world.waiting:
        return  # If it is inadmissible now, that is recorded after the cycles.
    inadmissible = world.session.is_inadmissible(workload.key)
    if changed is not workload:
        world.tell(
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


def finish(world: World, workload: Workload, reason: str, message: str) -> None:
    """Finish a workload: its quota is released at once."""
    finished = conditions.finish(workload, reason, message, world.now)
    if finished is workload:
        return
    world.put(finished)
    watch_requeue(world, finished)
    if workload.checks:
        world.unchecked[workload.key] = None
    what = HistoryEventKind.FAILED if reason == "Failed" else HistoryEventKind.FINISHED
    tell(world, what, workload, reason=reason, message=message)


def _borrowed(world: World, workload: Workload) -> int:
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
    quotas, usage = queue.quotas(), world.session.tree
    node, columns = usage.tree.queues[queue.name], usage.tree.numbers
    return sum(
        min(amount, max(0, usage.used(node, columns[key]) - quotas[key].nominal)) for key, amount in asked.items()
    )


def tell(world: World, what: HistoryEventKind, workload: Workload, **more: object) -> None:
    """Add an event about a workload to the history."""
    world.tell(
        what,
        workload=workload.key,
        queue=workload.cluster_queue or cluster_queue_of(world, workload),
        flavor=workload.flavor,
        priority=workload.priority,
        **world.devices.of_workload(workload),
        **more,
    )
