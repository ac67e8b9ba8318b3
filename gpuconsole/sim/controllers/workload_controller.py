"""Kueue's workload controller: admitted and finished workloads, and concurrent-admission variants.

`reconcile_workload` applies the rules of `scheduling.kueue.workload_controller` until nothing is left to do: the effect
of queues, time and pods on workloads that hold quota or are finished. `reconcile_workload_variants` creates, activates
and stops the variants of a workload. A variant has no pods: those are created when its parent is admitted, and an
evicted variant keeps its quota until the parent's pods are gone (Kueue 0.19 pkg/controller/concurrentadmission).
"""

from msgspec.structs import replace

from gpuconsole.model.events import HistoryEventKind, KueueEvent
from gpuconsole.model.queues import ClusterQueue
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.concurrent_admission import PARENT, VARIANT_WAIT, is_parent, reconcile_variants
from gpuconsole.scheduling.kueue.conditions import QUOTA_RESERVED
from gpuconsole.scheduling.kueue.workload_controller import ReconcileResult, reactivate, reconcile, time_until_deletion
from gpuconsole.sim.controllers import completion, eviction, workloads
from gpuconsole.sim.kernel import ReconcileVariants, ReconcileWorkload
from gpuconsole.sim.world import World

MAX_RECONCILES = 8
"""Maximum reconciles of a workload at one moment: it is marked for deactivation, deactivated, evicted …"""


def reconcile_when_due(world: World, timer: ReconcileWorkload) -> None:
    """Reconcile a workload when its timer is due, unless another timer replaced that one."""
    if world.reconcile_timers.get(timer.workload) != world.now:
        return
    del world.reconcile_timers[timer.workload]
    if not _delete_deactivated_job(world, timer.workload):
        reconcile_workload(world, timer.workload)


def reconcile_workload(world: World, key: str) -> None:
    """Reconcile a workload that holds quota or is finished, and set the next timer."""
    looked: ReconcileResult | None = None
    for _ in range(MAX_RECONCILES):
        workload, session = world.workload(key), world.session
        if workload is None or session is None or not (workload.reserved or workload.finished):
            return
        outcome = reconcile(workload, session.look_up_queues(workload), session.config, world.now)
        if outcome.workload is workload and outcome.eviction is None:
            looked = outcome
            break
        _apply_result(world, workload, outcome)
    workload = world.workload(key)
    if workload is not None:
        workloads.set_requeue_timer(world, workload, looked)


def reactivate_workload(world: World, workload: Workload) -> None:
    """Reactivate a workload that was evicted when its queue stopped, if the queue runs again."""
    if world.session is None:
        return
    outcome = reactivate(workload, world.session.look_up_queues(workload), world.now)
    if outcome is not None and outcome.workload is not None:
        world.put(outcome.workload)


def _apply_result(world: World, before: Workload, outcome: ReconcileResult) -> None:
    after, why = outcome.workload, outcome.eviction
    if after is None:
        world.drop(Workload, before.key)
        value = outcome.events[0].message
        workloads.record_event(world, HistoryEventKind.DELETED, before, reason="Retention", message=value)
    elif why is not None:
        eviction.evict(world, after, why.reason, why.message, cause=why.cause)
    elif after.admitted and not before.admitted:
        workloads.admit_workload(world, before)
    elif before.reserved and not after.reserved:
        _release_reservation(world, before, after)
    else:
        world.put(after)


def _release_reservation(world: World, before: Workload, after: Workload) -> None:
    """Release the quota of a workload that was not admitted yet."""
    world.put(replace(after, inadmissible=False))
    value = after.condition(QUOTA_RESERVED)
    if value is not None:
        queue = workloads.cluster_queue_of(world, before)
        world.record_event(
            HistoryEventKind.PENDING,
            workload=after.key,
            queue=queue,
            reason=value.reason,
            message=value.message,
            priority=after.priority,
            **world.devices.of_workload(after),
        )
    if after.checks:
        world.workloads_with_checks_due[after.key] = None


def _delete_deactivated_job(world: World, key: str) -> bool:
    """Delete a job that Kueue deactivated, with its workload, after its retention time."""
    workload, session = world.workload(key), world.session
    if workload is None or session is None:
        return True
    kept = session.config.object_retention.after_deactivated_by_kueue
    if kept is None or workload.reserved or time_until_deletion(workload, kept, world.now) != 0:
        return False
    completion.delete_owner(world, Workload, key)
    return True


def reconcile_workload_variants(world: World, key: str) -> None:
    """Reconcile a workload with its concurrent-admission variants."""
    parent = world.workload(key)
    if parent is None:
        _delete_variants(world, key)
        return
    queue = _cluster_queue_of(world, parent)
    if queue is None or queue.concurrent_admission is None or world.session is None:
        return
    if not is_parent(parent):
        world.put(replace(parent, labels={**parent.labels, PARENT: "true"}))
        return
    names = world.children_workloads.get(key, {})
    variants = [variant for name in names if (variant := world.workload(name)) is not None]
    outcome = reconcile_variants(parent, variants, queue, world.now, granular=world.granular)
    before = {workload.key: workload for workload in (parent, *variants)}
    for variant in outcome.created:
        workloads.submit_workload(world, replace(variant, uid=world.next_uid(variant.key), created=world.now))
    for name in outcome.deleted:
        world.drop(Workload, name)
    for changed in outcome.changed:
        _apply_variant_change(world, before[changed.key], changed)
    for event in outcome.events:
        _record_event(world, event)
    if outcome.reconcile_after == VARIANT_WAIT:
        world.kernel.set_timer(world.now + VARIANT_WAIT, ReconcileVariants(key))


def _cluster_queue_of(world: World, workload: Workload) -> ClusterQueue | None:
    local_queue = world.local_queue(workload.local_queue)
    return world.cluster_queue(local_queue.cluster_queue) if local_queue is not None else None


def _delete_variants(world: World, key: str) -> None:
    """Delete variants with their parent (the garbage collector)."""
    for name in tuple(world.children_workloads.get(key, ())):
        world.drop(Workload, name)


def _apply_variant_change(world: World, before: Workload, after: Workload) -> None:
    """Apply a change of a parent or a variant."""
    evicted = after.condition(conditions.EVICTED)
    if evicted is not None and evicted.status and not before.is_true(conditions.EVICTED):
        eviction.evict(world, before, evicted.reason, evicted.message)
    elif after.admitted and not before.admitted:
        workloads.admit_workload(world, after)
    elif before.admitted and before.active and not after.active:
        eviction.evict(world, after, conditions.DEACTIVATED, "The workload is deactivated")
    else:
        world.put(after)


def _record_event(world: World, event: KueueEvent) -> None:
    workload = world.workload(event.workload)
    if workload is not None:
        workloads.record_event(world, HistoryEventKind.PENDING, workload, reason=event.reason, message=event.message)
